"""Which deadlines can be met, and when each job runs to meet its own: Chronus's plan.

A plan holds, for each promised job, the times in which it has all its GPUs. It is exact: at no time more GPUs are
promised than there are, and each job has its run time before its deadline. So long as run times are exact and the plan
is followed no promise is broken; a new one is only made where a plan with all the old ones is found.

Source: Gao et al. (Chronus), SoCC '21, for choosing whose deadline to promise by a mixed-integer programme over leases,
or greedily. Leases far ahead are counted in blocks, so that a programme of days has few columns: in a block no job has
more leases than it is long, and all together no more GPUs than there are. Blocks, and the exact plan, are ours.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from slurmsched.model.columns import Bools, Int64s
from slurmsched.policies.solve import Programme, solve

Interval = list[float]  # begin, end [Unix s]
EXACT_S = 1e-5  # times closer than this are the same: what is left of a Unix time in float64
SINGLE = 8  # leases ahead that are counted one by one
FIRM = 1_000.0  # of a job that was promised its deadline before, against 1 of one that was not
EARLIER = 1e-3  # more of an earlier deadline, where equally many are possible
NODES = 200  # of the search tree; what is best by then is taken


@dataclass(frozen=True, slots=True)
class Deadline:
    """A job to be planned. gpus: of its gang. left_s: run time to come [s]. due_s: deadline [Unix s]."""

    gpus: int
    left_s: float
    due_s: float


class FreeOverTime:
    """GPUs that are not promised, from now on: free[i] of them from at_s[i] [Unix s] until at_s[i + 1]."""

    def __init__(self, now_s: float, gpus: int) -> None:
        self.at_s, self.free = [now_s], [gpus]

    def earliest(self, job: Deadline) -> list[Interval] | None:
        """The first times that have room for the job until it is through, None if it would end after its deadline."""
        made: list[Interval] = []
        left_s = job.left_s
        for number, begin_s in enumerate(self.at_s):
            if begin_s + left_s > job.due_s + EXACT_S:
                return None
            if self.free[number] < job.gpus:
                continue
            until_s = self.at_s[number + 1] if number + 1 < len(self.at_s) else math.inf
            end_s = min(until_s, begin_s + left_s)
            if made and made[-1][1] == begin_s:
                made[-1][1] = end_s
            else:
                made.append([begin_s, end_s])
            left_s -= end_s - begin_s
            if left_s <= EXACT_S:
                return made
        return None

    def has_room(self, intervals: Iterable[Interval], gpus: int) -> bool:
        """Whether so many GPUs are free in all these times."""
        return all(self.free[number] >= gpus for begin_s, end_s in intervals for number in self._within(begin_s, end_s))

    def take(self, intervals: Iterable[Interval], gpus: int) -> None:
        """Promise so many GPUs in these times."""
        for begin_s, end_s in intervals:
            for at_s in (begin_s, end_s):
                self._split(at_s)
            for number in self._within(begin_s, end_s):
                self.free[number] -= gpus

    def _within(self, begin_s: float, end_s: float) -> range:
        """Numbers of the parts that these times touch."""
        first = bisect_left(self.at_s, begin_s + EXACT_S) - 1
        return range(max(first, 0), bisect_left(self.at_s, end_s - EXACT_S))

    def _split(self, at_s: float) -> None:
        number = bisect_left(self.at_s, at_s)
        if number == 0 or (number < len(self.at_s) and self.at_s[number] == at_s):
            return
        self.at_s.insert(number, at_s)
        self.free.insert(number, self.free[number - 1])


class Plan:
    """The times of promised jobs by a number of each, on so many GPUs from now_s on [Unix s]."""

    def __init__(self, now_s: float, gpus: int) -> None:
        self.now_s, self.gpus = now_s, gpus
        self.jobs: dict[int, Deadline] = {}
        self.times: dict[int, list[Interval]] = {}
        self._free = FreeOverTime(now_s, gpus)

    def keep(self, number: int, job: Deadline, intervals: Sequence[Interval]) -> bool:
        """Enter a job with the times that it was promised, as far as it still needs them; whether they are enough."""
        held, left_s = list[Interval](), job.left_s
        for begin_s, end_s in intervals:
            begin_s = max(begin_s, self.now_s)
            end_s = min(end_s, begin_s + left_s)
            if end_s > begin_s:
                held.append([begin_s, end_s])
                left_s -= end_s - begin_s
        if left_s > EXACT_S or not self._free.has_room(held, job.gpus):
            return False
        self._enter(number, job, held)
        return True

    def add(self, number: int, job: Deadline) -> bool:
        """Enter a job where there is room, or with all others anew by their deadlines; whether all are in time."""
        if (found := self._free.earliest(job)) is not None:
            self._enter(number, job, found)
            return True
        anew = Plan(self.now_s, self.gpus)
        if not anew.earliest_first({**self.jobs, number: job}):
            return False
        self.jobs, self.times, self._free = anew.jobs, anew.times, anew._free
        return True

    def earliest_first(self, jobs: dict[int, Deadline]) -> bool:
        """Enter these jobs by their deadlines, each as early as can be; whether all are in time."""
        for number in sorted(jobs, key=lambda each: (jobs[each].due_s, each)):
            found = self._free.earliest(jobs[number])
            if found is None:
                return False
            self._enter(number, jobs[number], found)
        return True

    def _enter(self, number: int, job: Deadline, intervals: list[Interval]) -> None:
        self.jobs[number], self.times[number] = job, intervals
        self._free.take(intervals, job.gpus)


def with_more(plan: Plan, asked: dict[int, Deadline], order: Iterable[int]) -> Plan:
    """The plan and as many of these jobs as find room, asked one after the other; the given one stays as it is."""
    made = Plan(plan.now_s, plan.gpus)
    for number, job in plan.jobs.items():
        made._enter(number, job, plan.times[number])
    for number in order:
        made.add(number, asked[number])
    return made


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """By deadline job, earliest deadline first. gpus, needed: (A,) GPUs, and leases to come. within: (A,) whole leases
    before the deadline. firm: (A,) bool, its deadline was promised."""

    gpus: Int64s
    needed: Int64s
    within: Int64s
    firm: Bools


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """admitted: (A,) bool, whose deadline may be promised. proven: False where the search was cut."""

    admitted: Bools
    proven: bool = True


def blocks(leases: int) -> Int64s:
    """Lengths of blocks that cover so many leases: single ones, then each twice as long as the one before. (B,)."""
    lengths = [1] * min(max(leases, 1), SINGLE)
    while sum(lengths) < leases:
        lengths.append(2 * lengths[-1])
    return np.array(lengths, np.int64)


def most_leases(demand: Demand, length: Int64s) -> Int64s:
    """Leases of each block that end before each deadline. (A, B) int64."""
    begin = np.cumsum(length) - length
    return np.clip(demand.within[:, None] - begin, 0, length)


def greedy(demand: Demand, capacity: int) -> Packing:
    """Jobs one after the other, those promised first, then by slack and fewest GPUs, each in its earliest leases."""
    length = blocks(int(demand.within.max(initial=1)))
    most, free = most_leases(demand, length), capacity * length
    admitted = np.zeros(len(demand.gpus), np.bool_)
    slack = demand.within - demand.needed
    for job in np.lexsort((np.arange(len(slack)), demand.gpus, slack, ~demand.firm)).tolist():
        room = np.minimum(most[job], free // demand.gpus[job])
        if room.sum() < demand.needed[job]:
            continue
        taken = np.clip(demand.needed[job] - (np.cumsum(room) - room), 0, room)
        free = free - taken * demand.gpus[job]
        admitted[job] = True
    return Packing(admitted)


def best(demand: Demand, capacity: int) -> Packing:
    """As many jobs as can be, those promised before all, by a mixed-integer programme over leases by job and block."""
    length = blocks(int(demand.within.max(initial=1)))
    found = solve(_programme(demand, length, capacity), gap=1e-7, nodes=NODES)
    if found.x is None:
        return greedy(demand, capacity)
    return Packing(found.x[: len(demand.gpus)] > 0.5, found.status == "optimal")


def _programme(demand: Demand, length: Int64s, capacity: int) -> Programme:
    """Over whether each job is admitted (A,), then its leases in each block (A x B)."""
    from scipy import sparse

    count, width = len(demand.gpus), len(length)
    cells = np.arange(count * width)
    job, block = np.divmod(cells, width)
    gpus = demand.gpus[job].astype(np.float64)
    in_block = sparse.csr_array((gpus, (block, count + cells)), shape=(width, count * (1 + width)))
    whole = sparse.hstack([sparse.diags_array(-demand.needed.astype(np.float64)),
                           sparse.csr_array((np.ones(len(cells)), (job, cells)))]).tocsr()  # fmt: skip
    worth = np.where(demand.firm, FIRM, 1.0) + EARLIER * (1 - np.arange(count) / max(count, 1)) / max(count, 1)
    cost = np.concatenate([-worth, np.zeros(len(cells))])
    high = np.concatenate([np.ones(count), most_leases(demand, length).ravel()]).astype(np.float64)
    return Programme(
        cost, np.zeros(len(cost)), high, in_block, (capacity * length).astype(np.float64), whole, np.zeros(count),
        np.ones(len(cost), np.bool_),
    )  # fmt: skip

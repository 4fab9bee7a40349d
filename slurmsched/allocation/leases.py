"""Leases, and plans of promised deadlines.

A lease begins with the run: a job that got GPUs keeps them for a while. When its lease ends the job competes again. If
it is chosen, it gets another lease.

A plan holds, for each promised job, the times in which it has all its GPUs. It never promises more GPUs than there are,
and each job has its run time before its deadline. If run times are exact and the plan is followed, no promise is
broken. A new promise is made only if a plan with all earlier promises is found.

Source: Gao et al. (Chronus), SoCC '21, for choosing deadlines by a mixed-integer programme over leases, or greedily.
Leases far ahead are counted in blocks, so that a programme of days has few columns: in a block no job has more leases
than the block is long, and all jobs together no more GPUs than there are. Blocks, and the exact plan, are ours.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from slurmsched.allocation.job_memory import NEVER_S, recall
from slurmsched.allocation.solver import Programme, solve
from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.resources.allocated import holding
from slurmsched.resources.startable_jobs import startable

LONG_AGO_S = NEVER_S / 2  # start of a run of which Slurm does not say when it began: its lease is over
LEASE_COLUMNS = ("run_s", "until_s")  # in a carry: start of the run that the lease is of, and its end


@dataclass(frozen=True, slots=True, eq=False)
class Leases:
    """By row of jobs.

    run_s: (N,) start of the run, NEVER_S for a job that holds no GPUs.
    until_s: (N,) end of its lease [Unix s], NEVER_S without one.
    in_force: (N,) bool, the lease is not over.
    """

    run_s: Floats
    until_s: Floats
    in_force: Bools
    now_s: float
    lease_s: float

    def renewed(self, chosen: Bools, part: Floats | float = 1.0) -> dict[str, Floats]:
        """The columns to remember when these jobs are to hold GPUs from now on. chosen: (N,) bool.

        part: (N,) of a whole lease that a chosen job gets.
        """
        anew = chosen & ~self.in_force & (self.run_s > NEVER_S)
        return {"run_s": self.run_s, "until_s": np.where(anew, self.now_s + part * self.lease_s, self.until_s)}

    def next_end_s(self, remembered: dict[str, Floats], running: Bools) -> float:
        """When the next lease ends of those that hold GPUs from now on [Unix s], infinity if none does."""
        until_s = np.where(self.run_s > NEVER_S, remembered["until_s"], self.now_s + self.lease_s)[running]
        return float(np.min(until_s, initial=np.inf, where=until_s > self.now_s))


def leases(snapshot: Snapshot, lease_s: float) -> Leases:
    """The leases as they stand at now_s."""
    jobs, known = snapshot.jobs, recall(snapshot.jobs, snapshot.carry, LEASE_COLUMNS)
    holds = holding(jobs)
    run_s = np.where(holds, np.where(np.isnan(jobs.start_s), LONG_AGO_S, jobs.start_s), NEVER_S)
    same = holds & (known["run_s"] == run_s)
    until_s = np.where(same, known["until_s"], np.where(holds, run_s + lease_s, NEVER_S))
    return Leases(run_s, until_s, holds & (until_s > snapshot.now_s), snapshot.now_s, lease_s)


def contenders(snapshot: Snapshot, standing: Leases) -> Bools:
    """Jobs that may get GPUs at this look: those that wait, and those whose lease is over. (N,) bool."""
    return (startable(snapshot) | (standing.run_s > NEVER_S)) & ~standing.in_force


def who_gets_gpus(snapshot: Snapshot, order: Int64s, may: Bools, sizes: Int64s | None = None) -> Bools:
    """Jobs that get GPUs when GPUs are assigned in this order; a job that does not fit is skipped. (N,) bool.

    may: (N,) bool, jobs that count. sizes: (N,) GPUs of each, None = what it asks for.
    """
    free_gpus = int(snapshot.nodes.gpus[~snapshot.nodes.down].sum())
    gpus = (snapshot.jobs.gpus if sizes is None else sizes).tolist()
    given = np.zeros(len(snapshot.jobs), np.bool_)
    for row in order[may[order]].tolist():
        if gpus[row] <= free_gpus:
            given[row], free_gpus = True, free_gpus - gpus[row]
        if not free_gpus:
            break
    return given


# Plans of promised deadlines.

Interval = list[float]  # begin, end [Unix s]
EXACT_S = 1e-5  # times closer than this are the same: what is left of a Unix time in float64
SINGLE_LEASES = 8  # leases ahead that are counted one by one
FIRM = 1_000.0  # of a job that was promised its deadline before, against 1 of one that was not
EARLIER = 1e-3  # more of an earlier deadline, where equally many are possible
NODES = 200  # of the search tree; what is best by then is taken


@dataclass(frozen=True, slots=True)
class DeadlineJob:
    """A job to be planned.

    gpus: of its gang.
    remaining_s: run time to come [s].
    due_s: deadline [Unix s].
    """

    gpus: int
    remaining_s: float
    due_s: float


class FreeOverTime:
    """GPUs that are not promised, from now on: free[i] of them from at_s[i] [Unix s] until at_s[i + 1]."""

    def __init__(self, now_s: float, gpus: int) -> None:
        self.at_s, self.free = [now_s], [gpus]

    def earliest(self, job: DeadlineJob) -> list[Interval] | None:
        """The first times that have room for the job until it is through, None if it would end after its deadline."""
        made: list[Interval] = []
        remaining_s = job.remaining_s
        for number, begin_s in enumerate(self.at_s):
            if begin_s + remaining_s > job.due_s + EXACT_S:
                return None
            if self.free[number] < job.gpus:
                continue
            until_s = self.at_s[number + 1] if number + 1 < len(self.at_s) else math.inf
            end_s = min(until_s, begin_s + remaining_s)
            if made and made[-1][1] == begin_s:
                made[-1][1] = end_s
            else:
                made.append([begin_s, end_s])
            remaining_s -= end_s - begin_s
            if remaining_s <= EXACT_S:
                return made
        return None

    def has_room(self, intervals: Iterable[Interval], gpus: int) -> bool:
        """Whether that many GPUs are free in all these times."""
        return all(self.free[number] >= gpus for begin_s, end_s in intervals for number in self._within(begin_s, end_s))

    def take(self, intervals: Iterable[Interval], gpus: int) -> None:
        """Promise that many GPUs in these times."""
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


class LeasePlan:
    """The times of promised jobs by a number of each, on that many GPUs from now_s on [Unix s]."""

    def __init__(self, now_s: float, gpus: int) -> None:
        self.now_s, self.gpus = now_s, gpus
        self.jobs: dict[int, DeadlineJob] = {}
        self.times: dict[int, list[Interval]] = {}
        self._free = FreeOverTime(now_s, gpus)

    def keep(self, number: int, job: DeadlineJob, intervals: Sequence[Interval]) -> bool:
        """Enter a job with the times that it was promised, as far as it still needs them; whether they are enough."""
        booked, remaining_s = list[Interval](), job.remaining_s
        for begin_s, end_s in intervals:
            begin_s = max(begin_s, self.now_s)
            end_s = min(end_s, begin_s + remaining_s)
            if end_s > begin_s:
                booked.append([begin_s, end_s])
                remaining_s -= end_s - begin_s
        if remaining_s > EXACT_S or not self._free.has_room(booked, job.gpus):
            return False
        self._enter(number, job, booked)
        return True

    def add(self, number: int, job: DeadlineJob) -> bool:
        """Enter a job where there is room, or else plan all jobs again by their deadlines; whether all are in time."""
        if (found := self._free.earliest(job)) is not None:
            self._enter(number, job, found)
            return True
        anew = LeasePlan(self.now_s, self.gpus)
        if not anew.earliest_first({**self.jobs, number: job}):
            return False
        self.jobs, self.times, self._free = anew.jobs, anew.times, anew._free
        return True

    def earliest_first(self, jobs: dict[int, DeadlineJob]) -> bool:
        """Enter these jobs by their deadlines, each as early as can be; whether all are in time."""
        for number in sorted(jobs, key=lambda each: (jobs[each].due_s, each)):
            found = self._free.earliest(jobs[number])
            if found is None:
                return False
            self._enter(number, jobs[number], found)
        return True

    def _enter(self, number: int, job: DeadlineJob, intervals: list[Interval]) -> None:
        self.jobs[number], self.times[number] = job, intervals
        self._free.take(intervals, job.gpus)


def with_more(plan: LeasePlan, asked: dict[int, DeadlineJob], order: Iterable[int]) -> LeasePlan:
    """The plan and as many of these jobs as find room, asked one after the other; the given one stays as it is."""
    made = LeasePlan(plan.now_s, plan.gpus)
    for number, job in plan.jobs.items():
        made._enter(number, job, plan.times[number])
    for number in order:
        made.add(number, asked[number])
    return made


@dataclass(frozen=True, slots=True, eq=False)
class LeaseDemand:
    """By deadline job, earliest deadline first.

    gpus, needed: (A,) GPUs, and leases to come.
    within: (A,) whole leases before the deadline.
    firm: (A,) bool, its deadline was promised.
    """

    gpus: Int64s
    needed: Int64s
    within: Int64s
    firm: Bools


@dataclass(frozen=True, slots=True, eq=False)
class LeasePacking:
    """The deadlines that fit together.

    admitted: (A,) bool, whose deadline may be promised.
    proven: False where the search was cut.
    """

    admitted: Bools
    proven: bool = True


def blocks(leases: int) -> Int64s:
    """Lengths of blocks that cover that many leases: single ones, then each twice as long as the one before. (B,)."""
    lengths = [1] * min(max(leases, 1), SINGLE_LEASES)
    while sum(lengths) < leases:
        lengths.append(2 * lengths[-1])
    return np.array(lengths, np.int64)


def most_leases(demand: LeaseDemand, length: Int64s) -> Int64s:
    """Leases of each block that end before each deadline. (A, B) int64."""
    begin = np.cumsum(length) - length
    return np.clip(demand.within[:, None] - begin, 0, length)


def pack_greedily(demand: LeaseDemand, capacity: int) -> LeasePacking:
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
    return LeasePacking(admitted)


def pack_by_programme(demand: LeaseDemand, capacity: int) -> LeasePacking:
    """As many jobs as can be, those promised before all, by a mixed-integer programme over leases by job and block."""
    length = blocks(int(demand.within.max(initial=1)))
    found = solve(_programme(demand, length, capacity), gap=1e-7, nodes=NODES)
    if found.x is None:
        return pack_greedily(demand, capacity)
    return LeasePacking(found.x[: len(demand.gpus)] > 0.5, found.status == "optimal")


def _programme(demand: LeaseDemand, length: Int64s, capacity: int) -> Programme:
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

"""Sizes of elastic jobs, and GPUs over time in slots.

Policies that plan ahead fill jobs into a timetable of slots, grow jobs with spare GPUs, or buy GPUs at a price.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hints import hint_column
from slurmsched.plain_text import pluralize_of
from slurmsched.protocols import CurveEstimator

SHORT_SLOTS = 12  # slots of the least length; each later one is longer by GROWTH
GROWTH = 1.25
ALL_SIZES_TO = 64  # GPUs


@dataclass(frozen=True, slots=True, eq=False)
class JobSizes:
    """The sizes one job may have. gpus: (K,) ascending. speed: (K,) over its speed at the size it asks for."""

    gpus: Int64s
    speed: Floats


def amdahl(gpus: Floats | Int64s, serial: float) -> Floats:
    """Speed at that many GPUs over that at one, if the part `serial` of the work is done by one alone. Amdahl's law."""
    return np.asarray(1.0 / (serial + (1.0 - serial) / np.asarray(gpus, np.float64)))


def sizes_of(
    snapshot: Snapshot, rows: Sequence[int], serial: float, speeds: object = None, most: int | Int64s = 0
) -> list[JobSizes]:
    """The sizes of these jobs: doublings from min_gpus to max_gpus and what it asks for; the latter alone without
    hints.

    most: above 0 = every size from min_gpus to max_gpus, but none above this one; one for all, or (J,) of each.
    speeds: a CurveEstimator counts in the place of Amdahl's law for the jobs that it knows. Of these, sizes that are no
    faster than a smaller one are left out; a job without any other size has the one that it asks for.
    """
    asked = snapshot.jobs.gpus.tolist()
    low, high = hint_column(snapshot.jobs, "min_gpus").tolist(), hint_column(snapshot.jobs, "max_gpus").tolist()
    elastic = [low[row] <= high[row] for row in rows]
    each_most = np.broadcast_to(np.asarray(most), len(rows)).tolist()
    made = [_sizes(asked[row], low[row] if may else 0.0, high[row] if may else 0.0, serial, at_most)
            for row, may, at_most in zip(rows, elastic, each_most, strict=True)]  # fmt: skip
    if not isinstance(speeds, CurveEstimator):
        return made
    return [_by_curve(each, snapshot, row, speeds) for row, each in zip(rows, made, strict=True)]


def thinned(sizes: JobSizes) -> JobSizes:
    """The same without most of the large sizes: above 64 GPUs eight for each doubling are left, and the largest."""
    step = 1 << np.maximum(np.floor(np.log2(sizes.gpus)).astype(np.int64) - 3, 0)
    kept = (sizes.gpus <= ALL_SIZES_TO) | (sizes.gpus % step == 0)
    kept[[0, -1]] = True
    return JobSizes(sizes.gpus[kept], sizes.speed[kept])


def _by_curve(sizes: JobSizes, snapshot: Snapshot, row: int, speeds: CurveEstimator) -> JobSizes:
    curve = speeds.curve(snapshot, row, sizes.gpus) if len(sizes.gpus) > 1 else None
    if curve is None:
        return sizes
    useful = curve > np.maximum.accumulate(np.append(0.0, curve[:-1]))
    asked = int(snapshot.jobs.gpus[row])
    return JobSizes(sizes.gpus[useful], curve[useful]) if useful.any() else _sizes(asked, 0, 0, 0, 0)


def without_curve(snapshot: Snapshot, who: Bools, speeds: object) -> tuple[str, ...]:
    """A note on elastic jobs that a CurveEstimator does not know; none without a CurveEstimator. who: (N,) bool."""
    if not isinstance(speeds, CurveEstimator):
        return ()
    one = np.ones(1, np.int64)
    elastic = hint_column(snapshot.jobs, "min_gpus") <= hint_column(snapshot.jobs, "max_gpus")
    rows = np.flatnonzero(who & elastic).tolist()
    unknown = sum(speeds.curve(snapshot, row, one) is None for row in rows)
    count = pluralize_of(unknown, len(rows), "elastic job", "is", "are")
    return (f"{count} in no table of speeds: Amdahl's law",) if unknown else ()


@lru_cache(maxsize=4_096)
def _sizes(asked: int, low: float, high: float, serial: float, most: int) -> JobSizes:
    if low and most:
        gpus = np.arange(int(low), max(int(min(high, most)), int(low)) + 1, dtype=np.int64)
        return JobSizes(gpus, amdahl(gpus, serial) / amdahl(np.array([asked]), serial)[0])
    steps = {int(low) << step for step in range(24) if (int(low) << step) <= high} if low else {asked}
    gpus = np.array(sorted(steps | ({asked} if not low or low <= asked <= high else set())), np.int64)
    return JobSizes(gpus, amdahl(gpus, serial) / amdahl(np.array([asked]), serial)[0])


@dataclass(frozen=True, slots=True, eq=False)
class Timetable:
    """The slots of time in which GPUs are promised.

    begin_s, end_s: (S,) of each slot [Unix s], one after the other.
    free: (S,) GPUs not promised.
    """

    begin_s: Floats
    end_s: Floats
    free: Int64s

    def until(self, due_s: float) -> Floats:
        """Seconds of each slot before this time. (S,)."""
        return np.clip(np.minimum(self.end_s, due_s) - self.begin_s, 0.0, None)

    def take(self, gpus: Int64s) -> None:
        """Promise that many GPUs in each slot. (S,)."""
        self.free[:] -= gpus


def timetable(now_s: float, slot_s: float, slots: int, gpus: int, origin_s: float = 0.0) -> Timetable:
    """An empty timetable from now on. Slots end at multiples of slot_s [s] from origin_s on; later ones are longer."""
    length = np.ceil(GROWTH ** np.maximum(np.arange(slots) - SHORT_SLOTS + 1, 0)) * slot_s
    end_s = origin_s + math.floor((now_s - origin_s) / slot_s) * slot_s + np.cumsum(length)
    begin_s = np.concatenate([[now_s], end_s[:-1]])
    return Timetable(begin_s, end_s, np.full(slots, gpus, np.int64))


def least_share_in_time(sizes: JobSizes, remaining_s: float, due_s: float, table: Timetable) -> Int64s | None:
    """GPUs in each slot by the least share that ends the job in time, None if none does. (S,) int64.

    A share is a size that the job has wherever there is room for it, and the largest that fits elsewhere; from the slot
    on in which it ends it has none. remaining_s: run time to come at the size it asks for. Source: Gu et al.
    (ElasticFlow), ASPLOS '23, progressive filling.
    """
    spare_s, fits = table.until(due_s), np.searchsorted(sizes.gpus, table.free, side="right") - 1
    gpus, speed = np.append(sizes.gpus, 0), np.append(sizes.speed, 0.0)  # the last, at -1: nothing fits
    for share in range(len(sizes.gpus)):
        index = np.minimum(fits, share)
        done_s = np.cumsum(speed[index] * spare_s)
        if done_s[-1] >= remaining_s - 1e-6:
            before_s = done_s - speed[index] * spare_s
            return np.where(before_s < remaining_s - 1e-6, gpus[index], 0)
    return None


# Spare GPUs: one size at a time, to the job where they cost least GPU time.
# Source: Gu et al. (ElasticFlow), ASPLOS '23.


@dataclass(slots=True)
class GrowingJob:
    """One job.

    row: of the jobs table.
    remaining_s: run time to come at the size that it asks for.
    gpus: it has now.
    """

    row: int
    sizes: JobSizes
    remaining_s: float
    gpus: int

    @property
    def index(self) -> int:
        """Place of its size among its sizes, -1 for none."""
        return int(np.searchsorted(self.sizes.gpus, self.gpus, side="right")) - 1

    def saved(self) -> float:
        """GPU seconds that its next size saves by each GPU more, negative as a rule; -infinity if it has none."""
        at = self.index
        if at + 1 >= len(self.sizes.gpus) or not math.isfinite(self.remaining_s):
            return -math.inf
        (few, many), (slow, fast) = self.sizes.gpus[at : at + 2], self.sizes.speed[at : at + 2]
        return float(self.remaining_s * (few / slow - many / fast) / (many - few))


def give_spare_gpus(shares: Sequence[GrowingJob], spare: int) -> list[GrowingJob]:
    """The jobs that change. First, jobs without GPUs start with their least size, in the given order. Then sizes grow:
    each time that of the job whose next size saves most GPU time for each GPU."""
    changed: dict[int, GrowingJob] = {}
    for share in shares:
        need = int(share.sizes.gpus[0])
        if share.gpus == 0 and need <= spare:
            share.gpus, spare = need, spare - need
            changed[share.row] = share
    queue = [(-share.saved(), place) for place, share in enumerate(shares) if share.gpus]
    heapq.heapify(queue)
    while queue and spare > 0:
        cost, place = heapq.heappop(queue)
        share = shares[place]
        if math.isinf(cost) or (more := int(share.sizes.gpus[share.index + 1]) - share.gpus) > spare:
            continue
        share.gpus, spare = share.gpus + more, spare - more
        changed[share.row] = share
        heapq.heappush(queue, (-share.saved(), place))
    return list(changed.values())


# GPUs one after the other.


def give_by_gain(sizes: Sequence[JobSizes], gain: Callable[[int, int, int], float], gpus: int) -> Int64s:
    """GPUs of each job: first its least size, in the given order, while there are enough; then sizes grow. (J,).

    Each time that job grows by one size whose gain for each GPU more is the greatest; nothing is given for a gain of 0
    or less. gain: (job, index of its size, index of the next) -> gain of the step. Of equals the first job grows.
    """
    index = np.full(len(sizes), -1, np.int64)
    for job, each in enumerate(sizes):
        if each.gpus[0] <= gpus:
            index[job], gpus = 0, gpus - int(each.gpus[0])
    queue = [entry for job in np.flatnonzero(index == 0).tolist() if (entry := _step_of(sizes, gain, job, 0))]
    heapq.heapify(queue)
    while queue and gpus > 0:
        _, job, step = heapq.heappop(queue)
        at = int(index[job])
        if step > gpus:
            continue
        index[job], gpus = at + 1, gpus - step
        if entry := _step_of(sizes, gain, job, at + 1):
            heapq.heappush(queue, entry)
    return np.array([sizes[job].gpus[at] if at >= 0 else 0 for job, at in enumerate(index.tolist())], np.int64)


def _step_of(
    sizes: Sequence[JobSizes], gain: Callable[[int, int, int], float], job: int, at: int
) -> tuple[float, int, int] | None:
    """The next size of a job as an entry of a heap: gain for each GPU, negative; the job; GPUs more."""
    if at + 1 >= len(sizes[job].gpus):
        return None
    more = int(sizes[job].gpus[at + 1] - sizes[job].gpus[at])
    found = gain(job, at, at + 1) / more
    return (-found, job, more) if found > 0 else None


# The best sizes together.


def best_sizes(sizes: Sequence[Int64s], costs: Sequence[Floats], gpus: int) -> Int64s:
    """GPUs of each job, one of its sizes each, with the least sum of costs that that many GPUs allow. (J,).

    sizes: of each job, ascending, 0 first. costs: of each size. Of equal sums the one that gives the later jobs less.
    Exact, by dynamic programming over GPUs: a multiple-choice knapsack.
    """
    least = np.zeros(gpus + 1)  # of the jobs so far, by GPUs that they may have
    chosen = np.zeros((len(sizes), gpus + 1), np.int64)
    for job, (each, cost) in enumerate(zip(sizes, costs, strict=True)):
        others = np.arange(gpus + 1)[:, None] - each  # GPUs of the jobs before it
        sums = np.where(others >= 0, least[np.maximum(others, 0)] + cost, np.inf)
        at = sums.argmin(axis=1)
        chosen[job], least = each[at], sums[np.arange(gpus + 1), at]
    given, free = np.zeros(len(sizes), np.int64), gpus
    for job in reversed(range(len(sizes))):
        given[job] = chosen[job, free]
        free -= int(given[job])
    return given


# Prices of GPUs that rise with the promises, and the cheapest plan of a job: primal-dual admission.
# Source: Bao et al. (OASiS), INFOCOM 2018, for exponential prices by slot; GPUs as the only resource are ours.

PromisedGpus = Sequence[float]  # begin [Unix s], end [Unix s], GPUs


@dataclass(frozen=True, slots=True, eq=False)
class SlotPlan:
    """What one job gets in each slot.

    gpus: (S,) in each slot.
    end_s: when the job ends [Unix s].
    cost: of all its GPU hours.
    """

    gpus: Int64s
    end_s: float
    cost: float


def promise(table: Timetable, intervals: Sequence[PromisedGpus]) -> None:
    """Enter what one job was promised. A slot counts the most that the job holds in any part of it."""
    held = np.zeros(len(table.free), np.int64)
    for begin_s, end_s, gpus in intervals:
        inside = (table.begin_s < end_s) & (table.end_s > begin_s)
        held[inside] = np.maximum(held[inside], int(gpus))
    table.take(held)


def slot_prices(table: Timetable, capacity: int, least: float) -> Floats:
    """Price of a GPU hour in each slot: `least` where nothing is promised, 1 where everything is. (S,)."""
    used = 1.0 - np.clip(table.free / max(capacity, 1), 0.0, 1.0)
    return np.asarray(least ** (1.0 - used))


def cheapest_plans(sizes: JobSizes, remaining_s: float, table: Timetable, price: Floats) -> list[SlotPlan]:
    """The cheapest plan by each slot in which the job could end at the latest; none where it cannot.

    Sizes are raised step by step where run time costs least; the last step may give more than is needed, so that plans
    are cheapest but for a part of one slot.
    """
    steps = _Steps.of(sizes, table, price)
    found: list[SlotPlan] = []
    for last in range(len(table.free)):
        inside = steps.slot <= last
        done_s = np.cumsum(steps.work_s[inside])
        if not len(done_s) or done_s[-1] < remaining_s - 1e-6:
            continue
        count = int(np.searchsorted(done_s, remaining_s - 1e-6)) + 1
        taken = np.flatnonzero(inside)[:count]
        gpus = np.bincount(steps.slot[taken], steps.gpus[taken], len(table.free)).astype(np.int64)
        ends_s = float(table.end_s[np.flatnonzero(gpus)[-1]])
        found.append(SlotPlan(gpus, ends_s, float(steps.cost[taken].sum())))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """From each size to the next in each slot, cheapest run time first. (K,) each."""

    slot: Int64s
    gpus: Int64s
    work_s: Floats
    cost: Floats

    @classmethod
    def of(cls, sizes: JobSizes, table: Timetable, price: Floats) -> _Steps:
        length_s = table.end_s - table.begin_s
        more, faster = np.diff(sizes.gpus, prepend=0), np.diff(sizes.speed, prepend=0.0)
        slot, step = (each.ravel() for each in np.indices((len(length_s), len(more))))
        work_s, cost = faster[step] * length_s[slot], price[slot] * more[step] * length_s[slot] / 3_600.0
        fits = (sizes.gpus[step] <= table.free[slot]) & (work_s > 0)
        order = np.lexsort((step, slot, (cost / np.maximum(work_s, 1e-12)).round(12)))
        order = order[fits[order]]
        return cls(slot[order], more[step][order].astype(np.int64), work_s[order], cost[order])


def intervals_of(gpus: Int64s, table: Timetable) -> list[list[float]]:
    """A plan by slot as intervals in which the job holds as many GPUs."""
    made: list[list[float]] = []
    for slot in np.flatnonzero(gpus).tolist():
        begin_s, end_s, held = float(table.begin_s[slot]), float(table.end_s[slot]), float(gpus[slot])
        if made and made[-1][1] == begin_s and made[-1][2] == held:
            made[-1][1] = end_s
        else:
            made.append([begin_s, end_s, held])
    return made


def promised(carry: Any, name: str) -> dict[str, list[list[float]]]:
    """The promises of a carry under this name, by job; none if another policy left it."""
    carried = carry.get(name)
    return {str(job): [list(map(float, each)) for each in plan] for job, plan in carried.items()} if isinstance(
        carried, dict) else {}  # fmt: skip

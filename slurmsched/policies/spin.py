"""A plan of starts from a relaxed programme, rounded by lot: SPIN."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np

from slurmsched.allocation.job_memory import recall
from slurmsched.allocation.solver import Programme, solve
from slurmsched.estimators.past_run_times import RollingHistory
from slurmsched.model import JobChanges, PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.ordering import arrival_s, ordered
from slurmsched.model.parameters import Count, Period, Range, check_ranges
from slurmsched.protocols import Estimator
from slurmsched.resources.allocated import holding
from slurmsched.resources.startable_jobs import startable

AT, STEP = "round_at_s", "step_s"  # in the carry: when the round began, and how long a slot is [s]


@dataclass(frozen=True, slots=True)
class Spin:
    """Jobs in the order of the starts of a plan: a programme over job and time, relaxed and rounded at random.

    Running jobs hold their GPUs in the plan until their expected end.
    round_s: how long a plan stands [s]. New jobs wait behind it, in FIFO order.
    most_jobs: most jobs of a plan, the earliest first.
    slots: slots of a plan.
    fill: jobs may start before their slot on idle GPUs. False: they wait, and jobs outside the plan until they are in
        one.
    estimator: source of expected run times. A job without one counts as the longest of the plan.
    Raises ConfigError for a value out of range.
    Source: Han et al. (SPIN), INFOCOM '20: the relaxed programme, and the rounding. Its programme also chooses among
    placements of different speed; here the placement does. Equal slots and the sum of ends are ours.
    """

    preemptive: ClassVar[bool] = False
    learns: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.DURATION,
        "Han et al.: SPIN, INFOCOM 2020",
        packages=("scipy",),
        left_out=("Placements of different speed in the programme: the placement chooses where a job runs.",),
        needs=(PolicyInput.PAST, PolicyInput.DURATION),
        uses=(PolicyLever.ORDER, PolicyLever.START),
        on_slurm=(
            "The paper starts each job with the placement of its plan, which is left to the placement here, and at its "
            "time: fill = false; by default the plan gives the order, and Slurm starts jobs as GPUs come free.",
        ),
        criteria={"slot": "slot {}"},
    )

    round_s: Period = 600.0
    most_jobs: Count = 100
    slots: Annotated[int, Range(2, 200, whole=True)] = 16
    fill: bool = True
    estimator: Estimator = field(default_factory=RollingHistory)

    def __post_init__(self) -> None:
        check_ranges(self)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, (at_s, step_s) = snapshot.jobs, self._round(snapshot)
        if math.isfinite(step_s):
            start = recall(jobs, snapshot.carry, ("slot",))["slot"]
        else:
            start, step_s = self._planned(snapshot)
        start = np.where(np.isnan(start), np.inf, start)
        kept = np.flatnonzero(np.isfinite(start))
        kept = kept[np.argsort(jobs.job_id[kept], kind="stable")]
        carry = {AT: at_s, STEP: step_s, "job_id": jobs.job_id[kept].tolist(),
                 "arrival_s": arrival_s(jobs)[kept].tolist(), "slot": start[kept].tolist()}  # fmt: skip
        changes = None if self.fill else _changes(snapshot, at_s + start * step_s)
        return Ranking(ordered(jobs, start), why={"slot": start}, carry=carry, changes=changes)

    def _round(self, snapshot: Snapshot) -> tuple[float, float]:
        """When the round began [Unix s], and the length of its slots [s], infinity if one begins now."""
        at_s, step_s = snapshot.carry.get(AT), snapshot.carry.get(STEP)
        if isinstance(at_s, float) and isinstance(step_s, float) and at_s <= snapshot.now_s < at_s + self.round_s:
            return at_s, step_s
        return snapshot.now_s, math.inf

    def _planned(self, snapshot: Snapshot) -> tuple[Floats, float]:
        """Slot in which each job starts, NaN for one outside the plan (N,), and the length of a slot [s]."""
        jobs = snapshot.jobs
        slot = np.full(len(jobs), np.nan)
        waits = startable(snapshot) & (jobs.gpus > 0)
        gpus = int(snapshot.nodes.gpus[~snapshot.nodes.down].sum())
        first = ordered(jobs)
        rows = first[(waits & (jobs.gpus <= gpus))[first]][: self.most_jobs]
        if not len(rows):
            return slot, self.round_s
        total_s = self.estimator.estimate(snapshot).total_s
        run_s = total_s[rows]
        longest_s = np.max(run_s, initial=1.0, where=~np.isnan(run_s))
        run_s = np.maximum(np.where(np.isnan(run_s), longest_s, run_s), 1.0)
        taken = jobs.gpus[rows].astype(np.float64)
        held, remaining_s = _running(snapshot, total_s, float(longest_s))
        work = float((run_s * taken).sum() + (remaining_s * held).sum())
        step_s = max(work / gpus, float(run_s.max())) / self.slots
        still = (held[:, None] * (remaining_s[:, None] > np.arange(self.slots) * step_s)).sum(axis=0)
        share = self._relaxed(taken, run_s, np.maximum(gpus - still, 0.0), step_s)
        draws = np.array([np.random.default_rng((snapshot.seed, int(job))).random() for job in jobs.job_id[rows]])
        slot[rows] = drawn(share, draws)
        return slot, step_s

    def _relaxed(self, gpus: Floats, run_s: Floats, capacity: Floats, step_s: float) -> Floats:
        """Share of each job that starts in each slot: the relaxed programme's answer. (J, T). capacity: (T,) GPUs."""
        slots = self.slots
        length = np.maximum(np.ceil(run_s / step_s), 1.0).astype(np.int64)
        found = solve(_programme(np.arange(slots) * step_s + run_s[:, None], length, gpus, capacity))
        if found.x is None:  # only where HiGHS gives up: then in FIFO order
            return np.broadcast_to(np.eye(1, slots), (len(gpus), slots))
        return found.x[: len(gpus) * slots].reshape(len(gpus), slots)

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The end of the round, where anybody waits [Unix s]."""
        waits = ~running & ~snapshot.jobs.finished
        return float(ranking.carry[AT]) + self.round_s if waits.any() else math.inf


def _changes(snapshot: Snapshot, start_s: Floats) -> JobChanges | None:
    """The start of each job of the plan [Unix s]; who could start and is in no plan has none, until one has it."""
    waits = startable(snapshot) & (snapshot.jobs.gpus > 0)
    return JobChanges(start_s=np.where(waits, start_s, -np.inf)) if waits.any() else None


def _running(snapshot: Snapshot, total_s: Floats, unknown_s: float) -> tuple[Floats, Floats]:
    """GPUs of each running job, and for how long it is expected to hold them [s]. (R,), (R,)."""
    jobs = snapshot.jobs
    runs = holding(jobs) & (jobs.gpus > 0)
    remaining_s = total_s[runs] - jobs.executed_s[runs]
    return jobs.gpus[runs].astype(np.float64), np.maximum(np.where(np.isnan(remaining_s), unknown_s, remaining_s), 1.0)


def drawn(share: Floats, draws: Floats) -> Floats:
    """The slot that each job's lot falls on, with the share as chance of each. share: (J, T). draws: (J,) in [0, 1)."""
    summed = np.cumsum(np.maximum(share, 0.0), axis=1)
    return (summed < draws[:, None] * summed[:, -1:]).sum(axis=1).astype(np.float64)


def _programme(cost: Floats, length: Int64s, gpus: Floats, capacity: Floats) -> Programme:
    """Least sum of ends: each job starts once, and no slot holds more GPUs than there are.

    cost: (J, T) end by slot of start [s]. length: (J,) slots held. capacity: (T,) GPUs that no running job holds. A run
    that would outlast the last slot holds GPUs to its end. One more variable a slot lets it hold more, at a price that
    no plan pays unless it must.
    """
    from scipy.sparse import coo_array

    (jobs, slots), starts = cost.shape, cost.size
    job, begin = (axis.ravel() for axis in np.indices(cost.shape))
    held = np.minimum(length[job], slots - begin)
    column = np.repeat(np.arange(starts), held)
    slot, over = np.repeat(begin, held) + _counted(held), np.arange(slots)
    uses = np.concatenate([gpus[job][column], np.full(slots, -1.0)])
    place = (np.concatenate([slot, over]), np.concatenate([column, starts + over]))
    room = coo_array((uses, place), shape=(slots, starts + slots)).tocsr()
    once = coo_array((np.ones(starts), (job, np.arange(starts))), shape=(jobs, starts + slots)).tocsr()
    price = np.concatenate([cost.ravel(), np.full(slots, 100.0 * cost.max())])
    high = np.concatenate([np.ones(starts), np.full(slots, np.inf)])
    return Programme(price, np.zeros(starts + slots), high, room, capacity, once, np.ones(jobs))


def _counted(held: Int64s) -> Int64s:
    """0, 1, ... below each number in turn: (2, 3) gives 0 1 0 1 2."""
    return np.arange(int(held.sum())) - np.repeat(np.cumsum(held) - held, held)

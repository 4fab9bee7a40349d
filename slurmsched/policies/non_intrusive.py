"""GPUs go to the jobs that use them most efficiently, and a restart must pay: the scheduler of Wang et al."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from slurmsched.allocation.elastic import JobSizes, sizes_of, without_curve
from slurmsched.allocation.job_times import active, cluster_gpus, remaining_or_unknown_s
from slurmsched.allocation.size_rounds import SizeRound, gpus_now, size_ranking
from slurmsched.estimators.requested_time import Hint
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.ordering import ordered
from slurmsched.model.parameters import Part, Period, Seconds, check_ranges
from slurmsched.model.policy_info import RESIZE_BY_REQUEUE
from slurmsched.protocols import Estimator, SpeedEstimator

WHO = "non_intrusive_jobs"  # in the carry: ids of the jobs that the sizes were chosen for


@dataclass(frozen=True, slots=True)
class NonIntrusive:
    """Jobs start at their least size. Each further GPU goes to the job that is most efficient with it.

    Efficiency is speed for each GPU, over that at the least size. Sizes are chosen anew when a job comes or ends. A
    running job grows only if it then ends earlier, its restart included. Running jobs shrink for waiting ones, and are
    not stopped unless GPUs are missing. A job with hints min_gpus and max_gpus may have any size between them.
    interval_s: longest time between two choices of sizes [s].
    least_efficiency: a job does not grow to a size of less efficiency.
    restart_cost_s: run time lost by a change of size [s].
    serial: share of a job's work that more GPUs do not speed up (Amdahl's law).
    speeds: a table of throughputs by number of GPUs replaces Amdahl's law.
    estimator: source of expected run times, at the size that a job asks for.
    Raises ConfigError for a parameter out of range.
    Source: Wang et al., SC '20, its abstract: progress decides the most efficient allocation, for incoming and running
    jobs. Ours, since the paper is not at hand: the measure of efficiency, its bound, and when a restart pays.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.ELASTIC,
        "Wang et al.: An Efficient and Non-Intrusive GPU Scheduling Framework, SC 2020",
        left_out=("The SideCar that restarts the training processes: here jobs restart by a requeue.",),
        needs=(PolicyInput.DURATION, PolicyInput.SIZES, PolicyInput.SPEED, PolicyInput.PROGRESS),
        uses=(PolicyLever.ORDER, PolicyLever.SIZE, PolicyLever.REQUEUE, PolicyLever.START),
        on_slurm=(RESIZE_BY_REQUEUE,),
        criteria={"given_gpus": "given {} GPUs"},
    )

    interval_s: Period = 600.0
    least_efficiency: Part = 0.5
    restart_cost_s: Seconds = 30.0
    serial: Part = 0.02
    speeds: SpeedEstimator = field(default_factory=EqualSpeeds)
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)

    def rank(self, snapshot: Snapshot) -> Ranking:
        who, before = active(snapshot), SizeRound.of(snapshot, "non-intrusive")
        here = sorted(snapshot.jobs.job_id[who].tolist())
        if before.over(snapshot) or list(snapshot.carry.get(WHO, ())) != here:
            before = before.begun(snapshot, self._given(snapshot, who), self.interval_s)
        order = ordered(snapshot.jobs, before.given == 0)
        ranking = size_ranking(snapshot, order, before, without_curve(snapshot, who, self.speeds))
        return Ranking(ranking.order, ranking.why, {**ranking.carry, WHO: here}, ranking.notes, ranking.changes)

    def _given(self, snapshot: Snapshot, who: Bools) -> Int64s:
        """GPUs of each job from now on. (N,)."""
        total, has = cluster_gpus(snapshot), gpus_now(snapshot)
        rows = ordered(snapshot.jobs, has == 0)
        rows = rows[who[rows]]
        sizes = sizes_of(snapshot, rows.tolist(), self.serial, self.speeds, max(total, 1))
        to_come_s = remaining_or_unknown_s(self.estimator, snapshot)[rows]
        made = np.zeros(len(snapshot.jobs), np.int64)
        made[rows] = sizes_that_pay(sizes, has[rows], to_come_s, total, self.least_efficiency, self.restart_cost_s)
        return made

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When sizes may change next [Unix s]; infinity if there are no jobs."""
        return SizeRound.next_s(snapshot, ranking, "non-intrusive")


def sizes_that_pay(
    sizes: Sequence[JobSizes], has: Int64s, remaining_s: Floats, gpus: int, least: float, cost_s: float
) -> Int64s:
    """GPUs of each job. (J,).

    has: (J,) GPUs that each holds, 0 = it waits; the first are served first.
    remaining_s: (J,) run time to come at the size that it asks for.
    gpus: of the cluster. least: least efficiency. cost_s: of a change of size.
    """
    most = np.array([np.flatnonzero(_efficiency(each) >= least - 1e-9)[-1] for each in sizes], np.int64)
    while True:
        index = efficient_sizes(sizes, most, gpus)
        wasted = [job for job, at in enumerate(index.tolist())
                  if at >= 0 and not _pays(sizes[job], int(has[job]), at, float(remaining_s[job]), cost_s)]  # fmt: skip
        if not wasted:
            return np.array([each.gpus[at] if at >= 0 else 0 for each, at in zip(sizes, index.tolist(), strict=True)],
                            np.int64)  # fmt: skip
        for job in wasted:  # it keeps what it has at most, and others may have the rest
            most[job] = np.searchsorted(sizes[job].gpus, has[job])


def efficient_sizes(sizes: Sequence[JobSizes], most: Int64s, gpus: int) -> Int64s:
    """Row of each job's size, -1 for none: least sizes in their order, then each GPU where it is most efficient.

    most: (J,) row of the largest size of each. (J,).
    """
    index, free = np.full(len(sizes), -1, np.int64), gpus
    for job, each in enumerate(sizes):
        if each.gpus[0] <= free:
            index[job], free = 0, free - int(each.gpus[0])
    worth = [_efficiency(each) for each in sizes]
    while True:
        steps = [(float(worth[job][at + 1]), -job) for job, at in enumerate(index.tolist())
                 if 0 <= at < most[job] and sizes[job].gpus[at + 1] - sizes[job].gpus[at] <= free]  # fmt: skip
        if not steps:
            return index
        job = -max(steps)[1]
        free -= int(sizes[job].gpus[index[job] + 1] - sizes[job].gpus[index[job]])
        index[job] += 1


def _efficiency(sizes: JobSizes) -> Floats:
    """Speed for each GPU, over that at the least size. (K,)."""
    each = sizes.speed / sizes.gpus
    return np.asarray(each / each[0])


def _pays(sizes: JobSizes, has: int, at: int, remaining_s: float, cost_s: float) -> bool:
    """Whether a job may take this size: it waits, shrinks or keeps its size, or ends earlier by it."""
    now = int(np.searchsorted(sizes.gpus, has))
    if has == 0 or now >= len(sizes.gpus) or sizes.gpus[now] != has or at <= now:
        return True
    return bool(remaining_s / sizes.speed[now] > remaining_s / sizes.speed[at] + cost_s)

"""As many jobs as fit, at the sizes that make most of the GPUs: the dynamic programme of Vaibhav et al."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from slurmsched.allocation.elastic import amdahl, best_sizes, sizes_of, thinned, without_curve
from slurmsched.allocation.job_times import active, cluster_gpus
from slurmsched.allocation.size_rounds import SizeRound, gpus_now, size_ranking, too_large, too_large_note
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.ordering import ordered
from slurmsched.model.parameters import Count, Part, Period, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION, RESIZE_BY_REQUEUE
from slurmsched.protocols import SpeedEstimator


@dataclass(frozen=True, slots=True)
class BestScaling:
    """Jobs start in the order of submission while the least sizes of all fit; then the sum of their speedups is best.

    A speedup is the speed over that on the least size, times that of the least size over one GPU by Amdahl's law. A job
    with hints min_gpus and max_gpus may have any size between them, any other job has all its GPUs. Running jobs stay.
    interval_s: time between two changes of sizes [s].
    most_jobs: most jobs of one programme, running ones and then the earliest first; others have their least size.
    serial: share of a job's work that more GPUs do not speed up (Amdahl's law).
    speeds: a table replaces Amdahl's law; with `profiles` each job has the best batch size of each number of GPUs.
    Raises ConfigError for a parameter out of range.
    Source: Vaibhav et al., *Effective Elastic Scaling of Deep Learning Workloads*, MASCOTS '20. Ours: a job of one size
    may have several GPUs, and counts by Amdahl's law.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.ELASTIC,
        "Vaibhav et al.: Effective Elastic Scaling of Deep Learning Workloads, MASCOTS 2020",
        left_out=("The measurement of each job's scaling before it starts: scaling is by `speeds`.",),
        needs=(PolicyInput.SIZES, PolicyInput.SPEED),
        uses=(PolicyLever.ORDER, PolicyLever.SIZE, PolicyLever.REQUEUE, PolicyLever.START),
        on_slurm=(
            NEEDS_PREEMPTION,
            RESIZE_BY_REQUEUE,
            "The batch size is the job's own: slurmsched does not set it.",
        ),
        criteria={"given_gpus": "given {} GPUs"},
    )

    interval_s: Period = 600.0
    most_jobs: Count = 300
    serial: Part = 0.02
    speeds: SpeedEstimator = field(default_factory=EqualSpeeds)

    def __post_init__(self) -> None:
        check_ranges(self)

    def rank(self, snapshot: Snapshot) -> Ranking:
        who, before = active(snapshot), SizeRound.of(snapshot, "best-scaling")
        large = too_large(snapshot)
        if before.over(snapshot):
            before = before.begun(snapshot, self._given(snapshot, who & ~large, before.given), self.interval_s)
        order = ordered(snapshot.jobs, before.given == 0)
        notes = without_curve(snapshot, who, self.speeds) + too_large_note(large)
        return size_ranking(snapshot, order, before, notes)

    def _given(self, snapshot: Snapshot, who: Bools, given: Int64s) -> Int64s:
        """GPUs of each job from now on. given: (N,) those of the round before. (N,)."""
        total, waits = cluster_gpus(snapshot), (given == 0) & (gpus_now(snapshot) == 0)
        rows = ordered(snapshot.jobs, waits)
        rows = rows[who[rows]]
        sizes = sizes_of(snapshot, rows.tolist(), self.serial, self.speeds, max(total, 1))
        fit = int(np.searchsorted(np.cumsum([each.gpus[0] for each in sizes]), total, side="right"))
        made = np.zeros(len(snapshot.jobs), np.int64)
        made[rows[:fit]] = [each.gpus[0] for each in sizes[:fit]]
        first = min(fit, self.most_jobs)
        chosen, free = [thinned(each) for each in sizes[:first]], total - int(made[rows[first:fit]].sum())
        costs = [-each.speed / each.speed[0] * amdahl(each.gpus[:1], self.serial) for each in chosen]
        made[rows[:first]] = best_sizes([each.gpus for each in chosen], costs, free)
        return made

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When sizes may change next [Unix s]; infinity if there are no jobs."""
        return SizeRound.next_s(snapshot, ranking, "best-scaling")

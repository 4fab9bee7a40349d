"""Each GPU to the job whose remaining time it shortens most: Optimus."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from slurmsched.allocation.elastic import give_by_gain, sizes_of, without_curve
from slurmsched.allocation.job_times import active, cluster_gpus, remaining_or_unknown_s
from slurmsched.allocation.size_rounds import SizeRound, size_ranking
from slurmsched.estimators.requested_time import Hint
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.ordering import ordered
from slurmsched.model.parameters import Part, Period, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION, RESIZE_BY_REQUEUE
from slurmsched.protocols import Estimator, SpeedEstimator


@dataclass(frozen=True, slots=True)
class Optimus:
    """First each job gets its least size. Then each GPU goes where it shortens the remaining time of a job most.

    A job with hints min_gpus and max_gpus may have any size between them. Any other job has all its GPUs or none.
    Jobs get their least size in order of that size, then of submission. The smallest jobs are placed first.
    interval_s: time between two changes of sizes [s].
    serial: share of a job's work that more GPUs do not speed up (Amdahl's law).
    speeds: a table of throughputs by number of GPUs replaces Amdahl's law.
    estimator: source of expected run times, at the size that a job asks for.
    Raises ConfigError for a parameter out of range.
    Source: Peng et al. (Optimus), EuroSys '18, sections 4.1 and 4.2. Ours: GPUs as the only resource, so a job is its
    workers; jobs without an expected run time count as one hour from their end.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.ELASTIC,
        "Peng et al.: Optimus, EuroSys 2018",
        left_out=("Parameter servers: a job is its GPUs.", "The fit of the loss: remaining time is by the estimator."),
        needs=(PolicyInput.DURATION, PolicyInput.SIZES, PolicyInput.SPEED, PolicyInput.PROGRESS),
        uses=(PolicyLever.ORDER, PolicyLever.SIZE, PolicyLever.REQUEUE, PolicyLever.START),
        on_slurm=(NEEDS_PREEMPTION, RESIZE_BY_REQUEUE),
        criteria={"given_gpus": "given {} GPUs"},
    )

    interval_s: Period = 600.0
    serial: Part = 0.02
    speeds: SpeedEstimator = field(default_factory=EqualSpeeds)
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)

    def rank(self, snapshot: Snapshot) -> Ranking:
        who, before = active(snapshot), SizeRound.of(snapshot, "optimus")
        if before.over(snapshot):
            before = before.begun(snapshot, self._given(snapshot, who), self.interval_s)
        given = before.given
        order = ordered(snapshot.jobs, given == 0, given)
        return size_ranking(snapshot, order, before, without_curve(snapshot, who, self.speeds))

    def _given(self, snapshot: Snapshot, who: Bools) -> Int64s:
        """GPUs of each job from now on. (N,)."""
        jobs, remaining_s = snapshot.jobs, remaining_or_unknown_s(self.estimator, snapshot)
        rows = ordered(jobs)
        rows = rows[who[rows]]
        total = cluster_gpus(snapshot)
        sizes = sizes_of(snapshot, rows.tolist(), self.serial, self.speeds, max(total, 1))
        first = np.argsort([each.gpus[0] for each in sizes], kind="stable")
        rows, sizes = rows[first], [sizes[job] for job in first.tolist()]

        def gain(job: int, now: int, then: int) -> float:
            speed = sizes[job].speed
            return float(remaining_s[rows[job]] * (1.0 / speed[now] - 1.0 / speed[then]))

        given = np.zeros(len(jobs), np.int64)
        given[rows] = give_by_gain(sizes, gain, total)
        return given

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When sizes may change next [Unix s]; infinity if there are no jobs."""
        return SizeRound.next_s(snapshot, ranking, "optimus")

"""The next GPU to the shorter job, unless the longer one makes more of it: Apathetic Future Share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from slurmsched.allocation.elastic import JobSizes, sizes_of, without_curve
from slurmsched.allocation.job_times import active, cluster_gpus, remaining_or_unknown_s
from slurmsched.allocation.size_rounds import SizeRound, size_ranking
from slurmsched.estimators.requested_time import Hint
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.ordering import ordered
from slurmsched.model.parameters import Part, Period, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION, RESIZE_BY_REQUEUE
from slurmsched.protocols import Estimator, SpeedEstimator


@dataclass(frozen=True, slots=True)
class Afs:
    """First each job gets its least size, the shortest first. Then each GPU goes to the winner of all pairs of jobs.

    Of two jobs the one that would end first wins, unless the other gains more: its gain over its new speed is more than
    the gain of the first over its old one. A job with hints min_gpus and max_gpus may have any size between them. Any
    other job has all its GPUs or none.
    interval_s: time between two changes of sizes [s].
    serial: share of a job's work that more GPUs do not speed up (Amdahl's law).
    speeds: a table of throughputs by number of GPUs replaces Amdahl's law.
    estimator: source of expected run times, at the size that a job asks for.
    Raises ConfigError for a parameter out of range.
    Source: Hwang et al. (AFS), NSDI '21, section 3. Ours: rounds; jobs without an expected run time count as one hour
    from their end.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.ELASTIC,
        "Hwang et al.: Elastic Resource Sharing (AFS), NSDI 2021",
        left_out=("AFS-P, for jobs of unknown length.", "CoDDL, which changes the size of jobs while they run."),
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
        who, before = active(snapshot), SizeRound.of(snapshot, "afs")
        remaining_s = remaining_or_unknown_s(self.estimator, snapshot)
        if before.over(snapshot):
            before = before.begun(snapshot, self._given(snapshot, who, remaining_s), self.interval_s)
        order = ordered(snapshot.jobs, before.given == 0, remaining_s)
        return size_ranking(snapshot, order, before, without_curve(snapshot, who, self.speeds))

    def _given(self, snapshot: Snapshot, who: Bools, remaining_s: Floats) -> Int64s:
        """GPUs of each job from now on. (N,)."""
        total, rows = cluster_gpus(snapshot), ordered(snapshot.jobs)
        rows = rows[who[rows]]
        sizes = sizes_of(snapshot, rows.tolist(), self.serial, self.speeds, max(total, 1))
        given = np.zeros(len(snapshot.jobs), np.int64)
        given[rows] = apathetic_shares(sizes, remaining_s[rows], total)
        return given

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When sizes may change next [Unix s]; infinity if there are no jobs."""
        return SizeRound.next_s(snapshot, ranking, "afs")


def apathetic_shares(sizes: Sequence[JobSizes], remaining_s: Floats, gpus: int) -> Int64s:
    """GPUs of each job. remaining_s: (J,) run time to come at the size it asks for. (J,)."""
    index = np.full(len(sizes), -1, np.int64)
    alone_s = [run_s / each.speed[0] for each, run_s in zip(sizes, remaining_s.tolist(), strict=True)]
    for job in np.argsort(alone_s, kind="stable").tolist():
        if sizes[job].gpus[0] <= gpus:
            index[job], gpus = 0, gpus - int(sizes[job].gpus[0])
    while (job := _winner(sizes, remaining_s, index, gpus)) >= 0:
        gpus -= int(sizes[job].gpus[index[job] + 1] - sizes[job].gpus[index[job]])
        index[job] += 1
    return np.array([each.gpus[at] if at >= 0 else 0 for each, at in zip(sizes, index.tolist(), strict=True)], np.int64)


def _winner(sizes: Sequence[JobSizes], remaining_s: Floats, index: Int64s, gpus: int) -> int:
    """The job whose next size wins against all others that one fits of, -1 if there is none."""
    best, best_end_s, best_steps = -1, np.inf, (0.0, 0.0)
    for job, at in enumerate(index.tolist()):
        each = sizes[job]
        if at < 0 or at + 1 >= len(each.gpus) or each.gpus[at + 1] - each.gpus[at] > gpus:
            continue
        end_s, steps = float(remaining_s[job] / each.speed[at]), (float(each.speed[at]), float(each.speed[at + 1]))
        if best < 0 or _beats(end_s, steps, best_end_s, best_steps):
            best, best_end_s, best_steps = job, end_s, steps
    return best


def _beats(end_s: float, steps: tuple[float, float], other_end_s: float, other: tuple[float, float]) -> bool:
    """Whether a job with this speed now and then wins against another, which comes before it where both are equal."""
    if end_s < other_end_s:
        return not longer_gains_more(steps, other)
    return longer_gains_more(other, steps)


def longer_gains_more(shorter: tuple[float, float], longer: tuple[float, float]) -> bool:
    """Whether the sum of both completion times is less if the longer job gets the GPU until the shorter one ends.

    Each: speed now, and with the GPU. After that the longer one has it in any case.
    """
    return (longer[1] - longer[0]) / longer[1] > (shorter[1] - shorter[0]) / shorter[0]

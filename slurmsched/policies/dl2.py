"""A trained network says which job gets the next GPU: DL2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from slurmsched.allocation.elastic import JobSizes, sizes_of, thinned, without_curve
from slurmsched.allocation.job_times import active, cluster_gpus, remaining_or_unknown_s
from slurmsched.allocation.size_rounds import SizeRound, size_ranking
from slurmsched.estimators.policy_network import policy_network
from slurmsched.estimators.requested_time import Hint
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.ordering import arrival_s, ordered
from slurmsched.model.parameters import Count, Part, Period, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION, RESIZE_BY_REQUEUE
from slurmsched.protocols import Estimator, SpeedEstimator

FEATURES = ("stop", "age", "remaining", "share", "gpus", "asked", "gain", "efficiency", "free", "jobs")
HOUR_S = 3_600.0
Chooser = Callable[[Floats], int]  # features of the choices (C, F), the first is to stop -> the one taken
UNTRAINED = ("no weights: each GPU goes to the job with the smallest share; `slurmsched policy train dl2 TRACE --out "
             "FILE` makes some, and policy.weights names them",)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dl2:
    """First each job gets its least size. Then a network gives one GPU after the other to a job, until it stops.

    A job with hints min_gpus and max_gpus may have any size between them. Any other job has all its GPUs or none.
    The network sees age, remaining time, share, size and scaling of each job. It is trained by replays, see
    `slurmsched policy train`.
    weights: file of its weights. Without one each GPU goes to the job with the smallest share, as in its first lesson.
    interval_s: time between two changes of sizes [s].
    most_jobs: jobs that the network sees, the earliest; others get their least size.
    serial: share of a job's work that more GPUs do not speed up (Amdahl's law).
    speeds: a table of throughputs by number of GPUs replaces Amdahl's law.
    estimator: source of expected run times, at the size that a job asks for.
    Raises ConfigError for a parameter out of range, InputError for weights that cannot be read.
    Source: Peng et al. (DL2), IEEE TPDS 2021. Ours: GPUs as the only resource; one small network for each job in place
    of one for all; scaling in place of the type of a job; no value network.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.ELASTIC,
        "Peng et al.: DL2, IEEE TPDS 2021",
        left_out=(
            "Parameter servers: a job is its GPUs.",
            "Training while the cluster runs: the network is trained by replays.",
            "The value network: the baseline is the mean of earlier replays.",
        ),
        needs=(PolicyInput.DURATION, PolicyInput.SIZES, PolicyInput.SPEED, PolicyInput.PROGRESS),
        uses=(PolicyLever.ORDER, PolicyLever.SIZE, PolicyLever.REQUEUE, PolicyLever.START),
        on_slurm=(NEEDS_PREEMPTION, RESIZE_BY_REQUEUE),
        criteria={"given_gpus": "given {} GPUs"},
    )

    weights: str = ""
    interval_s: Period = 600.0
    most_jobs: Count = 40
    serial: Part = 0.02
    speeds: SpeedEstimator = field(default_factory=EqualSpeeds)
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)
        self.chooser()

    def chooser(self) -> Chooser:
        """What the network takes; without weights the first lesson's choice."""
        if not self.weights:
            return smallest_share
        network = policy_network(self.weights, FEATURES)
        return lambda features: int(np.argmax(network.scores(features)))

    def rank(self, snapshot: Snapshot) -> Ranking:
        return self.ranked(snapshot, self.chooser())

    def ranked(self, snapshot: Snapshot, choose: Chooser) -> Ranking:
        """As rank. choose: who decides."""
        who, before = active(snapshot), SizeRound.of(snapshot, "dl2")
        if before.over(snapshot):
            before = before.begun(snapshot, self._given(snapshot, who, choose), self.interval_s)
        notes = without_curve(snapshot, who, self.speeds) + (() if self.weights else UNTRAINED)
        return size_ranking(snapshot, ordered(snapshot.jobs, before.given == 0), before, notes)

    def _given(self, snapshot: Snapshot, who: Bools, choose: Chooser) -> Int64s:
        """GPUs of each job from now on. (N,)."""
        jobs, total, rows = snapshot.jobs, cluster_gpus(snapshot), ordered(snapshot.jobs)
        rows = rows[who[rows]]
        sizes = [thinned(each) for each in sizes_of(snapshot, rows.tolist(), self.serial, self.speeds, max(total, 1))]
        to_come_s = remaining_or_unknown_s(self.estimator, snapshot)[rows]
        fixed = np.column_stack([snapshot.now_s - arrival_s(jobs)[rows], to_come_s]) / HOUR_S
        made = np.zeros(len(jobs), np.int64)
        made[rows] = grown(
            sizes, np.log1p(np.maximum(fixed, 0.0)), jobs.gpus[rows].astype(np.int64), total, self.most_jobs, choose
        )
        return made

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When sizes may change next [Unix s]; infinity if there are no jobs."""
        return SizeRound.next_s(snapshot, ranking, "dl2")


def grown(
    sizes: Sequence[JobSizes], fixed: Floats, asked: Int64s, gpus: int, most_jobs: int, choose: Chooser
) -> Int64s:
    """GPUs of each job: least sizes in their order, then one choice after the other. (J,).

    fixed: (J, 2) age and remaining time, as log(1 + hours). asked: (J,) GPUs. gpus: of the cluster.
    """
    index, free = np.full(len(sizes), -1, np.int64), gpus
    for job, each in enumerate(sizes):
        if each.gpus[0] <= free:
            index[job], free = 0, free - int(each.gpus[0])
    while True:
        may = [job for job, at in enumerate(index[:most_jobs].tolist()) if 0 <= at < len(sizes[job].gpus) - 1
               and sizes[job].gpus[at + 1] - sizes[job].gpus[at] <= free]  # fmt: skip
        if not may or not (taken := choose(_features(sizes, fixed, asked, index, may, free / max(gpus, 1), gpus))):
            return np.array([each.gpus[at] if at >= 0 else 0 for each, at in zip(sizes, index.tolist(), strict=True)],
                            np.int64)  # fmt: skip
        job = may[taken - 1]
        free -= int(sizes[job].gpus[index[job] + 1] - sizes[job].gpus[index[job]])
        index[job] += 1


def _features(
    sizes: Sequence[JobSizes], fixed: Floats, asked: Int64s, index: Int64s, may: list[int], free: float, gpus: int
) -> Floats:
    """Of stopping, and of one more size for each of these jobs, as FEATURES names them. (1 + C, F)."""
    made = np.zeros((1 + len(may), len(FEATURES)))
    made[0, 0], made[:, 8], made[:, 9] = 1.0, free, np.log1p(len(may)) / 4
    for place, job in enumerate(may, start=1):
        has, speed = sizes[job].gpus, sizes[job].speed
        at = int(index[job])
        each = (speed[at + 1] - speed[at]) / (has[at + 1] - has[at]) / (speed[0] / has[0])
        made[place, 1:8] = (*fixed[job], has[at] / max(gpus, 1), np.log2(has[at]) / 6, np.log2(max(asked[job], 1)) / 6,
                            speed[at + 1] / speed[at] - 1, each)  # fmt: skip
    return made


def smallest_share(features: Floats) -> int:
    """The first lesson: the job with the smallest share of the cluster, the first of equals; it never stops."""
    return 1 + int(np.argmin(features[1:, FEATURES.index("share")]))

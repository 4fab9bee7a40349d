"""Open shop: all jobs that are here now end as early as they can, whoever waits longest for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from slurmsched.estimators.alike import Alike
from slurmsched.estimators.hint import Hint
from slurmsched.model import Card, Family, Input, Ranking, Snapshot, Use
from slurmsched.model.columns import Bools
from slurmsched.policies.cards import PREEMPTS, ROUNDS
from slurmsched.policies.gavel import Gavel
from slurmsched.policies.ranges import Count, Period, Seconds
from slurmsched.policies.rounds import RESET_S
from slurmsched.protocols import Estimator, SpeedEstimator


@dataclass(frozen=True, slots=True)
class Ossp:
    """The least makespan: GPU types are the machines of an open shop in which a job may be interrupted at no cost.

    round_s, fill, most_jobs, reset_s, released, speeds, estimator: as of gavel, whose rounds carry the shares out.
    Raises ConfigError for a parameter out of range.
    Source: Gonzalez and Sahni, JACM 1976, for preemptive open shops; as a baseline of Zheng et al. (Shockwave), NSDI
    '23, and `min_total_duration` of Gavel's released code (c4fa400), with one job on all its GPUs at a time.
    """

    preemptive: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        Family.HETEROGENEITY,
        "Gonzalez and Sahni, JACM 1976; as in Zheng et al.: Shockwave, NSDI 2023",
        needs=(Input.DURATION, Input.SPEED),
        uses=(Use.ORDER, Use.GPU_TYPE, Use.REQUEUE, Use.START),
        on_slurm=(PREEMPTS, ROUNDS),
    )

    round_s: Period = 360.0
    fill: bool = True
    most_jobs: Count = 1_024
    reset_s: Seconds = RESET_S
    released: bool = False
    speeds: SpeedEstimator = field(default_factory=Alike)
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        self._gavel()

    def rank(self, snapshot: Snapshot) -> Ranking:
        return self._gavel().rank(snapshot)

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The end of the round [Unix s], infinity without jobs."""
        return self._gavel().next_change_s(snapshot, ranking, running)

    def _gavel(self) -> Gavel:
        return Gavel("makespan", round_s=self.round_s, fill=self.fill, most_jobs=self.most_jobs, reset_s=self.reset_s,
                     released=self.released, speeds=self.speeds, estimator=self.estimator)  # fmt: skip

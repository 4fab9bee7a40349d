"""The most work done in all: GPUs go to whoever makes most of them, and nobody is owed anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from slurmsched.estimators.alike import Alike
from slurmsched.model import Card, Family, Input, Ranking, Snapshot, Use
from slurmsched.model.columns import Bools
from slurmsched.policies.cards import PREEMPTS, ROUNDS
from slurmsched.policies.gavel import Gavel
from slurmsched.policies.ranges import Count, Period, Seconds
from slurmsched.policies.rounds import RESET_S
from slurmsched.protocols import SpeedEstimator


@dataclass(frozen=True, slots=True)
class MaxSumThroughput:
    """The sum of all throughputs is as high as can be; what is left of a round goes to the others.

    round_s, fill, most_jobs, reset_s, released, speeds: as of gavel, whose rounds carry the shares out. With `unit =
    "steps"` in the table of speeds, throughputs are steps a second as the public baselines have them: models of short
    steps go first.
    Raises ConfigError for a parameter out of range.
    Source: Narayanan et al. (Gavel), OSDI '20, `max_sum_throughput_perf` of its released code (c4fa400).
    """

    preemptive: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        Family.HETEROGENEITY,
        "Narayanan et al.: Gavel, OSDI 2020",
        needs=(Input.SPEED,),
        uses=(Use.ORDER, Use.GPU_TYPE, Use.REQUEUE, Use.START),
        on_slurm=(PREEMPTS, ROUNDS),
    )

    round_s: Period = 360.0
    fill: bool = True
    most_jobs: Count = 1_024
    reset_s: Seconds = RESET_S
    released: bool = False
    speeds: SpeedEstimator = field(default_factory=Alike)

    def __post_init__(self) -> None:
        self._gavel()

    def rank(self, snapshot: Snapshot) -> Ranking:
        return self._gavel().rank(snapshot)

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The end of the round [Unix s], infinity without jobs."""
        return self._gavel().next_change_s(snapshot, ranking, running)

    def _gavel(self) -> Gavel:
        return Gavel("sum-throughput", round_s=self.round_s, fill=self.fill, most_jobs=self.most_jobs,
                     reset_s=self.reset_s, released=self.released, speeds=self.speeds)  # fmt: skip

"""Expected run time as a quantile of what jobs of one size took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from slurmsched.errors import ConfigError
from slurmsched.estimators.groups import Level, by_levels, quantiles
from slurmsched.estimators.hint import Hint
from slurmsched.model import Estimates, Snapshot
from slurmsched.policies.checks import check_number
from slurmsched.protocols import Estimator

LEVELS: tuple[Level, ...] = (("GPUs", ("gpus",)), ("all", ()))


@dataclass(frozen=True, slots=True)
class Histogram:
    """A quantile of the executed time of jobs that ended with as many GPUs, whoever ran them; else of all.

    quantile: share of those jobs that took no longer; 0.5 is the median, which no single long job moves.
    least_samples: past jobs that a size must have to count.
    estimator: for jobs while nothing has ended.
    Raises ConfigError for a value out of range. Source: ours.
    """

    learns: ClassVar[bool] = True

    quantile: float = 0.5
    least_samples: int = 10
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_number("quantile", self.quantile, above=0.0)
        if self.quantile > 1:
            raise ConfigError(f"must be a number of at most 1, got {self.quantile!r}", key="policy.quantile")
        check_number("least_samples", self.least_samples, least=1)

    def estimate(self, snapshot: Snapshot) -> Estimates:
        taken = quantiles(snapshot.past.executed_s, self.quantile)
        return by_levels(snapshot, LEVELS, taken, self.least_samples, self.estimator)

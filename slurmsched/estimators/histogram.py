"""Expected run time as a quantile of what jobs of one size took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from slurmsched.estimators.groups import Level, by_levels, quantiles
from slurmsched.estimators.hint import Hint
from slurmsched.model import Estimates, Snapshot
from slurmsched.policies.ranges import Count, Range, check_ranges
from slurmsched.protocols import Estimator

Share = Annotated[float, Range(1e-6, 1.0)]
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

    quantile: Share = 0.5
    least_samples: Count = 10
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)

    def estimate(self, snapshot: Snapshot) -> Estimates:
        taken = quantiles(snapshot.past.executed_s, self.quantile)
        return by_levels(snapshot, LEVELS, taken, self.least_samples, self.estimator)

"""Expected run times from similar past jobs: `history`, `group-hash` and `histogram`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from slurmsched.estimators.requested_time import Hint
from slurmsched.estimators.similar_jobs import Level, by_levels, by_rolling_levels, quantiles
from slurmsched.model import Estimates, Snapshot
from slurmsched.model.parameters import Count, Range, SecondsOrNever, check_choice, check_ranges
from slurmsched.protocols import Estimator

HISTORY_LEVELS: tuple[Level, ...] = (
    ("user, name, GPUs", ("account", "user", "alike", "gpus")),
    ("user, name", ("account", "user", "alike")),
    ("user, GPUs", ("account", "user", "gpus")),
    ("user", ("account", "user")),
    ("GPUs", ("gpus",)),
    ("all", ()),
)


@dataclass(frozen=True, slots=True)
class RollingHistory:
    """Mean executed time of ended jobs of the same user, similar name and same GPUs; else of the next wider group.

    half_life_s: a job that ended so long [s] before the last one has half its weight; inf: all have the same weight.
    least_samples: past jobs that a group must have to count.
    estimator: for jobs without past jobs in any group.
    Raises ConfigError for a value out of range.
    Source: Hu et al. (Helios), SC '21, for a rolling mean by user and similar name, which falls back to wider groups.
    Ours: names are similar if they differ in case and numbers only; the half-life.
    """

    learns: ClassVar[bool] = True

    half_life_s: SecondsOrNever = 7 * 86_400.0
    least_samples: Count = 1
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)

    def estimate(self, snapshot: Snapshot) -> Estimates:
        return by_rolling_levels(snapshot, HISTORY_LEVELS, self.half_life_s, self.least_samples, self.estimator)


# Groups of recurring jobs: PAI's estimate.

ALL: Level = ("all", ())
BY: Mapping[str, tuple[Level, ...]] = {
    "user": (("user", ("account", "user")), ALL),
    "group": (("group", ("account", "user", "name", "model")), ALL),
    "group-gpus": (("group and GPUs", ("account", "user", "name", "model", "gpus")), ALL),
}


@dataclass(frozen=True, slots=True)
class GroupHash:
    """Mean executed time of the ended jobs of one group: equal in user, name, model and size. Else of all ended jobs.

    by: "group-gpus", "group" (any size) or "user".
    least_samples: past jobs that a group must have to count.
    estimator: for jobs while no job has ended.
    Raises ConfigError for a value out of range.
    Source: Weng et al. (MLaaS in the wild), NSDI '22: recurring tasks predicted by user, group and GPUs (SJU, SJG and
    SJGG of its simulator). Their group is a hash of a job's meta-information, which is not public; name and model hint
    replace it.
    """

    learns: ClassVar[bool] = True

    by: str = "group-gpus"
    least_samples: Count = 1
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_choice("by", self.by, tuple(BY))
        check_ranges(self)

    def estimate(self, snapshot: Snapshot) -> Estimates:
        return by_rolling_levels(snapshot, BY[self.by], math.inf, self.least_samples, self.estimator)


# A quantile of the run times of jobs of one size.

QuantileShare = Annotated[float, Range(1e-6, 1.0)]
HISTOGRAM_LEVELS: tuple[Level, ...] = (("GPUs", ("gpus",)), ("all", ()))


@dataclass(frozen=True, slots=True)
class Histogram:
    """A quantile of the executed time of ended jobs with the same number of GPUs, of all users. Else of all ended jobs.

    quantile: share of those jobs that took no longer. 0.5 is the median, which no single long job moves.
    least_samples: past jobs that a size must have to count.
    estimator: for jobs while no job has ended.
    Raises ConfigError for a value out of range. Source: slurmsched.
    """

    learns: ClassVar[bool] = True

    quantile: QuantileShare = 0.5
    least_samples: Count = 10
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)

    def estimate(self, snapshot: Snapshot) -> Estimates:
        taken = quantiles(snapshot.past.executed_s, self.quantile)
        return by_levels(snapshot, HISTOGRAM_LEVELS, taken, self.least_samples, self.estimator)

"""Expected run time from the group of recurring jobs: PAI's estimate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from slurmsched.estimators.groups import Level
from slurmsched.estimators.hint import Hint
from slurmsched.estimators.rolling import by_rolling_levels
from slurmsched.model import Estimates, Snapshot
from slurmsched.policies.checks import check_choice
from slurmsched.policies.ranges import Count, check_ranges
from slurmsched.protocols import Estimator

ALL: Level = ("all", ())
BY: Mapping[str, tuple[Level, ...]] = {
    "user": (("user", ("account", "user")), ALL),
    "group": (("group", ("account", "user", "name", "model")), ALL),
    "group-gpus": (("group and GPUs", ("account", "user", "name", "model", "gpus")), ALL),
}


@dataclass(frozen=True, slots=True)
class GroupHash:
    """Mean executed time of the jobs that ended of one group: equal in user, name, model and size; else of all.

    by: "group-gpus", "group" (any size) or "user".
    least_samples: past jobs that a group must have to count.
    estimator: for jobs while nothing has ended.
    Raises ConfigError for a value out of range.
    Source: Weng et al. (MLaaS in the wild), NSDI '22: recurring tasks predicted by user, group and GPUs
    (SJU, SJG and SJGG of its simulator). Their group is a hash of a job's meta-information, which is not public; name
    and model hint stand for it.
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

"""Expected run time from what like jobs took lately: Helios's rolling estimate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from slurmsched.estimators.groups import Level
from slurmsched.estimators.hint import Hint
from slurmsched.estimators.rolling import by_rolling_levels
from slurmsched.model import Estimates, Snapshot
from slurmsched.policies.ranges import Count, Patience, check_ranges
from slurmsched.protocols import Estimator

LEVELS: tuple[Level, ...] = (
    ("user, name, GPUs", ("account", "user", "alike", "gpus")),
    ("user, name", ("account", "user", "alike")),
    ("user, GPUs", ("account", "user", "gpus")),
    ("user", ("account", "user")),
    ("GPUs", ("gpus",)),
    ("all", ()),
)


@dataclass(frozen=True, slots=True)
class History:
    """Mean executed time of jobs that ended: same user, like name and as many GPUs; else the next wider group.

    half_life_s: a job that ended so long [s] before the last one weighs half; inf: all alike.
    least_samples: past jobs that a group must have to count.
    estimator: for jobs of which the past tells nothing.
    Raises ConfigError for a value out of range.
    Source: Hu et al. (Helios), SC '21, for the idea: a rolling mean by user and similar name, which
    falls back to wider groups. Names are alike here if they differ in case and numbers only; the half-life is ours.
    """

    learns: ClassVar[bool] = True

    half_life_s: Patience = 7 * 86_400.0
    least_samples: Count = 1
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)

    def estimate(self, snapshot: Snapshot) -> Estimates:
        return by_rolling_levels(snapshot, LEVELS, self.half_life_s, self.least_samples, self.estimator)

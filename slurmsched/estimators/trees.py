"""Expected run time from gradient-boosted trees over what was known of past jobs when they came."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from slurmsched.estimators.hint import Hint
from slurmsched.estimators.lessons import Leaves, Lesson, asked, lesson_of, one_thread, taught, untaught
from slurmsched.model import Estimates, Snapshot
from slurmsched.policies.ranges import Count, check_ranges
from slurmsched.protocols import Estimator


@dataclass(frozen=True, slots=True)
class Trees:
    """Gradient-boosted trees on GPUs, hour and weekday of submission, and what the user's earlier jobs took.

    The target is the logarithm of the executed time. One fit a day: jobs that ended before the last midnight (UTC) of
    the snapshot's clock teach, so the same past gives the same trees; the seed is fixed.
    least_samples: past jobs without which nothing is learnt. most_samples: only the last so many teach.
    rounds: trees. leaves: of each.
    estimator: for jobs while nothing is learnt, or where scikit-learn (extra `trees`) is not installed.
    Raises ConfigError for a value out of range.
    Source: Hu et al. (Helios), SC '21, which boosts trees on attributes of jobs; features are ours.
    """

    learns: ClassVar[bool] = True

    least_samples: Count = 200
    most_samples: Count = 50_000
    rounds: Count = 100
    leaves: Leaves = 31
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)

    def estimate(self, snapshot: Snapshot) -> Estimates:
        last = self.estimator.estimate(snapshot)
        lesson = lesson_of(snapshot, self.least_samples, self.most_samples)
        if lesson is None:
            return untaught("trees", last)
        model = _fitted(lesson, self.rounds, self.leaves)
        with one_thread():
            logs = model.predict(asked(lesson.past, snapshot.jobs))
        total_s = np.expm1(np.clip(logs, 0.0, 30.0))
        return Estimates(total_s, np.zeros(len(snapshot.jobs), np.int8), ("trees", *last.sources))


@lru_cache(maxsize=4)
def _fitted(lesson: Lesson, rounds: int, leaves: int) -> Any:
    """The trees of a past: a pure function of it."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    past = lesson.past
    trees = HistGradientBoostingRegressor(
        max_iter=rounds, max_leaf_nodes=leaves, early_stopping=False, random_state=0
    )  # fmt: skip
    with one_thread():
        return trees.fit(taught(past), np.log1p(past.executed_s))

"""Expected run time as a product of factors, one for each thing known of a job, so that every estimate can be told."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from slurmsched.estimators.history import History
from slurmsched.estimators.lessons import (
    FEATURES,
    Leaves,
    Lesson,
    asked,
    lesson_of,
    one_thread,
    taught,
    untaught,
)
from slurmsched.model import Estimates, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.model.terms import Terms
from slurmsched.policies.ranges import Count, check_ranges
from slurmsched.protocols import Estimator

LONGEST_LOG = 30.0
_UNKNOWN = -1.0  # of a feature, see lessons


@dataclass(frozen=True, slots=True)
class Additive:
    """Boosted trees on the logarithm of the run time, each of which looks at one feature only.

    So the logarithm is a sum of one curve a feature, and the run time a usual one times a factor a feature: the mean
    over the past of each factor's logarithm is 0. Features, and when what is learnt, are those of `trees`.
    least_samples: past jobs without which nothing is learnt. most_samples: only the last so many teach. rounds: trees.
    leaves: of each.
    estimator: for jobs while nothing is learnt, or where scikit-learn (extra `trees`) is not installed.
    Raises ConfigError for a value out of range.
    Source: Hu et al. (Lucid), ASPLOS '23, which estimates by a generalised additive model with pairs of features (GA2M)
    to be explainable; that no two features are looked at together, and the features, are ours.
    """

    learns: ClassVar[bool] = True

    least_samples: Count = 200
    most_samples: Count = 50_000
    rounds: Count = 200
    leaves: Leaves = 8
    estimator: Estimator = field(default_factory=History)

    def __post_init__(self) -> None:
        check_ranges(self)

    def estimate(self, snapshot: Snapshot) -> Estimates:
        last, terms = self.estimator.estimate(snapshot), self.terms(snapshot)
        if terms is None:
            return untaught("additive", last)
        logs = np.log(terms.usual_s) + np.log(terms.factor).sum(axis=1)
        total_s = np.exp(np.minimum(logs, LONGEST_LOG))
        return Estimates(total_s, np.zeros(len(snapshot.jobs), np.int8), ("additive", *last.sources))

    def terms(self, snapshot: Snapshot) -> Terms | None:
        """What each estimate is made of; None while nothing is learnt."""
        lesson = lesson_of(snapshot, self.least_samples, self.most_samples)
        if lesson is None:
            return None
        curves = _learnt(lesson, self.rounds, self.leaves)
        value = asked(lesson.past, snapshot.jobs)
        with one_thread():
            factor = np.exp(curves.of(value))
        known = value != _UNKNOWN
        return Terms(FEATURES, float(np.exp(curves.usual)), _told(value, known), factor)


@dataclass(frozen=True, slots=True, eq=False)
class _Curves:
    """model: additive. middle: (F,) a row of features from which each is changed alone. centre: (F,) mean over the past
    of what that adds. usual: mean over the past of the logarithm."""

    model: Any
    middle: Floats
    centre: Floats
    usual: float

    def of(self, value: Floats) -> Floats:
        """What each feature adds to the logarithm of the run time. value: (N, F). (N, F)."""
        return np.asarray(_alone(self.model, self.middle, value) - self.centre)


def _alone(model: Any, middle: Floats, value: Floats) -> Floats:
    """By how much the logarithm grows if one feature at a time is as in `value`, the others in the middle. (N, F)."""
    found = np.zeros(value.shape)
    for column in range(value.shape[1]):
        each, place = np.unique(value[:, column], return_inverse=True)
        rows = np.tile(middle, (len(each) + 1, 1))
        rows[1:, column] = each
        logs = model.predict(rows)
        found[:, column] = (logs[1:] - logs[0])[place.reshape(-1)]
    return found


@lru_cache(maxsize=4)
def _learnt(lesson: Lesson, rounds: int, leaves: int) -> _Curves:
    """The curves of a past: a pure function of it. A run time below a second counts as one."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    table, logs = taught(lesson.past), np.log(np.maximum(lesson.past.executed_s, 1.0))
    trees = HistGradientBoostingRegressor(
        max_iter=rounds, max_leaf_nodes=leaves, interaction_cst="no_interactions", early_stopping=False, random_state=0
    )  # fmt: skip
    with one_thread():
        model, middle = trees.fit(table, logs), np.median(table, axis=0)
        added = _alone(model, middle, table).mean(axis=0)
        usual = float(model.predict(middle[None, :])[0] + added.sum())
    return _Curves(model, middle, added, usual)


def _told(value: Floats, known: Any) -> Floats:
    """The features as people know them: run times in seconds in place of logarithms, NaN for what is not known."""
    shown = np.where(known, value, np.nan)
    means = [column for column, name in enumerate(FEATURES) if name.startswith("mean")]
    shown[:, means] = np.expm1(shown[:, means])
    return shown

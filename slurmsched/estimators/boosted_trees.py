"""Expected run times from gradient-boosted trees over past jobs: `trees`, and `additive`, which explains its estimates.

The trees are fitted once a day. A training set is identified by its digest.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, ClassVar

import numpy as np

from slurmsched.estimators.past_run_times import JobGroups, RollingHistory, groups
from slurmsched.estimators.requested_time import Hint
from slurmsched.model import Estimates, Jobs, Past, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.model.durations import DAY_S, HOUR_S
from slurmsched.model.ordering import arrival_s
from slurmsched.model.parameters import Count, Range, check_ranges
from slurmsched.model.plan import RunTimeFactors
from slurmsched.protocols import Estimator

Leaves = Annotated[int, Range(2, 1_000_000, whole=True)]
FEATURES = ("GPUs", "hour", "weekday", "mean of the user", "mean of the user's like names")
NOBODY = Jobs.build(0, {})
_WHO = (("account", "user"), ("account", "user", "alike"))


@lru_cache(maxsize=1)
def scikit_learn_installed() -> bool:
    """Whether scikit-learn is installed."""
    try:
        import sklearn.ensemble  # noqa: F401
    except ImportError:
        return False
    return True


def untrained(name: str, last: Estimates) -> Estimates:
    """Those of the estimator behind, while the one of this name has learnt nothing."""
    return Estimates(last.total_s, (np.asarray(last.source) + 1).astype(np.int8), (name, *last.sources))


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """A past, known by its digest, so that one fit serves every snapshot of a day."""

    digest: str
    past: Past = field(compare=False)


def training_set(snapshot: Snapshot, least: int, most: int) -> TrainingSet | None:
    """Jobs that ended before the last midnight (UTC) of the snapshot's clock, the last `most` of them.

    None if there are fewer than `least`, if nobody is to be estimated, or without scikit-learn.
    """
    stop = int(np.searchsorted(snapshot.past.end_s, snapshot.now_s // DAY_S * DAY_S))
    first = max(stop - most, 0)
    if not len(snapshot.jobs) or stop - first < least or not scikit_learn_installed():
        return None
    return _training_rows(snapshot.past, first, stop)


@lru_cache(maxsize=2)
def _training_rows(past: Past, first: int, stop: int) -> TrainingSet:
    """These rows of a past with their digest. The very same past is not read again at each look."""
    taught = past.take(slice(first, stop))
    return TrainingSet(digest_of(taught), taught)


def digest_of(past: Past) -> str:
    hasher = hashlib.blake2b(digest_size=16)
    for column in (past.gpus, past.submit_s, past.end_s, past.executed_s):
        hasher.update(np.ascontiguousarray(column).tobytes())
    for texts in (past.account, past.user, past.name):
        hasher.update(repr(texts.names).encode() + np.ascontiguousarray(texts.codes).tobytes())
    return hasher.hexdigest()


@contextmanager
def one_thread() -> Iterator[None]:
    """Keeps scikit-learn to one thread: several that wait for each other slow a busy machine down.

    It counts the cores all the same, and warns where /sys is not mounted; that warning is left out.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="openmp"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Could not find the number of physical cores", UserWarning)
        yield


def training_features(past: Past) -> Floats:
    """Features of past jobs, each mean over the jobs before it. (P, 5)."""
    logs = np.log1p(past.executed_s)
    earlier = [_means_before(groups(past, NOBODY, columns), logs) for columns in _WHO]
    return _filled_columns([past.gpus.astype(np.float64), *_when(past.submit_s), *earlier])


def job_features(past: Past, jobs: Jobs) -> Floats:
    """Features of jobs to be estimated. (N, 5)."""
    logs = np.log1p(past.executed_s)
    known = []
    for columns in _WHO:
        at = groups(past, jobs, columns)
        known.append(at.of_jobs(np.bincount(at.past, logs, at.count) / np.bincount(at.past, minlength=at.count)))
    return _filled_columns([jobs.gpus.astype(np.float64), *_when(arrival_s(jobs)), *known])


def _filled_columns(columns: list[Floats]) -> Floats:
    """The columns side by side, -1 for unknown: scikit-learn takes no column of NaN alone."""
    table = np.column_stack(columns).astype(np.float64)
    return np.where(np.isnan(table), -1.0, table)


def _when(submit_s: Floats) -> tuple[Floats, Floats]:
    """Hour of the day and day of the week (0 = Thursday), UTC."""
    return submit_s % DAY_S // HOUR_S, submit_s // DAY_S % 7


def _means_before(at: JobGroups, values: Floats) -> Floats:
    """Mean over the earlier jobs of its group, NaN for the first. values: (P,), in order. (P,)."""
    order = np.argsort(at.past, kind="stable")
    size = np.bincount(at.past, minlength=at.count)
    first = np.repeat(np.cumsum(size) - size, size)
    summed = np.concatenate([[0.0], np.cumsum(values[order])])
    before = np.arange(len(values)) - first
    made = np.full(len(values), np.nan)
    some = before > 0
    made[order[some]] = (summed[:-1] - summed[first])[some] / before[some]
    return made


# Gradient-boosted trees.


@dataclass(frozen=True, slots=True)
class Trees:
    """Gradient-boosted trees on GPUs, hour and weekday of submission, and the run times of the user's earlier jobs.

    The target is the logarithm of the executed time. Trees are fitted once a day, from jobs that ended before the last
    midnight (UTC) of the snapshot's clock. So the same past gives the same trees; the seed is fixed.
    least_samples: past jobs without which nothing is learnt.
    most_samples: only the last that many past jobs are used.
    rounds: number of trees.
    leaves: leaves of each tree.
    estimator: for jobs while nothing is learnt, or without scikit-learn (extra `trees`).
    Raises ConfigError for a value out of range.
    Source: Hu et al. (Helios), SC '21, which boosts trees on attributes of jobs. The features are ours.
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
        lesson = training_set(snapshot, self.least_samples, self.most_samples)
        if lesson is None:
            return untrained("trees", last)
        model = _fitted(lesson, self.rounds, self.leaves)
        with one_thread():
            logs = model.predict(job_features(lesson.past, snapshot.jobs))
        total_s = np.expm1(np.clip(logs, 0.0, 30.0))
        return Estimates(total_s, np.zeros(len(snapshot.jobs), np.int8), ("trees", *last.sources))


@lru_cache(maxsize=4)
def _fitted(lesson: TrainingSet, rounds: int, leaves: int) -> Any:
    """The trees of a past: a pure function of it."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    past = lesson.past
    trees = HistGradientBoostingRegressor(
        max_iter=rounds, max_leaf_nodes=leaves, early_stopping=False, random_state=0
    )  # fmt: skip
    with one_thread():
        return trees.fit(training_features(past), np.log1p(past.executed_s))


# A product of factors.

LONGEST_LOG = 30.0
_UNKNOWN = -1.0  # of a feature, see lessons


@dataclass(frozen=True, slots=True)
class Additive:
    """Boosted trees on the logarithm of the run time, each of which uses one feature only.

    So the logarithm is a sum of one curve for each feature. The run time is a typical one times a factor for each
    feature; the mean logarithm of each factor over the past is 0. Features and training are those of `trees`.
    least_samples: past jobs without which nothing is learnt.
    most_samples: only the last that many past jobs are used.
    rounds: number of trees.
    leaves: leaves of each tree.
    estimator: for jobs while nothing is learnt, or without scikit-learn (extra `trees`).
    Raises ConfigError for a value out of range.
    Source: Hu et al. (Lucid), ASPLOS '23, which estimates by a generalised additive model with pairs of features (GA2M)
    to be explainable. Ours: no pairs of features, and the features.
    """

    learns: ClassVar[bool] = True

    least_samples: Count = 200
    most_samples: Count = 50_000
    rounds: Count = 200
    leaves: Leaves = 8
    estimator: Estimator = field(default_factory=RollingHistory)

    def __post_init__(self) -> None:
        check_ranges(self)

    def estimate(self, snapshot: Snapshot) -> Estimates:
        last, terms = self.estimator.estimate(snapshot), self.terms(snapshot)
        if terms is None:
            return untrained("additive", last)
        logs = np.log(terms.usual_s) + np.log(terms.factor).sum(axis=1)
        total_s = np.exp(np.minimum(logs, LONGEST_LOG))
        return Estimates(total_s, np.zeros(len(snapshot.jobs), np.int8), ("additive", *last.sources))

    def terms(self, snapshot: Snapshot) -> RunTimeFactors | None:
        """What each estimate is made of; None while nothing is learnt."""
        lesson = training_set(snapshot, self.least_samples, self.most_samples)
        if lesson is None:
            return None
        curves = _learnt(lesson, self.rounds, self.leaves)
        value = job_features(lesson.past, snapshot.jobs)
        with one_thread():
            factor = np.exp(curves.of(value))
        known = value != _UNKNOWN
        return RunTimeFactors(FEATURES, float(np.exp(curves.usual)), _readable_features(value, known), factor)


@dataclass(frozen=True, slots=True, eq=False)
class _Curves:
    """A model, and the mean over the past from which its curves are drawn.

    model: additive.
    middle: (F,) a row of features from which each is changed alone.
    centre: (F,) mean over the past of what that adds.
    usual: mean over the past of the logarithm.
    """

    model: Any
    middle: Floats
    centre: Floats
    usual: float

    def of(self, value: Floats) -> Floats:
        """What each feature adds to the logarithm of the run time. value: (N, F). (N, F)."""
        return np.asarray(_one_by_one(self.model, self.middle, value) - self.centre)


def _one_by_one(model: Any, middle: Floats, value: Floats) -> Floats:
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
def _learnt(lesson: TrainingSet, rounds: int, leaves: int) -> _Curves:
    """The curves of a past: a pure function of it. A run time below a second counts as one."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    table, logs = training_features(lesson.past), np.log(np.maximum(lesson.past.executed_s, 1.0))
    trees = HistGradientBoostingRegressor(
        max_iter=rounds, max_leaf_nodes=leaves, interaction_cst="no_interactions", early_stopping=False, random_state=0
    )  # fmt: skip
    with one_thread():
        model, middle = trees.fit(table, logs), np.median(table, axis=0)
        added = _one_by_one(model, middle, table).mean(axis=0)
        usual = float(model.predict(middle[None, :])[0] + added.sum())
    return _Curves(model, middle, added, usual)


def _readable_features(value: Floats, known: Any) -> Floats:
    """The features as people know them: run times in seconds in place of logarithms, NaN for what is not known."""
    shown = np.where(known, value, np.nan)
    means = [column for column, name in enumerate(FEATURES) if name.startswith("mean")]
    shown[:, means] = np.expm1(shown[:, means])
    return shown

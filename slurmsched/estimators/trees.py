"""Expected run time from gradient-boosted trees over what was known of past jobs when they came."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from slurmsched.estimators.groups import Groups, groups
from slurmsched.estimators.hint import Hint
from slurmsched.model import Estimates, Jobs, Past, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.policies.checks import check_number
from slurmsched.policies.order import arrival_s
from slurmsched.protocols import Estimator

DAY_S, HOUR_S = 86_400.0, 3_600.0
FEATURES = ("GPUs", "hour", "weekday", "mean of the user", "mean of the user's like names")
NOBODY = Jobs.build(0, {})
_WHO = (("account", "user"), ("account", "user", "alike"))


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

    least_samples: int = 200
    most_samples: int = 50_000
    rounds: int = 100
    leaves: int = 31
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        for name in ("least_samples", "most_samples", "rounds"):
            check_number(name, getattr(self, name), least=1)
        check_number("leaves", self.leaves, least=2)

    def estimate(self, snapshot: Snapshot) -> Estimates:
        last = self.estimator.estimate(snapshot)
        first, stop = self._rows(snapshot)
        rows = len(snapshot.jobs)
        if not rows or stop - first < self.least_samples or not available():
            return Estimates(last.total_s, (np.asarray(last.source) + 1).astype(np.int8), ("trees", *last.sources))
        lesson = _lesson(snapshot.past, first, stop)
        model = _fitted(lesson, self.rounds, self.leaves)
        with _one_thread():
            logs = model.predict(_asked(lesson.past, snapshot.jobs))
        total_s = np.expm1(np.clip(logs, 0.0, 30.0))
        return Estimates(total_s, np.zeros(rows, np.int8), ("trees", *last.sources))

    def _rows(self, snapshot: Snapshot) -> tuple[int, int]:
        """First row of the jobs that ended before the last midnight, most_samples at most, and the row behind them."""
        midnight_s = snapshot.now_s // DAY_S * DAY_S
        stop = int(np.searchsorted(snapshot.past.end_s, midnight_s))
        return max(stop - self.most_samples, 0), stop


@lru_cache(maxsize=1)
def available() -> bool:
    """Whether scikit-learn is installed."""
    try:
        import sklearn.ensemble  # noqa: F401
    except ImportError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Lesson:
    """A past, known by its digest, so that one fit serves every snapshot of a day."""

    digest: str
    past: Past = field(compare=False)


@lru_cache(maxsize=2)
def _lesson(past: Past, first: int, stop: int) -> _Lesson:
    """These rows of a past with their digest. The very same past is not read again at each look."""
    taught = past.take(slice(first, stop))
    return _Lesson(_digest(taught), taught)


def _digest(past: Past) -> str:
    hasher = hashlib.blake2b(digest_size=16)
    for column in (past.gpus, past.submit_s, past.end_s, past.executed_s):
        hasher.update(np.ascontiguousarray(column).tobytes())
    for texts in (past.account, past.user, past.name):
        hasher.update(repr(texts.names).encode() + np.ascontiguousarray(texts.codes).tobytes())
    return hasher.hexdigest()


@lru_cache(maxsize=4)
def _fitted(lesson: _Lesson, rounds: int, leaves: int) -> Any:
    """The trees of a past: a pure function of it."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    past = lesson.past
    trees = HistGradientBoostingRegressor(
        max_iter=rounds, max_leaf_nodes=leaves, early_stopping=False, random_state=0
    )  # fmt: skip
    with _one_thread():
        return trees.fit(_taught(past), np.log1p(past.executed_s))


def _one_thread() -> Any:
    """Keeps scikit-learn to one thread: several that wait for each other slow a busy machine down."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, user_api="openmp")


def _taught(past: Past) -> Floats:
    """Features of past jobs, each mean over the jobs before it. (P, 5)."""
    logs = np.log1p(past.executed_s)
    earlier = [_means_before(groups(past, NOBODY, columns), logs) for columns in _WHO]
    return _known([past.gpus.astype(np.float64), *_when(past.submit_s), *earlier])


def _asked(past: Past, jobs: Jobs) -> Floats:
    """Features of jobs to be estimated. (N, 5)."""
    logs = np.log1p(past.executed_s)
    known = []
    for columns in _WHO:
        at = groups(past, jobs, columns)
        known.append(at.of_jobs(np.bincount(at.past, logs, at.count) / np.bincount(at.past, minlength=at.count)))
    return _known([jobs.gpus.astype(np.float64), *_when(arrival_s(jobs)), *known])


def _known(columns: list[Floats]) -> Floats:
    """The columns side by side, -1 for unknown: scikit-learn takes no column of NaN alone."""
    table = np.column_stack(columns).astype(np.float64)
    return np.where(np.isnan(table), -1.0, table)


def _when(submit_s: Floats) -> tuple[Floats, Floats]:
    """Hour of the day and day of the week (0 = Thursday), UTC."""
    return submit_s % DAY_S // HOUR_S, submit_s // DAY_S % 7


def _means_before(at: Groups, values: Floats) -> Floats:
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

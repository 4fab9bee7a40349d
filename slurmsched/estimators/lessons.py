"""What estimators by trees learn from: past jobs as features, one lesson a day, known by its digest."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated

import numpy as np

from slurmsched.estimators.groups import Groups, groups
from slurmsched.model import Estimates, Jobs, Past, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.policies.order import arrival_s
from slurmsched.policies.ranges import Range

DAY_S, HOUR_S = 86_400.0, 3_600.0
Leaves = Annotated[int, Range(2, 1_000_000, whole=True)]
FEATURES = ("GPUs", "hour", "weekday", "mean of the user", "mean of the user's like names")
NOBODY = Jobs.build(0, {})
_WHO = (("account", "user"), ("account", "user", "alike"))


@lru_cache(maxsize=1)
def available() -> bool:
    """Whether scikit-learn is installed."""
    try:
        import sklearn.ensemble  # noqa: F401
    except ImportError:
        return False
    return True


def untaught(name: str, last: Estimates) -> Estimates:
    """Those of the estimator behind, while the one of this name has learnt nothing."""
    return Estimates(last.total_s, (np.asarray(last.source) + 1).astype(np.int8), (name, *last.sources))


@dataclass(frozen=True, slots=True)
class Lesson:
    """A past, known by its digest, so that one fit serves every snapshot of a day."""

    digest: str
    past: Past = field(compare=False)


def lesson_of(snapshot: Snapshot, least: int, most: int) -> Lesson | None:
    """Jobs that ended before the last midnight (UTC) of the snapshot's clock, the last `most` of them.

    None if there are fewer than `least`, if nobody is to be estimated, or without scikit-learn.
    """
    stop = int(np.searchsorted(snapshot.past.end_s, snapshot.now_s // DAY_S * DAY_S))
    first = max(stop - most, 0)
    if not len(snapshot.jobs) or stop - first < least or not available():
        return None
    return _lesson(snapshot.past, first, stop)


@lru_cache(maxsize=2)
def _lesson(past: Past, first: int, stop: int) -> Lesson:
    """These rows of a past with their digest. The very same past is not read again at each look."""
    taught = past.take(slice(first, stop))
    return Lesson(digest_of(taught), taught)


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


def taught(past: Past) -> Floats:
    """Features of past jobs, each mean over the jobs before it. (P, 5)."""
    logs = np.log1p(past.executed_s)
    earlier = [_means_before(groups(past, NOBODY, columns), logs) for columns in _WHO]
    return _known([past.gpus.astype(np.float64), *_when(past.submit_s), *earlier])


def asked(past: Past, jobs: Jobs) -> Floats:
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

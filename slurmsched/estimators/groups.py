"""Jobs of a snapshot beside the jobs that ended and are like them: the material of estimators that learn."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from slurmsched.model import Estimates, Labels, Past, Snapshot
from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.hints import parse_hints
from slurmsched.model.jobs import Jobs
from slurmsched.protocols import Estimator

_NUMBERS = re.compile(r"\d+")
Level = tuple[str, tuple[str, ...]]  # name of the source, and the columns by which jobs are alike
Statistic = Callable[[Int64s, int], Floats]  # groups of past jobs (P,), their number G -> a value by group (G,)


@lru_cache(maxsize=1 << 16)
def alike(name: str) -> str:
    """A job name without what tells runs of one script apart: case and numbers ("Train_7" = "train_12")."""
    return _NUMBERS.sub("#", name.lower())


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """past: (P,) group of each past job. job: (N,) group of each job of the snapshot, -1 where no past job is alike.
    count: number of groups."""

    past: Int64s
    job: Int64s
    count: int

    def of_jobs(self, values: Floats) -> Floats:
        """A value by group, by job; NaN where there is no group. values: (count,). (N,)."""
        return np.append(values, np.nan)[self.job]


def groups(past: Past, jobs: Jobs, columns: Sequence[str]) -> Groups:
    """Past jobs and others by equal columns: account, user, name, alike (names alike), model, gpus.

    No column: all in one group.
    """
    of_past, of_jobs = np.zeros(len(past), np.int64), np.zeros(len(jobs), np.int64)
    for name in columns:
        one, other = _codes(past, jobs, name)
        width = int(max(one.max(initial=-1), other.max(initial=-1))) + 1
        both = np.concatenate([of_past * width + one, of_jobs * width + other])
        _, dense = np.unique(both, return_inverse=True)
        of_past, of_jobs = dense[: len(past)], dense[len(past) :]
    known, group = np.unique(of_past, return_inverse=True)
    place = np.searchsorted(known, of_jobs)
    found = np.append(known, -1)[place] == of_jobs
    return Groups(group.astype(np.int64), np.where(found, place, -1).astype(np.int64), len(known))


def _codes(past: Past, jobs: Jobs, name: str) -> tuple[Int64s, Int64s]:
    """A column of both tables as numbers, equal where the values are."""
    if name == "gpus":
        return past.gpus.astype(np.int64), jobs.gpus.astype(np.int64)
    if name == "model":
        return _texts(past.model, jobs.comment, of_job=lambda comment: parse_hints(comment).model or "")
    if name == "alike":
        return _texts(past.name, jobs.name, alike, alike)
    return _texts(getattr(past, name), getattr(jobs, name))


def _texts(
    past: Labels, jobs: Labels, of_past: Callable[[str], str] = str, of_job: Callable[[str], str] = str
) -> tuple[Int64s, Int64s]:
    code: dict[str, int] = {}

    def numbered(column: Labels, text: Callable[[str], str]) -> Int64s:
        return column.map(lambda name: code.setdefault(text(name), len(code)), np.int64)

    return numbered(past, of_past), numbered(jobs, of_job)


def quantiles(values: Floats, share: float) -> Statistic:
    """Value of each group that `share` of its jobs do not exceed: the lowest such sample. values: (P,)."""

    def quantile(group: Int64s, count: int) -> Floats:
        order = np.lexsort((values, group))
        size = np.bincount(group, minlength=count)
        within = np.maximum(np.ceil(share * size).astype(np.int64), 1) - 1
        found: Floats = values[order[np.cumsum(size) - size + within]]
        return found

    return quantile


def by_levels(
    snapshot: Snapshot, levels: Sequence[Level], statistic: Statistic, least_samples: int, otherwise: Estimator
) -> Estimates:
    """Each job by the first level at which at least so many past jobs are alike; else what `otherwise` says."""
    last = otherwise.estimate(snapshot)
    total_s = np.full(len(snapshot.jobs), np.nan)
    source = (np.asarray(last.source) + len(levels)).astype(np.int8)
    for number, (_, columns) in enumerate(levels if len(snapshot.past) else ()):
        if not (unknown := np.isnan(total_s)).any():
            break
        at = groups(snapshot.past, snapshot.jobs, columns)
        value = statistic(at.past, at.count)
        value[np.bincount(at.past, minlength=at.count) < least_samples] = np.nan
        found = at.of_jobs(value)
        new = unknown & ~np.isnan(found)
        total_s[new], source[new] = found[new], number
    total_s = np.where(np.isnan(total_s), last.total_s, total_s)
    return Estimates(total_s, source, (*(name for name, _ in levels), *last.sources))

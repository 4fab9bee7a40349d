"""Expected run times from similar past jobs: `history`, `group-hash` and `histogram`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from threading import Lock
from typing import Annotated, Any, ClassVar

import numpy as np

from slurmsched.estimators.requested_time import Hint
from slurmsched.model import Estimates, Labels, Past, Snapshot
from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.hints import parse_hints
from slurmsched.model.jobs import NO_PAST, Jobs
from slurmsched.model.parameters import Count, Range, SecondsOrNever, check_choice, check_ranges
from slurmsched.protocols import Estimator

# Groups of similar jobs.

_DIGITS = re.compile(r"\d+")
Level = tuple[str, tuple[str, ...]]  # name of the source, and the columns by which jobs are alike
Statistic = Callable[[Int64s, int], Floats]  # groups of past jobs (P,), their number G -> a value by group (G,)


@lru_cache(maxsize=1 << 16)
def normalized_name(name: str) -> str:
    """A job name without what tells runs of one script apart: case and numbers ("Train_7" = "train_12")."""
    return _DIGITS.sub("#", name.lower())


@dataclass(frozen=True, slots=True, eq=False)
class JobGroups:
    """Groups of jobs that are alike.

    past: (P,) group of each past job.
    job: (N,) group of each job of the snapshot, -1 where no past job is alike.
    count: number of groups.
    """

    past: Int64s
    job: Int64s
    count: int

    def of_jobs(self, values: Floats) -> Floats:
        """A value by group, by job; NaN where there is no group. values: (count,). (N,)."""
        return np.append(values, np.nan)[self.job]


def groups(past: Past, jobs: Jobs, columns: Sequence[str]) -> JobGroups:
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
    return JobGroups(group.astype(np.int64), np.where(found, place, -1).astype(np.int64), len(known))


def _codes(past: Past, jobs: Jobs, name: str) -> tuple[Int64s, Int64s]:
    """A column of both tables as numbers, equal where the values are."""
    if name == "gpus":
        return past.gpus.astype(np.int64), jobs.gpus.astype(np.int64)
    if name == "model":
        return _text_codes(past.model, jobs.comment, of_job=lambda comment: parse_hints(comment).model or "")
    if name == "alike":
        return _text_codes(past.name, jobs.name, normalized_name, normalized_name)
    return _text_codes(getattr(past, name), getattr(jobs, name))


def _text_codes(
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
    """Each job by the first level at which at least that many past jobs are alike; else what `otherwise` says."""
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


# Decayed means by group.

BLOCK = 256  # halvings after which weights begin anew at 1: no weight overflows, however long the past is
KEPT = 4  # pasts known at a time: of several replays that take turns
_TEXTS = ("account", "user", "name", "model")
_NUMBERS = ("end_s", "executed_s", "gpus")


@dataclass(slots=True)
class _Level:
    """Of each group at one level: weighted sum of executed times [s] and of weights, both over 2 ** (BLOCK * block),
    and how many jobs.

    place: group -> its place in the columns.
    """

    columns: tuple[str, ...]
    place: dict[tuple[Any, ...], int] = field(default_factory=dict)
    total: Floats = field(default_factory=lambda: np.zeros(0))
    weight: Floats = field(default_factory=lambda: np.zeros(0))
    block: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    count: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))

    def groups(self, columns_of: Mapping[str, _Column]) -> Int64s:
        """Place of the group of each of the rows that `columns_of` is about; new groups get one. (R,)."""
        rows = len(columns_of["gpus"].codes)
        code = np.zeros(rows, np.int64)
        for name in self.columns:
            _, code = np.unique(
                code * (int(columns_of[name].codes.max()) + 1) + columns_of[name].codes, return_inverse=True
            )
        _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
        keys = [tuple(columns_of[name][row] for name in self.columns) for row in first.tolist()]
        places = np.array([self.place.setdefault(key, len(self.place)) for key in keys], np.int64)
        if (more := len(self.place) - len(self.count)) > 0:
            for name in ("total", "weight", "block", "count"):
                column = getattr(self, name)
                setattr(self, name, np.append(column, np.zeros(max(more, len(column)), column.dtype)))
        return places[inverse.reshape(-1)]

    def add(self, group: Int64s, executed_s: Floats, weight: Floats, block: int) -> None:
        """More jobs, of these weights in one block. Moving a group between blocks is exact: a power of two."""
        behind = np.unique(group[self.block[group] < block])
        for name in ("total", "weight"):
            column = getattr(self, name)
            column[behind] = np.ldexp(column[behind], BLOCK * (self.block[behind] - block))
        self.block[behind] = block
        weight = np.ldexp(weight, BLOCK * (block - self.block[group]))
        np.add.at(self.total, group, weight * executed_s)
        np.add.at(self.weight, group, weight)
        np.add.at(self.count, group, 1)


@dataclass(frozen=True, slots=True)
class _Column:
    """Values by row: names[codes[i]], equal where the codes are."""

    codes: Int64s
    names: Sequence[Any]

    def __getitem__(self, row: int) -> Any:
        return self.names[self.codes[row]]


@dataclass(slots=True)
class _Known:
    """What a past says of each group, by level. The same past gives the same numbers, however it grew: jobs are added
    one by one, in its order, with weights that do not depend on what comes later."""

    levels: tuple[Level, ...]
    half_life_s: float
    past: Past = NO_PAST
    groups: list[_Level] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.groups = [_Level(columns) for _, columns in self.levels]

    def covers(self, past: Past) -> bool:
        """Whether this past begins with all that is known."""
        known, size = self.past, len(self.past)
        if known is past:
            return True
        texts = ((getattr(known, name), getattr(past, name)) for name in _TEXTS)
        return (
            size <= len(past)
            and all(np.array_equal(getattr(known, name), getattr(past, name)[:size]) for name in _NUMBERS)
            and all(_begins(one, other, size) for one, other in texts)
        )

    def grow(self, past: Past) -> None:
        """Learn what the past has beyond what is known."""
        size = len(self.past)
        if len(past) > size:
            halvings = np.nan_to_num((past.end_s[size:] - past.end_s[0]) / self.half_life_s)
            blocks = np.floor(halvings / BLOCK).astype(np.int64)
            weights, columns_of = np.exp2(halvings - BLOCK * blocks), _group_columns(past, size)
            cuts = [0, *(np.flatnonzero(np.diff(blocks)) + 1).tolist(), len(blocks)]
            for level in self.groups:
                group = level.groups(columns_of)
                for one, other in pairwise(cuts):
                    part = slice(one, other)
                    level.add(group[part], past.executed_s[size:][part], weights[part], int(blocks[one]))
        self.past = past

    def mean(self, key: tuple[Any, ...], least_samples: int) -> tuple[float, int]:
        """Of the first level at which so many jobs are alike, and its number; NaN and the number of levels if none."""
        columns_of = dict(zip(("account", "user", "name", "model", "gpus"), key, strict=True))
        columns_of["alike"] = normalized_name(columns_of["name"])
        for number, level in enumerate(self.groups):
            place = level.place.get(tuple(columns_of[name] for name in level.columns))
            if place is not None and level.count[place] >= least_samples:
                return float(level.total[place] / level.weight[place]), number
        return float("nan"), len(self.levels)


_KNOWN: list[_Known] = []  # the last used first; a store of what would come out the same without it
_LOCK = Lock()


def by_rolling_levels(
    snapshot: Snapshot, levels: tuple[Level, ...], half_life_s: float, least_samples: int, otherwise: Estimator
) -> Estimates:
    """Each job by the mean executed time at the first level where at least that many past jobs are alike; else as
    `otherwise` says. A job that ended half_life_s [s] before another weighs half of it."""
    last = otherwise.estimate(snapshot)
    names = (*(name for name, _ in levels), *last.sources)
    last_source = (np.asarray(last.source) + len(levels)).astype(np.int8)
    if not len(snapshot.past):
        return Estimates(last.total_s, last_source, names)
    with _LOCK:
        mean_s, level = _means(_known_jobs(snapshot.past, levels, half_life_s), snapshot.jobs, least_samples)
    unknown = level == len(levels)
    total_s = np.where(unknown, last.total_s, mean_s)
    return Estimates(total_s, np.where(unknown, last_source, level).astype(np.int8), names)


def _known_jobs(past: Past, levels: tuple[Level, ...], half_life_s: float) -> _Known:
    """What is known of this past, grown to it."""
    mine = [each for each in _KNOWN if each.levels == levels and each.half_life_s == half_life_s and each.covers(past)]
    known = max(mine, key=lambda each: len(each.past), default=None)
    if known is None:
        known = _Known(levels, half_life_s)
    known.grow(past)
    _KNOWN[:] = [known, *(each for each in _KNOWN if each is not known)][:KEPT]
    return known


def _means(known: _Known, jobs: Jobs, least_samples: int) -> tuple[Floats, Int64s]:
    """Mean [s] and number of the level of each job. (N,), (N,)."""
    texts = (jobs.account, jobs.user, jobs.name, jobs.comment)
    codes = np.column_stack([*(text.codes for text in texts), jobs.gpus]) if len(jobs) else np.zeros((0, 5), np.int32)
    _, first, place = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    found = [known.mean(_key(jobs, row), least_samples) for row in first.tolist()]
    mean_s, level = (np.array(each) for each in zip(*found, strict=True)) if found else (np.zeros(0), np.zeros(0, int))
    place = place.reshape(-1)
    return mean_s[place], level[place]


def _key(jobs: Jobs, row: int) -> tuple[Any, ...]:
    model = parse_hints(jobs.comment[row]).model or ""
    return jobs.account[row], jobs.user[row], jobs.name[row], model, int(jobs.gpus[row])


def _group_columns(past: Past, size: int) -> dict[str, _Column]:
    """The columns of the rows from `size` on by which jobs are alike."""
    texts = {name: getattr(past, name) for name in _TEXTS}
    columns_of = {name: _Column(text.codes[size:].astype(np.int64), text.names) for name, text in texts.items()}
    gpus, codes = np.unique(past.gpus[size:], return_inverse=True)
    columns_of["gpus"] = _Column(codes.reshape(-1).astype(np.int64), gpus.tolist())
    used, codes = np.unique(columns_of["name"].codes, return_inverse=True)
    number: dict[str, int] = {}
    each = [number.setdefault(normalized_name(past.name.names[code]), len(number)) for code in used.tolist()]
    columns_of["alike"] = _Column(np.array(each, np.int64)[codes.reshape(-1)], list(number))
    return columns_of


def _begins(one: Labels, other: Labels, size: int) -> bool:
    """Whether the first rows of a column are those of another."""
    if one.names is other.names or one.names == other.names:
        return np.array_equal(one.codes, other.codes[:size])
    return list(one) == [other.names[code] for code in other.codes[:size]]


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

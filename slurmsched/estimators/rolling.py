"""Decayed means over jobs that ended, by group, kept while the past grows: a look costs what ended since the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np

from slurmsched.estimators.groups import Level, alike
from slurmsched.model import Estimates, Jobs, Labels, Past, Snapshot
from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.hints import parse_hints
from slurmsched.model.past import NO_PAST
from slurmsched.protocols import Estimator

BLOCK = 256  # halvings after which weights begin anew at 1: no weight overflows, however long the past is
KEPT = 4  # pasts known at a time: of several replays that take turns
_TEXTS = ("account", "user", "name", "model")
_NUMBERS = ("end_s", "executed_s", "gpus")


@dataclass(slots=True)
class _Level:
    """Of each group at one level: weighted sum of executed times [s] and of weights, both over
    2 ** (BLOCK * block), and how many jobs. place: group -> its place in the columns."""

    columns: tuple[str, ...]
    place: dict[tuple[Any, ...], int] = field(default_factory=dict)
    total: Floats = field(default_factory=lambda: np.zeros(0))
    weight: Floats = field(default_factory=lambda: np.zeros(0))
    block: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    count: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))

    def groups(self, told: Mapping[str, _Column]) -> Int64s:
        """Place of the group of each of the rows that `told` is about; new groups get one. (R,)."""
        rows = len(told["gpus"].codes)
        code = np.zeros(rows, np.int64)
        for name in self.columns:
            _, code = np.unique(code * (int(told[name].codes.max()) + 1) + told[name].codes, return_inverse=True)
        _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
        keys = [tuple(told[name][row] for name in self.columns) for row in first.tolist()]
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
            weights, told = np.exp2(halvings - BLOCK * blocks), _told(past, size)
            cuts = [0, *(np.flatnonzero(np.diff(blocks)) + 1).tolist(), len(blocks)]
            for level in self.groups:
                group = level.groups(told)
                for one, other in pairwise(cuts):
                    part = slice(one, other)
                    level.add(group[part], past.executed_s[size:][part], weights[part], int(blocks[one]))
        self.past = past

    def mean(self, key: tuple[Any, ...], least_samples: int) -> tuple[float, int]:
        """Of the first level at which so many jobs are alike, and its number; NaN and the number of levels if none."""
        told = dict(zip(("account", "user", "name", "model", "gpus"), key, strict=True))
        told["alike"] = alike(told["name"])
        for number, level in enumerate(self.groups):
            place = level.place.get(tuple(told[name] for name in level.columns))
            if place is not None and level.count[place] >= least_samples:
                return float(level.total[place] / level.weight[place]), number
        return float("nan"), len(self.levels)


_KNOWN: list[_Known] = []  # the last used first; a store of what would come out the same without it
_LOCK = Lock()


def by_rolling_levels(
    snapshot: Snapshot, levels: tuple[Level, ...], half_life_s: float, least_samples: int, otherwise: Estimator
) -> Estimates:
    """Each job by the mean executed time at the first level where at least so many past jobs are alike; else as
    `otherwise` says. A job that ended half_life_s [s] before another weighs half of it."""
    last = otherwise.estimate(snapshot)
    names = (*(name for name, _ in levels), *last.sources)
    last_source = (np.asarray(last.source) + len(levels)).astype(np.int8)
    if not len(snapshot.past):
        return Estimates(last.total_s, last_source, names)
    with _LOCK:
        mean_s, level = _means(_known(snapshot.past, levels, half_life_s), snapshot.jobs, least_samples)
    unknown = level == len(levels)
    total_s = np.where(unknown, last.total_s, mean_s)
    return Estimates(total_s, np.where(unknown, last_source, level).astype(np.int8), names)


def _known(past: Past, levels: tuple[Level, ...], half_life_s: float) -> _Known:
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


def _told(past: Past, size: int) -> dict[str, _Column]:
    """The columns of the rows from `size` on by which jobs are alike."""
    texts = {name: getattr(past, name) for name in _TEXTS}
    told = {name: _Column(text.codes[size:].astype(np.int64), text.names) for name, text in texts.items()}
    gpus, codes = np.unique(past.gpus[size:], return_inverse=True)
    told["gpus"] = _Column(codes.reshape(-1).astype(np.int64), gpus.tolist())
    used, codes = np.unique(told["name"].codes, return_inverse=True)
    number: dict[str, int] = {}
    each = [number.setdefault(alike(past.name.names[code]), len(number)) for code in used.tolist()]
    told["alike"] = _Column(np.array(each, np.int64)[codes.reshape(-1)], list(number))
    return told


def _begins(one: Labels, other: Labels, size: int) -> bool:
    """Whether the first rows of a column are those of another."""
    if one.names is other.names or one.names == other.names:
        return np.array_equal(one.codes, other.codes[:size])
    return list(one) == [other.names[code] for code in other.codes[:size]]

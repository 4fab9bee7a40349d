"""Interference: what jobs keep of their speed when two to four of them are on the same GPUs.

One question, four answers, the best first: the pair as the site's own daemon measured it, the stages of their
iterations, published speeds of the pair, a fit to all known pairs.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from pathlib import Path
from statistics import median_low
from typing import Any, NamedTuple

import numpy as np

from slurmsched.errors import InputError
from slurmsched.estimators.throughput_table import (
    SHIPPED,
    kept_table,
    kinds,
    model_and_batch,
    pair_throughput,
    throughput,
    throughput_table,
)

MOST_JOBS = 4  # on one GPU
MURI = "muri"  # the shipped table of stages
STAGE_COLUMNS = ("model", "gpus", "iteration_ms", "input_ms", "gpu_ms", "network_ms")
_TABLES = Path(__file__).parent / "tables"
ALONE = 1.015  # a job alone over its profile; of that many jobs together, over their stages (Muri's released simulator)
TOGETHER = {1: 1.0, 2: 1.33 / ALONE, 3: 1.5 / ALONE, 4: 1.37 / ALONE}


class StageTimes(NamedTuple):
    """One iteration of a job alone, and its stages [ms]. input: storage and CPU, which Muri profiles as one."""

    iteration: float
    input: float
    gpu: float
    network: float

    @property
    def work(self) -> float:
        """All stages [ms]; more than the iteration where they overlap."""
        return self.input + self.gpu + self.network


class KeptSpeeds(NamedTuple):
    """What jobs of a group keep of their speed.

    kept: share of its speed alone that each job keeps, in the order asked for.
    source: how that is known, one of SOURCES.
    """

    kept: tuple[float, ...]
    source: str


# How the speeds of a group are known, in words.
SOURCES = {
    "alone": "alone",
    "profiles": "measured here",
    "stages": "by published stages",
    "measured": "by published pairs",
    "estimated": "estimated from other pairs",
}


@lru_cache(maxsize=8)
def stage_table(name: str) -> Mapping[tuple[str, int], StageTimes]:
    """Model and GPUs -> its stages, from a CSV of STAGE_COLUMNS or the shipped "muri". Raises InputError."""
    path = _TABLES / "muri.csv" if name == MURI else Path(name)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            if not set(STAGE_COLUMNS) <= set(rows.fieldnames or ()):
                raise ValueError(f"needs the columns {', '.join(STAGE_COLUMNS)}")
            return {(row["model"], int(row["gpus"])): _stages(row) for row in rows}
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read as stages: {error}", source=str(path)) from error


def _stages(row: Mapping[str, str]) -> StageTimes:
    made = StageTimes(*(float(row[name]) for name in STAGE_COLUMNS[2:]))
    if not (0 < made.iteration < math.inf and 0 < made.work < math.inf and min(made) >= 0):
        raise ValueError(f"times of {row['model']} on {row['gpus']} GPUs must be at least 0 ms, and some above it")
    return made


def stages_of(name: str, kind: str, gpus: int) -> StageTimes | None:
    """The stages of a model, with or without batch size, on the nearest number of GPUs; None for an unknown model."""
    table, model = stage_table(name), model_and_batch(kind)[0]
    if (model, gpus) in table:
        return table[model, gpus]
    sizes = [size for known, size in table if known == model]
    return table[model, min(sizes, key=lambda size: (abs(size - gpus), size))] if sizes else None


def gpu_share(name: str, kind: str, gpus: int) -> float:
    """Part of an iteration alone in which a model uses its GPUs; 1 for an unknown model."""
    found = stages_of(name, kind, gpus)
    return 1.0 if found is None else min(found.gpu / found.iteration, 1.0)


# Stages in turn.

STEPS = 4  # of a cycle: storage, CPU, GPU, network
CYCLES = 2
SETTLED = 1e-3  # relative change of a cycle's length


@lru_cache(maxsize=65_536)
def group_period(group: tuple[StageTimes, ...]) -> float:
    """Time in which each of two to four jobs does one iteration when their stages go in turns, in the best order [ms].

    Input takes two of the four steps, GPU and network one each. Two jobs may also take turns in halves: one loads while
    the other computes and sends. Source: Zhao et al. (Muri), SIGCOMM '22, section 4, and its released simulator, which
    looks at no more than two cycles.
    """
    if len(group) == 1:
        return group[0].iteration
    found = min(_cycle(order) for order in permutations(group))
    if len(group) == 2:
        one, other = group
        halves = max(one.input, other.gpu + other.network) + max(other.input, one.gpu + one.network)
        found = min(found, halves)
    return found


def _cycle(order: Sequence[StageTimes]) -> float:
    """Length of a cycle in which job k of the order is k steps behind the first [ms]."""
    jobs, end = len(order), [0.0]
    for step in range(STEPS * CYCLES):
        network, gpu, load = ((step + behind) % STEPS for behind in (1, 2, 3))
        begun = [end[step] + order[network].network] if network < jobs else []
        begun += [end[step] + order[gpu].gpu] if gpu < jobs else []
        begun += [end[step - 1] + order[load].input] if step and load < jobs else []
        end.append(max(begun, default=0.0))
        if step >= STEPS:
            now, before = end[-1] - end[-1 - STEPS], end[-2] - end[-2 - STEPS]
            if math.isclose(now, before, rel_tol=SETTLED) and now > 0:
                return now
    return end[-1] - end[-1 - STEPS]


def group_time(group: tuple[StageTimes, ...]) -> float:
    """As group_period, with what Muri measured that jobs lose beside each other [ms]."""
    return group_period(group) * TOGETHER[len(group)]


def kept_by_stages(group: Sequence[StageTimes]) -> tuple[float, ...]:
    """Share of its speed alone that each keeps; 1 for a job alone."""
    if len(group) == 1:
        return (1.0,)
    time = group_time(tuple(sorted(group)))
    return tuple(each.iteration * ALONE / time for each in group)


# Pairs.

RIDGE = 1.0  # pulls a model with few pairs to the mean
FITS = 50


class PairFit(NamedTuple):
    """Logarithm of what a job keeps beside another: mean + its own part + the other's. Models that are not known: 0."""

    mean: float
    own: Mapping[str, float]
    other: Mapping[str, float]

    def kept(self, kind: str, beside: str) -> float:
        """Share of its speed, at most 1."""
        return min(math.exp(self.mean + self.own.get(kind, 0.0) + self.other.get(beside, 0.0)), 1.0)


def measured_pairs(name: str, type_: str, gpus: int) -> dict[tuple[str, str], float]:
    """What the first of two kinds of jobs keeps beside the second, by table of throughputs; only above 0."""
    return _pairs_of(throughput_table(name).get(type_, {}), gpus)


@lru_cache(maxsize=8)
def own_pairs(name: str, gpus: int) -> Mapping[tuple[str, str], float]:
    """As measured_pairs, of the daemon's own profiles: the lower median over the GPU types; none while there is no such
    file."""
    found: dict[tuple[str, str], list[float]] = {}
    for table in kept_table(name).values():
        for pair, kept in _pairs_of(table, gpus).items():
            found.setdefault(pair, []).append(kept)
    return {pair: median_low(kept) for pair, kept in found.items()}


def _pairs_of(table: Mapping[str, Any], gpus: int) -> dict[tuple[str, str], float]:
    named = dict.fromkeys(other for entries in table.values() for other in entries)  # some were only seen beside others
    names = [kind for kind, size in kinds({"": {**named, **table}}) if size == gpus]
    alone = {kind: throughput(table, kind, gpus) for kind in names}
    found = {}
    for one in names:
        for other in names:
            rate = pair_throughput(table, one, other, gpus)[0] if alone[one] > 0 else 0.0
            if rate > 0:
                found[one, other] = rate / alone[one]
    return found


def fitted_pairs(pairs: Mapping[tuple[str, str], float]) -> PairFit:
    """The fit with the least squares of logarithms, by alternating means. Source: slurmsched."""
    if not pairs:
        return PairFit(math.log(0.5), {}, {})  # as in turns
    names = sorted({kind for pair in pairs for kind in pair})
    place = {kind: number for number, kind in enumerate(names)}
    own, other = (np.array([place[pair[side]] for pair in pairs]) for side in (0, 1))
    logs = np.log(np.array(list(pairs.values())))
    mean, made = float(logs.mean()), np.zeros((2, len(names)))
    for _ in range(FITS):
        for side, (here, there) in enumerate(((own, other), (other, own))):
            rest = np.bincount(here, logs - mean - made[1 - side][there], len(names))
            made[side] = rest / (np.bincount(here, minlength=len(names)) + RIDGE)
    return PairFit(mean, *(dict(zip(names, part.tolist(), strict=True)) for part in made))


@lru_cache(maxsize=32)
def _known_pairs(name: str, type_: str, gpus: int, own: str) -> tuple[Mapping[tuple[str, str], float], PairFit]:
    """Published pairs, and the fit to them and to those of our own profiles; of one GPU where none of that many were
    measured. name, own: "" = none."""
    found = measured_pairs(name, type_, gpus) if name else {}
    of_one = found or (measured_pairs(name, type_, 1) if name else {})
    return found, fitted_pairs({**of_one, **(own_pairs(own, gpus) if own else {})})


@dataclass(frozen=True, slots=True)
class GroupSpeeds:
    """What jobs keep of their speed in a group of at most MOST_JOBS on the same GPUs.

    stages: a table of stages, or "muri"; "" = none.
    pairs: a table of throughputs with pairs, or "gavel"; "" = none.
    type: GPU type of the pairs.
    measured: the file of measured_use.profiles, whose pairs come before all others; "" = none.
    Of three or four jobs without stages, each keeps the product of what it keeps beside each of the others.
    Source: stages by Zhao et al. (Muri), SIGCOMM '22; pairs by Narayanan et al. (Gavel), OSDI '20; fit and product are
    ours.
    """

    stages: str = MURI
    pairs: str = "gavel"
    type: str = "v100"
    measured: str = ""

    def kept(self, group: Sequence[str], gpus: int) -> KeptSpeeds:
        """What each job of these kinds ("ResNet-18 (batch size 64)") keeps on that many GPUs."""
        if len(group) == 1:
            return KeptSpeeds((1.0,), "alone")
        base = self._published(group, gpus)
        own = [self.measured_kept(group, mine, gpus) for mine in range(len(group))]
        kept = tuple(each if here is None else here for here, each in zip(own, base.kept, strict=True))
        return KeptSpeeds(kept, base.source if None in own else "profiles")

    def kept_by(self, group: Sequence[str], mine: int, gpus: int) -> tuple[float, str]:
        """As kept, of one job of the group: its share, and how that one is known."""
        found = self.kept(group, gpus)
        return found.kept[mine], found.source if self.measured_kept(group, mine, gpus) is None else "profiles"

    def measured_kept(self, group: Sequence[str], mine: int, gpus: int) -> float | None:
        """What a job of the group keeps by our own profiles; None where they lack a pair."""
        own = own_pairs(self.measured, gpus) if self.measured else {}
        pairs = [(group[mine], other) for place, other in enumerate(group) if place != mine]
        return math.prod(min(own[pair], 1.0) for pair in pairs) if all(pair in own for pair in pairs) else None

    def _published(self, group: Sequence[str], gpus: int) -> KeptSpeeds:
        known = [stages_of(self.stages, kind, gpus) if self.stages else None for kind in group]
        stages = [each for each in known if each is not None]
        if len(stages) == len(group):
            return KeptSpeeds(kept_by_stages(stages), "stages")
        made = [[self._beside(kind, other, gpus) for place, other in enumerate(group) if place != mine]
                for mine, kind in enumerate(group)]  # fmt: skip
        measured = len(group) == 2 and all(is_measured for row in made for _, is_measured in row)
        return KeptSpeeds(tuple(math.prod(share for share, _ in row) for row in made),
                          "measured" if measured else "estimated")  # fmt: skip

    def knows(self, kind: str, gpus: int) -> bool:
        """Whether one of the tables has this kind of job."""
        if self.stages and stages_of(self.stages, kind, gpus) is not None:
            return True
        return kind in _known_pairs(self.pairs, self.type, gpus, self.measured)[1].own

    def _beside(self, kind: str, other: str, gpus: int) -> tuple[float, bool]:
        """What a job keeps beside another, and whether that was published for just this pair."""
        published, fit = _known_pairs(self.pairs, self.type, gpus, self.measured)
        if (kind, other) in published:
            return min(published[kind, other], 1.0), True
        return fit.kept(kind, other), False


NODE_LOSS = 0.44  # so that a neighbour in Gavel's pairs costs a fifth of the speed, as Amaral et al., SC '17, measured


@lru_cache(maxsize=65_536)
def kept_beside(speeds: GroupSpeeds, kind: str, other: str, node_loss: float) -> float:
    """Share of its speed that a job keeps while another one is on other GPUs of its node.

    node_loss: part of the loss on the same GPU, in logarithms. Source: ours.
    """
    return float(speeds.kept_by((kind, other), 0, 1)[0] ** node_loss)


def check_group_speeds(speeds: GroupSpeeds) -> None:
    """Raises InputError for tables that cannot be read or do not have the type."""
    if speeds.stages:
        stage_table(speeds.stages)
    if speeds.pairs and speeds.type not in throughput_table(speeds.pairs):
        raise InputError(f"has no GPU type {speeds.type!r}; it has {', '.join(sorted(throughput_table(speeds.pairs)))}",
                         source=str(SHIPPED.get(speeds.pairs, speeds.pairs)))  # fmt: skip

"""Speeds of training jobs on other numbers of GPUs, from profiles: step times measured by placement and batch size."""

from __future__ import annotations

import csv
import gzip
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from slurmsched.errors import ConfigError, InputError
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.model import Snapshot
from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.hints import parse_hints

GPUS_PER_NODE = 4  # of the cluster the profiles were taken on
MOST_NODES = 16  # on which they were taken
LOCAL_BATCH_CAP = {"yolov3": 8}  # the authors' own cap, below what was profiled
BATCHES = 50  # batch sizes that are tried, in equal ratios
_TABLES = Path(__file__).parent / "tables"
SHIPPED_PROFILES = {"pollux": _TABLES / "pollux.json.gz"}

StepKey = tuple[str, int, int]  # placement, GPUs of each node as digits, "" of the scaling runs; nodes; GPUs


@dataclass(frozen=True, eq=False)
class TrainingProfile:
    """What was measured of one application.

    steps: rows of local batch, step time [s], time of it in which gradients are exchanged [s], ascending.
    validations: batch size -> rows, one an epoch, of progress, squared gradient norm, gradient variance.
    losses: (E,) loss after each epoch, of the smallest batch; empty if it was not measured.
    Progress is in iterations of the smallest batch. Source: Qiao et al. (Pollux), OSDI '21, sections 3 and 5.3.
    """

    name: str
    steps: Mapping[StepKey, Floats]
    validations: Mapping[int, Floats]
    losses: Floats = field(default_factory=lambda: np.zeros(0))
    _rates: dict[tuple[tuple[int, ...], int], Floats] = field(default_factory=dict, init=False, repr=False)
    _run_times_s: dict[tuple[int, int], float] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def local_range(self) -> tuple[float, float]:
        """Least and most batch of one GPU in one pass."""
        placed = [rows for key, rows in self.steps.items() if key[0]]
        most = LOCAL_BATCH_CAP.get(self.name, max(rows[-1, 0] for rows in placed))
        return min(rows[0, 0] for rows in placed), most

    @cached_property
    def batch_range(self) -> tuple[int, int]:
        """Least and most batch size with known gradients."""
        return min(self.validations), max(self.validations)

    @cached_property
    def epoch_ends(self) -> Floats:
        """Share of the work that is done at the end of each epoch. (E,)."""
        return np.asarray(self._progress / self._progress[-1])

    @cached_property
    def _progress(self) -> Floats:
        return np.asarray(np.min([rows[:, 0] for rows in self.validations.values()], axis=0))

    def epoch(self, done: float) -> int:
        """Number of the epoch, from 0, in which a job is that has done this share of its work."""
        at = int(np.searchsorted(self.epoch_ends, done + 1e-9, side="right"))
        return min(at, len(self.epoch_ends) - 1)

    def loss_steps(self, done: float) -> tuple[float, float, float]:
        """Loss after the first epoch, the last but one and the last that a job has ended which has done this share of
        its work. NaN before the first one ends, and if no losses were measured."""
        ended = min(int(np.searchsorted(self.epoch_ends, done + 1e-9, side="right")), len(self.losses))
        if not ended:
            return (math.nan,) * 3
        return tuple(self.losses[[0, max(ended - 2, 0), ended - 1]].tolist())

    def run_time_s(self, gpus: int, batch: int) -> float:
        """Seconds alone to the last epoch: progress over goodput, each epoch in whole seconds as the authors count.

        Goodput is the gain of the batch over the smallest profiled one, over the time of a step with its gradient
        accumulation. Raises ValueError for a batch or a number of GPUs that was not profiled.
        """
        key = (gpus, batch)
        if key not in self._run_times_s:
            self._run_times_s[key] = self._run_time_s(gpus, batch)
        return self._run_times_s[key]

    def _run_time_s(self, gpus: int, batch: int) -> float:
        local, accumulated = self._split(gpus, batch)
        step_s, sync_s = self._step_s(gpus, local)
        squared, variance = self._gradients(gpus * local * (accumulated + 1))
        scale = gpus * local * (accumulated + 1) / min(self.validations)
        gain = (variance + squared) / (variance / scale + squared)
        seconds = np.diff(self._progress, prepend=0.0) / gain * (step_s + accumulated * (step_s - sync_s))
        return float(np.round(seconds).sum())

    def rates(self, placement: tuple[int, ...], batch: int = 0) -> Floats:
        """Share of its work that a job does in a second, in each epoch; 0 where it cannot run so. (E,).

        placement: GPUs of each node. batch: 0 = in each epoch the batch size with the most goodput.
        """
        key = (placement, batch)
        if key not in self._rates:
            self._rates[key] = self._goodputs(_rotated(placement), batch) / self._progress[-1]
        return self._rates[key]

    def _goodputs(self, placement: tuple[int, ...], batch: int) -> Floats:
        """Most progress a second by epoch. (E,)."""
        gpus = sum(placement)
        local, passes = self._splits(gpus, batch)
        step_s, sync_s = self._steps_s(placement, local)
        whole = gpus * local * passes
        squared, variance = self._gradients_of(whole)
        gain = (variance + squared) / (variance / (whole / self.batch_range[0])[:, None] + squared)
        goodput = gain / (step_s + (passes - 1) * (step_s - sync_s))[:, None]
        return np.asarray(goodput.max(axis=0, initial=0.0))

    def _splits(self, gpus: int, batch: int) -> tuple[Floats, Floats]:
        """Batch of one GPU in one pass, and passes, for each batch size that comes into question. (B,), (B,)."""
        (least, most), (low, high) = self.local_range, self.batch_range
        begin = max(low, least * gpus)
        if begin > high:
            return np.zeros(0), np.zeros(0)
        each = np.geomspace(begin, high, BATCHES) / gpus if not batch else np.array([batch / gpus])
        passes = np.ceil(each / most - 1e-8)
        if gpus == 1:
            passes = np.where(each > low + 1e-8, np.maximum(passes, 2), passes)
        local = np.minimum(np.ceil(each / passes - 1e-8), np.floor(high / (gpus * passes)))
        fits = (local >= least) & (local <= most) & (gpus * local * passes >= low)
        return local[fits], passes[fits]

    def _steps_s(self, placement: tuple[int, ...], local: Floats) -> tuple[Floats, Floats]:
        """Step and exchange time [s] of each local batch. (B,), (B,)."""
        nodes, gpus = len(placement), sum(placement)
        rows = self.steps.get(("".join(map(str, placement)), nodes, gpus))
        found = self._near(min(nodes, MOST_NODES), gpus, local) if rows is None else _along(rows, local)
        return found[:, 0], found[:, 1]

    def _near(self, nodes: int, gpus: int, local: Floats) -> Floats:
        """Between the measured numbers of nodes next to this one, at as many GPUs a node. (B, 2)."""
        known = sorted(self._by_nodes)
        above = min((each for each in known if each >= nodes), default=known[-1])
        below = max((each for each in known if each <= nodes), default=above)
        high = self._at_gpus(above, gpus * above / nodes, local)
        if above == below:
            return high
        part = (nodes - below) / (above - below)
        return np.asarray((1 - part) * self._at_gpus(below, gpus * below / nodes, local) + part * high)

    def _at_gpus(self, nodes: int, gpus: float, local: Floats) -> Floats:
        """On that many nodes, between the measured numbers of GPUs next to this one. (B, 2)."""
        tables = self._by_nodes[nodes]
        above = min((each for each in tables if each >= gpus), default=max(tables))
        below = max((each for each in tables if each <= gpus), default=above)
        high = _along(tables[above], local)
        if above == below:
            return high
        part = (gpus - below) / (above - below)
        return np.asarray((1 - part) * _along(tables[below], local) + part * high)

    @cached_property
    def _by_nodes(self) -> dict[int, dict[int, Floats]]:
        """Nodes -> GPUs -> rows as of `steps`, the mean over the placements that were measured."""
        found: dict[int, dict[int, dict[float, list[Floats]]]] = {}
        for (_, nodes, gpus), rows in self.steps.items():
            table = found.setdefault(nodes, {}).setdefault(gpus, {})
            for row in rows:
                table.setdefault(float(row[0]), []).append(row)
        return {nodes: {gpus: np.array([np.mean(rows, axis=0) for _, rows in sorted(table.items())])
                        for gpus, table in tables.items()} for nodes, tables in found.items()}  # fmt: skip

    def _split(self, gpus: int, batch: int) -> tuple[int, int]:
        """Batch of one GPU in one pass, and passes whose gradients are accumulated before the last."""
        cap = self.local_range[1]
        each = math.ceil(batch / gpus)
        accumulated = math.ceil(each / cap) - 1
        if gpus == 1 and batch > min(self.validations):
            accumulated = max(1, accumulated)
        local = math.ceil(each / (accumulated + 1))
        return min(local, max(self.validations) // (gpus * (accumulated + 1))), accumulated

    def _step_s(self, gpus: int, local: int) -> tuple[float, float]:
        placement = "".join(map(str, packed_gpus(gpus)))
        rows = self.steps.get((placement, len(placement), gpus))
        rows = self.steps.get(("", len(placement), gpus)) if rows is None else rows
        if rows is None or not rows[0, 0] <= local <= rows[-1, 0]:
            raise ValueError(f"{self.name} was not profiled on {gpus} GPUs with a local batch of {local}")
        return float(np.interp(local, rows[:, 0], rows[:, 1])), float(np.interp(local, rows[:, 0], rows[:, 2]))

    def _gradients(self, batch: int) -> tuple[Floats, Floats]:
        """Squared norm and variance by epoch, interpolated between profiled batch sizes. Both (E,)."""
        if not self.batch_range[0] <= batch <= self.batch_range[1]:
            raise ValueError(f"{self.name} was not profiled with a batch of {batch}")
        squared, variance = self._gradients_of(np.array([batch], np.float64))
        return squared[0], variance[0]

    def _gradients_of(self, batch: Floats) -> tuple[Floats, Floats]:
        """The same of several batch sizes in their range. Both (B, E)."""
        known = np.array(list(self.validations), np.float64)
        rows = np.array(list(self.validations.values()))
        above = np.searchsorted(known, batch)
        below = np.where(known[above] == batch, above, above - 1)
        part = ((batch - known[below]) / np.maximum(known[above] - known[below], 1))[:, None, None]
        made = (1 - part) * rows[below] + part * rows[above]
        return made[:, :, 1], made[:, :, 2]


def packed_gpus(gpus: int, per_node: int = GPUS_PER_NODE) -> tuple[int, ...]:
    """GPUs of each node of a job on the fewest nodes, the least first."""
    full, rest = divmod(gpus, per_node)
    return (rest,) * (rest > 0) + (per_node,) * full


def _along(rows: Floats, local: Floats) -> Floats:
    """Step and exchange time of each local batch, along a straight line beyond the largest measured. rows: see `steps`.
    (B, 2)."""
    made = np.column_stack([np.interp(local, rows[:, 0], rows[:, column]) for column in (1, 2)])
    if len(rows) > 1:
        slope = (rows[-1, 1:] - rows[-2, 1:]) / (rows[-1, 0] - rows[-2, 0])
        made += np.maximum(local - rows[-1, 0], 0.0)[:, None] * np.maximum(slope, 0.0)
    return np.asarray(made)


def _rotated(placement: tuple[int, ...]) -> tuple[int, ...]:
    """The least of its rotations: a ring has no first node."""
    return min(placement[at:] + placement[:at] for at in range(len(placement)))


# Files of profiles.


@lru_cache(maxsize=8)
def training_profiles(name: str) -> Mapping[str, TrainingProfile]:
    """Application -> its profile: of a folder with one folder each, or of a name of SHIPPED_PROFILES.

    Raises InputError for what cannot be read.
    """
    if name in SHIPPED_PROFILES:
        with gzip.open(SHIPPED_PROFILES[name], "rt", encoding="utf-8") as file:
            return {application: _of_json(application, made) for application, made in json.load(file).items()}
    folders = sorted(each for each in Path(name).glob("*") if each.is_dir())
    if not folders:
        raise InputError("has no profiles: needs one folder an application", source=name)
    return {folder.name: read_profile(folder) for folder in folders}


def read_profile(folder: Path) -> TrainingProfile:
    """The profile of a folder: placements.csv, scalability.csv, validation-B.csv. Raises InputError."""
    return TrainingProfile(folder.name, _read_steps(folder), _read_validations(folder), _read_losses(folder))


def _of_json(application: str, made: Any) -> TrainingProfile:
    steps = {(text, int(nodes), int(gpus)): np.array(rows) for text, nodes, gpus, rows in made["steps"]}
    validations = {int(key): np.array(rows) for key, rows in made["validations"].items()}
    return TrainingProfile(application, steps, validations, np.array(made["losses"]))


def _read_steps(folder: Path) -> dict[StepKey, Floats]:
    found: dict[StepKey, list[list[float]]] = {}
    for row in _rows(folder / "placements.csv"):
        placement = row["placement"]
        key = (placement, len(placement), sum(map(int, placement)))
        found.setdefault(key, []).append(_step(row))
    for row in _rows(folder / "scalability.csv"):
        found.setdefault(("", int(row["num_nodes"]), int(row["num_replicas"])), []).append(_step(row))
    return {key: np.array(sorted(rows)) for key, rows in found.items()}


def _read_validations(folder: Path) -> dict[int, Floats]:
    found = {}
    for path in folder.glob("validation-*.csv"):
        names = ("progress", "grad_sqr", "grad_var")
        rows = [[float(row[name]) for name in names] for row in _rows(path)]
        found[int(path.stem.partition("-")[2])] = np.array(rows)
    epochs = min((len(rows) for rows in found.values()), default=0)
    if not epochs:
        raise InputError("has no validation-B.csv", source=str(folder))
    return {batch: found[batch][:epochs] for batch in sorted(found)}


def _read_losses(folder: Path) -> Floats:
    """Of the smallest batch. A metric that rises is an accuracy of 1 or of 100 %, and the loss is what it lacks."""
    first = min(folder.glob("validation-*.csv"), key=lambda path: int(path.stem.partition("-")[2]))
    metric = np.array([float(row.get("metric") or "nan") for row in _rows(first)])
    if not np.isfinite(metric).all():
        return np.zeros(0)
    whole = 100.0 if metric.max() > 1 else 1.0
    rises = metric[-1] > metric[0]
    return np.asarray((whole - metric if rises else metric) / whole)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open(newline="") as file:
            yield from csv.DictReader(file)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from error


def _step(row: dict[str, Any]) -> list[float]:
    return [float(row["local_bsz"]), float(row["step_time"]), float(row["sync_time"])]


# The estimators.


@dataclass(frozen=True, slots=True)
class ProfiledGoodput:
    """Goodput of a job in its present epoch by its hints `model`, `batch` and `progress`, on the fewest nodes.

    profiles: a folder with one folder for each model, or "pollux": the six models of that paper on T4, shipped.
    adapt: a job takes the batch size with the most goodput; else it keeps its own.
    per_node: GPUs of each node.
    Raises ConfigError for a node without GPUs, InputError for profiles that cannot be read.
    Source: Qiao et al. (Pollux), OSDI '21, section 3.
    """

    profiles: str = "pollux"
    adapt: bool = False
    per_node: int = GPUS_PER_NODE

    def __post_init__(self) -> None:
        if not isinstance(self.per_node, int) or self.per_node < 1:
            raise ConfigError(f"must be a number of GPUs of at least 1, got {self.per_node!r}",
                              key="policy.speeds.per_node")  # fmt: skip
        training_profiles(self.profiles)

    def speeds(self, snapshot: Snapshot, types: Sequence[str]) -> Floats:
        """See protocols.SpeedEstimator: profiles are of one type. (N, T)."""
        return EqualSpeeds().speeds(snapshot, types)

    def curve(self, snapshot: Snapshot, row: int, gpus: Int64s) -> Floats | None:
        """See protocols.CurveEstimator: over the mean speed at the size and batch size that the job asks for. (K,)."""
        hints = parse_hints(snapshot.jobs.comment[row])
        known, asked = training_profiles(self.profiles), int(snapshot.jobs.gpus[row])
        if hints.model is None or hints.model not in known or not hints.batch or asked < 1:
            return None
        table, mean = _by_size(self.profiles, hints.model, hints.batch, asked, self.adapt, self.per_node,
                               known[hints.model].epoch(hints.progress or 0.0))  # fmt: skip
        return table[np.minimum(gpus, len(table) - 1)] / mean if mean > 0 else None


@dataclass(frozen=True, slots=True)
class AdaptedGoodput(ProfiledGoodput):
    """As ProfiledGoodput, each job at the batch size with the most goodput, which follows its gradient noise."""

    adapt: bool = True


MOST_GPUS = 64  # of one job; profiles have no more


@lru_cache(maxsize=65_536)
def _by_size(
    profiles: str, model: str, batch: int, asked: int, adapt: bool, per_node: int, epoch: int
) -> tuple[Floats, float]:
    """Goodput of the epoch by number of GPUs from 0 on, and the mean goodput as asked for. (G + 1,)."""
    profile = training_profiles(profiles)[model]
    by_size = [
        profile.rates(packed_gpus(gpus, per_node), 0 if adapt else batch)[epoch] for gpus in range(1, MOST_GPUS + 1)
    ]
    rates = profile.rates(packed_gpus(asked, per_node), batch)
    mean = 1.0 / float((np.diff(profile.epoch_ends, prepend=0.0) / rates).sum()) if rates.all() else 0.0
    return np.array([0.0, *by_size]), mean

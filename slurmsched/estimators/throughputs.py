"""Speeds by GPU type: all equal, or from a table by model, batch size, number of GPUs and GPU type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.estimators.throughput_table import (
    ALONE,
    APART,
    BATCH_OF_EACH_GPU,
    complete_rates,
    kept_table,
    kind_of_job,
    kinds,
    non_decreasing_rates,
    pair_throughput,
    throughput,
    throughput_table,
)
from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s


@dataclass(frozen=True, slots=True)
class EqualSpeeds:
    """Speed 1 on every GPU type, for sites without a table. Source: slurmsched."""

    def speeds(self, snapshot: Snapshot, types: Sequence[str]) -> Floats:
        """See protocols.SpeedEstimator."""
        return np.ones((len(snapshot.jobs), len(types)))


# Speeds from a table.

Rates = Mapping[tuple[str, int], Floats]
UNITS = ("reference", "steps")


@dataclass(frozen=True, slots=True)
class Throughputs:
    """Steps per second of a job on a GPU type over those on the reference type, by its hints `model` and `batch`.

    Missing entries are completed (see throughput_table.complete_rates) and do not fall with the number of GPUs. An
    entry of 0 means that the job cannot run there. A job of another size has the speed of the nearest size, a job of no
    known model the geometric mean of all models. A type that the table lacks has the mean speed of the others. Elastic
    jobs have a curve if the table has their model on two sizes or more. The shipped tables "gavel" and "shockwave" have
    no curves, because their steps are of a batch that grows with the GPUs.
    table: Gavel's or Shockwave's JSON, or a CSV of model, batch, gpus, gpu_type, steps_per_s; gzip or not; or one that
        is shipped: "gavel", "shockwave", "elasticflow". The file of measured_use.profiles is such a CSV. A job without
        the hint `model` is found there by its user and name.
    reference: GPU type of expected run times.
    unit: "reference", or "steps" for the bare steps per second of the table.
    any_batch: curves from those tables too. A sample then counts the same in a large batch as in a small one.
    may_lack: whether the table may be missing, unreadable or without the reference: then every type counts alike, no
        job has a curve, and `notes` says so. The configuration sets it for the file of measured_use.profiles.
    Raises ConfigError without a table or for a reference that is not in it, InputError for a file that cannot be read.
    Source: Narayanan et al. (Gavel), OSDI '20. What is done without an entry is ours.
    """

    table: str = ""
    reference: str = "v100"
    unit: str = "reference"
    any_batch: bool = False
    may_lack: bool = False

    def __post_init__(self) -> None:
        if not self.table:
            raise ConfigError('needs a table: speeds = { name = "throughputs", table = "FILE" }',
                              key="policy.speeds.table")  # fmt: skip
        if not self.may_lack and self.reference not in throughput_table(self.table):
            known = ", ".join(sorted(throughput_table(self.table)))
            raise ConfigError(f"{self.table} has no type {self.reference!r}; it has {known}",
                              key="policy.speeds.reference")  # fmt: skip
        if self.unit not in UNITS:
            raise ConfigError(f"must be one of {', '.join(UNITS)}, got {self.unit!r}", key="policy.speeds.unit")
        if not isinstance(self.any_batch, bool):
            raise ConfigError(f"must be true or false, got {self.any_batch!r}", key="policy.speeds.any_batch")

    @property
    def notes(self) -> tuple[str, ...]:
        """What is missing, as text."""
        if not self._lacking():
            return ()
        return (f"policy.speeds: {self.table} has no rows of GPU type {self.reference!r} yet, or cannot be read; all "
                "types count alike until slurmsched starts again with it",)  # fmt: skip

    def _lacking(self) -> bool:
        """Whether there is no table to go by."""
        return self.may_lack and self.reference not in kept_table(self.table)

    def speeds(self, snapshot: Snapshot, types: Sequence[str]) -> Floats:
        """See protocols.SpeedEstimator. (N, T)."""
        if self._lacking():
            return np.ones((len(snapshot.jobs), len(types)))
        rates, jobs = _rates(self.table, self.reference, tuple(types), self.unit), snapshot.jobs
        anything = _mean(rates)
        codes = jobs.comment.codes.astype(np.int64) * (int(jobs.gpus.max(initial=0)) + 1) + jobs.gpus
        if any(":" in model for model, _ in rates):  # groups of a user and a name
            for column in (jobs.user, jobs.name):
                codes = np.unique(codes, return_inverse=True)[1] * len(column.names) + column.codes
        _, first, place = np.unique(codes, return_index=True, return_inverse=True)
        found = [_speed(rates, kind_of_job(jobs, row), int(jobs.gpus[row]), anything) for row in first.tolist()]
        return np.array(found).reshape(len(first), len(types))[place]

    def shared_speeds(self, snapshot: Snapshot, first: Int64s, second: Int64s, types: Sequence[str]) -> Floats:
        """See protocols.PairEstimator. (P, T, 2)."""
        if self._lacking():
            return np.zeros((len(first), len(types), 2))
        jobs = snapshot.jobs
        kind = [kind_of_job(jobs, row) for row in range(len(jobs))]
        keys = [(kind[a], kind[b], int(jobs.gpus[a])) for a, b in zip(first.tolist(), second.tolist(), strict=True)]
        known = {key: self._kept(key, types) for key in set(keys)}
        return np.array([known[key] for key in keys]).reshape(len(keys), len(types), 2)

    def curve(self, snapshot: Snapshot, row: int, gpus: Int64s) -> Floats | None:
        """See protocols.CurveEstimator: of the reference type, with the batch size that the job tells. (K,)."""
        asked = max(int(snapshot.jobs.gpus[row]), 1)
        made = self._rates(snapshot, row, self.reference, (asked, *gpus.tolist()))
        return None if made is None or made[0] <= 0 else made[1:] / made[0]

    def curve_on(self, snapshot: Snapshot, row: int, type_: str, gpus: Int64s, apart: Bools) -> Floats | None:
        """See protocols.TypedCurveEstimator. (K,)."""
        asked, sizes = (max(int(snapshot.jobs.gpus[row]), 1),), tuple(gpus.tolist())
        base = self._rates(snapshot, row, self.reference, asked)
        name = type_ or self.reference
        near, far = (self._rates(snapshot, row, name + form, sizes) for form in ("", APART))
        if base is None or base[0] <= 0 or near is None:
            return None
        if far is None:
            far = np.zeros(len(gpus)) if name + APART in throughput_table(self.table) else near
        return np.where(apart, far, near) / base[0]

    def _rates(self, snapshot: Snapshot, row: int, type_: str, gpus: tuple[int, ...]) -> Floats | None:
        """Steps per second of a job on that many GPUs, None where nothing is known. (K,)."""
        if self._lacking() or (self.table in BATCH_OF_EACH_GPU and not self.any_batch):
            return None
        if type_ not in throughput_table(self.table):
            return None
        return rates_at_sizes(self.table, type_, kind_of_job(snapshot.jobs, row), gpus)

    def _kept(self, pair: tuple[str, str, int], types: Sequence[str]) -> list[tuple[float, float]]:
        """By type, 0 for both where the table lacks the pair or one of them alone."""
        a, b, gpus = pair
        made = []
        for type_ in types:
            table = throughput_table(self.table).get(type_ or self.reference, {})
            alone = throughput(table, a, gpus), throughput(table, b, gpus)
            beside = pair_throughput(table, a, b, gpus)
            made.append((beside[0] / alone[0], beside[1] / alone[1]) if min(alone) > 0 else (0.0, 0.0))
        return made


@lru_cache(maxsize=4_096)
def rates_at_sizes(name: str, reference: str, kind: str, gpus: tuple[int, ...]) -> Floats | None:
    """Steps per second on that many GPUs: between sizes in the table along straight lines in logarithms, below them in
    proportion, above them no more. None where the table has fewer than two sizes. (K,)."""
    rates = _sizes(name, reference).get(kind, {})
    known = sorted(size for size, rate in rates.items() if rate > 0)
    if len(known) < 2:
        return None
    size, rate = np.array(known, np.float64), np.array([rates[each] for each in known])
    at = np.array(gpus, np.float64)
    made = np.exp2(np.interp(np.log2(at), np.log2(size), np.log2(rate))) * np.minimum(at / size[0], 1.0)
    return np.where([rates.get(each, 1.0) > 0 for each in gpus], made, 0.0)


@lru_cache(maxsize=32)
def _sizes(name: str, type_: str) -> Mapping[str, Mapping[int, float]]:
    """Model -> number of GPUs -> steps per second on this type, as the table has it."""
    found: dict[str, dict[int, float]] = {}
    table = throughput_table(name)[type_]
    for kind, gpus in kinds({type_: table}):
        if ALONE in table[str((kind, gpus))]:
            found.setdefault(kind, {})[gpus] = throughput(table, kind, gpus)
    return found


def _speed(rates: Rates, kind: str, gpus: int, anything: Floats) -> Floats:
    """Speed of such a job on each type. (T,)."""
    if (kind, gpus) in rates:
        return rates[kind, gpus]
    near = min((size for model, size in rates if model == kind), key=lambda size: abs(size - gpus), default=0)
    return rates[kind, near] if near else anything


def _mean(rates: Rates) -> Floats:
    """The geometric mean over all entries that can run, by type. (T,)."""
    every = np.array(list(rates.values()))
    logs = np.log(np.where(every > 0, every, 1.0))
    return np.asarray(np.exp(logs.sum(axis=0) / np.maximum((every > 0).sum(axis=0), 1)))


@lru_cache(maxsize=8)
def _rates(name: str, reference: str, types: tuple[str, ...], unit: str) -> Rates:
    """Model and GPUs -> speed on each of the types, "" being the reference, in this unit. (T,) each."""
    table = throughput_table(name)
    columns = (*(each or reference for each in types), reference)
    known = kinds({type_: table.get(type_, {}) for type_ in columns})
    absent = {type_: table.get(type_, {}) for type_ in columns}
    raw = np.array([
        [throughput(absent[type_], *kind) if ALONE in absent[type_].get(str(kind), {}) else np.nan for type_ in columns]
        for kind in known
    ]).reshape(len(known), len(columns))  # fmt: skip
    some = (raw > 0).any(axis=1)
    known = [known[row] for row in np.flatnonzero(some).tolist()]
    raw = raw[some]
    filled = complete_rates(raw)
    for model in {model for model, _ in known}:
        rows = [row for row, kind in enumerate(known) if kind[0] == model]
        filled[rows] = non_decreasing_rates(filled[rows], np.isnan(raw[rows]))
    base = np.where(filled[:, -1] > 0, filled[:, -1], filled.max(axis=1))
    base = base if unit == "reference" else np.ones(len(base))
    return dict(zip(known, filled[:, :-1] / base[:, None], strict=True))

"""Speed by model, batch size, number of GPUs and GPU type, from a table of throughputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.estimators.completion import completed, rising
from slurmsched.estimators.throughput_table import (
    SHIPPED,
    job_kind,
    kinds,
    pair_throughput,
    throughput,
    throughput_table,
)
from slurmsched.model import Snapshot
from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.hints import parse_hints

Rates = Mapping[tuple[str, int], Floats]
UNITS = ("reference", "steps")


@dataclass(frozen=True, slots=True)
class Throughputs:
    """Steps per second of a job on a type over those on the reference type, by its hints `model` and `batch`.

    table: Gavel's or Shockwave's JSON, or a CSV of model, batch, gpus, gpu_type, steps_per_s; gzip or not; or "gavel",
    which is shipped. reference: the type on which expected run times are. unit: "reference", or "steps" for the bare
    steps per second of the table, by which jobs are compared with each other then. Entries that are missing are
    completed (see estimators.completion) and do not fall with the number of GPUs; an entry of 0 says that the job
    cannot run there. A job of another size takes the speed of the nearest size; one of no known model the geometric
    mean of all models. A type that the table lacks is as fast as the mean of those it has.
    Elastic jobs have a curve where the table has their model on two sizes or more; the tables that are shipped have
    none, since their steps are of a batch that grows with the GPUs.
    Raises ConfigError without a table or for a reference that is not in it, InputError for a file that cannot be read.
    Source: Narayanan et al. (Gavel), OSDI '20; what is done without an entry is ours.
    """

    table: str = ""
    reference: str = "v100"
    unit: str = "reference"

    def __post_init__(self) -> None:
        if not self.table:
            raise ConfigError('needs a table: speeds = { name = "throughputs", table = "FILE" }',
                              key="policy.speeds.table")  # fmt: skip
        if self.reference not in throughput_table(self.table):
            known = ", ".join(sorted(throughput_table(self.table)))
            raise ConfigError(f"{self.table} has no type {self.reference!r}; it has {known}",
                              key="policy.speeds.reference")  # fmt: skip
        if self.unit not in UNITS:
            raise ConfigError(f"must be one of {', '.join(UNITS)}, got {self.unit!r}", key="policy.speeds.unit")

    def speeds(self, snapshot: Snapshot, types: Sequence[str]) -> Floats:
        """See protocols.SpeedEstimator. (N, T)."""
        rates, jobs = _rates(self.table, self.reference, tuple(types), self.unit), snapshot.jobs
        anything = _mean(rates)
        codes = jobs.comment.codes.astype(np.int64) * (int(jobs.gpus.max(initial=0)) + 1) + jobs.gpus
        _, first, place = np.unique(codes, return_index=True, return_inverse=True)
        found = [_speed(rates, _kind(jobs.comment[row]), int(jobs.gpus[row]), anything) for row in first.tolist()]
        return np.array(found).reshape(len(first), len(types))[place]

    def kept(self, snapshot: Snapshot, first: Int64s, second: Int64s, types: Sequence[str]) -> Floats:
        """See protocols.PairEstimator. (P, T, 2)."""
        jobs = snapshot.jobs
        kind = [_kind(text) for text in jobs.comment]
        keys = [(kind[a], kind[b], int(jobs.gpus[a])) for a, b in zip(first.tolist(), second.tolist(), strict=True)]
        known = {key: self._kept(key, types) for key in set(keys)}
        return np.array([known[key] for key in keys]).reshape(len(keys), len(types), 2)

    def curve(self, snapshot: Snapshot, row: int, gpus: Int64s) -> Floats | None:
        """See protocols.CurveEstimator: of the reference type, with the batch size that the job tells. (K,)."""
        if self.table in SHIPPED:
            return None
        asked, kind = max(int(snapshot.jobs.gpus[row]), 1), _kind(snapshot.jobs.comment[row])
        made = _at_sizes(self.table, self.reference, kind, (asked, *gpus.tolist()))
        return None if made is None or made[0] <= 0 else made[1:] / made[0]

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
def _at_sizes(name: str, reference: str, kind: str, gpus: tuple[int, ...]) -> Floats | None:
    """Steps per second on so many GPUs: between sizes in the table along straight lines in logarithms, below them in
    proportion, above them no more. None where the table has fewer than two sizes. (K,)."""
    rates = _sizes(name, reference).get(kind, {})
    known = sorted(size for size, rate in rates.items() if rate > 0)
    if len(known) < 2:
        return None
    size, rate = np.array(known, np.float64), np.array([rates[each] for each in known])
    at = np.array(gpus, np.float64)
    made = np.exp2(np.interp(np.log2(at), np.log2(size), np.log2(rate))) * np.minimum(at / size[0], 1.0)
    return np.where([rates.get(each, 1.0) > 0 for each in gpus], made, 0.0)


@lru_cache(maxsize=8)
def _sizes(name: str, type_: str) -> Mapping[str, Mapping[int, float]]:
    """Model -> number of GPUs -> steps per second on this type, as the table has it."""
    found: dict[str, dict[int, float]] = {}
    table = throughput_table(name)[type_]
    for kind, gpus in kinds({type_: table}):
        found.setdefault(kind, {})[gpus] = throughput(table, kind, gpus)
    return found


def _kind(comment: str) -> str:
    hints = parse_hints(comment)
    return job_kind(hints.model or "", hints.batch)


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
        [throughput(absent[type_], *kind) if str(kind) in absent[type_] else np.nan for type_ in columns]
        for kind in known
    ]).reshape(len(known), len(columns))  # fmt: skip
    some = (raw > 0).any(axis=1)
    known = [known[row] for row in np.flatnonzero(some).tolist()]
    raw = raw[some]
    filled = completed(raw)
    for model in {model for model, _ in known}:
        rows = [row for row, kind in enumerate(known) if kind[0] == model]
        filled[rows] = rising(filled[rows], np.isnan(raw[rows]))
    base = np.where(filled[:, -1] > 0, filled[:, -1], filled.max(axis=1))
    base = base if unit == "reference" else np.ones(len(base))
    return dict(zip(known, filled[:, :-1] / base[:, None], strict=True))

"""Tables of throughputs: Gavel's and Shockwave's JSON, or a CSV. Missing entries are completed."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from statistics import median_low
from typing import Any

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.columns import Bools, Floats
from slurmsched.model.hints import parse_hints
from slurmsched.model.jobs import Jobs

ALONE = "null"
APART = "_unconsolidated"  # behind the type: workers on several nodes
COLUMNS = ("model", "batch", "gpus", "gpu_type", "steps_per_s")
USER = "user"  # column of a table with rows of each user
BESIDE = "beside"  # column of a table with rows of pairs: kind of the other job on the same GPUs, "" = none is there
_TABLES = Path(__file__).parent / "tables"
SHIPPED = {"gavel": _TABLES / "gavel.json.gz", "shockwave": _TABLES / "shockwave.csv.gz",
           "elasticflow": _TABLES / "elasticflow.csv.gz"}  # fmt: skip
BATCH_OF_EACH_GPU = ("gavel", "shockwave")  # tables whose steps are of a batch that grows with the GPUs
_BATCH = re.compile(r"(.*) \(batch size (\d+)\)")
_ODD = re.compile(r"[^\w.+/@-]", re.ASCII)
_KIND = re.compile(r"\('(.*)', (\d+)\)")


@lru_cache(maxsize=8)
def throughput_table(name: str) -> Mapping[str, Mapping[str, Any]]:
    """The table of a file, or of a name of SHIPPED: GPU type -> its entries (see throughput). Raises InputError."""
    return read_throughputs(SHIPPED.get(name, Path(name)))


@lru_cache(maxsize=8)
def kept_table(name: str) -> Mapping[str, Mapping[str, Any]]:
    """As throughput_table, of a file that slurmsched itself keeps: empty as long as it cannot be read. This process
    looks once."""
    try:
        return throughput_table(name)
    except InputError:
        return {}


def read_throughputs(path: Path) -> dict[str, Mapping[str, Any]]:
    """GPU type -> its table (see throughput) of a JSON or CSV file, gzip or not. Raises InputError."""
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
        table: Any = _of_csv(text) if ".csv" in path.suffixes else json.loads(text)
    except (OSError, EOFError, ValueError, KeyError) as error:
        raise InputError(f"cannot be read as throughputs: {error}", source=str(path)) from error
    if not isinstance(table, dict) or not all(isinstance(each, dict) for each in table.values()):
        raise InputError("cannot be read as throughputs: needs worker types with tables", source=str(path))
    return table


def _of_csv(text: str) -> dict[str, dict[str, Any]]:
    """The table; of rows of several users the median counts (of two the lower), of others of one kind the last."""
    rows = csv.DictReader(io.StringIO(text))
    if not set(COLUMNS) <= set(rows.fieldnames or ()):
        raise ValueError(f"needs the columns {', '.join(COLUMNS)}")
    by_user, found = USER in (rows.fieldnames or ()), dict[tuple[str, str, str], list[float]]()
    for row in rows:
        if not row["steps_per_s"]:
            continue  # not measured
        gpus, rate = int(row["gpus"]), float(row["steps_per_s"])
        if gpus < 1:
            raise ValueError(f"line {rows.line_num}: gpus must be at least 1, got {gpus}")
        if not 0 <= rate < math.inf:
            raise ValueError(f"line {rows.line_num}: steps_per_s must be a number of at least 0, got {rate}")
        kind, other = str((job_kind(row["model"], int(row["batch"] or 0)), gpus)), row.get(BESIDE) or ""
        rates = found.setdefault((row["gpu_type"], kind, str((other, gpus)) if other else ALONE), [])
        if not by_user:
            rates.clear()
        rates.append(rate)
    table: dict[str, dict[str, Any]] = {}
    medians = {key: median_low(rates) for key, rates in found.items()}
    for type_, kind, other in found:
        both = medians[type_, kind, other], medians.get((type_, other, kind), 0.0)
        table.setdefault(type_, {}).setdefault(kind, {})[other] = both[0] if other == ALONE else both
    return table


def throughput(table: Mapping[str, Any], kind: str, gpus: int) -> float:
    """Steps per second of a job type alone on that many GPUs, 0 where the table has none.

    table: of one worker type: job type and GPUs -> other job or "null" -> steps per second.
    """
    return float(table.get(str((kind, gpus)), {}).get(ALONE) or 0.0)


def pair_throughput(table: Mapping[str, Any], kind: str, other: str, gpus: int) -> tuple[float, float]:
    """Steps per second of two job types that share that many GPUs, (0, 0) where the table has no such pair.

    table: as in throughput; it may tell a pair in one order only, and what is not two numbers was not measured.
    """
    one, two = str((kind, gpus)), str((other, gpus))
    if found := _two(table.get(one, {}).get(two)):
        return found
    mine, others = (_two(table.get(two, {}).get(one)) or (0.0, 0.0))[::-1]
    return mine, others


def _two(entry: Any) -> tuple[float, float] | None:
    """Two numbers, None where that is not what is told."""
    pair = isinstance(entry, list | tuple) and len(entry) == 2 and all(isinstance(each, int | float) for each in entry)
    return (float(entry[0]), float(entry[1])) if pair else None


def job_kind(model: str, batch: int | None) -> str:
    """A model and its batch size as tables name them: "ResNet-50 (batch size 64)"."""
    return f"{model} (batch size {batch})" if batch else model


def group_name(user: str, name: str) -> str:
    """What jobs of a user and a name are called where no hint says their model: "ann:train". No model has a colon."""
    return f"{user}:{_ODD.sub('_', name)[:64]}"


def model_of_job(jobs: Jobs, row: int) -> str:
    """The model of a job by its hint, else the group of its user and name."""
    return parse_hints(jobs.comment[row]).model or group_name(jobs.user[row], jobs.name[row])


def kind_of_job(jobs: Jobs, row: int) -> str:
    """The job type in a table: by its model, else by its user and name."""
    return job_kind(model_of_job(jobs, row), parse_hints(jobs.comment[row]).batch)


def model_and_batch(kind: str) -> tuple[str, int | None]:
    """The reverse of job_kind."""
    found = _BATCH.fullmatch(kind)
    return (found[1], int(found[2])) if found else (kind, None)


def kinds(table: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, int]]:
    """Every job type and number of GPUs that a table has on any type, ascending."""
    texts = {text for entries in table.values() for text in entries}
    found = (_KIND.fullmatch(text) for text in texts)
    return sorted((match[1], int(match[2])) for match in found if match)


# Missing entries, from those that were measured.

ROUNDS = 100  # of alternating fits; on tables of a few types they settle in fewer
SPREAD = 0.1  # ridge that keeps a row with one entry from taking any factor


def complete_rates(rates: Floats) -> Floats:
    """Rates with an estimate where there is none (NaN); what was measured stays. (K, T).

    In logarithms a rate is its row's mean plus its type's plus one product of factors, fitted by alternating least
    squares: rank one beyond the additive part. A type without any entry is as fast as the mean of the others.
    Source: the low-rank completion of Narayanan et al. (Gavel), OSDI '20 (after Quasar, ASPLOS '14); this form is ours.
    Raises ValueError for a row without any entry.
    """
    known = rates > 0
    if not known.any(axis=1).all():
        raise ValueError("a row without any rate cannot be completed")
    logs = np.log(np.where(known, rates, 1.0))
    row, type_ = _means(logs, known)
    rest = np.where(known, logs - row[:, None] - type_, 0.0)
    product = _rank_one(rest, known)
    return np.where(np.isnan(rates), np.exp(row[:, None] + type_ + product), rates)


def _means(logs: Floats, known: Bools) -> tuple[Floats, Floats]:
    """The additive part: of rows (K,) and of types (T,), which are 0 on the mean."""
    type_ = np.zeros(logs.shape[1])
    row = np.zeros(len(logs))
    for _ in range(ROUNDS):
        row = ((logs - type_) * known).sum(axis=1) / known.sum(axis=1)
        type_ = ((logs - row[:, None]) * known).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        type_ = np.where(known.any(axis=0), type_ - type_[known.any(axis=0)].mean(), 0.0)
    return ((logs - type_) * known).sum(axis=1) / known.sum(axis=1), type_


def _rank_one(rest: Floats, known: Bools) -> Floats:
    """The product of a factor of each row and one of each type nearest to the known entries of `rest`. (K, T)."""
    of_type = np.linspace(-1.0, 1.0, rest.shape[1])
    of_row = np.zeros(len(rest))
    for _ in range(ROUNDS):
        of_row = (rest * known) @ of_type / (known @ of_type**2 + SPREAD)
        of_type = (rest * known).T @ of_row / (known.T @ of_row**2 + SPREAD)
    return np.outer(of_row, of_type)


def non_decreasing_rates(rates: Floats, estimated: Floats) -> Floats:
    """Rates by ascending number of GPUs in which no estimated one is below that of fewer GPUs. (K, T).

    estimated: (K, T) bool. A measured rate stays, even one that falls.
    """
    return np.where(estimated, np.maximum.accumulate(rates, axis=0), rates)

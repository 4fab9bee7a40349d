"""Tables of throughputs: Gavel's and Shockwave's JSON, or a site's own CSV. The one place that looks into them."""

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
from typing import Any

from slurmsched.errors import InputError

ALONE = "null"
COLUMNS = ("model", "batch", "gpus", "gpu_type", "steps_per_s")
_TABLES = Path(__file__).parent / "tables"
SHIPPED = {"gavel": _TABLES / "gavel.json.gz", "shockwave": _TABLES / "shockwave.csv.gz"}
_BATCH = re.compile(r"(.*) \(batch size (\d+)\)")
_KIND = re.compile(r"\('(.*)', (\d+)\)")


@lru_cache(maxsize=8)
def throughput_table(name: str) -> Mapping[str, Mapping[str, Any]]:
    """The table of a file, or of a name of SHIPPED: GPU type -> its entries (see throughput). Raises InputError."""
    return read_throughputs(SHIPPED.get(name, Path(name)))


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
    rows = csv.DictReader(io.StringIO(text))
    if not set(COLUMNS) <= set(rows.fieldnames or ()):
        raise ValueError(f"needs the columns {', '.join(COLUMNS)}")
    table: dict[str, dict[str, Any]] = {}
    for row in rows:
        gpus, rate = int(row["gpus"]), float(row["steps_per_s"])
        if gpus < 1:
            raise ValueError(f"line {rows.line_num}: gpus must be at least 1, got {gpus}")
        if not 0 <= rate < math.inf:
            raise ValueError(f"line {rows.line_num}: steps_per_s must be a number of at least 0, got {rate}")
        table.setdefault(row["gpu_type"], {})[str((job_kind(row["model"], int(row["batch"] or 0)), gpus))] = {
            ALONE: rate
        }
    return table


def throughput(table: Mapping[str, Any], kind: str, gpus: int) -> float:
    """Steps per second of a job type alone on so many GPUs, 0 where the table has none.

    table: of one worker type: job type and GPUs -> other job or "null" -> steps per second.
    """
    return float(table.get(str((kind, gpus)), {}).get(ALONE) or 0.0)


def pair_throughput(table: Mapping[str, Any], kind: str, other: str, gpus: int) -> tuple[float, float]:
    """Steps per second of two job types that share so many GPUs, (0, 0) where the table has no such pair.

    table: as in throughput; it may tell a pair in one order only, and what is not two numbers was not measured.
    """
    one, two = str((kind, gpus)), str((other, gpus))
    if found := _two(table.get(one, {}).get(two)):
        return found
    mine, others = (_two(table.get(two, {}).get(one)) or (0.0, 0.0))[::-1]
    return mine, others


def _two(told: Any) -> tuple[float, float] | None:
    """Two numbers, None where that is not what is told."""
    pair = isinstance(told, list | tuple) and len(told) == 2 and all(isinstance(each, int | float) for each in told)
    return (float(told[0]), float(told[1])) if pair else None


def job_kind(model: str, batch: int | None) -> str:
    """A model and its batch size as tables name them: "ResNet-50 (batch size 64)"."""
    return f"{model} (batch size {batch})" if batch else model


def model_and_batch(kind: str) -> tuple[str, int | None]:
    """The reverse of job_kind."""
    found = _BATCH.fullmatch(kind)
    return (found[1], int(found[2])) if found else (kind, None)


def kinds(table: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, int]]:
    """Every job type and number of GPUs that a table has on any type, ascending."""
    texts = {text for entries in table.values() for text in entries}
    found = (_KIND.fullmatch(text) for text in texts)
    return sorted((match[1], int(match[2])) for match in found if match)

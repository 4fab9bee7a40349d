"""Speed by CPUs and memory: how fast a training job runs with that many CPUs and so much memory beside each GPU."""

from __future__ import annotations

import csv
import gzip
import io
import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from slurmsched.errors import InputError
from slurmsched.estimators.throughput_table import model_and_batch

SYNERGY = "synergy"  # the shipped table
PROFILE_COLUMNS = ("model", "cpus", "memory_gib", "speed")
_TABLES = Path(__file__).parent / "tables"
MIB_PER_GIB = 1024.0


class CpusAndMemory(NamedTuple):
    """Beside one GPU: CPUs, and memory [GiB]."""

    cpus: float
    memory_gib: float


@dataclass(frozen=True, slots=True)
class CpuMemoryProfile:
    """Measured speeds of a model.

    cpus, memory_gib: the levels, ascending.
    speed: a row for each level of CPUs, a column for each of memory, in any unit.
    """

    cpus: tuple[float, ...]
    memory_gib: tuple[float, ...]
    speed: tuple[tuple[float, ...], ...]

    def at(self, cpus: float, memory_gib: float) -> float:
        """The speed measured at the highest levels that are not above these, or at the lowest level."""
        row = max(bisect_right(self.cpus, cpus + SLACK) - 1, 0)
        return self.speed[row][max(bisect_right(self.memory_gib, memory_gib + SLACK) - 1, 0)]

    def best(self) -> CpusAndMemory:
        """The fewest CPUs, and with them the least memory, with which the model is as fast as it ever is."""
        top = max(max(row) for row in self.speed) * (1 - SAME)
        for cpus, row in zip(self.cpus, self.speed, strict=True):
            for memory_gib, speed in zip(self.memory_gib, row, strict=True):
                if speed >= top:
                    return CpusAndMemory(cpus, memory_gib)
        raise AssertionError("the highest speed is one of them")


SLACK = 1e-6  # a level reached but for rounding is reached
SAME = 1e-3  # relative: speeds that differ by less are the same


@lru_cache(maxsize=8)
def cpu_memory_profiles(name: str) -> Mapping[str, CpuMemoryProfile]:
    """Model -> its profile, from a CSV of PROFILE_COLUMNS or the shipped "synergy".

    Each model has a speed for each of its levels of CPUs with each of its levels of memory.
    Raises InputError for a file that cannot be read so.
    """
    path = _TABLES / "synergy.csv.gz" if name == SYNERGY else Path(name)
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
        rows = csv.DictReader(io.StringIO(text))
        if not set(PROFILE_COLUMNS) <= set(rows.fieldnames or ()):
            raise ValueError(f"needs the columns {', '.join(PROFILE_COLUMNS)}")
        speeds: dict[str, dict[tuple[float, float], float]] = {}
        for row in rows:
            cpus, memory_gib, speed = (_number(row, column) for column in PROFILE_COLUMNS[1:])
            speeds.setdefault(row["model"], {})[cpus, memory_gib] = speed
        return {model: _profile(model, found) for model, found in speeds.items()}
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"cannot be read as speeds by CPUs and memory: {error}", source=str(path)) from error


def _number(row: Mapping[str, str], column: str) -> float:
    value = float(row[column])
    if not 0 < value < math.inf:
        raise ValueError(f"{column} of {row['model']} must be above 0, got {row[column]}")
    return value


def _profile(model: str, speeds: Mapping[tuple[float, float], float]) -> CpuMemoryProfile:
    cpus = tuple(sorted({level for level, _ in speeds}))
    memory_gib = tuple(sorted({level for _, level in speeds}))
    if missing := [(c, m) for c in cpus for m in memory_gib if (c, m) not in speeds]:
        raise ValueError(f"{model} has no speed at {missing[0][0]:g} CPUs and {missing[0][1]:g} GiB")
    return CpuMemoryProfile(cpus, memory_gib, tuple(tuple(speeds[c, m] for m in memory_gib) for c in cpus))


def profile_of(name: str, kind: str) -> CpuMemoryProfile | None:
    """The profile of a model, with or without batch size; None for an unknown one."""
    return cpu_memory_profiles(name).get(model_and_batch(kind)[0])

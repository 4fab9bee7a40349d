"""Reading a trace row by row into columns: what most loaders share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple, get_type_hints

import numpy as np

from slurmsched.errors import UnreadableError
from slurmsched.model.columns import Labels
from slurmsched.replay.loaders.source import Head, Source

NAN = math.nan
MOST_GPUS = 1 << 24  # of one job: more is a misread column
LARGEST_ID, UNNUMBERED = 1 << 62, -(1 << 62)
BATCH = 4_096  # jobs turned into columns at once
Columns = dict[str, Any]


class Dropped(Exception):
    """A well-formed row that is no GPU job that ran. Its text is the reason, the same for all such rows."""


class Job(NamedTuple):
    """One job of a trace; NaN or "" where the source does not tell. Columns and units as in Trace.

    job_id UNNUMBERED: number it in file order.
    """

    submit_s: float
    duration_s: float
    gpus: int
    job_id: int = UNNUMBERED
    time_limit_s: float = NAN
    start_s: float = NAN
    gpu_share: float = 1.0
    requeues: int = 0
    nodes: int = 0
    cpus: int = 0
    memory_mib: float = 0.0
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    name: str = ""
    model: str = ""
    gpu_type: str = ""
    state: str = ""
    comment: str = ""
    cluster: str = ""  # tells jobs apart that have one id; no column of a trace


_TYPES = {int: "q", float: "d", str: "i"}
_KINDS = {name: _TYPES[kind] for name, kind in get_type_hints(Job).items()}


class Builder:
    """Jobs as compact columns while they come in: about 100 bytes each, texts held once."""

    def __init__(self) -> None:
        self._columns: list[array[Any]] = [array(kind) for kind in _KINDS.values()]
        self._codes: dict[str, dict[str, int]] = {name: {} for name, kind in _KINDS.items() if kind == "i"}
        self._batch: list[Job] = []

    def __len__(self) -> int:
        return len(self._columns[0]) + len(self._batch)

    def add(self, job: Job) -> None:
        """Append one job. Raises ValueError if it could not be one."""
        _check(job)
        self._batch.append(job._replace(job_id=len(self)) if job.job_id == UNNUMBERED else job)
        if len(self._batch) == BATCH:
            self._flush()

    def columns(self) -> Columns:
        """All columns by name: numpy arrays, Labels for texts."""
        self._flush()
        made: Columns = {}
        for (name, kind), column in zip(_KINDS.items(), self._columns, strict=True):
            values = np.array(column)
            made[name] = _labels(values, list(self._codes[name])) if kind == "i" else values
        return made

    def _flush(self) -> None:
        for name, column, values in zip(_KINDS, self._columns, zip(*self._batch, strict=True), strict=False):
            codes = self._codes.get(name)
            column.extend(values if codes is None else [codes.setdefault(text, len(codes)) for text in values])
        self._batch.clear()


def _check(job: Job) -> None:
    if not 1 <= job.gpus <= MOST_GPUS:
        raise ValueError(f"a job cannot have {job.gpus} GPUs")
    if not 0 <= job.duration_s < math.inf:
        raise ValueError(f"a run time cannot be {job.duration_s:g} s")
    if not 0 <= job.submit_s < math.inf:
        raise ValueError(f"a submit time cannot be {job.submit_s:g} s")
    if job.time_limit_s <= 0:
        raise ValueError(f"a time limit cannot be {job.time_limit_s:g} s")
    if (
        not (0 <= job.job_id < LARGEST_ID or job.job_id == UNNUMBERED)
        or not 0 <= job.requeues < LARGEST_ID
        or not 0 < job.gpu_share <= 1
        or not (0 <= job.nodes <= MOST_GPUS and 0 <= job.cpus <= LARGEST_ID and 0 <= job.memory_mib < math.inf)
    ):
        raise ValueError("job id, requeues, share of a GPU, nodes, CPUs or memory out of range")


def _labels(codes: Any, names: list[str]) -> Labels:
    """Labels of codes into names in any order."""
    order = sorted(range(len(names)), key=names.__getitem__)
    place = np.empty(len(names), np.int32)
    place[order] = np.arange(len(names), dtype=np.int32)
    return Labels(place[codes] if len(codes) else codes, tuple(names[i] for i in order))


class RowLoader(ABC):
    """Base of loaders that make one job of one record.

    calendar: times of the jobs are Unix seconds. Sub-classes are frozen dataclasses whose fields are parameters.
    """

    __slots__ = ()
    calendar = False

    @abstractmethod
    def sniff(self, head: Head) -> bool:
        """Whether the file looks like one of this kind."""

    @abstractmethod
    def records(self, source: Source) -> Iterator[tuple[int, Any]]:
        """Line number and record, one after the other. Raises InputError if the file is none of this kind."""

    @abstractmethod
    def job(self, record: Any) -> Job:
        """The job of a record. Raises Dropped for one to leave out, and ValueError for one that cannot be read."""

    def finish(self, columns: Columns, source: Source) -> Columns:
        """The columns after the last record; here a loader joins rows that make up one job."""
        return columns

    def read(self, source: Source) -> Columns:
        """All jobs of the file. Raises InputError where the file cannot be read (strict: where a row cannot)."""
        if self.calendar:
            source.origin_s = 0.0
        builder = Builder()
        with source.guarded():
            for line, record in self.records(source):
                try:
                    builder.add(self.job(record))
                except Dropped as reason:
                    source.dropped[str(reason)] += 1
                except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
                    source.reject(line, _said(error))
                except UnreadableError as error:
                    source.reject(line, str(error))
        columns = self.finish(builder.columns(), source)
        return {name: values for name, values in columns.items() if name != "cluster"}


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else f"not a row of this kind ({type(error).__name__}: {error})"


def number(row: Mapping[str, Any], name: str) -> float:
    """A field as a number. Raises ValueError naming field and text."""
    text = row.get(name)
    try:
        return float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(f"{name} is missing" if text is None else f"{name} is {text!r}, not a number") from None


def whole(row: Mapping[str, Any], name: str) -> int:
    """A field as a whole number ("4" or "4.0"). Raises ValueError naming field and text."""
    text = row.get(name)
    if isinstance(text, str) and text.isdecimal():
        return int(text)
    value = number(row, name)
    if not value.is_integer():
        raise ValueError(f"{name} is {row[name]!r}, not a whole number")
    return int(value)


class Instant(NamedTuple):
    """A point in time [Unix s]. offset_s: the site's clock less UTC, NaN where the text does not tell.

    A wall-clock time without an offset is taken for UTC, so that the hour stays right. wall: whether it is one.
    """

    at_s: float
    offset_s: float = NAN
    wall: bool = False


@lru_cache(maxsize=1 << 12)
def instant(text: str) -> Instant:
    """A time such as "2017-10-09 07:01:55", "2024-01-01T00:00:00+0100" or "...Z". Raises ValueError."""
    try:
        found = datetime.fromisoformat(text)
        offset = found.utcoffset()
        if offset is None:
            return Instant(found.replace(tzinfo=UTC).timestamp(), wall=True)
        return Instant(found.timestamp(), offset.total_seconds())
    except (ValueError, OverflowError, TypeError):
        raise ValueError(f"{str(text)[:80]!r} is no time such as 2017-10-09 07:01:55") from None


def wall_s(text: str) -> float:
    """A time as Unix seconds (see Instant). Raises ValueError."""
    return instant(text).at_s


def shares(gpus: float) -> tuple[int, float]:
    """GPUs and the part of each that a request such as 0.5 or 2.5 takes. Raises ValueError."""
    if not 0 < gpus <= MOST_GPUS:
        raise ValueError(f"a job cannot have {gpus:g} GPUs")
    held = math.ceil(gpus)
    return held, gpus / held

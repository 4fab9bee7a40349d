"""Builds the columns of a trace from the rows of a file."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from slurmsched.errors import InputError, UnreadableError
from slurmsched.input_files import FileHead, InputFile
from slurmsched.model.columns import NAN, Labels
from slurmsched.model.trace import RecordedTrace, Trace
from slurmsched.plain_text import pluralize

MOST_GPUS = 1 << 24  # of one job: more is a misread column
LARGEST_ID, UNNUMBERED = 1 << 62, -(1 << 62)
BATCH = 4_096  # jobs turned into columns at once
Columns = dict[str, Any]


class SkippedRow(Exception):
    """A well-formed row that is no GPU job that ran. Its text is the reason, the same for all such rows."""


class BesideJob(SkippedRow):
    """A job that is in no figure, but holds a part of the cluster, or a place in its queue. Its text is the reason."""

    def __init__(self, reason: str, job: TraceJob) -> None:
        super().__init__(reason)
        self.job = job


class TraceJob(NamedTuple):
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
    eligible_s: float = NAN
    array_id: int = 0
    array_limit: int = 0
    cancel_s: float = NAN
    constraint: str = ""
    exclusive: int = 0
    node_list: str = ""
    partitions: str = ""
    dependency: str = ""
    licenses: str = ""
    cluster: str = ""  # tells jobs apart that have one id; no column of a trace


_TYPES = {int: "q", float: "d", str: "i"}
_KINDS = {name: _TYPES[kind] for name, kind in get_type_hints(TraceJob).items()}


class ColumnBuilder:
    """Jobs as compact columns while they come in: about 100 bytes each, texts held once. least_gpus: of a job."""

    def __init__(self, least_gpus: int = 1) -> None:
        self._least_gpus = least_gpus
        self._columns: list[array[Any]] = [array(kind) for kind in _KINDS.values()]
        self._codes: dict[str, dict[str, int]] = {name: {} for name, kind in _KINDS.items() if kind == "i"}
        self._batch: list[TraceJob] = []

    def __len__(self) -> int:
        return len(self._columns[0]) + len(self._batch)

    def add(self, job: TraceJob) -> None:
        """Append one job. Raises ValueError if it could not be one."""
        _check(job, self._least_gpus)
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


def _check(job: TraceJob, least_gpus: int) -> None:
    if not least_gpus <= job.gpus <= MOST_GPUS:
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
    def sniff(self, head: FileHead) -> bool:
        """Whether the file looks like one of this kind."""

    @abstractmethod
    def records(self, source: InputFile) -> Iterator[tuple[int, Any]]:
        """Line number and record, one after the other. Raises InputError if the file is none of this kind."""

    @abstractmethod
    def job(self, record: Any) -> TraceJob:
        """The job of a record. Raises SkippedRow for one to leave out, and ValueError for one that cannot be read."""

    def finish(self, columns: Columns, source: InputFile) -> Columns:
        """The columns after the last record; here a loader joins rows that make up one job."""
        return columns

    def read(self, source: InputFile) -> Columns:
        """All jobs of the file. Raises InputError where the file cannot be read (strict: where a row cannot)."""
        if self.calendar:
            source.origin_s = 0.0
        builder, beside = ColumnBuilder(), ColumnBuilder(least_gpus=0)
        with source.guarded():
            for line, record in self.records(source):
                try:
                    builder.add(self.job(record))
                except BesideJob as kept:
                    beside.add(kept.job)
                    source.beside[str(kept)] += 1
                except SkippedRow as reason:
                    source.dropped[str(reason)] += 1
                except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
                    source.reject(line, _error_text(error))
                except UnreadableError as error:
                    source.reject(line, str(error))
        columns = self.finish(builder.columns(), source)
        if len(beside):
            columns[BESIDE] = _without_cluster(self.finish(beside.columns(), InputFile(source.path)))
        return _without_cluster(columns)


BESIDE = "beside"  # among the columns of a file: those of the jobs of RecordedTrace.beside


def _without_cluster(columns: Columns) -> Columns:
    return {name: values for name, values in columns.items() if name != "cluster"}


def recorded_trace(columns: Columns, source: InputFile, kind: str) -> RecordedTrace:
    """The trace of columns that were read from a file.

    Raises InputError where most rows of the file could not be read, where it holds no job, and for jobs that cannot be.
    """
    beside = columns.pop(BESIDE, None)
    jobs = len(columns["submit_s"])
    if source.rejected > jobs + source.dropped.total() + source.beside.total():
        raise source.fail(f"is hardly a trace of kind {kind}: most rows cannot be read, the first in "
                          f"{source.first_rejected}; name its kind with --kind")  # fmt: skip
    if not jobs:
        raise source.fail("; ".join(("holds no GPU job that ran", *source.warnings())))
    try:
        first_s = _first_s(columns, source)
        trace = Trace.of(**_shifted_columns(columns, first_s))
        others = _jobs_beside(beside, first_s, trace) if beside is not None else None
    except InputError as error:
        raise source.fail(error.message) from None
    warnings = (*source.warnings(), *_early(trace, source.path))
    return RecordedTrace(trace, kind, source.origin_s, source.utc_offset_s, warnings, beside=others)


def _jobs_beside(columns: Columns, first_s: float, trace: Trace) -> Trace | None:
    """Those of the jobs beside the trace that came since its begin, with ids of their own. None of none."""
    columns = _shifted_columns(columns, first_s)
    later = np.flatnonzero(columns["submit_s"] >= 0)
    if not later.size:
        return None
    columns = {name: _chosen_rows(values, later) for name, values in columns.items()}
    taken = np.isin(columns["job_id"], trace.job_id)
    free = 1 + max(int(trace.job_id.max(initial=0)), int(columns["job_id"].max(initial=0)))
    columns["job_id"][taken] = free + np.arange(int(taken.sum()))
    return Trace.of(**columns, least_gpus=0)


def _early(trace: Trace, path: Path) -> tuple[str, ...]:
    """A warning where jobs were recorded to begin before they came: what such a file tells of waits is wrong."""
    early_s = trace.submit_s - trace.start_s
    rows = np.flatnonzero(early_s > 0)
    if not rows.size:
        return ()
    worst = rows[np.argmax(early_s[rows])]
    return (f"{path}: {pluralize(rows.size, 'job')} started before submission, job {trace.job_id[worst]} by "
            f"{early_s[worst]:,.0f} s, the most: those recorded waits are below 0",)  # fmt: skip


def _first_s(columns: Columns, source: InputFile) -> float:
    """The time of the file that becomes 0: the first submission if it has a calendar; source.origin_s moves along."""
    if math.isnan(source.origin_s) or not source.origin_s + columns["submit_s"].min():
        return 0.0
    first_s = float(columns["submit_s"].min())
    source.origin_s += first_s
    return first_s


def _shifted_columns(columns: Columns, first_s: float) -> Columns:
    """The columns with this time at 0."""
    times = ("submit_s", "eligible_s", "start_s", "cancel_s")
    return columns | {name: columns[name] - first_s for name in times if name in columns and first_s}


def _error_text(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else f"not a row of this kind ({type(error).__name__}: {error})"


def parse_number(row: Mapping[str, Any], name: str) -> float:
    """A field as a number. Raises ValueError naming field and text."""
    text = row.get(name)
    try:
        return float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(f"{name} is missing" if text is None else f"{name} is {text!r}, not a number") from None


def parse_integer(row: Mapping[str, Any], name: str) -> int:
    """A field as a whole number ("4" or "4.0"). Raises ValueError naming field and text."""
    text = row.get(name)
    if isinstance(text, str) and text.isdecimal():
        return int(text)
    value = parse_number(row, name)
    if not value.is_integer():
        raise ValueError(f"{name} is {row[name]!r}, not a whole number")
    return int(value)


class ParsedTime(NamedTuple):
    """A point in time [Unix s].

    offset_s: the site's clock less UTC, NaN where the text does not tell.

    A wall-clock time without an offset is taken for UTC, so that the hour stays right.
    wall: whether it is one.
    """

    at_s: float
    offset_s: float = NAN
    wall: bool = False


@lru_cache(maxsize=1 << 12)
def parse_time(text: str) -> ParsedTime:
    """A time such as "2017-10-09 07:01:55", "2024-01-01T00:00:00+0100" or "...Z". Raises ValueError."""
    try:
        found = datetime.fromisoformat(text)
        offset = found.utcoffset()
        if offset is None:
            return ParsedTime(found.replace(tzinfo=UTC).timestamp(), wall=True)
        return ParsedTime(found.timestamp(), offset.total_seconds())
    except (ValueError, OverflowError, TypeError):
        raise ValueError(f"{str(text)[:80]!r} is no time such as 2017-10-09 07:01:55") from None


def parse_time_s(text: str) -> float:
    """A time as Unix seconds (see Instant). Raises ValueError."""
    return parse_time(text).at_s


def gpus_and_share(gpus: float) -> tuple[int, float]:
    """GPUs and the part of each that a request such as 0.5 or 2.5 takes. Raises ValueError."""
    if not 0 < gpus <= MOST_GPUS:
        raise ValueError(f"a job cannot have {gpus:g} GPUs")
    held = math.ceil(gpus)
    return held, gpus / held


# Rows of one job.

RowGroups = NDArray[np.int64]  # rows of one job, in file order


def group_rows(columns: Columns, join: Callable[[Columns, RowGroups], dict[str, Any]]) -> Columns:
    """The columns with the rows of each id that comes more than once joined into one.

    join: the values of the joined row by column name, and as "row" the row that the other columns are taken from.
    """
    single, several = rows_by_id(columns, np.argsort(columns["job_id"], kind="stable"))
    return join_rows(columns, single, [join(columns, rows) for rows in several])


def rows_by_id(columns: Columns, order: RowGroups) -> tuple[RowGroups, list[RowGroups]]:
    """Rows whose id comes once, and the rows of each other id in the given order, which must have ids ascending."""
    _, first, counts = np.unique(columns["job_id"][order], return_index=True, return_counts=True)
    several = [order[at : at + count] for at, count in zip(first, counts, strict=True) if count > 1]
    return order[first[counts == 1]], several


def join_rows(columns: Columns, single: RowGroups, joined: Sequence[dict[str, Any]]) -> Columns:
    """The single rows, then one row for each mapping: its values, the rest as in its "row"."""
    kept = np.concatenate([single, np.array([values["row"] for values in joined], np.int64)])
    made = {name: _chosen_rows(values, kept) for name, values in columns.items()}
    for place, values in enumerate(joined, len(single)):
        for name in values.keys() - {"row"}:
            made[name][place] = values[name]
    return made


def _chosen_rows(values: Any, rows: Any) -> Any:
    """The chosen rows of a column, writable if it is numeric."""
    return values.take(rows) if isinstance(values, Labels) else values[rows].copy()

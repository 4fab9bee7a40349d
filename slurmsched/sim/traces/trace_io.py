"""Reads a trace file of any kind, and writes traces as plain CSV or parquet."""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import slurmsched
from slurmsched import __version__, registry
from slurmsched.errors import InputError
from slurmsched.input_files import FileHead, InputFile, csv_records
from slurmsched.model.columns import Labels
from slurmsched.model.trace import RecordedTrace, Trace
from slurmsched.model.trace_rows import NAN, Columns, RowLoader, TraceJob, parse_integer, parse_number, recorded_trace
from slurmsched.paths import draft_of, dropped

CSV_COLUMNS = ("job_id", "num_gpus", "submit_s", "duration_s")
DELIMITERS = ",;\t"
TEXT_COLUMNS = ("user", "account", "partition", "qos", "name", "model", "gpu_type", "state", "comment",
                "constraint", "node_list", "partitions", "dependency", "licenses")  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlainCsvTrace(RowLoader):
    """job_id, num_gpus, submit_s, duration_s, and any other column of the common form by its name."""

    def sniff(self, head: FileHead) -> bool:
        return bool(_delimiter(head))

    def records(self, source: InputFile) -> Iterator[tuple[int, Any]]:
        return csv_records(source, CSV_COLUMNS, _delimiter(source.head) or ",")

    def job(self, row: dict[str, Any]) -> TraceJob:
        return TraceJob(
            job_id=parse_integer(row, "job_id"),
            gpus=parse_integer(row, "num_gpus"),
            submit_s=parse_number(row, "submit_s"),
            duration_s=parse_number(row, "duration_s"),
            time_limit_s=_optional_number(row, "time_limit_s", NAN),
            start_s=_optional_number(row, "start_s", NAN),
            eligible_s=_optional_number(row, "eligible_s", NAN),
            gpu_share=_optional_number(row, "gpu_share", 1.0),
            requeues=int(_optional_number(row, "requeues", 0)),
            nodes=int(_optional_number(row, "nodes", 0)),
            cpus=int(_optional_number(row, "cpus", 0)),
            memory_mib=_optional_number(row, "memory_mib", 0.0),
            array_id=int(_optional_number(row, "array_id", 0)),
            array_limit=int(_optional_number(row, "array_limit", 0)),
            exclusive=int(_optional_number(row, "exclusive", 0)),
            **{name: row[name] for name in TEXT_COLUMNS if row.get(name)},
        )


def _delimiter(head: FileHead) -> str:
    """What parts the columns, "" if the file is none of this kind: a comma, or as spreadsheets write."""
    return next((mark for mark in DELIMITERS if {"job_id", "num_gpus"} <= head.columns(mark)), "")


def _optional_number(row: dict[str, Any], name: str, otherwise: float) -> float:
    return parse_number(row, name) if row.get(name) else otherwise


# Parquet.

PARQUET_MAGIC = b"PAR1"
NEEDED_COLUMNS = ("job_id", "gpus", "submit_s", "duration_s")


@dataclass(frozen=True, slots=True)
class ParquetTrace:
    """Columns of Trace by their names; time limits that the source did not tell are null."""

    def sniff(self, head: FileHead) -> bool:
        return head.start.startswith(PARQUET_MAGIC)

    def read(self, source: InputFile) -> Columns:
        """All columns that Trace knows. Raises InputError."""
        polars = import_polars(source.path)
        try:
            frame = polars.read_parquet(source.path)
            metadata = polars.read_parquet_metadata(source.path)
            source.origin_s = float(metadata.get("origin_s", "nan"))
            source.utc_offset_s = float(metadata.get("utc_offset_s", "0"))
            known = {spec.name: spec.metadata["dtype"] for spec in fields(Trace) if spec.name != "counted"}
            return {
                name: _column(frame[name], kind)
                for name, kind in known.items()
                if name in _checked_columns(frame.columns)
            }
        except InputError as error:
            raise source.fail(error.message) from None
        except Exception as error:  # polars raises kinds of its own, and no common base for broken files
            raise source.fail(f"cannot be read as parquet: {error}") from error


def write_parquet(path: Path, trace: Trace, metadata: dict[str, str]) -> None:
    """Write the trace in the common form. metadata: of the file. Raises InputError if it cannot be written."""
    polars = import_polars(path)
    limit_s = np.where(trace.limit_known, trace.time_limit_s, math.nan)
    columns = {name: _series(polars, name, values) for name, values in trace.columns().items() if name != "limit_known"}
    columns["time_limit_s"] = polars.Series("time_limit_s", limit_s).fill_nan(None)
    try:
        save_frame(path, polars.DataFrame(list(columns.values())), metadata)
    except OSError as error:
        raise InputError(f"cannot be written: {error}", source=str(path)) from error


def save_frame(path: Path, frame: Any, metadata: dict[str, str] | None = None) -> None:
    """Write a frame of polars as parquet. Raises OSError: on a full disk, polars raises kinds of its own."""
    packed = io.BytesIO()
    frame.write_parquet(packed, metadata=metadata, compression="zstd")
    path.write_bytes(packed.getvalue())


def import_polars(path: Path) -> Any:
    """The module polars. Raises InputError naming the extra that installs it."""
    try:
        import polars
    except ImportError:
        needs = "parquet needs the package polars: pip install 'slurmsched[traces]' (plain CSV does not)"
        raise InputError(needs, source=str(path)) from None
    return polars


def _checked_columns(columns: list[str]) -> list[str]:
    missing = [name for name in NEEDED_COLUMNS if name not in columns]
    if missing:
        raise InputError(f"has no column {', '.join(missing)}; a trace has {', '.join(NEEDED_COLUMNS)}")
    return columns


def _column(series: Any, kind: Any) -> Any:
    if kind is Labels:
        return Labels.of(series.cast(str).fill_null("").to_list())
    if kind is np.int64 and series.null_count():
        raise InputError(f"column {series.name} has empty rows")
    return np.array(series.cast(float).to_numpy() if kind is np.float64 else series.to_numpy(), kind)


def _series(polars: Any, name: str, values: Any) -> Any:
    if isinstance(values, Labels):
        names = polars.Series(name, list(values.names), dtype=polars.String)
        return names.gather(np.asarray(values.codes)).alias(name)
    return polars.Series(name, values)


# Files of any kind, which their content identifies.

SAMPLE = "philly_sample"
SHIPPED = (Path(slurmsched.__file__).parents[1] / "slurmsched/sim/traces/shipped/README.md").parent
PLUGIN_KIND = "traces"  # of plug-ins: entry points `slurmsched.traces`
CSV_NAMES = {"gpus": "num_gpus"}  # columns that the plain form calls otherwise


class TraceLoader(Protocol):
    """What a trace plug-in offers: a frozen dataclass whose fields are its parameters."""

    def sniff(self, head: FileHead) -> bool:
        """Whether the file looks like one of this kind."""
        ...

    def read(self, source: InputFile) -> dict[str, Any]:
        """Columns by name (numpy arrays, Labels). Raises InputError where the file cannot be read."""
        ...


def load_trace(
    path: Path, kind: str = "", parameters: Mapping[str, Any] | None = None, *, strict: bool = False
) -> RecordedTrace:
    """The trace of a file.

    kind: name of its loader, "" to tell it by content. strict: the first row that cannot be read raises InputError;
    else such rows are counted in the warnings. Raises InputError and ConfigError (unknown kind or parameter).
    """
    source = InputFile(path, strict=strict)
    kind = kind or trace_kind(source.head)
    loader: TraceLoader = registry.make_plugin(PLUGIN_KIND, kind, parameters, key="trace")
    return recorded_trace(loader.read(source), source, kind)


def read_trace(path: Path) -> Trace:
    """The trace of a file of any kind that `load` knows.

    Raises InputError that names the file and the line of the first row that cannot be read.
    """
    return load_trace(path, strict=True).trace


@lru_cache(maxsize=8)
def shipped_trace(name: str) -> Trace:
    """A trace that comes with slurmsched; README.md beside the files has its source and licence."""
    return read_trace(SHIPPED / f"{name}.csv.gz")


def sample_trace() -> Trace:
    """The sample of Philly that comes with slurmsched, with time limits as users set them."""
    return shipped_trace(SAMPLE).with_user_limits()


def trace_kind(head: FileHead) -> str:
    """The kind of a file by its name and first bytes. Raises InputError if no loader knows it."""
    for name in registry.plugin_names(PLUGIN_KIND):
        if registry.make_plugin(PLUGIN_KIND, name, key="trace").sniff(head):
            return name
    if not head.start:
        raise InputError("is empty", source=str(head.path))
    known = ", ".join(registry.plugin_names(PLUGIN_KIND))
    raise InputError(f"is no trace of a known kind ({known}); {_what_csv_lacks(head)}", source=str(head.path))


def _what_csv_lacks(head: FileHead) -> str:
    """What to do about a file of no known kind: for a table that is nearly plain CSV, the columns that it lacks."""
    heading = re.split(rb"\W+", head.start.partition(b"\n")[0])
    if {b"JobID", b"JobIDRaw"} & set(heading):
        return "if it is of sacct, --kind sacct says which columns it lacks"
    lacks = min(([name for name in CSV_COLUMNS if name not in head.columns(mark)] for mark in DELIMITERS), key=len)
    if len(lacks) > len(CSV_COLUMNS) / 2:
        return "name its kind with --kind"
    return (f"to be plain CSV it lacks {' and '.join(lacks)} ({', '.join(CSV_COLUMNS)}; docs/traces.md); else name its "
            "kind with --kind")  # fmt: skip


def check_ending(path: Path) -> None:
    """Raises InputError for a name that `save` would refuse."""
    if not path.name.endswith((".parquet", ".csv", ".csv.gz")):
        raise InputError("must end in .parquet, .csv or .csv.gz", source=str(path))


def save_trace(path: Path, recorded: RecordedTrace) -> None:
    """Write a trace, whole or not at all: parquet, or plain CSV if the name ends in .csv or .csv.gz.

    Raises InputError if the file cannot be written, or the name has another ending.
    """
    check_ending(path)

    draft = draft_of(path)
    metadata = {"slurmsched": __version__, "kind": recorded.kind, "origin_s": repr(recorded.origin_s),
            "utc_offset_s": repr(recorded.utc_offset_s)}  # fmt: skip
    try:
        if path.name.endswith(".parquet"):
            write_parquet(draft, recorded.trace, metadata)
        else:
            draft.write_bytes(_csv(recorded.trace, packed=path.name.endswith(".gz")))
        draft.replace(path)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", source=str(path)) from error
    finally:
        dropped(draft)


def _csv(trace: Trace, *, packed: bool) -> bytes:
    """The plain form: the columns that say something, numbers so that they read back equal."""
    known = {
        name: values
        for name, values in trace.columns().items()
        if name in _ALWAYS_WRITTEN or _has_content(trace, name, values)
    }
    if "time_limit_s" in known:
        shown = np.where(trace.limit_known, trace.time_limit_s, math.nan)
        known["time_limit_s"] = shown
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([CSV_NAMES.get(name, name) for name in known])
    writer.writerows(zip(*(_csv_texts(values) for values in known.values()), strict=True))
    text = file.getvalue().encode()
    return gzip.compress(text, mtime=0) if packed else text


_ALWAYS_WRITTEN = ("job_id", "gpus", "submit_s", "duration_s")


def _has_content(trace: Trace, name: str, values: Any) -> bool:
    """Whether a column holds more than its default."""
    if name in ("limit_known", "time_limit_s"):
        return name == "time_limit_s" and bool(trace.limit_known.any())
    if isinstance(values, Labels):
        return values.names not in ((), ("",))
    default = {
        "gpu_share": 1.0,
        "requeues": 0,
        "nodes": 0,
        "cpus": 0,
        "memory_mib": 0.0,
        "array_id": 0,
        "array_limit": 0,
        "exclusive": 0,
    }.get(name, math.nan)
    return not np.array_equal(values, np.full(len(values), default), equal_nan=True)


def _csv_texts(values: Any) -> Any:
    if isinstance(values, Labels):
        return values
    if values.dtype == np.float64:
        return ("" if math.isnan(v) else str(int(v)) if v.is_integer() else repr(v) for v in values.tolist())
    return values.tolist()

"""Trace files: read whatever their kind, told by their content; written in the common form or as plain CSV."""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from slurmsched import __version__, registry
from slurmsched.errors import InputError
from slurmsched.model.columns import Labels
from slurmsched.paths import draft_of, dropped
from slurmsched.replay.loaders.plain import COLUMNS, DELIMITERS
from slurmsched.replay.loaders.source import Head, Source
from slurmsched.replay.traces import Trace
from slurmsched.words import some

KIND = "traces"  # of plug-ins: entry points `slurmsched.traces`
CSV_NAMES = {"gpus": "num_gpus"}  # columns that the plain form calls otherwise


class Loader(Protocol):
    """What a trace plug-in offers: a frozen dataclass whose fields are its parameters."""

    def sniff(self, head: Head) -> bool:
        """Whether the file looks like one of this kind."""
        ...

    def read(self, source: Source) -> dict[str, Any]:
        """Columns by name (numpy arrays, Labels). Raises InputError where the file cannot be read."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A trace and what its file tells of it.

    origin_s: Unix time of submit_s = 0, NaN if the file has no calendar. utc_offset_s: what to add for the site's
    wall clock. warnings: what was left out.
    """

    trace: Trace
    kind: str = ""
    origin_s: float = math.nan
    utc_offset_s: float = 0.0
    warnings: tuple[str, ...] = ()


def load(path: Path, kind: str = "", parameters: Mapping[str, Any] | None = None, *, strict: bool = False) -> Recorded:
    """The trace of a file.

    kind: name of its loader, "" to tell it by content. strict: the first row that cannot be read raises InputError;
    else such rows are counted in the warnings. Raises InputError and ConfigError (unknown kind or parameter).
    """
    source = Source(path, strict=strict)
    kind = kind or sniff(source.head)
    loader: Loader = registry.make(KIND, kind, parameters, key="trace")
    columns = loader.read(source)
    jobs = len(columns["submit_s"])
    if source.rejected > jobs + source.dropped.total():
        raise source.fail(f"is hardly a trace of kind {kind}: most rows cannot be read, the first in "
                          f"{source.first_rejected}; name its kind with --kind")  # fmt: skip
    if not jobs:
        raise source.fail("; ".join(("holds no GPU job that ran", *source.warnings())))
    try:
        trace = Trace.of(**_from_zero(columns, source))
    except InputError as error:
        raise source.fail(error.message) from None
    return Recorded(trace, kind, source.origin_s, source.utc_offset_s, (*source.warnings(), *_early(trace, path)))


def sniff(head: Head) -> str:
    """The kind of a file by its name and first bytes. Raises InputError if no loader knows it."""
    for name in registry.names(KIND):
        if registry.make(KIND, name, key="trace").sniff(head):
            return name
    if not head.start:
        raise InputError("is empty", source=str(head.path))
    known = ", ".join(registry.names(KIND))
    raise InputError(f"is no trace of a known kind ({known}); {_wanting(head)}", source=str(head.path))


def _wanting(head: Head) -> str:
    """What to do about a file of no known kind: a table that is nearly our own is told what it lacks."""
    lacks = min(([name for name in COLUMNS if name not in head.columns(mark)] for mark in DELIMITERS), key=len)
    if len(lacks) > len(COLUMNS) / 2:
        return "name its kind with --kind"
    return (f"to be plain CSV it lacks {' and '.join(lacks)} ({', '.join(COLUMNS)}; docs/traces.md); else name its "
            "kind with --kind")  # fmt: skip


def _early(trace: Trace, path: Path) -> tuple[str, ...]:
    """A warning where jobs were recorded to begin before they came: what such a file tells of waits is wrong."""
    early_s = trace.submit_s - trace.start_s
    rows = np.flatnonzero(early_s > 0)
    if not rows.size:
        return ()
    worst = rows[np.argmax(early_s[rows])]
    return (f"{path}: {some(rows.size, 'job')} started before submission, job {trace.job_id[worst]} by "
            f"{early_s[worst]:,.0f} s, the most: those recorded waits are below 0",)  # fmt: skip


def _from_zero(columns: dict[str, Any], source: Source) -> dict[str, Any]:
    """The columns with the first submission at 0 if the file has a calendar; source.origin_s moves along."""
    if math.isnan(source.origin_s) or not source.origin_s + columns["submit_s"].min():
        return columns
    first_s = float(columns["submit_s"].min())
    source.origin_s += first_s
    moved = {name: columns[name] - first_s for name in ("submit_s", "start_s") if name in columns}
    return columns | moved


def check_ending(path: Path) -> None:
    """Raises InputError for a name that `save` would refuse."""
    if not path.name.endswith((".parquet", ".csv", ".csv.gz")):
        raise InputError("must end in .parquet, .csv or .csv.gz", source=str(path))


def save(path: Path, recorded: Recorded) -> None:
    """Write a trace, whole or not at all: parquet, or plain CSV if the name ends in .csv or .csv.gz.

    Raises InputError if the file cannot be written, or the name has another ending.
    """
    check_ending(path)
    from slurmsched.replay.loaders.parquet import write_parquet

    draft = draft_of(path)
    told = {"slurmsched": __version__, "kind": recorded.kind, "origin_s": repr(recorded.origin_s),
            "utc_offset_s": repr(recorded.utc_offset_s)}  # fmt: skip
    try:
        if path.name.endswith(".parquet"):
            write_parquet(draft, recorded.trace, told)
        else:
            draft.write_bytes(_csv(recorded.trace, packed=path.name.endswith(".gz")))
        draft.replace(path)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", source=str(path)) from error
    finally:
        dropped(draft)


def _csv(trace: Trace, *, packed: bool) -> bytes:
    """The plain form: the columns that say something, numbers so that they read back equal."""
    known = {name: values for name, values in trace.columns().items() if name in _NEEDED or _says(trace, name, values)}
    if "time_limit_s" in known:
        shown = np.where(trace.limit_known, trace.time_limit_s, math.nan)
        known["time_limit_s"] = shown
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([CSV_NAMES.get(name, name) for name in known])
    writer.writerows(zip(*(_texts(values) for values in known.values()), strict=True))
    text = file.getvalue().encode()
    return gzip.compress(text, mtime=0) if packed else text


_NEEDED = ("job_id", "gpus", "submit_s", "duration_s")


def _says(trace: Trace, name: str, values: Any) -> bool:
    """Whether a column holds more than its default."""
    if name in ("limit_known", "time_limit_s"):
        return name == "time_limit_s" and bool(trace.limit_known.any())
    if isinstance(values, Labels):
        return values.names not in ((), ("",))
    default = {"gpu_share": 1.0, "requeues": 0, "nodes": 0, "cpus": 0, "memory_mib": 0.0}.get(name, math.nan)
    return not np.array_equal(values, np.full(len(values), default), equal_nan=True)


def _texts(values: Any) -> Any:
    if isinstance(values, Labels):
        return values
    if values.dtype == np.float64:
        return ("" if math.isnan(v) else str(int(v)) if v.is_integer() else repr(v) for v in values.tolist())
    return values.tolist()

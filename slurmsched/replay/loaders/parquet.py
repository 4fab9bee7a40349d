"""The common form: one parquet file, one row a job, columns as in Trace."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.columns import Labels
from slurmsched.replay.loaders.rows import Columns
from slurmsched.replay.loaders.source import Head, Source
from slurmsched.replay.traces import Trace

MAGIC = b"PAR1"
NEEDED = ("job_id", "gpus", "submit_s", "duration_s")


@dataclass(frozen=True, slots=True)
class Parquet:
    """Columns of Trace by their names; time limits that the source did not tell are null."""

    def sniff(self, head: Head) -> bool:
        return head.start.startswith(MAGIC)

    def read(self, source: Source) -> Columns:
        """All columns that Trace knows. Raises InputError."""
        polars = import_polars(source.path)
        try:
            frame = polars.read_parquet(source.path)
            told = polars.read_parquet_metadata(source.path)
            source.origin_s = float(told.get("origin_s", "nan"))
            source.utc_offset_s = float(told.get("utc_offset_s", "0"))
            known = {spec.name: spec.metadata["dtype"] for spec in fields(Trace)}
            return {name: _column(frame[name], kind) for name, kind in known.items() if name in _checked(frame.columns)}
        except InputError as error:
            raise source.fail(error.message) from None
        except Exception as error:  # polars raises kinds of its own, and no common base for broken files
            raise source.fail(f"cannot be read as parquet: {error}") from error


def write_parquet(path: Path, trace: Trace, told: dict[str, str]) -> None:
    """Write the trace in the common form. told: file metadata. Raises InputError if it cannot be written."""
    polars = import_polars(path)
    limit_s = np.where(trace.limit_known, trace.time_limit_s, math.nan)
    columns = {name: _series(polars, name, values) for name, values in trace.columns().items() if name != "limit_known"}
    columns["time_limit_s"] = polars.Series("time_limit_s", limit_s).fill_nan(None)
    try:
        polars.DataFrame(list(columns.values())).write_parquet(path, metadata=told, compression="zstd")
    except OSError as error:
        raise InputError(f"cannot be written: {error}", source=str(path)) from error


def import_polars(path: Path) -> Any:
    """The module polars. Raises InputError naming the extra that installs it."""
    try:
        import polars
    except ImportError:
        needs = "parquet needs the package polars: pip install 'slurmsched[traces]' (plain CSV does not)"
        raise InputError(needs, source=str(path)) from None
    return polars


def _checked(columns: list[str]) -> list[str]:
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        raise InputError(f"has no column {', '.join(missing)}; a trace has {', '.join(NEEDED)}")
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

"""Databases that slurm2sql made of sacct."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from slurmsched.replay.loaders.rows import Columns, Job, RowLoader
from slurmsched.replay.loaders.sacct import job_of, joined
from slurmsched.replay.loaders.source import Head, Source

MAGIC = b"SQLite format 3\x00"
# sacct's field -> columns that hold it, the first that exists: older and newer releases of slurm2sql
FIELDS = {
    "JobIDRaw": ("JobIDRaw", "JobID"), "Submit": ("SubmitTS", "Submit"), "Start": ("StartTS", "Start"),
    "End": ("EndTS", "End"), "State": ("State",), "User": ("User",), "Account": ("Account",), "JobName": ("JobName",),
    "NNodes": ("NNodes",), "AllocTRES": ("AllocTRES",), "ReqTRES": ("ReqTRES",), "ReqGRES": ("ReqGRES",),
    "SubmitLine": ("SubmitLine",), "Run": ("Elapsed",), "Cluster": ("Cluster",),
    "GPUs": ("NGpus", "NGPU", "ReqGPUS", "ReqGPU"), "Limit": ("Timelimit",),
    "Step": ("StepID", "JobStep"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Slurm2Sql(RowLoader):
    """Table `slurm` of a SQLite file; steps are passed over. It holds one run a job: requeues are lost.

    Source: NordicHPC/slurm2sql.
    """

    calendar = True

    def sniff(self, head: Head) -> bool:
        return head.start.startswith(MAGIC)

    def records(self, source: Source) -> Iterator[tuple[int, Any]]:
        try:
            with closing(sqlite3.connect(f"file:{source.path.absolute()}?mode=ro", uri=True)) as database:
                yield from enumerate(((source, row) for row in _rows(database, source)), 1)
        except sqlite3.Error as error:
            raise source.fail(f"cannot be read as slurm2sql's database: {error}") from error

    def job(self, record: Any) -> Job:
        source, row = record
        fields = {name: _text(value) for name, value in row.items()}
        limit = row.get("Limit")
        fields["TimelimitRaw"] = str(round(float(limit) / 60)) if limit not in (None, "") else ""
        run = row.get("Run")
        fields |= {"ElapsedRaw": str(int(run))} if isinstance(run, int | float) else {"Elapsed": _text(run)}
        return job_of(fields, int(row["JobIDRaw"]), source)

    def finish(self, columns: Columns, source: Source) -> Columns:
        return joined(columns, source)


def _rows(database: sqlite3.Connection, source: Source) -> Iterator[dict[str, Any]]:
    known = {row[1] for row in database.execute("PRAGMA table_info(slurm)")}
    chosen = {name: next((each for each in columns if each in known), "") for name, columns in FIELDS.items()}
    missing = [name for name in ("JobIDRaw", "Submit", "Start", "End", "State", "Step") if not chosen[name]]
    if missing:
        raise source.fail(f"has no table `slurm` with {', '.join(missing)}; is it slurm2sql's?")
    names = [name for name, column in chosen.items() if column and name != "Step"]
    listed = ", ".join(f'"{chosen[name]}"' for name in names)
    for row in database.execute(f'SELECT {listed} FROM slurm WHERE "{chosen["Step"]}" IS NULL'):
        yield dict(zip(names, row, strict=True))


def _text(value: Any) -> str:
    """A value as sacct would print it: whole numbers without a point."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)

"""Readers of accounting that other programs exported: `sacct --json`, slurmrestd, and slurm2sql's databases."""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from slurmsched.errors import UnreadableError
from slurmsched.input_files import FileHead, InputFile, json_members
from slurmsched.model.trace_rows import Columns, RowLoader, TraceJob
from slurmsched.slurm.sacct_jobs import SacctLoader, SeenRuns, job_of, join_runs
from slurmsched.slurm.sacct_text import SACCT_MESSAGES, SHOWN
from slurmsched.slurm.slurm_json import json_names, json_number

LARGEST_COUNT = 1 << 62


@dataclass(frozen=True, slots=True)
class SacctJsonTrace(SacctLoader):
    """The list "jobs" of the answer, one job after the other; steps are passed over.

    Fields are those of the kind `sacct`. Times are Unix seconds. Users cannot write a job of their own into it. In a
    text of `sacct -P` they can, by a line break.

    cluster: of a file with several, the one to take; "" for all.
    """

    cluster: str = ""

    def sniff(self, head: FileHead) -> bool:
        text = next(
            ("\n".join(head.lines[at:]) for at, line in enumerate(head.lines) if not SACCT_MESSAGES.fullmatch(line)), ""
        )
        if text.lstrip().startswith("["):
            return '"submission"' in text and '"allocation_nodes"' in text
        return text.lstrip().startswith("{") and re.search(r'"jobs"\s*:\s*\[', text) is not None

    def records(self, source: InputFile) -> Iterator[tuple[int, Any]]:
        seen, found, others = SeenRuns(), False, list[str]()
        for line, name, value in json_members(source, "jobs", SACCT_MESSAGES):
            if name != "jobs":
                others += [name] * bool(name)
                _note_messages(name, value, source)
                continue
            found = True
            try:
                fields = fields_of(value)
            except (UnreadableError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                if isinstance(value, Mapping) and "job_state" in value:
                    raise source.fail("is the answer of squeue, which has no jobs that ended before; take "
                                      "sacct -aXD --json -S now-30days", line=line) from None  # fmt: skip
                source.reject(line, f"not a job of sacct --json ({type(error).__name__}: {str(error)[:SHOWN]})")
                continue
            if not self.cluster or fields["Cluster"] == self.cluster:
                yield line, (seen, source, fields)
        if not found and others:
            source.said.append("its list of jobs is empty")


# Over 30 lines: one line for each field of sacct.
def fields_of(job: Mapping[str, Any]) -> dict[str, str]:
    """sacct's fields of one job. Raises one of Python's errors of types and keys, or UnreadableError."""
    at, tres = job["time"], job.get("tres") or {}
    raw, state = _whole(job["job_id"]), job["state"]
    limit_min = json_number(at.get("limit"))
    limit = f"{limit_min:.0f}" if 0 < limit_min < math.inf else ""
    return {
        "Cluster": _text(job.get("cluster")),
        "JobID": _job_id_text(job, raw),
        "JobIDRaw": str(raw),
        "User": _text(job.get("user")) or _text((job.get("association") or {}).get("user")),
        "Account": _text(job.get("account")),
        "Partition": _text(job.get("partition")),
        "QOS": _text(job.get("qos")),
        "JobName": _text(job.get("name")),
        "State": json_names(state["current"]) if isinstance(state, Mapping) else json_names(state),
        "Submit": _time(at["submission"]),
        "Eligible": (_time(at["eligible"]) or "Unknown") if "eligible" in at else "",
        "Start": _time(at["start"]),
        "End": _time(at["end"]),
        "ElapsedRaw": "" if at.get("elapsed") is None else _time(at["elapsed"]) or "0",
        "Suspended": f"00:00:{json_number(at.get('suspended'), 0):.0f}",
        "TimelimitRaw": limit,
        "NNodes": f"{max(json_number(job.get('allocation_nodes'), 0), 0):.0f}",
        "AllocTRES": _tres(tres.get("allocated") or ()),
        "ReqTRES": _tres(tres.get("requested") or ()),
        "Constraints": _text(job.get("constraints")),
        "ArrayTaskLimit": f"{_running_tasks(job):.0f}",
        "SubmitLine": _text(job.get("submit_line")),
        "NodeList": _text(job.get("nodes")),
        "Licenses": _text(job.get("licenses")),
    }


def _job_id_text(job: Mapping[str, Any], raw: int) -> str:
    """JobID as sacct prints it: leader+offset of a heterogeneous job, array_task of a task, else the id."""
    het, array = job.get("het") or {}, job.get("array") or {}
    leader, offset = int(json_number(het.get("job_id"), 0)), json_number(het.get("job_offset"), 0)
    of_array, task = int(json_number(array.get("job_id"), 0)), json_number(array.get("task_id"))
    if leader:
        return f"{leader}+{offset:.0f}"
    return f"{of_array}_{task:.0f}" if of_array and not math.isnan(task) else str(raw)


def _running_tasks(job: Mapping[str, Any]) -> float:
    """How many tasks of its array may run at once, 0 = any number."""
    limits = (job.get("array") or {}).get("limits") or {}
    return max(json_number(((limits.get("max") or {}).get("running") or {}).get("tasks"), 0), 0)


def _whole(value: Any) -> int:
    found = json_number(value)
    if not found.is_integer() or not 0 < found < LARGEST_COUNT:
        raise ValueError(f"{value!r} is no job id")
    return int(found)


def _time(value: Any) -> str:
    """Unix seconds as text, "" where not set."""
    found = json_number(value)
    if not (found.is_integer() and found >= 0) and not math.isnan(found):
        raise ValueError(f"{value!r} is no time")
    return "" if math.isnan(found) or not found else str(int(found))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _tres(rows: Sequence[Mapping[str, Any]]) -> str:
    """A TRES list as sacct prints it; memory is in MiB. What is not counted (energy -2) is left out."""
    parts = list[str]()
    for row in rows:
        count, kind, name = json_number(row.get("count"), -1), _text(row["type"]), _text(row.get("name"))
        if 0 <= count < LARGEST_COUNT:
            parts.append(f"{kind}{f'/{name}' if name else ''}={count:.0f}")
    return ",".join(parts)


def _note_messages(name: str, value: Any, source: InputFile) -> None:
    """Errors and warnings that Slurm put into its answer."""
    if not name:
        source.said.append(f"sacct says so itself, and its answer may be cut: {str(value)[:SHOWN]!r}")
    if name not in ("errors", "warnings") or not isinstance(value, Sequence) or not value:
        return
    first = value[0]
    text = first.get("description") or first.get("error") if isinstance(first, Mapping) else first
    source.said.append(f"sacct printed {name} with its answer, which may be cut: {str(text)[:SHOWN]!r}")


# slurm2sql.

SQLITE_MAGIC = b"SQLite format 3\x00"
# sacct's field -> columns that hold it, the first that exists: older and newer releases of slurm2sql
SLURM2SQL_FIELDS = {
    "JobIDRaw": ("JobIDRaw", "JobID"), "Submit": ("SubmitTS", "Submit"), "Start": ("StartTS", "Start"),
    "End": ("EndTS", "End"), "State": ("State",), "User": ("User",), "Account": ("Account",), "JobName": ("JobName",),
    "NNodes": ("NNodes",), "AllocTRES": ("AllocTRES",), "ReqTRES": ("ReqTRES",), "ReqGRES": ("ReqGRES",),
    "SubmitLine": ("SubmitLine",), "Run": ("Elapsed",), "Cluster": ("Cluster",),
    "GPUs": ("NGpus", "NGPU", "ReqGPUS", "ReqGPU"), "Limit": ("Timelimit",),
    "Step": ("StepID", "JobStep"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Slurm2SqlTrace(RowLoader):
    """Table `slurm` of a SQLite file; steps are passed over. It holds one run a job: requeues are lost.

    Source: NordicHPC/slurm2sql.
    """

    calendar = True

    def sniff(self, head: FileHead) -> bool:
        return head.start.startswith(SQLITE_MAGIC)

    def records(self, source: InputFile) -> Iterator[tuple[int, Any]]:
        try:
            with closing(sqlite3.connect(f"file:{source.path.absolute()}?mode=ro", uri=True)) as database:
                yield from enumerate(((source, row) for row in _rows(database, source)), 1)
        except sqlite3.Error as error:
            raise source.fail(f"cannot be read as slurm2sql's database: {error}") from error

    def job(self, record: Any) -> TraceJob:
        source, row = record
        fields = {name: _sql_text(value) for name, value in row.items()}
        limit = row.get("Limit")
        fields["TimelimitRaw"] = str(round(float(limit) / 60)) if limit not in (None, "") else ""
        run = row.get("Run")
        fields |= {"ElapsedRaw": str(int(run))} if isinstance(run, int | float) else {"Elapsed": _sql_text(run)}
        return job_of(fields, int(row["JobIDRaw"]), source)

    def finish(self, columns: Columns, source: InputFile) -> Columns:
        return join_runs(columns, source)


def _rows(database: sqlite3.Connection, source: InputFile) -> Iterator[dict[str, Any]]:
    known = {row[1] for row in database.execute("PRAGMA table_info(slurm)")}
    chosen = {name: next((each for each in columns if each in known), "") for name, columns in SLURM2SQL_FIELDS.items()}
    missing = [name for name in ("JobIDRaw", "Submit", "Start", "End", "State", "Step") if not chosen[name]]
    if missing:
        raise source.fail(f"has no table `slurm` with {', '.join(missing)}; is it slurm2sql's?")
    names = [name for name, column in chosen.items() if column and name != "Step"]
    listed = ", ".join(f'"{chosen[name]}"' for name in names)
    for row in database.execute(f'SELECT {listed} FROM slurm WHERE "{chosen["Step"]}" IS NULL'):
        yield dict(zip(names, row, strict=True))


def _sql_text(value: Any) -> str:
    """A value as sacct would print it: whole numbers without a point."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)

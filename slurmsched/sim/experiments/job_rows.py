"""What became of each job, recorded and under each policy: rows for a file, or for one job."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.job_outcomes import JobOutcomes
from slurmsched.model.trace import RecordedTrace
from slurmsched.paths import draft_of, dropped
from slurmsched.sim.traces.trace_io import import_polars

RECORDED = "recorded"
COLUMNS = ("trace", "schedule", "job_id", "user", "account", "partition", "qos", "gpus", "submit_s", "eligible_s",
           "start_s", "end_s", "wait_s", "nodes", "node_list", "counted")  # fmt: skip
Rows = dict[str, list[Any]]  # column -> values


def job_rows(source: str, recorded: RecordedTrace, schedules: Sequence[tuple[str, JobOutcomes, Sequence[str]]]) -> Rows:
    """A row a job and schedule, in the order of the trace; times are Unix seconds where the trace has a calendar.

    schedules: name, outcomes, and node list of each job of the trace ("" = not known).
    start_s: of the first run. A job without a start in a schedule has empty times there.
    """
    parts = [_recorded_rows(recorded)] if bool((~np.isnan(recorded.trace.start_s)).any()) else []
    parts += [_scheduled(recorded, name, outcomes, lists) for name, outcomes, lists in schedules]
    rows = {name: [part[name] for part in parts] for name in COLUMNS[1:]}
    made = {name: [value for row in zip(*columns, strict=True) for value in row] for name, columns in rows.items()}
    return {"trace": [source] * (len(parts) * len(recorded.trace))} | made


def joined(parts: Sequence[Rows]) -> Rows:
    """The rows of several traces, one after the other."""
    return {name: [value for part in parts for value in part[name]] for name in COLUMNS}


def _recorded_rows(recorded: RecordedTrace) -> Rows:
    """The schedule of the trace. Of nodes it may tell the number only."""
    trace = recorded.trace
    times = {"start_s": trace.start_s, "end_s": trace.start_s + trace.duration_s}
    return _rows(recorded, RECORDED, times, trace.nodes.tolist(), list(trace.node_list))


def _scheduled(recorded: RecordedTrace, name: str, outcomes: JobOutcomes, lists: Sequence[str]) -> Rows:
    place = {job: row for row, job in enumerate(outcomes.job_id.tolist())}
    at = np.array([place.get(job, -1) for job in recorded.trace.job_id.tolist()], np.int64)
    times = {"start_s": np.append(outcomes.first_start_s, np.nan)[at], "end_s": np.append(outcomes.end_s, np.nan)[at]}
    from slurmsched.model.hostlists import expand_hostlist

    counts = {text: len(expand_hostlist(text)) if text else 0 for text in set(lists)}
    return _rows(recorded, name, times, [counts[text] for text in lists], list(lists))


def _rows(recorded: RecordedTrace, schedule: str, times: dict[str, Any], nodes: list[int], lists: list[str]) -> Rows:
    trace, origin_s = recorded.trace, 0.0 if math.isnan(recorded.origin_s) else recorded.origin_s
    wait_s = times["start_s"] - trace.submit_s
    made: Rows = {name: list(getattr(trace, name)) for name in ("user", "account", "partition", "qos")}
    made |= {name: getattr(trace, name).tolist() for name in ("job_id", "gpus", "counted")}
    moments = {
        "submit_s": trace.submit_s,
        "eligible_s": np.where(np.isnan(trace.eligible_s), trace.submit_s, trace.eligible_s),
        **times,
    }
    made |= {name: _numbers(values + origin_s) for name, values in moments.items()}
    return made | {"schedule": [schedule] * len(trace), "wait_s": _numbers(wait_s), "nodes": nodes, "node_list": lists}


def _numbers(values: Any) -> list[float | None]:
    """To the millisecond; None of what is not known."""
    return [None if math.isnan(value) else round(value, 3) for value in values.tolist()]


def of_job(rows: Rows, job_id: int, source: str) -> list[dict[str, Any]]:
    """The rows of one job. Raises InputError where the trace has no such job."""
    found = [place for place, job in enumerate(rows["job_id"]) if job == job_id]
    if not found:
        raise InputError(f"has no job {job_id} among those that are replayed", source=source)
    return [{name: values[place] for name, values in rows.items()} for place in found]


def check_schedule_name(path: Path) -> None:
    """Raises InputError for a name that `write_job_rows` would refuse."""
    if path.suffix not in (".csv", ".parquet"):
        raise InputError("must end in .csv or .parquet", source=str(path))


def write_job_rows(path: Path, rows: Rows) -> None:
    """Write them whole or not at all: parquet, or CSV. Raises InputError if the name or the file does not allow it."""
    check_schedule_name(path)
    draft = draft_of(path)
    try:
        if path.suffix == ".parquet":
            import_polars(path).DataFrame(rows).write_parquet(draft, compression="zstd")
        else:
            draft.write_text(_csv(rows), encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", source=str(path)) from error
    finally:
        dropped(draft)


def _csv(rows: Rows) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(rows)
    writer.writerows(zip(*rows.values(), strict=True))
    return file.getvalue()

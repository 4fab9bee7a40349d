"""Runs of GPU jobs that ended, as accounting tells them, and the file that keeps them from cycle to cycle."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from slurmsched.errors import UnreadableError
from slurmsched.model import Past
from slurmsched.model.columns import Floats, Int64s, Labels
from slurmsched.model.hints import parse_hints
from slurmsched.model.table import Table, column, text
from slurmsched.paths import create, draft_of
from slurmsched.replay.loaders.rows import Builder, Dropped
from slurmsched.replay.loaders.sacct import job_id_of, job_of, joined
from slurmsched.replay.loaders.source import Source
from slurmsched.slurm.history import DELIMITER
from slurmsched.slurm.text import time_s

FIELDS = (
    "JobID", "JobIDRaw", "User", "Account", "Partition", "State", "Submit", "Start", "End", "Suspended", "NNodes",
    "AllocTRES", "ReqTRES", "JobName", "SubmitLine", "Comment",
)  # fmt: skip
_VERSION = 1  # of the file's form


@dataclass(frozen=True, slots=True, eq=False)
class Runs(Table):
    """One row a run that ended. Columns as those of a Trace, times in Unix seconds; end_s: when it ended. (R,) each."""

    job_id: Int64s = column(np.int64, 0)
    gpus: Int64s = column(np.int64, 1)
    submit_s: Floats = column(np.float64, 0.0)
    start_s: Floats = column(np.float64, 0.0)
    end_s: Floats = column(np.float64, 0.0)
    duration_s: Floats = column(np.float64, 0.0)
    nodes: Int64s = column(np.int64, 0)
    cpus: Int64s = column(np.int64, 0)
    memory_mib: Floats = column(np.float64, 0.0)
    user: Labels = text()
    account: Labels = text()
    partition: Labels = text()
    name: Labels = text()
    model: Labels = text()
    gpu_type: Labels = text()
    state: Labels = text()


NO_RUNS = Runs.build(0, {})


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """All runs that ended within [since_s, until_s). refused_s: when accounting last did not answer, else -inf.
    span_s: what a call may ask for at a time."""

    since_s: float
    until_s: float
    span_s: float
    refused_s: float = -math.inf
    runs: Runs = NO_RUNS

    def with_span(self, found: Runs, start_s: float, end_s: float) -> Kept:
        """With all that ended within a span that touches what is known; what was known of that span is replaced."""
        known = self.runs.end_s
        outside = (known < start_s) | (known >= end_s)
        runs = self.runs.take(outside).followed_by(found)
        since_s, until_s = min(self.since_s, start_s), max(self.until_s, end_s)
        return replace(self, since_s=since_s, until_s=until_s, runs=runs, refused_s=-math.inf)

    def as_of(self, now_s: float) -> Kept:
        """With nothing known of times that are still to come, because the clock was set back: they are read anew."""
        if self.until_s <= now_s:
            return self
        return replace(self, since_s=min(self.since_s, now_s), until_s=now_s)

    def bounded(self, oldest_s: float, rows: int) -> Kept:
        """With what ended at oldest_s or later, and of that the last `rows`; since_s moves along."""
        made = replace(self, runs=self.runs.take(self.runs.end_s >= oldest_s))
        if len(made.runs) <= rows:
            return made
        last = made.runs.take(np.sort(np.argsort(made.runs.end_s, kind="stable")[-rows:]))
        return replace(made, runs=last, since_s=float(last.end_s.min()) + 1)


def read_runs(rows: Sequence[str]) -> tuple[Runs, int]:
    """The runs of GPU jobs in sacct's rows of FIELDS, and how many rows could not be read."""
    builder, ends, unread = Builder(), list[float](), 0
    for row in rows:
        values = row.split(DELIMITER)
        told = dict(zip(FIELDS, values, strict=False))
        try:
            if len(values) != len(FIELDS):
                raise ValueError(row)
            model = parse_hints(told["Comment"]).model or ""
            builder.add(job_of(told, job_id_of(told, {}))._replace(model=model))
            ends.append(time_s(told["End"]))
        except Dropped:
            pass
        except (ValueError, OverflowError, UnreadableError):
            unread += 1
    columns = builder.columns()
    wanted = {spec.name: columns[spec.name] for spec in fields(Runs) if spec.name in columns}
    return Runs.build(len(ends), wanted | {"end_s": ends}), unread


def past_of(runs: Runs) -> Past:
    """The jobs of these runs that are over: the runs of a requeued job together, where all of them are there.

    Those that ran 0 s are left out: they tell nothing of how long a job runs.
    """
    columns: dict[str, Any] = {spec.name: getattr(runs, spec.name) for spec in fields(Runs)}
    jobs = joined(columns | {"requeues": np.zeros(len(runs), np.int64)}, Source(Path("sacct")))
    made = {spec.name: jobs[spec.name] for spec in fields(Past) if spec.name in jobs}
    made["executed_s"], made["attained_gpu_s"] = jobs["duration_s"], jobs["duration_s"] * jobs["gpus"]
    past = Past.build(len(jobs["job_id"]), made | {"completed": jobs["state"].isin(("COMPLETED",))})
    order = np.lexsort((past.job_id, past.end_s))
    return past.take(order[past.executed_s[order] > 0])


def save(path: Path, kept: Kept) -> None:
    """Write it, whole or not at all. Raises OSError."""
    columns: dict[str, Any] = {"about": np.array([_VERSION, kept.since_s, kept.until_s, kept.span_s, kept.refused_s])}
    for spec in fields(Runs):
        values = getattr(kept.runs, spec.name)
        if isinstance(values, Labels):
            columns[f"{spec.name}.names"] = np.frombuffer(orjson.dumps(values.names), np.uint8)
            values = values.codes
        columns[spec.name] = values
    draft = draft_of(path)
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        with create(draft, 0o640) as file:
            np.savez(file, **columns)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def load(path: Path) -> Kept | None:
    """What save wrote; None where there is no such file, or none of this form."""
    try:
        with np.load(path, allow_pickle=False) as file:
            version, since_s, until_s, span_s, refused_s = file["about"].tolist()
            columns = {spec.name: _column(file, spec.name) for spec in fields(Runs)}
        runs = Runs.build(len(columns["job_id"]), columns)
        return Kept(since_s, until_s, span_s, refused_s, runs) if version == _VERSION else None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _column(file: Any, name: str) -> Any:
    """A column of the file. Raises ValueError for codes without a name."""
    values = file[name]
    if f"{name}.names" not in file:
        return values
    names = tuple(orjson.loads(file[f"{name}.names"].tobytes()))
    if len(values) and not 0 <= values.min() <= values.max() < len(names):
        raise ValueError(f"{name} has codes without a name")
    return Labels(values, names)

"""All that is on record of one job: every write and operation with its reason, from ledger, journal and record of
operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from slurmsched.config import Config
from slurmsched.db import database as engines
from slurmsched.db import schema
from slurmsched.db.leader_lease import LeaderLease, SharedLines
from slurmsched.db.operation_log import OperationLog
from slurmsched.db.override_log import OverrideLog
from slurmsched.db.signal_log import SignalLog
from slurmsched.errors import LedgerError
from slurmsched.model.job_details import HistoryRow, JobDetails

WAITS = 1000  # latest first starts that are used
SHOWN = 20  # latest writes and operations of slurmsched
PAGE_S = 2.0  # patience of who waits for a page


@dataclass(frozen=True, slots=True)
class LedgerPlace:
    """Where records are.

    shared: [leader] is on, and hosts share operations and intentions in the database.
    patience_s: how long a server's answer is waited for [s], None = as for a cycle.
    """

    url: str
    journal: Path
    shared: bool = False
    patience_s: float | None = None

    @classmethod
    def of(cls, config: Config, patience_s: float | None = None) -> LedgerPlace:
        """As configured."""
        return cls(config.ledger.address, config.ledger.journal, config.leader.enabled, patience_s)


def history_of_job(at: LedgerPlace, job_id: int) -> tuple[list[HistoryRow], list[str]]:
    """The rows, oldest first; and what could not be read. Nothing is written."""
    rows, _, unread = _recorded(at, job_id)
    return rows, unread


def past_of_job(at: LedgerPlace, job_id: int, gpus: int) -> JobDetails:
    """What slurmsched did to the job last, and whether it waits since we requeued it.

    Also how long jobs of the same power of two of GPUs waited. What could not be read is named in the result.
    """
    rows, waits_s, unread = _recorded(at, job_id, gpus)
    lines = [row.line for row in rows if row.by.startswith("slurmsched")]
    before = [f"{len(lines) - SHOWN} more before that: slurmsched history {job_id}"] if len(lines) > SHOWN else []
    return JobDetails(
        ours=(*before, *lines[-SHOWN:]), requeued=_requeued_last(rows), waits_s=waits_s, unread=tuple(unread)
    )


def _recorded(
    at: LedgerPlace, job_id: int, gpus: int | None = None
) -> tuple[list[HistoryRow], tuple[float, ...], list[str]]:
    """History, waits where gpus are given, and what could not be read.

    All questions to the database share a connection, and none follows one that failed.
    """
    rows, waits_s, unread = list[HistoryRow](), list[float](), list[str]()
    readers: dict[str, Callable[[Engine], object]] = {
        "writes and changes by others": lambda engine: rows.extend(_ledger(engine, job_id)),
        "runs and operations": lambda engine: rows.extend(_runs_and_operations(engine, job_id)),
    }
    if gpus is not None:
        readers["past waits"] = lambda engine: waits_s.extend(first_waits(engine, gpus))
    if at.shared:
        readers["what hosts share"] = lambda engine: rows.extend(_shared(engine, at.journal, job_id, rows))
    try:
        with _opened(at) as engine:
            for what in tuple(readers):
                readers[what](engine)
                del readers[what]
    except LedgerError as error:
        unread.append(f"{', '.join(readers)}: {error}")
    try:
        if not at.shared:  # else a file of this host would tell of operations of a time before that
            rows += _in_files(OverrideLog(at.journal), OperationLog(at.journal), job_id, rows)
        rows += SignalLog(at.journal).rows(job_id)  # of this host, which sent them
    except (LedgerError, OSError) as error:
        unread.append(f"the journal: {error}")
    return sorted(rows, key=lambda row: row.time_s), tuple(waits_s), unread


@contextmanager
def _opened(at: LedgerPlace) -> Iterator[Engine]:
    engine = engines.open_engine(at.url, read_only=True, patience_s=at.patience_s)
    try:
        yield engine
    finally:
        engine.dispose()


def _shared(engine: Engine, journal: Path, job_id: int, rows: list[HistoryRow]) -> list[HistoryRow]:
    """As _in_files, of the lines that all hosts see. Reading them takes no lease."""
    lease = LeaderLease(engine, "", 0.0)
    files = (SharedLines(engine, lease, file) for file in ("journal", "operations"))
    return _in_files(OverrideLog(journal, shared=next(files)), OperationLog(journal, shared=next(files)), job_id, rows)


def _in_files(journal: OverrideLog, operations: OperationLog, job_id: int, rows: list[HistoryRow]) -> list[HistoryRow]:
    """What the ledger, whose rows these are, does not have. Raises LedgerError, OSError."""
    return [*_unfinished(journal, job_id, rows), *_open_operations(operations, job_id)]


def _requeued_last(rows: list[HistoryRow]) -> bool:
    """Whether we requeued the job, and it has not run since. rows: of its history, oldest first."""
    requeued = False
    for row in rows:
        if row.what == "requeue" and row.outcome == "written":
            requeued = True
        elif row.by == "Slurm" and " began on " in row.what:
            requeued = False
    return requeued


def first_waits(engine: Engine, gpus: int) -> tuple[float, ...]:
    """How long jobs of the same power of two of GPUs waited for their first start [s]. Raises LedgerError."""
    low = 1 << max(gpus.bit_length() - 1, 0) if gpus else 0
    starts = schema.run_starts
    query = (
        sa.select(starts.c.start_s, starts.c.first_submit_s)
        .where(starts.c.run == 0, starts.c.gpus >= low, starts.c.gpus < max(2 * low, 1))
        .order_by(starts.c.start_s.desc())
        .limit(WAITS)
    )
    return tuple(row["start_s"] - row["first_submit_s"] for row in _answers(engine, query))


def _answers(engine: Engine, query: sa.Select[Any]) -> list[dict[str, Any]]:
    with engines.ledger_errors(engine), engine.connect() as connection:
        return [dict(row) for row in connection.execute(query).mappings()]


def _ledger(engine: Engine, job_id: int) -> Iterator[HistoryRow]:
    actions, cycles, changes = schema.actions, schema.cycles, schema.outside_changes
    query = sa.select(actions, cycles.c.recorded_s, cycles.c.policy).join(cycles, cycles.c.id == actions.c.cycle_id)
    for row in _answers(engine, query.where(actions.c.job_id == job_id)):
        what = row["kind"] if row["new"] is None else f"{row['kind']} {row['old']} -> {row['new']}"
        outcome = ": ".join(text for text in (row["outcome"], row["message"]) if text)
        yield HistoryRow(row["recorded_s"], f"slurmsched ({row['policy']})", what, row["reason"], outcome)
    for row in _answers(engine, sa.select(changes).where(changes.c.job_id == job_id)):
        what = f"{row['field']} was {row['found']} where slurmsched had left {row['expected']}"
        yield HistoryRow(row["seen_s"], "somebody else", what, row["cause"])


def _runs_and_operations(engine: Engine, job_id: int) -> Iterator[HistoryRow]:
    starts, ends, operations = schema.run_starts, schema.run_ends, schema.operations
    runs = list[tuple[int, HistoryRow]]()
    for row in _answers(engine, sa.select(starts).where(starts.c.job_id == job_id)):
        what = f"run {row['run']} began on {row['gpus']:g} GPUs"
        runs.append((row["run"], HistoryRow(row["start_s"], "Slurm", what)))
    for row in _answers(engine, sa.select(ends).where(ends.c.job_id == job_id)):
        what = f"run {row['run']} ended after {row['executed_s']:.0f} s"
        runs.append((row["run"], HistoryRow(row["end_s"], "Slurm", what, outcome=row["source"])))
    yield from (row for _, row in sorted(runs, key=lambda one: one[0]))  # within a second a run ends before the next
    for row in _answers(engine, sa.select(operations).where(operations.c.job_id == job_id)):
        by = "slurmsched (dry-run)" if row["dry_run"] else "slurmsched"
        yield HistoryRow(
            row["seen_s"], by, f"{row['purpose']} {row['operation']} on {row['nodes']}: {row['stage']}", row["note"]
        )


def _unfinished(journal: OverrideLog, job_id: int, known: list[HistoryRow]) -> Iterator[HistoryRow]:
    """Intentions of the journal that the ledger does not have: of a cycle that was cut, or of a lost ledger."""
    have, added = {(row.what, row.reason) for row in known}, list[HistoryRow]()
    for line in journal.lines(lenient=True):
        if line["event"] == "override" and "old" in line and line["job_id"] == job_id:
            row = HistoryRow(line.get("time_s", 0.0), "slurmsched (journal)",
                       f"{line['field']} {line['old']} -> {line['sent']}", line.get("reason", ""))  # fmt: skip
            if (row.what, row.reason) not in have and row not in added:  # our own are among the shared ones too
                added.append(row)
                yield row


def _open_operations(operations: OperationLog, job_id: int) -> Iterator[HistoryRow]:
    """Operations under way that take from this job; those for it are in the ledger."""
    for operation in operations.known():
        if any(victim.job_id == job_id for victim in operation.victims):
            what = f"{operation.purpose} {operation.id} takes its GPUs for job {operation.job_id}"
            yield HistoryRow(operation.begun_s, "slurmsched", what, operation.note, str(operation.stage))

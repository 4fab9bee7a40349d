"""All that is on record of one job: every write and act with its reason, from ledger, journal and record of acts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from slurmsched.db import schema
from slurmsched.db.acts import ActLog
from slurmsched.db.journal import Journal
from slurmsched.db.reports import query_rows
from slurmsched.errors import LedgerError
from slurmsched.explain.facts import Facts

WAITS = 1000  # latest first starts that are looked at


def history(url: str, journal: Path | None, job_id: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows oldest first: time_s, by, what, reason, outcome; and what could not be read. Nothing is written.

    journal: None where several hosts may lead: a file of this host would tell of a time before that.
    """
    unread, rows = list[str](), list[dict[str, Any]]()
    ledger = {"writes and changes by others": _ledger, "runs and acts": _runs_and_acts}
    for what, read in ledger.items():
        try:
            rows += read(url, job_id)
        except LedgerError as error:
            unread.append(f"{what}: {error}")
    try:
        rows += [*_unfinished(journal, job_id, rows), *_open_acts(journal, job_id)] if journal else []
    except (LedgerError, OSError) as error:
        unread.append(f"the journal: {error}")
    if journal is None:
        unread.append("writes and acts under way: with a leader they are in the database, and not looked for there")
    return sorted(rows, key=lambda row: float(row["time_s"])), unread


def ours(url: str, journal: Path | None, job_id: int) -> Facts:
    """What slurmsched did to the job, and whether it waits since we requeued it; what could not be read is told."""
    rows, unread = history(url, journal, job_id)
    lines = tuple(in_words(row) for row in rows if row["by"].startswith("slurmsched"))
    return Facts(ours=lines, requeued=_requeued_last(rows), unread=tuple(unread))


def _requeued_last(rows: list[dict[str, Any]]) -> bool:
    """Whether we requeued the job, and it has not run since. rows: of its history, oldest first."""
    requeued = False
    for row in rows:
        if row["what"] == "requeue" and row["outcome"] == "written":
            requeued = True
        elif row["by"] == "Slurm" and " began on " in row["what"]:
            requeued = False
    return requeued


def waits_known(url: str, gpus: int) -> tuple[float, ...]:
    """As first_waits; none where the ledger does not answer."""
    try:
        return first_waits(url, gpus)
    except LedgerError:
        return ()


def first_waits(url: str, gpus: int) -> tuple[float, ...]:
    """How long jobs of the same power of two of GPUs waited for their first start [s]. Raises LedgerError."""
    low = 1 << max(gpus.bit_length() - 1, 0) if gpus else 0
    starts = schema.run_starts
    query = (
        sa.select(starts.c.start_s, starts.c.first_submit_s)
        .where(starts.c.run == 0, starts.c.gpus >= low, starts.c.gpus < max(2 * low, 1))
        .order_by(starts.c.start_s.desc())
        .limit(WAITS)
    )
    return tuple(row["start_s"] - row["first_submit_s"] for row in query_rows(url, query))


def in_words(row: dict[str, Any]) -> str:
    """One row as a line."""
    when = f"{datetime.fromtimestamp(row['time_s']):%Y-%m-%dT%H:%M:%S}"
    tail = "".join(f" ({row[key]})" for key in ("reason", "outcome") if row[key])
    return f"{when} {row['by']}: {row['what']}{tail}"


def _row(time_s: float, by: str, what: str, reason: str = "", outcome: str = "") -> dict[str, Any]:
    return {"time_s": time_s, "by": by, "what": what, "reason": reason, "outcome": outcome}


def _ledger(url: str, job_id: int) -> Iterator[dict[str, Any]]:
    actions, cycles, changes = schema.actions, schema.cycles, schema.lever_changes
    query = sa.select(actions, cycles.c.recorded_s, cycles.c.policy).join(cycles, cycles.c.id == actions.c.cycle_id)
    for row in query_rows(url, query.where(actions.c.job_id == job_id)):
        what = row["kind"] if row["new"] is None else f"{row['kind']} {row['old']} -> {row['new']}"
        outcome = ": ".join(text for text in (row["outcome"], row["message"]) if text)
        yield _row(row["recorded_s"], f"slurmsched ({row['policy']})", what, row["reason"], outcome)
    for row in query_rows(url, sa.select(changes).where(changes.c.job_id == job_id)):
        what = f"{row['kind']} was {row['found']} where slurmsched had left {row['expected']}"
        yield _row(row["seen_s"], "somebody else", what, row["cause"])


def _runs_and_acts(url: str, job_id: int) -> Iterator[dict[str, Any]]:
    starts, ends, acts = schema.run_starts, schema.run_ends, schema.acts
    for row in query_rows(url, sa.select(starts).where(starts.c.job_id == job_id)):
        yield _row(row["start_s"], "Slurm", f"run {row['run']} began on {row['gpus']} GPUs")
    for row in query_rows(url, sa.select(ends).where(ends.c.job_id == job_id)):
        what = f"run {row['run']} ended after {row['executed_s']:.0f} s"
        yield _row(row["end_s"], "Slurm", what, outcome=row["source"])
    for row in query_rows(url, sa.select(acts).where(acts.c.job_id == job_id)):
        by = "slurmsched (dry-run)" if row["dry_run"] else "slurmsched"
        yield _row(row["seen_s"], by, f"{row['purpose']} {row['act']} on {row['nodes']}: {row['stage']}", row["note"])


def _unfinished(journal: Path, job_id: int, known: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Intentions of the journal that the ledger does not have: of a cycle that was cut, or of a lost ledger."""
    have = {(row["what"], row["reason"]) for row in known}
    for line in Journal(journal).lines(lenient=True):
        if line["event"] == "intend" and line["job_id"] == job_id:
            row = _row(line.get("time_s", 0.0), "slurmsched (journal)",
                       f"{line['kind']} {line.get('old')} -> {line['new']}", line.get("reason", ""))  # fmt: skip
            if (row["what"], row["reason"]) not in have:
                yield row


def _open_acts(journal: Path, job_id: int) -> Iterator[dict[str, Any]]:
    """Acts under way that take from this job; those for it are in the ledger."""
    for act in ActLog(journal).known():
        if any(victim.job_id == job_id for victim in act.victims):
            what = f"{act.purpose} {act.id} takes its GPUs for job {act.job_id}"
            yield _row(act.begun_s, "slurmsched", what, act.note, str(act.stage))

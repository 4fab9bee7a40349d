"""`history`: all that happened to a job, by whom and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from slurmsched.cli import completers, framework
from slurmsched.cli.framework import ANSWER_NO, JobId, Output, clock, complain, read_config
from slurmsched.cli.listing import Choice, Column, Listing, listed

if TYPE_CHECKING:
    from slurmsched.model.job_details import HistoryRow


def _shown_text(text: str) -> str:
    from slurmsched.observe.explain.wording import printable

    return printable(text)


LISTING = Listing(
    (
        Column("time", "time_s", "time", text=clock),
        Column("by", "by", "by", text=_shown_text),
        Column("what", "what", "what", text=_shown_text),
        Column("reason", "reason", "reason", "r", text=_shown_text),
        Column("outcome", "outcome", "outcome", text=_shown_text),
    )
)


@framework.examples(
    ("slurmsched history 4711", "All that slurmsched did to job 4711."),
    ("slurmsched history 4711 --sort=-time -o time,what,reason", "The latest first."),
)
@framework.command("history")
@click.argument("job", type=JobId(), shell_complete=completers.squeue("A"))
@listed(LISTING)
def command(out: Output, job: int, choice: Choice) -> int:
    """List all recorded writes, preemptions and runs of a job.

    The latest is last. JOB is a job id; an array task that has started has an id of its own. Reads the ledger and
    the journal. Users who may not read these get what Slurm's accounting shows them of the job: its runs, and what
    slurmsched wrote to its AdminComment. Exit code 10: nothing is on record.
    """
    from slurmsched.slurm.accounted_history import history_of

    tree = read_config(plugins=False)
    rows, unread, notes = history_of(tree, job)
    if out.as_json:
        ordered = LISTING.ordered(rows, choice.sort)
        out.json({"job_id": job, "history": ordered, "unread": unread, "notes": notes}, schema="history")
    else:
        _print(out, job, rows, unread, notes, choice)
    return _exit_code(rows, unread)


def _print(out: Output, job: int, rows: list[HistoryRow], unread: list[str], notes: list[str], choice: Choice) -> None:
    if rows or choice.plain:
        LISTING.show(out, rows, choice)
    else:
        out.line(f"nothing is on record of job {job}" + (" in what could be read" if unread else ""))
    for line in unread:
        if choice.plain:
            complain(f"not read: {_shown_text(line)}")
        else:
            out.line(f"not read: {_shown_text(line)}", "warning")
    out.notes(notes, (), plain=choice.plain)


def _exit_code(rows: list[HistoryRow], unread: list[str]) -> int:
    """Of an outage, of an answer that is "nothing", or 0."""
    from slurmsched.errors import LedgerError

    return LedgerError.exit_code if unread else 0 if rows else ANSWER_NO

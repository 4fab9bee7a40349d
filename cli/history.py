"""`history`: all that happened to a job, by whom and why."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import completers, framework
from slurmsched.cli.framework import ANSWER_NO, JobId, Output, clock, complain, read_config
from slurmsched.cli.listing import Choice, Column, Listing, listed

if TYPE_CHECKING:
    from slurmsched.config import Config

SQLITE = "sqlite:///"
Rows = list[dict[str, Any]]
BY_ACCOUNTING = (
    "the ledger is not here or closed to you: these are the runs, and what the AdminComment says (docs/users.md)"
)


def _shown(text: str) -> str:
    from slurmsched.observe.explain.wording import printable

    return printable(text)


LISTING = Listing(
    (
        Column("time", "time_s", "time", text=clock),
        Column("by", "by", "by", text=_shown),
        Column("what", "what", "what", text=_shown),
        Column("reason", "reason", "reason", "r", text=_shown),
        Column("outcome", "outcome", "outcome", text=_shown),
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

    The latest comes last. JOB is a job id; an array task that has started has an id of its own. Reads the ledger and
    the journal. Users who may not read these get what Slurm's accounting shows them of the job: its runs, and what
    slurmsched wrote to its AdminComment. Exit code 10: nothing is on record.
    """
    tree = read_config(plugins=False)
    rows, unread, notes = job_history(tree, job)
    if out.as_json:
        ordered = [dict(row) for row in LISTING.ordered(rows, choice.sort)]
        out.json({"job_id": job, "history": ordered, "unread": unread, "notes": notes}, schema="history")
    else:
        _print(out, job, rows, unread, notes, choice)
    return _exit_code(rows, unread)


def job_history(tree: Config, job: int) -> tuple[Rows, list[str], list[str]]:
    """Rows, what could not be read, and notes. Raises SlurmError where accounting is all there is, and is away."""
    if may_read(tree):
        from slurmsched.db.job_history import LedgerPlace, history_of_job

        return *history_of_job(LedgerPlace.of(tree), job), []
    from slurmsched.errors import SlurmError
    from slurmsched.slurm.accounted_history import accounted_history
    from slurmsched.slurm.reader import open_commands

    try:
        return accounted_history(open_commands(tree.slurm), job), [], [BY_ACCOUNTING]
    except SlurmError as error:
        away = f"the ledger is not here or closed to you, and Slurm's accounting gave no answer: {error}"
        raise SlurmError(away) from error


def may_read(tree: Config) -> bool:
    """Whether this user may read the record: the journal, and a ledger that is a file.

    Where neither file is there, only who may make them has a record: on a login node it is on another host.
    """
    in_file = tree.ledger.url.startswith(SQLITE)
    files = [tree.ledger.journal, *([Path(tree.ledger.url.removeprefix(SQLITE))] if in_file else [])]
    if not all(map(_readable, files)):
        return False
    return not in_file or any(file.exists() or os.access(file.parent, os.W_OK) for file in files)


def _readable(file: Path) -> bool:
    """True for a file that is not there yet, too."""
    try:
        file.stat()
    except PermissionError:
        return False
    except OSError:
        return True
    return os.access(file, os.R_OK)


def _print(out: Output, job: int, rows: Rows, unread: list[str], notes: list[str], choice: Choice) -> None:
    if rows or choice.plain:
        LISTING.show(out, rows, choice)
    else:
        out.line(f"nothing is on record of job {job}" + (" in what could be read" if unread else ""))
    for line in unread:
        if choice.plain:
            complain(f"not read: {_shown(line)}")
        else:
            out.line(f"not read: {_shown(line)}", "warning")
    out.notes(notes, (), plain=choice.plain)


def _exit_code(rows: Rows, unread: list[str]) -> int:
    """Of an outage, of an answer that is "nothing", or 0."""
    from slurmsched.errors import LedgerError

    return LedgerError.exit_code if unread else 0 if rows else ANSWER_NO

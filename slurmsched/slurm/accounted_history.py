"""What happened to one job: by the ledger, or for users without rights to it by Slurm's accounting.

Slurm decides what a user may see of accounting.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from math import isfinite
from pathlib import Path

from slurmsched.config import Config
from slurmsched.errors import SlurmError, UnreadableError
from slurmsched.model.job_details import HistoryRow
from slurmsched.model.plan import SetAdminComment
from slurmsched.model.slurm_text import time_s, whole_number
from slurmsched.planning.admin_comments import PREFIX
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.reader import open_commands
from slurmsched.slurm.squeue import fresh_mark

SQLITE = "sqlite:///"
BY_ACCOUNTING = (
    "the ledger is not here or closed to you: these are the runs, and what the AdminComment says (docs/users.md)"
)
FIELDS = ("JobIDRaw", "User", "Submit", "Start", "End", "State", "NodeList", SetAdminComment.option)
_AT = re.compile(r"\b(\d{4}-\d\d-\d\dT\d\d:\d\d)Z")


def history_of(config: Config, job: int) -> tuple[list[HistoryRow], list[str], list[str]]:
    """Rows, what could not be read, and notes. Raises SlurmError where accounting is all there is, and is away."""
    if may_read_ledger(config):
        from slurmsched.db.job_history import LedgerPlace, history_of_job

        return *history_of_job(LedgerPlace.of(config), job), []
    try:
        return accounted_history(open_commands(config.slurm), job), [], [BY_ACCOUNTING]
    except SlurmError as error:
        away = f"the ledger is not here or closed to you, and Slurm's accounting gave no answer: {error}"
        raise SlurmError(away) from error


def may_read_ledger(config: Config) -> bool:
    """Whether this user may read the record: the journal, and a ledger that is a file.

    Where neither file is there, only who may make them has a record: on a login node it is on another host.
    """
    in_file = config.ledger.url.startswith(SQLITE)
    files = [config.ledger.journal, *([Path(config.ledger.url.removeprefix(SQLITE))] if in_file else [])]
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


def accounted_history(commands: Commands, job_id: int) -> list[HistoryRow]:
    """Rows as of db.job_history, oldest first: the job's runs, and what its AdminComment says that slurmsched did.

    Of a job id that was used again the latest job counts. Raises SlurmError.
    """
    mark = fresh_mark()
    options = ("-X", "-D", "-n", "-p", f"--delimiter={mark}", "-j", str(job_id), "-o", ",".join(FIELDS))
    fields = commands.run("sacct", *options).split(mark)
    if len(fields) % len(FIELDS) != 1:
        raise UnreadableError("sacct printed other fields than it was asked for", text="|".join(fields[:9])[:200])
    records = [dict(zip(FIELDS, map(str.strip, fields[at : at + len(FIELDS)]), strict=True))
               for at in range(0, len(fields) - 1, len(FIELDS))]  # fmt: skip
    mine = [record for record in records if whole_number(record["JobIDRaw"]) == job_id]
    mine.sort(key=lambda record: time_s(record["Submit"]))
    mine = [record for record in mine if record["User"] == mine[-1]["User"]]
    rows = [row for run, record in enumerate(mine) for row in (*_run(run, record), *_done(record))]
    once = {(row.by, row.what): row for row in reversed(rows)}  # a text is repeated in the next record
    return sorted(once.values(), key=lambda row: (row.time_s, row.by != "Slurm"))


def _run(run: int, record: dict[str, str]) -> Iterator[HistoryRow]:
    """Its begin and end, as far as it has come."""
    start_s, end_s = time_s(record["Start"]), time_s(record["End"])
    if isfinite(start_s):
        yield HistoryRow(start_s, "Slurm", f"run {run} began on {record['NodeList']}")
        if isfinite(end_s):
            yield HistoryRow(end_s, "Slurm", f"run {run} ended after {end_s - start_s:.0f} s", outcome=record["State"])


def _done(record: dict[str, str]) -> Iterator[HistoryRow]:
    """The parts of a text of slurmsched, each at the time that it names, else at that of the submission."""
    text, submit_s = record[SetAdminComment.option], time_s(record["Submit"])
    for part in text.removeprefix(PREFIX).split("; ") if text.startswith(PREFIX) else ():
        at = _AT.search(part) if part.startswith("requeued") else None
        minute_s = _minute_s(at[1], submit_s) if at else submit_s
        # The text has minutes; the submission after that requeue has its seconds.
        yield HistoryRow(submit_s if minute_s <= submit_s < minute_s + 60 else minute_s, "slurmsched", part)


def _minute_s(text: str, otherwise: float) -> float:
    """A time of one of our texts [Unix s]; `otherwise` for one that is none, as somebody may have written it."""
    try:
        return time_s(f"{text}+00:00")
    except UnreadableError:
        return otherwise

"""What Slurm's accounting has of one job, for users without rights to the ledger. Slurm decides what they may see."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite
from typing import Any

from slurmsched.errors import UnreadableError
from slurmsched.model.plan import SetAdminComment
from slurmsched.model.slurm_text import time_s, whole_number
from slurmsched.planning.admin_comments import PREFIX
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.squeue import fresh_mark

FIELDS = ("JobIDRaw", "User", "Submit", "Start", "End", "State", "NodeList", SetAdminComment.option)
_AT = re.compile(r"\b(\d{4}-\d\d-\d\dT\d\d:\d\d)Z")


def accounted_history(commands: Commands, job_id: int) -> list[dict[str, Any]]:
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
    once = {(row["by"], row["what"]): row for row in reversed(rows)}  # a text is repeated in the next record
    return sorted(once.values(), key=lambda row: (float(row["time_s"]), row["by"] != "Slurm"))


def _row(at_s: float, by: str, what: str, outcome: str = "") -> dict[str, Any]:
    return {"time_s": at_s, "by": by, "what": what, "reason": "", "outcome": outcome}


def _run(run: int, record: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Its begin and end, as far as it has come."""
    start_s, end_s = time_s(record["Start"]), time_s(record["End"])
    if isfinite(start_s):
        yield _row(start_s, "Slurm", f"run {run} began on {record['NodeList']}")
        if isfinite(end_s):
            yield _row(end_s, "Slurm", f"run {run} ended after {end_s - start_s:.0f} s", record["State"])


def _done(record: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The parts of a text of slurmsched, each at the time that it names, else at that of the submission."""
    text, submit_s = record[SetAdminComment.option], time_s(record["Submit"])
    for part in text.removeprefix(PREFIX).split("; ") if text.startswith(PREFIX) else ():
        at = _AT.search(part) if part.startswith("requeued") else None
        minute_s = _minute_s(at[1], submit_s) if at else submit_s
        # The text has minutes; the submission after that requeue has its seconds.
        yield _row(submit_s if minute_s <= submit_s < minute_s + 60 else minute_s, "slurmsched", part)


def _minute_s(text: str, otherwise: float) -> float:
    """A time of one of our texts [Unix s]; `otherwise` for one that is none, as somebody may have written it."""
    try:
        return time_s(f"{text}+00:00")
    except UnreadableError:
        return otherwise

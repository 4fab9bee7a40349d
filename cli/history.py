"""`history`: all that happened to a job, by whom and why."""

from __future__ import annotations

import click

from slurmsched.cli import output
from slurmsched.cli.output import JobId, Output, clock
from slurmsched.cli.settings import config

COLUMNS = ("time", "by", "what", "reason", "outcome")


@output.command("history")
@click.argument("job", type=JobId())
def command(out: Output, job: int) -> None:
    """Show every write, act and run of a job on record, newest last. Reads ledger, journal and record of acts only.

    JOB is the id of one record: an array task that started has its own.
    """
    from slurmsched.db.job_history import Place, history
    from slurmsched.explain.text import shown

    rows, unread = history(Place.of(config()), job)
    if out.as_json:
        out.json({"job_id": job, "history": rows, "unread": unread})
        return
    if rows:
        cells = ("by", "what", "reason", "outcome")
        out.table(COLUMNS, [(clock(row["time_s"]), *(shown(row[name]) for name in cells)) for row in rows])
    else:
        out.line(f"nothing is on record of job {job}" + (" in what could be read" if unread else ""))
    for line in unread:
        out.line(f"not read: {shown(line)}", "warning")

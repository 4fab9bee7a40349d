"""`operations`: preemptions and gang reservations, what they cost, and what a dry-run would have done."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from slurmsched.cli import framework
from slurmsched.cli.framework import Output, clock, read_config
from slurmsched.cli.listing import Choice, Column, JobFilter, Listing, as_hours, filtered, listed
from slurmsched.plain_text import pluralize

if TYPE_CHECKING:
    from slurmsched.db.ledger_queries import OperationTotals

LISTING = Listing(
    (
        Column("begun", "begun_s", "begun", text=clock),
        Column("operation", "title", "operation"),
        Column("jobid", "job_id", "for job", "i", number=True),
        Column("user username", "user", "user", "u"),
        Column("gpus", "gpus", "gpus", "b", number=True),
        Column("nodelist nodes", "nodes", "nodes", "N"),
        Column("stage state", "stage_shown", "stage", "T"),
        Column("victims", "victims", "victims", number=True),
        Column("lost", "lost_gpu_s", "lost GPU h", number=True, text=as_hours),
        Column("idle", "idle_gpu_s", "idle GPU h", number=True, text=as_hours),
        Column("note", "note", "note"),
    )
)


@framework.examples(
    ("slurmsched operations --since 1d", "Preemptions and reservations of the last day."),
    ("slurmsched operations -u ann --sort=-lost", "Those for ann, by lost work."),
)
@framework.command("operations")
@filtered("user", "nodelist")
@click.option("--since", metavar="DURATION", default="7d", show_default=True, help="Those in progress since then.")
@listed(LISTING)
def command(out: Output, keeps: JobFilter, since: str, choice: Choice) -> None:
    """List preemptions and gang reservations, and what they cost.

    For each: stage, preempted jobs, GPU hours of lost work, and GPU hours kept idle. Those of a dry-run are marked
    and counted separately. Reads the ledger only, not Slurm.
    """
    from slurmsched.db.ledger_queries import operation_totals
    from slurmsched.db.operation_log import operation_facts
    from slurmsched.model.durations import duration_s

    try:
        since_s = time.time() - duration_s(since)
    except ValueError as error:
        raise click.BadParameter(f"{since!r} {error}", param_hint="--since") from error
    facts = [each for each in operation_facts(read_config(plugins=False), since_s) if keeps(each)]
    rows = LISTING.ordered(facts, choice.sort)
    sums = [operation_totals(facts, dry_run) for dry_run in (False, True)]
    if out.as_json:
        out.json({"since_s": since_s, "operations": rows, "done": sums[0], "would_have": sums[1]}, schema="operations")
        return
    if rows or choice.plain:
        LISTING.show(out, rows, choice)
    if choice.plain:
        return
    out.line(f"in {since}: {_totals_in_words(sums[0])}")
    if sums[1].preemptions or sums[1].gang_reservations:
        out.line(f"dry-run would have: {_totals_in_words(sums[1])}")


def _totals_in_words(sums: OperationTotals) -> str:
    lost, idle = as_hours(sums.lost_gpu_s), as_hours(sums.idle_gpu_s)
    what = f"{pluralize(sums.preemptions, 'preemption')}, {pluralize(sums.gang_reservations, 'gang reservation')}"
    return f"{what}; {lost} GPU hours of work lost, {idle} held idle"

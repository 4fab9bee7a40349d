"""`queue`: the order the policy wants, and each job's place in it."""

from __future__ import annotations

import click

from slurmsched.cli import framework
from slurmsched.cli.framework import Output, clock, read_config
from slurmsched.cli.listing import (
    JOB_COLUMNS,
    RANK_COLUMNS,
    SIZE_COLUMNS,
    Choice,
    Column,
    JobFilter,
    Listing,
    filtered,
    listed,
)

LISTING = Listing(
    (
        Column("rank", "rank", "rank", number=True),
        *JOB_COLUMNS,
        Column("state", "state", "state", "T"),
        *SIZE_COLUMNS,
        Column("submittime", "submit_s", "submitted", "V", text=clock),
        Column("priority", "priority", "priority", "Q", number=True),
        Column("nice", "nice", "nice", "y", number=True),
        Column("reason", "slurm_reason", "reason", "r"),
        Column(
            "progress",
            "progress",
            "done",
            number=True,
            text=lambda value: "-" if value is None else f"{100 * value:.0f} %",
        ),
        Column(
            "throughput",
            "throughput",
            "samples/s",
            number=True,
            text=lambda value: "-" if value is None else f"{value:,.0f}",
        ),
        Column("use", "gpu_use", "use", number=True, text=lambda value: f"{100 * value:.0f} %" if value >= 0 else "-"),
        *RANK_COLUMNS,
        Column("why", "why_shown", "why"),
    ),
    ("rank", "jobid", "user", "partition", "gpus", "service", "queue", "now", "wanted", "why"),
)


@framework.examples(
    ("slurmsched queue --me", "Your own jobs and their ranks."),
    ("slurmsched queue -p gpu -o '%.10i %.9P %.8u %.4b %r'", "Partition gpu, with columns as in squeue."),
    ("slurmsched queue -o jobid,user,gpus,why --sort=-gpus", "The largest jobs first."),
    ("slurmsched queue --csv > queue.csv", "The whole queue for a spreadsheet."),
)
@framework.command("queue")
@filtered("user", "account", "partition", "qos", "states")
@click.option("--managed", is_flag=True, help="Only jobs that slurmsched manages.")
@listed(LISTING)
def command(out: Output, keeps: JobFilter, managed: bool, choice: Choice) -> None:
    """List pending jobs in the policy's order, with the reason.

    `now` and `wanted` are the job's nice or site factor: the value in Slurm and the value that the policy's order
    needs. GPU h is the attained service. With --states=R or --states=all running jobs are listed too. Reads only.
    """
    from slurmsched.daemon.cycle_parts import open_cycle_parts
    from slurmsched.observe.queue_rows import queue_rows

    tree = read_config()
    with open_cycle_parts(tree, apply=False, read_only=True) as parts:
        snapshot, plan = parts.look()
    more = keeps.asks_for("RUNNING", "SUSPENDED", "COMPLETING")
    found = [row for row in queue_rows(snapshot, plan, tree.lever.kind, managed_only=managed, running=more)
            if keeps(row)]  # fmt: skip
    rows = LISTING.ordered(found, choice.sort)
    if out.as_json:
        out.json({"cluster": snapshot.site.cluster, "lever": tree.lever.kind, "jobs": rows, "notes": plan.notes,
                  "warnings": snapshot.warnings}, schema="queue")  # fmt: skip
        return
    LISTING.show(out, rows, choice)
    out.notes(plan.notes, snapshot.warnings, plain=choice.plain)

"""`queue`: the order the policy wants, and each job's place in it."""

from __future__ import annotations

from typing import Any

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output, gpu_hours
from slurmsched.cli.settings import config

COLUMNS = ("rank>", "job>", "user", "partition", "gpus>", "GPU h>", "queue>", "now>", "wanted>", "why")


@output.command("queue")
@click.option("--user", metavar="NAME", help="Only this user's jobs.")
@click.option("--partition", metavar="NAME", help="Only jobs that may run in this partition.")
@click.option("--managed", is_flag=True, help="Only jobs that slurmsched orders.")
def command(out: Output, user: str | None, partition: str | None, managed: bool) -> None:
    """Show pending jobs in the order the policy wants, with lever now and wanted, and why. Reads only.

    GPU h is the attained service.
    """
    from slurmsched.cli.rows import queue_rows
    from slurmsched.daemon.assemble import assembled

    tree = config()
    with assembled(tree, apply=False, read_only=True) as parts:
        snapshot, plan = parts.look()
    rows = [
        row
        for row in queue_rows(snapshot, plan, tree.lever.kind, managed_only=managed)
        if user in (None, row["user"]) and (partition is None or partition in row["partition"].split(","))
    ]
    if out.as_json:
        out.json({"cluster": snapshot.site.cluster, "lever": tree.lever.kind, "jobs": rows, "notes": plan.notes,
                  "warnings": snapshot.warnings})  # fmt: skip
        return
    out.table(COLUMNS, map(_cells, rows))
    for note in plan.notes:
        out.line(f"note: {note}", "warning")
    for warning in snapshot.warnings:
        out.line(f"warning: {warning}", "warning")


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    from slurmsched.planning.reasons import criteria

    why = criteria({name: value for name, value in row["why"].items() if name != "queue"}) or "-"
    return (row["rank"], row["job_id"], row["user"], row["partition"], row["gpus"], gpu_hours(row["attained_gpu_s"]),
            row["queue"], row["lever_now"], row["lever_wanted"],
            f"left alone: {row['reason']}" if row["left_alone"] else why)  # fmt: skip

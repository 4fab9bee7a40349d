"""`queue`: the order the policy wants, and each job's place in it."""

from __future__ import annotations

from typing import Any

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output, clock, gpu_hours
from slurmsched.cli.settings import config

COLUMNS = ("rank>", "job>", "user", "partition", "gpus>", "GPU h>", "queue>", "now>", "wanted>", "why")
TIMES = ("since_s", "started_s", "submit_s")  # criteria that are Unix times


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
    told = ((name, _shown(name, value)) for name, value in row["why"].items() if name != "queue" and value is not False)
    why = ", ".join(f"{name} {text}" for name, text in told if text) or "-"
    return (row["rank"], row["job_id"], row["user"], row["partition"], row["gpus"], gpu_hours(row["attained_gpu_s"]),
            row["queue"], row["lever_now"], row["lever_wanted"],
            f"left alone: {row['reason']}" if row["left_alone"] else why)  # fmt: skip


def _shown(name: str, value: Any) -> str:
    """A criterion for people: Unix times as local time; a duration or service keeps its unit in its name.

    Nothing for one that says nothing: not known, or endless.
    """
    if not isinstance(value, float):
        return str(value)
    if value != value or abs(value) == float("inf"):
        return ""
    return clock(value) if name in TIMES else f"{value:.6g}"

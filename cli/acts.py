"""`acts`: preemptions and promises, what they cost, and what a dry-run would have done."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output, clock, gpu_hours
from slurmsched.cli.settings import config
from slurmsched.words import some

if TYPE_CHECKING:
    from slurmsched.config import Config

COLUMNS = (
    "begun",
    "act",
    "for job>",
    "user",
    "gpus>",
    "nodes",
    "stage",
    "victims>",
    "lost GPU h>",
    "idle GPU h>",
    "note",
)
WOULD = "dry-run"


@output.command("acts")
@click.option("--since", metavar="DURATION", default="7d", show_default=True, help="Acts that were at work since then.")
def command(out: Output, since: str) -> None:
    """Show preemptions and promises to gangs: stage, victims, GPU hours of work lost, GPU hours held idle.

    Reads the ledger and the record of open acts only. Those of a dry-run are marked, and counted apart.
    """
    from slurmsched.model.durations import duration_s

    try:
        since_s = time.time() - duration_s(since)
    except ValueError as error:
        raise click.BadParameter(f"{since!r} {error}", param_hint="--since") from error
    rows = told(config(), since_s)
    sums = [summed(rows, dry_run) for dry_run in (False, True)]
    if out.as_json:
        out.json({"since_s": since_s, "acts": rows, "done": sums[0], "would_have": sums[1]})
        return
    if rows:
        out.table(COLUMNS, map(_cells, rows))
    out.line(f"in {since}: {_said(sums[0])}")
    if sums[1]["preemptions"] or sums[1]["promises"]:
        out.line(f"dry-run would have: {_said(sums[1])}")


def told(tree: Config, since_s: float) -> list[dict[str, Any]]:
    """One row an act at work since then, oldest first; of open ones what is idle up to the last cycle counts.

    Raises LedgerError.
    """
    from slurmsched.db.acts import acts_on_record
    from slurmsched.db.reports import acts_since

    idle_gpu_s = {act.id: act.idle_gpu_s for act in acts_on_record(tree)}
    rows = acts_since(tree.ledger.address, since_s)
    return [row | {"idle_gpu_s": max(row["idle_gpu_s"], idle_gpu_s.get(row["act"], 0.0))} for row in rows]


def summed(rows: Sequence[dict[str, Any]], dry_run: bool) -> dict[str, Any]:
    """Counts and GPU seconds of the acts of dry-runs, or of the others."""
    mine = [row for row in rows if row["dry_run"] == dry_run]
    return {
        "preemptions": sum(row["purpose"] == "preempt" for row in mine),
        "promises": sum(row["purpose"] == "promise" for row in mine),
        "lost_gpu_s": sum(row["lost_gpu_s"] for row in mine),
        "idle_gpu_s": sum(row["idle_gpu_s"] for row in mine),
    }


def _said(sums: dict[str, Any]) -> str:
    lost, idle = gpu_hours(sums["lost_gpu_s"]), gpu_hours(sums["idle_gpu_s"])
    what = f"{some(sums['preemptions'], 'preemption')}, {some(sums['promises'], 'promise')}"
    return f"{what}; {lost} GPU hours of work lost, {idle} held idle"


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    stage = WOULD if row["dry_run"] else row["stage"]
    whom = (row["job_id"], row["user"], row["gpus"], row["nodes"])
    cost = (gpu_hours(row["lost_gpu_s"]), gpu_hours(row["idle_gpu_s"]))
    return clock(row["begun_s"]), f"{row['purpose']} {row['act']}", *whom, stage, row["victims"], *cost, row["note"]

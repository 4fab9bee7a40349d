"""`plan`: what a cycle would write now, and why."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output, gpu_hours
from slurmsched.cli.settings import config
from slurmsched.cli.steps import act_rows, parted, print_acts, print_steps, step_rows
from slurmsched.words import some

if TYPE_CHECKING:
    from slurmsched.config import Config
    from slurmsched.model import Plan, Snapshot

COLUMNS = ("job>", "user", "gpus>", "GPU h>", "queue>", "now>", "wanted>", "reason")
SHOWN = 5  # job ids a reason
FILE = click.Path(dir_okay=False, path_type=Path)


@output.command("plan")
@click.option("--limit", type=click.IntRange(min=0), default=50, show_default=True, help="Most changes shown; 0: all.")
@click.option("--jobs", type=FILE, help="A file of `squeue --json`, Slurm 21.08 or newer, in place of a Slurm.")
@click.option("--nodes", type=FILE, help="With --jobs: `scontrol show node --json` (before 23.02 `sinfo --json`).")
def command(out: Output, limit: int, jobs: Path | None, nodes: Path | None) -> None:
    """Show what a cycle would write and why. Reads only; any user may run it.

    GPU h is the attained service.
    """
    if nodes and not jobs:
        raise click.UsageError("--nodes goes with --jobs")
    tree = config()
    snapshot, plan = _of_files(tree, jobs, nodes) if jobs else _of_slurm(tree)
    if out.as_json:
        out.json(plan_tree(snapshot, plan, tree.lever.kind, limit))
    else:
        print_plan(out, snapshot, plan, tree.lever.kind, limit)


def _of_slurm(tree: Config) -> tuple[Snapshot, Plan]:
    from slurmsched.daemon.assemble import assembled

    with assembled(tree, apply=False, read_only=True) as parts:
        return parts.look()


def _of_files(tree: Config, jobs: Path, nodes: Path | None) -> tuple[Snapshot, Plan]:
    from slurmsched.db.store import open_store
    from slurmsched.planning.planner import Planner
    from slurmsched.slurm.dump import read_dump

    read = read_dump(jobs, nodes)
    with closing(open_store(tree, read_only=True)) as store:
        snapshot = store.recall(read)
    return snapshot, Planner.from_config(tree).plan(snapshot)


def _changes(snapshot: Snapshot, plan: Plan, lever: str, limit: int) -> list[dict[str, Any]]:
    from slurmsched.cli.rows import queue_rows

    planned = {action.job_id for action in parted(plan.actions)[0]}
    rows = [row for row in queue_rows(snapshot, plan, lever) if row["job_id"] in planned]
    return rows[:limit] if limit else rows


def plan_tree(snapshot: Snapshot, plan: Plan, lever: str, limit: int) -> dict[str, Any]:
    """The plan as JSON has it."""
    return {
        "cluster": snapshot.site.cluster,
        "now_s": snapshot.now_s,
        "lever": lever,
        "jobs": len(snapshot.jobs),
        "managed": int(plan.managed.sum()),
        "planned": len(plan.actions),
        "deferred": plan.deferred,
        "changes": _changes(snapshot, plan, lever, limit),
        "steps": step_rows(parted(plan.actions)[1]),
        "acts": act_rows(plan.acts),
        "refused": [{"job_id": r.job_id, "rule": r.rule, "reason": r.reason} for r in plan.refused],
        "notes": plan.notes,
        "warnings": snapshot.warnings,
    }


def print_plan(out: Output, snapshot: Snapshot, plan: Plan, lever: str, limit: int) -> None:
    """The plan for people."""
    changes = _changes(snapshot, plan, lever, limit)
    levers, steps = parted(plan.actions)
    if changes:
        out.table(COLUMNS, [_cells(row) for row in changes])
    if len(changes) < len(levers):
        out.line(f"... and {len(levers) - len(changes)} more (--limit 0 shows all)")
    print_acts(out, plan.acts, snapshot.now_s)
    print_steps(out, steps)
    managed = set(snapshot.jobs.job_id[plan.managed].tolist())
    back = sum(action.job_id not in managed for action in levers)
    waits = some(plan.deferred, "more waits", "more wait")
    out.line(
        f"{len(levers) - back} of {some(len(managed), 'managed job')} would get another {lever}"
        + (f"; {some(back, 'job')} out of scope would get their own back" if back else "")
        + (f"; {waits} for the next cycle (pace.writes_per_cycle)" if plan.deferred else "")
    )
    for line in left_alone(plan):
        out.line(line)
    for note in plan.notes:
        out.line(f"note: {note}", "warning")
    for warning in snapshot.warnings:
        out.line(f"warning: {warning}", "warning")


def left_alone(plan: Plan) -> list[str]:
    """A line for each reason to leave jobs of the scope alone: how many, why, and the first of them."""
    found: dict[tuple[str, str], list[int]] = {}
    for refusal in plan.refused:
        found.setdefault((refusal.rule, refusal.reason), []).append(refusal.job_id)
    return [
        f"left alone: {some(len(ids), 'job')} ({rule}): {reason}: {', '.join(map(str, ids[:SHOWN]))}"
        + (", ..." if len(ids) > SHOWN else "")
        for (rule, reason), ids in sorted(found.items(), key=lambda item: -len(item[1]))
    ]


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    attained = gpu_hours(row["attained_gpu_s"])
    return (row["job_id"], row["user"], row["gpus"], attained, row["queue"], row["lever_now"], row["lever_wanted"],
            row["reason"])  # fmt: skip

"""`plan`: what a cycle would write now, and why."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import framework
from slurmsched.cli.framework import Output, read_config
from slurmsched.cli.listing import (
    ALL_JOBS,
    JOB_COLUMNS,
    PLAIN_TABLE,
    RANK_COLUMNS,
    SIZE_COLUMNS,
    Choice,
    Column,
    JobFilter,
    Listing,
    filtered,
    listed,
)
from slurmsched.cli.operation_tables import parted, print_operations, print_steps, step_rows
from slurmsched.plain_text import pluralize

if TYPE_CHECKING:
    from slurmsched.config import Config
    from slurmsched.model import Plan, Snapshot
    from slurmsched.observe.queue_rows import QueueRow

LISTING = Listing(
    (
        *JOB_COLUMNS,
        *SIZE_COLUMNS,
        Column("priority", "priority", "priority", "Q", number=True),
        *RANK_COLUMNS,
        Column("reason", "reason", "reason"),
    ),
    ("jobid", "user", "gpus", "service", "queue", "now", "wanted", "reason"),
)
SHOWN = 5  # job ids a reason
FILE = click.Path(dir_okay=False, path_type=Path)


@framework.examples(
    ("slurmsched plan", "What the next cycle would write."),
    ("slurmsched plan -A physics --limit 0", "All changes of the jobs of account physics."),
    ("slurmsched plan --jobs-file queue.json --nodes-file nodes.json", "For a queue that was saved from Slurm."),
)
@framework.command("plan")
@click.option(
    "--limit", type=click.IntRange(min=0), default=50, show_default=True, help="Most changes to show; 0: all."
)
@click.option(
    "--jobs-file",
    "jobs",
    type=FILE,
    help="Read jobs from this file of `squeue --json` (Slurm 21.08 or newer) in place of Slurm.",
)
@click.option(
    "--nodes-file",
    "nodes",
    type=FILE,
    help="Read nodes from this file of `scontrol show node --json` (before 23.02 `sinfo --json`).",
)
@filtered("user", "account", "partition", "qos")
@listed(LISTING)
def command(out: Output, limit: int, jobs: Path | None, nodes: Path | None, keeps: JobFilter, choice: Choice) -> None:
    """Show what a cycle would write, and why.

    GPU h is the attained service. Reads only; any user may run it.
    """
    if nodes and not jobs:
        raise click.UsageError("--nodes-file needs --jobs-file")
    tree = read_config()
    snapshot, plan = _of_files(tree, jobs, nodes) if jobs else _plan_of_slurm(tree)
    if out.as_json:
        changes = _changes(snapshot, plan, tree.lever.kind, limit, keeps, choice.sort)
        out.json(plan_tree(snapshot, plan, tree.lever.kind, limit) | {"changes": changes}, schema="plan")
    elif choice.plain:
        LISTING.show(out, _changes(snapshot, plan, tree.lever.kind, limit, keeps, choice.sort), choice)
        out.notes(plan.notes, snapshot.warnings, plain=True)
    else:
        print_plan(out, snapshot, plan, tree.lever.kind, limit, keeps, choice)


def _plan_of_slurm(tree: Config) -> tuple[Snapshot, Plan]:
    from slurmsched.daemon.cycle_parts import open_cycle_parts

    with open_cycle_parts(tree, apply=False, read_only=True) as parts:
        return parts.look()


def _of_files(tree: Config, jobs: Path, nodes: Path | None) -> tuple[Snapshot, Plan]:
    from slurmsched.db.ledger_store import open_store
    from slurmsched.planning.planner import Planner
    from slurmsched.slurm.slurm_json import read_dump

    read = read_dump(jobs, nodes)
    with closing(open_store(tree, read_only=True)) as store:
        snapshot = store.recall(read)
    return snapshot, Planner.from_config(tree).plan(snapshot)


def _changes(
    snapshot: Snapshot,
    plan: Plan,
    lever: str,
    limit: int,
    keeps: JobFilter = ALL_JOBS,
    sort: str = "",
) -> list[QueueRow]:
    from slurmsched.observe.queue_rows import queue_rows

    planned = {action.job_id for action in parted(plan.actions)[0]}
    found = [row for row in queue_rows(snapshot, plan, lever) if row.job_id in planned and keeps(row)]
    rows = LISTING.ordered(found, sort)
    return rows[:limit] if limit else rows


def plan_tree(snapshot: Snapshot, plan: Plan, lever: str, limit: int) -> dict[str, Any]:
    """The plan as JSON has it. as_slurm: why the order is Slurm's own, null where it is not."""
    from slurmsched.observe.queue_rows import as_slurm, operation_records

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
        "operations": operation_records(plan.operations),
        "refused": [{"job_id": r.job_id, "rule": r.rule, "reason": r.reason} for r in plan.refused],
        "as_slurm": as_slurm(snapshot, plan, lever) or None,
        "notes": plan.notes,
        "warnings": snapshot.warnings,
    }


def print_plan(
    out: Output, snapshot: Snapshot, plan: Plan, lever: str, limit: int, keeps: JobFilter = ALL_JOBS,
    choice: Choice = PLAIN_TABLE,
) -> None:  # fmt: skip
    """The plan for people."""
    from slurmsched.observe.queue_rows import as_slurm

    changes = _changes(snapshot, plan, lever, limit, keeps, choice.sort)
    levers, steps = parted(plan.actions)
    if changes:
        LISTING.show(out, changes, choice)
    if len(changes) < len(levers) and keeps == ALL_JOBS:
        out.line(f"... and {len(levers) - len(changes)} more (--limit 0 shows all)")
    print_operations(out, plan.operations, snapshot.now_s)
    print_steps(out, steps)
    managed = set(snapshot.jobs.job_id[plan.managed].tolist())
    back = sum(action.job_id not in managed for action in levers)
    waits = pluralize(plan.deferred, "more waits", "more wait")
    out.line(
        f"{len(levers) - back} of {pluralize(len(managed), 'managed job')} would get another {lever}"
        + (f"; {pluralize(back, 'job')} out of scope would get their own back" if back else "")
        + (f"; {waits} for the next cycle (pace.writes_per_cycle)" if plan.deferred else "")
    )
    for line in left_alone(plan):
        out.line(line)
    same = as_slurm(snapshot, plan, lever)
    out.notes((*((same,) if same else ()), *plan.notes), snapshot.warnings)


def left_alone(plan: Plan) -> list[str]:
    """A line for each reason to leave jobs of the scope alone: how many, why, and the first of them."""
    found: dict[tuple[str, str], list[int]] = {}
    for refusal in plan.refused:
        found.setdefault((refusal.rule, refusal.reason), []).append(refusal.job_id)
    return [
        f"left alone: {pluralize(len(ids), 'job')} ({rule}): {reason}: {', '.join(map(str, ids[:SHOWN]))}"
        + (", ..." if len(ids) > SHOWN else "")
        for (rule, reason), ids in sorted(found.items(), key=lambda item: -len(item[1]))
    ]

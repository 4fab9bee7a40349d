"""`plan`: what a cycle would write now, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import framework
from slurmsched.cli.framework import FILE, Output, read_config
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
    print_operations,
    print_steps,
)
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
    show_plan(out, snapshot, plan, tree.lever.kind, limit, keeps, choice)


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


def show_plan(
    out: Output, snapshot: Snapshot, plan: Plan, lever: str, limit: int, keeps: JobFilter = ALL_JOBS,
    choice: Choice = PLAIN_TABLE, about: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """The plan for people, or as JSON.

    about: fields that the JSON has too; with them it is another schema than that of `plan`.
    """
    from slurmsched.observe.queue_rows import plan_record, planned_rows

    rows = LISTING.ordered([row for row in planned_rows(snapshot, plan, lever) if keeps(row)], choice.sort)
    changes = rows[:limit] if limit else rows
    if out.as_json:
        record = plan_record(snapshot, plan, lever, changes)
        out.json({**(about or {}), **record}, schema="plan" if about is None else "")
    elif choice.plain:
        LISTING.show(out, changes, choice)
        out.notes(plan.notes, snapshot.warnings, plain=True)
    else:
        _print_plan(out, snapshot, plan, lever, changes, choice, filtered_out=keeps != ALL_JOBS)


def _print_plan(
    out: Output, snapshot: Snapshot, plan: Plan, lever: str, changes: Sequence[QueueRow], choice: Choice, *,
    filtered_out: bool,
) -> None:  # fmt: skip
    """filtered_out: filters leave out changes, so no line counts those that are not shown."""
    from slurmsched.observe.queue_rows import as_slurm, managed_counts, refused_jobs

    planned = len(plan.priority_changes)
    managed, back = managed_counts(snapshot, plan)
    if changes:
        LISTING.show(out, changes, choice)
    if len(changes) < planned and not filtered_out:
        out.line(f"... and {planned - len(changes)} more (--limit 0 shows all)")
    print_operations(out, plan.operations, snapshot.now_s)
    print_steps(out, plan.steps)
    waits = pluralize(plan.deferred, "more waits", "more wait")
    out.line(
        f"{planned - back} of {pluralize(managed, 'managed job')} would get another {lever}"
        + (f"; {pluralize(back, 'job')} out of scope would get their own back" if back else "")
        + (f"; {waits} for the next cycle (pace.writes_per_cycle)" if plan.deferred else "")
    )
    for jobs in refused_jobs(plan):
        first = ", ".join(map(str, jobs.job_ids[:SHOWN])) + (", ..." if len(jobs.job_ids) > SHOWN else "")
        out.line(f"left alone: {pluralize(len(jobs.job_ids), 'job')} ({jobs.rule}): {jobs.reason}: {first}")
    same = as_slurm(snapshot, plan, lever)
    out.notes((*((same,) if same else ()), *plan.notes), snapshot.warnings)

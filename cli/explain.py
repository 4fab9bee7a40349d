"""`explain`: why a job waits, who is ahead, what would change it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output, clock, seconds
from slurmsched.cli.settings import config
from slurmsched.words import some

if TYPE_CHECKING:
    from slurmsched.config import Config
    from slurmsched.explain.ahead import Ahead, Other
    from slurmsched.explain.estimate import Estimate
    from slurmsched.explain.explanation import Explanation
    from slurmsched.explain.facts import Facts
    from slurmsched.model import Plan, Snapshot
    from slurmsched.protocols import Planner


@output.command("explain")
@click.argument("job")
@click.option("--as-user", is_flag=True, help="Ask for no more than squeue shows: no ledger, no accounting limits.")
@click.option("--why-not", "node", metavar="NODE", help="Also the first thing that keeps the job off this node.")
def command(out: Output, job: str, as_user: bool, node: str | None) -> None:
    """Show why a job waits, who goes before it and why, what would change it, and when it may start. Reads only.

    JOB is an id, an array task such as 7_3, or a component such as 7+1. What could not be read is said.
    """
    from slurmsched.explain.expected import expected
    from slurmsched.explain.explanation import explain
    from slurmsched.explain.moving import moving
    from slurmsched.explain.why_not import why_not
    from slurmsched.slurm.job_facts import find_row, read_facts
    from slurmsched.slurm.reader import open_commands

    tree = config()
    commands = open_commands(tree.slurm)
    snapshot, plan, planner = _looked(tree, as_user)
    row = find_row(commands, snapshot, job)
    facts = read_facts(commands, snapshot, row, no_limits="not asked with --as-user" if as_user else "")
    facts = _without_ledger(facts) if as_user else _remembered(tree, snapshot, row, facts)
    move = "" if as_user else moving(snapshot, row, tree.preemption, tree.scope)
    told = explain(snapshot, plan, row, facts, expected(planner, snapshot, row), move)
    off = None if node is None else why_not(snapshot, row, node, facts)
    if out.as_json:
        out.json({"explanation": told, "why_not": off, "warnings": snapshot.warnings})
    else:
        _print(out, told, snapshot.now_s)
        if off is not None:
            out.fact(f"on {node}", off or "nothing that is known keeps it off this node")


def _looked(tree: Config, as_user: bool) -> tuple[Snapshot, Plan | None, Planner | None]:
    """The queue, and the plan and the planner where its owner is not the one who asks."""
    if as_user:
        from slurmsched.slurm.look import look

        return look(tree), None, None
    from slurmsched.daemon.assemble import assembled

    with assembled(tree, apply=False, read_only=True) as parts:
        return *parts.look(), parts.planner


def _without_ledger(facts: Facts) -> Facts:
    return replace(facts, unread=(*facts.unread, "what slurmsched did and past waits: not asked with --as-user"))


def _remembered(tree: Config, snapshot: Snapshot, row: int, facts: Facts) -> Facts:
    """With what the ledger knows of the job and of jobs of its size."""
    from slurmsched.db.job_history import Place, past

    jobs = snapshot.jobs
    known = past(Place.of(tree), int(jobs.job_id[row]), int(jobs.gpus[row]))
    return facts.remembered(known)


def _print(out: Output, told: Explanation, now_s: float) -> None:
    from slurmsched.explain.text import shown

    out.line(f"job {told.job_id} of {shown(told.user)}: {told.state}, {told.blocker} (Slurm says: "
             f"{shown(told.slurm_reason) or 'nothing'})")  # fmt: skip
    out.fact("why", told.because)
    lists = {
        "ahead": (told.ahead.told,) if told.ahead else (),
        "before it": () if told.ahead is None else tuple(_other(one, told.ahead) for one in told.ahead.first),
        "start": (_estimate(told.estimate, now_s),) if told.estimate else (),
        "move": (told.move,) if told.move else (),
        "change": told.changes,
        "slurmsched": told.ours,
        "hint": told.hints,
        "expected": told.expected,
        "not read": told.unread,
    }
    for name, lines in lists.items():
        for line in lines:
            text = line if name in ("ahead", "before it", "start") else shown(line)
            out.fact(name, text, "warning" if name == "not read" else "")


def _other(one: Other, own: Ahead) -> str:
    from slurmsched.explain.text import against, shown

    return f"job {one.job_id} of {shown(one.user)}, {some(one.gpus, 'GPU')}: {against(one.why, own.why)}"


def _estimate(one: Estimate, now_s: float) -> str:
    slurm = f"; Slurm expects {clock(one.slurm_s)}" if one.slurm_s == one.slurm_s else "; Slurm expects nothing yet"
    if one.source == "none":
        return f"no estimate: {one.why}{slurm}"
    soon, late = seconds(one.earliest_s - now_s), seconds(one.latest_s - now_s)
    range_s = f"{clock(one.earliest_s)} to {clock(one.latest_s)} (in {soon} to {late})"
    return f"{range_s if soon != late else f'{clock(one.latest_s)} (in {late})'}, by {one.source}: {one.why}{slurm}"

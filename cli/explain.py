"""`explain`: why a job waits, who is ahead, what would change it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from slurmsched.cli import completers, framework
from slurmsched.cli.framework import Output, clock, duration, read_config
from slurmsched.plain_text import pluralize

if TYPE_CHECKING:
    from slurmsched.config import Config
    from slurmsched.model import Plan, Snapshot
    from slurmsched.model.job_details import JobDetails
    from slurmsched.observe.explain.explanation import Explanation
    from slurmsched.observe.explain.queue_position import CompetingJob
    from slurmsched.observe.explain.start_estimate import StartEstimate
    from slurmsched.protocols import DecidingPlanner

NO_LEDGER = "the ledger, which you may not read: past waits, and writes that the AdminComment does not have"
KEPT = 5  # kept nodes that are shown


@framework.examples(
    ("slurmsched explain 4711", "Why job 4711 waits."),
    ("slurmsched explain 4711 --why-not n7", "Also why it cannot run on node n7."),
)
@framework.command("explain")
@click.argument("job", shell_complete=completers.squeue("i"))
@click.option("--as-user", is_flag=True, help="Use only what squeue shows: no ledger and no accounting limits.")
@click.option(
    "--why-not",
    "node",
    metavar="NODE",
    shell_complete=completers.nodes,
    help="Also show the first reason why the job cannot run on this node.",
)
def command(out: Output, job: str, as_user: bool, node: str | None) -> None:
    """Explain why a job waits and when it may start.

    Shows which jobs go first and why, what would change that, and the estimated start. Also the parts of the job's
    priority, what its user and account are entitled to and use, and idle nodes that are kept for others.

    JOB is a job id, an array task such as 7_3, or a component such as 7+1. What cannot be read is named. Reads only.
    """
    from slurmsched.observe.explain.explanation import explain
    from slurmsched.observe.explain.node_obstacles import why_not
    from slurmsched.observe.explain.planner_answers import preemption_outlook, run_time_terms
    from slurmsched.slurm.job_queries import find_row, read_details
    from slurmsched.slurm.job_standing import read_standing
    from slurmsched.slurm.reader import open_commands

    tree = read_config()
    commands = open_commands(tree.slurm)
    snapshot, plan, planner = _looked(tree, as_user)
    row = find_row(commands, snapshot, job)
    snapshot = _measured(tree, snapshot, row)
    details = read_details(commands, snapshot, row, no_limits="not asked with --as-user" if as_user else "")
    details = read_standing(commands, snapshot, row, details)
    details = _without_ledger(details) if as_user else _remembered(tree, snapshot, row, details)
    move = "" if as_user else preemption_outlook(snapshot, row, tree.preemption, tree.scope)
    answer = explain(snapshot, plan, row, details, run_time_terms(planner, snapshot, row), move,
                     lever=tree.lever.kind)  # fmt: skip
    off = None if node is None else why_not(snapshot, row, node, details)
    if out.as_json:
        out.json({"explanation": answer, "why_not": off, "warnings": snapshot.warnings}, schema="explain")
    else:
        _print(out, answer, snapshot.now_s)
        if off is not None:
            out.fact(f"on {node}", off or "nothing that is known keeps it off this node")


def _looked(tree: Config, as_user: bool) -> tuple[Snapshot, Plan | None, DecidingPlanner | None]:
    """The queue, and the plan and the planner where its owner is not the one who asks."""
    if as_user:
        from slurmsched.slurm.reader import read_cluster_once

        return read_cluster_once(tree, priorities=True), None, None
    from slurmsched.daemon.cycle_parts import open_cycle_parts

    with open_cycle_parts(tree, apply=False, read_only=True) as parts:
        return *parts.look(), parts.planner


def _measured(tree: Config, snapshot: Snapshot, row: int) -> Snapshot:
    """With the measured use of a running job, where there is a source; a warning where it does not answer."""
    from slurmsched.observe.gpu_use_sources import PeriodicUse, read_gpu_use
    from slurmsched.slurm.reader import open_commands

    jobs, config = snapshot.jobs, tree.measured_use
    job = int(jobs.job_id[row])
    if config.source == "none" or not jobs.running[row] or not jobs.gpus[row] or jobs.gpu_use[row] >= 0:
        return snapshot
    return PeriodicUse(
        config, lambda gpus: read_gpu_use(config, open_commands(tree.slurm), {job: gpus.get(job, 0)}, [job])
    )(snapshot)


def _without_ledger(details: JobDetails) -> JobDetails:
    return replace(details, unread=(*details.unread, "what slurmsched did and past waits: not asked with --as-user"))


def _remembered(tree: Config, snapshot: Snapshot, row: int, details: JobDetails) -> JobDetails:
    """With what the ledger knows of the job and of jobs of its size; for others what accounting shows of the job."""
    from slurmsched.db.job_history import LedgerPlace, past_of_job
    from slurmsched.slurm.accounted_history import may_read_ledger

    jobs = snapshot.jobs
    if not may_read_ledger(tree):
        return _accounted(tree, int(jobs.job_id[row]), details)
    known = past_of_job(LedgerPlace.of(tree), int(jobs.job_id[row]), int(jobs.gpus[row]))
    return details.remembered(known)


def _accounted(tree: Config, job_id: int, details: JobDetails) -> JobDetails:
    """With what the job's AdminComment says that slurmsched did."""
    from slurmsched.errors import SlurmError
    from slurmsched.slurm.accounted_history import history_of

    try:
        rows, _, _ = history_of(tree, job_id)
    except SlurmError as error:
        return replace(details, unread=(*details.unread, str(error)))
    ours = tuple(each.line for each in rows if each.by == "slurmsched")
    return replace(details, ours=ours, unread=(*details.unread, NO_LEDGER))


def _print(out: Output, answer: Explanation, now_s: float) -> None:
    from slurmsched.observe.explain.priority_parts import share_lines
    from slurmsched.observe.explain.wording import printable

    out.line(f"job {answer.job_id} of {printable(answer.user)}: {answer.state}, {answer.blocker} (Slurm says: "
             f"{printable(answer.slurm_reason) or 'nothing'})")  # fmt: skip
    out.fact("why", answer.because)
    lists = {
        "ahead": (answer.ahead.told,) if answer.ahead else (),
        "before it": () if answer.ahead is None else tuple(_other(one) for one in answer.ahead.first),
        "tier": (answer.tier.text,) if answer.tier else (),
        "priority": (answer.priority.text,) if answer.priority else (),
        "share": share_lines(answer.shares, answer.use),
        "kept": (*(one.text for one in answer.kept[:KEPT]), *_more(answer)),
        "idle": (answer.idle,) if answer.idle else (),
        "start": (_estimate(answer.estimate, now_s),) if answer.estimate else (),
        "move": (answer.move,) if answer.move else (),
        "change": answer.changes,
        "GPUs": (answer.measured,) if answer.measured else (),
        "size": (answer.size,) if answer.size else (),
        "slurmsched": answer.ours,
        "hint": answer.hints,
        "expected": answer.expected,
        "not read": answer.unread,
    }
    for name, lines in lists.items():
        for line in lines:
            text = line if name in ("ahead", "before it", "start") else printable(line)
            out.fact(name, text, "warning" if name == "not read" else "")


def _more(answer: Explanation) -> tuple[str, ...]:
    more = len(answer.kept) - KEPT
    return (f"and {more} more; --json has all",) if more > 0 else ()


def _other(one: CompetingJob) -> str:
    from slurmsched.observe.explain.wording import printable

    return f"job {one.job_id} of {printable(one.user)}, {pluralize(one.gpus, 'GPU')}: {one.differs}"


def _estimate(one: StartEstimate, now_s: float) -> str:
    slurm = f"; Slurm expects {clock(one.slurm_s)}" if one.slurm_s == one.slurm_s else "; Slurm expects nothing yet"
    if one.source == "none":
        return f"no estimate: {one.why}{slurm}"
    soon, late = duration(one.earliest_s - now_s), duration(one.latest_s - now_s)
    range_s = f"{clock(one.earliest_s)} to {clock(one.latest_s)} (in {soon} to {late})"
    return f"{range_s if soon != late else f'{clock(one.latest_s)} (in {late})'}, by {one.source}: {one.why}{slurm}"

"""`explain`: why a job waits, who is ahead, what would change it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from slurmsched.cli import completers, framework
from slurmsched.cli.framework import Output, clock, collect_no_garbage, duration, read_config
from slurmsched.plain_text import pluralize

if TYPE_CHECKING:
    from slurmsched.observe.explain.explanation import Explanation
    from slurmsched.observe.explain.queue_position import CompetingJob
    from slurmsched.observe.explain.start_estimate import StartEstimate

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
    collect_no_garbage()
    from slurmsched.daemon.job_explanation import explain_job

    found = explain_job(read_config(), job, as_user=as_user, node=node)
    if out.as_json:
        out.json({"explanation": found.answer, "why_not": found.why_not, "warnings": found.warnings}, schema="explain")
        return
    _print(out, found.answer, found.now_s)
    if found.why_not is not None:
        out.fact(f"on {node}", found.why_not or "nothing that is known keeps it off this node")


def _state(answer: Explanation) -> str:
    """The state, why it waits, and Slurm's reason, as far as they say different things."""
    from slurmsched.observe.explain.wording import printable

    state = answer.state if answer.blocker == answer.state.lower() else f"{answer.state}, {answer.blocker}"
    return f"{state} (Slurm says: {printable(answer.slurm_reason)})" if answer.slurm_reason else state


def _print(out: Output, answer: Explanation, now_s: float) -> None:
    from slurmsched.observe.explain.queue_position import share_lines
    from slurmsched.observe.explain.wording import printable

    out.line(f"job {answer.job_id} of {printable(answer.user)}: {_state(answer)}")
    out.fact("why", answer.because)
    lists = {
        "ahead": (answer.ahead.told,) if answer.ahead else (),
        "before it": () if answer.ahead is None else tuple(_other_job_line(one) for one in answer.ahead.first),
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
        "speed": (answer.beside,) if answer.beside else (),
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


def _other_job_line(one: CompetingJob) -> str:
    from slurmsched.observe.explain.wording import printable

    return f"job {one.job_id} of {printable(one.user)}, {pluralize(one.gpus, 'GPU')}: {one.differs}"


def _estimate(one: StartEstimate, now_s: float) -> str:
    slurm = f"; Slurm expects {clock(one.slurm_s)}" if one.slurm_s == one.slurm_s else "; Slurm expects nothing yet"
    if one.source == "none":
        return f"no estimate: {one.why}{slurm}"
    soon, late = duration(one.earliest_s - now_s), duration(one.latest_s - now_s)
    range_s = f"{clock(one.earliest_s)} to {clock(one.latest_s)} (in {soon} to {late})"
    return f"{range_s if soon != late else f'{clock(one.latest_s)} (in {late})'}, by {one.source}: {one.why}{slurm}"

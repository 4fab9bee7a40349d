"""Acts (preemptions, promises), node lists and their steps, as `plan`, `status`, `acts` and `undo` show them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from slurmsched.cli.output import Output, clock, seconds
from slurmsched.words import some

if TYPE_CHECKING:
    from slurmsched.model import Act, Wait
    from slurmsched.model.plan import Action, SetLever, Step


def parted(actions: Sequence[Action]) -> tuple[list[SetLever], list[Step]]:
    """The changes of levers, and the steps of acts."""
    from slurmsched.model.plan import SetLever, Step

    levers = [action for action in actions if isinstance(action, SetLever)]
    return levers, [action for action in actions if isinstance(action, Step)]


def step_rows(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """The steps as plain values, those that Slurm is told."""
    names = ("name", "nodes", "gpus", "user", "signal", "start_s", "end_s", "whole")
    return [
        {"job_id": step.job_id, "step": step.kind, "act": step.act, "reason": step.reason}
        | {name: getattr(step, name) for name in names if hasattr(step, name)}
        for step in steps
    ]


def act_rows(acts: Sequence[Act]) -> list[dict[str, Any]]:
    """Acts as plain values: for whom, which nodes, how far, and what each node that is kept waits for."""
    return [
        {"act": act.id, "purpose": str(act.purpose), "job_id": act.job_id, "user": act.user, "nodes": act.nodes,
         "stage": str(act.stage), "note": act.note, "promised_s": act.promised_s or None,
         "victims": [{"job_id": victim.job_id, "lost_gpu_s": victim.lost_gpu_s, "cost_by": victim.cost_by or None}
                     for victim in act.victims],
         "waits": [{"node": wait.node, "job_id": wait.job_id or None, "until_s": wait.until_s} for wait in act.waits],
         "idle_gpu_s": act.idle_gpu_s}
        for act in acts
    ]  # fmt: skip


def act_word(act: Act) -> str:
    """What it is: a preemption, a promise, or a reservation of ours that nobody has on record."""
    if not act.begun_s:
        return "left-over reservation"
    return {"preempt": "preemption", "promise": "promise"}[act.purpose]


def print_acts(out: Output, acts: Sequence[Act], now_s: float) -> None:
    """A line for each, and one for each job that kept nodes wait for; none where there are none."""
    for act in acts:
        takes = f", {some(len(act.victims), 'victim')}" if act.victims else ""
        when = f", by {clock(act.promised_s)} (in {seconds(act.promised_s - now_s)})" if act.promised_s > now_s else ""
        note = f": {act.note}" if act.note else ""
        out.line(
            f"{act.purpose} {act.id}: job {act.job_id} of {act.user} on {act.nodes}, {act.stage}{takes}{when}{note}"
        )
        for job_id, waits in groupby(sorted(act.waits, key=lambda wait: wait.job_id), key=lambda wait: wait.job_id):
            out.line(f"  {_waiting(job_id, list(waits))}")
        for victim in act.victims:
            out.line(f"  victim {victim.job_id} {victim.loses}")


def _waiting(job_id: int, waits: Sequence[Wait]) -> str:
    from slurmsched.model.hostlist import fold

    nodes = fold(wait.node for wait in waits)
    return f"{nodes} until job {job_id} has left, {clock(waits[0].until_s)}" if job_id else f"{nodes} ready"


def print_steps(out: Output, steps: Sequence[Step]) -> None:
    """A table of them, none where there are none."""
    if steps:
        rows = [(step.act, _word(step), step.job_id, step.reason) for step in steps]
        out.table(("act", "step", "job>", "reason"), rows)


def _word(step: Step) -> str:
    """What is done, in a word or two."""
    if step.kind == "defer":
        at_s: float = step.start_s  # type: ignore[attr-defined]  # a Defer
        return "start back" if step.back else f"start at {clock(at_s)}"  # type: ignore[attr-defined]
    if step.kind == "retype":  # of another size, or of other Types
        return f"ask {step.gpus}"  # type: ignore[attr-defined]  # a Retype
    if step.kind != "pin":
        return step.kind
    nodes: str = step.nodes  # type: ignore[attr-defined]  # a PinNodes
    return f"pin {nodes}" if nodes else "unpin"

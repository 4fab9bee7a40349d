"""Operations (preemptions, gang reservations), node lists and their steps, as `plan`, `status`, `operations` and `undo`
show them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from slurmsched.cli.framework import Output, clock, duration
from slurmsched.plain_text import pluralize

if TYPE_CHECKING:
    from slurmsched.model import NodeWait, Operation
    from slurmsched.model.plan import Step


def operation_word(operation: Operation) -> str:
    """What it is: a preemption, a gang reservation, or a reservation of ours that nobody has on record."""
    if not operation.begun_s:
        return "left-over reservation"
    return {"preempt": "preemption", "reserve": "gang reservation"}[operation.purpose]


def print_operations(out: Output, operations: Sequence[Operation], now_s: float) -> None:
    """A line for each, and one for each job that kept nodes wait for; none where there are none."""
    for operation in operations:
        takes = f", {pluralize(len(operation.victims), 'victim')}" if operation.victims else ""
        when = (
            f", by {clock(operation.promised_s)} (in {duration(operation.promised_s - now_s)})"
            if operation.promised_s > now_s
            else ""
        )
        note = f": {operation.note}" if operation.note else ""
        what = f"{operation.purpose} {operation.id}: job {operation.job_id} of {operation.user} on {operation.nodes}"
        out.line(f"{what}, {operation.stage}{takes}{when}{note}")
        for job_id, waits in groupby(
            sorted(operation.waits, key=lambda wait: wait.job_id), key=lambda wait: wait.job_id
        ):
            out.line(f"  {_wait_line(job_id, list(waits))}")
        for victim in operation.victims:
            out.line(f"  victim {victim.job_id} {victim.loses}")


def _wait_line(job_id: int, waits: Sequence[NodeWait]) -> str:
    from slurmsched.model.hostlists import fold_hostlist

    nodes = fold_hostlist(wait.node for wait in waits)
    return f"{nodes} until job {job_id} has left, {clock(waits[0].until_s)}" if job_id else f"{nodes} ready"


def print_steps(out: Output, steps: Sequence[Step]) -> None:
    """A table of them, none where there are none."""
    if steps:
        rows = [(step.operation, _step_words(step), step.job_id, step.reason) for step in steps]
        out.table(("operation", "step", "job>", "reason"), rows)


def _step_words(step: Step) -> str:
    """What is done, in a word or two."""
    from slurmsched.model.plan import AskSize, SetField, ShrinkJob

    if isinstance(step, AskSize):
        return f"want {pluralize(step.gpus, 'GPU')}" if step.gpus else "want no other size"
    if isinstance(step, ShrinkJob):
        return f"shrink to {pluralize(step.nodes, 'node')}"
    if not isinstance(step, SetField):
        return step.kind
    if step.kind == "defer":
        return "start back" if step.restores else f"start at {clock(step.new)}"
    if step.kind == "retype":  # of another size, or of other Types
        return f"ask {step.new}"
    if step.kind == "pin":
        return f"pin {step.new}" if step.new else "unpin"
    if step.kind == "comment":
        return f"set AdminComment {step.new}" if step.new else "clear AdminComment"
    return f"{step.kind} {step.new}"

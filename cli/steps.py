"""Steps of preemptions, as `plan` and `undo` show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from slurmsched.cli.output import Output

if TYPE_CHECKING:
    from slurmsched.model.plan import Action, SetLever, Step


def parted(actions: Sequence[Action]) -> tuple[list[SetLever], list[Step]]:
    """The changes of levers, and the steps of acts."""
    from slurmsched.model.plan import SetLever, Step

    levers = [action for action in actions if isinstance(action, SetLever)]
    return levers, [action for action in actions if isinstance(action, Step)]


def step_rows(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """The steps as plain values, those that Slurm is told."""
    names = ("name", "nodes", "user", "signal", "start_s", "end_s")
    return [
        {"job_id": step.job_id, "step": step.kind, "act": step.act, "reason": step.reason}
        | {name: getattr(step, name) for name in names if hasattr(step, name)}
        for step in steps
    ]


def print_steps(out: Output, steps: Sequence[Step]) -> None:
    """A table of them, none where there are none."""
    if steps:
        rows = [(step.act, step.kind, step.job_id, step.reason) for step in steps]
        out.table(("preemption", "step", "job>", "reason"), rows)

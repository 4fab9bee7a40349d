"""A plan for people and as plain values: jobs whose priority changes, steps, operations, and jobs left alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slurmsched.model import Plan, SetField, Snapshot
from slurmsched.model.plan import Step
from slurmsched.observe.queue_rows import QueueRow, as_slurm, operation_records, queue_rows

_VALUE_NAMES = {"pin": "nodes", "retype": "gpus", "defer": "start_s"}  # of the new value, by kind of step
_STEP_FIELDS = ("name", "nodes", "user", "signal", "start_s", "end_s", "whole", "gpus")


@dataclass(frozen=True, slots=True)
class RefusedJobs:
    """Jobs of the scope that the gate leaves alone by one rule and for one reason."""

    rule: str
    reason: str
    job_ids: tuple[int, ...]


def planned_rows(snapshot: Snapshot, plan: Plan, lever: str) -> list[QueueRow]:
    """The jobs whose priority field would change, in the order of the queue."""
    planned = {action.job_id for action in plan.priority_changes}
    return [row for row in queue_rows(snapshot, plan, lever) if row.job_id in planned]


def refused_jobs(plan: Plan) -> list[RefusedJobs]:
    """The refusals by rule and reason, the most frequent first."""
    found: dict[tuple[str, str], list[int]] = {}
    for refusal in plan.refused:
        found.setdefault((refusal.rule, refusal.reason), []).append(refusal.job_id)
    groups = sorted(found.items(), key=lambda item: -len(item[1]))
    return [RefusedJobs(rule, reason, tuple(ids)) for (rule, reason), ids in groups]


def managed_counts(snapshot: Snapshot, plan: Plan) -> tuple[int, int]:
    """Managed jobs, and jobs out of scope whose own priority would be restored."""
    managed = set(snapshot.jobs.job_id[plan.managed].tolist())
    return len(managed), sum(action.job_id not in managed for action in plan.priority_changes)


def plan_record(snapshot: Snapshot, plan: Plan, lever: str, changes: Sequence[QueueRow]) -> dict[str, Any]:
    """The plan as JSON has it. as_slurm: why the order is Slurm's own, null where it is not.

    changes: the rows of `planned_rows` that are shown.
    """
    return {
        "cluster": snapshot.site.cluster,
        "now_s": snapshot.now_s,
        "lever": lever,
        "jobs": len(snapshot.jobs),
        "managed": int(plan.managed.sum()),
        "planned": len(plan.actions),
        "deferred": plan.deferred,
        "changes": changes,
        "steps": step_records(plan.steps),
        "operations": operation_records(plan.operations),
        "refused": [{"job_id": each.job_id, "rule": each.rule, "reason": each.reason} for each in plan.refused],
        "as_slurm": as_slurm(snapshot, plan, lever) or None,
        "notes": plan.notes,
        "warnings": snapshot.warnings,
    }


def step_records(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Steps as plain values, with the fields that Slurm gets."""
    return [
        {"job_id": step.job_id, "step": step.kind, "operation": step.operation, "reason": step.reason}
        | {name: getattr(step, name) for name in _STEP_FIELDS if hasattr(step, name)}
        | ({_VALUE_NAMES.get(step.kind, "value"): step.new} if isinstance(step, SetField) else {})
        for step in steps
    ]

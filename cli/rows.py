"""Rows of a snapshot and its plan for people: one mapping a job, in the order the policy wants."""

from __future__ import annotations

from typing import Any

from slurmsched.model import Plan, Snapshot
from slurmsched.planning.levers import LEVERS
from slurmsched.planning.managed import JOB_RULES
from slurmsched.planning.order import queue_order


def queue_rows(snapshot: Snapshot, plan: Plan, lever: str, *, managed_only: bool = False) -> list[dict[str, Any]]:
    """Pending jobs, most urgent first. rank: from 1 among all of them, whichever are shown, as `explain` tells it.

    `why` holds the policy's own criteria.
    """
    reasons = {action.job_id: action.reason for action in plan.actions}
    now = LEVERS[lever].now(snapshot.jobs)
    rows = queue_order(snapshot, plan.ranking).tolist()
    return [_row(snapshot, plan, row, place, int(now[row]), reasons) for place, row in enumerate(rows, 1)
            if plan.managed[row] or not managed_only]  # fmt: skip


def _row(snapshot: Snapshot, plan: Plan, row: int, place: int, now: int, reasons: dict[int, str]) -> dict[str, Any]:
    jobs = snapshot.jobs
    job_id = int(jobs.job_id[row])
    criteria = plan.ranking.why if plan.ranking is not None else {}
    verdict = int(plan.verdict[row])
    return {
        "rank": place,
        "job_id": job_id,
        "user": jobs.user[row],
        "account": jobs.account[row],
        "partition": jobs.partition[row],
        "gpus": int(jobs.gpus[row]) * max(int(jobs.array_tasks[row]), 1),
        "attained_gpu_s": float(jobs.attained_gpu_s[row]),
        "queue": int(criteria["queue"][row]) if "queue" in criteria else None,
        "why": {name: values[row].item() for name, values in criteria.items()},
        "lever_now": now,
        "lever_wanted": int(plan.lever_wanted[row]),
        "left_alone": JOB_RULES[verdict].name if verdict >= 0 else None,
        "reason": reasons.get(job_id) or (JOB_RULES[verdict].reason if verdict >= 0 else "it is where it should be"),
    }

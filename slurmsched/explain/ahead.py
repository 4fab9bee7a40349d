"""Who goes before a job, and by what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slurmsched.model.columns import Int64s
from slurmsched.model.plan import Plan
from slurmsched.model.snapshot import Snapshot
from slurmsched.planning.groups import competing
from slurmsched.planning.limited import limited

SHOWN = 3


@dataclass(frozen=True, slots=True)
class Other:
    """why: the policy's criteria of this job; in an order by priority, its priority."""

    job_id: int
    user: str
    gpus: int
    why: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ahead:
    """by: "policy" or "priority" (Slurm's own). rank: from 1, of the waiting jobs that compete for the same nodes.
    gpus: of all ahead. first: the foremost of them."""

    by: str
    rank: int
    of: int
    gpus: int
    why: Mapping[str, Any]
    first: tuple[Other, ...] = field(default=())


def standing(snapshot: Snapshot, plan: Plan | None, row: int) -> Int64s:
    """Rows that wait, are not held and compete for the nodes of this job, itself too, in their order. (K,) int64."""
    jobs, group = snapshot.jobs, competing(snapshot)
    rows = _order(snapshot, plan)
    waits = jobs.pending & (~jobs.held | (np.arange(len(jobs)) == row)) & (group == group[row])
    return rows[waits[rows]]


def ready(snapshot: Snapshot, rows: list[int]) -> list[int]:
    """Those that wait for GPUs alone: for no limit, other job or time to begin."""
    jobs = snapshot.jobs
    may = jobs.dependency.isin([""]) & ~(jobs.eligible_s > snapshot.now_s) & ~limited(jobs)
    return [row for row in rows if may[row]]


def ahead(snapshot: Snapshot, plan: Plan | None, row: int) -> Ahead:
    """Of those that stand with it, the ones before it."""
    jobs, rows = snapshot.jobs, standing(snapshot, plan, row)
    place = int(np.flatnonzero(rows == row)[0])
    before = rows[:place]
    first = tuple(_other(snapshot, plan, one) for one in before[:SHOWN].tolist())
    by = "policy" if _ranked(plan) else "priority"
    gpus = int((jobs.gpus[before] * np.maximum(jobs.array_tasks[before], 1)).sum())
    return Ahead(by, place + 1, len(rows), gpus, _why(snapshot, plan, row), first)


def _ranked(plan: Plan | None) -> bool:
    return plan is not None and plan.ranking is not None


def _order(snapshot: Snapshot, plan: Plan | None) -> Int64s:
    if plan is not None and plan.ranking is not None:
        return plan.ranking.order
    jobs = snapshot.jobs
    return np.lexsort((jobs.job_id, jobs.submit_s, -jobs.priority))


def _other(snapshot: Snapshot, plan: Plan | None, row: int) -> Other:
    jobs = snapshot.jobs
    gpus = int(jobs.gpus[row]) * max(int(jobs.array_tasks[row]), 1)
    return Other(int(jobs.job_id[row]), jobs.user[row], gpus, _why(snapshot, plan, row))


def _why(snapshot: Snapshot, plan: Plan | None, row: int) -> dict[str, Any]:
    if plan is None or plan.ranking is None:
        return {"priority": int(snapshot.jobs.priority[row])}
    return {name: values[row].item() for name, values in plan.ranking.why.items()}

"""A job's place in the queue, and which jobs before it compete with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slurmsched.explain.by_plan import Nodes
from slurmsched.explain.facts import Facts
from slurmsched.model.columns import Bools
from slurmsched.model.plan import Plan, Ranking
from slurmsched.model.reasons import read_reason
from slurmsched.model.snapshot import Snapshot
from slurmsched.planning.limited import limited
from slurmsched.planning.order import queue_order
from slurmsched.planning.reasons import criteria
from slurmsched.words import some

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
    """by: "policy" or "priority" (Slurm's own). rank: from 1, of all jobs that wait, as `queue` shows it.

    jobs: how many before it compete for its nodes and may start. gpus: what those ask for. first: the foremost of
    them. told: all this but `first`, in words.
    """

    by: str
    rank: int
    of: int
    jobs: int
    gpus: int
    why: Mapping[str, Any]
    told: str
    first: tuple[Other, ...] = field(default=())


def may_start(snapshot: Snapshot) -> Bools:
    """Pending jobs that wait for nodes alone: for no person, limit, other job, reservation or begin time. (N,) bool."""
    jobs = snapshot.jobs
    later = (jobs.eligible_s > snapshot.now_s) | jobs.reason.map(_for_reservation, np.bool_)
    found: Bools = jobs.pending & ~jobs.held & jobs.dependency.isin([""]) & ~later & ~limited(jobs)
    return found


def _for_reservation(reason: str) -> bool:
    return read_reason(reason).code in ("Reservation", "ReservationInvalid", "ReservationDeleted")


def before(snapshot: Snapshot, ranking: Ranking | None, row: int, facts: Facts) -> list[int]:
    """Rows of the jobs before it that may start, and that could have a node that it could have too.

    Nodes that take no jobs count only where it has no others: nobody gets them before it.
    """
    rows = queue_order(snapshot, ranking)
    place = int(np.flatnonzero(rows == row)[0])
    ready = rows[:place][may_start(snapshot)[rows[:place]]].tolist()
    nodes, takes = Nodes.of(snapshot, facts), ~snapshot.nodes.closed
    contested = nodes.ever(row)
    if not contested.any():  # its nodes are hidden: by partition then
        listed, own = snapshot.jobs.partition, set(snapshot.jobs.partition[row].split(","))
        return [one for one in ready if own & set(listed[one].split(","))]
    if not (contested & takes).any():
        return [one for one in ready if (nodes.could(one) & contested).any()]
    many, found = np.maximum(snapshot.jobs.nodes, 1), list[int]()
    for one in ready:
        could = nodes.could(one) & takes
        if (could & contested).any() and np.count_nonzero(could) >= many[one]:
            found.append(one)
    return found


def ahead(snapshot: Snapshot, plan: Plan | None, row: int, rows: list[int]) -> Ahead:
    """Its rank, and those of the jobs before it that compete with it. rows: of `before`."""
    jobs, ranking = snapshot.jobs, None if plan is None else plan.ranking
    all_rows = queue_order(snapshot, ranking)
    rank = int(np.flatnonzero(all_rows == row)[0]) + 1
    gpus = int((jobs.gpus[rows] * np.maximum(jobs.array_tasks[rows], 1)).sum())
    by, why = "priority" if ranking is None else "policy", _why(snapshot, ranking, row)
    first = tuple(_other(snapshot, ranking, one) for one in rows[:SHOWN])
    told = _told(by, rank, len(all_rows), len(rows), gpus, why) + _fixed(snapshot, row)
    return Ahead(by, rank, len(all_rows), len(rows), gpus, why, told, first)


def _told(by: str, rank: int, of: int, jobs: int, gpus: int, why: Mapping[str, Any]) -> str:
    order = "the policy's order" if by == "policy" else "Slurm's priority"
    compete = f"{some(jobs, 'job')} before it {'competes' if jobs == 1 else 'compete'} for its nodes and may start"
    asks = f", for {some(gpus, 'GPU')}" if jobs else ""
    return f"rank {rank} of {of} by {order} ({criteria(why) or 'no criteria'}); {compete}{asks}"


def _fixed(snapshot: Snapshot, row: int) -> str:
    """That its user or an operator moved it: neither is the policy's doing."""
    jobs = snapshot.jobs
    if jobs.pinned[row]:
        return f"; an operator set its priority to {int(jobs.priority[row])}, which no nice or site factor moves"
    ours = jobs.written[row] and not jobs.site_factor[row]  # then its nice is what the lever made of its own
    own = int(jobs.base_nice[row]) if ours else int(jobs.nice[row])
    return f"; a nice of its own takes {own} off its priority" if own > 0 else ""


def _other(snapshot: Snapshot, ranking: Ranking | None, row: int) -> Other:
    jobs = snapshot.jobs
    gpus = int(jobs.gpus[row]) * max(int(jobs.array_tasks[row]), 1)
    return Other(int(jobs.job_id[row]), jobs.user[row], gpus, _why(snapshot, ranking, row))


def _why(snapshot: Snapshot, ranking: Ranking | None, row: int) -> dict[str, Any]:
    if ranking is None:
        return {"priority": int(snapshot.jobs.priority[row])}
    return {name: values[row].item() for name, values in ranking.why.items()}

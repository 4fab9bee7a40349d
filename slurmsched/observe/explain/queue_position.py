"""A job's place in the queue, and which jobs before it compete with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slurmsched.model.job_details import JobDetails
from slurmsched.model.plan import Plan, Ranking
from slurmsched.model.snapshot import Snapshot
from slurmsched.observe.explain.start_estimate import EligibleNodes
from slurmsched.observe.explain.wording import differing_criteria
from slurmsched.plain_text import pluralize
from slurmsched.planning.criteria import criteria
from slurmsched.planning.priorities.order import queue_order
from slurmsched.planning.priorities.tiers import DECIDED_BY, decision
from slurmsched.resources.startable_jobs import waits_for_nodes_alone

SHOWN = 3


@dataclass(frozen=True, slots=True)
class CompetingJob:
    """A job that competes with the job that is explained.

    why: the policy's criteria of this job; in an order by priority, its priority.
    differs: those in which it differs from the job that is explained, as text.
    """

    job_id: int
    user: str
    gpus: int
    why: Mapping[str, Any]
    differs: str


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """The place of a waiting job in the queue.

    by: "policy" or "priority" (Slurm's own).
    rank: from 1, of all jobs that wait, as `queue` shows it.
    jobs: how many before it compete for its nodes and may start.
    gpus: what those ask for.
    first: the foremost of them.
    told: all this but `first`, as text.
    """

    by: str
    rank: int
    of: int
    jobs: int
    gpus: int
    why: Mapping[str, Any]
    told: str
    first: tuple[CompetingJob, ...] = field(default=())


def competitors_before(snapshot: Snapshot, ranking: Ranking | None, row: int, details: JobDetails) -> list[int]:
    """Rows of the jobs before it that may start, and that could have a node that it could have too.

    Nodes that take no jobs count only where it has no others: nobody gets them before it.
    """
    rows = queue_order(snapshot, ranking)
    place = int(np.flatnonzero(rows == row)[0])
    ready = rows[:place][waits_for_nodes_alone(snapshot)[rows[:place]]].tolist()
    nodes, takes = EligibleNodes.of(snapshot, details), ~snapshot.nodes.closed
    first, kind = nodes.kinds(np.array(ready, np.int64))
    contested = nodes.ever(row)
    if not contested.any():  # its nodes are hidden: by partition then
        listed, own = snapshot.jobs.partition, set(snapshot.jobs.partition[row].split(","))
        return [one for one in ready if own & set(listed[one].split(","))]
    if not (contested & takes).any():
        competes = [bool((nodes.could(one) & contested).any()) for one in first]
    else:
        many = np.maximum(snapshot.jobs.nodes, 1)
        could = [nodes.could(one) & takes for one in first]
        competes = [
            bool((each & contested).any()) and np.count_nonzero(each) >= many[one]
            for one, each in zip(first, could, strict=True)
        ]
    return [one for one, at in zip(ready, kind.tolist(), strict=True) if competes[at]]


def queue_position(snapshot: Snapshot, plan: Plan | None, row: int, rows: list[int]) -> QueuePosition:
    """Its rank, and those of the jobs before it that compete with it. rows: of competitors_before."""
    jobs, ranking = snapshot.jobs, None if plan is None else plan.ranking
    all_rows = queue_order(snapshot, ranking)
    rank = int(np.flatnonzero(all_rows == row)[0]) + 1
    gpus = int((jobs.gpus[rows] * np.maximum(jobs.array_tasks[rows], 1)).sum())
    by, why = "priority" if ranking is None else "policy", _criteria_of(snapshot, ranking, row)
    first = tuple(_competing_job(snapshot, ranking, one, why) for one in rows[:SHOWN])
    sentence = _position_text(by, rank, len(all_rows), len(rows), gpus, why, _words(ranking)) + _fixed(snapshot, row)
    return QueuePosition(by, rank, len(all_rows), len(rows), gpus, why, sentence, first)


def _position_text(
    by: str, rank: int, of: int, jobs: int, gpus: int, why: Mapping[str, Any], words: Mapping[str, str]
) -> str:
    order = "the policy's order" if by == "policy" else "Slurm's priority"
    compete = f"{pluralize(jobs, 'job')} before it {'competes' if jobs == 1 else 'compete'} for its nodes and may start"
    asks = f", for {pluralize(gpus, 'GPU')}" if jobs else ""
    shown = criteria({name: value for name, value in why.items() if name != DECIDED_BY}, words)
    by_tier = f"; {decided}" if (decided := decision(why)) else ""
    return f"rank {rank} of {of} by {order} ({shown or 'no criteria'}){by_tier}; {compete}{asks}"


def _fixed(snapshot: Snapshot, row: int) -> str:
    """That its user or an operator moved it: neither is the policy's doing."""
    jobs = snapshot.jobs
    if jobs.fixed_priority[row]:
        return f"; an operator set its priority to {int(jobs.priority[row])}, which no nice or site factor moves"
    ours = jobs.written[row] and not jobs.site_factor[row]  # then its nice is what the lever made of its own
    own = int(jobs.base_nice[row]) if ours else int(jobs.nice[row])
    return f"; a nice of its own takes {own} off its priority" if own > 0 else ""


def _competing_job(snapshot: Snapshot, ranking: Ranking | None, row: int, own: Mapping[str, Any]) -> CompetingJob:
    jobs, why = snapshot.jobs, _criteria_of(snapshot, ranking, row)
    gpus = int(jobs.gpus[row]) * max(int(jobs.array_tasks[row]), 1)
    return CompetingJob(int(jobs.job_id[row]), jobs.user[row], gpus, why, differing_criteria(why, own, _words(ranking)))


def _words(ranking: Ranking | None) -> Mapping[str, str]:
    return {} if ranking is None else ranking.words


def _criteria_of(snapshot: Snapshot, ranking: Ranking | None, row: int) -> dict[str, Any]:
    if ranking is None:
        return {"priority": int(snapshot.jobs.priority[row])}
    return {name: values[row].item() for name, values in ranking.why.items()}

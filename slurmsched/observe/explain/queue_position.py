"""A job's place in the queue, which jobs before it compete with it, and the parts of its priority."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isnan
from typing import Any

import numpy as np

from slurmsched.model.job_details import JobDetails, ShareAndUse
from slurmsched.model.jobs import Jobs
from slurmsched.model.plan import Plan, Ranking
from slurmsched.model.policy_info import criteria
from slurmsched.model.snapshot import Snapshot
from slurmsched.observe.explain.start_estimate import EligibleNodes
from slurmsched.observe.explain.wording import differing_criteria
from slurmsched.plain_text import pluralize
from slurmsched.planning.priorities.order import CRITERIA, DECIDED_BY, decision, queue_order
from slurmsched.planning.priorities.priority_fields import PRIORITY_FIELDS
from slurmsched.resources.allocated import holding
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


# What a job's priority is made of, and what its user and account are entitled to, use and have used.


_WORDS = {"fairshare": "fair share", "jobsize": "job size", "qos": "QOS", "tres": "TRES", "assoc": "association"}


@dataclass(frozen=True, slots=True)
class PriorityParts:
    """Points of a job's priority, as sprio has them, and how many of them are slurmsched's.

    parts: by name; nice and site as Slurm has them: a nice lowers the priority.
    by_slurmsched: points that it has by slurmsched now.
    wanted: those of the policy's order. None = not known.
    text: all this in words.
    """

    priority: int
    parts: Mapping[str, int]
    by_slurmsched: int | None
    wanted: int | None
    text: str


@dataclass(frozen=True, slots=True)
class TierPlace:
    """By what the job is ordered before the policy. values: of each tier by name. text: with what decides, as text."""

    values: Mapping[str, Any]
    decided_by: str
    text: str


@dataclass(frozen=True, slots=True)
class GpuUse:
    """GPUs of the jobs of a user or an account now. of: "user" or "account"."""

    of: str
    name: str
    allocated: int
    waiting: int


def priority_parts(
    snapshot: Snapshot, plan: Plan | None, row: int, details: JobDetails, lever: str
) -> PriorityParts | None:
    """None for a job of which sprio shows no parts. lever: "nice" or "site_factor"."""
    parts = dict(details.priority_parts)
    if not parts:
        return None
    priority, field, jobs = parts.pop("priority"), PRIORITY_FIELDS[lever], snapshot.jobs
    boost = int(field.boost(jobs)[row])
    # Without the ledger it is not on record who gave the job its nice: a positive one may be its user's.
    now = None if plan is None else boost if jobs.written[row] or boost > 0 else 0
    wanted = None
    if plan is not None and len(plan.managed) and plan.managed[row]:
        value = int(plan.wanted_values[row])
        wanted = value if lever == "site_factor" else int(jobs.base_nice[row]) - value
    return PriorityParts(priority, parts, now, wanted, _sum(priority, parts, now, wanted))


def _sum(priority: int, parts: Mapping[str, int], now: int | None, wanted: int | None) -> str:
    signed = {name: -points if name == "nice" else points for name, points in parts.items() if points}
    shown = " ".join(
        f"{'-' if points < 0 else '+'} {_WORDS.get(name, name)} {abs(points):,}" for name, points in signed.items()
    )
    text = f"{priority:,} = {shown.removeprefix('+ ') or 'no part'}"
    if now is None or (wanted is None and not now):
        return text
    if wanted is None:
        return f"{text}; slurmsched added {now:,} of it"
    change = f", and {wanted:,} after the next cycle" if wanted != now else ""
    return f"{text}; the policy adds {now:,} of it{change}"


def tier_place(why: Mapping[str, Any]) -> TierPlace | None:
    """By the criteria of a job; None where no tier is set."""
    values = {kind: why[name] for kind, name in CRITERIA.items() if name in why}
    if not values:
        return None
    decided = str(why.get("decided_by", ""))
    shown = ", ".join(f"{CRITERIA[kind].replace('_', ' ')} {value:g}" for kind, value in values.items())
    by = decision(why)
    return TierPlace(values, decided, f"{shown}{f'; {by}' if by else '; no competing job is before it'}")


def gpu_use(snapshot: Snapshot, row: int) -> tuple[GpuUse, ...]:
    """GPUs that the job's account and user hold and wait for, of the jobs that Slurm shows."""
    jobs, made = snapshot.jobs, list[GpuUse]()
    asks = jobs.gpus.astype(np.int64) * np.maximum(jobs.array_tasks, 1)
    of_account = jobs.account.isin((jobs.account[row],))
    of_user = of_account & jobs.user.isin((jobs.user[row],))
    for of, name, mine in (("account", jobs.account[row], of_account), ("user", jobs.user[row], of_user)):
        held, waits = int(asks[mine & holding(jobs)].sum()), int(asks[mine & jobs.pending].sum())
        made.append(GpuUse(of, name, held, waits))
    return tuple(made)


def measured_use(jobs: Jobs, row: int) -> str:
    """How much a running job uses its GPUs, as text; "" if it is not measured."""
    use, idle, memory_mib = (float(column[row]) for column in (jobs.gpu_use, jobs.idle_gpus, jobs.gpu_memory_mib))
    if isnan(use) or not jobs.running[row]:
        return ""
    used = "" if isnan(idle) else f"{jobs.gpus[row] - idle:.0f} of {pluralize(int(jobs.gpus[row]), 'GPU')} used; "
    memory = "" if isnan(memory_mib) else f"; at most {memory_mib / 1024:.1f} GiB in use on one GPU"
    return f"{used}the GPUs compute {use:.0%} of the time{memory}"


def share_lines(shares: tuple[ShareAndUse, ...], uses: tuple[GpuUse, ...]) -> tuple[str, ...]:
    """One line for the account and one for the user."""
    known = {"user" if one.user else "account": one for one in shares}
    return tuple(_share_line(use, known.get(use.of)) for use in uses if use.name)


def _share_line(use: GpuUse, share: ShareAndUse | None) -> str:
    now = f"{pluralize(use.allocated, 'GPU')} allocated, {use.waiting} waited for"
    if share is None or isnan(share.use):
        return f"{use.of} {use.name}: {now}"
    entitled = "" if isnan(share.share) else f"entitled to {share.share:.1%}, "
    factor = "" if isnan(share.fair_share) else f"; fair-share factor {share.fair_share:.2f}"
    return f"{use.of} {use.name}: {entitled}has used {share.use:.1%}{factor}; {now}"

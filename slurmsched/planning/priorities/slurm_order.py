"""Whether a policy orders the waiting jobs as Slurm does anyway, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from slurmsched.model import Plan, Snapshot
from slurmsched.model.columns import Int64s
from slurmsched.plain_text import pluralize
from slurmsched.planning.criteria import criteria, times_in
from slurmsched.planning.priorities.order import competing_jobs
from slurmsched.planning.priorities.priority_fields import PRIORITY_FIELDS
from slurmsched.planning.priorities.tiers import DECIDED_BY

if TYPE_CHECKING:
    from slurmsched.planning.priorities.priority_fields import PriorityField


def as_slurm(snapshot: Snapshot, plan: Plan, lever: str) -> str:
    """Why the order of the plan is Slurm's own for all managed jobs that wait; "" if it is not, or fewer than two wait.

    Slurm's own order is that by its priority without our lever, then by submission and id.
    """
    rows = np.flatnonzero(plan.managed & snapshot.jobs.pending)
    if plan.ranking is None or len(rows) < 2 or not _same(snapshot, plan.ranking.order, rows, PRIORITY_FIELDS[lever]):
        return ""
    same = f"the policy's order of the {pluralize(len(rows), 'waiting job')} is Slurm's own"
    times = times_in(plan.ranking.words)
    why = {name: values[rows] for name, values in plan.ranking.why.items() if name not in (DECIDED_BY, *times)}
    if why and all(_equal(values) for values in why.values()):
        shared = criteria({name: values[0].item() for name, values in why.items()}, plan.ranking.words)
        return f"{same}: it sees no difference between them" + (f" ({shared} for all)" if shared else "")
    return f"{same}: its criteria and Slurm's priority agree for these jobs"


def _same(snapshot: Snapshot, order: Int64s, rows: Int64s, lever: PriorityField) -> bool:
    """Whether these rows have the same order by the ranking and by Slurm, wherever they compete."""
    jobs, group = snapshot.jobs, competing_jobs(snapshot)
    place = np.empty(len(jobs), np.int64)
    place[order] = np.arange(len(order))
    priority = np.maximum(lever.factors(jobs) - lever.others(jobs), 1)
    ours = np.lexsort((place[rows], group[rows]))
    slurms = np.lexsort((jobs.job_id[rows], jobs.submit_s[rows], -priority[rows], group[rows]))
    return bool((ours == slurms).all())


def _equal(values: Int64s) -> bool:
    return bool((values == values[0]).all() or (values != values).all())

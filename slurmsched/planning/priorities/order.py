"""The order of a ranking: which jobs compete, what users' own nice changes, and who has waited too long."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurmsched.model import Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.planning.job_scope import follows_array
from slurmsched.planning.priorities.priority_fields import PriorityField


def competing_jobs(snapshot: Snapshot) -> Int64s:
    """A number for each job, equal for jobs whose partitions share nodes, directly or through others. (N,) int64."""
    root: dict[str, str] = {}

    def find(name: str) -> str:
        while root.setdefault(name, name) != name:
            name = root[name]
        return name

    for listed in (*snapshot.nodes.partitions.names, *snapshot.jobs.partition.names):
        first, *others = listed.split(",")
        for other in others:
            root[find(other)] = find(first)
    numbers: dict[str, int] = {}
    return snapshot.jobs.partition.map(
        lambda listed: numbers.setdefault(find(listed.split(",")[0]), len(numbers)), np.int64
    )


# The one order of waiting jobs.


def queue_order(snapshot: Snapshot, ranking: Ranking | None) -> Int64s:
    """Rows of all pending jobs, first to start first. (K,) int64.

    Without a ranking Slurm's own order: partition tier, priority, submission, id.
    """
    order = _by_priority(snapshot) if ranking is None else ranking.order
    found: Int64s = order[snapshot.jobs.pending[order]]
    return found


def _by_priority(snapshot: Snapshot) -> Int64s:
    jobs, partitions = snapshot.jobs, snapshot.partitions
    tiers = dict(zip(partitions.name, partitions.priority_tier.tolist(), strict=True))
    tier = jobs.partition.map(lambda listed: max(tiers.get(name, 1) for name in listed.split(",")), np.int64)
    return np.lexsort((jobs.job_id, jobs.submit_s, -jobs.priority, -tier)).astype(np.int64)


def with_own_nice(snapshot: Snapshot, ranking: Ranking, ours: Bools, wanted: Int64s, lever: PriorityField) -> Ranking:
    """The ranking as Slurm will have it: a nice of the user's own counts too, as does an operator's site factor.

    ours: (N,) bool, managed jobs. wanted: (N,) int64, their lever values. A managed job changes places only with such
    jobs that compete with it, and only where somebody moved one of them.
    """
    jobs = snapshot.jobs
    waits = (ours | (follows_array(jobs) & ours[_leader_rows(snapshot)])) & jobs.pending
    moved = waits & (lever.others(jobs) != 0)
    if not moved.any():
        return ranking
    priority = np.maximum(lever.factors(jobs) + _boost(snapshot, wanted, lever) - lever.others(jobs), 1)
    group, order = competing_jobs(snapshot), ranking.order.copy()
    for number in np.unique(group[moved]):
        places = np.flatnonzero((waits & (group == number))[order])
        rows = order[places]
        order[places] = rows[np.lexsort((jobs.job_id[rows], jobs.submit_s[rows], -priority[rows]))]
    return replace(ranking, order=order)


def behind_by_own_nice(snapshot: Snapshot, lever: PriorityField) -> Bools:
    """Pending jobs that a nice of their own puts behind a job they compete with, waiting or running. (N,) bool."""
    jobs, own = snapshot.jobs, np.maximum(lever.others(snapshot.jobs), 0)
    if not own.any():
        return np.zeros(len(jobs), np.bool_)
    group, here = competing_jobs(snapshot), ~jobs.finished
    least = np.full(int(group.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, group[here], own[here])
    found: Bools = jobs.pending & (own > least[group])
    return found


def _boost(snapshot: Snapshot, wanted: Int64s, lever: PriorityField) -> Int64s:
    """What these lever values add to each priority. (N,) int64."""
    return snapshot.jobs.base_nice - wanted if lever.name == "nice" else wanted


def _leader_rows(snapshot: Snapshot) -> Int64s:
    """Row of the array of each task, any row for a job of none. (N,) int64."""
    jobs = snapshot.jobs
    return np.minimum(np.searchsorted(jobs.job_id, jobs.array_job_id), max(len(jobs) - 1, 0))


# The hard age cap.


def aged_first(ranking: Ranking, snapshot: Snapshot, managed: Bools, age_cap_s: float) -> Ranking:
    """The ranking with the managed jobs that waited longer than the cap before all others, the longest first.

    managed: (N,) bool. age_cap_s: 0 = no cap. Jobs of other partitions keep their order: they are spaced apart.
    """
    if not age_cap_s:
        return ranking
    over = managed & (starvation_s(snapshot) > age_cap_s)
    if not over.any():
        return ranking
    jobs, rows = snapshot.jobs, np.flatnonzero(over)
    first = rows[np.lexsort((jobs.job_id[rows], jobs.submit_s[rows], -starvation_s(snapshot)[rows]))]
    order = np.concatenate([first, ranking.order[~over[ranking.order]]])
    return replace(ranking, order=order, why={**ranking.why, "over_age_cap": over})


def starvation_s(snapshot: Snapshot) -> Floats:
    """How long each pending job has waited since it last ran and while it could have started [s]; 0 for others. (N,).

    Time in which a dependency or a begin time held it back is no starvation.
    """
    jobs = snapshot.jobs
    since_eligible_s = np.nan_to_num(snapshot.now_s - jobs.eligible_s, nan=np.inf)
    waited: Floats = np.maximum(np.fmin(jobs.waiting_s, since_eligible_s), 0.0)
    return np.where(jobs.pending, waited, 0.0)

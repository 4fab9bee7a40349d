"""The one order of waiting jobs that every rank counts by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurmsched.model import Ranking, Snapshot
from slurmsched.model.columns import Bools, Int64s
from slurmsched.planning.groups import competing
from slurmsched.planning.levers import AnyLever
from slurmsched.planning.managed import follows_array


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


def with_own_nice(snapshot: Snapshot, ranking: Ranking, ours: Bools, wanted: Int64s, lever: AnyLever) -> Ranking:
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
    group, order = competing(snapshot), ranking.order.copy()
    for number in np.unique(group[moved]):
        places = np.flatnonzero((waits & (group == number))[order])
        rows = order[places]
        order[places] = rows[np.lexsort((jobs.job_id[rows], jobs.submit_s[rows], -priority[rows]))]
    return replace(ranking, order=order)


def put_back(snapshot: Snapshot, lever: AnyLever) -> Bools:
    """Pending jobs that a nice of their own puts behind a job they compete with, waiting or running. (N,) bool."""
    jobs, own = snapshot.jobs, np.maximum(lever.others(snapshot.jobs), 0)
    if not own.any():
        return np.zeros(len(jobs), np.bool_)
    group, here = competing(snapshot), ~jobs.finished
    least = np.full(int(group.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, group[here], own[here])
    found: Bools = jobs.pending & (own > least[group])
    return found


def _boost(snapshot: Snapshot, wanted: Int64s, lever: AnyLever) -> Int64s:
    """What these lever values add to each priority. (N,) int64."""
    return snapshot.jobs.base_nice - wanted if lever.name == "nice" else wanted


def _leader_rows(snapshot: Snapshot) -> Int64s:
    """Row of the array of each task, any row for a job of none. (N,) int64."""
    jobs = snapshot.jobs
    return np.minimum(np.searchsorted(jobs.job_id, jobs.array_job_id), max(len(jobs) - 1, 0))

"""The one order of waiting jobs that every rank counts by."""

from __future__ import annotations

import numpy as np

from slurmsched.model import Ranking, Snapshot
from slurmsched.model.columns import Int64s


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

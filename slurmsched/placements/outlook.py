"""When GPUs come back: what backfilling looks ahead at."""

from __future__ import annotations

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Floats, Int64s
from slurmsched.resources.held import Held, holding


def ahead_s(snapshot: Snapshot) -> Floats:
    """How much longer each job will hold GPUs at most, from its start or from now [s]. (N,), infinity without a limit.

    A running job past its end counts as about to go.
    """
    jobs = snapshot.jobs
    left_s = np.where(np.isnan(jobs.end_s), np.inf, jobs.end_s - snapshot.now_s)
    return np.where(holding(jobs), np.maximum(left_s, 0.0), jobs.time_limit_s)


def free_ahead(snapshot: Snapshot, held: Held, capacity: Int64s) -> tuple[Floats, Int64s]:
    """GPUs of each node that are free from each time on, if every job runs to its limit. times (K,) [s], (K, N).

    capacity: (N,) GPUs there are to give. The first time is now; jobs without a limit never give theirs back.
    """
    job = np.repeat(np.arange(len(held.count)), held.count)
    returns_s = ahead_s(snapshot)[job]
    comes = np.isfinite(returns_s)
    times, place = np.unique(np.concatenate([[0.0], returns_s[comes]]), return_inverse=True)
    back = np.zeros((len(times), len(capacity)), np.int64)
    np.add.at(back, (place[1:], held.node[comes]), held.gpus[comes])
    back[0] += capacity - np.bincount(held.node, held.gpus, len(capacity)).astype(np.int64)
    return snapshot.now_s + times, np.cumsum(back, axis=0)

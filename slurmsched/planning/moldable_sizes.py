"""Fewer GPUs for waiting jobs that may start with fewer: chosen when they can start, from what is free then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurmsched.config import LeverConfig
from slurmsched.model import JobChanges, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hints import hint_column
from slurmsched.planning.job_scope import size_units
from slurmsched.resources.free import free_for
from slurmsched.resources.job_request import request_of
from slurmsched.resources.reservation_limits import UnknownEligibility
from slurmsched.resources.startable_jobs import startable

MOST_JOBS = 200  # looked at in a cycle, the most urgent first


def moldable_sizes(ranking: Ranking, snapshot: Snapshot, managed: Bools, lever: LeverConfig) -> Ranking:
    """The ranking with a size for each waiting job that may start with fewer GPUs and ends no later by it.

    Of jobs with the hints moldable=yes, min_gpus and dur to which the policy gives no size, where their own is not free
    now. A job gets the largest size that is free and not given to a job before it. It is taken to run as much longer as
    it has fewer GPUs, and must then end within its time limit, and no later than with its own size at the start that
    Slurm expects. Where Slurm expects no start, any wait counts as longer.
    managed: (N,) bool. Source: slurmsched.
    """
    jobs = snapshot.jobs
    if not (lever.moldable and lever.size) or not (hint_column(jobs, "moldable") == 1).any():
        return ranking
    given = _given(ranking, len(jobs))
    asked = managed & startable(snapshot) & (hint_column(jobs, "moldable") == 1) & (given == 0)
    asked &= hint_column(jobs, "min_gpus") < jobs.gpus  # NaN: no hint
    taken = np.zeros(len(snapshot.nodes), np.int64)
    for row in ranking.order[asked[ranking.order]][:MOST_JOBS].tolist():
        given[row] = _size(snapshot, row, taken)
    changes = replace(ranking.changes or JobChanges(), gpus=given.astype(np.int32))
    return replace(ranking, changes=changes) if given.any() else ranking


def _given(ranking: Ranking, rows: int) -> Int64s:
    """GPUs that the policy gives each job, 0 = none. (N,)."""
    gpus = None if ranking.changes is None else ranking.changes.gpus
    return np.zeros(rows, np.int64) if gpus is None else np.array(gpus, np.int64)


def _size(snapshot: Snapshot, row: int, taken: Int64s) -> int:
    """GPUs with which the job is to start now, 0 = as it asks. taken: (M,) GPUs of each node given so far; its own are
    added."""
    jobs, own = snapshot.jobs, int(snapshot.jobs.gpus[row])
    unit, nodes = int(size_units(jobs)[row]), int(jobs.nodes[row])
    part = unit if nodes > 1 else int(hint_column(jobs, "min_gpus")[row])
    try:
        found = free_for(snapshot, replace(request_of(snapshot, row), gpus=part))
    except UnknownEligibility:
        return 0
    free = np.where(found.mask, found.gpus - taken, 0)
    room = np.flatnonzero(free >= part)
    best = unit * len(room) if nodes > 1 else int(free.max(initial=0)) // unit * unit
    size = min(best, own)
    if size < hint_column(jobs, "min_gpus")[row]:
        return 0
    if nodes > 1:
        taken[room[: size // unit]] += unit
    else:
        taken[int(free.argmax())] += size
    return size if size < own and _ends_in_time(snapshot, own / size)[row] else 0


def _ends_in_time(snapshot: Snapshot, longer: float) -> Bools:
    """Whether a job that starts now and runs so many times longer ends within its limit, and no later than with its own
    size. (N,) bool."""
    jobs = snapshot.jobs
    run_s: Floats = hint_column(jobs, "dur_s")
    wait_s = np.where(np.isnan(jobs.expected_start_s), np.inf, jobs.expected_start_s - snapshot.now_s)
    found: Bools = (run_s * longer <= jobs.time_limit_s) & (run_s * longer <= np.maximum(wait_s, 0.0) + run_s)
    return found

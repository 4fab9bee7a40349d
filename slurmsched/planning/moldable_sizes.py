"""Fewer GPUs for waiting jobs that may start with fewer: chosen when they can start, from what is free then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurmsched.config import LeverConfig, ScopeConfig
from slurmsched.model import JobChanges, Ranking, Snapshot
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.gpu_selection import counted
from slurmsched.model.hints import hint_column
from slurmsched.planning.job_overrides import SIZE_FIELDS, by_job, left_alone, untouched
from slurmsched.planning.job_scope import policy_gpus, size_units, size_verdicts
from slurmsched.resources.free import free_for
from slurmsched.resources.job_request import request_of
from slurmsched.resources.startable_jobs import not_waiting_for_gpus, startable

MOST_JOBS = 500  # waiting jobs looked at in a cycle, the most urgent first


# Over 30 lines: half is signature and docstring.
def moldable_sizes(
    ranking: Ranking, snapshot: Snapshot, managed: Bools, lever: LeverConfig, scope: ScopeConfig
) -> Ranking:
    """The ranking with a size for each waiting job that may start with fewer GPUs and ends no later by it.

    A job is looked at if it meets all of these:

    - It has the hints moldable=yes, min_gpus, max_gpus and dur.
    - The policy gives it no size.
    - Its size may change.
    - It is no array.
    - Its own size is not free now.

    It gets the largest size that meets all of these; else it keeps its own:

    - It is free, and no job before it takes it, of whatever kind.
    - The job ends within its time limit. It is taken to run as much longer as it has fewer GPUs.
    - The job ends no later than with its own size at the start that Slurm expects. That start must be known.

    A size of ours stays while it is free: the start that Slurm expects is then that of this size.
    snapshot: with the users' own requests.
    managed: (N,) bool.
    Source: slurmsched.
    """
    jobs = snapshot.jobs
    if not (lever.moldable and lever.size) or not (hint_column(jobs, "moldable") == 1).any():
        return ranking
    given, taken = policy_gpus(ranking, jobs), np.zeros(len(snapshot.nodes), np.int64)
    asked = managed & (given == 0) & _agreed(snapshot) & (size_verdicts(jobs, scope) < 0)
    ours = {record.job_id: counted(str(record.sent)) for record in snapshot.overrides
            if record.field == "size" and record.open}  # fmt: skip
    waits = startable(snapshot) & (jobs.gpus > 0) & ~not_waiting_for_gpus(jobs)
    for row in ranking.order[waits[ranking.order]][:MOST_JOBS].tolist():
        if asked[row]:
            given[row] = _size(snapshot, row, taken, ours.get(int(jobs.job_id[row]), 0))
        else:
            _take_own(snapshot, row, taken)
    changes = replace(ranking.changes or JobChanges(), gpus=given.astype(np.int32))
    return replace(ranking, changes=changes) if given.any() else ranking


def _agreed(snapshot: Snapshot) -> Bools:
    """Jobs whose hints allow a smaller size, and that nothing of ours keeps at their own. (N,) bool."""
    jobs = snapshot.jobs
    least, most = hint_column(jobs, "min_gpus"), hint_column(jobs, "max_gpus")  # NaN: no hint
    found = (hint_column(jobs, "moldable") == 1) & (jobs.array_job_id == 0) & (least < jobs.gpus) & (least <= most)
    found &= ~np.isnan(hint_column(jobs, "dur_s")) & ~untouched(snapshot, but=SIZE_FIELDS)
    return found & ~left_alone(jobs, by_job(snapshot.overrides, SIZE_FIELDS))


def _free(snapshot: Snapshot, row: int, part: int, taken: Int64s, *, sure: bool = False) -> Int64s:
    """Free GPUs of each node that has `part` of them free for the job, 0 of the others. (M,). sure: of nodes that it
    may have for sure."""
    found = free_for(snapshot, replace(request_of(snapshot, row), gpus=part))
    free = np.where(found.mask & (found.eligibility.sure | (not sure)), found.gpus - taken, 0)
    return np.where(free >= part, free, 0)


def _take_own(snapshot: Snapshot, row: int, taken: Int64s) -> None:
    """Add the GPUs that a job takes if it starts now as it asks, or as many tasks of an array as start. taken: (M,)."""
    jobs, part = snapshot.jobs, request_of(snapshot, row).gpus
    nodes, free = max(int(jobs.nodes[row]), 1), _free(snapshot, row, part, taken)
    for _ in range(max(int(jobs.array_tasks[row]), 1)):
        fits = np.flatnonzero(free >= max(part, 1))
        if len(fits) < nodes:
            return
        takes = fits[np.argsort(free[fits], kind="stable")][:nodes]
        free[takes] -= part
        taken[takes] += part


def _size(snapshot: Snapshot, row: int, taken: Int64s, ours: int) -> int:
    """GPUs with which the job is to start now, 0 = as it asks. taken: (M,) GPUs of each node given so far; its own are
    added. ours: the size that it has by slurmsched, 0 = none."""
    jobs, own = snapshot.jobs, int(snapshot.jobs.gpus[row])
    unit, nodes = int(size_units(jobs)[row]), int(jobs.nodes[row])
    least, most = (int(hint_column(jobs, name)[row]) for name in ("min_gpus", "max_gpus"))
    free = _free(snapshot, row, unit if nodes > 1 else least, taken, sure=True)
    room = np.flatnonzero(free)
    best = unit * len(room) if nodes > 1 else int(free.max(initial=0))
    size = own if best >= own else min(best, most) // unit * unit
    if size < own and ours:  # it stays while it is free, else the job asks for its own again
        size = ours if ours <= size else 0
    if size < least or (size < own and not (ours or _ends_in_time(snapshot, row, own / size))):
        return 0
    if nodes > 1:
        taken[room[: size // unit]] += unit
    else:
        taken[int(free.argmax())] += size
    return size if size < own else 0


def _ends_in_time(snapshot: Snapshot, row: int, longer: float) -> bool:
    """Whether a job that starts now and runs so many times longer ends within its limit, and no later than with its own
    size."""
    jobs = snapshot.jobs
    run_s, wait_s = float(hint_column(jobs, "dur_s")[row]), float(jobs.expected_start_s[row]) - snapshot.now_s
    in_time = run_s * longer <= wait_s + run_s  # NaN: no start is expected
    return in_time and run_s * longer <= float(jobs.time_limit_s[row])

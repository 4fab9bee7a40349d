"""Sizes that replays choose when jobs start, as `lever.moldable` does: what the simulated clusters lack for that."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from slurmsched.config import LeverConfig, ScopeConfig
from slurmsched.model import JobChanges, Labels, Plan, Ranking, Snapshot
from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.hints import MARK, parse_hints
from slurmsched.model.trace import Trace
from slurmsched.planning.moldable_sizes import MOST_JOBS, moldable_sizes
from slurmsched.resources.allocated import AllocatedGpus, holding
from slurmsched.resources.placeable_gpus import placeable_gpu_counts
from slurmsched.resources.startable_jobs import startable
from slurmsched.resources.timeline import free_gpus_over_time

if TYPE_CHECKING:
    from slurmsched.protocols import DecidingPlanner

MOLDABLE = LeverConfig(size=True, moldable=True)
EVERY_PARTITION = ScopeConfig(partitions=("*",))


def with_run_times(trace: Trace, hints: str) -> Trace:
    """The trace in which moldable jobs say how long they run: as recorded, where they have no hint `dur`.

    hints: comment of all jobs, "" = that of each in the trace.
    """
    comments = [hints] * len(trace) if hints else list(trace.comment)
    known = {text: parse_hints(text) for text in set(comments)}
    made = [
        f"{text} {MARK} dur={seconds:.0f}s" if known[text].moldable and known[text].dur_s is None else text
        for text, seconds in zip(comments, np.ceil(trace.duration_s).tolist(), strict=True)
    ]
    return trace.with_columns(comment=Labels.of(made))


def with_expected_starts(snapshot: Snapshot, order: Int64s) -> Snapshot:
    """The snapshot with a start that backfill would plan for each of the first waiting jobs [Unix s].

    order: (N,) rows, most urgent first. Every job runs to its time limit, and delays none before it. Only GPUs are
    counted: nodes do not matter.
    Source: conservative backfill, Mu'alem and Feitelson, IEEE TPDS 12(6), 2001.
    """
    jobs = snapshot.jobs
    waits = order[(startable(snapshot) & (jobs.gpus > 0))[order]][:MOST_JOBS]
    times, free = free_gpus_over_time(snapshot, AllocatedGpus.of(snapshot), placeable_gpu_counts(snapshot))
    start_s = np.full(len(jobs), np.nan)
    gpus = jobs.gpus[waits].astype(np.int64)
    start_s[waits] = planned_starts(times, free.sum(axis=1), gpus, jobs.time_limit_s[waits])
    return replace(snapshot, jobs=jobs.with_columns(expected_start_s=start_s))


def planned_starts(times: Floats, free: Int64s, gpus: Int64s, limit_s: Floats) -> Floats:
    """When each job starts if it delays none before it, NaN for never. (Q,).

    times: (K,) ascending [s]. free: (K,) GPUs free from each time on. gpus, limit_s: (Q,), most urgent first.
    """
    start_s = np.full(len(gpus), np.nan)
    for job, (need, lasts_s) in enumerate(zip(gpus.tolist(), limit_s.tolist(), strict=True)):
        slot = 0
        while slot < len(times):
            until = int(np.searchsorted(times, times[slot] + lasts_s))
            short = np.flatnonzero(free[slot:until] < need)
            if not len(short):
                break
            slot += int(short[-1]) + 1
        if slot == len(times):
            continue
        start_s[job] = times[slot]
        if (end_s := times[slot] + lasts_s) < np.inf and (until == len(times) or times[until] != end_s):
            times, free = np.insert(times, until, end_s), np.insert(free, until, free[until - 1])
        free = free - np.where((np.arange(len(times)) >= slot) & (np.arange(len(times)) < until), need, 0)
    return start_s


def moldable_ranking(ranking: Ranking, snapshot: Snapshot) -> Ranking:
    """The ranking with sizes for waiting jobs as `lever.moldable` gives them, for a cluster without such a lever.

    Running jobs keep the size that they started with.
    """
    jobs, allocations = snapshot.jobs, snapshot.allocations
    asked = jobs.with_columns(tasks=np.maximum(jobs.nodes, 1), gpus_by=Labels.constant("node", len(jobs)))
    seen = with_expected_starts(replace(snapshot, jobs=asked), ranking.order)
    ranking = moldable_sizes(ranking, seen, np.ones(len(jobs), np.bool_), MOLDABLE, EVERY_PARTITION)
    row = np.searchsorted(jobs.job_id, allocations.job_id)
    held = np.bincount(row, allocations.gpus, len(jobs)).astype(np.int64)
    changes = ranking.changes or JobChanges()
    given = np.zeros(len(jobs), np.int64) if changes.gpus is None else changes.gpus.astype(np.int64)
    given = np.where(holding(jobs) & (given == 0) & (held != jobs.gpus), held, given)
    return replace(ranking, changes=replace(changes, gpus=given.astype(np.int32)))


@dataclass(frozen=True, slots=True)
class ExpectedStartPlanner:
    """A planner for the slurmctld model that sees expected starts, as Slurm shows them.

    cpus_known: the CPUs of the cluster are real. Otherwise jobs ask for none: theirs are as many parts of a node's as
        of its GPUs, whatever their size.
    """

    planner: DecidingPlanner
    cpus_known: bool

    def plan(self, snapshot: Snapshot) -> Plan:
        """The plan of the planner."""
        jobs = snapshot.jobs
        order = np.lexsort((jobs.job_id, -jobs.priority))
        if not self.cpus_known:
            snapshot = replace(snapshot, jobs=jobs.with_columns(cpus=np.zeros(len(jobs), np.int64)))
        return self.planner.plan(with_expected_starts(snapshot, order))

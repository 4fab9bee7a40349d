"""What a placement walks over: jobs that may hold GPUs now, and the GPUs there are to give."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.kernels.walk import walk
from slurmsched.model import Assignments, Jobs, JobState, Snapshot, frozen
from slurmsched.model.columns import Bools, Int64s


def eligible(snapshot: Snapshot) -> Bools:
    """Jobs that could start now: pending, not held, not delayed, no open dependency or reservation. (N,) bool."""
    jobs = snapshot.jobs
    due = np.isnan(jobs.eligible_s) | (jobs.eligible_s <= snapshot.now_s)
    bound = ~jobs.dependency.isin([""]) | ~jobs.reservation.isin([""])
    return jobs.pending & ~jobs.held & due & ~bound


def holding(jobs: Jobs) -> Bools:
    """Jobs that hold GPUs and keep them by themselves: running or suspended, not completing. (N,) bool."""
    return jobs.is_state(JobState.RUNNING | JobState.SUSPENDED) & ~jobs.is_state(JobState.COMPLETING)


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """GPUs of holding jobs, by row of the jobs table: row j holds gpus[k] on node[k], k in first[j] .. +count[j]."""

    first: Int64s
    count: Int64s
    node: Int64s
    gpus: Int64s

    @classmethod
    def of(cls, snapshot: Snapshot) -> Held:
        jobs, nodes, allocations = snapshot.jobs, snapshot.nodes, snapshot.allocations
        row = np.searchsorted(jobs.job_id, allocations.job_id)
        node_row = {name: n for n, name in enumerate(nodes.name)}
        node = allocations.node.map(lambda name: node_row.get(name, -1), np.int64)
        known = (row < len(jobs)) & (node >= 0)
        known[known] = (jobs.job_id[row[known]] == allocations.job_id[known]) & holding(jobs)[row[known]]
        count = np.bincount(row[known], minlength=len(jobs)).astype(np.int64)
        gpus = allocations.gpus[known].astype(np.int64)
        return cls(np.cumsum(count) - count, count, np.asarray(node[known]), gpus)


def to_give(snapshot: Snapshot) -> Int64s:
    """GPUs of each node that jobs of the snapshot hold or may get: without those of unseen holders and the free
    ones of closed nodes, with those of completing jobs. (N,) int64."""
    nodes, allocations = snapshot.nodes, snapshot.allocations
    seen = dict.fromkeys(nodes.name, 0)
    for name, gpus in zip(allocations.node, allocations.gpus.tolist(), strict=True):
        seen[name] = seen.get(name, 0) + gpus
    visible = np.array([seen[name] for name in nodes.name], np.int64)
    foreign = np.maximum(nodes.gpus_used - visible, 0)
    return np.where(nodes.down | nodes.draining, visible, nodes.gpus - foreign).astype(np.int64)


def pools(snapshot: Snapshot) -> tuple[Int64s, Bools]:
    """Row of the table for each job, and the table: which open nodes serve its partitions and GPU types. (J,), (P, N).

    A request of several types at once gets nodes that have all of them. CPUs, memory and features are not looked at.
    """
    jobs, nodes, partitions = snapshot.jobs, snapshot.nodes, snapshot.partitions
    closed = {name for name, up in zip(partitions.name, partitions.up.tolist(), strict=True) if not up}
    code = jobs.partition.codes.astype(np.int64) * max(len(jobs.gpu_request.names), 1) + jobs.gpu_request.codes
    kinds, pool = np.unique(code, return_inverse=True)
    table = np.zeros((max(len(kinds), 1), len(nodes)), np.bool_)
    for row, kind in enumerate(kinds.tolist()):
        partition, request = divmod(kind, max(len(jobs.gpu_request.names), 1))
        wanted = set(jobs.partition.names[partition].split(",")) - closed
        types = _types(jobs.gpu_request.names[request])
        for n in range(len(nodes)):
            serves = not wanted.isdisjoint(nodes.partitions[n].split(","))
            table[row, n] = serves and types <= _types(nodes.gpu_types[n])
    table[:, nodes.down | nodes.draining] = False
    return pool.astype(np.int64), table


def _types(request: str) -> frozenset[str]:
    """GPU types named in a request's normal form, "gpu:a100:4" -> {"a100"}; an untyped one names none."""
    return frozenset(part.split(":")[1] for part in request.split(",") if part.count(":") == 2)


def assign(snapshot: Snapshot, order: Int64s, capacity: Int64s, held: Held, pool: Int64s, usable: Bools) -> Assignments:
    """The walk over holding and eligible jobs of the order, as assignments."""
    jobs = snapshot.jobs
    rows = order[((held.count > 0) | eligible(snapshot))[order]]
    gpus, nodes = jobs.gpus.astype(np.int64), jobs.nodes.astype(np.int64)
    given = walk(rows, gpus, nodes, held.first, held.count, held.node, held.gpus, pool, usable, capacity)
    served = np.flatnonzero(given.any(axis=1))
    rank, node = np.nonzero(given[served])
    count = np.bincount(rank, minlength=len(served)).astype(np.int64)
    ints = (rows[served], np.cumsum(count) - count, count, node, given[served][rank, node])
    return Assignments(*(frozen(column, np.int64) for column in ints))

"""What running jobs hold, and nodes by their names."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from slurmsched.model.columns import Bools, Int32s, Int64s, Labels, frozen
from slurmsched.model.gres import is_mig
from slurmsched.model.hostlists import expand_or_none, most_names_of
from slurmsched.model.jobs import Jobs
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.states import HOLDS_NODES, ON_NODES, JobState


def holding(jobs: Jobs) -> Bools:
    """Jobs that hold GPUs and keep them by themselves: running or suspended, not completing. (N,) bool."""
    return jobs.is_state(HOLDS_NODES) & ~jobs.is_state(JobState.COMPLETING)


@dataclass(frozen=True, slots=True, eq=False)
class AllocatedGpus:
    """GPUs of holding jobs, MIG devices left out, by row of the jobs table: row j holds gpus[k] on node[k], k in
    first[j] .. +count[j]."""

    first: Int64s
    count: Int64s
    node: Int64s
    gpus: Int64s

    @classmethod
    def of(cls, snapshot: Snapshot) -> AllocatedGpus:
        """Held GPUs by job; rows of unknown jobs or nodes and MIG devices are left out."""
        row, node = _holder_rows(snapshot), node_rows(snapshot)
        known = (row >= 0) & (node >= 0) & ~_mig(snapshot)
        count = np.bincount(row[known], minlength=len(snapshot.jobs)).astype(np.int64)
        gpus = snapshot.allocations.gpus[known].astype(np.int64)
        return cls(np.cumsum(count) - count, count, node[known], gpus)

    def rows(self, job: int) -> slice:
        """The rows of what a job holds."""
        return slice(int(self.first[job]), int(self.first[job] + self.count[job]))

    def nodes(self, job: int) -> list[int]:
        """The nodes where a job holds GPUs."""
        return sorted(set(self.node[self.rows(job)].tolist()))

    def table(self, rows: Int64s, capacity: Int64s) -> Int64s:
        """GPUs that each of these rows holds on each node. (R, N) int64."""
        made = np.zeros((len(self.count), len(capacity)), np.int64)
        np.add.at(made, (np.repeat(np.arange(len(self.count)), self.count), self.node), self.gpus)
        return made[rows]


def _mig(snapshot: Snapshot) -> Bools:
    """Which allocations are of MIG devices, which are no whole GPUs. (A,) bool."""
    return snapshot.allocations.gpu_type.map(is_mig, np.bool_)


def allocated_whole_gpus(snapshot: Snapshot) -> Int32s:
    """GPUs of each allocation; MIG devices are none. (A,)."""
    mig, gpus = _mig(snapshot), snapshot.allocations.gpus
    return np.where(mig, np.int32(0), gpus) if mig.any() else gpus


def _holder_rows(snapshot: Snapshot) -> Int64s:
    """Row of the holding job of each allocation, -1 if it is none of the snapshot's. (A,) int64."""
    jobs, ids = snapshot.jobs, snapshot.allocations.job_id
    if not len(jobs):
        return np.full(len(ids), -1, np.int64)
    row = np.minimum(np.searchsorted(jobs.job_id, ids), len(jobs) - 1)
    return np.where((jobs.job_id[row] == ids) & holding(jobs)[row], row, -1)


def node_rows(snapshot: Snapshot) -> Int64s:
    """Row of the node of each allocation, -1 if it is none of the snapshot's. (A,) int64."""
    return _rows_in(snapshot.allocations.node, snapshot.nodes.name)


@lru_cache(maxsize=2)  # one snapshot is asked many times
def _rows_in(node: Labels, name: Labels) -> Int64s:
    if node.names is name.names:  # one text column made from the other: rows are codes
        return frozen(node.codes.astype(np.int64), np.int64)
    row_of = _rows_of(name)
    return node.map(lambda text: row_of.get(text, -1), np.int64)


def named_rows(snapshot: Snapshot, text: str) -> tuple[list[int], int] | None:
    """Rows of the nodes of a hostlist and how many names it has; None where it cannot be read."""
    names = expand_or_none(text, most_names_of(len(snapshot.nodes)))
    if names is None:
        return None
    at = _rows_of(snapshot.nodes.name)
    return [at[name] for name in names if name in at], len(names)


@lru_cache(maxsize=2)
def _rows_of(names: Labels) -> dict[str, int]:
    return names.rows()


@lru_cache(maxsize=1 << 8)
def nodes_serving(partitions: Labels, name: str) -> Bools:
    """Whether each node is in the partition `name`. (N,) bool. partitions: comma-separated, (N,)."""
    return partitions.map(lambda serves: name in serves.split(","), np.bool_)


@lru_cache(maxsize=1 << 8)
def nodes_named(names: Labels, hosts: tuple[str, ...]) -> Bools:
    """Whether each node is one of `hosts`. (N,) bool."""
    return names.isin(hosts)


@lru_cache(maxsize=2)
def held_nodes(snapshot: Snapshot) -> tuple[Int64s, Int64s, frozenset[int]]:
    """Row and node of each job that holds nodes, one entry a node, and the rows of those whose list cannot be read."""
    jobs, rows, nodes, unread = snapshot.jobs, list[int](), list[int](), set[int]()
    for row in np.flatnonzero(jobs.is_state(ON_NODES)).tolist():
        here = named_rows(snapshot, jobs.node_list[row])
        if here is None:
            unread.add(row)
        else:
            nodes += here[0]
            rows += [row] * len(here[0])
    return np.array(rows, np.int64), np.array(nodes, np.int64), frozenset(unread)

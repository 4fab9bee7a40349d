"""What running jobs hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model.columns import Bools, Int32s, Int64s
from slurmsched.model.gres import is_mig
from slurmsched.model.jobs import Jobs
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.states import JobState


def holding(jobs: Jobs) -> Bools:
    """Jobs that hold GPUs and keep them by themselves: running or suspended, not completing. (N,) bool."""
    return jobs.is_state(JobState.RUNNING | JobState.SUSPENDED) & ~jobs.is_state(JobState.COMPLETING)


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """GPUs of holding jobs, MIG devices left out, by row of the jobs table: row j holds gpus[k] on node[k], k in
    first[j] .. +count[j]."""

    first: Int64s
    count: Int64s
    node: Int64s
    gpus: Int64s

    @classmethod
    def of(cls, snapshot: Snapshot) -> Held:
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


def whole_gpus(snapshot: Snapshot) -> Int32s:
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
    node, name = snapshot.allocations.node, snapshot.nodes.name
    if node.names is name.names:  # one text column made from the other: rows are codes
        return node.codes.astype(np.int64)
    row_of = {text: row for row, text in enumerate(name)}
    return node.map(lambda text: row_of.get(text, -1), np.int64)

"""GPU types of a cluster, the jobs that can run on them, and how fast."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.protocols import SpeedEstimator
from slurmsched.resources.allocated import holding
from slurmsched.resources.eligibility import node_pools
from slurmsched.resources.startable_jobs import startable


@dataclass(frozen=True, slots=True, eq=False)
class HeterogeneousCluster:
    """One column a GPU type, in ascending name ("" = nodes without a type).

    capacity: (T,) GPUs of each type on open nodes.
    gpus: (N,) of each job.
    speed: (N, T), 0 where a job cannot run.
    active: (N,) bool, jobs that hold GPUs or could start, and can run on some type.
    """

    types: tuple[str, ...]
    capacity: Floats
    gpus: Floats
    speed: Floats
    active: Bools


def heterogeneous_cluster(snapshot: Snapshot, speeds: SpeedEstimator) -> HeterogeneousCluster:
    """The cluster of a snapshot by GPU type. A job may use types of which its partitions and request give enough."""
    jobs, kinds = snapshot.jobs, GpuKinds.of(snapshot)
    speed = speeds.speeds(snapshot, kinds.types) * (kinds.room >= np.maximum(jobs.gpus, 1)[:, None])
    active = (holding(jobs) | startable(snapshot)) & (jobs.gpus > 0) & (speed > 0).any(axis=1)
    return HeterogeneousCluster(kinds.types, kinds.capacity, jobs.gpus.astype(np.float64), speed, active)


@dataclass(frozen=True, slots=True, eq=False)
class GpuKinds:
    """GPU types in ascending name, and where they are.

    column: (M,) type of each node.
    open_gpus: (M,) GPUs of each node, 0 of a closed one.
    room: (N, T) GPUs of each type on open nodes of each job's partitions.
    """

    types: tuple[str, ...]
    column: Int64s
    open_gpus: Int64s
    room: Floats

    @classmethod
    def of(cls, snapshot: Snapshot) -> GpuKinds:
        nodes = snapshot.nodes
        type_of = [gpu_type(text) for text in nodes.gpu_types]
        types = tuple(sorted(set(type_of))) or ("",)
        column = np.array([types.index(each) for each in type_of], np.int64)
        open_gpus = np.where(nodes.closed, 0, nodes.gpus).astype(np.int64)
        pool, table = node_pools(snapshot)
        room = np.array([np.bincount(column, row * open_gpus, len(types)) for row in table]).reshape(-1, len(types))
        return cls(types, column, open_gpus, room[pool])

    @property
    def capacity(self) -> Floats:
        """GPUs of each type on open nodes. (T,)."""
        return np.bincount(self.column, self.open_gpus, len(self.types)).astype(np.float64)

    @property
    def of_node(self) -> Int64s:
        """Most GPUs of one node of each type. (T,)."""
        most = np.zeros(len(self.types), np.int64)
        np.maximum.at(most, self.column, self.open_gpus)
        return most

    @property
    def sizes(self) -> list[Int64s]:
        """Sizes of jobs that leave no rests on each type: doublings within its largest node, then such nodes."""
        made = []
        for total, node in zip(self.capacity.astype(np.int64).tolist(), self.of_node.tolist(), strict=True):
            parts = [1 << step for step in range(node.bit_length()) if 1 << step < node]
            made.append(np.array(parts + list(range(node, total + 1, max(node, 1))) if node else [], np.int64))
        return made


def gpu_type(gpu_types: str) -> str:
    """The type of a node in normal form, the first of several, "" without a type."""
    first = gpu_types.partition(",")[0]
    return first.split(":")[1] if first.count(":") == 2 else ""

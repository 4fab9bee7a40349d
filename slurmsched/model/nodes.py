"""Nodes and partitions of a snapshot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model.columns import Bools, Floats, Int32s, Int64s, Labels
from slurmsched.model.states import NodeState
from slurmsched.model.table import Table, column, text

_GONE = NodeState.DOWN | NodeState.ERROR | NodeState.FUTURE | NodeState.UNKNOWN | NodeState.POWERED_DOWN
_CLOSED = NodeState.DRAIN | NodeState.FAIL | NodeState.MAINTENANCE | NodeState.INVALID_REG

_NO_NEW_JOB = int(_GONE | NodeState.NOT_RESPONDING | _CLOSED)


@dataclass(frozen=True, slots=True, eq=False)
class Nodes(Table):
    """One row a node, in ascending name. All columns are (N,)."""

    name: Labels = text()
    partitions: Labels = text()  # comma list, ascending
    state: Int64s = column(np.int64, int(NodeState.IDLE))
    gpu_types: Labels = text()  # normal form of what it has, e.g. "gpu:a100:8"
    gpus: Int32s = column(np.int32, 0)
    gpus_used: Int32s = column(np.int32, 0)
    gpu_mask_used: Int64s = column(np.int64, 0)  # bit i: GPU index i is held; 0 when counts only
    cpus: Int32s = column(np.int32, 0)
    cpus_used: Int32s = column(np.int32, 0)
    memory_mib: Floats = column(np.float64, 0.0)
    memory_used_mib: Floats = column(np.float64, 0.0)
    features: Labels = text()
    reason: Labels = text()

    def is_state(self, state: NodeState) -> Bools:
        """Whether any of these flags is set. (N,) bool."""
        return (self.state & int(state)) != 0

    @property
    def down(self) -> Bools:
        return self.is_state(_GONE | NodeState.NOT_RESPONDING)

    @property
    def closed(self) -> Bools:
        """Takes no new job: down or draining."""
        return (self.state & _NO_NEW_JOB) != 0

    @property
    def draining(self) -> Bools:
        """Takes no new job (drain, maintenance, failing), but is not down."""
        return self.is_state(_CLOSED) & ~self.down

    def gpu_use(self) -> dict[str, Int64s]:
        """GPUs of each node by what they are for now: idle + allocated + draining + down = all. Each (N,) int64.

        Allocated GPUs of draining nodes count as allocated, free ones as draining; every GPU of
        a node that is down counts as down.
        """
        every = self.gpus.astype(np.int64)
        used = np.where(self.down, 0, np.minimum(self.gpus_used, every))
        free = np.where(self.down, 0, every - used)
        return {
            "idle": np.where(self.draining, 0, free),
            "allocated": used,
            "draining": np.where(self.draining, free, 0),
            "down": np.where(self.down, every, 0),
            "all": every,
        }

    def gpu_totals(self) -> dict[str, int]:
        """The sums of gpu_use."""
        return {name: int(gpus.sum()) for name, gpus in self.gpu_use().items()}


@dataclass(frozen=True, slots=True, eq=False)
class Partitions(Table):
    """One row a partition, in ascending name. All columns are (P,)."""

    name: Labels = text()
    up: Bools = column(np.bool_, True)
    default: Bools = column(np.bool_, False)
    max_time_s: Floats = column(np.float64, float("inf"))
    default_time_s: Floats = column(np.float64, float("nan"))
    priority_tier: Int32s = column(np.int32, 1)
    node_list: Labels = text()  # hostlist text
    nodes: Int32s = column(np.int32, 0)
    topology: Labels = text()  # its own (Topology=, Slurm 25.05 on), "" = the cluster's default
    defaults: Labels = text()  # of jobs that do not say, e.g. "DefMemPerCPU=1000,DefCpuPerGPU=8"

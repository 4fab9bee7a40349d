"""Nodes and partitions of a snapshot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model.columns import Bools, Floats, Int32s, Int64s, Labels
from slurmsched.model.states import NodeState, Takes, flags_that
from slurmsched.model.table import Table, column, text

_GONE = NodeState.DOWN | NodeState.ERROR | NodeState.FUTURE | NodeState.UNKNOWN
_BOOTS = int(flags_that(Takes.BOOT))
_CLOSES = int(flags_that(Takes.NONE) & ~NodeState.NOT_RESPONDING)


@dataclass(frozen=True, slots=True, eq=False)
class Nodes(Table):
    """One row a node, in ascending name. All columns are (N,)."""

    name: Labels = text()
    partitions: Labels = text()  # comma list, ascending
    state: Int64s = column(np.int64, int(NodeState.IDLE))
    gpu_types: Labels = text()  # normal form of what it has, e.g. "gpu:a100:8"
    gpus: Int32s = column(np.int32, 0)
    types_used: Labels = text()  # what Slurm says is used of it, e.g. "gpu:a100:2,gpu:1g.5gb:1"; "" = nothing
    gpus_used: Int32s = column(np.int32, 0)  # no job can have them whole: held, or shards or MPS of them are
    gpu_mask_used: Int64s = column(np.int64, 0)  # bit i: GPU index i is held; 0 when counts only
    gpus_shared: Int32s = column(np.int32, 0)  # of gpus_used those of which only shards or MPS are held
    gpus_unread: Bools = column(np.bool_, False)  # how many are held cannot be read; all count as held
    cpus: Int32s = column(np.int32, 0)  # that jobs can have: without specialised ones
    cpus_used: Int32s = column(np.int32, 0)
    memory_mib: Floats = column(np.float64, 0.0)  # that jobs can have: without MemSpecLimit
    memory_used_mib: Floats = column(np.float64, 0.0)
    features: Labels = text()
    reason: Labels = text()

    def is_state(self, state: NodeState) -> Bools:
        """Whether any of these flags is set. (N,) bool."""
        return (self.state & int(state)) != 0

    @property
    def after_boot(self) -> Bools:
        """Takes jobs, which start when it has booted: Slurm has powered it down, or it is booting. (N,) bool."""
        return self.is_state(NodeState(_BOOTS)) & ((self.state & _CLOSES) == 0) & ~self.gpus_unread

    @property
    def down(self) -> Bools:
        """Down, or does not respond while it should be up. (N,) bool."""
        silent = self.is_state(NodeState.NOT_RESPONDING) & ((self.state & _BOOTS) == 0)
        return self.is_state(_GONE) | silent

    @property
    def closed(self) -> Bools:
        """Takes no job, not after a boot either, or nobody can tell what is free on it. (N,) bool."""
        return ((self.state & _CLOSES) != 0) | self.down | self.gpus_unread

    @property
    def draining(self) -> Bools:
        """Takes no job (drain, maintenance, powering down, reboot, blocked), but is not down. (N,) bool."""
        return ((self.state & _CLOSES) != 0) & ~self.down

    def gpu_use(self) -> dict[str, Int64s]:
        """GPUs of each node by what they are for now. Each (N,) int64.

        idle + boot + allocated + draining + down + unknown = all. boot: free after a boot. unknown: of nodes whose used
        GPUs cannot be read. Allocated GPUs of draining nodes count as allocated, free ones as draining; every GPU of a
        node that is down counts as down.
        """
        every = self.gpus.astype(np.int64)
        dark = self.gpus_unread & ~self.down
        used = np.where(self.down | dark, 0, np.minimum(self.gpus_used, every))
        free = np.where(self.down | dark, 0, every - used)
        boots = self.after_boot
        return {
            "idle": np.where(self.draining | boots, 0, free),
            "boot": np.where(boots, free, 0),
            "allocated": used,
            "draining": np.where(self.draining, free, 0),
            "down": np.where(self.down, every, 0),
            "unknown": np.where(dark, every, 0),
            "all": every,
        }

    def gpu_totals(self) -> dict[str, int]:
        """The sums of gpu_use."""
        return {name: int(gpus.sum()) for name, gpus in self.gpu_use().items()}


@dataclass(frozen=True, slots=True, eq=False)
class Partitions(Table):
    """One row a partition, in ascending name. All columns are (P,)."""

    name: Labels = text()
    up: Bools = column(np.bool_, True)  # jobs in its queue may start: UP or DRAIN
    default: Bools = column(np.bool_, False)
    max_time_s: Floats = column(np.float64, float("inf"))
    default_time_s: Floats = column(np.float64, float("nan"))
    priority_tier: Int32s = column(np.int32, 1)
    node_list: Labels = text()  # hostlist text
    nodes: Int32s = column(np.int32, 0)
    topology: Labels = text()  # its own (Topology=, Slurm 25.05 on), "" = the cluster's default
    defaults: Labels = text()  # of jobs that do not say, e.g. "DefMemPerCPU=1000,DefCpuPerGPU=8"
    # Limits on where and whether jobs start; none where a source does not tell. Lists have commas, "" = not given.
    state: Labels = text("UP")  # UP, DOWN, DRAIN or INACTIVE
    min_nodes: Int32s = column(np.int32, 0)  # of a job
    max_nodes: Floats = column(np.float64, float("inf"))  # of a job
    max_cpus_per_node: Floats = column(np.float64, float("inf"))  # of all its jobs on a node together
    max_cpus_per_socket: Floats = column(np.float64, float("inf"))
    max_memory_mib: Floats = column(np.float64, float("inf"))  # of a job on a node
    max_memory_per_cpu_mib: Floats = column(np.float64, float("inf"))
    over_subscribe: Labels = text("NO")  # as printed, e.g. "FORCE:4"
    exclusive: Labels = text()  # jobs have nodes alone: "node", "user" (shared with jobs of the same user), "topo"
    allow_accounts: Labels = text()
    deny_accounts: Labels = text()
    allow_groups: Labels = text()
    allow_qos: Labels = text()
    deny_qos: Labels = text()
    alloc_nodes: Labels = text()  # hosts from which jobs may be submitted
    root_only: Bools = column(np.bool_, False)
    needs_reservation: Bools = column(np.bool_, False)

"""Nodes and partitions of a snapshot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model.columns import Bools, Floats, Int32s, Int64s, Labels, Table, column, text_column
from slurmsched.model.states import Availability, NodeState, flags_that

_GONE = NodeState.DOWN | NodeState.ERROR | NodeState.FUTURE | NodeState.UNKNOWN
_BOOTS = int(flags_that(Availability.BOOT))
_CLOSES = int(flags_that(Availability.NONE) & ~NodeState.NOT_RESPONDING)
_MAY_CLOSE = _CLOSES | int(_GONE | NodeState.NOT_RESPONDING)
_RESUMES = int(NodeState.REBOOT_ISSUED | NodeState.REBOOT_RESUME)


@dataclass(frozen=True, slots=True, eq=False)
class Nodes(Table):
    """One row for each node, in ascending name. All columns are (N,)."""

    name: Labels = text_column()
    partitions: Labels = text_column()  # comma list, ascending
    state: Int64s = column(np.int64, int(NodeState.IDLE))
    gpu_types: Labels = text_column()  # normal form of its GPUs, e.g. "gpu:a100:8"
    gpus: Int32s = column(np.int32, 0)
    types_used: Labels = text_column()  # GPUs in use, e.g. "gpu:a100:2,gpu:1g.5gb:1"; "" = none
    gpus_used: Int32s = column(np.int32, 0)  # not available as whole GPUs: held, or with shards or MPS in use
    gpu_mask_used: Int64s = column(np.int64, 0)  # bit i: GPU index i is held; 0 if only counts are known
    gpus_shared: Int32s = column(np.int32, 0)  # those of gpus_used with only shards or MPS in use
    # In use and in all on each GPU, e.g. "2/4,0/4", of MPS "mps:50/100,0/100"; "" = none, or not shown.
    shards: Labels = text_column()
    gpus_unread: Bools = column(np.bool_, False)  # the number of held GPUs cannot be read; all count as held
    cpus: Int32s = column(np.int32, 0)  # available to jobs: without specialised ones
    cpus_used: Int32s = column(np.int32, 0)
    cpus_per_gpu_kept: Int32s = column(np.int32, 0)  # only jobs with a GPU get them: RestrictedCoresPerGPU, in CPUs
    memory_mib: Floats = column(np.float64, 0.0)  # available to jobs: without MemSpecLimit
    memory_used_mib: Floats = column(np.float64, 0.0)
    features: Labels = text_column()
    reason: Labels = text_column()

    def is_state(self, state: NodeState) -> Bools:
        """Whether any of these flags is set. (N,) bool."""
        return (self.state & int(state)) != 0

    @property
    def resuming(self) -> Bools:
        """Reboots now, and takes jobs as soon as it has: see states.resumes_after_reboot. (N,) bool."""
        return (self.state & _RESUMES) == _RESUMES

    @property
    def after_boot(self) -> Bools:
        """Takes jobs after a boot: Slurm has powered it down, or it boots or reboots now. (N,) bool."""
        boots = self.is_state(NodeState(_BOOTS)) & ((self.state & _CLOSES) == 0)
        return (boots | self.resuming) & ~self.gpus_unread

    @property
    def down(self) -> Bools:
        """Down, or does not respond while it should be up. (N,) bool."""
        silent = self.is_state(NodeState.NOT_RESPONDING) & ((self.state & _BOOTS) == 0)
        return (self.is_state(_GONE) | silent) & ~self.resuming

    @property
    def closed(self) -> Bools:
        """Takes no job, not after a boot either, or what is free on it is unknown. (N,) bool."""
        if not (self.state & _MAY_CLOSE).any():  # one pass for a cluster whose nodes all take jobs
            return self.gpus_unread
        return (((self.state & _CLOSES) != 0) & ~self.resuming) | self.down | self.gpus_unread

    @property
    def draining(self) -> Bools:
        """Takes no job (drain, maintenance, powering down, reboot, blocked), but is not down. (N,) bool."""
        return ((self.state & _CLOSES) != 0) & ~self.down & ~self.resuming

    def cpus_for_other_gpus(self, others: Int32s | Int64s) -> Int64s:
        """CPUs that a job cannot have because only jobs on `others` GPUs get them (RestrictedCoresPerGPU). (N,) int64.

        others: (N,) GPUs of each node that the job does not use.
        """
        return self.cpus_per_gpu_kept.astype(np.int64) * np.maximum(others, 0)

    def gpu_use(self) -> dict[str, Int64s]:
        """GPUs of each node by their use. Each is (N,) int64.

        idle + boot + allocated + draining + down + unknown = all.
        boot: free after a boot.
        draining: free GPUs of draining nodes; their allocated GPUs count as allocated.
        down: all GPUs of nodes that are down.
        unknown: GPUs of nodes whose used GPUs cannot be read.
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
    """One row for each partition, in ascending name. All columns are (P,)."""

    name: Labels = text_column()
    up: Bools = column(np.bool_, True)  # jobs in its queue may start: UP or DRAIN
    default: Bools = column(np.bool_, False)
    max_time_s: Floats = column(np.float64, float("inf"))
    default_time_s: Floats = column(np.float64, float("nan"))
    priority_tier: Int32s = column(np.int32, 1)
    job_factor: Int32s = column(np.int32, 1)  # PriorityJobFactor
    node_list: Labels = text_column()  # hostlist text
    nodes: Int32s = column(np.int32, 0)
    topology: Labels = text_column()  # its own (Topology=, from Slurm 25.05 on), "" = the cluster's default
    defaults: Labels = text_column()  # defaults of jobs, e.g. "DefMemPerCPU=1000,DefCpuPerGPU=8"
    # Limits on where and whether jobs start. Lists have commas, "" = not set.
    state: Labels = text_column("UP")  # UP, DOWN, DRAIN or INACTIVE
    min_nodes: Int32s = column(np.int32, 0)  # of a job
    max_nodes: Floats = column(np.float64, float("inf"))  # of a job
    max_cpus_per_node: Floats = column(np.float64, float("inf"))  # of all its jobs on a node together
    max_cpus_per_socket: Floats = column(np.float64, float("inf"))
    max_memory_mib: Floats = column(np.float64, float("inf"))  # of a job on a node
    max_memory_per_cpu_mib: Floats = column(np.float64, float("inf"))
    over_subscribe: Labels = text_column("NO")  # as printed, e.g. "FORCE:4"
    exclusive: Labels = text_column()  # jobs have whole nodes: "node", "user" (shared by jobs of one user), "topo"
    allow_accounts: Labels = text_column()
    deny_accounts: Labels = text_column()
    allow_groups: Labels = text_column()
    allow_qos: Labels = text_column()
    deny_qos: Labels = text_column()
    alloc_nodes: Labels = text_column()  # hosts from which jobs may be submitted
    root_only: Bools = column(np.bool_, False)
    needs_reservation: Bools = column(np.bool_, False)

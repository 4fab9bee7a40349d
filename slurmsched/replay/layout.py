"""The cluster that the slurmctld model schedules on: nodes, partitions, QOS, accounts, and what happens to nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.columns import Bools, Floats, Int64s, Labels
from slurmsched.words import some

DEFAULT_PARTITION = "gpu"
PARENT = -1  # shares of who counts as the account above
BARRED = -1  # a limit of nothing at all


@dataclass(frozen=True, slots=True)
class Node:
    """What a node has. memory_mib 0 = not counted. gpu_types: normal form of its GPUs, "" = of no type."""

    name: str
    gpus: int
    cpus: int
    memory_mib: float = 0.0
    gpu_types: str = ""

    @property
    def types(self) -> frozenset[str]:
        """The types of its GPUs, none if it does not tell."""
        parts = (entry.split(":") for entry in self.gpu_types.split(","))
        return frozenset(entry[1] for entry in parts if len(entry) == 3)


@dataclass(frozen=True, slots=True)
class Partition:
    """nodes: their names, empty = all. tier: PriorityTier. factor: PriorityJobFactor. max_time_s, min_nodes, max_nodes:
    of a job, 0 = any. default_time_s: of a job that tells none, 0 = max_time_s. billing: TRESBillingWeights of a GPU,
    a CPU and a MiB, None = Slurm's own, a CPU. qos: of the partition, whose limits its jobs fall under, "" = none."""

    name: str
    nodes: tuple[str, ...] = ()
    tier: int = 1
    factor: int = 1
    max_time_s: float = 0.0
    default_time_s: float = 0.0
    min_nodes: int = 0
    max_nodes: int = 0
    billing: tuple[float, float, float] | None = None
    qos: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of a QOS, an account, or a user of an account; 0 = none, BARRED = Slurm's limit of 0. max_jobs_per_user:
    MaxJobsPU, of an association MaxJobs. max_gpus_per_user: MaxTRESPU of gres/gpu. group_gpus, group_jobs: GrpTRES of
    gres/gpu, GrpJobs. priority: of a QOS, for its factor. max_gpus_per_job, max_wall_s: MaxTRES of gres/gpu, MaxWall of
    a job. max_gpu_s_per_job: MaxTRESMins of gres/gpu. group_gpu_s, group_wall_s: GrpTRESMins of gres/gpu and GrpWall,
    of what all jobs used, faded; group_run_gpu_s: GrpTRESRunMins of gres/gpu, of what running jobs may still use.
    max_submit_per_user, group_submit: MaxSubmitJobs, GrpSubmitJobs, running ones included. Of a QOS: usage_factor;
    no_decay: its usage never fades; over_part_qos: its limits stand before those of the partition's QOS.

    Of accounts: user: whose it is, "" = of the account itself. parent: the account above, "" = root. shares: for fair
    share, PARENT = as the account. usage: RawUsage of a user at the begin."""

    name: str
    max_jobs_per_user: int = 0
    max_gpus_per_user: int = 0
    group_gpus: int = 0
    group_jobs: int = 0
    priority: int = 0
    max_gpus_per_job: int = 0
    max_wall_s: float = 0.0
    max_gpu_s_per_job: float = 0.0
    group_gpu_s: float = 0.0
    group_wall_s: float = 0.0
    group_run_gpu_s: float = 0.0
    max_submit_per_user: int = 0
    group_submit: int = 0
    usage_factor: float = 1.0
    no_decay: bool = False
    over_part_qos: bool = False
    user: str = ""
    parent: str = ""
    shares: int = 1
    usage: float = 0.0


@dataclass(frozen=True, slots=True)
class Closure:
    """A time in which nodes start nothing: from_s to until_s. down: they fail then, and their jobs are requeued;
    planned: known beforehand, so that no job is started into it (a maintenance reservation)."""

    nodes: tuple[str, ...]
    from_s: float
    until_s: float
    down: bool = False
    planned: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """All that does not change: nodes in the order Slurm lists them, the first partition is the default one.

    accounts: those of accounts and of their users."""

    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...] = (Partition(DEFAULT_PARTITION),)
    qos: tuple[Limits, ...] = ()
    accounts: tuple[Limits, ...] = ()
    closures: tuple[Closure, ...] = field(default=())

    def __post_init__(self) -> None:
        named = {name for partition in self.partitions for name in partition.nodes}
        named |= {name for closure in self.closures for name in closure.nodes}
        if unknown := sorted(named - {node.name for node in self.nodes}):
            raise InputError(f"no node {unknown[0]!r} in this cluster; it has {some(len(self.nodes), 'node')}")

    @classmethod
    def of_gpus(cls, gpus: Sequence[int], types: Sequence[str] = ()) -> Layout:
        """Nodes that have only GPUs, one CPU for each, in one partition. types: of their GPUs, "" = not told."""
        width, names = len(str(len(gpus))), types or [""] * len(gpus)
        rows = enumerate(zip(map(int, gpus), names, strict=True), start=1)
        return cls(tuple(
            Node(f"node{n:0{width}d}", count, count, gpu_types=f"gpu:{name}:{count}" if name else "")
            for n, (count, name) in rows
        ))  # fmt: skip

    def column(self, name: str) -> Int64s:
        """gpus, cpus or memory_mib of every node. (N,) int64."""
        return np.array([getattr(node, name) for node in self.nodes], np.int64)

    def of_partitions(self, name: str) -> Floats:
        """A number of every partition. (Q,)."""
        return np.array([getattr(partition, name) for partition in self.partitions], np.float64)

    def mask(self, names: Sequence[str]) -> Bools:
        """Which nodes have these names; no names = all. (N,) bool."""
        wanted = frozenset(names)
        return np.array([not wanted or node.name in wanted for node in self.nodes], np.bool_)

    def with_type(self, gpu_type: str) -> Bools:
        """Which nodes have GPUs of this type; "" = all. (N,) bool."""
        return np.array([not gpu_type or gpu_type in node.types for node in self.nodes], np.bool_)

    def partition_rows(self, asked: Labels) -> Int64s:
        """Row of the partition of each job; "" is the default one, of a comma list the first counts. (J,) int64.

        Raises InputError for a partition that is not there.
        """
        rows = {partition.name: row for row, partition in enumerate(self.partitions)} | {"": 0}
        for listed in asked.names:
            if listed.partition(",")[0] not in rows:
                raise InputError(f"no partition {listed!r} in this cluster; it has {', '.join(filter(None, rows))}")
        return asked.map(lambda listed: rows[listed.partition(",")[0]], np.int64)

"""The cluster that the slurmctld model schedules on: nodes, partitions, QOS, accounts, and what happens to nodes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.columns import Bools, Floats, Int64s, Labels
from slurmsched.plain_text import pluralize
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings

DEFAULT_PARTITION = "gpu"
PARENT = -1  # shares of who counts as the account above
BARRED = -1  # a limit of nothing at all


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """What a node has.

    memory_mib: 0 = not counted.
    gpu_types: normal form of its GPUs, "" = of no type.
    features: as --constraint may ask for.
    weight: nodes of less weight are taken first.
    """

    name: str
    gpus: int
    cpus: int
    memory_mib: float = 0.0
    gpu_types: str = ""
    features: tuple[str, ...] = ()
    weight: int = 1

    @property
    def types(self) -> frozenset[str]:
        """The types of its GPUs, none if it does not tell."""
        parts = (entry.split(":") for entry in self.gpu_types.split(","))
        return frozenset(entry[1] for entry in parts if len(entry) == 3)


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """A partition of a simulated cluster.

    nodes: their names, empty = all.
    tier: PriorityTier.
    factor: PriorityJobFactor.
    max_time_s, min_nodes, max_nodes: of a job, 0 = any.
    default_time_s: of a job that tells none, 0 = max_time_s.
    billing: TRESBillingWeights of a GPU, a CPU and a MiB, None = Slurm's own, a CPU.
    qos: of the partition, whose limits its jobs fall under, "" = none.
    exclusive: its jobs have their nodes alone (OverSubscribe=EXCLUSIVE).
    preempt_mode: PreemptMode, "" = the cluster's.
    max_cpus_per_node: of all its jobs on a node together (MaxCPUsPerNode), 0 = all.
    grace_s: GraceTime, which a preempted job has left.
    least_loaded: jobs get the nodes with the most free CPUs (LLN).
    """

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
    exclusive: bool = False
    preempt_mode: str = ""
    max_cpus_per_node: int = 0
    grace_s: float = 0.0
    least_loaded: bool = False


@dataclass(frozen=True, slots=True)
class LimitSpec:
    """Of a QOS, an account, or a user of an account; 0 = none, BARRED = Slurm's limit of 0.

    max_jobs_per_user: MaxJobsPU, of an association MaxJobs.
    max_gpus_per_user: MaxTRESPU of gres/gpu.
    group_gpus, group_jobs: GrpTRES of gres/gpu, GrpJobs.
    priority: of a QOS, for its factor.
    max_gpus_per_job, max_wall_s: MaxTRES of gres/gpu, MaxWall of a job.
    max_gpu_s_per_job: MaxTRESMins of gres/gpu.
    group_gpu_s, group_wall_s: GrpTRESMins of gres/gpu and GrpWall, of what all jobs used, faded.
    group_run_gpu_s: GrpTRESRunMins of gres/gpu, of what running jobs may still use.
    max_submit_per_user, group_submit: MaxSubmitJobs, GrpSubmitJobs, running ones included.
    usage_factor: of a QOS.
    no_decay: the usage of a QOS never fades.
    over_part_qos: its limits stand before those of the partition's QOS.
    preempts: QOS whose jobs its jobs may preempt.
    preempt_mode: "" = the cluster's.
    grace_s: GraceTime.
    max_jobs_per_account, max_gpus_per_account: MaxJobsPA, MaxTRESPA of gres/gpu.
    typed_gpus: limits on GPUs of one type: GrpTRES, MaxTRESPU or MaxTRESPA, the type, and how many.

    user: whose the limits of an account are, "" = of the account itself.
    parent: the account above, "" = root.
    shares: for fair share, PARENT = as the account.
    usage: RawUsage of a user at the begin.
    """

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
    preempts: tuple[str, ...] = ()
    preempt_mode: str = ""
    grace_s: float = 0.0
    max_jobs_per_account: int = 0
    max_gpus_per_account: int = 0
    typed_gpus: tuple[tuple[str, str, int], ...] = ()
    user: str = ""
    parent: str = ""
    shares: int = 1
    usage: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeOutage:
    """A time in which nodes start nothing: from_s to until_s.

    down: they fail then, and their jobs are requeued.
    planned: known beforehand, so that no job is started into it (a maintenance reservation).
    """

    nodes: tuple[str, ...]
    from_s: float
    until_s: float
    down: bool = False
    planned: bool = False


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """All that does not change: nodes in the order Slurm lists them, the first partition is the default one.

    accounts: those of accounts and of their users.
    licenses: how many there are of each, for all jobs together.
    """

    nodes: tuple[NodeSpec, ...]
    partitions: tuple[PartitionSpec, ...] = (PartitionSpec(DEFAULT_PARTITION),)
    qos: tuple[LimitSpec, ...] = ()
    accounts: tuple[LimitSpec, ...] = ()
    closures: tuple[NodeOutage, ...] = field(default=())
    licenses: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = {name for partition in self.partitions for name in partition.nodes}
        named |= {name for closure in self.closures for name in closure.nodes}
        if unknown := sorted(named - {node.name for node in self.nodes}):
            raise InputError(f"no node {unknown[0]!r} in this cluster; it has {pluralize(len(self.nodes), 'node')}")

    @classmethod
    def of_gpus(cls, gpus: Sequence[int], types: Sequence[str] = ()) -> ClusterLayout:
        """Nodes that have only GPUs, one CPU for each, in one partition. types: of their GPUs, "" = not told."""
        width, names = len(str(len(gpus))), types or [""] * len(gpus)
        rows = enumerate(zip(map(int, gpus), names, strict=True), start=1)
        return cls(tuple(
            NodeSpec(f"node{n:0{width}d}", count, count, gpu_types=f"gpu:{name}:{count}" if name else "")
            for n, (count, name) in rows
        ))  # fmt: skip

    def column(self, name: str) -> Int64s:
        """gpus, cpus or memory_mib of every node. (N,) int64."""
        return np.array([getattr(node, name) for node in self.nodes], np.int64)

    @property
    def capped(self) -> list[int]:
        """Rows of the partitions that limit the CPUs of their jobs on a node."""
        return [row for row, partition in enumerate(self.partitions) if partition.max_cpus_per_node]

    def resources(self) -> Int64s:
        """GPUs, CPUs and MiB of every node, then the CPUs that each of `capped` gives its jobs there. (R, N) int64.

        Memory is without end where it is not counted."""
        gpus, cpus, memory = (self.column(name) for name in ("gpus", "cpus", "memory_mib"))
        parts = [self.partitions[row] for row in self.capped]
        of_parts = [np.where(self.mask(each.nodes), np.minimum(each.max_cpus_per_node, cpus), cpus) for each in parts]
        return np.stack([gpus, cpus, np.where(memory > 0, memory, np.iinfo(np.int64).max // 2), *of_parts])

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

    def with_features(self, wanted: str) -> Bools:
        """Which nodes have the features of a --constraint such as "a100&(ib|roce)"; "" = all. (N,) bool.

        Brackets and counts ("[rack1|rack2]", "a100*2") mean what a single node must have.
        Raises InputError for a text that is none.
        """
        if not wanted:
            return np.ones(len(self.nodes), np.bool_)
        words = re.findall(r"[()&|,]|[^()&|,]+", re.sub(r"\*\d+", "", wanted.replace("[", "(").replace("]", ")")))
        found, others = self._either(words, wanted)
        if others:
            raise InputError(f"{wanted!r} is no constraint such as a100&ib; it has a {others[0]!r} too much")
        return found

    def _either(self, words: list[str], wanted: str) -> tuple[Bools, list[str]]:
        """Nodes with one of the alternatives that the words begin with, and the words after those."""
        found, words = self._all_of(words, wanted)
        while words and words[0] == "|":
            other, words = self._all_of(words[1:], wanted)
            found = found | other
        return found, words

    def _all_of(self, words: list[str], wanted: str) -> tuple[Bools, list[str]]:
        found = np.ones(len(self.nodes), np.bool_)
        while True:
            if not words or words[0] in ")&|,":
                raise InputError(f"{wanted!r} is no constraint such as a100&ib; a feature is missing")
            if words[0] == "(":
                mine, words = self._either(words[1:], wanted)
                if not words or words[0] != ")":
                    raise InputError(f"{wanted!r} is no constraint such as a100&ib; a bracket is not closed")
            else:
                mine = np.array([words[0] in node.features for node in self.nodes], np.bool_)
            found, words = found & mine, words[1:]
            if not words or words[0] not in "&,":
                return found, words
            words = words[1:]

    def partition_rows(self, asked: Labels) -> Int64s:
        """Row of the partition of each job; "" is the default one, of a comma list the first counts. (J,) int64.

        Raises InputError for a partition that is not there.
        """
        rows = {partition.name: row for row, partition in enumerate(self.partitions)} | {"": 0}
        for listed in asked.names:
            if listed.partition(",")[0] not in rows:
                raise InputError(
                    f"no partition {listed!r} in this cluster; it has {', '.join(filter(None, rows))}; --map "
                    f"{listed.partition(',')[0]}=NAME renames it, --partition takes jobs of some only"
                )
        return asked.map(lambda listed: rows[listed.partition(",")[0]], np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class OutageTimes:
    """The closures of a layout as arrays.

    from_s, until_s: (C,).
    owner, node: (M,) every pair of closure and node, by row.
    plan_s, plan_nodes: (B, 2), (B, N) of those that are planned.
    """

    closures: tuple[NodeOutage, ...]
    width: int
    from_s: Floats
    until_s: Floats
    owner: Int64s
    node: Int64s
    plan_s: Floats
    plan_nodes: Bools

    @classmethod
    def of(cls, layout: ClusterLayout) -> OutageTimes:
        place, closures = {node.name: row for row, node in enumerate(layout.nodes)}, layout.closures
        rows = [[place[name] for name in each.nodes] or list(place.values()) for each in closures]
        counts, planned = [len(each) for each in rows], [each for each in closures if each.planned]
        return cls(
            closures, len(place), np.array([each.from_s for each in closures], np.float64),
            np.array([each.until_s for each in closures], np.float64), np.repeat(np.arange(len(closures)), counts),
            np.array([row for each in rows for row in each], np.int64),
            np.array([(each.from_s, each.until_s) for each in planned], np.float64).reshape(-1, 2),
            np.array([layout.mask(each.nodes) for each in planned], np.bool_).reshape(-1, len(place)),
        )  # fmt: skip

    def open_at(self, now_s: float) -> Bools:
        """Which nodes are not closed. (N,)."""
        found: Bools = np.ones(self.width, np.bool_)
        found[self.node[((self.from_s <= now_s) & (now_s < self.until_s))[self.owner]]] = False
        return found

    def failing_at(self, now_s: float) -> list[NodeOutage]:
        """Closures that begin now and end the jobs of their nodes."""
        return [self.closures[row] for row in np.flatnonzero(self.from_s == now_s) if self.closures[row].down]

    def planned_after(self, now_s: float) -> tuple[Floats, Bools]:
        """Begin and end (B, 2) [s] and nodes (B, N) of planned closures that are not over."""
        ahead = self.plan_s[:, 1] > now_s
        return self.plan_s[ahead], self.plan_nodes[ahead]


# Jobs that can never start.

MOST_JOBS_NAMED = 5


def oversized_jobs(ids: Int64s, gpus: Int64s, have: int, kind: str = "") -> InputError:
    """Jobs that ask for more GPUs than there are, the largest first.

    ids, gpus: (J,), J >= 1.
    have: GPUs of the nodes that may serve them.
    kind: the GPU type that they ask for.
    """
    order = np.lexsort((ids, -gpus))
    most, others = int(gpus[order[0]]), ids[order[1:]].tolist()
    of = f" of type {kind}" if kind else ""
    named = ", ".join(map(str, others[:MOST_JOBS_NAMED])) + (", ..." if len(others) > MOST_JOBS_NAMED else "")
    also = f", too few for {pluralize(len(others), 'other job')} as well ({named})" if others else ""
    return InputError(
        f"job {ids[order[0]]} asks for {pluralize(most, 'GPU')}{of}, and the nodes that it may have "
        f"hold {have:,}{also}; "
        f"give a larger --cluster, with at least {pluralize(most, 'GPU')}{of}, or leave "
        f"{'them' if others else 'it'} out"
    )


def no_even_parts(job_id: int, gpus: int, capacity: Int64s) -> InputError:
    """A gang for which there are GPUs enough, but not on nodes such as it needs. capacity: (N,) GPUs of each node."""
    sizes, counts = np.unique(capacity, return_counts=True)
    nodes = "+".join(f"{count}x{size}" for size, count in zip(sizes.tolist(), counts.tolist(), strict=True))
    return InputError(
        f"job {job_id} asks for {pluralize(gpus, 'GPU')}: whole nodes of the largest size and one for the rest, which "
        f"nodes of {nodes} GPUs never give; give a larger --cluster, or leave it out"
    )


def no_partition_fits(job_id: int, gpus: int, nodes: int, need: Int64s, kind: str = "") -> InputError:
    """A job for which there are GPUs enough, but never so that its nodes hold all it asks for.

    need: (3,) GPUs, CPUs and MiB of each node.
    """
    of = f" of type {kind}" if kind else ""
    each = f"{pluralize(int(need[0]), 'GPU')}, {pluralize(int(need[1]), 'CPU')}" + (
        f", {need[2]:,} MiB" if need[2] else ""
    )
    return InputError(
        f"job {job_id} asks for {pluralize(gpus, 'GPU')}{of} on {pluralize(nodes, 'node')} with "
        f"{each} each, which no nodes that "
        "it may have ever hold; give a larger --cluster, or the job fewer nodes, CPUs or memory"
    )


# The layout with Slurm's settings, and what of the description is not modelled.


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster as it was described.

    settings: Of slurm.conf, as `scontrol show config` names them. Empty: Slurm's defaults.
    model: Fields of SlurmctldSettings that slurm.conf does not have.
    cpus_known: Whether the nodes' CPUs were given.
    warnings: What of the description is not modelled.
    outages: When nodes of the history were closed [Unix s]; `in_time_of` puts them into the layout.
    """

    layout: ClusterLayout
    settings: Mapping[str, str] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    cpus_known: bool = False
    warnings: tuple[str, ...] = ()
    outages: tuple[NodeOutage, ...] = ()

    def in_time_of(self, origin_s: float) -> ClusterDescription:
        """The cluster with its outages on the clock of a trace. origin_s: its 0 [Unix s], NaN = it has no calendar."""
        if not self.outages:
            return self
        if math.isnan(origin_s):
            warning = "outages of nodes are left out: the trace has no calendar"
            return replace(self, outages=(), warnings=(*self.warnings, warning))
        known = {node.name for node in self.layout.nodes}
        moved = tuple(
            replace(each, nodes=nodes, from_s=max(each.from_s - origin_s, 0.0), until_s=each.until_s - origin_s)
            for each in self.outages
            if each.until_s > origin_s and (nodes := tuple(name for name in each.nodes if name in known))
        )
        return replace(self, layout=replace(self.layout, closures=(*self.layout.closures, *moved)), outages=())

    @property
    def gpus(self) -> tuple[int, ...]:
        """GPUs of each node that has some."""
        return tuple(node.gpus for node in self.layout.nodes if node.gpus)

    @property
    def slurm_model(self) -> SlurmctldSettings:
        """The model of this slurmctld. Raises ConfigError for a setting that is not Slurm's."""
        if self.settings:
            return replace(SlurmctldSettings.from_settings(self.settings), **self.model)
        return SlurmctldSettings(**self.model)

"""Stranded GPUs: free ones that no job can get, since the CPUs or the memory beside them are taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from slurmsched.model import NodeState, Snapshot
from slurmsched.model.columns import Bools
from slurmsched.model.gpu_topology import GpuTopology, LinkKind
from slurmsched.model.hostlists import counting_key, expand_hostlist, expand_or_none, fold_hostlist
from slurmsched.model.states import ON_NODES
from slurmsched.resources.allocated import node_rows
from slurmsched.resources.node_gpus import (
    BOOT,
    DOWN,
    DRAINED,
    OPEN,
    UNREAD,
    MigDevices,
    NodeGpus,
    free_masks,
    mig_devices,
    node_availability,
    node_gpus,
)
from slurmsched.resources.placeable_gpus import topology_class, topology_class_rows


@dataclass(frozen=True, slots=True)
class StrandedHolder:
    """A job on the node.

    cpus, memory_mib: of the whole job, shared out evenly over its nodes.
    gpus: held there.
    """

    job_id: int
    user: str
    cpus: float
    memory_mib: float
    gpus: int


@dataclass(frozen=True, slots=True)
class Stranded:
    """Free GPUs of a node and why none can be had: "CPUs", "memory" or "CPUs and memory".

    holders: the jobs there, whoever holds most of that first; empty where Slurm hides them.
    """

    node: str
    gpus: int
    cause: str
    holders: tuple[StrandedHolder, ...]


def stranded_gpus(snapshot: Snapshot) -> tuple[Stranded, ...]:
    """Every open node with free GPUs and not one CPU, or not 1 MiB of memory where jobs are given memory, left."""
    nodes = snapshot.nodes
    no_cpu = (nodes.cpus > 0) & (nodes.cpus_used >= nodes.cpus)
    counted = gives_memory(snapshot)
    no_memory = (nodes.memory_mib > 0) & (nodes.memory_used_mib > nodes.memory_mib - 1.0) & counted
    rows = np.flatnonzero((nodes.gpu_use()["idle"] > 0) & ~nodes.closed & (no_cpu | no_memory)).tolist()
    there = _jobs_on(snapshot, {nodes.name[row] for row in rows})
    return tuple(_stranded(snapshot, row, no_cpu, no_memory, there.get(nodes.name[row], ())) for row in rows)


def gives_memory(snapshot: Snapshot) -> bool:
    """Whether Slurm gives out memory, by SelectTypeParameters; taken as given out where that is not told."""
    text = snapshot.site.settings.get("SelectTypeParameters", "CR_CORE_MEMORY").upper()
    return "MEMORY" in text


def _stranded(snapshot: Snapshot, row: int, no_cpu: Bools, no_memory: Bools, jobs: Sequence[int]) -> Stranded:
    causes = [name for name, lacks in (("CPUs", no_cpu), ("memory", no_memory)) if lacks[row]]
    holders = list(_holders_on_node(snapshot, row, jobs))
    holders.sort(key=lambda one: (-one.cpus if no_cpu[row] else -one.memory_mib, one.job_id))
    return Stranded(
        snapshot.nodes.name[row], int(snapshot.nodes.gpu_use()["idle"][row]), " and ".join(causes), tuple(holders)
    )


def _holders_on_node(snapshot: Snapshot, row: int, jobs: Sequence[int]) -> Iterator[StrandedHolder]:
    allocations, table = snapshot.allocations, snapshot.jobs
    here = node_rows(snapshot) == row
    for job in jobs:
        share = max(int(table.nodes[job]), 1)
        gpus = int(allocations.gpus[here & (allocations.job_id == table.job_id[job])].sum())
        yield StrandedHolder(
            int(table.job_id[job]), table.user[job], table.cpus[job] / share, table.memory_mib[job] / share, gpus
        )


def _jobs_on(snapshot: Snapshot, names: Collection[str]) -> dict[str, list[int]]:
    """Rows of the jobs that hold something of these nodes."""
    found: dict[str, list[int]] = {}
    jobs = snapshot.jobs
    for row in np.flatnonzero(jobs.is_state(ON_NODES)).tolist() if names else ():
        for name in expand_or_none(jobs.node_list[row]) or ():
            if name in names:
                found.setdefault(name, []).append(row)
    return found


# GPUs at a look.


@dataclass(frozen=True, slots=True)
class GpuSum:
    """GPUs under one name.

    boot: free after a boot.
    unread: of nodes whose used GPUs cannot be read.
    stranded: of the free ones.
    sets: how many nodes have that many linked free GPUs that are not stranded.
    unknown: nodes of which that is not known.
    whole: nodes of which a job could have every GPU.
    """

    name: str
    gpus: int = 0
    free: int = 0
    boot: int = 0
    stranded: int = 0
    used: int = 0
    drained: int = 0
    down: int = 0
    unread: int = 0
    whole: int = 0
    unknown: int = 0
    sets: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeLine:
    """Nodes that look alike.

    free_gpus: which are free, None = not known.
    boot: GPUs free after a boot.
    linked, why: as NodeGpus.
    """

    nodes: str
    state: str
    gpu_type: str
    gpus: int
    free: int
    linked: int | None
    why: str
    free_gpus: tuple[int, ...] | None
    reason: str
    boot: int = 0

    @property
    def reason_shown(self) -> str:
        """Slurm's reason, or why its sets are not known."""
        return self.reason or self.why


@dataclass(frozen=True, slots=True)
class GpuOverview:
    """All of one look. fabric: cells from the highest level down; empty where no fabric is known."""

    types: tuple[GpuSum, ...]
    nodes: tuple[NodeLine, ...]
    partitions: tuple[GpuSum, ...]
    fabric: tuple[GpuSum, ...]
    mig: tuple[tuple[str, MigDevices], ...]
    stranded: tuple[Stranded, ...]


@dataclass(frozen=True, slots=True)
class GpuFilter:
    """Which nodes and types are shown; None or "" = all."""

    nodes: frozenset[str] | None = None
    gpu_type: str = ""
    partition: str = ""

    def row(self, snapshot: Snapshot, row: int) -> bool:
        """Whether this node is."""
        nodes = snapshot.nodes
        named = self.nodes is None or nodes.name[row] in self.nodes
        return named and (not self.partition or self.partition in nodes.partitions[row].split(","))


def gpu_overview(snapshot: Snapshot, only: GpuFilter | None = None) -> GpuOverview:
    """The overview of these nodes, n2 before n10."""
    only = only or GpuFilter()
    lost = sorted(stranded_gpus(snapshot), key=lambda one: counting_key(one.node))
    seen = [
        part for part in node_gpus(snapshot) if only.row(snapshot, part.node) and only.gpu_type in ("", part.gpu_type)
    ]
    seen.sort(key=lambda part: counting_key(snapshot.nodes.name[part.node]))
    rows = {part.node for part in seen}
    names = {snapshot.nodes.name[row] for row in rows}
    stuck = frozenset(row for row in rows if snapshot.nodes.name[row] in {one.node for one in lost})
    return GpuOverview(
        types=_sums(seen, stuck, lambda part: [part.gpu_type or "-"]),
        nodes=_lines(snapshot, seen),
        partitions=_sums(seen, stuck, lambda part: filter(None, snapshot.nodes.partitions[part.node].split(","))),
        fabric=_cells(snapshot, seen, stuck),
        mig=tuple((snapshot.nodes.name[one.node], one) for one in mig_devices(snapshot)
                  if only.row(snapshot, one.node) and only.gpu_type in ("", one.gpu_type)),
        stranded=tuple(one for one in lost if one.node in names),
    )  # fmt: skip


def _sums(
    seen: Sequence[NodeGpus], stuck: Collection[int], names: Callable[[NodeGpus], Iterable[str]]
) -> tuple[GpuSum, ...]:
    """GPUs under each name, ascending. stuck: rows of nodes whose free GPUs are stranded."""
    under: dict[str, list[NodeGpus]] = {}
    for part in seen:
        for name in names(part):
            under.setdefault(name, []).append(part)
    return tuple(_gpu_sum(name, under[name], stuck) for name in sorted(under, key=counting_key))


def _gpu_sum(name: str, of: Collection[NodeGpus], stuck: Collection[int]) -> GpuSum:
    usable = [part for part in of if part.free and part.node not in stuck]
    sets = Counter(part.linked for part in usable if part.linked is not None)
    return GpuSum(
        name=name,
        gpus=sum(part.gpus for part in of),
        free=sum(part.free for part in of),
        boot=sum(part.boot for part in of),
        stranded=sum(part.free for part in of if part.node in stuck),
        used=sum(part.used for part in of),
        drained=sum(part.unheld for part in of if part.standing == DRAINED),
        down=sum(part.unheld for part in of if part.standing == DOWN),
        unread=sum(part.unheld for part in of if part.standing == UNREAD),
        whole=sum(part.free == part.gpus for part in usable),
        unknown=sum(part.linked is None for part in usable),
        sets=dict(sorted(sets.items(), reverse=True)),
    )


def _cells(snapshot: Snapshot, seen: Sequence[NodeGpus], stuck: Collection[int]) -> tuple[GpuSum, ...]:
    """Cells of the fabric, highest level first, then in its own order."""
    fabric, cell = snapshot.topology.fabric, snapshot.topology.cell
    names, above = list(fabric.cell), fabric.parent.tolist()

    def over(part: NodeGpus) -> Iterable[str]:
        at = int(cell[part.node]) if len(cell) else -1
        while at >= 0:
            yield names[at]
            at = above[at]

    found = {one.name: one for one in _sums(seen, stuck, over)}
    order = sorted(range(len(names)), key=lambda at: -int(fabric.level[at]))
    return tuple(found[names[at]] for at in order if names[at] in found)


def _lines(snapshot: Snapshot, seen: Sequence[NodeGpus]) -> tuple[NodeLine, ...]:
    """One line for nodes whose every figure is the same, in the order of their first."""
    alike: dict[tuple[object, ...], list[NodeGpus]] = {}
    for part in seen:
        alike.setdefault(_looks(snapshot, part), []).append(part)
    return tuple(_node_line(snapshot, of) for of in alike.values())


def _looks(snapshot: Snapshot, part: NodeGpus) -> tuple[object, ...]:
    state, reason = int(snapshot.nodes.state[part.node]), snapshot.nodes.reason[part.node]
    return state, part.standing, part.gpu_type, part.gpus, part.unheld, part.linked, part.why, part.mask, reason


def _node_line(snapshot: Snapshot, of: Sequence[NodeGpus]) -> NodeLine:
    from slurmsched.model.gpu_masks import mask_members

    one, nodes = of[0], snapshot.nodes
    return NodeLine(
        nodes=fold_hostlist(nodes.name[part.node] for part in of),
        state=state_words(int(nodes.state[one.node])),
        gpu_type=one.gpu_type,
        gpus=one.gpus,
        free=one.free,
        linked=one.linked,
        why=one.why if one.standing in (OPEN, DRAINED, DOWN) else one.standing,
        free_gpus=None if one.mask is None else tuple(mask_members(one.mask)),
        reason=nodes.reason[one.node],
        boot=one.boot,
    )


def state_words(state: int) -> str:
    """A node's flags in Slurm's words: "mixed", "idle+drain"."""
    return "+".join(flag.name.lower() for flag in NodeState if flag.name and state & flag) or "unknown"


# Every GPU of every node.

FREE, HELD, CLOSED, STUCK = "free", "held", "closed", "stranded"
AFTER_BOOT, NOT_KNOWN = "boot", "unknown"


@dataclass(frozen=True, slots=True)
class GpuSlot:
    """One GPU of a node.

    job_id: 0 where no job holds it or the job is not known.
    group: number of its linked set within the node, -1 = not known.
    what: one of these.

    - FREE.
    - HELD.
    - CLOSED: free, but its node takes no job.
    - STUCK: free, but no job can get it.
    - AFTER_BOOT: free after a boot.
    - NOT_KNOWN: whether it is held cannot be read.
    """

    index: int
    what: str
    job_id: int = 0
    user: str = ""
    group: int = -1


@dataclass(frozen=True, slots=True)
class NodeMap:
    """The GPUs of one node.

    standing: as node_gpus.NodeGpus.
    exact: whether Slurm tells which GPUs are held; else only how many are.
    """

    name: str
    state: str
    standing: str
    gpu_types: str
    gpus: tuple[GpuSlot, ...]
    exact: bool

    @property
    def free(self) -> int:
        return sum(one.what == FREE for one in self.gpus)


def gpu_map(snapshot: Snapshot, stuck: frozenset[str] = frozenset()) -> tuple[NodeMap, ...]:
    """Nodes with GPUs, n2 before n10. stuck: names of nodes whose free GPUs are stranded (stranded_gpus)."""
    nodes, (_, known) = snapshot.nodes, free_masks(snapshot)
    holders, classes, used = _holders(snapshot), topology_class_rows(snapshot), nodes.gpu_use()["allocated"]
    stands, made = node_availability(nodes), []
    for row in sorted(np.flatnonzero(nodes.gpus > 0).tolist(), key=lambda at: counting_key(nodes.name[at])):
        standing = stands[row]
        open_ = STUCK if nodes.name[row] in stuck else FREE
        rest = {OPEN: open_, BOOT: AFTER_BOOT, UNREAD: NOT_KNOWN}.get(standing, CLOSED)
        gpus = _gpus(snapshot, row, holders.get(row, {}), rest, bool(known[row]), int(used[row]))
        groups = _linked_group_of_gpus(snapshot, int(classes[row]), len(gpus))
        slots = tuple(GpuSlot(g.index, g.what, g.job_id, g.user, group) for g, group in zip(gpus, groups, strict=True))
        made.append(NodeMap(nodes.name[row], state_words(int(nodes.state[row])), standing, nodes.gpu_types[row], slots,
                            bool(known[row])))  # fmt: skip
    return tuple(made)


def _gpus(
    snapshot: Snapshot, row: int, holders: dict[int, tuple[int, str]], rest: str, exact: bool, used: int
) -> list[GpuSlot]:
    """GPUs of a node. If Slurm shows only how many are held, the first ones count as held."""
    mask, count = int(snapshot.nodes.gpu_mask_used[row]), int(snapshot.nodes.gpus[row])
    taken = [bool(mask >> index & 1) if exact else index < used for index in range(count)]
    return [GpuSlot(i, HELD, *holders.get(i, (0, ""))) if taken[i] else GpuSlot(i, rest) for i in range(count)]


def _holders(snapshot: Snapshot) -> dict[int, dict[int, tuple[int, str]]]:
    """Job and user by row of the node and index of the GPU."""
    allocations, jobs = snapshot.allocations, snapshot.jobs
    users = dict(zip(jobs.job_id.tolist(), jobs.user, strict=True))
    found: dict[int, dict[int, tuple[int, str]]] = {}
    for row, job, mask in zip(
        node_rows(snapshot).tolist(), allocations.job_id.tolist(), allocations.gpu_mask.tolist(), strict=True
    ):
        found.setdefault(row, {}).update({index: (job, users.get(job, "")) for index in _bits(mask)})
    return found


def _bits(mask: int) -> Iterator[int]:
    return (index for index in range(mask.bit_length()) if mask >> index & 1)


def _linked_group_of_gpus(snapshot: Snapshot, row: int, gpus: int) -> tuple[int, ...]:
    one = topology_class(snapshot.topology, row)
    return linked_groups(one) if one is not None and one.known and one.gpus == gpus else (-1,) * gpus


@lru_cache(maxsize=1 << 8)
def linked_groups(topology: GpuTopology) -> tuple[int, ...]:
    """Number of the set of GPUs that NVLink or XGMI joins, directly or through others, for each GPU, from 0 up."""
    group, found = [-1] * topology.gpus, 0
    for start in range(topology.gpus):
        if group[start] >= 0:
            continue
        reached = [start]
        while reached:
            at = reached.pop()
            group[at] = found
            linked = np.flatnonzero(topology.kind[at] >= LinkKind.XGMI).tolist()
            reached += [other for other in linked if group[other] < 0]
        found += 1
    return tuple(group)


def merged_lines(lines: Sequence[NodeLine]) -> list[NodeLine]:
    """The lines without indices of idle GPUs: lines that differ only in these are one."""
    alike: dict[NodeLine, list[str]] = {}
    for one in lines:
        alike.setdefault(replace(one, nodes="", free_gpus=None), []).extend(expand_hostlist(one.nodes))
    return [replace(one, nodes=fold_hostlist(names)) for one, names in alike.items()]


def mig_sums(mig: Sequence[tuple[str, MigDevices]]) -> list[tuple[str, int, int, str]]:
    """One row for each MIG type: the type, its devices, how many are idle, and their nodes. mig: node and devices."""
    of: dict[str, list[tuple[str, MigDevices]]] = {}
    for node, one in mig:
        of.setdefault(one.gpu_type, []).append((node, one))
    return [(name, sum(one.devices for _, one in some), sum(one.free for _, one in some),
             fold_hostlist(node for node, _ in some)) for name, some in of.items()]  # fmt: skip

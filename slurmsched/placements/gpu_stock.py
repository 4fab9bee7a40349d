"""GPUs one by one: which there are to give on each node, and which each running job holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.topology import GpuTopology, SiteTopology
from slurmsched.placements.candidates import to_give
from slurmsched.resources.held import holding

MOST_GPUS = 63  # of one node: the bits of a mask


@dataclass(frozen=True, slots=True, eq=False)
class HeldSets:
    """What holding jobs hold: one entry a job and node, by ascending row of the jobs table, then node row. (A,) each.

    first, count: (J,) the entries of each job. cpus, memory_mib: its share on the node, by GPUs.
    """

    row: Int64s
    node: Int64s
    mask: Int64s
    gpus: Int64s
    cpus: Floats
    memory_mib: Floats
    first: Int64s
    count: Int64s

    def entries(self, rows: Int64s) -> Int64s:
        """The entries of these jobs, one job after another. (E,) int64."""
        count = self.count[rows]
        shift = np.repeat(self.first[rows] - (np.cumsum(count) - count), count)
        return np.arange(int(count.sum())) + shift


@dataclass(frozen=True, slots=True, eq=False)
class GpuStock:
    """The cluster as placements of GPU sets see it. Masks: bit i is GPU index i.

    capacity: (N,) int64 masks of GPUs that jobs of the snapshot hold or may get. blind: (N,) bool, Slurm shows how
    many GPUs of the node are held but not which, or indices that are none of the node's: bits there only count.
    node_class: (N,) int64 row of the site's classes, -1 = unknown or blind. cpus, memory_mib: (N,) to give beside the
    GPUs, infinity = not counted.
    """

    capacity: Int64s
    blind: Bools
    node_class: Int64s
    cpus: Floats
    memory_mib: Floats
    held: HeldSets

    @classmethod
    def of(cls, snapshot: Snapshot) -> GpuStock:
        """Raises ConfigError for a node of more than 63 GPUs."""
        _check_sizes(snapshot)
        entry_row, entry_node = _entry_rows(snapshot)
        visible = np.zeros(len(snapshot.nodes), np.int64)
        known = entry_node >= 0
        np.bitwise_or.at(visible, entry_node[known], snapshot.allocations.gpu_mask[known])
        seen, whole = snapshot.nodes.gpu_mask_used | visible, whole_gpus(snapshot)
        blind = _blind(snapshot, entry_node) | (seen & ~whole != 0)
        node_class = np.where(blind, -1, class_rows(snapshot))
        counted = low_bits(to_give(snapshot))
        unseen = snapshot.nodes.gpu_mask_used & ~visible
        exact = np.where(snapshot.nodes.closed, visible, whole & ~unseen)
        mine = (entry_row >= 0) & known
        held = _held(snapshot, entry_row[mine], entry_node[mine], mine, blind)
        beside = _beside(snapshot, held)
        return cls(np.where(blind, counted, exact), blind, node_class, *beside, held)


def low_bits(count: Int64s) -> Int64s:
    """Masks of the lowest `count` GPUs."""
    return (np.int64(1) << np.asarray(count, np.int64)) - 1


def bit_counts(masks: Int64s) -> Int64s:
    """GPUs in each mask. Same shape, int64."""
    octets = np.ascontiguousarray(masks, np.int64).view(np.uint8).reshape(*np.shape(masks), 8)
    return np.unpackbits(octets, axis=-1).sum(axis=-1).astype(np.int64)


def class_of(topology: SiteTopology, row: int) -> GpuTopology | None:
    return topology.classes[row] if row >= 0 else None


def _check_sizes(snapshot: Snapshot) -> None:
    gpus = snapshot.nodes.gpus
    if len(gpus) and gpus.max() > MOST_GPUS:
        name = snapshot.nodes.name[int(gpus.argmax())]
        message = f"looks at single GPUs, at most {MOST_GPUS} a node, and {name} has {gpus.max()}; choose `count`"
        raise ConfigError(message, key="placement")


def _entry_rows(snapshot: Snapshot) -> tuple[Int64s, Int64s]:
    """Row of the holding job and row of the node of each allocation, -1 if it is none of the snapshot's. (A,) each."""
    jobs, held = snapshot.jobs, snapshot.allocations
    holds = holding(jobs)
    row_of = {job: row for row, job in enumerate(jobs.job_id.tolist()) if holds[row]}
    node_of = {name: row for row, name in enumerate(snapshot.nodes.name)}
    row = np.array([row_of.get(job, -1) for job in held.job_id.tolist()], np.int64)
    return row, held.node.map(lambda name: node_of.get(name, -1), np.int64)


def _blind(snapshot: Snapshot, entry_node: Int64s) -> Bools:
    """Nodes of which Slurm does not show which GPUs are held. (N,)."""
    nodes, held = snapshot.nodes, snapshot.allocations
    blind = bit_counts(nodes.gpu_mask_used) != nodes.gpus_used
    vague = (bit_counts(held.gpu_mask) != held.gpus) & (entry_node >= 0)
    blind[entry_node[vague]] = True
    return blind


def class_rows(snapshot: Snapshot) -> Int64s:
    """Row of the class of each node, -1 where none is known or it has another number of whole GPUs. (N,)."""
    topology, nodes = snapshot.topology, snapshot.nodes
    given = topology.node_class if len(topology.node_class) == len(nodes) else np.full(len(nodes), -1, np.int64)
    whole = np.array([int((~one.mig).sum()) if one.known else -1 for one in topology.classes] + [-1], np.int64)
    return np.where((given >= 0) & (whole[given] == nodes.gpus), given, -1)


def whole_gpus(snapshot: Snapshot) -> Int64s:
    """All GPUs of each node that are not cut into MIG devices, as masks: the lowest ones where no class tells. (N,)."""
    classes, node_class = snapshot.topology.classes, class_rows(snapshot)
    masks = [sum(1 << int(g) for g in np.flatnonzero(~one.mig)) for one in classes]
    table = np.array([*masks, 0], np.int64)
    return np.where(node_class >= 0, table[node_class], low_bits(snapshot.nodes.gpus.astype(np.int64)))


def _held(snapshot: Snapshot, row: Int64s, node: Int64s, mine: Bools, blind: Bools) -> HeldSets:
    """Entries of the same job and node made one; on blind nodes bits are dealt out in order."""
    jobs, gpus = snapshot.jobs, snapshot.allocations.gpus[mine].astype(np.int64)
    key, at = np.unique(row * max(len(snapshot.nodes), 1) + node, return_inverse=True)
    made_row, made_node = np.divmod(key, max(len(snapshot.nodes), 1))
    count, mask = np.zeros(len(key), np.int64), np.zeros(len(key), np.int64)
    np.add.at(count, at, gpus)
    np.bitwise_or.at(mask, at, snapshot.allocations.gpu_mask[mine])
    dealt: dict[int, int] = {}
    order = np.lexsort((jobs.job_id[made_row], made_node))  # by job, whatever its row
    for k in order[blind[made_node[order]]].tolist():
        used = dealt.get(int(made_node[k]), 0)
        mask[k] = int(low_bits(count[k])) << used
        dealt[int(made_node[k])] = used + int(count[k])
    share = count / np.maximum(jobs.gpus[made_row], 1)
    entries = np.bincount(made_row, minlength=len(jobs)).astype(np.int64)
    beside = (jobs.cpus[made_row] * share, jobs.memory_mib[made_row] * share)
    return HeldSets(made_row, made_node, mask, count, *beside, np.cumsum(entries) - entries, entries)


def _beside(snapshot: Snapshot, held: HeldSets) -> tuple[Floats, Floats]:
    """CPUs and memory that jobs of the snapshot hold with their GPUs or may get. Two (N,), infinity = not counted."""
    nodes, found = snapshot.nodes, []
    for have, used, theirs in (
        (nodes.cpus, nodes.cpus_used, held.cpus),
        (nodes.memory_mib, nodes.memory_used_mib, held.memory_mib),
    ):
        back = np.bincount(held.node, theirs, len(nodes))
        others = np.maximum(used - back, 0.0)
        found.append(np.where(have > 0, have - others, np.inf))
    return found[0], found[1]

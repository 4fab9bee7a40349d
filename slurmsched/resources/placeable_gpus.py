"""Single GPUs: which of them placements may assign on each node, and which each running job holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.kernels.free_gpus import (
    AllocationColumns,
    JobColumns,
    NodeColumns,
    givable,
    holder_sets,
    placeable_masks,
)
from slurmsched.kernels.gpu_share_fit import WHOLE
from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.gpu_masks import low_bits
from slurmsched.model.gpu_topology import GpuTopology, SiteTopology
from slurmsched.resources.allocated import allocated_whole_gpus, holding, node_rows

MOST_GPUS = 63  # of one node: the bits of a mask


@dataclass(frozen=True, slots=True, eq=False)
class AllocatedSets:
    """What holding jobs hold: one entry a job and node, by ascending row of the jobs table, then node row. (A,) each.

    first, count: (J,) the entries of each job.
    cpus, memory_mib: its share on the node, by GPUs.
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
class PlaceableGpus:
    """The cluster as placements of GPU sets see it. Masks: bit i is GPU index i.

    capacity: (N,) int64 masks of GPUs that jobs of the snapshot hold or may get.
    blind: (N,) bool, Slurm shows how many GPUs of the node are held but not which, or indices that are none of the
        node's: bits there only count.
    node_class: (N,) int64 row of the site's classes, -1 = unknown or blind.
    cpus, memory_mib: (N,) to give beside the GPUs, infinity = not counted.
    """

    capacity: Int64s
    blind: Bools
    node_class: Int64s
    cpus: Floats
    memory_mib: Floats
    allocated: AllocatedSets

    @classmethod
    def of(cls, snapshot: Snapshot) -> PlaceableGpus:
        """Raises ConfigError for a node of more than 63 GPUs."""
        _check_sizes(snapshot)
        nodes, jobs, allocations, node = snapshot.nodes, snapshot.jobs, snapshot.allocations, node_rows(snapshot)
        classes = topology_class_rows(snapshot)
        listed = AllocationColumns(
            allocations.job_id, node, allocations.gpus, allocated_whole_gpus(snapshot), allocations.gpu_mask
        )
        whole = whole_gpu_masks(snapshot, classes)
        capacity, blind = placeable_masks(
            node, listed, NodeColumns(nodes.closed, nodes.gpus, nodes.gpus_used, nodes.gpu_mask_used, whole)
        )
        columns = JobColumns(jobs.job_id, holding(jobs), jobs.gpus, jobs.cpus, jobs.memory_mib)
        allocated = AllocatedSets(*holder_sets(node, listed, columns, blind))
        beside = _unused_beside_gpus(snapshot, allocated)
        return cls(capacity, blind, np.where(blind, -1, classes), *beside, allocated)


def topology_class(topology: SiteTopology, row: int) -> GpuTopology | None:
    """The topology of a node by the row of its class; None for -1, an unknown one."""
    return topology.classes[row] if row >= 0 else None


def _check_sizes(snapshot: Snapshot) -> None:
    gpus = snapshot.nodes.gpus
    if len(gpus) and gpus.max() > MOST_GPUS:
        name = snapshot.nodes.name[int(gpus.argmax())]
        message = f"looks at single GPUs, at most {MOST_GPUS} a node, and {name} has {gpus.max()}; choose `count`"
        raise ConfigError(message, key="placement")


def shown_masks(snapshot: Snapshot) -> Int64s:
    """GPUs of each node that allocations show, as masks. (N,) int64."""
    visible, node = np.zeros(len(snapshot.nodes), np.int64), node_rows(snapshot)
    np.bitwise_or.at(visible, node[node >= 0], snapshot.allocations.gpu_mask[node >= 0])
    return visible


def topology_class_rows(snapshot: Snapshot) -> Int64s:
    """Row of the class of each node, -1 where none is known or it has another number of whole GPUs. (N,)."""
    topology, nodes = snapshot.topology, snapshot.nodes
    if not topology.classes:
        return np.full(len(nodes), -1, np.int64)
    given = topology.node_class if len(topology.node_class) == len(nodes) else np.full(len(nodes), -1, np.int64)
    whole = np.array([int((~one.mig).sum()) if one.known else -1 for one in topology.classes] + [-1], np.int64)
    return np.where((given >= 0) & (whole[given] == nodes.gpus), given, -1)


def whole_gpu_masks(snapshot: Snapshot, node_class: Int64s | None = None) -> Int64s:
    """All GPUs of each node that are not cut into MIG devices, as masks: the lowest ones where no class tells. (N,).

    node_class: topology_class_rows(snapshot), if it is at hand.
    """
    classes, node_class = snapshot.topology.classes, topology_class_rows(snapshot) if node_class is None else node_class
    masks = [sum(1 << int(g) for g in np.flatnonzero(~one.mig)) for one in classes]
    table = np.array([*masks, 0], np.int64)
    return np.where(node_class >= 0, table[node_class], low_bits(snapshot.nodes.gpus.astype(np.int64)))


def _unused_beside_gpus(snapshot: Snapshot, allocated: AllocatedSets) -> tuple[Floats, Floats]:
    """CPUs and memory that jobs of the snapshot hold with their GPUs or may get. Two (N,), infinity = not counted."""
    nodes, found = snapshot.nodes, []
    for have, used, theirs in (
        (nodes.cpus, nodes.cpus_used, allocated.cpus),
        (nodes.memory_mib, nodes.memory_used_mib, allocated.memory_mib),
    ):
        if not have.any():
            found.append(np.full(len(nodes), np.inf))
            continue
        back = np.bincount(allocated.node, theirs, len(nodes))
        others = np.maximum(used - back, 0.0)
        found.append(np.where(have > 0, have - others, np.inf))
    return found[0], found[1]


def placeable_gpu_counts(snapshot: Snapshot) -> Int64s:
    """GPUs of each node that jobs of the snapshot hold or may get: without those of unseen holders and the free ones of
    closed nodes, with those of completing jobs. (N,) int64."""
    nodes, allocated = snapshot.nodes, allocated_whole_gpus(snapshot)
    found: Int64s = givable(nodes.closed, nodes.gpus, nodes.gpus_used, node_rows(snapshot), allocated)
    return found


# Free parts of GPUs.


@dataclass(frozen=True, slots=True, eq=False)
class FreeShares:
    """What is free of each node beside the jobs that hold something there. Writable: jobs take from it.

    gpu_milli: (N, G) int64, thousandths free of each GPU by index; 0 where nobody may have it, or there is none. G is
        the most GPUs of a node.
    cpus, memory_mib: (N,), infinity = not counted.
    """

    gpu_milli: Int64s
    cpus: Floats
    memory_mib: Floats

    @classmethod
    def of(cls, snapshot: Snapshot) -> FreeShares:
        """Of a snapshot. Where Slurm does not show which GPUs are held, the lowest ones count as held.

        Raises ConfigError for a node of more than 63 GPUs.
        """
        placeable = PlaceableGpus.of(snapshot)
        allocated, index = placeable.allocated, np.arange(int(snapshot.nodes.gpus.max(initial=0)))
        free = WHOLE * _bits(placeable.capacity, index)
        parts = snapshot.jobs.gpu_milli[allocated.row].astype(np.int64)[:, np.newaxis] * _bits(allocated.mask, index)
        np.subtract.at(free, allocated.node, parts)
        cpus, memory_mib = placeable.cpus.copy(), placeable.memory_mib.copy()
        np.subtract.at(cpus, allocated.node, allocated.cpus)
        np.subtract.at(memory_mib, allocated.node, allocated.memory_mib)
        return cls(np.maximum(free, 0), cpus, memory_mib)


def _bits(masks: Int64s, index: Int64s) -> Int64s:
    """1 where a mask has the bit of this index. (M, G)."""
    found: Int64s = masks[:, np.newaxis] >> index & 1
    return found

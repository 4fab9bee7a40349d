"""How far the GPUs of a job are from each other, and how near they could be."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model import Assignments, Snapshot
from slurmsched.model.columns import Int64s
from slurmsched.model.gpu_masks import mask_members
from slurmsched.model.gpu_topology import GpuTopology, LinkKind, SiteTopology
from slurmsched.plain_text import pluralize
from slurmsched.resources.gpu_sets import TABLE_GPUS, set_table, slowest_link

Place = tuple[list[int], list[int]]  # node rows of a job, and the mask of its GPUs on each


class GpuDistance(IntEnum):
    """The nearest first. ISLAND: a ring of direct links (NVLink, XGMI) joins them; on a node without such links, they
    are on one NUMA node; where nothing is known of a node, all of it. LEAF: nodes of one lowest cell of the fabric;
    where no fabric is known, any nodes."""

    ISLAND = 0
    NODE = 1
    LEAF = 2
    ACROSS = 3


def places(held: Assignments) -> Iterator[Place]:
    """What each job holds, in the order of held.rows."""
    node, mask = held.node.tolist(), held.gpu_mask.tolist()
    for first, count in zip(held.first.tolist(), held.count.tolist(), strict=True):
        yield node[first : first + count], mask[first : first + count]


def sharing(snapshot: Snapshot, held: Assignments, most: int = 2) -> list[list[int]]:
    """Places in held.rows of each group, of 2 to `most`, that are on the same GPUs. Raises InputError where jobs share
    otherwise."""
    together: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for job, place in enumerate(places(held)):
        together.setdefault(tuple(zip(*place, strict=True)), []).append(job)
    taken: dict[int, int] = {}
    for key, jobs in together.items():
        if len(jobs) > most or any(taken.get(node, 0) & mask for node, mask in key):
            job_id, others = snapshot.jobs.job_id[held.rows[jobs[-1]]], pluralize(most - 1, "other job")
            raise InputError(f"job {job_id} shares GPUs otherwise than all of them with {others}: no speed is known")
        for node, mask in key:
            taken[node] = taken.get(node, 0) | mask
    return [jobs for jobs in together.values() if len(jobs) > 1]


def levels(snapshot: Snapshot, held: Assignments) -> Int64s:
    """The Level that each job of held.rows is on. (R,) int64."""
    return np.array([_level(snapshot.topology, *place) for place in places(held)], np.int64)


def nearest_levels(snapshot: Snapshot, rows: Int64s) -> Int64s:
    """The nearest Level that that many GPUs as each job asks for could be on, were the cluster empty. (R,) int64."""
    topology, sizes = snapshot.topology, snapshot.nodes.gpus.astype(np.int64).tobytes()
    return np.array([_least_distance(topology, sizes, gpus) for gpus in snapshot.jobs.gpus[rows].tolist()], np.int64)


def class_at(topology: SiteTopology, node: int) -> GpuTopology | None:
    """What is known of the wiring of a node, None if nothing."""
    row = int(topology.node_class[node]) if len(topology.node_class) else -1
    return topology.classes[row] if row >= 0 and topology.classes[row].known else None


@lru_cache(maxsize=100_000)
def on_island(topology: GpuTopology, mask: int) -> bool:
    """Whether these GPUs of a node are on Level.ISLAND."""
    gpus, direct = mask_members(mask), topology.kind >= LinkKind.XGMI
    if len(gpus) < 2:
        return True
    if not direct.any():
        return len({int(topology.numa[g]) for g in gpus}) == 1
    if topology.gpus <= TABLE_GPUS:
        return slowest_link(set_table(topology), mask) >= LinkKind.XGMI
    return all(direct[a, b] for a in gpus for b in gpus if a != b)


def _level(topology: SiteTopology, nodes: list[int], masks: list[int]) -> GpuDistance:
    if len(nodes) > 1:
        cells = {int(topology.cell[node]) for node in nodes} if len(topology.cell) else {0}
        return GpuDistance.LEAF if len(cells) == 1 else GpuDistance.ACROSS
    known = class_at(topology, nodes[0])
    return GpuDistance.ISLAND if known is None or on_island(known, masks[0]) else GpuDistance.NODE


@lru_cache(maxsize=4_096)
def _least_distance(topology: SiteTopology, sizes: bytes, gpus: int) -> GpuDistance:
    """sizes: GPUs of each node, int64."""
    of_node = np.frombuffer(sizes, np.int64)
    large = np.flatnonzero(of_node >= gpus).tolist()
    classes = {class_at(topology, node) for node in large}
    if any(one is None or _has_island(one, gpus) for one in classes):
        return GpuDistance.ISLAND
    if large:
        return GpuDistance.NODE
    if not len(topology.cell):
        return GpuDistance.LEAF
    known = topology.cell >= 0
    of_cell = [int(of_node[topology.cell == cell].sum()) for cell in np.unique(topology.cell[known])]
    return GpuDistance.LEAF if max(of_cell, default=int(of_node.sum())) >= gpus else GpuDistance.ACROSS


@lru_cache(maxsize=1_024)
def _has_island(topology: GpuTopology, gpus: int) -> bool:
    """Whether that many GPUs of an empty node can be on one island: its best set is if any is."""
    if topology.gpus <= TABLE_GPUS and (topology.kind >= LinkKind.XGMI).any():
        return on_island(topology, int(set_table(topology).best[-1, gpus]))
    sizes = np.unique(topology.numa, return_counts=True)[1]
    direct = topology.kind >= LinkKind.XGMI
    return bool((1 + direct.sum(axis=1).max()) >= gpus) if direct.any() else bool(sizes.max() >= gpus)

"""Which nodes Slurm starts one job on at all, where it keeps jobs to switches or blocks itself."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from math import ceil, comb

import numpy as np

from slurmsched.model import SiteTopology, Snapshot
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.topology import UNDERSTOOD, Fabric
from slurmsched.topology.blocks import at_level

_WAYS = 32  # of choosing the blocks of a job in one cell, up to which each is tried


def reachable(topology: SiteTopology, nodes: Int64s) -> bool:
    """Whether Slurm would start a job that asks for no switches and no segments on just these nodes. (K,) rows.

    topology/tree: under one switch, however high. topology/block: in one block of the smallest size that holds it all,
    and in no more than it needs of the largest size that it fills: three nodes of blocks of 2 and 8 lie in one of 8 and
    in two of 2. On other nodes it waits, with reason BadConstraints. Source: ours, by node lists on 24.11.5
    and 26.05.5 (tests/live/test_gang_fabrics.py).
    """
    if unknown(topology, len(nodes)):
        return False
    if len(nodes) < 2 or not binds(topology, len(topology.slurm_cell)):
        return True
    fabric, cells = topology.slurm_fabric, topology.slurm_cell[nodes]
    return bool((cells >= 0).all()) and all(
        len(np.unique(at_level(fabric, cells, level))) <= most for level, most in _bounds(topology, len(nodes))
    )


def within_reach(topology: SiteTopology, room: Bools, count: int) -> Bools:
    """Of these nodes some, on any `count` of which Slurm would start one job; none where there are no such. (N,) bool.

    Under the switch, or in the block, that has the fewest of them but enough; in it those in the fewest blocks. All of
    them where Slurm keeps to no fabric.
    """
    if unknown(topology, count):
        return np.zeros_like(room)
    if count < 2 or not binds(topology, len(room)):
        return room if int(room.sum()) >= count else np.zeros_like(room)
    rows = np.flatnonzero(room & (topology.slurm_cell >= 0))
    bounds, cells = _bounds(topology, count), topology.slurm_cell[rows]
    level, most = bounds[-1]
    block = at_level(topology.slurm_fabric, cells, level)
    over = at_level(topology.slurm_fabric, cells, bounds[0][0]) if bounds[0][1] == 1 else np.zeros_like(block)
    pairs, has = np.unique(np.stack([over, block]), axis=1, return_counts=True)
    best, size = np.zeros(0, np.int64), len(rows) + 1
    for one in np.unique(pairs[0]).tolist():
        inside = np.flatnonzero(pairs[0] == one)
        order = inside[np.argsort(-has[inside], kind="stable")]
        needed = int(np.searchsorted(np.cumsum(has[order]), count)) + 1
        if needed <= min(most, len(order)) and has[inside].sum() < size:
            best, size = pairs[1][order[:needed]], int(has[inside].sum())
    found = np.zeros_like(room)
    found[rows[np.isin(block, best)]] = True
    return found


def shortest_head(topology: SiteTopology, rows: Int64s, count: int) -> Int64s:
    """Of as few of these nodes as it takes, in their order, those on any `count` of which Slurm would start one job;
    none where all are too few. rows: (K,)."""

    def within(head: int) -> Int64s:
        room = np.zeros(max(len(topology.slurm_cell), int(rows.max(initial=-1)) + 1), np.bool_)
        room[rows[:head]] = True
        return rows[:head][within_reach(topology, room, count)[rows[:head]]]

    heads = range(count, len(rows) + 1)  # a job that can start on some of a head can on some of a longer one
    at = bisect_left(heads, True, key=lambda head: len(within(head)) > 0)
    return within(heads[at]) if at < len(heads) else rows[:0]


def places(topology: SiteTopology, rows: Int64s, count: int) -> Iterator[Int64s]:
    """Sets of these nodes, in their order, on any `count` of each of which Slurm would start one job. rows: (K,).

    Every such set that no other holds, but where the blocks of one cell can be chosen in more than 32 ways, of that
    cell the shortest head. All nodes where Slurm keeps to no fabric.
    """
    if unknown(topology, count):
        return
    if count < 2 or not binds(topology, len(topology.slurm_cell)):
        yield from [rows] * (len(rows) >= count)
        return
    fabric, bounds = topology.slurm_fabric, _bounds(topology, count)
    rows = rows[topology.slurm_cell[rows] >= 0]
    level, most = bounds[-1]
    block = at_level(fabric, topology.slurm_cell[rows], level)
    over = at_level(fabric, topology.slurm_cell[rows], bounds[0][0]) if bounds[0][1] == 1 else np.zeros_like(block)
    for one in np.unique(over).tolist():
        blocks = np.unique(block[over == one]).tolist()
        many = comb(len(blocks), most) > _WAYS
        ways = [blocks] if many else combinations(blocks, min(most, len(blocks)))
        for way in ways:
            inside = rows[(over == one) & np.isin(block, way)]
            found = shortest_head(topology, inside, count) if many else inside
            if len(found) >= count:
                yield found


def most_together(topology: SiteTopology, room: Bools) -> int:
    """On how many of these nodes at most Slurm would start one job. room: (N,) bool."""
    if unknown(topology, 2):
        return int(room.any())
    if not binds(topology, len(room)):
        return int(room.sum())
    fabric, cells = topology.slurm_fabric, topology.slurm_cell[room & (topology.slurm_cell >= 0)]
    best = int(room.any())
    for level, size, over, limit, least in _steps(fabric):
        block = at_level(fabric, cells, level)
        outer = at_level(fabric, cells, over) if over else np.zeros_like(block)
        pairs, has = np.unique(np.stack([outer, block]), axis=1, return_counts=True)
        for one in np.unique(pairs[0]).tolist():
            full = np.sort(has[pairs[0] == one])[::-1]
            blocks = np.arange(1, len(full) + 1)
            count = np.minimum(np.minimum(np.cumsum(full), blocks * size), limit)
            fills = (count > (blocks - 1) * size) & (count >= least)
            best = max(best, int(count[fills].max(initial=0)))
    return best


def _steps(fabric: Fabric) -> Iterator[tuple[int, int, int, int, int]]:
    """Level and size of blocks that a job fills, level (0 = none) and size of those that hold it all, and its least
    nodes."""
    most, sizes = len(fabric.node), fabric.block_sizes
    if not sizes:
        yield _whole_level(fabric), most, _whole_level(fabric), most, 1
    for at, size in enumerate(sizes):
        last = at + 1 == len(sizes)
        yield at + 1, size, 0 if last else at + 2, most if last else sizes[at + 1], size if at else 1


def binding(snapshot: Snapshot, row: int) -> SiteTopology:
    """The topology that tells where Slurm starts this job: none for one that asks for segments, which are by rules of
    their own."""
    topology = of_partitions(snapshot, snapshot.jobs.partition[row])
    return SiteTopology() if snapshot.jobs.segment_nodes[row] and not unknown(topology, 2) else topology


def of_partitions(snapshot: Snapshot, names: str) -> SiteTopology:
    """The topology for jobs of these partitions (a comma list). One of a partition's own, `Topology=`, is not read: its
    form says so."""
    partitions = snapshot.partitions
    own = {name: of for name, of in zip(partitions.name, partitions.topology, strict=True) if of}
    found = next((own[name] for name in names.split(",") if name in own), "")
    if not found:
        return snapshot.topology
    return replace(snapshot.topology, slurm_fabric=Fabric(form=f"topology of its partition ({found})"))


def binds(topology: SiteTopology, nodes: int) -> bool:
    """Whether Slurm itself keeps jobs to a fabric."""
    return topology.slurm_fabric.form != "" and len(topology.slurm_cell) == nodes


def unknown(topology: SiteTopology, nodes: int) -> str:
    """Why it is not known where Slurm starts a job of so many nodes, "" = it is."""
    form = topology.slurm_fabric.form
    if nodes < 2:
        return ""
    if not topology.slurm_known:
        return "Slurm has not told yet whether it keeps jobs to switches or blocks"
    if form and form not in UNDERSTOOD:
        return f"Slurm keeps jobs to a {form}, whose rule is not known"
    return ""


def _bounds(topology: SiteTopology, count: int) -> list[tuple[int, int]]:
    """Levels of cells, the highest first, and in how many of each so many nodes may lie."""
    sizes = topology.slurm_fabric.block_sizes
    if not sizes:
        return [(_whole_level(topology.slurm_fabric), 1)]
    holds = next((at for at, size in enumerate(sizes) if size >= count), None)
    fills = max((at for at, size in enumerate(sizes) if size <= count), default=None)
    levels = dict.fromkeys(at for at in (holds, fills) if at is not None)
    return [(at + 1, ceil(count / sizes[at])) for at in levels]


def _whole_level(fabric: Fabric) -> int:
    """Level of the cells of which a job lies in one: a tree's highest switches, and single blocks where no sizes tell
    how Slurm joins them."""
    return int(fabric.level.max(initial=1)) if fabric.form == "tree" else 1

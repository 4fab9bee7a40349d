"""Which nodes Slurm starts one job on at all, where it keeps jobs to switches or blocks itself."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from math import ceil, comb

import numpy as np

from slurmsched.model import SiteTopology
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.gpu_topology import MODELLED_FABRICS, Fabric, cells_at_level
from slurmsched.model.snapshot import Snapshot
from slurmsched.plain_text import pluralize

_WAYS = 32  # of choosing the blocks of a job in one cell, up to which each is tried


def starts_on(topology: SiteTopology, nodes: Int64s) -> bool:
    """Whether Slurm would start a job that asks for no switches and no segments on just these nodes. (K,) rows.

    topology/tree: under one switch, however high. topology/block: in one block of the smallest size that holds it all,
    and in no more than it needs of the largest size that it fills: three nodes of blocks of 2 and 8 lie in one of 8 and
    in two of 2. On other nodes it waits, with reason BadConstraints. Source: ours, by node lists on 24.11.5 and 26.05.5
    (tests/live/test_gang_fabrics.py).
    """
    if unknown_topology_rule(topology, len(nodes)):
        return False
    if len(nodes) < 2 or not keeps_to_fabric(topology, len(topology.slurm_cell)):
        return True
    fabric, cells = topology.slurm_fabric, topology.slurm_cell[nodes]
    return bool((cells >= 0).all()) and all(
        len(np.unique(cells_at_level(fabric, cells, level))) <= most for level, most in _bounds(topology, len(nodes))
    )


def nodes_for_one_job(topology: SiteTopology, room: Bools, count: int) -> Bools:
    """Of these nodes some, on any `count` of which Slurm would start one job; none where there are no such. (N,) bool.

    Under the switch, or in the block, that has the fewest of them but enough; in it those in the fewest blocks. All of
    them where Slurm keeps to no fabric.
    """
    if unknown_topology_rule(topology, count):
        return np.zeros_like(room)
    if count < 2 or not keeps_to_fabric(topology, len(room)):
        return room if int(room.sum()) >= count else np.zeros_like(room)
    rows = np.flatnonzero(room & (topology.slurm_cell >= 0))
    bounds, cells = _bounds(topology, count), topology.slurm_cell[rows]
    level, most = bounds[-1]
    block = cells_at_level(topology.slurm_fabric, cells, level)
    over = cells_at_level(topology.slurm_fabric, cells, bounds[0][0]) if bounds[0][1] == 1 else np.zeros_like(block)
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


def first_nodes_for_one_job(topology: SiteTopology, rows: Int64s, count: int) -> Int64s:
    """The shortest head of these nodes on any `count` of which Slurm would start one job. rows: (K,).

    The nodes are taken in their order. None where all are too few.
    """

    def within(head: int) -> Int64s:
        room = np.zeros(max(len(topology.slurm_cell), int(rows.max(initial=-1)) + 1), np.bool_)
        room[rows[:head]] = True
        return rows[:head][nodes_for_one_job(topology, room, count)[rows[:head]]]

    heads = range(count, len(rows) + 1)  # a job that can start on some of a head can on some of a longer one
    at = bisect_left(heads, True, key=lambda head: len(within(head)) > 0)
    return within(heads[at]) if at < len(heads) else rows[:0]


def node_sets_for_one_job(topology: SiteTopology, rows: Int64s, count: int) -> Iterator[Int64s]:
    """Sets of these nodes, in their order, on any `count` of each of which Slurm would start one job. rows: (K,).

    It is every such set that no other holds. Where the blocks of one cell can be chosen in more than 32 ways, it is the
    shortest head of that cell. All nodes where Slurm keeps to no fabric.
    """
    if unknown_topology_rule(topology, count):
        return
    if count < 2 or not keeps_to_fabric(topology, len(topology.slurm_cell)):
        yield from [rows] * (len(rows) >= count)
        return
    fabric, bounds = topology.slurm_fabric, _bounds(topology, count)
    rows = rows[topology.slurm_cell[rows] >= 0]
    level, most = bounds[-1]
    block = cells_at_level(fabric, topology.slurm_cell[rows], level)
    over = (
        cells_at_level(fabric, topology.slurm_cell[rows], bounds[0][0]) if bounds[0][1] == 1 else np.zeros_like(block)
    )
    for one in np.unique(over).tolist():
        blocks = np.unique(block[over == one]).tolist()
        many = comb(len(blocks), most) > _WAYS
        ways = [blocks] if many else combinations(blocks, min(most, len(blocks)))
        for way in ways:
            inside = rows[(over == one) & np.isin(block, way)]
            found = first_nodes_for_one_job(topology, inside, count) if many else inside
            if len(found) >= count:
                yield found


def most_nodes_of_one_job(topology: SiteTopology, room: Bools) -> int:
    """On how many of these nodes at most Slurm would start one job. room: (N,) bool."""
    if unknown_topology_rule(topology, 2):
        return int(room.any())
    if not keeps_to_fabric(topology, len(room)):
        return int(room.sum())
    fabric, cells = topology.slurm_fabric, topology.slurm_cell[room & (topology.slurm_cell >= 0)]
    best = int(room.any())
    for level, size, over, limit, least in _block_steps(fabric):
        block = cells_at_level(fabric, cells, level)
        outer = cells_at_level(fabric, cells, over) if over else np.zeros_like(block)
        pairs, has = np.unique(np.stack([outer, block]), axis=1, return_counts=True)
        for one in np.unique(pairs[0]).tolist():
            full = np.sort(has[pairs[0] == one])[::-1]
            blocks = np.arange(1, len(full) + 1)
            count = np.minimum(np.minimum(np.cumsum(full), blocks * size), limit)
            fills = (count > (blocks - 1) * size) & (count >= least)
            best = max(best, int(count[fills].max(initial=0)))
    return best


def _block_steps(fabric: Fabric) -> Iterator[tuple[int, int, int, int, int]]:
    """Level and size of blocks that a job fills, level (0 = none) and size of those that hold it all, and its least
    nodes."""
    most, sizes = len(fabric.node), fabric.block_sizes
    if not sizes:
        yield _whole_level(fabric), most, _whole_level(fabric), most, 1
    for at, size in enumerate(sizes):
        last = at + 1 == len(sizes)
        yield at + 1, size, 0 if last else at + 2, most if last else sizes[at + 1], size if at else 1


def too_far_apart(nodes: int) -> str:
    """That a job of that many nodes finds them, but not near enough, as text."""
    return f"Slurm starts no job of {nodes} on them: they are too far apart on its switches or blocks"


def topology_for_job(snapshot: Snapshot, row: int) -> SiteTopology:
    """The topology that tells where Slurm starts this job: none for one that asks for segments, which are by rules of
    their own."""
    topology = topology_for_partitions(snapshot, snapshot.jobs.partition[row])
    return SiteTopology() if snapshot.jobs.segment_nodes[row] and not unknown_topology_rule(topology, 2) else topology


def topology_for_partitions(snapshot: Snapshot, names: str) -> SiteTopology:
    """The topology for jobs of these partitions (a comma list). One of a partition's own, `Topology=`, is not read: its
    form says so."""
    partitions = snapshot.partitions
    own = {name: of for name, of in zip(partitions.name, partitions.topology, strict=True) if of}
    found = next((own[name] for name in names.split(",") if name in own), "")
    if not found:
        return snapshot.topology
    return replace(snapshot.topology, slurm_fabric=Fabric(form=f"topology of its partition ({found})"))


def keeps_to_fabric(topology: SiteTopology, nodes: int) -> bool:
    """Whether Slurm itself keeps jobs to a fabric."""
    return topology.slurm_fabric.form != "" and len(topology.slurm_cell) == nodes


def unknown_topology_rule(topology: SiteTopology, nodes: int) -> str:
    """Why it is not known where Slurm starts a job of that many nodes, "" = it is."""
    form = topology.slurm_fabric.form
    if nodes < 2:
        return ""
    if not topology.slurm_known:
        return "it is not read yet whether Slurm keeps jobs to switches or blocks"
    if form and form not in MODELLED_FABRICS:
        return f"Slurm keeps jobs to a {form}, whose rule is not known"
    return ""


def _bounds(topology: SiteTopology, count: int) -> list[tuple[int, int]]:
    """Levels of cells, the highest first, and in how many of each that many nodes may lie."""
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


# Whether a gang lies on the fabric as its user asked: on so few leaf switches, in segments of that many nodes.


def unmet_topology_requests(snapshot: Snapshot, row: int, nodes: Int64s) -> Iterator[tuple[float, str]]:
    """What of a running gang's --switches and --segment is not kept: the share that is, 0 to 1, and what is wrong.

    nodes: (K,) rows of its nodes. The switches and blocks are Slurm's own, or where it keeps jobs to none those of
    `topology.fabric`; nothing is told of a node on none of them, nor before Slurm has told which it has. Slurm heeds
    --switches with switches only, and no longer than the job's own patience (`--switches=N@time`); --segment with
    blocks only. Source: sbatch manual page.
    """
    jobs, topology = snapshot.jobs, snapshot.topology
    if not topology.slurm_known:
        return
    own = keeps_to_fabric(topology, len(snapshot.nodes))
    fabric, cell = (topology.slurm_fabric, topology.slurm_cell) if own else (topology.fabric, topology.cell)
    if len(cell) != len(snapshot.nodes) or (cell[nodes] < 0).any():
        return
    cells = cell[nodes]
    most, size = int(jobs.switches[row]), int(jobs.segment_nodes[row])
    spans = len(np.unique(cells))
    if fabric.form == "tree" and 0 < most < spans:
        yield most / spans, f"it asked for at most {pluralize(most, 'switch', 'switches')}, and is on {spans}"
    if fabric.form == "block" and 0 < size <= len(cells):
        parts, whole = len(cells) // size, _whole_segments(fabric, cells, size)
        if whole < parts:
            words = f"{parts - whole} of its {pluralize(parts, 'segment')} of {pluralize(size, 'node')}"
            yield whole / parts, f"{words} {'is' if parts - whole == 1 else 'are'} not within one block"


def topology_request(snapshot: Snapshot, row: int) -> str:
    """Why no nodes are chosen for a waiting gang: Slurm sees to its --switches and --segment. "" = they are."""
    jobs = snapshot.jobs
    if int(jobs.nodes[row]) < 2 or not (jobs.switches[row] or jobs.segment_nodes[row]):
        return ""
    if min(jobs.switches[row], jobs.segment_nodes[row]) < 0:
        return "whether it asks for switches or a segment is not known"
    return f"it asks for {'switches' if jobs.switches[row] else 'a segment'}, which Slurm alone sees to"


def _whole_segments(fabric: Fabric, cells: Int64s, size: int) -> int:
    """Segments of that many nodes that lie each within one cell, of the lowest level whose cells hold that many."""
    for level in range(1, int(fabric.level.max(initial=0)) + 1):
        if _holds(fabric, level) >= size:
            return int((np.bincount(cells_at_level(fabric, cells, level)) // size).sum())
    return len(cells) // size  # no block can hold one: it is not told of blocks of this size


def _holds(fabric: Fabric, level: int) -> int:
    """Nodes that a cell of this level holds: as Slurm counts them, else as many as the largest has."""
    if fabric.block_sizes:
        return fabric.block_sizes[level - 1] if level <= len(fabric.block_sizes) else 0
    place = cells_at_level(fabric, fabric.node_cell.astype(np.int64), level)
    return int(np.bincount(place).max(initial=0))

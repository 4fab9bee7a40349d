"""Whether a gang lies on the fabric as its user asked: on so few leaf switches, in segments of so many nodes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from slurmsched.model.columns import Int64s
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.topology import Fabric
from slurmsched.planning.reach import binds
from slurmsched.topology.blocks import at_level
from slurmsched.words import some


def broken(snapshot: Snapshot, row: int, nodes: Int64s) -> Iterator[tuple[float, str]]:
    """What of a running gang's --switches and --segment is not kept: the share that is, 0 to 1, and what is wrong.

    nodes: (K,) rows of its nodes. The switches and blocks are Slurm's own, or where it keeps jobs to none those of
    `topology.fabric`; nothing is told of a node on none of them, nor before Slurm has told which it has. Slurm heeds
    --switches with switches only, and no longer than the job's own patience (`--switches=N@time`); --segment with
    blocks only. Source: sbatch manual page.
    """
    jobs, topology = snapshot.jobs, snapshot.topology
    if not topology.slurm_known:
        return
    own = binds(topology, len(snapshot.nodes))
    fabric, cell = (topology.slurm_fabric, topology.slurm_cell) if own else (topology.fabric, topology.cell)
    if len(cell) != len(snapshot.nodes) or (cell[nodes] < 0).any():
        return
    cells = cell[nodes]
    most, size = int(jobs.switches[row]), int(jobs.segment_nodes[row])
    spans = len(np.unique(cells))
    if fabric.form == "tree" and 0 < most < spans:
        yield most / spans, f"it asked for at most {some(most, 'switch', 'switches')}, and is on {spans}"
    if fabric.form == "block" and 0 < size <= len(cells):
        parts, whole = len(cells) // size, _whole(fabric, cells, size)
        if whole < parts:
            told = f"{parts - whole} of its {some(parts, 'segment')} of {some(size, 'node')}"
            yield whole / parts, f"{told} {'is' if parts - whole == 1 else 'are'} not within one block"


def asked(snapshot: Snapshot, row: int) -> str:
    """Why no nodes are chosen for a waiting gang: Slurm sees to its --switches and --segment. "" = they are."""
    jobs = snapshot.jobs
    if int(jobs.nodes[row]) < 2 or not (jobs.switches[row] or jobs.segment_nodes[row]):
        return ""
    if min(jobs.switches[row], jobs.segment_nodes[row]) < 0:
        return "whether it asks for switches or a segment is not known"
    return f"it asks for {'switches' if jobs.switches[row] else 'a segment'}, which Slurm alone sees to"


def _whole(fabric: Fabric, cells: Int64s, size: int) -> int:
    """Segments of so many nodes that lie each within one cell, of the lowest level whose cells hold so many."""
    for level in range(1, int(fabric.level.max(initial=0)) + 1):
        if _holds(fabric, level) >= size:
            return int((np.bincount(at_level(fabric, cells, level)) // size).sum())
    return len(cells) // size  # no block can hold one: it is not told of blocks of this size


def _holds(fabric: Fabric, level: int) -> int:
    """Nodes that a cell of this level holds: as Slurm counts them, else as many as the largest has."""
    if fabric.block_sizes:
        return fabric.block_sizes[level - 1] if level <= len(fabric.block_sizes) else 0
    place = at_level(fabric, fabric.node_cell.astype(np.int64), level)
    return int(np.bincount(place).max(initial=0))

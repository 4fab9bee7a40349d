"""Which nodes a waiting gang gets: those that it could have now and that lie nearest each other on the fabric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slurmsched.model import Pin, SiteTopology, Snapshot, Wish
from slurmsched.model.columns import Bools
from slurmsched.model.hostlist import expand
from slurmsched.placements.fabric_cells import cells_of
from slurmsched.planning.picks import Pick
from slurmsched.planning.pin_room import Left, Share
from slurmsched.planning.reach import of_partitions, reachable, unknown, within_reach
from slurmsched.resources.free import JobRequirements
from slurmsched.topology.slurm_node import Form

_SEGMENTS_SHOWN = (25, 5)  # Slurm's release from which on it tells the segment of a pending job


def unfit(snapshot: Snapshot, row: int, wish: Wish, allowed: Bools) -> str:
    """Why no nodes are chosen for a gang whatever is free, "" = they are. allowed: (N,) nodes that it may have."""
    jobs, cell = snapshot.jobs, snapshot.topology.cell
    nodes, gpus = int(jobs.nodes[row]), int(jobs.gpus[row])
    whole = bool((snapshot.nodes.gpus[allowed] * nodes == gpus).any())
    if wish.nodes != nodes or gpus % nodes or not (wish.even or whole):
        return "how many GPUs Slurm gives it on each of its nodes is not known"
    if wish.tasks % nodes:
        return "how many of its tasks Slurm starts on each of its nodes is not known"
    if not allowed.any():
        return ""
    if len(cell) != len(allowed) or not (cell[allowed] >= 0).any():
        return "nothing is known of the switches or blocks of its nodes"
    if why := unknown(of_partitions(snapshot, jobs.partition[row]), nodes):
        return why
    shown = snapshot.picking is not None and snapshot.picking.version >= _SEGMENTS_SHOWN
    return "" if shown or snapshot.topology.slurm_fabric.form != "block" else "this Slurm does not show --segment"


def roomy(snapshot: Snapshot, row: int, wish: Wish, allowed: Bools) -> Bools:
    """Of the nodes that a gang may have, those with a share of it free now. (N,) bool.

    A share is as many GPUs, CPUs and as much memory on each. Where GPUs are not asked for by node, only nodes of which
    it gets every GPU; where it shares them with nobody, only empty ones.
    """
    nodes = snapshot.nodes
    room = allowed & JobRequirements.of(snapshot, row).fits_free(snapshot)
    if not wish.even:
        room &= nodes.gpus == int(snapshot.jobs.gpus[row]) // wish.nodes
    if wish.whole:
        room &= (nodes.gpus_used == 0) & (nodes.cpus_used == 0) & (nodes.memory_used_mib == 0)
    return room


def together(left: Left, row: int, wish: Wish, allowed: Bools, kept: Pin | None) -> list[int]:
    """The nodes of a gang that lie together best, its shares of them taken; none where they cannot all be had now.

    allowed: (N,) nodes that it may have. kept: a list of ours that it has; it stays where no other is nearer.
    """
    room = roomy(left.snapshot, row, wish, allowed)
    share, each = int(left.snapshot.jobs.gpus[row]) // wish.nodes, on_one(wish)
    picks = {n: left.picks.pick(n, each, share) if each else Pick() for n in np.flatnonzero(room).tolist()}
    found = _nearest(left, row, wish, room, picks, kept)
    for node, mask, gpus in found:
        pick = picks[node]
        left.picks.take(node, pick) if pick.mask else left.picks.shut(node)
        left.take(row, node, pick.mask or mask, gpus, len(found))
        if wish.whole:
            left.close(node)
    return [node for node, _, _ in found]


def _nearest(
    left: Left, row: int, wish: Wish, room: Bools, picks: dict[int, Pick], kept: Pin | None
) -> list[Share]:  # fmt: skip
    """Where the placement puts the gang: on the nodes of a list of ours, or where Slurm's picks are best, if they lie
    together as well as any."""
    topology, names = left.snapshot.topology, left.snapshot.nodes.name
    best = _whole(left, row, wish, room) or _whole(left, row, wish, within_reach(topology, room, wish.nodes))
    if not best:
        return []
    top = max(pick.rank for pick in picks.values())
    own = names.isin(expand(kept.nodes)) if kept else np.zeros_like(room)
    good = np.isin(np.arange(len(room)), [n for n, pick in picks.items() if pick.rank == top >= 0])
    for among in (own & room, good):
        found = _whole(left, row, wish, among)
        if found and height(topology, [node for node, _, _ in found]) <= height(topology, [n for n, _, _ in best]):
            return found
    return best


def _whole(left: Left, row: int, wish: Wish, among: Bools) -> list[Share]:
    """What the placement gives the gang of these nodes: an equal share of each, on nodes where Slurm would start it;
    else nothing."""
    if int(among.sum()) < wish.nodes:
        return []
    found, share = left.shares(row, among), int(left.snapshot.jobs.gpus[row]) // wish.nodes
    even = len(found) == wish.nodes and all(gpus == share for _, _, gpus in found)
    return found if even and reachable(left.snapshot.topology, np.array([node for node, _, _ in found])) else []


def on_one(wish: Wish) -> Wish | None:
    """What the gang asks for on each of its nodes, None where Slurm's pick by it is not known. Its request is never
    rewritten: alone is False."""
    tasks, rest = divmod(wish.tasks, wish.nodes)
    if rest or wish.form != Form.PER_NODE or wish.whole:
        return None
    return replace(wish, tasks=tasks, nodes=1, alone=False)


def height(topology: SiteTopology, nodes: Sequence[int]) -> tuple[int, int]:
    """Level of the lowest cell that holds all these nodes, and how many of the lowest cells they are in; lower is
    nearer."""
    cells = cells_of(topology, len(topology.cell))
    lowest = cells.lowest[list(nodes)]
    spans = len(np.unique(lowest[lowest >= 0])) + int((lowest < 0).sum())
    return int(cells.level[_holding(topology, nodes)]), spans


def where(topology: SiteTopology, nodes: Sequence[int]) -> str:
    """In words, for people."""
    cells = cells_of(topology, len(topology.cell))
    row, spans = int(cells.row[_holding(topology, nodes)]), height(topology, nodes)[1]
    together = f"in {topology.fabric.cell[row]}" if row >= 0 else "in no one cell of the fabric"
    return f"its {len(nodes)} nodes are free together {together}, over {spans} of the lowest cells"


def _holding(topology: SiteTopology, nodes: Sequence[int]) -> int:
    """Row of the lowest cell that holds all these nodes; the last is the whole cluster."""
    cells = cells_of(topology, len(topology.cell))
    place = np.flatnonzero(np.isin(cells.order, list(nodes)))
    holds = (cells.low <= place[0]) & (cells.high > place[-1])
    return int(np.flatnonzero(holds)[0])  # lowest level first

"""The fabric as ranges: nodes ordered so that every cell is a run of neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from slurmsched.kernels.gang_fit import near_cells
from slurmsched.model.columns import Int64s, frozen
from slurmsched.model.gpu_topology import SiteTopology


@dataclass(frozen=True, slots=True, eq=False)
class FabricCells:
    """The cells of a fabric with the nodes of each.

    order: (N,) node rows; cell c holds order[low[c]:high[c]].
    level, low, high: (C + 1,) int64, lowest level first.

    The last cell is the whole cluster, above all others.
    lowest: (N,) row of the lowest cell of each node, -1 = none.
    row: (C + 1,) row of each cell in the fabric, -1 of the last.
    place: (N,) where each node is in `order`.
    above: (C + 1,) row of the cell that holds each cell, -1 of the last.
    """

    order: Int64s
    low: Int64s
    high: Int64s
    level: Int64s
    lowest: Int64s
    row: Int64s
    place: Int64s
    above: Int64s

    def smallest(self, nodes: Int64s) -> int:
        """Row of the lowest cell that holds all these nodes; the last is the whole cluster."""
        place = self.place[nodes]
        return int(np.argmax((self.low <= place.min()) & (self.high > place.max())))


def cells_of(topology: SiteTopology, nodes: int) -> FabricCells:
    """The cells of a site with that many nodes. A site without a fabric has one cell: the cluster."""
    return _cells(topology, nodes)


def fewest_cells(cells: FabricCells, room: Int64s, cell: int, gpus: int, nodes: int, rest: int = 0) -> Int64s:
    """The room of nodes in as few of the lowest cells under `cell` as hold that many nodes with that many GPUs each.

    rest: GPUs of one more node, 0 = none. Where as few cells as the others need have no place for it, it is left out.
    room: (N,) GPUs of each node; 0 elsewhere in the result. Most such nodes first, of the last cell needed the one with
    the fewest; then the first. A node in no cell is one by itself, unless none is in any. All of the room where one
    node is enough.
    """
    if nodes < 2:
        return room
    rows = cells.order[cells.low[cell] : cells.high[cell]]
    have = room[rows]
    if not (cells.lowest[rows[have >= (rest or gpus)]] >= 0).any():
        return room
    near = np.zeros_like(room)
    near[rows] = np.where(near_cells(rows, have, cells.lowest, len(cells.low), gpus, nodes, rest), have, 0)
    return near


@lru_cache(maxsize=8)  # a site's topology is one object for as long as it holds
def _cells(topology: SiteTopology, nodes: int) -> FabricCells:
    fabric = topology.fabric
    count = len(fabric.parent)
    cell = topology.cell if len(topology.cell) == nodes else np.full(nodes, -1, np.int64)
    begin = _depth_first(fabric.parent)
    order = np.lexsort((np.arange(nodes), np.where(cell >= 0, begin[cell] if count else 0, np.inf)))
    low, high = np.full(count + 1, nodes, np.int64), np.zeros(count + 1, np.int64)
    low[count], high[count] = 0, nodes
    for place, at in enumerate(cell[order].tolist()):
        while at >= 0:
            low[at], high[at] = min(low[at], place), max(high[at], place + 1)
            at = int(fabric.parent[at])
    low = np.minimum(low, high)  # a cell without nodes
    level = np.append(fabric.level.astype(np.int64), int(fabric.level.max(initial=0)) + 1)
    by_level = np.lexsort((np.arange(count + 1), level))
    new_row = np.empty(count + 1, np.int64)
    new_row[by_level] = np.arange(count + 1)
    lowest = np.where(cell >= 0, new_row[cell], -1) if count else cell
    row = np.where(by_level < count, by_level, -1)
    above = new_row[np.append(np.where(fabric.parent >= 0, fabric.parent, count), -1)][by_level]
    above[count] = -1
    made = (order, low[by_level], high[by_level], level[by_level], lowest, row, np.argsort(order), above)
    return FabricCells(*(frozen(column, np.int64) for column in made))


def _depth_first(parent: Int64s | np.ndarray) -> Int64s:
    """Place of each cell when every cell comes before those in it and they before the next. (C,) int64."""
    children: dict[int, list[int]] = {}
    for row, above in enumerate(parent.tolist()):
        children.setdefault(above, []).append(row)
    begin, waiting, place = np.zeros(len(parent), np.int64), children.get(-1, [])[::-1], 0
    while waiting:
        row = waiting.pop()
        begin[row], place = place, place + 1
        waiting.extend(children.get(row, [])[::-1])
    return begin

"""The fabric as ranges: nodes ordered so that every cell is a run of neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from slurmsched.model.columns import Int64s, frozen
from slurmsched.model.topology import SiteTopology


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """order: (N,) node rows; cell c holds order[low[c]:high[c]]. level, low, high: (C + 1,) int64, lowest level first.

    The last cell is the whole cluster, above all others. lowest: (N,) row of the lowest cell of each node, -1 = none.
    row: (C + 1,) row of each cell in the fabric, -1 of the last.
    """

    order: Int64s
    low: Int64s
    high: Int64s
    level: Int64s
    lowest: Int64s
    row: Int64s


def cells_of(topology: SiteTopology, nodes: int) -> Cells:
    """The cells of a site with so many nodes. A site without a fabric has one cell: the cluster."""
    return _cells(topology, nodes)


def fewest_cells(cells: Cells, room: Int64s, cell: int, gpus: int, nodes: int, rest: int = 0) -> Int64s:
    """The room of nodes in as few of the lowest cells under `cell` as hold so many nodes with so many GPUs each.

    rest: GPUs of one more node, 0 = none. Where as few cells as the others need have no place for it, it is left out.
    room: (N,) GPUs of each node; 0 elsewhere in the result. Most such nodes first, of the last cell needed the one with
    the fewest; then the first. A node in no cell is one by itself, unless none is in any. All of the room where one
    node is enough.
    """
    if nodes < 2:
        return room
    rows = cells.order[cells.low[cell] : cells.high[cell]]
    rows = rows[room[rows] >= (rest or gpus)]
    if not (cells.lowest[rows] >= 0).any():
        return room
    home = np.where(cells.lowest[rows] >= 0, cells.lowest[rows], len(cells.low) + rows)
    _, at, every = np.unique(home, return_inverse=True, return_counts=True)
    count = np.bincount(at.reshape(-1), room[rows] >= gpus, len(every)).astype(np.int64)
    order = np.lexsort((-every, -count))
    full = int(np.searchsorted(np.cumsum(count[order]), nodes))  # so many cells are used up before the last
    left = nodes - int(count[order[:full]].sum())
    last = order[full:][count[order[full:]] >= left]
    if rest and (spare := every[order[:full]].sum() + every[last] > nodes).any():
        last = last[spare]
    chosen = [*order[:full].tolist(), *([int(last[np.argmin(count[last])])] if len(last) else [])]
    near = np.zeros_like(room)
    kept = rows[np.isin(at.reshape(-1), chosen)]
    near[kept] = room[kept]
    return near


@lru_cache(maxsize=8)  # a site's topology is one object for as long as it holds
def _cells(topology: SiteTopology, nodes: int) -> Cells:
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
    return Cells(*(frozen(c, np.int64) for c in (order, low[by_level], high[by_level], level[by_level], lowest, row)))


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

"""Physical cells: GPU, PCIe switch, socket and node inside a machine, the cells of the fabric above."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Int64s
from slurmsched.model.topology import GpuTopology
from slurmsched.placements.fabric_cells import Cells, cells_of
from slurmsched.placements.gpu_stock import GpuStock

INNER = ("gpu", "switch", "socket", "node")
NODE = INNER.index("node")


@dataclass(frozen=True, slots=True)
class Cell:
    """A physical cell: GPUs `mask` of each of `nodes`; above the node all their GPUs. level: 3 is the node."""

    level: int
    nodes: tuple[int, ...]
    mask: int  # of its one node; 0 above the node

    def holds(self, node: int, mask: int) -> bool:
        return node in self.nodes and (self.level > NODE or not mask & ~self.mask)


@dataclass(frozen=True, slots=True, eq=False)
class CellTree:
    """All cells of a cluster. whole: (N,) masks of every GPU of the nodes, in use or not, that are not broken."""

    whole: Int64s
    classes: tuple[tuple[tuple[int, ...], ...], ...]  # of each class, masks by level below the node
    node_class: Int64s
    fabric: Cells

    @classmethod
    def of(cls, snapshot: Snapshot, stock: GpuStock) -> CellTree:
        inner = tuple(_inner(one) for one in snapshot.topology.classes)
        fabric = cells_of(snapshot.topology, len(snapshot.nodes))
        return cls(stock.capacity, inner, stock.node_class, fabric)

    def level(self, name: str) -> int:
        """Level of "gpu", "switch", "socket", "node", or "cell1" and up of the fabric. Raises ValueError."""
        if name in INNER:
            return INNER.index(name)
        if name.startswith("cell") and name[4:].isdecimal() and int(name[4:]) > 0:
            return NODE + int(name[4:])
        raise ValueError(name)

    def inside(self, node: int, level: int) -> Iterator[Cell]:
        """Cells of one level in a node, by their lowest GPU."""
        if level == NODE:
            yield Cell(NODE, (node,), int(self.whole[node]))
            return
        row = int(self.node_class[node])
        masks = self.classes[row][level] if row >= 0 else ()
        yield from (Cell(level, (node,), mask) for mask in masks)

    def above(self, level: int) -> Iterator[Cell]:
        """Cells of one level of the fabric."""
        cells = self.fabric
        for c in np.flatnonzero((cells.level == level - NODE) & (cells.row >= 0)).tolist():
            yield Cell(level, tuple(cells.order[cells.low[c] : cells.high[c]].tolist()), 0)

    def tightest(self, node: int, free: int, gpus: int) -> int:
        """`gpus` of the free GPUs of a node from the smallest cell that has so many, as a mask; of equals the fullest,
        then the lowest. Inside, again the smallest cells."""
        for level in range(1, NODE + 1):
            fits = [cell.mask & free for cell in self.inside(node, level) if (cell.mask & free).bit_count() >= gpus]
            if fits:
                return self._filled(node, min(fits, key=lambda mask: (mask.bit_count(), mask)), gpus, level)
        return 0

    def _filled(self, node: int, free: int, gpus: int, level: int) -> int:
        """Whole lower cells first, largest fit first, so that what stays free is in one piece."""
        taken = 0
        for lower in range(level - 1, 0, -1):
            for cell in self.inside(node, lower):
                part = cell.mask & free & ~taken
                if part and part.bit_count() + taken.bit_count() <= gpus:
                    taken |= part
        for g in range(free.bit_length()):
            if taken.bit_count() < gpus and free >> g & 1:
                taken |= 1 << g
        return taken


@lru_cache(maxsize=256)
def _inner(topology: GpuTopology) -> tuple[tuple[int, ...], ...]:
    """Masks of the GPUs, switches and sockets of a class; a level that is unknown has none."""
    whole = np.flatnonzero(~topology.mig).tolist()
    levels: list[tuple[int, ...]] = [tuple(1 << g for g in whole)]
    for group in (topology.pcie_group, topology.numa):
        known = sorted({int(group[g]) for g in whole if group[g] >= 0})
        masks = [sum(1 << g for g in whole if group[g] == number) for number in known]
        levels.append(tuple(sorted(masks, key=lambda mask: mask & -mask)))
    return tuple(levels)

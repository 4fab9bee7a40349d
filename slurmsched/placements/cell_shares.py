"""Physical cells: GPU, PCIe switch, socket and node inside a machine, the cells of the fabric above."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Int64s
from slurmsched.model.gpu_masks import bit_counts
from slurmsched.model.gpu_topology import GpuTopology
from slurmsched.placements.fabric_cells import FabricCells, cells_of
from slurmsched.resources.placeable_gpus import PlaceableGpus

INNER = ("gpu", "switch", "socket", "node")
NODE = INNER.index("node")


@dataclass(frozen=True, slots=True)
class GpuCell:
    """A physical cell: GPUs `mask` of each of `nodes`; above the node all their GPUs. level: 3 is the node."""

    level: int
    nodes: tuple[int, ...]
    mask: int  # of its one node; 0 above the node

    def holds(self, node: int, mask: int) -> bool:
        """Whether all GPUs `mask` of the node lie in this cell."""
        return node in self.nodes and (self.level > NODE or not mask & ~self.mask)


@dataclass(frozen=True, slots=True, eq=False)
class CellTree:
    """All cells of a cluster. whole: (N,) masks of every GPU of the nodes, in use or not, that are not broken."""

    whole: Int64s
    classes: tuple[tuple[tuple[int, ...], ...], ...]  # of each class, masks by level below the node
    node_class: Int64s
    fabric: FabricCells

    @classmethod
    def of(cls, snapshot: Snapshot, placeable: PlaceableGpus) -> CellTree:
        """The cells of the cluster; the GPUs of `placeable` bound the masks."""
        inner = tuple(_inner(one) for one in snapshot.topology.classes)
        fabric = cells_of(snapshot.topology, len(snapshot.nodes))
        return cls(placeable.capacity, inner, placeable.node_class, fabric)

    def level(self, name: str) -> int:
        """Level of "gpu", "switch", "socket", "node", or "cell1" and up of the fabric. Raises ValueError."""
        if name in INNER:
            return INNER.index(name)
        if name.startswith("cell") and name[4:].isdecimal() and int(name[4:]) > 0:
            return NODE + int(name[4:])
        raise ValueError(name)

    def inside(self, node: int, level: int) -> Iterator[GpuCell]:
        """Cells of one level in a node, by their lowest GPU."""
        if level == NODE:
            yield GpuCell(NODE, (node,), int(self.whole[node]))
            return
        row = int(self.node_class[node])
        masks = self.classes[row][level] if row >= 0 else ()
        yield from (GpuCell(level, (node,), mask) for mask in masks)

    def above(self, level: int) -> Iterator[GpuCell]:
        """Cells of one level of the fabric."""
        cells = self.fabric
        for c in np.flatnonzero((cells.level == level - NODE) & (cells.row >= 0)).tolist():
            yield GpuCell(level, tuple(cells.order[cells.low[c] : cells.high[c]].tolist()), 0)

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


# Shares of tenants as cells.

Bound = dict[str, list[GpuCell]]  # cells in use by account
_Kind = tuple[str, int, frozenset[int]]  # of a share: account, level, nodes


class GuaranteedUse(NamedTuple):
    """GPUs of one guaranteed job on one node."""

    job_id: int
    account: str
    node: int
    mask: int


class CellShare(NamedTuple):
    """Cells of one kind in a tenant's share. nodes: rows of the nodes that count."""

    level: int
    nodes: frozenset[int]
    cells: int


class CellShares:
    """Shares by account over the cells of a cluster. Raises ValueError for a level that does not exist."""

    def __init__(self, snapshot: Snapshot, placeable: PlaceableGpus, shares: Mapping[str, Mapping[str, int]]) -> None:
        self.snapshot, self.tree = snapshot, CellTree.of(snapshot, placeable)
        self.shares = {account: self._share(share) for account, share in shares.items()}
        self.allocated = placeable.allocated

    @cached_property
    def busy(self) -> Int64s:
        """GPUs of each node that running jobs hold, as masks. (N,)."""
        found = np.zeros(len(self.snapshot.nodes), np.int64)
        np.bitwise_or.at(found, self.allocated.node, self.allocated.mask)
        return found

    @cached_property
    def open(self) -> set[int]:
        """Rows of the nodes that take jobs."""
        return set(np.flatnonzero(~self.snapshot.nodes.closed).tolist())

    def bound(self, uses: Iterable[GuaranteedUse], given_back: Collection[GuaranteedUse] = ()) -> Bound:
        """Cells in use by account. given_back: uses that count only as far as the share of their tenant holds them:
        what a tenant has beyond it goes when another needs it."""
        mine: dict[str, list[GuaranteedUse]] = {account: [] for account in self.shares}
        for use in uses:
            mine[use.account].append(use)
        return {account: self._bound(share, mine[account], given_back) for account, share in self.shares.items()}

    def new(self, account: str, bound: Bound, lowest: int) -> Iterable[GpuCell]:
        """Unused cells of the tenant's share, those first whose taking breaks up least; none that others need."""
        taken = [cell for cells in bound.values() for cell in cells]
        for level, nodes, cells in sorted(self.shares[account], key=lambda share: share.level):
            mine = sum(c.level == level and set(c.nodes) <= nodes for c in bound[account])
            if level < lowest or mine >= cells:
                continue
            free = [c for c in self._cells(level, nodes) if self._unused(c, taken)]
            order = sorted(free, key=lambda c: self._cost(c, taken))
            demand, kind = self._wants(bound), (account, level, nodes)
            can = self._had(demand, taken)
            rest = {**demand, kind: demand[kind] - 1}
            yield from (c for c in order if self._safe(level, can, self._had(rest, [*taken, c])))

    @staticmethod
    def _safe(level: int, before: Mapping[int, int], after: Mapping[int, int]) -> bool:
        """Whether, with a cell of this level taken, as many cells of each level can be had for all shares together."""
        return all(after.get(at, 0) + (at == level) >= count for at, count in before.items())

    def _wants(self, bound: Bound) -> dict[_Kind, int]:
        """The cells of every share that are not in use, by account, level and nodes."""
        return {
            (name, level, nodes): max(0, cells - sum(c.level == level and set(c.nodes) <= nodes for c in bound[name]))
            for name, shares in self.shares.items()
            for level, nodes, cells in shares
        }

    def _had(self, demand: Mapping[_Kind, int], taken: Iterable[GpuCell]) -> dict[int, int]:
        """By level, how many of the wanted cells can be had at once beside those taken.

        The highest level first, of it the wants with the fewest nodes, each in cells that have the fewest lower cells.
        """
        whole: list[int] = self.tree.whole.tolist()
        unclaimed = [mask if n in self.open else 0 for n, mask in enumerate(whole)]
        for cell in taken:
            _take_cell(unclaimed, cell)
        found: dict[int, int] = {}
        for _, level, nodes in sorted(demand, key=lambda kind: (-kind[1], len(kind[2]))):
            count = demand[_, level, nodes]
            free = [c for c in self._cells(level, nodes) if _is_unclaimed(unclaimed, whole, c)] if count else []
            for cell in sorted(free, key=lambda c: (self._lower(c), c.nodes, c.mask))[:count]:
                _take_cell(unclaimed, cell)
                found[level] = found.get(level, 0) + 1
        return found

    def _lower(self, cell: GpuCell) -> int:
        """How many cells of levels below lie in a cell: of nodes whose classes are not known there are none."""
        return sum(
            1 for n in cell.nodes for level in range(1, min(cell.level, NODE)) for _ in self.tree.inside(n, level)
        )

    def _cost(self, cell: GpuCell, taken: list[GpuCell]) -> tuple[Any, ...]:
        """What binding an unused cell does: who must go, how large it is, what it breaks up; then its place."""
        return (self._displaced(cell), len(cell.nodes), *self.breaks(cell, taken), cell.nodes, cell.mask)

    def breaks(self, cell: GpuCell, taken: list[GpuCell]) -> tuple[int, int]:
        """Highest level of the unused cells that this one is part of, and how many GPUs the lowest of them has."""
        around = [c for c in self._around(cell) if self._unused(c, taken)]
        gpus = min((int(bit_counts(self.tree.whole[list(c.nodes)]).sum()) for c in around), default=0)
        return max((c.level for c in around), default=0), gpus

    @cached_property
    def unused_around(self) -> tuple[Int64s, Int64s]:
        """What `breaks` says of GPU 0 of each node when nothing is taken. (N,), (N,)."""
        tree, fabric = self.tree, self.tree.fabric
        inner = [max((at for at in range(1, NODE) if any(mask & 1 for mask in masks[at])), default=0)
                 for masks in tree.classes]  # fmt: skip
        opened, each = ~self.snapshot.nodes.closed, bit_counts(tree.whole)
        level = np.where(tree.whole & 1, NODE, np.array([*inner, 0], np.int64)[tree.node_class])
        level = np.where(opened, level, 0)
        gpus = np.where(level > 0, each, np.iinfo(np.int64).max)
        for c in np.flatnonzero((fabric.row >= 0) & (fabric.high > fabric.low)).tolist():  # the lowest level first
            nodes = fabric.order[fabric.low[c] : fabric.high[c]]
            if opened[nodes].all():
                level[nodes], gpus[nodes] = NODE + fabric.level[c], np.minimum(gpus[nodes], each[nodes].sum())
        return level, np.where(level > 0, gpus, 0)

    def _around(self, cell: GpuCell) -> Iterable[GpuCell]:
        for level in range(cell.level + 1, NODE + 1):
            yield from (c for c in self.tree.inside(cell.nodes[0], level) if not cell.mask & ~c.mask)
        for level in range(max(cell.level, NODE) + 1, NODE + 1 + int(self.tree.fabric.level.max(initial=0))):
            yield from (c for c in self.tree.above(level) if set(cell.nodes) <= set(c.nodes))

    def _displaced(self, cell: GpuCell) -> int:
        """GPUs of the cell that running jobs hold: those of an unused cell are opportunistic or must go."""
        inside = cell.mask if cell.level <= NODE else -1
        return sum((int(self.busy[n]) & inside).bit_count() for n in cell.nodes)

    def _unused(self, cell: GpuCell, taken: list[GpuCell]) -> bool:
        if not set(cell.nodes) <= self.open:
            return False
        return not any(_overlap(cell, other) for other in taken)

    def _cells(self, level: int, nodes: frozenset[int]) -> list[GpuCell]:
        if level > NODE:
            return [cell for cell in self.tree.above(level) if cell.nodes and set(cell.nodes) <= nodes]
        return [cell for n in sorted(nodes) for cell in self.tree.inside(n, level)]

    def _bound(
        self, shares: list[CellShare], uses: list[GuaranteedUse], given_back: Collection[GuaranteedUse]
    ) -> list[GpuCell]:
        """Cells of the share that running jobs are in, largest gangs first, then as they come; what exceeds it counts
        as itself, but for what is given back."""
        bound: list[GpuCell] = []
        jobs: dict[int, list[GuaranteedUse]] = {}
        for use in uses:
            jobs.setdefault(use.job_id, []).append(use)
        for parts in sorted(jobs.values(), key=lambda parts: -len(parts)):
            loose = [use for use in parts if not any(cell.holds(use.node, use.mask) for cell in bound)]
            groups = [loose] if len(loose) > 1 else []
            for group in (*groups, *([use] for use in loose)):
                if not all(any(cell.holds(u.node, u.mask) for cell in bound) for u in group):
                    bound += self._binding(shares, bound, group)
            bound += [
                GpuCell(NODE, (use.node,), use.mask)
                for use in loose
                if use not in given_back and not any(cell.holds(use.node, use.mask) for cell in bound)
            ]
        return bound

    def _binding(self, shares: list[CellShare], bound: list[GpuCell], group: list[GuaranteedUse]) -> list[GpuCell]:
        """The smallest cell of the share that holds these GPUs; none if there is none left."""
        for level, nodes, cells in sorted(shares, key=lambda share: share.level):
            if sum(c.level == level and set(c.nodes) <= nodes for c in bound) >= cells:
                continue
            near = self.tree.above(level) if level > NODE else self.tree.inside(group[0].node, level)
            for cell in near:
                if set(cell.nodes) <= nodes and all(cell.holds(use.node, use.mask) for use in group):
                    return [cell]
        return []

    def _share(self, share: Mapping[str, int]) -> list[CellShare]:
        kinds = []
        for name, cells in share.items():
            level, _, gpu_type = name.partition(":")
            nodes = frozenset(
                n for n, text in enumerate(self.snapshot.nodes.gpu_types) if not gpu_type or f":{gpu_type}:" in text
            )
            kinds.append(CellShare(self.tree.level(level), nodes, cells))
        return kinds


def _take_cell(unclaimed: list[int], cell: GpuCell) -> None:
    """Take a cell's GPUs from those left by node."""
    for n in cell.nodes:
        unclaimed[n] &= ~cell.mask if cell.level <= NODE else 0


def _is_unclaimed(unclaimed: list[int], whole: list[int], cell: GpuCell) -> bool:
    """Whether all of a cell is left."""
    if cell.level <= NODE:
        return bool(cell.mask) and unclaimed[cell.nodes[0]] & cell.mask == cell.mask
    return all(whole[n] and unclaimed[n] == whole[n] for n in cell.nodes)


def _overlap(one: GpuCell, other: GpuCell) -> bool:
    shared = set(one.nodes) & set(other.nodes)
    within = one.level <= NODE and other.level <= NODE
    return bool(shared) and (not within or bool(one.mask & other.mask))

"""Shares of tenants as cells: which are in use, which can still be bound, and what that breaks up."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.placements.cell_tree import NODE, Cell, CellTree
from slurmsched.placements.gpu_stock import GpuStock, bit_counts

Bound = dict[str, list[Cell]]  # cells in use by account
_Kind = tuple[str, int, frozenset[int]]  # of a share: account, level, nodes


class Use(NamedTuple):
    """GPUs of one guaranteed job on one node."""

    job_id: int
    account: str
    node: int
    mask: int


class Share(NamedTuple):
    """Cells of one kind in a tenant's share. nodes: rows of the nodes that count."""

    level: int
    nodes: frozenset[int]
    cells: int


class CellShares:
    """Shares by account over the cells of a cluster. Raises ValueError for a level that does not exist."""

    def __init__(self, snapshot: Snapshot, stock: GpuStock, shares: Mapping[str, Mapping[str, int]]) -> None:
        self.snapshot, self.tree = snapshot, CellTree.of(snapshot, stock)
        self.shares = {account: self._share(share) for account, share in shares.items()}
        self.busy = np.zeros(len(snapshot.nodes), np.int64)  # masks that running jobs hold
        np.bitwise_or.at(self.busy, stock.held.node, stock.held.mask)
        self.open = set(np.flatnonzero(~snapshot.nodes.closed).tolist())

    def bound(self, uses: Iterable[Use], given_back: Collection[Use] = ()) -> Bound:
        """Cells in use by account. given_back: uses that count only as far as the share of their tenant holds them:
        what a tenant has beyond it goes when another needs it."""
        mine: dict[str, list[Use]] = {account: [] for account in self.shares}
        for use in uses:
            mine[use.account].append(use)
        return {account: self._bound(share, mine[account], given_back) for account, share in self.shares.items()}

    def new(self, account: str, bound: Bound, lowest: int) -> Iterable[Cell]:
        """Unused cells of the tenant's share, those first whose taking breaks up least; none that others need."""
        taken = [cell for cells in bound.values() for cell in cells]
        for level, nodes, cells in sorted(self.shares[account], key=lambda share: share.level):
            mine = sum(c.level == level and set(c.nodes) <= nodes for c in bound[account])
            if level < lowest or mine >= cells:
                continue
            free = [c for c in self._cells(level, nodes) if self._unused(c, taken)]
            order = sorted(free, key=lambda c: self._cost(c, taken))
            wants, kind = self._wants(bound), (account, level, nodes)
            can = self._had(wants, taken)
            rest = {**wants, kind: wants[kind] - 1}
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

    def _had(self, wants: Mapping[_Kind, int], taken: Iterable[Cell]) -> dict[int, int]:
        """By level, how many of the wanted cells can be had at once beside those taken.

        The highest level first, of it the wants with the fewest nodes, each in cells that have the fewest lower cells.
        """
        whole: list[int] = self.tree.whole.tolist()
        left = [mask if n in self.open else 0 for n, mask in enumerate(whole)]
        for cell in taken:
            _take(left, cell)
        found: dict[int, int] = {}
        for _, level, nodes in sorted(wants, key=lambda kind: (-kind[1], len(kind[2]))):
            count = wants[_, level, nodes]
            free = [c for c in self._cells(level, nodes) if _fits(left, whole, c)] if count else []
            for cell in sorted(free, key=lambda c: (self._lower(c), c.nodes, c.mask))[:count]:
                _take(left, cell)
                found[level] = found.get(level, 0) + 1
        return found

    def _lower(self, cell: Cell) -> int:
        """How many cells of levels below lie in a cell: of nodes whose classes are not known there are none."""
        return sum(
            1 for n in cell.nodes for level in range(1, min(cell.level, NODE)) for _ in self.tree.inside(n, level)
        )

    def _cost(self, cell: Cell, taken: list[Cell]) -> tuple[Any, ...]:
        """What binding an unused cell does: who must go, how large it is, what it breaks up; then its place."""
        return (self._displaced(cell), len(cell.nodes), *self.breaks(cell, taken), cell.nodes, cell.mask)

    def breaks(self, cell: Cell, taken: list[Cell]) -> tuple[int, int]:
        """Highest level of the unused cells that this one is part of, and how many GPUs the lowest of them has."""
        around = [c for c in self._around(cell) if self._unused(c, taken)]
        gpus = min((int(bit_counts(self.tree.whole[list(c.nodes)]).sum()) for c in around), default=0)
        return max((c.level for c in around), default=0), gpus

    def _around(self, cell: Cell) -> Iterable[Cell]:
        for level in range(cell.level + 1, NODE + 1):
            yield from (c for c in self.tree.inside(cell.nodes[0], level) if not cell.mask & ~c.mask)
        for level in range(max(cell.level, NODE) + 1, NODE + 1 + int(self.tree.fabric.level.max(initial=0))):
            yield from (c for c in self.tree.above(level) if set(cell.nodes) <= set(c.nodes))

    def _displaced(self, cell: Cell) -> int:
        """GPUs of the cell that running jobs hold: those of an unused cell are opportunistic or must go."""
        inside = cell.mask if cell.level <= NODE else -1
        return sum((int(self.busy[n]) & inside).bit_count() for n in cell.nodes)

    def _unused(self, cell: Cell, taken: list[Cell]) -> bool:
        if not set(cell.nodes) <= self.open:
            return False
        return not any(_overlap(cell, other) for other in taken)

    def _cells(self, level: int, nodes: frozenset[int]) -> list[Cell]:
        if level > NODE:
            return [cell for cell in self.tree.above(level) if cell.nodes and set(cell.nodes) <= nodes]
        return [cell for n in sorted(nodes) for cell in self.tree.inside(n, level)]

    def _bound(self, shares: list[Share], uses: list[Use], given_back: Collection[Use]) -> list[Cell]:
        """Cells of the share that running jobs are in, largest gangs first, then as they come; what exceeds it counts
        as itself, but for what is given back."""
        bound: list[Cell] = []
        jobs: dict[int, list[Use]] = {}
        for use in uses:
            jobs.setdefault(use.job_id, []).append(use)
        for parts in sorted(jobs.values(), key=lambda parts: -len(parts)):
            loose = [use for use in parts if not any(cell.holds(use.node, use.mask) for cell in bound)]
            groups = [loose] if len(loose) > 1 else []
            for group in (*groups, *([use] for use in loose)):
                if not all(any(cell.holds(u.node, u.mask) for cell in bound) for u in group):
                    bound += self._binding(shares, bound, group)
            bound += [
                Cell(NODE, (use.node,), use.mask)
                for use in loose
                if use not in given_back and not any(cell.holds(use.node, use.mask) for cell in bound)
            ]
        return bound

    def _binding(self, shares: list[Share], bound: list[Cell], group: list[Use]) -> list[Cell]:
        """The smallest cell of the share that holds these GPUs; none if there is none left."""
        for level, nodes, cells in sorted(shares, key=lambda share: share.level):
            if sum(c.level == level and set(c.nodes) <= nodes for c in bound) >= cells:
                continue
            near = self.tree.above(level) if level > NODE else self.tree.inside(group[0].node, level)
            for cell in near:
                if set(cell.nodes) <= nodes and all(cell.holds(use.node, use.mask) for use in group):
                    return [cell]
        return []

    def _share(self, share: Mapping[str, int]) -> list[Share]:
        kinds = []
        for name, cells in share.items():
            level, _, gpu_type = name.partition(":")
            nodes = frozenset(
                n for n, text in enumerate(self.snapshot.nodes.gpu_types) if not gpu_type or f":{gpu_type}:" in text
            )
            kinds.append(Share(self.tree.level(level), nodes, cells))
        return kinds


def _take(left: list[int], cell: Cell) -> None:
    """Take a cell's GPUs from those left by node."""
    for n in cell.nodes:
        left[n] &= ~cell.mask if cell.level <= NODE else 0


def _fits(left: list[int], whole: list[int], cell: Cell) -> bool:
    """Whether all of a cell is left."""
    if cell.level <= NODE:
        return bool(cell.mask) and left[cell.nodes[0]] & cell.mask == cell.mask
    return all(whole[n] and left[n] == whole[n] for n in cell.nodes)


def _overlap(one: Cell, other: Cell) -> bool:
    shared = set(one.nodes) & set(other.nodes)
    within = one.level <= NODE and other.level <= NODE
    return bool(shared) and (not within or bool(one.mask & other.mask))

"""Cells: every tenant finds the GPUs it would have in a cluster of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.model.columns import Bools, Int64s
from slurmsched.placements.cell_tree import NODE, Cell, CellTree
from slurmsched.placements.gang_walk import Ask, Gang, Offer, place_gangs
from slurmsched.placements.gpu_stock import GpuStock, bit_counts

Shares = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class CellPlacement:
    """Buddy cells: a tenant's share is a number of cells of each level, and each can always be had.

    virtual_clusters: account -> level -> cells, the share of each tenant. Levels: "switch", "socket", "node", and
    "cell1", "cell2" and up of the fabric; "node:v100" counts nodes with that GPU type only. Jobs of these accounts are
    guaranteed and stay within the share: first in cells that the tenant has in use, then in a new one, for which the
    most broken-up larger cell is broken up further, and none that others' shares need. Jobs of other accounts, and of
    the qos named in `opportunistic`, use what is idle, away from guaranteed ones, and make way for them.
    A running job whose share a more urgent one of its tenant took goes on while nobody needs its GPUs. Nodes that take
    no jobs are no cells. Raises ConfigError for an unknown level or a negative number.
    Source: Zhao et al. (HiveD), OSDI '20, sections 3 and 4. Not modelled: pinned cells (a partition and an account
    of their own do that) and gangs of unequal pods.
    """

    virtual_clusters: Shares = field(default_factory=dict)
    opportunistic: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for account, share in self.virtual_clusters.items():
            for name, cells in share.items():
                level, _, _ = name.partition(":")
                known = level in ("switch", "socket", "node") or (level[:4] == "cell" and level[4:].isdigit())
                if not known or level == "cell0" or cells < 0:
                    text = f"{account}: {name} = {cells} is no level (switch, socket, node, cell1, ...) and a number"
                    raise ConfigError(text, key="placement.virtual_clusters")

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold which GPUs now; every gang whole, in the ranking's order."""
        stock, guaranteed = GpuStock.of(snapshot), self._guaranteed(snapshot)
        first = np.concatenate([ranking.order[guaranteed[ranking.order]], ranking.order[~guaranteed[ranking.order]]])
        chooser = _Chooser(snapshot, stock, guaranteed, self.virtual_clusters)
        made = place_gangs(snapshot, Ranking(first), chooser.choose, stock, chooser.served)
        return _reordered(made, ranking.order)

    def _guaranteed(self, snapshot: Snapshot) -> Bools:
        jobs = snapshot.jobs
        return jobs.account.isin(self.virtual_clusters) & ~jobs.qos.isin(self.opportunistic)


class _Use(NamedTuple):
    """GPUs of one guaranteed job on one node."""

    job_id: int
    account: str
    node: int
    mask: int


class _Share(NamedTuple):
    """Cells of one kind in a tenant's share. nodes: rows of the nodes that count."""

    level: int
    nodes: frozenset[int]
    cells: int


class _Chooser:
    def __init__(self, snapshot: Snapshot, stock: GpuStock, guaranteed: Bools, shares: Shares) -> None:
        self.snapshot, self.guaranteed, self.tree = snapshot, guaranteed, CellTree.of(snapshot, stock)
        self.shares = {account: self._share(share) for account, share in shares.items()}
        held = stock.held
        self.uses = [
            self._use(int(row), int(node), int(mask))
            for row, node, mask in zip(held.row, held.node, held.mask, strict=True)
            if guaranteed[row]
        ]
        self.busy = np.zeros(len(snapshot.nodes), np.int64)  # masks that running jobs hold
        np.bitwise_or.at(self.busy, held.node, held.mask)
        self.open = set(np.flatnonzero(~snapshot.nodes.closed).tolist())

    def served(self, row: int, gang: Gang) -> None:
        """A waiting job got these GPUs."""
        if self.guaranteed[row]:
            self.uses += [self._use(row, int(n), int(mask)) for n, mask in zip(*gang, strict=True)]

    def choose(self, ask: Ask, offer: Offer) -> Gang | None:
        uses = [use for use in self.uses if use.mask & ~int(offer.free[use.node])]  # those not given back
        if not self.guaranteed[ask.row]:
            return self._opportunistic(ask, offer, uses)
        account = self.snapshot.jobs.account[ask.row]
        bound = {
            name: self._bound(share, [u for u in uses if u.account == name]) for name, share in self.shares.items()
        }
        return self._whole(ask, offer, account, bound) or self._parts(ask, offer, account, bound)

    # -- guaranteed jobs

    def _whole(self, ask: Ask, offer: Offer, account: str, bound: dict[str, list[Cell]]) -> Gang | None:
        """A gang of several nodes in one cell of the fabric that is in the tenant's share."""
        if len(ask.takes) < 2:
            return None
        mine = [cell for cell in bound[account] if cell.level > NODE]
        for cell in (*mine, *self._new(account, bound, NODE + 1)):
            gang = self._in(ask.takes, offer, self._open_to(account, offer, bound, cell))
            if gang is not None:
                return gang
        return None

    def _parts(self, ask: Ask, offer: Offer, account: str, bound: dict[str, list[Cell]]) -> Gang | None:
        """Each node of the gang in a cell of its own; those of several nodes as near each other as can be."""
        best: tuple[tuple[int, int], Gang] | None = None
        for level, region in self._regions(len(ask.takes) > 1):
            gang = self._one_by_one(ask, offer, account, {name: list(cells) for name, cells in bound.items()}, region)
            if gang is not None and (best is None or (level, self._left(region, offer)) < best[0]):
                best = ((level, self._left(region, offer)), gang)
            if best is not None and best[0][0] < level:
                break
        return best[1] if best else None

    def _one_by_one(
        self, ask: Ask, offer: Offer, account: str, bound: dict[str, list[Cell]], region: frozenset[int]
    ) -> Gang | None:
        taken: dict[int, int] = {}
        for gpus in ask.takes:
            for cell in (
                *sorted(bound[account], key=lambda c: (c.level, c.nodes, c.mask)),
                *self._new(account, bound, 0),
            ):
                open_to = {n: m for n, m in self._open_to(account, offer, bound, cell).items() if n in region}
                gang = self._in([gpus], offer, {n: m for n, m in open_to.items() if n not in taken})
                if gang is not None:
                    break
            else:
                return None
            taken[int(gang[0][0])] = int(gang[1][0])
            bound[account].append(cell)
        nodes = sorted(taken)
        return np.array(nodes, np.int64), np.array([taken[n] for n in nodes], np.int64)

    def _in(self, takes: list[int], offer: Offer, open_to: Mapping[int, int]) -> Gang | None:
        """The parts on these GPUs by node: each on the node left fullest, in its smallest cell."""
        taken: dict[int, int] = {}
        for gpus in takes:
            fits = [
                (mask.bit_count(), n)
                for n, mask in open_to.items()
                if n not in taken and min(mask.bit_count(), int(offer.room[n])) >= gpus
            ]
            if not fits:
                return None
            node = min(fits)[1]
            taken[node] = self.tree.tightest(node, open_to[node], gpus)
        nodes = sorted(taken)
        return np.array(nodes, np.int64), np.array([taken[n] for n in nodes], np.int64)

    def _open_to(self, account: str, offer: Offer, bound: dict[str, list[Cell]], cell: Cell) -> dict[int, int]:
        """Free GPUs of a cell by node, without those of other tenants' cells."""
        found = {n: int(offer.free[n]) & (cell.mask if cell.level <= NODE else -1) for n in cell.nodes if offer.room[n]}
        for name, cells in bound.items():
            for other in cells if name != account else ():
                for n in found.keys() & set(other.nodes):
                    found[n] &= ~other.mask if other.level <= NODE else 0
        return {n: mask for n, mask in found.items() if mask}

    def _new(self, account: str, bound: dict[str, list[Cell]], lowest: int) -> Iterable[Cell]:
        """Unused cells of the tenant's share, those first whose taking breaks up least; none that others need."""
        taken = [cell for cells in bound.values() for cell in cells]
        for level, nodes, cells in sorted(self.shares[account], key=lambda share: share.level):
            mine = sum(c.level == level and set(c.nodes) <= nodes for c in bound[account])
            if level < lowest or mine >= cells:
                continue
            free = [c for c in self._cells(level, nodes) if self._unused(c, taken)]
            order = sorted(free, key=lambda c: self._cost(c, taken))
            yield from (c for c in order if self._safe(c, account, bound, taken))

    def _safe(self, cell: Cell, account: str, bound: dict[str, list[Cell]], taken: list[Cell]) -> bool:
        """Whether all shares that are not in use can still be had once this cell is taken."""
        for name, shares in self.shares.items():
            for level, nodes, cells in shares:
                wanted = cells - sum(c.level == level and set(c.nodes) <= nodes for c in bound[name])
                if level <= cell.level or wanted <= 0:
                    continue
                free = [c for c in self._cells(level, nodes) if self._unused(c, taken)]
                whole = [c for c in free if not set(c.nodes) & set(cell.nodes)]
                if len(whole) < min(wanted, len(free)):
                    return False
        return True

    def _cost(self, cell: Cell, taken: list[Cell]) -> tuple[Any, ...]:
        """What binding an unused cell does: who must go, how large it is, what it breaks up; then its place."""
        return (self._displaced(cell), len(cell.nodes), *self._breaks(cell, taken), cell.nodes, cell.mask)

    def _breaks(self, cell: Cell, taken: list[Cell]) -> tuple[int, int]:
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

    def _bound(self, shares: list[_Share], uses: list[_Use]) -> list[Cell]:
        """Cells of the share that running jobs are in, largest gangs first; what exceeds it counts as itself."""
        bound: list[Cell] = []
        jobs: dict[int, list[_Use]] = {}
        for use in uses:
            jobs.setdefault(use.job_id, []).append(use)
        for _, parts in sorted(jobs.items(), key=lambda item: (-len(item[1]), item[0])):
            loose = [use for use in parts if not any(cell.holds(use.node, use.mask) for cell in bound)]
            groups = [loose] if len(loose) > 1 else []
            for group in (*groups, *([use] for use in loose)):
                if not all(any(cell.holds(u.node, u.mask) for cell in bound) for u in group):
                    bound += self._binding(shares, bound, group)
            bound += [
                Cell(NODE, (use.node,), use.mask)
                for use in loose
                if not any(cell.holds(use.node, use.mask) for cell in bound)
            ]
        return bound

    def _binding(self, shares: list[_Share], bound: list[Cell], group: list[_Use]) -> list[Cell]:
        """The smallest cell of the share that holds these GPUs; none if there is none left."""
        for level, nodes, cells in sorted(shares, key=lambda share: share.level):
            if sum(c.level == level and set(c.nodes) <= nodes for c in bound) >= cells:
                continue
            near = self.tree.above(level) if level > NODE else self.tree.inside(group[0].node, level)
            for cell in near:
                if set(cell.nodes) <= nodes and all(cell.holds(use.node, use.mask) for use in group):
                    return [cell]
        return []

    # -- opportunistic jobs

    def _opportunistic(self, ask: Ask, offer: Offer, uses: list[_Use]) -> Gang | None:
        """On nodes with the fewest GPUs of guaranteed jobs, in the tightest cell that holds the gang."""
        near = np.bincount([use.node for use in uses], [use.mask.bit_count() for use in uses], len(offer.free))
        best: tuple[tuple[float, int, int], Gang] | None = None
        for level, region in self._regions(len(ask.takes) > 1):
            gang = self._away(ask, offer, near, region)
            if gang is not None:
                key = (float(near[gang[0]].sum()), level, self._left(region, offer))
                best = (key, gang) if best is None or key < best[0] else best
        return best[1] if best else None

    def _away(self, ask: Ask, offer: Offer, near: Int64s, region: frozenset[int]) -> Gang | None:
        taken: dict[int, int] = {}
        for gpus in ask.takes:
            fits = [n for n in region if n not in taken and offer.room[n] >= gpus]
            if not fits:
                return None
            node = min(fits, key=lambda n: (near[n], self._breaks(Cell(0, (n,), 1), []), offer.room[n], n))
            taken[node] = self.tree.tightest(node, int(offer.free[node]), gpus)
        nodes = sorted(taken)
        return np.array(nodes, np.int64), np.array([taken[n] for n in nodes], np.int64)

    def _regions(self, several: bool) -> Iterable[tuple[int, frozenset[int]]]:
        """Where a gang may lie: the cells of the fabric from the lowest level up, then the cluster."""
        top = int(self.tree.fabric.level.max(initial=0))
        for level in range(NODE + 1, NODE + top) if several else ():
            yield from ((level, frozenset(cell.nodes)) for cell in self.tree.above(level))
        yield NODE + top, frozenset(range(len(self.tree.whole)))

    def _left(self, region: frozenset[int], offer: Offer) -> int:
        return int(offer.room[list(region)].sum())

    def _share(self, share: Mapping[str, int]) -> list[_Share]:
        kinds = []
        for name, cells in share.items():
            level, _, gpu_type = name.partition(":")
            nodes = frozenset(
                n for n, text in enumerate(self.snapshot.nodes.gpu_types) if not gpu_type or f":{gpu_type}:" in text
            )
            kinds.append(_Share(self.tree.level(level), nodes, cells))
        return kinds

    def _use(self, row: int, node: int, mask: int) -> _Use:
        jobs = self.snapshot.jobs
        return _Use(int(jobs.job_id[row]), jobs.account[row], node, mask)


def _overlap(one: Cell, other: Cell) -> bool:
    shared = set(one.nodes) & set(other.nodes)
    within = one.level <= NODE and other.level <= NODE
    return bool(shared) and (not within or bool(one.mask & other.mask))


def _reordered(made: Assignments, order: Int64s) -> Assignments:
    """The same assignments with their jobs in the order given."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    turn = np.argsort(place[made.rows], kind="stable")
    entries = np.concatenate([np.arange(made.first[i], made.first[i] + made.count[i]) for i in turn] or [turn])
    count = made.count[turn]
    of_place = (made.node[entries], made.gpus[entries], made.gpu_mask[entries])
    return Assignments(made.rows[turn], np.cumsum(count) - count, count, *of_place)

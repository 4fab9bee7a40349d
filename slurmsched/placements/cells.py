"""Cells: every tenant finds the GPUs it would have in a cluster of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.placements.cell_shares import Bound, CellShares, Use
from slurmsched.placements.cell_tree import NODE, Cell
from slurmsched.placements.gang_walk import Ask, Gang, Offer, place_gangs
from slurmsched.placements.gpu_stock import GpuStock

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
                known = level in ("switch", "socket", "node") or (level[:4] == "cell" and level[4:].isdecimal())
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


class _Chooser:
    def __init__(self, snapshot: Snapshot, stock: GpuStock, guaranteed: Bools, shares: Shares) -> None:
        self.snapshot, self.guaranteed = snapshot, guaranteed
        self.book = CellShares(snapshot, stock, shares)
        self.tree, held = self.book.tree, stock.held
        self.uses = [
            self._use(int(row), int(node), int(mask))
            for row, node, mask in zip(held.row, held.node, held.mask, strict=True)
            if guaranteed[row]
        ]

    def served(self, row: int, gang: Gang) -> None:
        """A waiting job got these GPUs."""
        if self.guaranteed[row]:
            self.uses += [self._use(row, int(n), int(mask)) for n, mask in zip(*gang, strict=True)]

    def choose(self, ask: Ask, offer: Offer) -> Gang | None:
        uses = [use for use in self.uses if use.mask & ~int(offer.free[use.node])]  # those not given back
        if not self.guaranteed[ask.row]:
            return self._opportunistic(ask, offer, uses)
        account, bound = self.snapshot.jobs.account[ask.row], self.book.bound(uses)
        return self._whole(ask, offer, account, bound) or self._parts(ask, offer, account, bound)

    # -- guaranteed jobs

    def _whole(self, ask: Ask, offer: Offer, account: str, bound: Bound) -> Gang | None:
        """A gang of several nodes in one cell of the fabric that is in the tenant's share."""
        if len(ask.takes) < 2:
            return None
        mine = [cell for cell in bound[account] if cell.level > NODE]
        for cell in (*mine, *self.book.new(account, bound, NODE + 1)):
            gang = self._in(ask.takes, offer, self._open_to(account, offer, bound, cell))
            if gang is not None:
                return gang
        return None

    def _parts(self, ask: Ask, offer: Offer, account: str, bound: Bound) -> Gang | None:
        """Each node of the gang in a cell of its own; those of several nodes as near each other as can be."""
        best: tuple[tuple[int, int], Gang] | None = None
        for level, region in self._regions(len(ask.takes) > 1):
            gang = self._one_by_one(ask, offer, account, {name: list(cells) for name, cells in bound.items()}, region)
            if gang is not None and (best is None or (level, self._left(region, offer)) < best[0]):
                best = ((level, self._left(region, offer)), gang)
            if best is not None and best[0][0] < level:
                break
        return best[1] if best else None

    def _one_by_one(self, ask: Ask, offer: Offer, account: str, bound: Bound, region: frozenset[int]) -> Gang | None:
        taken: dict[int, int] = {}
        for gpus in ask.takes:
            for cell in (
                *sorted(bound[account], key=lambda c: (c.level, c.nodes, c.mask)),
                *self.book.new(account, bound, 0),
            ):
                open_to = {n: m for n, m in self._open_to(account, offer, bound, cell).items() if n in region}
                gang = self._in([gpus], offer, {n: m for n, m in open_to.items() if n not in taken})
                if gang is not None:
                    break
            else:
                return None
            taken[int(gang[0][0])] = int(gang[1][0])
            bound[account] += [cell] if cell not in bound[account] else []
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

    def _open_to(self, account: str, offer: Offer, bound: Bound, cell: Cell) -> dict[int, int]:
        """Free GPUs of a cell by node, without those of other tenants' cells."""
        found = {n: int(offer.free[n]) & (cell.mask if cell.level <= NODE else -1) for n in cell.nodes if offer.room[n]}
        for name, cells in bound.items():
            for other in cells if name != account else ():
                for n in found.keys() & set(other.nodes):
                    found[n] &= ~other.mask if other.level <= NODE else 0
        return {n: mask for n, mask in found.items() if mask}

    # -- opportunistic jobs

    def _opportunistic(self, ask: Ask, offer: Offer, uses: list[Use]) -> Gang | None:
        """On nodes with the fewest GPUs of guaranteed jobs, in the tightest cell that holds the gang."""
        held = np.bincount([use.node for use in uses], [use.mask.bit_count() for use in uses], len(offer.free))
        near: Floats = held.astype(np.float64)
        best: tuple[tuple[float, int, int], Gang] | None = None
        for level, region in self._regions(len(ask.takes) > 1):
            gang = self._away(ask, offer, near, region)
            if gang is not None:
                key = (float(near[gang[0]].sum()), level, self._left(region, offer))
                best = (key, gang) if best is None or key < best[0] else best
        return best[1] if best else None

    def _away(self, ask: Ask, offer: Offer, near: Floats, region: frozenset[int]) -> Gang | None:
        taken: dict[int, int] = {}
        for gpus in ask.takes:
            fits = [n for n in region if n not in taken and offer.room[n] >= gpus]
            if not fits:
                return None
            node = min(fits, key=lambda n: (near[n], self.book.breaks(Cell(0, (n,), 1), []), offer.room[n], n))
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

    def _use(self, row: int, node: int, mask: int) -> Use:
        jobs = self.snapshot.jobs
        return Use(int(jobs.job_id[row]), jobs.account[row], node, mask)


def _reordered(made: Assignments, order: Int64s) -> Assignments:
    """The same assignments with their jobs in the order given."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    turn = np.argsort(place[made.rows], kind="stable")
    entries = np.concatenate([np.arange(made.first[i], made.first[i] + made.count[i]) for i in turn] or [turn])
    count = made.count[turn]
    of_place = (made.node[entries], made.gpus[entries], made.gpu_mask[entries])
    return Assignments(made.rows[turn], np.cumsum(count) - count, count, *of_place)

"""Cells: every tenant finds the GPUs it would have in a cluster of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.placements.cell_shares import NODE, Bound, CellShares, GpuCell, GuaranteedUse
from slurmsched.placements.fabric_cells import fewest_cells
from slurmsched.placements.gang_walk import Chooser, Gang, GangRequest, OfferedGpus, by_node, place_gangs
from slurmsched.resources.placeable_gpus import PlaceableGpus

Shares = Mapping[str, Mapping[str, int]]
_TOP = 1 << 30  # above every level


@dataclass(frozen=True, slots=True)
class CellPlacement:
    """Buddy cells: a tenant's share is a number of cells of each level, and each can always be had.

    virtual_clusters: account -> level -> cells, the share of each tenant. Levels: "switch", "socket", "node", and
    "cell1", "cell2" and up of the fabric; "node:v100" counts nodes with that GPU type only. Jobs of these accounts are
    guaranteed and stay within the share. They go first to cells that the tenant has in use, then to a new one. For a
    new one the most broken-up larger cell is broken up further, but none that the shares of others need. Jobs of other
    accounts, and of the QOS in `opportunistic`, use what is idle, away from guaranteed jobs, and make way for them. A
    running job whose share a more urgent one of its tenant took goes on while nobody needs its GPUs. Nodes that take no
    jobs are no cells. Raises ConfigError for an unknown level or a negative number.
    Source: Zhao et al. (HiveD), OSDI '20, sections 3 and 4. Not modelled: pinned cells (a partition and an account of
    their own do that) and gangs of unequal pods.
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
        placeable, guaranteed = PlaceableGpus.of(snapshot), self._guaranteed(snapshot)
        if not guaranteed.any():
            return place_gangs(snapshot, ranking, self.opportunistic_chooser(snapshot, placeable), placeable)
        first = np.concatenate([ranking.order[guaranteed[ranking.order]], ranking.order[~guaranteed[ranking.order]]])
        chooser = _CellChooser(snapshot, placeable, guaranteed, self.virtual_clusters, first)
        made = place_gangs(snapshot, Ranking(first), chooser.choose, placeable, chooser.served)
        return _reordered(made, ranking.order)

    def opportunistic_chooser(self, snapshot: Snapshot, placeable: PlaceableGpus) -> Chooser:
        """Of one gang by what is free, while no job is guaranteed."""
        nobody = np.zeros(len(snapshot.jobs), np.bool_)
        return _CellChooser(snapshot, placeable, nobody, self.virtual_clusters, np.arange(len(nobody))).choose

    def _guaranteed(self, snapshot: Snapshot) -> Bools:
        jobs = snapshot.jobs
        return jobs.account.isin(self.virtual_clusters) & ~jobs.qos.isin(self.opportunistic)


class _CellChooser:
    def __init__(
        self, snapshot: Snapshot, placeable: PlaceableGpus, guaranteed: Bools, shares: Shares, order: Int64s
    ) -> None:
        self.snapshot, self.guaranteed = snapshot, guaranteed
        self.book = CellShares(snapshot, placeable, shares)
        self.tree, allocated = self.book.tree, placeable.allocated
        mine = np.flatnonzero(guaranteed[allocated.row])
        place = _places(order, len(snapshot.jobs))[allocated.row[mine]]
        self.uses = [
            self._use(int(allocated.row[k]), int(allocated.node[k]), int(allocated.mask[k]))
            for k in mine[np.argsort(place, kind="stable")].tolist()
        ]

    def served(self, row: int, gang: Gang) -> None:
        """A waiting job got these GPUs."""
        if self.guaranteed[row]:
            self.uses += [self._use(row, int(n), int(mask)) for n, mask in zip(*gang, strict=True)]

    def choose(self, ask: GangRequest, offer: OfferedGpus) -> Gang | None:
        back = {use for use in self.uses if not use.mask & ~int(offer.free[use.node])}
        if not self.guaranteed[ask.row]:
            return self._opportunistic(ask, offer, [use for use in self.uses if use not in back])
        account = self.snapshot.jobs.account[ask.row]
        uses = [use for use in self.uses if use not in back or use.account != account]  # no other tenant makes way
        bound = self.book.bound(uses, back)
        return self._whole(ask, offer, account, bound) or self._parts(ask, offer, account, bound)

    # -- guaranteed jobs

    def _whole(self, ask: GangRequest, offer: OfferedGpus, account: str, bound: Bound) -> Gang | None:
        """A gang of several nodes in one cell of the fabric that is in the tenant's share."""
        if len(ask.takes) < 2:
            return None
        mine, held = [cell for cell in bound[account] if cell.level > NODE], _TOP
        for cell in (*mine, *self.book.new(account, bound, NODE + 1)):
            if cell not in mine and cell.level > held:
                return None  # a smaller cell is the tenant's once others make way
            open_to = self._open_to(account, offer, bound, cell)
            room = np.zeros_like(offer.room)
            room[list(open_to)] = [min(mask.bit_count(), int(offer.room[n])) for n, mask in open_to.items()]
            for among in self._fewest(ask, room, self._row(cell), frozenset(open_to)):
                gang = self._in(ask.takes, offer, {n: mask for n, mask in open_to.items() if n in among})
                if gang is not None:
                    return gang
            held = min(held, _TOP if cell in mine else self._held(ask, offer, cell, sum(ask.takes)))
        return None

    def _held(self, ask: GangRequest, offer: OfferedGpus, cell: GpuCell, gpus: int) -> int:
        """The level of a cell that could hold that many GPUs if nobody else were in it; the highest where none is."""
        inside = {
            n: int(self.tree.whole[n]) & (cell.mask if cell.level <= NODE else -1) for n in cell.nodes if ask.usable[n]
        }
        room = sum(mask.bit_count() for mask in inside.values()) >= gpus
        others = any(mask & ~int(offer.free[n]) for n, mask in inside.items())
        return cell.level if room and others else _TOP

    def _parts(self, ask: GangRequest, offer: OfferedGpus, account: str, bound: Bound) -> Gang | None:
        """Each node of the gang in a cell of its own; those of several nodes as near each other as can be."""
        best: tuple[tuple[int, int], Gang] | None = None
        room = self._room(offer, account, bound)
        for level, row, region in self._regions(len(ask.takes) > 1):
            gang = None
            for among in self._fewest(ask, room, row, region):
                mine = {name: list(cells) for name, cells in bound.items()}
                gang = self._one_by_one(ask, offer, account, mine, among) if gang is None else gang
            if gang is not None and (best is None or (level, self._left(region, offer)) < best[0]):
                best = ((level, self._left(region, offer)), gang)
            if best is not None and best[0][0] < level:
                break
        return best[1] if best else None

    def _one_by_one(
        self, ask: GangRequest, offer: OfferedGpus, account: str, bound: Bound, region: frozenset[int]
    ) -> Gang | None:
        taken: dict[int, int] = {}
        for gpus in ask.takes:
            mine, held = sorted(bound[account], key=lambda c: (c.level, c.nodes, c.mask)), _TOP
            for cell in (*mine, *self.book.new(account, bound, 0)):
                if cell not in mine and cell.level > held:
                    return None  # as in _whole
                open_to = {n: m for n, m in self._open_to(account, offer, bound, cell).items() if n in region}
                gang = self._in([gpus], offer, {n: m for n, m in open_to.items() if n not in taken})
                if gang is not None:
                    break
                held = min(held, _TOP if cell in mine else self._held(ask, offer, cell, gpus))
            else:
                return None
            taken[int(gang[0][0])] = int(gang[1][0])
            bound[account] += [cell] if cell not in bound[account] else []
        nodes = sorted(taken)
        return np.array(nodes, np.int64), np.array([taken[n] for n in nodes], np.int64)

    def _in(self, takes: list[int], offer: OfferedGpus, open_to: Mapping[int, int]) -> Gang | None:
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

    def _open_to(self, account: str, offer: OfferedGpus, bound: Bound, cell: GpuCell) -> dict[int, int]:
        """Free GPUs of a cell by node, without those of other tenants' cells."""
        found = {n: int(offer.free[n]) & (cell.mask if cell.level <= NODE else -1) for n in cell.nodes if offer.room[n]}
        for name, cells in bound.items():
            for other in cells if name != account else ():
                for n in found.keys() & set(other.nodes):
                    found[n] &= ~other.mask if other.level <= NODE else 0
        return {n: mask for n, mask in found.items() if mask}

    # -- opportunistic jobs

    def _opportunistic(self, ask: GangRequest, offer: OfferedGpus, uses: list[GuaranteedUse]) -> Gang | None:
        """On nodes with the fewest GPUs of guaranteed jobs, in the tightest cell that holds the gang."""
        held = np.bincount([use.node for use in uses], [use.mask.bit_count() for use in uses], len(offer.free))
        near: Floats = held.astype(np.float64)
        best: tuple[tuple[float, int, int], Gang] | None = None
        if len(ask.takes) == 1:
            return self._away(ask, offer, near, np.arange(len(near)))
        for level, row, region in self._regions(True):
            gang = None
            for among in self._fewest(ask, offer.room, row, region):
                rows = np.array(sorted(among), np.int64)
                gang = self._away(ask, offer, near, rows) if gang is None else gang
            if gang is not None:
                key = (float(near[gang[0]].sum()), level, self._left(region, offer))
                best = (key, gang) if best is None or key < best[0] else best
        return best[1] if best else None

    def _away(self, ask: GangRequest, offer: OfferedGpus, near: Floats, rows: Int64s) -> Gang | None:
        level, gpus = self.book.unused_around
        order = rows[np.lexsort((offer.room[rows], gpus[rows], level[rows], near[rows]))]
        return by_node(ask, offer, order, self.tree.tightest)

    def _regions(self, several: bool) -> Iterable[tuple[int, int, frozenset[int]]]:
        """Level, row, nodes of where a gang may lie: the fabric's cells from the lowest level up, then the cluster."""
        top, last = int(self.tree.fabric.level.max(initial=0)), len(self.tree.fabric.low) - 1
        for level in range(NODE + 1, NODE + top) if several else ():
            yield from ((level, self._row(cell), frozenset(cell.nodes)) for cell in self.tree.above(level))
        yield NODE + top, last, frozenset(range(len(self.tree.whole)))

    def _row(self, cell: GpuCell) -> int:
        """The row of a cell of the fabric."""
        fabric = self.tree.fabric
        spans = zip(fabric.level.tolist(), fabric.low.tolist(), fabric.high.tolist(), strict=True)
        return next(c for c, (level, low, high) in enumerate(spans)
                    if level == cell.level - NODE and tuple(fabric.order[low:high].tolist()) == cell.nodes)  # fmt: skip

    def _fewest(self, ask: GangRequest, room: Int64s, row: int, region: frozenset[int]) -> Iterable[frozenset[int]]:
        """Of a region the nodes in the fewest of its lowest cells that have room for the gang; then all of it."""
        if len(ask.takes) > 1:
            found = fewest_cells(self.tree.fabric, room, row, ask.part, ask.parts, ask.rest)
            near = region & frozenset(np.flatnonzero(found).tolist())
            yield near
            for n in sorted((n for n in region - near if room[n] >= ask.rest > 0), key=lambda n: room[n])[:1]:
                yield near | {n}  # the rest is one cell further
        yield region

    def _room(self, offer: OfferedGpus, account: str, bound: Bound) -> Int64s:
        """GPUs of each node that no other tenant's cells hold, as many as the job can have there. (N,)."""
        every = GpuCell(NODE + 1, tuple(range(len(offer.free))), 0)
        room = np.zeros_like(offer.room)
        for n, mask in self._open_to(account, offer, bound, every).items():
            room[n] = min(mask.bit_count(), int(offer.room[n]))
        return room

    def _left(self, region: frozenset[int], offer: OfferedGpus) -> int:
        return int(offer.room[list(region)].sum())

    def _use(self, row: int, node: int, mask: int) -> GuaranteedUse:
        jobs = self.snapshot.jobs
        return GuaranteedUse(int(jobs.job_id[row]), jobs.account[row], node, mask)


def _places(order: Int64s, rows: int) -> Int64s:
    """Place of each row in the order; behind all others where it is not in it. (N,)."""
    place = np.full(rows, len(order), np.int64)
    place[order] = np.arange(len(order))
    return place


def _reordered(made: Assignments, order: Int64s) -> Assignments:
    """The same assignments with their jobs in the order given."""
    place = _places(order, int(order.max(initial=-1)) + 1)
    turn = np.argsort(place[made.rows], kind="stable")
    count = made.count[turn]
    first = np.cumsum(count) - count
    entries = np.repeat(made.first[turn] - first, count) + np.arange(count.sum())
    of_place = (made.node[entries], made.gpus[entries], made.gpu_mask[entries])
    return Assignments(made.rows[turn], first, count, *of_place)

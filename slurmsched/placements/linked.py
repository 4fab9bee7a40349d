"""Linked: the GPUs that talk fastest, in the tightest cell of the fabric."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurmsched.errors import ConfigError
from slurmsched.kernels.gang_fit import SetTables, best_nodes, tightest_cell
from slurmsched.kernels.gang_series import CellRanges, FreeCluster, GangSeries, serve_series
from slurmsched.kernels.ranking_walks import FreeSets
from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.gpu_masks import lowest_bits
from slurmsched.model.gpu_topology import GpuTopology, SiteTopology
from slurmsched.placements.fabric_cells import FabricCells, cells_of, fewest_cells
from slurmsched.placements.gang_walk import Chooser, Gang, GangRequest, OfferedGpus, place_gangs
from slurmsched.resources.gpu_sets import TABLE_GPUS, Objective, large_set, set_table
from slurmsched.resources.placeable_gpus import PlaceableGpus


@dataclass(frozen=True, slots=True)
class Linked:
    """The best set of free GPUs for each job, on the node and in the cell where it fits most tightly.

    On one node these count, in this order:
    1. no GPU off the fabric; 2. the heaviest smallest link of the ring; 3. the largest sum of links;
    4. the fullest node afterwards; 5. the fullest cell; 6. the least harm to what stays free.

    For a gang of several nodes these count: the lowest cell of the fabric that holds it, the fullest such cell, and in
    it the fewest of the lowest cells. In these the nodes are chosen in the same way. Jobs of one GPU fill nodes and
    cells that are in use, so that whole ones stay free. Nodes of unknown wiring count as without links.
    objective: "smallest" link of the ring first, or the "sum" of its links alone, as MAPA counts.
    Raises ConfigError for another objective. Source: ours; best sets are proven by tests against all sets and rings.
    """

    objective: Objective = "smallest"

    def __post_init__(self) -> None:
        if self.objective not in ("smallest", "sum"):
            raise ConfigError(f"must be smallest or sum, got {self.objective!r}", key="placement.objective")

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold which GPUs now; every gang whole."""
        placeable, tables = PlaceableGpus.of(snapshot), ClassTables.of(snapshot.topology, self.objective)
        chooser = _Chooser.of(tables, cells_of(snapshot.topology, len(snapshot.nodes)), placeable.node_class)
        series = chooser.series if chooser.all_tabled else None
        return place_gangs(snapshot, ranking, chooser.choose, placeable, series=series)

    def chooser(self, snapshot: Snapshot, placeable: PlaceableGpus) -> Chooser:
        """Of one gang by what is free: see GangPlacement."""
        tables = ClassTables.of(snapshot.topology, self.objective)
        return _Chooser.of(tables, cells_of(snapshot.topology, len(snapshot.nodes)), placeable.node_class).choose


@dataclass(frozen=True, slots=True, eq=False)
class ClassTables:
    """The set tables of all classes of a site, end to end (see gang_fit.best_nodes)."""

    classes: tuple[GpuTopology, ...]
    tabled: NDArray[np.bool_]  # (K,) classes that have a table
    best_at: Int64s
    width: Int64s
    best: NDArray[Any]
    set_at: Int64s
    rank: Int64s  # of sets of all classes by quality, equal where that is
    worth: Int64s

    @classmethod
    def of(cls, topology: SiteTopology, objective: Objective) -> ClassTables:
        """The tables of all classes of a site; sets are ranked by `objective`."""
        return _tables(topology.classes, objective)

    def take(self, node_class: int, free: int, gpus: int) -> int:
        """The best `gpus` of a free set as a mask; the lowest ones where nothing is known."""
        if node_class < 0:
            return lowest_bits(free, gpus)
        if not self.tabled[node_class]:
            return large_set(self.classes[node_class], free, gpus)
        return int(self.best[self.best_at[node_class] + free * self.width[node_class] + gpus])


@lru_cache(maxsize=16)
def _tables(classes: tuple[GpuTopology, ...], objective: Objective) -> ClassTables:
    tabled = np.array([one.known and one.gpus <= TABLE_GPUS for one in classes], np.bool_)
    made = [set_table(one, objective) for one, has in zip(classes, tabled, strict=True) if has]
    widths = np.array([one.gpus + 1 for one in classes], np.int64)
    sets = np.array([1 << one.gpus if has else 0 for one, has in zip(classes, tabled, strict=True)], np.int64)
    set_at, best_at = np.cumsum(sets) - sets, np.cumsum(sets * widths) - sets * widths
    best = np.concatenate([t.best.ravel() for t in made] or [np.zeros(0, np.uint16)])
    quality = np.concatenate([t.quality for t in made] or [np.zeros((0, 3), np.int64)])
    worth = np.concatenate([t.worth for t in made] or [np.zeros(0, np.int64)])
    rank = np.unique(quality, axis=0, return_inverse=True)[1].astype(np.int64).reshape(-1)
    return ClassTables(classes, tabled, best_at, widths, best, set_at, rank, worth)


@dataclass(frozen=True, slots=True, eq=False)
class _Chooser:
    tables: ClassTables
    cells: FabricCells
    node_class: Int64s  # (N,)
    tabled: Int64s  # (N,) node_class, -1 also for classes without a table

    @classmethod
    def of(cls, tables: ClassTables, cells: FabricCells, node_class: Int64s) -> _Chooser:
        has = np.append(tables.tabled, False)  # -1 is the last
        return cls(tables, cells, node_class, np.where(has[node_class], node_class, -1))

    @property
    def all_tabled(self) -> bool:
        """Whether no node is of a known class without a table."""
        return bool((self.tabled == self.node_class).all())

    def series(
        self, asks: GangSeries, free: FreeSets, usable: Bools, unused: int, stops: bool
    ) -> tuple[int, Int64s, Int64s, Int64s]:
        """As `choose` for one gang after another: see gang_series.serve_series. Takes their GPUs from `free`."""
        c = self.cells
        cluster = FreeCluster(free.gpus, free.cpus, free.memory_mib, usable, self.tabled)
        cells = CellRanges(c.order, c.low, c.high, c.level, c.lowest, c.above, c.place)
        found: tuple[int, Int64s, Int64s, Int64s] = serve_series(asks, cluster, cells, self._set_tables, unused, stops)
        return found

    @property
    def _set_tables(self) -> SetTables:
        t = self.tables
        return SetTables(t.best_at, t.width, t.best, t.set_at, t.rank, t.worth)

    def choose(self, ask: GangRequest, offer: OfferedGpus) -> Gang | None:
        cells, cell = self.cells, len(self.cells.low) - 1
        if ask.gpus > int(offer.room.sum()):
            return None
        if ask.parts + (ask.rest > 0) > 1:
            shape = (ask.part, ask.parts, ask.rest)
            cell = int(tightest_cell(offer.room, cells.order, cells.low, cells.high, cells.level, *shape))
        return self._in_cell(ask, offer, cell) if cell >= 0 else None

    def _in_cell(self, ask: GangRequest, offer: OfferedGpus, cell: int) -> Gang | None:
        near = fewest_cells(self.cells, offer.room, cell, ask.part, ask.parts, ask.rest)
        nodes = self._nodes(offer, near, cell, ask.part, ask.parts)
        if len(nodes) < ask.parts:
            return None
        sizes = [ask.part] * ask.parts
        if ask.rest:
            last = self._beside(nodes, offer, near, cell, ask.rest)
            if not len(last):
                return None
            nodes, sizes = np.append(nodes, last), [*sizes, ask.rest]
        masks = [
            self.tables.take(int(self.node_class[n]), int(offer.free[n]), gpus)
            for n, gpus in zip(nodes.tolist(), sizes, strict=True)
        ]
        turn = np.argsort(nodes)
        return nodes[turn], np.array(masks, np.int64)[turn]

    def _beside(self, nodes: Int64s, offer: OfferedGpus, near: Int64s, cell: int, gpus: int) -> Int64s:
        """One more node, of those near if one has room, else of the cell. Empty if none has."""
        for room in (near.copy(), offer.room.copy()):
            room[nodes] = 0
            if len(found := self._nodes(offer, room, cell, gpus, 1)):
                return found
        return np.zeros(0, np.int64)

    def _nodes(self, offer: OfferedGpus, room: Int64s, cell: int, gpus: int, count: int) -> Int64s:
        if count == 0:
            return np.zeros(0, np.int64)
        c, tables = self.cells, self._set_tables
        among = c.order[c.low[cell] : c.high[cell]]
        found: Int64s = best_nodes(offer.free, room, among, c.lowest, len(c.low), self.tabled, tables, gpus, count)
        return found

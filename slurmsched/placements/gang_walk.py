"""The walk of placements that choose GPU sets: jobs in their order, each gang whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from slurmsched.kernels.gang_fit import part_of
from slurmsched.kernels.gang_series import GangSeries
from slurmsched.kernels.ranking_walks import FreeSets, HeldSets, PlacedGangs, fewest_displaced, next_fitting, without
from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s, made_read_only
from slurmsched.model.gpu_masks import bit_counts
from slurmsched.model.hints import parse_hints
from slurmsched.resources.eligibility import node_pools
from slurmsched.resources.placeable_gpus import PlaceableGpus
from slurmsched.resources.startable_jobs import startable

FEW_GANGS = 8  # fewer are served one by one: to look at all nodes once costs more than that


@dataclass(frozen=True, slots=True, eq=False)
class GangRequest:
    """What one waiting job asks for: `parts` nodes with `part` GPUs each, and one with `rest` GPUs if it is not 0.

    row: of the jobs table.
    usable: (N,) bool, nodes it may go to.
    """

    row: int
    job_id: int
    gpus: int
    part: int
    parts: int
    rest: int
    cpus_per_gpu: float
    mib_per_gpu: float
    usable: Bools

    @classmethod
    def of(
        cls, row: int, job_id: int, gpus: int, nodes: int, beside: tuple[float, float], usable: Bools, capacity: Int64s
    ) -> GangRequest | None:
        """None for a job that asks for no GPU, or for which no node has any.

        nodes: how many it asks for. beside: its CPUs and memory. capacity: (N,) GPUs of each node.
        """
        open_to = capacity * usable
        size = int(open_to.max(initial=0))
        if gpus <= 0 or size == 0:
            return None
        if nodes > 1 and gpus % nodes == 0 and not holds_equal_parts(gpus, nodes, open_to):
            nodes = 1
        part: int = part_of(gpus, nodes, size)
        shape = (min(part, gpus), gpus // part, gpus % part)
        return cls(row, job_id, gpus, *shape, beside[0] / gpus, beside[1] / gpus, usable)

    @property
    def takes(self) -> list[int]:
        """GPUs of each node of the gang."""
        return [self.part] * self.parts + [self.rest] * (self.rest > 0)


@dataclass(frozen=True, slots=True, eq=False)
class OfferedGpus:
    """GPUs a job may take. free: (N,) int64 masks. room: (N,) int64 how many of them it can have, see headroom."""

    free: Int64s
    room: Int64s


Gang = tuple[Int64s, Int64s]  # node rows, and the GPU mask on each; no node twice
Chooser = Callable[[GangRequest, OfferedGpus], Gang | None]  # None: it does not fit
# Gangs one after another, on what is free, which it changes. GPUs that may be freed; whether to end at the first that
# does not fit. Returns as gang_series.serve_series.
SeriesChooser = Callable[[GangSeries, FreeSets, Bools, int, bool], tuple[int, Int64s, Int64s, Int64s]]


def place_gangs(
    snapshot: Snapshot,
    ranking: Ranking,
    choose: Chooser,
    placeable: PlaceableGpus | None = None,
    served: Callable[[int, Gang], None] = lambda row, gang: None,
    series: SeriesChooser | None = None,
    *,
    whole_parts: bool = True,
) -> Assignments:
    """Which jobs of the ranking should hold which GPUs now; every gang whole, no GPU twice.

    A running job stays where it is, or goes if a more urgent one got its GPUs. A waiting job takes idle GPUs if it fits
    there, else those of as few running jobs as do, the least urgent first. gpu_mask is 0 on nodes of which Slurm does
    not show which GPUs are held.
    placeable: PlaceableGpus.of(snapshot), if it is at hand. served: called with each waiting job that got GPUs.
    series: chooses for many at once what `choose` would one by one; then `served` is not called.
    whole_parts: `choose` puts each part of a gang on a node of its own. It is not asked where that cannot be.
    """
    placeable = PlaceableGpus.of(snapshot) if placeable is None else placeable
    rows = ranking.order[((placeable.allocated.count > 0) | startable(snapshot))[ranking.order]]
    walk = _Walk(snapshot, placeable, rows, choose, served, series, whole_parts)
    walk.run()
    return walk.assignments()


class _Walk:
    def __init__(
        self,
        snapshot: Snapshot,
        placeable: PlaceableGpus,
        rows: Int64s,
        choose: Chooser,
        served: Callable[[int, Gang], None],
        series: SeriesChooser | None,
        whole_parts: bool,
    ) -> None:
        self.placeable, self.rows = placeable, rows
        self.choose, self.served, self.series, self.whole_parts = choose, served, series, whole_parts
        self.requests = _GangRequests(snapshot)
        self.asks = self.requests.series(rows)
        allocated = placeable.allocated
        self.held = HeldSets(allocated.first, allocated.count, allocated.node, allocated.mask, allocated.cpus,
                             allocated.memory_mib)  # fmt: skip
        self.free = FreeSets(placeable.capacity.copy(), placeable.cpus.copy(), placeable.memory_mib.copy())
        self.running = np.flatnonzero(allocated.count[rows] > 0)  # their places in `rows`
        self.displaced = False
        jobs, entries = len(rows), len(allocated.node) + int(bit_counts(placeable.capacity).sum())
        columns = [np.empty(size, np.int64) for size in (jobs, jobs, entries, entries)]
        self.placed = PlacedGangs._make([*columns, np.zeros(2, np.int64)])

    def run(self) -> None:
        """Give GPUs to all that get some."""
        place = 0
        while (place := self._next(place)) < len(self.rows):
            passed = int(np.searchsorted(self.running, place))
            end = int(self.running[passed]) if passed < len(self.running) else len(self.rows)
            later = self.rows[self.running[passed:][::-1]]  # running jobs, not come to, least urgent first
            if self.series is not None and end - place >= FEW_GANGS:
                place += self._serve_many(place, end, later, self.series)
            if place < end:
                self._serve(int(self.rows[place]), later)
                place += 1

    def _next(self, place: int) -> int:
        """The next waiting job for which there may be GPUs. Running jobs before it stay or go."""
        found: int = next_fitting(
            self.rows, place, self.asks, self.held, self.free, self.placed, self.whole_parts, self.displaced
        )
        return found

    def _serve_many(self, place: int, end: int, later: Int64s, series: SeriesChooser) -> int:
        """Serve waiting jobs up to the first that fits only if running jobs go. Returns how many they are."""
        asks = GangSeries._make(column[place:end] for column in self.asks)
        idle = FreeSets(*without(self.free, self.held, later)) if len(later) else self.free
        unused = int(bit_counts(self.free.gpus).sum())
        looked, count, node, mask = series(asks, idle, self.requests.usable, unused, bool(len(later)))
        got = count > 0
        if idle is not self.free:
            cpus, mib = (np.repeat(each, count) for each in (asks.cpus_per_gpu, asks.mib_per_gpu))
            self._take(node, mask, cpus, mib)
        self._add(self.rows[place:end][got], count[got], node, mask)
        return looked

    def _serve(self, row: int, later: Int64s) -> None:
        """This waiting job gets GPUs if it finds some."""
        ask = self.requests.of(row)
        gang = None if ask is None else self._gang(ask, later)
        if ask is not None and gang is not None:
            self._take(*gang, ask.cpus_per_gpu, ask.mib_per_gpu)
            self._add(row, len(gang[0]), *gang)
            self.served(row, gang)

    def _gang(self, ask: GangRequest, later: Int64s) -> Gang | None:
        """On idle GPUs, else with those of the fewest least urgent running jobs that make it fit."""
        low, found = self._chosen(ask, later, 0)
        high = low
        if found is None and low < len(later):
            high, found = self._chosen(ask, later, len(later))
        while found is not None and high - low > 1:  # does not fit with low, fits with high
            middle = (low + high) // 2
            gone, gang = self._chosen(ask, later, middle)
            if gang is None or gone > middle:
                low = middle
            else:
                high, found = middle, gang
        self.displaced = self.displaced or (found is not None and high > 0)
        return found

    def _chosen(self, ask: GangRequest, later: Int64s, displaced: int) -> tuple[int, Gang | None]:
        """The gang when so many running jobs go, or as many more as it needs to find room; and how many go then."""
        shape, beside = (ask.parts, ask.part, ask.rest), (ask.cpus_per_gpu, ask.mib_per_gpu)
        gone, free, room = fewest_displaced(
            self.free, self.held, later, displaced, ask.usable, shape, beside, self.whole_parts
        )
        return gone, self.choose(ask, OfferedGpus(free, room)) if gone <= len(later) else None

    def _take(self, node: Int64s, mask: Int64s, cpus_per_gpu: Floats | float, mib_per_gpu: Floats | float) -> None:
        """These GPUs, and CPUs and memory with each, are no longer free."""
        share = bit_counts(mask)
        np.bitwise_and.at(self.free.gpus, node, ~mask)
        np.subtract.at(self.free.cpus, node, cpus_per_gpu * share)
        np.subtract.at(self.free.memory_mib, node, mib_per_gpu * share)

    def _add(self, rows: Int64s | int, count: Int64s | int, node: Int64s, mask: Int64s) -> None:
        """These jobs were given GPUs: how many nodes each has, and one after another the nodes and masks of all."""
        placed = self.placed
        jobs, nodes = placed.written.tolist()
        placed.written[:] = last, end = jobs + np.size(rows), nodes + len(node)
        placed.rows[jobs:last], placed.nodes[jobs:last] = rows, count
        placed.node[nodes:end], placed.mask[nodes:end] = node, mask

    def assignments(self) -> Assignments:
        """All jobs that were given GPUs, in the order of the walk."""
        jobs, nodes = self.placed.written.tolist()
        rows, count = self.placed.rows[:jobs], self.placed.nodes[:jobs]
        node, mask = self.placed.node[:nodes], self.placed.mask[:nodes]
        shown = np.where(self.placeable.blind[node], 0, mask)
        return Assignments(*map(made_read_only, (rows, np.cumsum(count) - count, count, node, bit_counts(mask), shown)))


class _GangRequests:
    """Requests of waiting jobs in the terms of a walk."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.jobs = snapshot.jobs
        self.pool, self.usable = node_pools(snapshot)
        self.size = np.where(self.usable, snapshot.nodes.gpus, 0).max(axis=1, initial=0)
        gpus = self.jobs.gpus.astype(np.int64)
        self.nodes = equal_parts(gpus, self.jobs.nodes, self.pool, self.usable, snapshot.nodes.gpus)

    def series(self, rows: Int64s) -> GangSeries:
        """Those of these rows; without GPUs for a job that `of` has None for."""
        pool, gpus = self.pool[rows], self.jobs.gpus[rows].astype(np.int64)
        size = self.size[pool].astype(np.int64)
        least = np.maximum(gpus, 1)
        beside = (self.jobs.cpus[rows] / least, self.jobs.memory_mib[rows] / least)
        return GangSeries(np.where(size > 0, np.maximum(gpus, 0), 0), self.nodes[rows], size, pool, *beside)

    def of(self, row: int) -> GangRequest | None:
        """None for a job that asks for no GPU, or for which no node has any."""
        jobs, pool = self.jobs, self.pool[row]
        gpus, nodes, size = int(jobs.gpus[row]), int(self.nodes[row]), int(self.size[pool])
        if gpus <= 0 or size == 0:
            return None
        part: int = part_of(gpus, nodes, size)
        shape = (min(part, gpus), gpus // part, gpus % part)
        beside = (float(jobs.cpus[row]) / gpus, float(jobs.memory_mib[row]) / gpus)
        return GangRequest(row, int(jobs.job_id[row]), gpus, *shape, *beside, self.usable[pool])


def by_node(ask: GangRequest, offer: OfferedGpus, order: Int64s, pick: Callable[[int, int, int], int]) -> Gang | None:
    """The gang on the first nodes of an order that hold its parts; None if they do not all fit.

    order: node rows, best first. pick: (node row, free mask, GPUs) -> mask of the GPUs taken.
    """
    order = order[offer.room[order] > 0]
    taken: list[tuple[int, int]] = []
    for gpus in ask.takes:
        fits = [n for n in order[offer.room[order] >= gpus].tolist() if n not in {node for node, _ in taken}]
        if not fits:
            return None
        taken.append((fits[0], pick(fits[0], int(offer.free[fits[0]]), gpus)))
    taken.sort()
    return np.array([node for node, _ in taken], np.int64), np.array([mask for _, mask in taken], np.int64)


# Which jobs care where their GPUs are.


def sensitive_to_topology(snapshot: Snapshot, row: int, insensitive: Sequence[str] = ()) -> bool:
    """Whether the job of this row gains from near GPUs: not with the hint `topo=any`, with another `topo` hint always,
    and without one unless its partitions are among the insensitive ones."""
    hint = parse_hints(snapshot.jobs.comment[row]).topo
    if hint is not None:
        return hint != "any"
    return set(snapshot.jobs.partition[row].split(",")).isdisjoint(insensitive)


def equal_parts(gpus: Int64s, nodes: Int32s | Int64s, pool: Int64s, usable: Bools, capacity: Int32s | Int64s) -> Int64s:
    """Over how many nodes each job is shared out: those it asks for; 1, which is whole nodes and a rest, where it needs
    them all and too few nodes could ever hold an equal part. (J,) int64.

    gpus, nodes: (J,) asked for.
    pool, usable: see node_pools.
    capacity: (N,) GPUs of each node.
    """
    made = nodes.astype(np.int64)
    several = np.flatnonzero((nodes > 1) & (gpus % np.maximum(nodes, 1) == 0))
    if not len(several):
        return made
    asked, place = np.unique(np.stack([gpus, nodes, pool])[:, several], axis=1, return_inverse=True)
    for kind, (all_, count, row) in enumerate(asked.T.tolist()):
        if not holds_equal_parts(all_, count, capacity[usable[row]]):
            made[several[place.reshape(-1) == kind]] = 1
    return made


def holds_equal_parts(gpus: int, nodes: int, capacity: Int32s | Int64s) -> bool:
    """Whether a gang whose GPUs can be shared out equally gets equal parts: see equal_parts. capacity: of its nodes."""
    needed = -(-gpus // max(int(capacity.max(initial=0)), 1))
    return nodes != needed or int((capacity >= gpus // nodes).sum()) >= nodes

"""The walk of placements that choose GPU sets: jobs in their order, each gang whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from slurmsched.kernels.gang_fit import headroom, part_of
from slurmsched.kernels.gang_series import GangSeries
from slurmsched.kernels.ranking_walks import FreeSets, HeldSets, keep_sets
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
SeriesChooser = Callable[[GangSeries, "FreeNow", Bools, int, bool], tuple[int, Int64s, Int64s, Int64s]]


@dataclass(slots=True, eq=False)
class FreeNow:
    """What is not given yet: masks, CPUs and memory of each node. (N,) each, writable."""

    gpus: Int64s
    cpus: Floats
    memory_mib: Floats

    def without(self, placeable: PlaceableGpus, entries: Int64s) -> FreeNow:
        """Less what these entries of placeable.allocated hold."""
        allocated, gpus, cpus, memory_mib = (
            placeable.allocated,
            self.gpus.copy(),
            self.cpus.copy(),
            self.memory_mib.copy(),
        )
        np.bitwise_and.at(gpus, allocated.node[entries], ~allocated.mask[entries])
        np.subtract.at(cpus, allocated.node[entries], allocated.cpus[entries])
        np.subtract.at(memory_mib, allocated.node[entries], allocated.memory_mib[entries])
        return FreeNow(gpus, cpus, memory_mib)

    def take(self, node: Int64s, mask: Int64s, cpus: Floats, memory_mib: Floats) -> None:
        self.gpus[node] &= ~mask
        self.cpus[node] -= cpus
        self.memory_mib[node] -= memory_mib

    def take_many(self, node: Int64s, mask: Int64s, cpus: Floats, memory_mib: Floats) -> None:
        """As `take` for several jobs, whose nodes may be the same, one after another."""
        np.bitwise_and.at(self.gpus, node, ~mask)
        np.subtract.at(self.cpus, node, cpus)
        np.subtract.at(self.memory_mib, node, memory_mib)


def place_gangs(
    snapshot: Snapshot,
    ranking: Ranking,
    choose: Chooser,
    placeable: PlaceableGpus | None = None,
    served: Callable[[int, Gang], None] = lambda row, gang: None,
    series: SeriesChooser | None = None,
) -> Assignments:
    """Which jobs of the ranking should hold which GPUs now; every gang whole, no GPU twice.

    A running job stays where it is, or goes if a more urgent one got its GPUs. A waiting job takes idle GPUs if it fits
    there, else those of as few running jobs as do, the least urgent first. gpu_mask is 0 on nodes of which Slurm does
    not show which GPUs are held.
    placeable: PlaceableGpus.of(snapshot), if it is at hand. served: called with each waiting job that got GPUs.
    series: chooses for many at once what `choose` would one by one; then `served` is not called.
    """
    placeable = PlaceableGpus.of(snapshot) if placeable is None else placeable
    holds = placeable.allocated.count > 0
    rows = ranking.order[(holds | startable(snapshot))[ranking.order]]
    walk = _Walk(snapshot, placeable, rows, choose, served, series)
    for at, stretch in enumerate(np.split(rows, np.flatnonzero(np.diff(holds[rows])) + 1) if len(rows) else ()):
        if holds[stretch[0]]:
            walk.keep(stretch, first=at == 0)
        else:
            walk.serve(stretch)
    return _assignments(placeable, walk.given)


class _Walk:
    def __init__(
        self,
        snapshot: Snapshot,
        placeable: PlaceableGpus,
        rows: Int64s,
        choose: Chooser,
        served: Callable[[int, Gang], None],
        series: SeriesChooser | None,
    ) -> None:
        self.placeable, self.choose, self.served, self.series = placeable, choose, served, series
        self.asks = _GangRequests(snapshot)
        self.free = FreeNow(placeable.capacity.copy(), placeable.cpus.copy(), placeable.memory_mib.copy())
        self.unused = int(bit_counts(self.free.gpus).sum())  # GPUs of `free`
        # Running, not come to; least urgent first.
        self.later = rows[placeable.allocated.count[rows] > 0].tolist()[::-1]
        self.idle: FreeNow | None = None  # `free` without what those hold; None: to be worked out
        self.displaced = False
        self.given: list[_Given] = []

    def keep(self, rows: Int64s, *, first: bool) -> None:
        """These running jobs come next: each stays unless a more urgent one has a GPU of it. first: there is none."""
        if not self.displaced and self._keep_all(rows, first=first):
            return
        allocated, free = self.placeable.allocated, self.free
        held = HeldSets(allocated.first, allocated.count, allocated.node, allocated.mask, allocated.cpus,
                        allocated.memory_mib)  # fmt: skip
        kept = keep_sets(rows, held, FreeSets(free.gpus, free.cpus, free.memory_mib), self.displaced)
        self.idle, self.unused = None, int(bit_counts(free.gpus).sum())
        self._stay(rows, rows[kept])

    def _keep_all(self, rows: Int64s, *, first: bool) -> bool:
        """Whether all of them stay at once, because none holds a GPU that was given."""
        allocated, entries = self.placeable.allocated, self.placeable.allocated.entries(rows)
        free = self.free.without(self.placeable, entries)
        unused = int(bit_counts(free.gpus).sum())
        if not first and unused != self.unused - int(bit_counts(allocated.mask[entries]).sum()):
            return False
        self.free, self.unused = free, unused
        self._stay(rows, rows)
        return True

    def _stay(self, rows: Int64s, kept: Int64s) -> None:
        """The walk has come to these running jobs, and those kept have their GPUs."""
        allocated, entries = self.placeable.allocated, self.placeable.allocated.entries(kept)
        del self.later[len(self.later) - len(rows) :]
        self.given.append(_Given(kept, allocated.count[kept], allocated.node[entries], allocated.mask[entries]))

    def serve(self, rows: Int64s) -> None:
        """These waiting jobs come next: each gets GPUs if it finds some."""
        at = 0
        while self.series is not None and len(rows) - at >= FEW_GANGS and self.unused:
            at += self._serve_many(rows[at:], self.series)
            self._serve_each(rows[at : at + 1])  # the first that needs GPUs of running jobs, if any
            at += 1
        self._serve_each(rows[at:])

    def _serve_many(self, rows: Int64s, series: SeriesChooser) -> int:
        """Serve the jobs up to the first that fits only if running jobs go. Returns how many they are."""
        asks, idle = self.asks.series(rows), self._idle()
        looked, count, node, mask = series(asks, idle, self.asks.usable, self.unused, bool(self.later))
        got, share = count > 0, bit_counts(mask)
        if idle is not self.free:
            cpus, memory_mib = (np.repeat(each, count) * share for each in (asks.cpus_per_gpu, asks.mib_per_gpu))
            self.free.take_many(node, mask, cpus, memory_mib)
        self.unused -= int(share.sum())
        self.given.append(_Given(rows[got], count[got], node, mask))
        return looked

    def _serve_each(self, rows: Int64s) -> None:
        for row in rows.tolist():
            if not self.unused:
                return
            gang = self._gang(row)
            if gang is not None:
                self.served(row, gang)
                self.given.append(_Given(np.array([row]), np.array([len(gang[0])]), *gang))

    def _gang(self, row: int) -> Gang | None:
        """The GPUs that this waiting job gets, taken from what is left; None if it waits on."""
        ask = self.asks.of(row)
        if ask is None or ask.gpus > self.unused:
            return None
        gang = self._chosen(ask, self._idle())
        if gang is None and self.later:
            gang = self._displacing(ask)
        if gang is None:
            return None
        node, mask = gang
        share = bit_counts(mask).astype(np.float64)
        beside = (ask.cpus_per_gpu * share, ask.mib_per_gpu * share)
        self.free.take(node, mask, *beside)
        self.unused -= int(share.sum())
        if not self.later:
            self.idle = self.free
        elif self.idle is not None:
            self.idle.take(node, mask, *beside)
        return gang

    def _idle(self) -> FreeNow:
        if self.idle is None:
            self.idle = self._offered(0)
        return self.idle

    def _offered(self, displaced: int) -> FreeNow:
        """What is left without what running jobs hold that the walk has not come to, but for the last `displaced`."""
        staying = self.later[displaced:]
        allocated = self.placeable.allocated
        return self.free.without(self.placeable, allocated.entries(np.array(staying))) if staying else self.free

    def _displacing(self, ask: GangRequest) -> Gang | None:
        """With the GPUs of the fewest least urgent running jobs that make it fit."""
        found = self._chosen(ask, self._offered(len(self.later)))
        self.displaced = self.displaced or found is not None
        low, high = 0, len(self.later)  # does not fit with low, fits with high
        while found is not None and high - low > 1:
            middle = (low + high) // 2
            gang = self._chosen(ask, self._offered(middle))
            if gang is None:
                low = middle
            else:
                high, found = middle, gang
        return found

    def _chosen(self, ask: GangRequest, free: FreeNow) -> Gang | None:
        room = headroom(free.gpus, ask.usable, free.cpus, free.memory_mib, ask.cpus_per_gpu, ask.mib_per_gpu)
        return self.choose(ask, OfferedGpus(free.gpus, room))


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


class _Given(NamedTuple):
    """GPUs of some jobs: how many nodes each has (R,), and one after the other the nodes and masks of all (K,)."""

    rows: Int64s
    nodes: Int64s
    node: Int64s
    mask: Int64s


def _assignments(placeable: PlaceableGpus, given: list[_Given]) -> Assignments:
    """All jobs that were given GPUs, in that order."""
    none = np.zeros(0, np.int64)
    rows, count, node, mask = map(np.concatenate, zip(_Given(none, none, none, none), *given, strict=True))
    shown = np.where(placeable.blind[node], 0, mask)
    return Assignments(*map(made_read_only, (rows, np.cumsum(count) - count, count, node, bit_counts(mask), shown)))


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

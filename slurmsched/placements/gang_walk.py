"""The walk of placements that choose GPU sets: jobs in their order, each gang whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from slurmsched.kernels.gang import part_of
from slurmsched.kernels.headroom import headroom
from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s, sealed
from slurmsched.placements.candidates import eligible, parted, pools
from slurmsched.placements.gpu_stock import GpuStock, bit_counts


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """What one waiting job asks for: `parts` nodes with `part` GPUs each, and one with `rest` GPUs if it is not 0.

    row: of the jobs table. usable: (N,) bool, nodes it may go to.
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
class Offer:
    """GPUs a job may take. free: (N,) int64 masks. room: (N,) int64 how many of them it can have, see headroom."""

    free: Int64s
    room: Int64s


Gang = tuple[Int64s, Int64s]  # node rows, and the GPU mask on each; no node twice
Chooser = Callable[[Ask, Offer], Gang | None]  # None: it does not fit


@dataclass(slots=True, eq=False)
class _Left:
    """What is not given yet: masks, CPUs and memory of each node."""

    gpus: Int64s
    cpus: Floats
    memory_mib: Floats

    def without(self, stock: GpuStock, entries: Int64s) -> _Left:
        """Less what these entries of stock.held hold."""
        held, gpus, cpus, memory_mib = stock.held, self.gpus.copy(), self.cpus.copy(), self.memory_mib.copy()
        np.bitwise_and.at(gpus, held.node[entries], ~held.mask[entries])
        np.subtract.at(cpus, held.node[entries], held.cpus[entries])
        np.subtract.at(memory_mib, held.node[entries], held.memory_mib[entries])
        return _Left(gpus, cpus, memory_mib)

    def take(self, node: Int64s, mask: Int64s, cpus: Floats, memory_mib: Floats) -> None:
        self.gpus[node] &= ~mask
        self.cpus[node] -= cpus
        self.memory_mib[node] -= memory_mib


def place_gangs(
    snapshot: Snapshot,
    ranking: Ranking,
    choose: Chooser,
    stock: GpuStock | None = None,
    served: Callable[[int, Gang], None] = lambda row, gang: None,
) -> Assignments:
    """Which jobs of the ranking should hold which GPUs now; every gang whole, no GPU twice.

    A running job stays where it is, or goes if a more urgent one got its GPUs. A waiting job takes idle GPUs if it
    fits there, else those of as few running jobs as do, the least urgent first. gpu_mask is 0 on nodes of which
    Slurm does not show which GPUs are held. stock: of GpuStock.of(snapshot), if it is at hand. served: is told of each
    waiting job that got GPUs.
    """
    stock = GpuStock.of(snapshot) if stock is None else stock
    rows = ranking.order[((stock.held.count > 0) | eligible(snapshot))[ranking.order]]
    walk = _Walk(snapshot, stock, rows, choose, served)
    kept = int(np.argmin(np.append(stock.held.count[rows] > 0, False)))  # before any waiting job: they all stay
    walk.keep_all(rows[:kept])
    gangs = [(int(row), gang) for row in rows[kept:].tolist() if (gang := walk.serve(row)) is not None]
    return _assignments(stock, rows[:kept], gangs)


class _Walk:
    def __init__(
        self,
        snapshot: Snapshot,
        stock: GpuStock,
        rows: Int64s,
        choose: Chooser,
        served: Callable[[int, Gang], None],
    ) -> None:
        self.stock, self.choose, self.served = stock, choose, served
        self.asks = _Asks(snapshot)
        self.left = _Left(stock.capacity.copy(), stock.cpus.copy(), stock.memory_mib.copy())
        self.later = rows[stock.held.count[rows] > 0].tolist()[::-1]  # running, not come to; least urgent first
        self.idle: _Left | None = None  # `left` without what those hold; None: to be worked out
        self.displaced = False

    def keep_all(self, rows: Int64s) -> None:
        """The most urgent jobs of the order all run: they stay."""
        self.left = self.left.without(self.stock, self.stock.held.entries(rows))
        del self.later[len(self.later) - len(rows) :]

    def serve(self, row: int) -> Gang | None:
        """The GPUs that this job holds or gets, taken from what is left; None if it waits."""
        if self.stock.held.count[row]:
            return self._kept(row)
        ask = self.asks.of(row)
        gang = self._chosen(ask, self._idle()) if ask is not None else None
        if ask is not None and gang is None and self.later:
            gang = self._displacing(ask)
        if ask is None or gang is None:
            return None
        self.served(row, gang)
        node, mask = gang
        share = bit_counts(mask).astype(np.float64)
        beside = (ask.cpus_per_gpu * share, ask.mib_per_gpu * share)
        self.left.take(node, mask, *beside)
        if not self.later:
            self.idle = self.left
        elif self.idle is not None:
            self.idle.take(node, mask, *beside)
        return gang

    def _kept(self, row: int) -> Gang | None:
        held = self.stock.held
        entries = np.arange(held.first[row], held.first[row] + held.count[row])
        node, mask = held.node[entries], held.mask[entries]
        self.later.pop()  # it is the most urgent of them
        self.idle = None
        if (mask & ~self.left.gpus[node]).any() or (self.displaced and self._short(entries)):
            return None
        self.left.take(node, mask, held.cpus[entries], held.memory_mib[entries])
        return node, mask

    def _short(self, entries: Int64s) -> bool:
        """Whether CPUs or memory of these entries went to a more urgent job."""
        held, left = self.stock.held, self.left
        node = held.node[entries]
        return bool(
            (left.cpus[node] < held.cpus[entries] - 1e-6).any()
            or (left.memory_mib[node] < held.memory_mib[entries] - 1e-6).any()
        )

    def _idle(self) -> _Left:
        if self.idle is None:
            self.idle = self._offered(0)
        return self.idle

    def _offered(self, displaced: int) -> _Left:
        """What is left without what running jobs hold that the walk has not come to, but for the last `displaced`."""
        staying = self.later[displaced:]
        return self.left.without(self.stock, self.stock.held.entries(np.array(staying))) if staying else self.left

    def _displacing(self, ask: Ask) -> Gang | None:
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

    def _chosen(self, ask: Ask, left: _Left) -> Gang | None:
        room = headroom(left.gpus, ask.usable, left.cpus, left.memory_mib, ask.cpus_per_gpu, ask.mib_per_gpu)
        return self.choose(ask, Offer(left.gpus, room))


class _Asks:
    """Requests of waiting jobs in the terms of a walk."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.jobs = snapshot.jobs
        self.pool, self.usable = pools(snapshot)
        self.size = np.where(self.usable, snapshot.nodes.gpus, 0).max(axis=1, initial=0)
        gpus = self.jobs.gpus.astype(np.int64)
        self.nodes = parted(gpus, self.jobs.nodes, self.pool, self.usable, snapshot.nodes.gpus)

    def of(self, row: int) -> Ask | None:
        """None for a job that asks for no GPU, or for which no node has any."""
        jobs, pool = self.jobs, self.pool[row]
        gpus, nodes, size = int(jobs.gpus[row]), int(self.nodes[row]), int(self.size[pool])
        if gpus <= 0 or size == 0:
            return None
        part: int = part_of.plain(gpus, nodes, size)  # type: ignore[attr-defined]  # one job: not worth compiling
        shape = (min(part, gpus), gpus // part, gpus % part)
        beside = (float(jobs.cpus[row]) / gpus, float(jobs.memory_mib[row]) / gpus)
        return Ask(row, int(jobs.job_id[row]), gpus, *shape, *beside, self.usable[pool])


def _assignments(stock: GpuStock, kept: Int64s, gangs: list[tuple[int, Gang]]) -> Assignments:
    """Running jobs that stay as they are, then jobs with their gangs."""
    held, entries = stock.held, stock.held.entries(kept)
    count = np.concatenate([held.count[kept], np.array([len(node) for _, (node, _) in gangs], np.int64)])
    node = np.concatenate([held.node[entries], *(node for _, (node, _) in gangs)])
    mask = np.concatenate([held.mask[entries], *(mask for _, (_, mask) in gangs)])
    rows = np.concatenate([kept, np.array([row for row, _ in gangs], np.int64)])
    shown = np.where(stock.blind[node], 0, mask)
    return Assignments(*map(sealed, (rows, np.cumsum(count) - count, count, node, bit_counts(mask), shown)))


def lowest(free: int, gpus: int) -> int:
    """The lowest `gpus` of a free set, as a mask."""
    taken = 0
    for _ in range(gpus):
        taken |= free & -free
        free &= free - 1
    return taken


def by_node(ask: Ask, offer: Offer, order: Int64s, pick: Callable[[int, int, int], int]) -> Gang | None:
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

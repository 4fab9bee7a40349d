"""Synergy: CPUs and memory by what a job gains from them, in place of that many for each GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache, partial

import numpy as np

from slurmsched.estimators.cpu_memory_speeds import MIB_PER_GIB, SYNERGY, CpusAndMemory, cpu_memory_profiles, profile_of
from slurmsched.kernels.gang_fit import pick_gang
from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s, made_read_only
from slurmsched.model.gpu_masks import bit_counts, lowest_bits
from slurmsched.model.hints import hint_column, parse_hints
from slurmsched.model.parameters import check_choice
from slurmsched.resources.allocated import holding
from slurmsched.resources.eligibility import node_pools
from slurmsched.resources.placeable_gpus import AllocatedSets, PlaceableGpus
from slurmsched.resources.startable_jobs import startable

TUNE, GREEDY, PROPORTIONAL = ALLOCATIONS = ("tune", "greedy", "proportional")
FIXED, RETUNED, MOVED = RUNNING = ("fixed", "retuned", "moved")


@dataclass(frozen=True, slots=True)
class Synergy:
    """Each job on the node with the fewest free GPUs that has its best CPUs and memory; the order is the policy's.

    allocation: one of these words.

    - "tune": where the best does not fit, a job gets at most its part of a node by GPUs. Jobs above their part give up
      what is more.
    - "greedy": a job waits until a node has its best.
    - "proportional": its part, always.

    running: one of these words.

    - "fixed": running jobs keep what they hold.
    - "retuned": their CPUs and memory are chosen anew each time.
    - "moved": their GPUs too, as in the paper.

    profiles: a table of speeds by CPUs and memory, or "synergy", which is shipped. A job of a model (hint `model`) that
        is not in it gets its part by GPUs.

    A job that fits on no node because of CPUs and memory alone waits.
    Raises ConfigError for other words, InputError for a table that cannot be read.
    Source: Mohan et al. (Synergy), OSDI '22, sections 3 and 4.
    """

    allocation: str = TUNE
    running: str = FIXED
    profiles: str = SYNERGY

    def __post_init__(self) -> None:
        check_choice("allocation", self.allocation, ALLOCATIONS, of="placement")
        check_choice("running", self.running, RUNNING, of="placement")
        cpu_memory_profiles(self.profiles)

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold which GPUs now, with how many CPUs and how much memory."""
        return place_by_demand(snapshot, ranking, HostDemands(snapshot, self.profiles), self.allocation, self.running)


def place_by_demand(
    snapshot: Snapshot, ranking: Ranking, demands: HostDemands, allocation: str, running: str
) -> Assignments:
    """The first jobs of the ranking whose GPUs fit together, with the CPUs and memory that they demand. See Synergy."""
    walk = HostWalk(snapshot, demands, allocation, running)
    able = (startable(snapshot) & (snapshot.jobs.gpus > 0)) | walk.stays
    order = ranking.order[able[ranking.order]]
    walk.run(order[_chosen(snapshot.jobs.gpus[order].astype(np.int64), int(walk.nodes.gpus.sum()))])
    walk.keep(order)
    return walk.assignments(ranking.order)


def _chosen(gpus: Int64s, capacity: int) -> Bools:
    """The first jobs that GPUs alone would let run together. gpus: (N,) in order. (N,)."""
    chosen = np.zeros(len(gpus), np.bool_)
    for place, asked in enumerate(gpus.tolist()):
        if asked <= capacity:
            chosen[place] = True
            capacity -= asked
    return chosen


class Amount(Enum):
    """best: as the profile says. part: of a node, by GPUs. at most part: the best, but no more than the part."""

    BEST = "best"
    PART = "part"
    AT_MOST_PART = "at most part"


class HostDemands:
    """CPUs and memory of each job: the best, and its part of a node."""

    def __init__(self, snapshot: Snapshot, profiles: str) -> None:
        self.jobs, self.profiles = snapshot.jobs, profiles
        self._least = hint_column(snapshot.jobs, "min_cpus"), hint_column(snapshot.jobs, "min_mem") * MIB_PER_GIB
        self._most = hint_column(snapshot.jobs, "max_cpus"), np.full(len(snapshot.jobs), np.nan)
        self._of_model = cache(self._of_comment)

    def best(self, row: int, share: CpusAndMemory) -> CpusAndMemory | None:
        """What a job of this row should have beside each GPU, None if that is not known. share: of one GPU."""
        return self._of_model(self.jobs.comment[row])

    def of(self, row: int, share: CpusAndMemory, amount: Amount) -> tuple[float, float]:
        """CPUs and memory [MiB] of a job of this row. share: of one GPU of a node."""
        best, gpus = self.best(row, share) or share, int(self.jobs.gpus[row])
        least = CpusAndMemory(min(best.cpus, share.cpus), min(best.memory_gib, share.memory_gib))
        each = {Amount.BEST: best, Amount.PART: share, Amount.AT_MOST_PART: least}[amount]
        memory_mib = each.memory_gib * MIB_PER_GIB * gpus
        cpus = float(max(int(each.cpus * gpus), 1)) if each.cpus else 0.0
        return self._within(row, 0, cpus), self._within(row, 1, float(int(memory_mib)))

    def above_part(self, row: int, share: CpusAndMemory) -> bool:
        """Whether it asks for more than its part, so that it cannot fall back to it. share: of one GPU, 0 = any."""
        gpus = int(self.jobs.gpus[row])
        parts = (share.cpus * gpus, share.memory_gib * MIB_PER_GIB * gpus)
        return any(part and self._within(row, which, 0.0) > part + TINY for which, part in enumerate(parts))

    def _of_comment(self, comment: str) -> CpusAndMemory | None:
        profile = profile_of(self.profiles, parse_hints(comment).model or "")
        return profile.best() if profile else None

    def _within(self, row: int, which: int, value: float) -> float:
        """A job that asks for CPUs or memory has what it asks for, or what its hints allow beside that."""
        asked = float((self.jobs.cpus, self.jobs.memory_mib)[which][row])
        if not asked or not self.jobs.pending[row]:
            return value
        least, most = (float(bound[which][row]) for bound in (self._least, self._most))
        low, high = (asked if np.isnan(bound) else bound for bound in (least, most))
        return min(max(value, min(low, asked)), max(high, asked))


@dataclass(slots=True)
class _Nodes:
    """What is free of each node.

    gpus, cpus, memory_mib: (N,).
    mask: (N,) free GPUs.
    size: (N,) GPUs there are.
    share: (N,) of one GPU.
    kind: (N,) index of it in shares, which has each once.
    spare_cpus, spare_memory_mib: (N,) what jobs there have above their parts and may give up.
    """

    mask: Int64s
    cpus: Floats
    memory_mib: Floats
    size: Int64s
    share: list[CpusAndMemory]
    gpus: Int64s = field(init=False)
    shares: list[CpusAndMemory] = field(init=False)
    kind: Int64s = field(init=False)
    spare_cpus: Floats = field(init=False)
    spare_memory_mib: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.gpus = bit_counts(self.mask)
        self.shares = list(dict.fromkeys(self.share))
        index = {share: place for place, share in enumerate(self.shares)}
        self.kind = np.array([index[share] for share in self.share], np.int64)
        self.spare_cpus, self.spare_memory_mib = np.zeros(len(self.size)), np.zeros(len(self.size))

    def largest_share(self) -> CpusAndMemory:
        """The most CPUs and the most memory for one GPU of any node; 0 where a node does not count them."""
        having = [self.shares[kind] for kind in np.unique(self.kind[self.size > 0]).tolist()] or [_NO_PART]
        cpus, memory_gib = [each.cpus for each in having], [each.memory_gib for each in having]
        return CpusAndMemory(max(cpus) if all(cpus) else 0.0, max(memory_gib) if all(memory_gib) else 0.0)


@dataclass(slots=True)
class _Holding:
    """Of a placed job: nodes, GPUs there, their masks, CPUs and memory in all.

    least: CPUs and memory to which it may fall back; None if it gives up nothing.
    """

    nodes: list[int]
    gpus: list[int]
    masks: list[int]
    cpus: float
    memory_mib: float
    least: tuple[float, float] | None = None

    @property
    def spare(self) -> tuple[float, float]:
        """CPUs and memory that it may give up."""
        least = self.least or (self.cpus, self.memory_mib)
        return max(self.cpus - least[0], 0.0), max(self.memory_mib - least[1], 0.0)


class HostWalk:
    """One allocation: jobs in descending order of their demands, each on its node."""

    def __init__(self, snapshot: Snapshot, demands: HostDemands, allocation: str, running: str) -> None:
        placeable = PlaceableGpus.of(snapshot)
        self._snapshot, self._demands, self._blind = snapshot, demands, placeable.blind
        self._tunes, self._running = allocation == TUNE, running
        self._first = Amount.PART if allocation == PROPORTIONAL else Amount.BEST
        size = bit_counts(placeable.capacity)
        share = [CpusAndMemory(_part(cpus, gpus), _part(memory, gpus) / MIB_PER_GIB) for cpus, memory, gpus in
                 zip(placeable.cpus.tolist(), placeable.memory_mib.tolist(), size.tolist(), strict=True)]  # fmt: skip
        self.nodes = _Nodes(placeable.capacity.copy(), placeable.cpus.copy(), placeable.memory_mib.copy(), size, share)
        self._held: AllocatedSets = placeable.allocated
        self.stays = holding(snapshot.jobs) & (self._held.count > 0)
        self._pool, self._usable = node_pools(snapshot)
        self._made: dict[int, _Holding] = {}
        self._on: list[list[int]] = [[] for _ in size]
        self._largest = self.nodes.largest_share()

    def run(self, order: Int64s) -> None:
        """Place these rows, as far as they fit. order: the most urgent first."""
        stays = self.stays[order] & (self._running != MOVED)
        for row in self._by_demand(order[stays]):
            self._stay(row)
        for row in self._by_demand(order[~stays]):
            self._start(row)

    def keep(self, order: Int64s) -> None:
        """Running jobs of this order that nobody had to make room for go on."""
        for row in order.tolist():
            if row not in self._made and self.stays[row] and self._running != MOVED:
                at = slice(self._held.first[row], self._held.first[row] + self._held.count[row])
                free = self.nodes.mask[self._held.node[at]]
                if not (self._held.mask[at] & ~free).any():
                    self._stay(row)

    def _by_demand(self, order: Int64s) -> list[int]:
        """These rows, the largest demand for GPUs, then CPUs, then memory first; of equals the more urgent.

        A job that asks for more than its part goes behind all before it in the order, and before all behind it: the
        others could all run together, with their parts.
        """
        rows = order.tolist()
        above = np.array([self._demands.above_part(row, self._largest) for row in rows], np.int64)
        turn = (2 * np.cumsum(above) - above).tolist()
        wanted = [self._demands.of(row, _NO_PART, self._first) for row in rows]
        gpus = self._snapshot.jobs.gpus[order].tolist()
        keys = [(now, -size, -cpus, -memory, place) for place, (now, size, (cpus, memory)) in
                enumerate(zip(turn, gpus, wanted, strict=True))]  # fmt: skip
        return [rows[key[-1]] for key in sorted(keys)]

    def _stay(self, row: int) -> None:
        """A running job on its GPUs, with what it holds or with what suits it."""
        held, at = self._held, slice(self._held.first[row], self._held.first[row] + self._held.count[row])
        nodes, gpus, masks = (column[at].tolist() for column in (held.node, held.gpus, held.mask))
        cpus, memory_mib = float(held.cpus[at].sum()), float(held.memory_mib[at].sum())
        if self._running == FIXED:
            self._take(row, _Holding(nodes, gpus, masks, cpus, memory_mib))
            return
        share = self.nodes.share[nodes[0]]
        for amount in (self._first, Amount.AT_MOST_PART):
            cpus, memory_mib = self._demands.of(row, share, amount)
            if all(self._fits(node, 0, cpus * part, memory_mib * part) for node, part in _parts(nodes, gpus)):
                break
        for node, part in _parts(nodes, gpus):
            self._reclaim(node, cpus * part, memory_mib * part)
        self._take(row, _Holding(nodes, gpus, masks, cpus, memory_mib))

    def _start(self, row: int) -> None:
        """A job on one node, or on the fewest if none is large enough."""
        gpus = int(self._snapshot.jobs.gpus[row])
        usable = self._usable[self._pool[row]]
        if gpus > self.nodes.size[usable].max(initial=0) or self._snapshot.jobs.nodes[row] > 1:
            self._spread(row, gpus, usable)
            return
        for amount in (self._first, Amount.AT_MOST_PART) if self._tunes else (self._first,):
            for node in self._candidates(usable, gpus, partial(self._demands.of, row, amount=amount)):
                self._place(row, [node], [gpus], self._demands.of(row, self.nodes.share[node], amount))
                return
        at_most_part = partial(self._demands.of, row, amount=Amount.AT_MOST_PART)
        for node in self._candidates(usable, gpus, at_most_part, reclaims=True) if self._tunes else ():
            wanted = at_most_part(self.nodes.share[node])
            if self._reclaim(node, *wanted):
                self._place(row, [node], [gpus], wanted)
                return

    def _candidates(
        self, usable: Bools, gpus: int, wanted: Callable[[CpusAndMemory], tuple[float, float]], reclaims: bool = False
    ) -> Sequence[int]:
        """Nodes that have that free, those with the fewest free GPUs first, then by row. wanted: by a GPU's part.

        reclaims: what jobs there can give up counts as free.
        """
        nodes, needed = self.nodes, self._needed(wanted)
        fits = usable & (nodes.gpus >= gpus)
        for free, spare, each in self._amounts(needed):
            fits &= (free + spare if reclaims else free) >= each
        found = np.flatnonzero(fits)
        return found[np.argsort(nodes.gpus[found], kind="stable")].tolist()  # type: ignore[no-any-return]

    def _needed(self, wanted: Callable[[CpusAndMemory], tuple[float, float]]) -> Floats:
        """CPUs and memory by node. (N, 2)."""
        by_kind = np.array([wanted(share) for share in self.nodes.shares], np.float64).reshape(-1, 2)
        return by_kind[self.nodes.kind]

    def _amounts(self, needed: Floats) -> tuple[tuple[Floats, Floats, Floats], ...]:
        """What is free, what jobs can give up, and what is needed: of CPUs, and of memory. (N,) each."""
        nodes = self.nodes
        return ((nodes.cpus, nodes.spare_cpus, needed[:, 0]), (nodes.memory_mib, nodes.spare_memory_mib, needed[:, 1]))

    def _spread(self, row: int, gpus: int, usable: Bools) -> None:
        """A job on as many nodes as it asks for, at least as many as it needs, has its part of each by GPUs."""
        needed = self._needed(partial(self._demands.of, row, amount=Amount.PART)) / gpus
        asked = max(int(self._snapshot.jobs.nodes[row]), 1)
        size = max(int(self.nodes.size[usable].max(initial=1)), 1)
        for reclaims in (False, True) if self._tunes else (False,):
            room = np.where(usable, self.nodes.gpus, 0).astype(np.int64)
            for free, spare, each in self._amounts(needed):
                enough = np.minimum((free + spare if reclaims else free) + TINY, gpus * each)
                room = np.where(each > 0, np.minimum(room, enough // np.where(each > 0, each, 1.0)), room)
            shares = np.zeros(len(room), np.int64)
            if not pick_gang(np.maximum(room, 0).astype(np.int64), np.zeros(len(room)), gpus, asked, size, shares):
                continue
            nodes = np.flatnonzero(shares).tolist()
            counts = shares[nodes].tolist()
            cpus, memory_mib = (float(needed[nodes, which].min()) * gpus for which in (0, 1))
            for node, part in _parts(nodes, counts):
                self._reclaim(node, cpus * part, memory_mib * part)
            self._place(row, nodes, counts, (cpus, memory_mib))
            return

    def _fits(self, node: int, gpus: int, cpus: float, memory_mib: float) -> bool:
        nodes = self.nodes
        return bool(
            nodes.gpus[node] >= gpus and nodes.cpus[node] >= cpus - TINY and nodes.memory_mib[node] >= memory_mib - TINY
        )

    def _reclaim(self, node: int, cpus: float, memory_mib: float) -> bool:
        """Whether so much is free on the node, once jobs there that have more than their part gave up what is more.

        Jobs on the fewest nodes go first, then those with most CPUs for a GPU, then those with most memory. None gives
        up anything if all together cannot give up enough.
        """
        nodes = self.nodes
        if (nodes.cpus[node] + nodes.spare_cpus[node] < cpus - TINY
                or nodes.memory_mib[node] + nodes.spare_memory_mib[node] < memory_mib - TINY):  # fmt: skip
            return False
        for row in sorted(self._on[node], key=self._excess):
            if self._fits(node, 0, cpus, memory_mib):
                return True
            self._give_up(self._made[row])
        return self._fits(node, 0, cpus, memory_mib)

    def _may_lose(self, row: int) -> bool:
        return self._running != FIXED or not self._held.count[row]

    def _excess(self, row: int) -> tuple[int, float, float, int]:
        made = self._made[row]
        gpus = sum(made.gpus)
        return len(made.nodes), -made.cpus / gpus, -made.memory_mib / gpus, int(self._snapshot.jobs.job_id[row])

    def _give_up(self, made: _Holding) -> None:
        cpus, memory_mib = made.spare
        for node, part in _parts(made.nodes, made.gpus):
            self.nodes.cpus[node] += cpus * part
            self.nodes.memory_mib[node] += memory_mib * part
            self.nodes.spare_cpus[node] -= cpus * part
            self.nodes.spare_memory_mib[node] -= memory_mib * part
        made.cpus, made.memory_mib = made.cpus - cpus, made.memory_mib - memory_mib

    def _place(self, row: int, nodes: list[int], gpus: list[int], wanted: tuple[float, float]) -> None:
        chosen = sorted(zip(nodes, gpus, strict=True))
        masks = [lowest_bits(int(self.nodes.mask[node]), count) for node, count in chosen]
        self._take(row, _Holding([node for node, _ in chosen], [count for _, count in chosen], masks, *wanted))

    def _take(self, row: int, made: _Holding) -> None:
        self._made[row] = made
        for node, mask in zip(made.nodes, made.masks, strict=True):
            self.nodes.mask[node] &= ~mask
            self.nodes.gpus[node] = int(self.nodes.mask[node]).bit_count()
        if self._may_lose(row):
            made.least = self._demands.of(row, self.nodes.share[made.nodes[0]], Amount.PART)
        spare = made.spare
        for node, part in _parts(made.nodes, made.gpus):
            self.nodes.cpus[node] -= made.cpus * part
            self.nodes.memory_mib[node] -= made.memory_mib * part
            if any(spare):
                self._on[node].append(row)
                self.nodes.spare_cpus[node] += spare[0] * part
                self.nodes.spare_memory_mib[node] += spare[1] * part

    def assignments(self, order: Int64s) -> Assignments:
        """Those placed, in this order."""
        rows = np.array([row for row in order.tolist() if row in self._made], np.int64)
        made = [self._made[row] for row in rows.tolist()]
        count = np.array([len(each.nodes) for each in made], np.int64)
        node, gpus, mask = (np.array([value for each in made for value in getattr(each, name)], np.int64)
                            for name in ("nodes", "gpus", "masks"))  # fmt: skip
        shown = np.where(self._blind[node], 0, mask)
        cpus, memory_mib = (np.array([getattr(each, name) for each in made], np.float64)
                            for name in ("cpus", "memory_mib"))  # fmt: skip
        placed = Assignments(*map(made_read_only, (rows, np.cumsum(count) - count, count, node, gpus, shown)))
        return replace(placed, cpus=made_read_only(cpus), memory_mib=made_read_only(memory_mib))


TINY = 1e-6
_NO_PART = CpusAndMemory(0.0, 0.0)


def _part(amount: float, gpus: int) -> float:
    """Of one GPU of a node; 0 where it is not counted."""
    return amount / gpus if gpus and np.isfinite(amount) else 0.0


def _parts(nodes: Sequence[int], gpus: Sequence[int]) -> list[tuple[int, float]]:
    """Nodes of a job, and the part of its CPUs and memory on each."""
    total = sum(gpus)
    return [(node, count / total) for node, count in zip(nodes, gpus, strict=True)]

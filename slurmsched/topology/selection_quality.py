"""How often Slurm picks the best GPUs, over sets of free GPUs of a node and all job sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slurmsched.kernels.slurm_gpu_pick import ANY, picked
from slurmsched.model.columns import Int32s, Int64s
from slurmsched.resources.gpu_sets import SetRanks
from slurmsched.topology.slurm_selection import (
    DOUBLE_SINCE,
    REVERSED_LINKS,
    UNKNOWN_SELECTION,
    GpuOption,
    NodeGpuRequest,
    SlurmNode,
    SlurmVersion,
    cores_for,
    fault_of,
    mask_to_bools,
    select_gpus,
)

CHECKED = (GpuOption.PER_NODE, GpuOption.PER_JOB)  # the kernel computes all states of these
# These are computed state by state.
SHAPED = (
    GpuOption.PER_TASK,
    GpuOption.PER_SOCKET,
)
EXAMPLES = 3
MOST_GPUS_EXHAUSTIVE = 9  # up to this many GPUs every set of free ones is tried
SETS_DRAWN = 1_000  # random sets for nodes with more GPUs; the same ones with the same NumPy


@dataclass(frozen=True, slots=True, eq=False)
class FreeGpuStates:
    """States: a set of free GPUs (see free_sets) and the size of a job of at least two GPUs that fits in it.

    free: (T,) int64 masks.
    need: (T,) int64 GPUs of the job.
    cores: (T, S) int32, the job's cores on each socket.
    best: (T,) int64, the highest rank among free sets of that size.
    """

    free: Int64s
    need: Int64s
    cores: Int32s
    best: Int64s

    def __len__(self) -> int:
        return len(self.free)


@dataclass(frozen=True, slots=True)
class MissedSelection:
    """A state in which Slurm's pick is not the best.

    free, picked, best: masks.
    lost: share of the smallest link of the ring that is lost, or of the sum of links.
    """

    free: int
    picked: int
    best: int
    lost: float


@dataclass(frozen=True, slots=True)
class SelectionQuality:
    """The quality of one form of request.

    states: states that were judged.
    best_states: those in which the pick is a best set.
    lost_share: mean share of bandwidth lost over all states, 0 to 1.
    worst: the worst misses.
    unknown: further states, in which Slurm's choice or a link between free GPUs is unknown.
    drawn: number of random sets of free GPUs, 0 = every set was tried.
    """

    form: GpuOption
    states: int
    best_states: int
    lost_share: float
    worst: tuple[MissedSelection, ...]
    unknown: int = 0
    drawn: int = 0

    @property
    def best_share(self) -> float:
        return self.best_states / self.states if self.states else 0.0


def free_sets(gpus: int) -> Sequence[int]:
    """Masks of the sets of free GPUs to try, ascending."""
    if gpus <= MOST_GPUS_EXHAUSTIVE:
        return range(1 << gpus)
    found: list[int] = np.sort(np.random.default_rng(1).choice(1 << gpus, SETS_DRAWN, replace=False)).tolist()
    return found


def states_of(node: SlurmNode, ranks: SetRanks, form: GpuOption, cores_per_gpu: int) -> FreeGpuStates:
    """The states of jobs with one task. Each GPU, of the job and of others, goes with `cores_per_gpu` cores."""
    rows: list[tuple[int, int, Int32s, int]] = []
    known: dict[tuple[object, ...], Int32s | None] = {}
    for free in free_sets(node.gpus):
        unheld, cores_free = mask_to_bools(free, node.gpus), _free_cores(node, free, cores_per_gpu)
        counts = tuple(int((unheld & (node.socket == s)).sum()) for s in range(ANY, node.sockets))
        for need in range(2, free.bit_count() + 1):
            key = (counts, tuple(cores_free), need)
            if key not in known:
                request = NodeGpuRequest(form, need, cpus_per_task=max(1, need * cores_per_gpu * node.cpus_per_core))
                known[key] = cores_for(node, request, unheld, cores_free)
            cores = known[key]
            if cores is not None:
                rows.append((free, need, cores, int(ranks.rank[ranks.best[free, need]])))
    free_, need_, cores_, best_ = zip(*rows, strict=True)
    return FreeGpuStates(np.array(free_), np.array(need_), np.array(cores_, np.int32), np.array(best_))


def _free_cores(node: SlurmNode, free: int, cores_per_gpu: int) -> list[int]:
    """Free cores of each socket if every held GPU holds cores near it (of the emptiest socket if it is near all)."""
    cores = [node.cores_per_socket] * node.sockets
    for g in range(node.gpus):
        if not free >> g & 1:
            s = int(node.socket[g])
            s = s if s >= 0 else max(range(node.sockets), key=cores.__getitem__)
            cores[s] = max(0, cores[s] - cores_per_gpu)
    return cores


def picks_in(
    node: SlurmNode, states: FreeGpuStates, form: GpuOption, version: SlurmVersion, order: Int32s | None = None
) -> Int64s:
    """(T,) int64, mask of the GPUs picked in each state. order: the GPU at each index, None = unchanged."""
    order = np.arange(node.gpus, dtype=np.int32) if order is None else order
    old, per_job = version < REVERSED_LINKS, form is GpuOption.PER_JOB
    found: Int64s = picked(
        states.free, states.need, states.cores, node.socket, node.links, node.linked, order, per_job, old,
        version >= DOUBLE_SINCE,
    )  # fmt: skip
    return found


def rate_selection(node: SlurmNode, ranks: SetRanks, form: GpuOption, version: SlurmVersion, states: FreeGpuStates,
          order: Int32s | None = None) -> SelectionQuality:  # fmt: skip
    """The quality of Slurm's picks in these states. States with an unknown choice are counted only."""
    given = picks_in(node, states, form, version, order)
    known = np.full(len(states), True) if not fault_of(version) else states.free == (1 << node.gpus) - 1
    found = _rated(ranks, form, states.free[known].tolist(), given[known].tolist())
    return replace(found, unknown=found.unknown + int((~known).sum()))


def rate_shaped_selection(node: SlurmNode, ranks: SetRanks, form: GpuOption, version: SlurmVersion, cores_per_gpu: int,
                 order: Int32s | None = None) -> SelectionQuality:  # fmt: skip
    """The quality of picks for --gpus-per-task=1 with 2, 3, ... tasks, or for --gpus-per-socket on 1, 2, ... sockets.

    They are compared with the best free set of as many GPUs. States are those of `states_of`.
    """
    order = np.arange(node.gpus, dtype=np.int32) if order is None else order
    lined = replace(node, socket=node.socket[order], links=node.links[np.ix_(order, order)])
    free, given, unknown = list[int](), list[int](), 0
    for unheld in free_sets(node.gpus):
        cores = _free_cores(node, unheld, cores_per_gpu)
        by_line = sum(1 << i for i, g in enumerate(order.tolist()) if unheld >> g & 1)
        for request in _shapes(form, unheld.bit_count(), node, cores_per_gpu):
            mask = select_gpus(lined, request, by_line, cores, version)
            unknown += mask == UNKNOWN_SELECTION
            if mask > 0:
                free.append(unheld)
                given.append(sum(1 << int(g) for i, g in enumerate(order) if mask >> i & 1))
    found = _rated(ranks, form, free, given)
    return replace(found, unknown=found.unknown + unknown)


def _shapes(form: GpuOption, most: int, node: SlurmNode, cores_per_gpu: int) -> Iterator[NodeGpuRequest]:
    """Requests of that form for two to `most` GPUs."""
    cpus = max(1, cores_per_gpu * node.cpus_per_core)
    if form is GpuOption.PER_TASK:
        yield from (NodeGpuRequest(form, 1, tasks, cpus) for tasks in range(2, most + 1))
        return
    for sockets in range(1, node.sockets + 1):
        for count in range(1, most // sockets + 1):
            if count * sockets > 1:
                yield NodeGpuRequest(form, count, cpus_per_task=cpus * count, sockets=sockets)


def _rated(ranks: SetRanks, form: GpuOption, free: Sequence[int], given: Sequence[int]) -> SelectionQuality:
    """The quality of picks out of these free GPUs."""
    pairs = [(f, g) for f, g in zip(free, given, strict=True) if ranks.known[f]]
    misses = [_miss(ranks, f, g) for f, g in pairs if ranks.rank[g] != ranks.rank[ranks.best[f, g.bit_count()]]]
    worst = sorted(misses, key=lambda miss: (-miss.lost, miss.free.bit_count(), miss.free, miss.picked))
    lost = sum(miss.lost for miss in misses) / len(pairs) if pairs else 0.0
    drawn = SETS_DRAWN if ranks.best.shape[1] - 1 > MOST_GPUS_EXHAUSTIVE else 0
    return SelectionQuality(
        form, len(pairs), len(pairs) - len(misses), lost, tuple(worst[:EXAMPLES]), len(free) - len(pairs), drawn
    )


def _miss(ranks: SetRanks, free: int, given: int) -> MissedSelection:
    best = int(ranks.best[free, given.bit_count()])
    ring, total = ranks.ring_gb_per_s, ranks.total_gb_per_s
    speed = ring if ring[given] < ring[best] else total
    return MissedSelection(free, given, best, float(1 - speed[given] / speed[best]) if speed[best] else 0.0)

"""Placements of parts of GPUs with the CPUs and memory beside them: FGD, and those that it is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.kernels.gpu_share_fit import (
    BEST_FIT,
    CLUSTERING,
    DOT_PRODUCT,
    FRAGMENTS,
    PACKING,
    RANDOM,
    WHOLE,
    SharedNodes,
    ShareRequests,
    most_frequent,
    place_shares,
)
from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.model.columns import Floats, Int64s, made_read_only
from slurmsched.model.gpu_masks import bit_counts
from slurmsched.resources.allocated import holding
from slurmsched.resources.eligibility import node_pools
from slurmsched.resources.placeable_gpus import AllocatedSets, FreeShares, PlaceableGpus
from slurmsched.resources.startable_jobs import startable


@dataclass(frozen=True, slots=True)
class FragmentationGradient:
    """The node and GPU where the free GPUs become of use to the fewest fewer typical requests.

    typical_pct: the typical requests are the most frequent kinds that make up this share of the jobs that run or wait.
    Raises ConfigError unless that is above 0 and at most 100. Source: Weng et al. (FGD), USENIX ATC '23, section 4.
    """

    typical_pct: float = 95.0

    def __post_init__(self) -> None:
        if not 0 < self.typical_pct <= 100:
            raise ConfigError(f"must be above 0 and at most 100, got {self.typical_pct}", key="placement.typical_pct")

    shares: ClassVar[bool] = True

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold which GPUs, or part of a GPU, now."""
        return place_parts(snapshot, ranking, FRAGMENTS, self.typical_pct)


@dataclass(frozen=True, slots=True)
class SharePlacement:
    """A placement that chooses by one rule of the kernel, without parameters."""

    shares: ClassVar[bool] = True
    rule: ClassVar[int]

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold which GPUs, or part of a GPU, now."""
        return place_parts(snapshot, ranking, self.rule)


@dataclass(frozen=True, slots=True)
class ShareBestFit(SharePlacement):
    """The node that has least left afterwards of CPUs and GPUs together; there the fullest GPU that has the part.

    Source: the best fit that FGD compares with; weights of one half, by the largest node.
    """

    rule: ClassVar[int] = BEST_FIT


@dataclass(frozen=True, slots=True)
class DotProduct(SharePlacement):
    """The node for which CPUs and GPUs that are free, times those asked for, are least.

    Source: Tetris (SIGCOMM '14) as FGD has it.
    """

    rule: ClassVar[int] = DOT_PRODUCT


@dataclass(frozen=True, slots=True)
class GpuPacking(SharePlacement):
    """GPUs in use first, the fullest; then free GPUs of nodes in use; then nodes that are free. Source: FGD's rival."""

    rule: ClassVar[int] = PACKING


@dataclass(frozen=True, slots=True)
class GpuClustering(SharePlacement):
    """Nodes where jobs of the same size run, the fullest first, so that sizes do not mix.

    Source: Gandiva (OSDI '18) as FGD has it.
    """

    rule: ClassVar[int] = CLUSTERING


@dataclass(frozen=True, slots=True)
class ShareRandom(SharePlacement):
    """Any node and any GPU with room, drawn by snapshot.seed: the baseline that others must beat."""

    rule: ClassVar[int] = RANDOM


# Over 30 lines: the steps from a snapshot to the tables of the kernel and back.
def place_parts(snapshot: Snapshot, ranking: Ranking, rule: int, typical_pct: float = 95.0) -> Assignments:
    """Which jobs of the ranking should hold which GPUs now, by a rule of gpu_share_fit.

    Running jobs stay where they are. A waiting job gets what it asks for on one node, beside others on the same GPU if
    it asks for a part of it. One that does not fit now waits, as does one that needs several nodes. On a node whose
    CPUs or memory are not counted, those are no limit.
    Raises ConfigError for a node of more than 63 GPUs.
    """
    placeable, jobs = PlaceableGpus.of(snapshot), snapshot.jobs
    allocated, stays, waits = (
        placeable.allocated,
        holding(jobs),
        startable(snapshot) & (jobs.gpus > 0) & (jobs.nodes <= 1),
    )
    order = ranking.order[waits[ranking.order]]
    node, mask = np.zeros(0, np.int64), np.zeros(0, np.int64)
    if len(order) and len(snapshot.nodes) and snapshot.nodes.gpus.any():
        pool, usable = node_pools(snapshot)
        usable, same = np.unique(usable, axis=0, return_inverse=True)
        pool = same.reshape(-1)[pool]  # kinds differ by nodes, not by users
        alike, kind_of_node = np.unique(usable.T, axis=0, return_inverse=True)
        nodes = _nodes(snapshot, placeable, order, kind_of_node.reshape(-1).astype(np.int64))
        counted = np.isfinite(placeable.cpus).any(), np.isfinite(placeable.memory_mib).any()
        everyone = np.flatnonzero((waits | stays) & (jobs.gpus > 0) & (jobs.gpus <= 63) & (jobs.nodes <= 1))
        asked = np.column_stack([
            jobs.gpus, np.where(jobs.gpus == 1, jobs.gpu_milli, WHOLE), pool, jobs.cpus * counted[0],
            jobs.memory_mib * counted[1],
        ]).astype(np.float64)  # fmt: skip
        kinds, first = np.unique(asked[order], axis=0, return_inverse=True)
        expected, count = np.unique(asked[everyone][:, :4], axis=0, return_counts=True)
        often, weight = most_frequent(count, typical_pct)
        chance = np.random.default_rng(abs(snapshot.seed)).random((len(order), 2))
        requests = (_requests(kinds, alike), _requests(np.pad(expected[often], ((0, 0), (0, 1))), alike))
        node, mask, _, _ = place_shares(
            first.reshape(-1).astype(np.int64), requests[0], nodes, requests[1], weight, rule, chance
        )
    return _assignments(ranking, placeable, allocated, order, node, mask)


def _nodes(snapshot: Snapshot, placeable: PlaceableGpus, order: Int64s, kind: Int64s) -> SharedNodes:
    free, jobs, allocated = FreeShares.of(snapshot), snapshot.jobs, placeable.allocated
    gpus = snapshot.nodes.gpus.astype(np.int64)
    size = np.where((jobs.gpus == 1) & (jobs.gpu_milli < WHOLE), 0, _held_sizes(allocated, jobs.gpus.astype(np.int64)))
    runs = np.zeros((len(gpus), int(gpus.max()) + 1), np.int64)
    np.add.at(runs, (allocated.node, np.minimum(size[allocated.row], gpus.max())), 1)
    most = np.array([max(float(snapshot.nodes.cpus.max()), 1.0), float(WHOLE * gpus.max())])
    beside = (
        _enough(free.cpus, float(jobs.cpus[order].sum())),
        _enough(free.memory_mib, float(jobs.memory_mib[order].sum())),
    )
    return SharedNodes(free.gpu_milli, gpus, *beside, kind, runs, most)


def _enough(free: Floats, asked: float) -> Floats:
    """What is free, (N,); where it is not counted, that of the node with most and all that is asked for; 0 where none
    counts it."""
    counted = np.isfinite(free)
    if not counted.any():
        return np.zeros_like(free)
    return np.where(counted, free, max(free[counted].max(), 0.0) + asked)


def _held_sizes(held: AllocatedSets, gpus: Int64s) -> Int64s:
    """GPUs of each job on each of its nodes, where it holds any; else those it asks for. (J,)."""
    sizes = gpus.copy()
    sizes[held.row] = held.gpus
    return sizes


def _requests(kinds: Floats, alike: np.ndarray) -> ShareRequests:
    """kinds: (K, 5) GPUs, part, pool, CPUs, memory. alike: (T, P) which pools may use each kind of node."""
    gpus, milli, pool = kinds[:, :3].astype(np.int64).T
    fits = np.ascontiguousarray(alike.T[pool])
    return ShareRequests(gpus.copy(), milli.copy(), kinds[:, 3].copy(), kinds[:, 4].copy(), fits)


def _assignments(
    ranking: Ranking, placeable: PlaceableGpus, held: AllocatedSets, order: Int64s, node: Int64s, mask: Int64s
) -> Assignments:
    """Running jobs, and the waiting ones that got a node, in the ranking's order."""
    got = np.full(len(held.count), -1)
    got[order[: len(node)]] = np.arange(len(node))
    placed = np.zeros(len(held.count), np.bool_)
    placed[order[: len(node)][node >= 0]] = True
    rows = ranking.order[((held.count > 0) | placed)[ranking.order]]
    parts = [
        (held.node[e], held.mask[e], held.gpus[e])
        if held.count[row]
        else (node[got[row]][None], mask[got[row]][None], bit_counts(mask[got[row]][None]))
        for row in rows.tolist()
        for e in [slice(held.first[row], held.first[row] + held.count[row])]
    ]
    none = (np.zeros(0, np.int64),) * 3
    at, masks, gpus = (np.concatenate(columns) for columns in zip(none, *parts, strict=True))
    count = np.where(held.count[rows] > 0, held.count[rows], 1)
    shown = np.where(placeable.blind[at], 0, masks)
    return Assignments(*map(made_read_only, (rows, np.cumsum(count) - count, count, at, gpus, shown)))

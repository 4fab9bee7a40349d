"""Topology-aware: GPUs near each other, away from others' traffic, without breaking up sockets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.model.gpu_masks import bit_counts, lowest_bits
from slurmsched.model.gpu_topology import GpuTopology, LinkKind
from slurmsched.placements.gang_walk import Gang, GangRequest, OfferedGpus, by_node, place_gangs
from slurmsched.resources.gpu_sets import TABLE_GPUS, set_table
from slurmsched.resources.placeable_gpus import PlaceableGpus

LEAST_COST = 0.01  # of a criterion, as in the paper's simulator: no cost is 0
ALL_SETS = 8  # GPUs of a class up to which every set is a candidate
_DISTANCE = {
    LinkKind.NVLINK: 1.0, LinkKind.XGMI: 1.0, LinkKind.PIX: 5.0, LinkKind.PXB: 10.0, LinkKind.PHB: 10.0,
    LinkKind.NODE: 10.0, LinkKind.SYS: 20.0, LinkKind.UNKNOWN: 20.0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TopologyAware:
    """The set of GPUs of most utility: communication, interference and fragmentation, each to the power of its weight.

    weights: of the three, in that order; the paper's neutral policy is a third each.
    least_utility: a job whose best set is worth less to it waits for a better one; 0 = never (the paper's variant
        without postponing).
    farthest: communication cost that counts as 1, by number of GPUs from 2 on; () = that of the worst set of the class.

    Interference counts jobs on the same socket only where measured slowdowns say so; without them it is the same for
    every set. Nodes of more than 8 GPUs offer one set each, the best of their table.
    Raises ConfigError for weights that are not three numbers above 0, or a utility outside 0 to 1.
    Source: Amaral et al., SC '17, section 4; NVLink 1 and across sockets 20 are its distances, those between ours.
    """

    weights: tuple[float, ...] = (1 / 3, 1 / 3, 1 / 3)
    least_utility: float = 0.0
    farthest: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.weights) != 3 or not all(weight > 0 for weight in self.weights):
            raise ConfigError("must be three numbers above 0", key="placement.weights")
        if not 0 <= self.least_utility <= 1:
            raise ConfigError(f"must be from 0 to 1, got {self.least_utility}", key="placement.least_utility")

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold which GPUs now; every gang whole."""
        placeable, classes = PlaceableGpus.of(snapshot), snapshot.topology.classes

        def useful(ask: GangRequest, offer: OfferedGpus) -> Gang | None:
            found: dict[tuple[int, int], tuple[float, int]] = {}

            def best(node: int, free: int, gpus: int) -> tuple[float, int]:
                row = int(placeable.node_class[node])
                return self.best_set(classes[row], free, gpus) if row >= 0 else (0.0, lowest_bits(free, gpus))

            for gpus in set(ask.takes):
                for node in np.flatnonzero(offer.room >= gpus).tolist():
                    found[node, gpus] = best(node, int(offer.free[node]), gpus)
            utility = np.full(len(offer.free), -1.0)
            for (node, _), (value, mask) in found.items():
                utility[node] = max(utility[node], value) if mask else utility[node]
            order = np.lexsort((bit_counts(offer.free), -utility))
            return by_node(ask, _acceptable(offer, utility), order, lambda node, _, gpus: found[node, gpus][1])

        return place_gangs(snapshot, ranking, useful, placeable)

    def best_set(self, topology: GpuTopology, free: int, gpus: int) -> tuple[float, int]:
        """The utility for the system of the best set, and its mask; -1 and 0 if each is worth too little to the job."""
        return _best_set(self, topology, free, gpus)

    def communication(self, topology: GpuTopology, members: Sequence[int]) -> float:
        """Normalised cost of communication inside a set: pairwise distances above the nearest set's."""
        if len(members) < 2:
            return LEAST_COST
        nearest, widest = _span(topology, len(members))
        worst = self.farthest[len(members) - 2] if len(self.farthest) > len(members) - 2 else widest - nearest
        cost = _distance_sum(distances(topology), members) - nearest
        return max(cost / worst, LEAST_COST) if worst > 0 else LEAST_COST


def utility(costs: Sequence[float], weights: Sequence[float]) -> float:
    """Utility from 0 to 1 of normalised costs: the inverse of their weighted sum of powers, 1 at the least costs."""
    least = sum(LEAST_COST**weight for weight in weights)
    return least / sum(cost**weight for cost, weight in zip(costs, weights, strict=True))


def job_utility(communication: float, interference: float, weights: Sequence[float] = (1 / 3, 1 / 3, 1 / 3)) -> float:
    """Utility to the job alone: fragmentation is the system's affair, and its weight goes to the other two alike."""
    return utility((communication, interference), [1.5 * weight for weight in weights[:2]])


def fragmentation(topology: GpuTopology, free: int) -> float:
    """Mean share of free GPUs of the sockets once only the set `left` is free; LEAST_COST if all or none are."""
    shares = []
    for socket in np.unique(topology.numa):
        members = np.flatnonzero(topology.numa == socket).tolist()
        shares.append(sum(free >> g & 1 for g in members) / len(members))
    mean = sum(shares) / len(shares)
    return mean if 0 < mean < 1 else LEAST_COST


@lru_cache(maxsize=64)
def distances(topology: GpuTopology) -> Floats:
    """Distance between GPUs by what links them, 0 on the diagonal. (G, G)."""
    found = np.vectorize(lambda kind: _DISTANCE[LinkKind(kind)], otypes=[float])(topology.kind)
    np.fill_diagonal(found, 0.0)
    return found


@lru_cache(maxsize=100_000)
def _best_set(placement: TopologyAware, topology: GpuTopology, free: int, gpus: int) -> tuple[float, int]:
    best = (-1.0, 0)
    for members in _candidates(topology, free, gpus):
        mask = sum(1 << g for g in members)
        communication = placement.communication(topology, members)
        if job_utility(communication, LEAST_COST, placement.weights) < placement.least_utility:
            continue
        costs = (communication, LEAST_COST, fragmentation(topology, free & ~mask))
        value = utility(costs, placement.weights)
        if value > best[0]:
            best = (value, mask)
    return best


def _candidates(topology: GpuTopology, free: int, gpus: int) -> list[tuple[int, ...]]:
    open_ = [g for g in range(topology.gpus) if free >> g & 1]
    if topology.gpus <= ALL_SETS:
        return list(combinations(open_, gpus))
    if topology.gpus > TABLE_GPUS:
        return [tuple(open_[:gpus])]
    best = int(set_table(topology).best[free, gpus])
    return [tuple(g for g in open_ if best >> g & 1)]


@lru_cache(maxsize=4_096)
def _span(topology: GpuTopology, gpus: int) -> tuple[float, float]:
    """Sum of distances inside the nearest and the farthest set of that many GPUs of the class."""
    whole = (1 << topology.gpus) - 1
    sums = [_distance_sum(distances(topology), members) for members in _candidates(topology, whole, gpus)]
    return min(sums), max(sums)


def _distance_sum(distance: Floats, members: Sequence[int]) -> float:
    return float(sum(distance[a, b] for a, b in combinations(members, 2)))


def _acceptable(offer: OfferedGpus, utility: Floats) -> OfferedGpus:
    """Without nodes where no set is worth enough."""
    return OfferedGpus(offer.free, np.where(utility < 0, 0, offer.room))

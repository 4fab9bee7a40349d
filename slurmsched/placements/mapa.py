"""MAPA: the communication ring of a job matched to the links of free GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, permutations
from typing import Literal

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.model.gpu_masks import bit_counts, lowest_bits, mask_members
from slurmsched.model.gpu_topology import GpuTopology, LinkKind
from slurmsched.placements.gang_walk import Gang, GangRequest, OfferedGpus, by_node, place_gangs, sensitive_to_topology
from slurmsched.resources.gpu_sets import TABLE_GPUS, link_weights, set_table
from slurmsched.resources.placeable_gpus import PlaceableGpus

Scoring = Literal["preserve", "greedy"]
ALL_RINGS = 8  # GPUs of a class up to which every ring of every set is looked at

# The published fit of effective bandwidth [GB/s] by the ring's links: a double, b single NVLinks, c others.
_FIT: tuple[tuple[float, Callable[[int, int, int], float]], ...] = (
    (16.39670455, lambda a, b, c: a), (4.536821878, lambda a, b, c: b), (1.55623404, lambda a, b, c: c),
    (-20.69484581, lambda a, b, c: 1 / (a + 1)), (-9.467461958, lambda a, b, c: 1 / (b + 1)),
    (7.615106783, lambda a, b, c: 1 / (c + 1)), (-7.973335727, lambda a, b, c: a * b),
    (12.73323772, lambda a, b, c: b * c), (-4.195655221, lambda a, b, c: a * c),
    (-8.413419363, lambda a, b, c: 1 / (a * b + 1)), (62.85125807, lambda a, b, c: 1 / (b * c + 1)),
    (27.41832588, lambda a, b, c: 1 / (a * c + 1)), (-5.114108079, lambda a, b, c: a * b * c),
    (-46.97390071, lambda a, b, c: 1 / (a * b * c + 1)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mapa:
    """Within a node, the match of the job's ring that scores best; among nodes, the one left fullest.

    scoring: "preserve": a bandwidth-sensitive job gets the set of most predicted bandwidth, another the set after which
        most NVLink bandwidth stays free between the other GPUs. "greedy": each gets the ring of the largest sum of
        links.
    insensitive: partitions whose jobs are not bandwidth-sensitive; a `topo=any` hint says so for one job.
    Raises ConfigError for another scoring.
    Source: Ranganath et al. (MAPA), SC '21, sections 3.3 to 3.5, with the published coefficients. In classes of more
    than 8 GPUs the sum of links stands for the predicted bandwidth.
    """

    scoring: Scoring = "preserve"
    insensitive: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.scoring not in ("preserve", "greedy"):
            raise ConfigError(f"must be preserve or greedy, got {self.scoring!r}", key="placement.scoring")

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold which GPUs now; every gang whole."""
        placeable, classes = PlaceableGpus.of(snapshot), snapshot.topology.classes

        def matched(ask: GangRequest, offer: OfferedGpus) -> Gang | None:
            score = self._score(snapshot, ask)

            def pick(node: int, free: int, gpus: int) -> int:
                row = int(placeable.node_class[node])
                return score(classes[row], free, gpus) if row >= 0 else lowest_bits(free, gpus)

            return by_node(ask, offer, np.argsort(bit_counts(offer.free), kind="stable"), pick)

        return place_gangs(snapshot, ranking, matched, placeable)

    def _score(self, snapshot: Snapshot, ask: GangRequest) -> Callable[[GpuTopology, int, int], int]:
        if self.scoring == "greedy":
            return greedy_set
        return fastest_set if sensitive_to_topology(snapshot, ask.row, self.insensitive) else preserving_set


def predicted_gb_per_s(double: int, single: int, other: int) -> float:
    """Effective bandwidth of a ring of that many double and single NVLinks and other links, by the published fit."""
    return sum(weight * term(double, single, other) for weight, term in _FIT)


def greedy_set(topology: GpuTopology, free: int, gpus: int) -> int:
    """The set whose best ring has the largest sum of links, as a mask; the lowest GPUs of a class of more than 16."""
    if topology.gpus > TABLE_GPUS:
        return lowest_bits(free, gpus)
    return int(set_table(topology, "sum").best[free, gpus])


def fastest_set(topology: GpuTopology, free: int, gpus: int) -> int:
    """The set of most predicted bandwidth, then of the lowest number, as a mask."""
    if topology.gpus > ALL_RINGS:
        return greedy_set(topology, free, gpus)
    return max(_sets(free, gpus), key=lambda s: (predicted_of(topology, s), -s))


def preserving_set(topology: GpuTopology, free: int, gpus: int) -> int:
    """The set that leaves most NVLink bandwidth between the GPUs that stay free, then has most predicted bandwidth."""
    if topology.gpus > TABLE_GPUS:
        return lowest_bits(free, gpus)
    return max(_sets(free, gpus), key=lambda s: (_nvlinks(topology, free & ~s), predicted_of(topology, s), -s))


@lru_cache(maxsize=200_000)
def predicted_of(topology: GpuTopology, members: int) -> float:
    """The most predicted bandwidth of any ring through the set [GB/s]; 0 for a class of more than 8 GPUs."""
    gpus = mask_members(members)
    if topology.gpus > ALL_RINGS:
        return 0.0
    if len(gpus) < 2:
        return predicted_gb_per_s(0, 0, 0)
    rings = {_links(topology, (gpus[0], *rest)) for rest in permutations(gpus[1:])}
    return max(predicted_gb_per_s(*links) for links in rings)


def _links(topology: GpuTopology, order: tuple[int, ...]) -> tuple[int, int, int]:
    """Double and single NVLinks and other links around a ring; two GPUs count their link twice."""
    lanes = [int(topology.lanes[a, b]) for a, b in zip(order, order[1:] + order[:1], strict=True)]
    double, single = sum(n > 1 for n in lanes), sum(n == 1 for n in lanes)
    return double, single, len(lanes) - double - single


@lru_cache(maxsize=200_000)
def _nvlinks(topology: GpuTopology, free: int) -> int:
    """Sum of the NVLink weights between all pairs of a set (see link_weights)."""
    gpus, weight = mask_members(free), link_weights(topology)
    return sum(int(weight[pair]) for pair in combinations(gpus, 2) if topology.kind[pair] >= LinkKind.XGMI)


@lru_cache(maxsize=4_096)
def _sets(free: int, gpus: int) -> tuple[int, ...]:
    return tuple(sum(1 << g for g in chosen) for chosen in combinations(mask_members(free), gpus))

"""How good each set of a node's GPUs is for a job that talks among all of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise, permutations

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.columns import Floats, Int64s, sealed
from slurmsched.model.topology import GpuTopology

MOST_GPUS = 8  # every ring through every set is tried


@dataclass(frozen=True, slots=True, eq=False)
class SetRanks:
    """By mask of GPUs, 0 to 2**G - 1. rank: (2**G,) int64, larger is better among sets of one size.

    The order is: the widest ring's smallest link, then the sum of links [GB/s], then fewest NUMA domains.
    ring_gb_per_s, total_gb_per_s: (2**G,) float64.
    """

    rank: Int64s
    ring_gb_per_s: Floats
    total_gb_per_s: Floats


def set_ranks(topology: GpuTopology) -> SetRanks:
    """The ranks of all sets. Raises InputError for more than 8 GPUs, or where no link has a bandwidth."""
    gpus, speed = topology.gpus, _speed(topology)
    ring, total, spread = np.zeros(1 << gpus), np.zeros(1 << gpus), np.zeros(1 << gpus)
    for size in range(2, gpus + 1):
        for members in combinations(range(gpus), size):
            mask = sum(1 << g for g in members)
            ring[mask] = widest_ring(members, speed)
            total[mask] = sum(speed[a, b] for a, b in combinations(members, 2))
            spread[mask] = len({int(topology.numa[g]) for g in members})
    keys = np.stack((ring, total.round(6), -spread), axis=1)
    rank = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return SetRanks(sealed(rank), sealed(ring), sealed(total))


def widest_ring(members: tuple[int, ...], speed: Floats) -> float:
    """The smallest link on the best ring through these GPUs [GB/s]; of two the link between them."""
    first, *others = members
    rings = ((first, *path, first) for path in permutations(others) if path[0] <= path[-1])
    return max(min(float(speed[a, b]) for a, b in pairwise(ring)) for ring in rings)


def best_ring(members: tuple[int, ...], speed: Floats) -> tuple[int, ...]:
    """These GPUs along the best ring: the widest smallest link, then the most bandwidth, then ascending numbers."""
    first, *others = members
    rings = ((first, *path) for path in permutations(others) if not path or path[0] <= path[-1])

    def worth(ring: tuple[int, ...]) -> tuple[float, float]:
        links = [float(speed[a, b]) for a, b in pairwise((*ring, ring[0]))]
        return min(links), sum(links)

    return max(rings, key=worth)  # the first of equals


def ring_table(topology: GpuTopology) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Sets of GPUs whose best ring is not in the order of their numbers, with that ring. Raises as `set_ranks`."""
    speed, found = _speed(topology), {}
    for size in range(4, topology.gpus + 1):  # through three GPUs there is but one ring
        for members in combinations(range(topology.gpus), size):
            ring = best_ring(members, speed)
            if ring != members:
                found[members] = ring
    return found


def _speed(topology: GpuTopology) -> Floats:
    gpus, speed = topology.gpus, topology.bandwidth_gb_per_s
    if not 2 <= gpus <= MOST_GPUS:
        raise InputError(f"{topology.name} has {gpus} GPUs; this works for 2 to {MOST_GPUS}")
    if not speed.any():
        raise InputError(f"no link of {topology.name} has a known bandwidth; name the model with --gpu-type")
    return speed

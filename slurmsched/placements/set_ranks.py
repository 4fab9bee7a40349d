"""How good each set of a node's GPUs is, from the table of its class: for holding Slurm's picks against the best."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from slurmsched.errors import InputError
from slurmsched.model.columns import Bools, Floats, Int64s, sealed
from slurmsched.model.topology import GpuTopology, LinkKind
from slurmsched.placements.gpu_sets import TABLE_GPUS, domains, gb_per_s, link_weights, members_of, ring, set_table

RING_GPUS = 8  # of a table of rings: a file with a line for each set


@dataclass(frozen=True, slots=True, eq=False)
class SetRanks:
    """By mask of GPUs, 0 to 2**G - 1. rank: (2**G,) int64, larger is better among sets of one size, by the criteria of
    kernels.best_sets. ring_gb_per_s, total_gb_per_s: (2**G,) float64, smallest link and sum of links of the best ring.
    best: as SetTable.best, the best set of each size in each free set. known: (2**G,) bool, whether the link of every
    pair in the set is told: of sets of free GPUs with another one it is not known which set is the best.
    """

    rank: Int64s
    ring_gb_per_s: Floats
    total_gb_per_s: Floats
    best: NDArray[np.uint16]
    known: Bools


def unshown(topology: GpuTopology) -> list[tuple[int, int]]:
    """Pairs of which nothing is told, not even that no NVLink joins them; i < j."""
    bare = (topology.kind == LinkKind.UNKNOWN) & (topology.bandwidth_gb_per_s == 0)
    return [(i, j) for i, j in np.argwhere(np.triu(bare, 1)).tolist()]


def set_ranks(topology: GpuTopology) -> SetRanks:
    """The ranks of all sets. Raises InputError for more than 16 GPUs, or where no link has a bandwidth."""
    _check(topology, TABLE_GPUS)
    table = set_table(topology)
    spans = domains(topology.numa, members_of(topology.gpus))
    rank = np.unique(np.column_stack([table.quality, -spans]), axis=0, return_inverse=True)[1]
    smallest, total = gb_per_s(table.quality[:, 1]), gb_per_s(table.quality[:, 2])
    known = np.ones(len(rank), np.bool_)
    for i, j in unshown(topology):
        known &= (np.arange(len(rank)) & (1 << i | 1 << j)) != (1 << i | 1 << j)
    ranks = sealed(rank.reshape(-1).astype(np.int64))
    return SetRanks(ranks, sealed(smallest), sealed(total), table.best, sealed(known))


def ring_table(topology: GpuTopology) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Sets of GPUs whose best ring is better than that of their numbers' order, with it. Raises as `set_ranks`, for
    more than 8 GPUs."""
    _check(topology, RING_GPUS)
    weight = link_weights(topology)
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    for size in range(4, topology.gpus + 1):  # through three GPUs there is but one ring
        for members in combinations(range(topology.gpus), size):
            best = ring(topology, members)
            if _worth(weight, best) > _worth(weight, members):
                found[members] = best
    return found


def _worth(weight: Int64s, order: tuple[int, ...]) -> tuple[int, int]:
    """Smallest link of a ring, then the sum of its links."""
    links = [int(weight[a, b]) for a, b in pairwise((*order, order[0]))]
    return min(links), sum(links)


def _check(topology: GpuTopology, most: int) -> None:
    if not 2 <= topology.gpus <= most:
        raise InputError(f"{topology.name} has {topology.gpus} GPUs; this works for 2 to {most}")
    if not topology.bandwidth_gb_per_s.any():
        raise InputError(f"no link of {topology.name} has a known bandwidth; name the model with --gpu-type")

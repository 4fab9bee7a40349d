"""SCHED2: near GPUs for jobs that need them, fragments for the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.model.gpu_masks import bit_counts, lowest_bits
from slurmsched.placements.gang_walk import Gang, GangRequest, OfferedGpus, by_node, place_gangs, sensitive_to_topology


@dataclass(frozen=True, slots=True)
class Sched2:
    """The degree of locality by what a job gains from it: sensitive jobs consolidated, the others on fragments.

    A sensitive job gets the fewest nodes, fullest first, and waits while they are not to be had. Another one is
    gathered from the smallest free rests of nodes, over as many nodes as that takes. So whole nodes stay free for
    sensitive jobs.

    insensitive: partitions whose jobs are not sensitive; a `topo` hint says so for one job.

    Not reproduced: the paper learns which job goes first and which degree of locality it gets. It does so by deep
    reinforcement learning, without public code or weights. Here the ranking decides the one and the hint the other.
    Source: Luan et al. (SCHED2), GLOBECOM '19.
    """

    insensitive: tuple[str, ...] = ()

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold which GPUs now; every gang whole."""

        def by_need(ask: GangRequest, offer: OfferedGpus) -> Gang | None:
            if not sensitive_to_topology(snapshot, ask.row, self.insensitive):
                return gathered(ask, offer)
            order = np.argsort(bit_counts(offer.free), kind="stable")
            return by_node(ask, offer, order, lambda _, free, gpus: lowest_bits(free, gpus))

        return place_gangs(snapshot, ranking, by_need, whole_parts=False)


def gathered(ask: GangRequest, offer: OfferedGpus) -> Gang | None:
    """The gang from the nodes with the fewest GPUs it can have, whatever their number; None if all are too few."""
    missing, taken = ask.gpus, []
    for node in np.lexsort((np.arange(len(offer.room)), offer.room)).tolist():
        gpus = min(missing, int(offer.room[node]))
        if gpus > 0:
            taken.append((node, lowest_bits(int(offer.free[node]), gpus)))
            missing -= gpus
    if missing or not taken:
        return None
    taken.sort()
    return np.array([node for node, _ in taken], np.int64), np.array([mask for _, mask in taken], np.int64)

"""Random: any nodes that fit, any GPUs on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.placements.gang_walk import Ask, Gang, Offer, by_node, place_gangs


@dataclass(frozen=True, slots=True)
class AnyFit:
    """A gang on nodes drawn at random among those that hold its parts, and there on GPUs drawn at random.

    Lots are drawn by snapshot.seed and job id: the same snapshot gives the same placement. The baseline that every
    other placement must beat.
    """

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold which GPUs now; every gang whole."""

        def drawn(ask: Ask, offer: Offer) -> Gang | None:
            chance = np.random.default_rng((abs(snapshot.seed), ask.job_id))

            def any_of(_: int, free: int, gpus: int) -> int:
                members = [g for g in range(free.bit_length()) if free >> g & 1]
                return sum(1 << int(g) for g in chance.permutation(members)[:gpus])

            return by_node(ask, offer, chance.permutation(len(offer.free)), any_of)

        return place_gangs(snapshot, ranking, drawn)

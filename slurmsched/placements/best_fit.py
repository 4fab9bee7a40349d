"""Best fit: the node that the job leaves fullest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.placements.gang_walk import Ask, Gang, Offer, by_node, lowest, place_gangs
from slurmsched.placements.gpu_stock import bit_counts


@dataclass(frozen=True, slots=True)
class BestFit:
    """A gang on the nodes with the fewest free GPUs that hold its parts, and there on the lowest free indices.

    Links and fabric are not looked at: a baseline. Source: best fit of bin packing, Johnson et al., SIAM J.
    Computing 3(4), 1974.
    """

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold which GPUs now; every gang whole."""
        return place_gangs(snapshot, ranking, _fullest)


def _fullest(ask: Ask, offer: Offer) -> Gang | None:
    order = np.argsort(bit_counts(offer.free), kind="stable")
    return by_node(ask, offer, order, lambda _, free, gpus: lowest(free, gpus))

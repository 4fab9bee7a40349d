"""Spread: the emptiest node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.placements.gang_walk import Ask, Gang, Offer, by_node, lowest, place_gangs
from slurmsched.placements.gpu_stock import bit_counts


@dataclass(frozen=True, slots=True)
class Spread:
    """A gang on the nodes with the most free GPUs, and there on the lowest free indices.

    Jobs meet as few others as can be, and whole nodes do not stay free: a baseline. Source: Slurm's SelectType option
    LLN (least loaded nodes) and the default of Kubernetes.
    """

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold which GPUs now; every gang whole."""
        return place_gangs(snapshot, ranking, _emptiest)


def _emptiest(ask: Ask, offer: Offer) -> Gang | None:
    order = np.argsort(-bit_counts(offer.free), kind="stable")
    return by_node(ask, offer, order, lambda _, free, gpus: lowest(free, gpus))

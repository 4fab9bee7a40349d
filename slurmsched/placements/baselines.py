"""Best fit: the node that the job leaves fullest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.model.gpu_masks import bit_counts, lowest_bits
from slurmsched.placements.gang_walk import Chooser, Gang, GangRequest, OfferedGpus, by_node, place_gangs
from slurmsched.resources.placeable_gpus import PlaceableGpus


@dataclass(frozen=True, slots=True)
class BestFit:
    """A gang on the nodes with the fewest free GPUs that hold its parts, and there on the lowest free indices.

    Links and fabric are not looked at: a baseline. Source: best fit of bin packing, Johnson et al., SIAM J.
    Computing 3(4), 1974.
    """

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold which GPUs now; every gang whole."""
        return place_gangs(snapshot, ranking, _fullest)

    def chooser(self, snapshot: Snapshot, placeable: PlaceableGpus) -> Chooser:
        """Of one gang by what is free: see GangPlacement."""
        return _fullest


def _fullest(ask: GangRequest, offer: OfferedGpus) -> Gang | None:
    order = np.argsort(bit_counts(offer.free), kind="stable")
    return by_node(ask, offer, order, lambda _, free, gpus: lowest_bits(free, gpus))


# Spread: the emptiest node.


@dataclass(frozen=True, slots=True)
class Spread:
    """A gang on the nodes with the most free GPUs, and there on the lowest free indices.

    Jobs meet as few others as can be, and whole nodes do not stay free: a baseline. Source: Slurm's SelectType option
    LLN (least loaded nodes) and the default of Kubernetes.
    """

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold which GPUs now; every gang whole."""
        return place_gangs(snapshot, ranking, _emptiest)

    def chooser(self, snapshot: Snapshot, placeable: PlaceableGpus) -> Chooser:
        """Of one gang by what is free: see GangPlacement."""
        return _emptiest


def _emptiest(ask: GangRequest, offer: OfferedGpus) -> Gang | None:
    order = np.argsort(-bit_counts(offer.free), kind="stable")
    return by_node(ask, offer, order, lambda _, free, gpus: lowest_bits(free, gpus))


# Random nodes and GPUs.


@dataclass(frozen=True, slots=True)
class AnyFit:
    """A gang on nodes drawn at random among those that hold its parts, and there on GPUs drawn at random.

    Lots are drawn by snapshot.seed and job id: the same snapshot gives the same placement. The baseline that every
    other placement must beat.
    """

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold which GPUs now; every gang whole."""

        def drawn(ask: GangRequest, offer: OfferedGpus) -> Gang | None:
            chance = np.random.default_rng((abs(snapshot.seed), ask.job_id))

            def any_of(_: int, free: int, gpus: int) -> int:
                members = [g for g in range(free.bit_length()) if free >> g & 1]
                return sum(1 << int(g) for g in chance.permutation(members)[:gpus])

            return by_node(ask, offer, chance.permutation(len(offer.free)), any_of)

        return place_gangs(snapshot, ranking, drawn)


# Scattered: wherever GPUs are free.


@dataclass(frozen=True, slots=True)
class Scattered:
    """A gang on any GPUs that are free: no gang waits because they are on too many nodes.

    It takes all of the node with the most free GPUs, then of the next, until it has enough. On each node it takes the
    lowest free indices. Meant for elastic jobs, whose sizes seldom fill nodes.
    compact: a gang that one node holds goes to the one that it leaves fullest, so that large holes stay.
    Source: the released simulator of Qiao et al. (Pollux), OSDI '21, for its Optimus and Tiresias; compact is ours.
    """

    compact: bool = False

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold which GPUs now; every gang whole."""
        return place_gangs(snapshot, ranking, self._anywhere, whole_parts=False)

    def _anywhere(self, ask: GangRequest, offer: OfferedGpus) -> Gang | None:
        room = offer.room
        fits = np.flatnonzero(room >= ask.gpus)
        order = np.argsort(-room, kind="stable")
        if self.compact and len(fits):
            order = fits[np.argsort(room[fits], kind="stable")]
        given = np.diff(np.minimum(np.cumsum(room[order]), ask.gpus), prepend=0)
        if given.sum() < ask.gpus:
            return None
        chosen = sorted((node, gpus) for node, gpus in zip(order.tolist(), given.tolist(), strict=True) if gpus)
        masks = [lowest_bits(int(offer.free[node]), gpus) for node, gpus in chosen]
        return np.array([node for node, _ in chosen], np.int64), np.array(masks, np.int64)

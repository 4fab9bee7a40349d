"""Nodes of a job that comes and finds room, so that a replay needs no cycle for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.gpu_masks import bit_counts, low_bits
from slurmsched.placements.cells import CellPlacement
from slurmsched.placements.gang_walk import Chooser, GangRequest, OfferedGpus
from slurmsched.placements.stepwise_placement import GangPlacement
from slurmsched.protocols import Placement
from slurmsched.resources.eligibility import node_pools
from slurmsched.resources.placeable_gpus import PlaceableGpus
from slurmsched.sim.ideal.overtaking import waits_for_room


@dataclass(frozen=True, slots=True, eq=False)
class ArrivalNodes:
    """A NodeFinder by the placement itself, for nodes that all jobs may have and whose GPUs are only counted.

    capacity: (N,) GPUs of each node.
    """

    choose: Chooser
    usable: Bools
    capacity: Int64s

    @classmethod
    def of(cls, placement: Placement, snapshot: Snapshot) -> ArrivalNodes | None:
        """None for a placement that does not choose by what is free alone. The snapshot must have jobs."""
        if not waits_for_room(placement):
            return None
        placeable = PlaceableGpus.of(snapshot)
        if isinstance(placement, GangPlacement):
            choose = placement.chooser(snapshot, placeable)
        elif isinstance(placement, CellPlacement):
            choose = placement.opportunistic_chooser(snapshot, placeable)
        else:
            return None
        return cls(choose, node_pools(snapshot)[1][0], snapshot.nodes.gpus.astype(np.int64))

    def find(self, gpus: int, nodes: int, free: Int64s) -> tuple[Int64s, Int64s] | None:
        """As NodeFinder."""
        ask = GangRequest.of(0, 0, gpus, nodes, (0.0, 0.0), self.usable, self.capacity)
        gang = None if ask is None else self.choose(ask, OfferedGpus(low_bits(free), free))
        return None if gang is None else (gang[0], bit_counts(gang[1]))

"""Topology-aware: distance between a job's GPUs and jobs beside it on its sockets slow it down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.model import Assignments, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.placements import topology_aware as placement
from slurmsched.placements.topology_aware import LEAST_COST
from slurmsched.policies.checks import check_words
from slurmsched.replay.physics.costs import Costs, caring, check_speed
from slurmsched.replay.physics.levels import Level, Place, class_at, members, nearest_levels, places

_COSTS = placement.TopologyAware()


@dataclass(frozen=True, slots=True)
class TopologyAware(Costs):
    """Run time grows with the normalised cost of communication, and by a factor beside another job on a socket.

    across_sockets: speed at the largest cost, two GPUs of two sockets; between it and 1 the run time follows the cost
    (see placements.topology_aware). beside: speed of a job of several GPUs while another job has GPUs on a socket of
    its own, however many: the paper takes the mean over pairs. Defaults: AlexNet, batch size 1, on 2 P100, in the
    profile published with the paper; beside is its mean over the eight programs beside it. A gang on several nodes
    that would fit on one has the largest cost; the paper has none. insensitive: words in names of models whose
    distance does not count (GoogLeNet's run times there differ by 1 %). Raises ConfigError for speeds outside 0 to 1.
    Source: Amaral et al., SC '17, sections 3 and 4.
    """

    shared: ClassVar[bool] = True

    across_sockets: float = 0.80
    beside: float = 0.80
    insensitive: tuple[str, ...] = ("googlenet",)

    def __post_init__(self) -> None:
        check_speed("across_sockets", self.across_sockets)
        check_speed("beside", self.beside)
        check_words("insensitive", self.insensitive, "physics")

    def speed(self, snapshot: Snapshot, held: Assignments) -> Floats:
        """See protocols.Physics."""
        far, near = self._far(snapshot, held), caring(snapshot, held.rows, self.insensitive)
        longer = 1.0 + np.where(near, far, 0.0) * (1.0 / self.across_sockets - 1.0)
        return np.where(_disturbed(snapshot, held), self.beside, 1.0) / longer

    def _far(self, snapshot: Snapshot, held: Assignments) -> Floats:
        """Cost of communication of each job, 0 at the best set of its size, 1 at the worst. (R,)."""
        fits = nearest_levels(snapshot, held.rows) <= Level.NODE
        return np.array([_cost(snapshot, place, bool(fit)) for place, fit in zip(places(held), fits, strict=True)])


def _cost(snapshot: Snapshot, place: Place, fits_a_node: bool) -> float:
    nodes, masks = place
    if len(nodes) > 1:
        return float(fits_a_node)
    known = class_at(snapshot.topology, nodes[0])
    if known is None:
        return 0.0
    return (min(_COSTS.communication(known, members(masks[0])), 1.0) - LEAST_COST) / (1.0 - LEAST_COST)


def _disturbed(snapshot: Snapshot, held: Assignments) -> np.ndarray:
    """Jobs of several GPUs that share a socket with another job. (R,) bool."""
    on: dict[tuple[int, int], list[int]] = {}  # node and socket -> jobs, by their place in held
    for job, (nodes, masks) in enumerate(places(held)):
        for socket in {s for node, mask in zip(nodes, masks, strict=True) for s in _sockets(snapshot, node, mask)}:
            on.setdefault(socket, []).append(job)
    found = np.zeros(len(held.rows), np.bool_)
    for jobs in on.values():
        found[jobs] |= len(jobs) > 1
    return found & (snapshot.jobs.gpus[held.rows] > 1)


def _sockets(snapshot: Snapshot, node: int, mask: int) -> set[tuple[int, int]]:
    """The sockets of these GPUs; a node of unknown wiring is one socket."""
    known = class_at(snapshot.topology, node)
    return {(node, int(known.numa[g]) if known else 0) for g in members(mask)}

"""The reservations of a simulated slurmctld: which nodes are kept for which user's jobs, and when."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isnan

import numpy as np

from slurmsched.model.columns import Bools, Floats
from slurmsched.model.hostlists import expand_hostlist
from slurmsched.model.operations import Reservations
from slurmsched.model.plan import MoveReservation, Reserve
from slurmsched.sim.cluster_layout import ClusterLayout

_TAKEN = "Reservation name is invalid or already used"


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedReservation:
    """nodes: (N,) bool. From start_s to end_s [s] only jobs of the user that name it start there."""

    name: str
    node_list: str
    nodes: Bools
    user: str
    start_s: float
    end_s: float


class SimulatedReservations:
    """Reservations by name, with the flags that slurmsched sets: IGNORE_JOBS (those that run there go on) and
    NO_HOLD_JOBS_AFTER (its end holds nobody). named: row of the job table -> the reservation it names, jobs that are
    over included; nothing that matters looks at those.
    """

    def __init__(self, layout: ClusterLayout) -> None:
        self._layout = layout
        self._names = frozenset(node.name for node in layout.nodes)
        self._made: dict[str, SimulatedReservation] = {}
        self.named: dict[int, str] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._made

    def __getitem__(self, name: str) -> SimulatedReservation:
        return self._made[name]

    def refusal(self, step: Reserve | MoveReservation, now_s: float) -> str:
        """Why slurmctld would not make or change it, "" if it would."""
        if isinstance(step, MoveReservation) != (step.name in self._made):
            return "Requested reservation is invalid" if isinstance(step, MoveReservation) else _TAKEN
        if (
            isinstance(step, MoveReservation)
            and self._made[step.name].start_s <= now_s
            and (step.nodes or step.start_s > now_s)
        ):
            return "Reservation has already begun"
        try:
            wanted = self._wanted(step)
        except ValueError:
            return "Invalid node name specified"
        if not now_s < wanted.end_s > wanted.start_s:
            return "Invalid time specified"
        others = (each for each in self._made.values() if each.name != step.name)
        taken = (each for each in others if each.start_s < wanted.end_s and wanted.start_s < each.end_s)
        return "Requested nodes are busy" if any((each.nodes & wanted.nodes).any() for each in taken) else ""

    def put(self, step: Reserve | MoveReservation) -> SimulatedReservation:
        """Keep the nodes. The step would not be refused."""
        made = self._made[step.name] = self._wanted(step)
        return made

    def _wanted(self, step: Reserve | MoveReservation) -> SimulatedReservation:
        """As the step wants it. Raises ValueError for nodes that are not there."""
        if isinstance(step, MoveReservation):
            now = self._made[step.name]
            now = replace(now, node_list=step.nodes, nodes=self._mask(step.nodes)) if step.nodes else now
            return replace(now, start_s=now.start_s if isnan(step.start_s) else step.start_s, end_s=step.end_s)
        return SimulatedReservation(step.name, step.nodes, self._mask(step.nodes), step.user, step.start_s, step.end_s)

    def _mask(self, nodes: str) -> Bools:
        hosts = expand_hostlist(nodes)
        if not hosts or not self._names.issuperset(hosts):
            raise ValueError(f"no such nodes: {nodes}")
        return self._layout.mask(hosts)

    def drop(self, name: str) -> None:
        """It is no more, and no job names it."""
        del self._made[name]
        self.named = {row: named for row, named in self.named.items() if named != name}

    def over(self, now_s: float) -> list[str]:
        """Names of those that have ended."""
        return [name for name, booking in self._made.items() if booking.end_s <= now_s]

    def ahead(self, besides: str = "") -> tuple[Floats, Bools]:
        """Begin and end (B, 2) [s] of all but one, and their nodes (B, N): what keeps other jobs out."""
        others = [booking for name, booking in self._made.items() if name != besides]
        times = np.array([(booking.start_s, booking.end_s) for booking in others], np.float64).reshape(-1, 2)
        nodes = np.array([booking.nodes for booking in others], np.bool_).reshape(-1, len(self._layout.nodes))
        return times, nodes

    def table(self) -> Reservations:
        """As a reader of a live Slurm gives them."""
        rows = [self._made[name] for name in sorted(self._made)]
        texts = {name: [getattr(row, name) for row in rows] for name in ("name", "node_list")}
        times = {name: [getattr(row, name) for row in rows] for name in ("start_s", "end_s")}
        return Reservations.build(len(rows), {**texts, **times, "users": [row.user for row in rows],
                                              "flags": ["IGNORE_JOBS,NO_HOLD_JOBS_AFTER"] * len(rows)})  # fmt: skip

"""The walk over waiting jobs that finds each a node of the GPU type that the policy wants for it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from slurmsched.model import NodeState, Pin, Ranking, Snapshot, Wants
from slurmsched.model.columns import Bools
from slurmsched.model.hostlist import expand
from slurmsched.placements.candidates import eligible
from slurmsched.planning.bounds import UnknownForm, allowed_nodes
from slurmsched.policies.gpu_market import gpu_type


@dataclass(slots=True, eq=False)
class TypeWalk:
    """Waiting jobs in their order, each taking the node that is left fullest of those of its type with room now.

    mine: lists of ours that jobs have now, by row. chosen, why: the node of each job that gets one, and the reason.
    """

    snapshot: Snapshot
    mine: dict[int, Pin]
    chosen: dict[int, str] = field(default_factory=dict)
    why: dict[int, str] = field(default_factory=dict)

    def go(self, ranking: Ranking, wanted: Bools, candidates: int) -> None:
        """Look at so many waiting jobs, most urgent first. wanted: (N,) bool, those that may be given a node."""
        nodes = self.snapshot.nodes
        free = {"gpus": (nodes.gpus - nodes.gpus_used).astype(np.int64), "cpus": nodes.cpus - nodes.cpus_used,
                "memory_mib": nodes.memory_mib - nodes.memory_used_mib}  # fmt: skip
        types = np.array([gpu_type(text) if "," not in text else "" for text in nodes.gpu_types])
        rows = ranking.order[(wanted & eligible(self.snapshot))[ranking.order]]
        for row in rows[:candidates].tolist():
            want = _type(ranking.wants, row)
            room = self._room(row, free) & (types == want)
            if want and room.any():
                self._take(row, want, self._chosen(row, room, free["gpus"]), free)

    def _room(self, row: int, free: dict[str, np.ndarray]) -> Bools:  # type: ignore[type-arg]
        """Nodes that the job may have and that have what it asks for left; none where that cannot be told. (N,)."""
        jobs, nodes = self.snapshot.jobs, self.snapshot.nodes
        try:
            allowed = allowed_nodes(self.snapshot, row) & ~nodes.is_state(NodeState.RESERVED)
        except UnknownForm:
            return np.zeros(len(nodes), np.bool_)
        for name, left in free.items():
            allowed &= left >= float(getattr(jobs, name)[row])
        return allowed

    def _chosen(self, row: int, room: Bools, gpus: np.ndarray) -> int:  # type: ignore[type-arg]
        """The node that it has already, else the one with the fewest GPUs left."""
        kept = self.mine.get(row)
        own = room & self.snapshot.nodes.name.isin(expand(kept.nodes)) if kept else room
        among = np.flatnonzero(own if own.any() else room)
        return int(among[np.argmin(gpus[among])])

    def _take(self, row: int, want: str, node: int, free: dict[str, np.ndarray]) -> None:  # type: ignore[type-arg]
        for name, left in free.items():
            left[node] -= type(left[node])(getattr(self.snapshot.jobs, name)[row])
        self.chosen[row] = self.snapshot.nodes.name[node]
        self.why[row] = f"the policy wants it on {want}, of which there is room on this node"


def typeless(snapshot: Snapshot, wants: Wants | None) -> Bools:
    """Pending jobs whose request names no GPU type, and for which the policy wants one. (N,) bool."""
    jobs = snapshot.jobs
    if wants is None or wants.gpu_type is None:
        return np.zeros(len(jobs), np.bool_)
    named = jobs.gpu_request.map(lambda text: any(part.count(":") == 2 for part in text.split(",")), np.bool_)
    return jobs.pending & (jobs.gpus > 0) & ~named & ~wants.gpu_type.isin([""])


def _type(wants: Wants | None, row: int) -> str:
    return wants.gpu_type[row] if wants is not None and wants.gpu_type is not None else ""

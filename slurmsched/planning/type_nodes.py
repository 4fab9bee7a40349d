"""A node for a waiting job, of the GPU type that the policy wants for it."""

from __future__ import annotations

import numpy as np

from slurmsched.model import Pin, Snapshot, Wants
from slurmsched.model.columns import Bools
from slurmsched.model.hostlist import expand
from slurmsched.planning.bounds import UnknownForm, allowed_nodes
from slurmsched.planning.stock import Need
from slurmsched.policies.gpu_market import gpu_type


def typeless(snapshot: Snapshot, wants: Wants | None) -> Bools:
    """Pending jobs whose request names no GPU type, and for which the policy wants one. (N,) bool."""
    jobs = snapshot.jobs
    if wants is None or wants.gpu_type is None:
        return np.zeros(len(jobs), np.bool_)
    named = jobs.gpu_request.map(lambda text: any(part.count(":") == 2 for part in text.split(",")), np.bool_)
    return jobs.pending & (jobs.gpus > 0) & ~named & ~wants.gpu_type.isin([""])


def node_of_type(snapshot: Snapshot, row: int, want: str, kept: Pin | None, among: Bools) -> int:
    """Row of the node that is left fullest of those of this type with room now, -1 if there is none. A list of ours
    that is as good stays: kept. among: (N,) bool, the only ones to choose from."""
    nodes = snapshot.nodes
    room = among & _room(snapshot, row)
    room &= nodes.gpu_types.map(lambda text: "," not in text and gpu_type(text) == want, np.bool_)
    if not room.any():
        return -1
    own = room & nodes.name.isin(expand(kept.nodes)) if kept else room
    good = np.flatnonzero(own if own.any() else room)
    return int(good[np.argmin((nodes.gpus - nodes.gpus_used)[good])])


def _room(snapshot: Snapshot, row: int) -> Bools:
    """Nodes that the job may have and that have what it asks for left; none where that cannot be told. (N,) bool."""
    try:
        return allowed_nodes(snapshot, row) & Need.of(snapshot, row).fits_free(snapshot)
    except UnknownForm:
        return np.zeros(len(snapshot.nodes), np.bool_)

"""What jobs hold, in a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slurmsched.model import Assignments, Snapshot, frozen
from slurmsched.model.gpu_topology import Fabric, SiteTopology
from slurmsched.testing import snapshot
from slurmsched.topology.gpu_links import machines

Place = dict[int, int]  # node row -> mask


def holding(places: Sequence[Place], nodes: Any = "4x8", machine: str = "dgx-1v", **job: Any) -> tuple[Snapshot, Any]:
    """A snapshot in which job i holds places[i], and that as assignments. machine: what all nodes are, "" = unknown."""
    gpus = [sum(mask.bit_count() for mask in place.values()) for place in places]
    rows = [{"state": "RUNNING", "gpus": count, **job} for count in gpus]
    made = snapshot(rows, nodes)
    given = snapshot(rows, nodes, topology=wired(machine, len(made.nodes)))
    flat = [(node, mask) for place in places for node, mask in sorted(place.items())]
    count = np.array([len(place) for place in places], np.int64)
    node, mask = (np.array(column, np.int64) for column in zip(*flat, strict=True))
    held = np.array([each.bit_count() for each in mask.tolist()], np.int64)
    return given, Assignments(np.arange(len(places)), np.cumsum(count) - count, count, node, held, mask)


def wired(machine: str, nodes: int, leaves: Sequence[int] = ()) -> SiteTopology:
    """So many nodes of one machine. leaves: the leaf switch of each node, () = no fabric."""
    if not machine:
        return SiteTopology()
    cell = frozen(leaves, np.int64)
    return SiteTopology((machines()[machine],), frozen(np.zeros(nodes), np.int64), Fabric(), cell)

"""A small site: two DGX-1V nodes and one of bridged pairs, of known wiring, in a tree of two switches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slurmsched.model import Fabric, Labels, Site, SiteTopology, Snapshot, frozen
from slurmsched.testing.builders import snapshot
from slurmsched.topology.gpu_links import machines

MESH, PAIRS = machines()["dgx-1v"], machines()["bridged-pairs"]
FABRIC = Fabric("tree", Labels.of(["leaf", "spine"]), frozen([1, 2], np.int8), frozen([1, -1], np.int32),
                Labels.of(["n1", "n2", "n3"]), frozen([0, 0, 1], np.int32))  # fmt: skip
TOPOLOGY = SiteTopology((MESH, PAIRS), frozen([0, 0, 1], np.int64), FABRIC, frozen([0, 0, 1], np.int64))


def node(name: str, *, mask: int = 0, **columns: Any) -> dict[str, Any]:
    """A node of eight GPUs, 64 CPUs and 512 GB, of which those in the mask are held."""
    row = {"name": name, "gpus": 8, "gpu_types": "gpu:v100:8", "cpus": 64, "memory_mib": 512_000.0}
    return row | {"gpus_used": mask.bit_count(), "gpu_mask_used": mask, "state": "MIXED" if mask else "IDLE"} | columns


Row = dict[str, Any]


def site(nodes: Sequence[Row], jobs: Sequence[Row] = (), *, wired: bool = True, defaults: str = "",
         settings: dict[str, str] | None = None, **others: Any) -> Snapshot:  # fmt: skip
    """A snapshot of these nodes, at most n1, n2 and n3, in the partition "gpu" whose limit is two days."""
    partition = {
        "name": "gpu",
        "default": True,
        "max_time_s": 172_800.0,
        "default_time_s": 3600.0,
        "defaults": defaults,
    }
    others.setdefault("partitions", [partition])
    told = Site("test", "26.05.5", settings={"SelectTypeParameters": "CR_CORE_MEMORY"} | (settings or {}))
    classes = frozen(TOPOLOGY.node_class[: len(nodes)], np.int64), frozen(TOPOLOGY.cell[: len(nodes)], np.int64)
    topology = SiteTopology(TOPOLOGY.classes, classes[0], FABRIC, classes[1]) if wired else SiteTopology()
    return snapshot(jobs, list(nodes), site=told, topology=topology, **others)

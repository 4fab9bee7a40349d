"""Clusters of DGX-1V nodes of which some GPUs are free, for the tests of pins and of placement quality."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from slurmsched.model import GpuSelection, JobGpuRequest, SetNodeList, Site, SiteTopology, Snapshot, frozen
from slurmsched.model.overrides import OverrideState
from slurmsched.planning.job_overrides import NODE_LIST_FIELDS, SIZE_FIELDS, JobOverrides
from slurmsched.planning.proposals import Proposal
from slurmsched.testing import snapshot
from slurmsched.topology.fabric_files import read_topology
from slurmsched.topology.gpu_links import machines
from slurmsched.topology.slurm_selection import SlurmNode

MESH = machines()["dgx-1v"]
SOCKETS, CORES = 2, 32
NOW_S = 1_000.0
HINT = "slurmsched: topo=nvlink"


def list_overrides(
    job_id: int, nodes: str, base: str = "", *, submit_s: float = NOW_S - 60, since_s: float = NOW_S, **others: Any
) -> JobOverrides:
    """Of a job that has this node list by us. values: lists meant for it, this one without it. request: of the GPU
    request."""
    values, request = others.pop("values", (nodes,)), others.pop("request", {})
    made = JobOverrides.blank(NODE_LIST_FIELDS, job_id, submit_s, since_s)
    return made.with_nodes(base=base, sent=nodes, values=values).with_request(**request).with_all(**others)


def size_override(
    gpus: str, *requests: str, job_id: int = 1, submit_s: float = 900.0, since_s: float = NOW_S, **others: Any
) -> JobOverrides:
    """Of a job that asks for this by us, and for gpu:2 by its user. requests: those meant for it."""
    made = JobOverrides.blank(SIZE_FIELDS, job_id, submit_s, since_s)
    return made.with_request(base="gpu:2", sent=gpus, values=requests or (gpus,)).with_all(**others)


ABANDONED = {"state": OverrideState.ABANDONED}


def true_links() -> list[list[int]]:
    """The Links rows that a site writes by hand: the lanes, -1 in its own place."""
    rows = MESH.lanes.astype(int).tolist()
    return [[-1 if a == b else lanes for b, lanes in enumerate(row)] for a, row in enumerate(rows)]


def slurm_node() -> SlurmNode:
    near = [range(CORES) if g < 4 else range(CORES, 2 * CORES) for g in range(8)]
    return SlurmNode.build(near, true_links(), sockets=SOCKETS, cores_per_socket=CORES)


def wait(job_id: int, gpus: int = 2, comment: str = HINT, **columns: Any) -> dict[str, Any]:
    row = {"job_id": job_id, "gpus": gpus, "cpus": gpus, "comment": comment, "submit_s": NOW_S - 60, "memory_mib": 1.0}
    return row | {"gpu_request": f"gpu:{gpus}", "user": "alice", "eligible_s": NOW_S - 60} | columns


def gpu_request(job_id: int, gpus: int = 2, **values: Any) -> JobGpuRequest:
    plain = {"form": "gpus-per-node", "count": gpus, "tasks": 1, "cpus_per_task": gpus}
    return JobGpuRequest(job_id, NOW_S - 60, **{**plain, **values})


def mesh_of(nodes: int) -> SiteTopology:
    return SiteTopology((MESH,), frozen([0] * nodes, np.int64), cell=frozen([-1] * nodes, np.int64))


def on_fabric(at: Snapshot, text: str) -> Snapshot:
    """The same on nodes of these switches or blocks, which are Slurm's own."""
    fabric = read_topology(text).fabric
    home = dict(zip(fabric.node, fabric.node_cell.tolist(), strict=True))
    cell = frozen([home.get(name, -1) for name in at.nodes.name], np.int64)
    fabrics = {"fabric": fabric, "cell": cell, "slurm_fabric": fabric, "slurm_cell": cell}
    return replace(at, topology=replace(at.topology, **fabrics))


def cluster(
    jobs: Sequence[Mapping[str, Any]],
    free: Sequence[Sequence[int]],
    gpu_requests: Sequence[JobGpuRequest] | None = None,
    **others: Any,
) -> Snapshot:
    """free: for each node n1, n2, ... its free GPUs; each of the others is held by a job, with a core near it."""
    rows, held, cores = [], [], []
    for at, gpus in enumerate(free):
        busy = [g for g in range(8) if g not in gpus]
        rows += [{"job_id": 1000 + 10 * at + g, "gpus": 1, "state": "RUNNING", "start_s": 1.0, "cpus": 1} for g in busy]
        held += [{"job_id": 1000 + 10 * at + g, "node": f"n{at + 1}", "gpus": 1, "gpu_mask": 1 << g} for g in busy]
        cores.append(tuple(CORES - sum(g // 4 == s for g in busy) for s in range(SOCKETS)))
    made = snapshot([*jobs, *rows], f"{len(free)}x8", now_s=NOW_S, allocations=held, site=Site(version="26.05.5"))
    if gpu_requests is None:
        gpu_requests = [gpu_request(int(job["job_id"]), int(job["gpus"])) for job in jobs]
    gpu_selection = GpuSelection(
        (slurm_node(),), frozen([0] * len(free), np.int64), tuple(cores), (26, 5), tuple(gpu_requests)
    )
    return replace(made, topology=mesh_of(len(free)), gpu_selection=gpu_selection, **others)


def lists(found: Proposal) -> dict[int, str]:
    return {action.job_id: action.new for action in found.actions if isinstance(action, SetNodeList)}


def rules(found: Proposal) -> dict[int, str]:
    return {refusal.job_id: refusal.rule for refusal in found.refusals}

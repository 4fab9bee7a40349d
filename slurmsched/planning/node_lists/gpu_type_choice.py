"""Nodes for a waiting job, of the GPU types that the policy chose for it."""

from __future__ import annotations

import numpy as np

from slurmsched.model import JobChanges, JobGpuRequest, Snapshot
from slurmsched.model.columns import Bools
from slurmsched.model.hints import parse_hints
from slurmsched.model.hostlists import expand_hostlist
from slurmsched.model.overrides import types_of
from slurmsched.resources.by_type import only_type
from slurmsched.resources.eligibility import allowed_nodes
from slurmsched.resources.free import JobRequirements
from slurmsched.resources.reservation_limits import UnknownEligibility


def without_gpu_type(snapshot: Snapshot, changes: JobChanges | None) -> Bools:
    """Pending jobs whose request names no GPU type, and for which the policy wants one. (N,) bool."""
    jobs = snapshot.jobs
    if changes is None or changes.gpu_type is None:
        return np.zeros(len(jobs), np.bool_)
    named = jobs.gpu_request.map(lambda text: any(part.count(":") == 2 for part in text.split(",")), np.bool_)
    return jobs.pending & (jobs.gpus > 0) & ~named & ~changes.gpu_type.isin([""])


def nodes_by_type(snapshot: Snapshot, changes: JobChanges | None) -> dict[int, dict[str, int]]:
    """By row of those: how many nodes of each type each is to have.

    A job of one node has one type. A gang has several types if its hint says that it can, and its GPUs of each type
    fill nodes evenly. Slurm gives every node of a job the same number.
    """
    jobs, found = snapshot.jobs, dict[int, dict[str, int]]()
    if changes is None or changes.gpu_type is None:
        return found
    for row in np.flatnonzero(without_gpu_type(snapshot, changes)).tolist():
        nodes, gpus = int(jobs.nodes[row]), int(jobs.gpus[row])
        several = {} if changes.gpus_by_type is None else types_of(changes.gpus_by_type[row])
        if nodes == 1:
            found[row] = {changes.gpu_type[row]: 1}
        elif sum(several.values()) == gpus and gpus % max(nodes, 1) == 0 and parse_hints(jobs.comment[row]).mixed:
            shares = {name: divmod(count, gpus // nodes) for name, count in several.items()}
            if not any(rest for _, rest in shares.values()):
                found[row] = {name: count for name, (count, _) in shares.items()}
    return found


def type_refusal(gpu_request: JobGpuRequest | None, nodes: int) -> str:
    """Why a job's request rules out a node list by GPU type; "" = it does not. nodes: how many it should have."""
    if gpu_request is None:
        return "" if nodes == 1 else "what it asks for was not read"
    if gpu_request.nodes != nodes:
        return f"it asks for {gpu_request.nodes or 'a not fixed number of'} nodes"
    if nodes == 1:
        return ""
    if gpu_request.bars:
        return f"it asks for {' and '.join(gpu_request.bars)}"
    return (
        ""
        if gpu_request.even and not gpu_request.tasks % nodes
        else "how much Slurm gives it on each of its nodes is not known"
    )


def nodes_of_types(snapshot: Snapshot, row: int, want: dict[str, int], has: str, among: Bools) -> list[int]:
    """Rows of that many nodes of each type, those left fullest of those with room now, ascending; none if there are too
    few. has: a node list of ours, which stays if it is as good; "" = none. among: (N,) bool, those to choose from."""
    nodes, found = snapshot.nodes, list[int]()
    types = nodes.gpu_types.map(only_type, object)
    room = among & _nodes_with_room(snapshot, row)
    own = nodes.name.isin(expand_hostlist(has)) if has else np.zeros(len(nodes), np.bool_)
    for name, count in want.items():
        good = np.flatnonzero(room & (types == name))
        order = np.lexsort(((nodes.gpus - nodes.gpus_used)[good], ~own[good]))
        found += good[order[:count]].tolist()
    return sorted(found) if len(found) == sum(want.values()) else []


def _nodes_with_room(snapshot: Snapshot, row: int) -> Bools:
    """Nodes that the job may have and that have what it asks for left; none where that cannot be told. (N,) bool."""
    try:
        return allowed_nodes(snapshot, row) & JobRequirements.of(snapshot, row).fits_free(snapshot)
    except UnknownEligibility:
        return np.zeros(len(snapshot.nodes), np.bool_)

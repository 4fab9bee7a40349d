"""Which nodes can take a request now, and what keeps the others from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model import NodeState, Snapshot
from slurmsched.model.hostlist import expand
from slurmsched.planning.bounds import UnknownForm, meets
from slurmsched.survey.names import check_name
from slurmsched.survey.request import WHOLE, Needs, Request, needs
from slurmsched.survey.stock import BOOT, OPEN, Part, parts

RESERVED = int(NodeState.RESERVED | NodeState.MAINTENANCE)


@dataclass(frozen=True, slots=True)
class Room:
    """A node of the partition. gpus: of the type asked for that the request could have there now, or after a boot where
    the part says so, its CPUs and memory counted. why: what keeps it from more, or from any."""

    part: Part
    gpus: int
    why: str


def with_partition(snapshot: Snapshot, request: Request) -> Request:
    """The request with its partition and time limit filled in as Slurm does.

    Raises InputError for a partition that is not there, or where none is the default.
    """
    partitions = snapshot.partitions
    names = list(partitions.name)
    check_name("--partition", request.partition, names)
    default = [name for name, is_it in zip(names, partitions.default.tolist(), strict=True) if is_it]
    if not request.partition and not default:
        raise InputError(f"no partition is the default; name one with --partition: {', '.join(names)}")
    name = request.partition or default[0]
    row = names.index(name)
    told = float(partitions.default_time_s[row])
    longest = float(partitions.max_time_s[row])
    limit = request.time_s if request.time_s is not None else told if told == told else longest
    return replace(request, partition=name, time_s=limit)


def partition_why(snapshot: Snapshot, request: Request) -> str:
    """What of the partition keeps the request from starting at all; "" if nothing does."""
    partitions = snapshot.partitions
    row = list(partitions.name).index(request.partition)
    if not partitions.up[row]:
        return f"partition {request.partition} is not up"
    if (request.time_s or 0.0) > float(partitions.max_time_s[row]):
        return f"--time is above the partition's limit of {float(partitions.max_time_s[row]) / 3600:g} h"
    return ""


def rooms(snapshot: Snapshot, request: Request) -> Iterator[Room]:
    """Every node of the partition that has GPUs of the type. The request has its partition (see with_partition).

    Raises InputError for a constraint of another form than names joined by & and |.
    """
    asks, nodes = needs(snapshot, request), snapshot.nodes
    kept = _reserved(snapshot, request)
    for part in parts(snapshot):
        served = request.partition in nodes.partitions[part.node].split(",")
        if served and request.gpu_type in ("", part.gpu_type):
            why = _barred(snapshot, request, part, kept)
            gpus, short = (0, why) if why else _most(snapshot, part, asks, request.exclusive)
            yield Room(part, gpus, short)


def _most(snapshot: Snapshot, part: Part, asks: Needs, exclusive: bool) -> tuple[int, str]:
    """The most GPUs it can have there, and what keeps it from more."""
    nodes, row = snapshot.nodes, part.node
    cpus = int(nodes.cpus[row] - nodes.cpus_used[row])
    memory = float(nodes.memory_mib[row] - nodes.memory_used_mib[row])
    if exclusive and (nodes.cpus_used[row] or nodes.gpus_used[row]):
        return 0, "other jobs are on it"
    why = "" if part.left == part.gpus else "GPUs are held"
    for gpus in range(part.left, 0, -1):
        wants = asks.memory_for(gpus)
        short_memory = wants > memory if wants != WHOLE else nodes.memory_used_mib[row] > 0
        if asks.cpus_for(gpus) <= cpus and not short_memory:
            return gpus, why
        why = "memory is held" if short_memory else "CPUs are held"
        why = why if nodes.cpus_used[row] else why.replace("is held", "is too small").replace("are held", "are too few")
    return 0, why


def _barred(snapshot: Snapshot, request: Request, part: Part, kept: frozenset[str]) -> str:
    """Why the node takes no part of the request, whatever is free on it; "" if it may."""
    nodes, name = snapshot.nodes, snapshot.nodes.name[part.node]
    if part.standing not in (OPEN, BOOT):
        return part.standing
    if name in request.excluded:
        return "excluded"
    if request.node_list and name not in request.node_list:
        return "not among the nodes asked for"
    try:
        if request.constraint and not meets(request.constraint, frozenset(nodes.features[part.node].split(","))):
            return f"not {request.constraint}"
    except UnknownForm as error:
        raise InputError(f"--constraint {request.constraint!r}: only names joined by & and | can be told") from error
    return "reserved" if name in kept or int(nodes.state[part.node]) & RESERVED else ""


def _reserved(snapshot: Snapshot, request: Request) -> frozenset[str]:
    """Nodes that a reservation keeps before the request would have ended."""
    table, until_s = snapshot.reservations, snapshot.now_s + (request.time_s or 0.0)
    rows = np.flatnonzero((table.start_s < until_s) & (table.end_s > snapshot.now_s)).tolist()
    return frozenset(name for row in rows for name in _names(table.node_list[row]))


def _names(text: str) -> tuple[str, ...]:
    try:
        return expand(text)
    except ValueError:
        return ()

"""Whether a request starts now, where it can, what it would get there, and what near it would start."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools
from slurmsched.model.hostlist import fold
from slurmsched.placements.gpu_stock import class_of, class_rows
from slurmsched.planning.reach import most_together, unknown, within_reach
from slurmsched.survey.request import Request
from slurmsched.survey.room import Room, eligible, most_nodes, partition_why, rooms, with_partition
from slurmsched.survey.sets import Link, best_set, link_of
from slurmsched.survey.stock import BOOT
from slurmsched.topology.picker import UNKNOWN, members
from slurmsched.words import some

Picker = Callable[[str, int, int], int]  # node, mask of its free GPUs, GPUs wanted -> mask, or UNKNOWN


@dataclass(frozen=True, slots=True)
class Given:
    """A set of GPUs and the smallest link on its best ring; gb_per_s 0 = not known, or a single GPU."""

    gpus: tuple[int, ...]
    link: str
    gb_per_s: float


@dataclass(frozen=True, slots=True)
class Place:
    """Nodes on which it can start. gpus: on each. picked: what Slurm would give, None = not known. best: the best free
    set; ideal: the best set of the node were it empty; both None where the wiring is not known. boot: Slurm boots them
    first.
    """

    nodes: str
    gpus: int
    picked: Given | None
    best: Given | None
    ideal: Given | None
    boot: bool = False


@dataclass(frozen=True, slots=True)
class Nearest:
    """A request like the one asked for that starts now. change: the option to write."""

    change: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Fit:
    """The answer. why: what keeps it from starting, "" if it starts. places: nodes that could take their share. boot:
    it starts when nodes have booted, since those that are up have no room.

    partition: the one that it is told of. lacking: why -> nodes that cannot. needs: nodes it takes, 0 = as Slurm likes.
    ahead: pending jobs of its partition. unseen: what was not looked at of what decides.
    """

    request: str
    partition: str
    starts: bool
    why: str
    needs: int
    places: tuple[Place, ...]
    lacking: dict[str, str]
    nearest: tuple[Nearest, ...]
    ahead: int
    boot: bool = False
    unseen: tuple[str, ...] = ()


def by_partition(snapshot: Snapshot, request: Request) -> tuple[Request, ...]:
    """The request in each partition of its list, as Slurm tries them: by PriorityTier, then as they are listed.

    Raises InputError for a partition that is not there.
    """
    each = dict.fromkeys(filter(None, request.partition.split(",")))
    filled = [with_partition(snapshot, replace(request, partition=name)) for name in each or ("",)]
    tier = dict(zip(snapshot.partitions.name, snapshot.partitions.priority_tier.tolist(), strict=True))
    order = sorted(filled, key=lambda one: -tier[one.partition])
    return tuple(replace(request, partition=one.partition) for one in order)


def first_start(answers: Sequence[Fit]) -> int:
    """Of the answers for one request in several partitions the first that starts; 0 where none does."""
    return next((at for at, answer in enumerate(answers) if answer.starts), 0)


def fit(snapshot: Snapshot, request: Request, pick: Picker | None = None) -> Fit:
    """The answer for one request. Limits of accounts and QOS are not looked at, nor is who goes first.

    Raises InputError for a partition or a constraint that cannot be told.
    """
    request = with_partition(snapshot, request)
    every = list(rooms(snapshot, request))
    found = _now(every)
    why = partition_why(snapshot, request) or _why(snapshot, request, found)
    boot = bool(why) and not partition_why(snapshot, request) and not _why(snapshot, request, every)
    if boot:
        found, why = every, ""
    able = [room for room in found if room.gpus >= max(request.gpus_per_node, 1)]
    pending = snapshot.jobs.pending & ~snapshot.jobs.held
    ahead = sum(request.partition in snapshot.jobs.partition[row].split(",") for row in pending.nonzero()[0].tolist())
    return Fit(
        request=request.text(),
        partition=request.partition,
        starts=not why,
        why=why,
        needs=0 if request.gpus and not request.nodes else request.least_nodes,
        places=places(snapshot, request, able, pick) if not why else (),
        lacking=_lacking(snapshot, found, able),
        nearest=tuple(nearest(snapshot, request, found)) if why else (),
        ahead=ahead,
        boot=boot,
        unseen=eligible(snapshot, request).unseen,
    )


def _now(found: Sequence[Room]) -> list[Room]:
    """What is there without a boot."""
    return [replace(room, gpus=0, why=BOOT) if room.part.standing == BOOT else room for room in found]


def _why(snapshot: Snapshot, request: Request, found: Sequence[Room]) -> str:
    """What keeps these nodes from taking the request; "" if they can."""
    if short := _short(request, found):
        return short
    if why := unknown(snapshot.topology, request.least_nodes):
        return why
    able = _able(snapshot, found, max(request.gpus_per_node, 1))
    together = within_reach(snapshot.topology, able, request.least_nodes).any()
    kept = f"Slurm starts no job of {request.least_nodes} on them: they are too far apart on its switches or blocks"
    return "" if together else f"{some(int(able.sum()), 'node has', 'nodes have')} room, but {kept}"


def _able(snapshot: Snapshot, found: Sequence[Room], gpus: int) -> Bools:
    """Nodes that can give so many GPUs each. (N,) bool."""
    return np.isin(np.arange(len(snapshot.nodes)), [room.part.node for room in found if room.gpus >= gpus])


def _short(request: Request, found: Sequence[Room]) -> str:
    """Of what there is too little; "" if of nothing."""
    if not found:
        return f"no node of {request.partition} has such GPUs"
    if request.gpus_per_node:
        able = sum(room.gpus >= request.gpus_per_node for room in found)
        short = able < request.least_nodes
        told = f"{able} of {some(request.least_nodes, 'node')} can give {some(request.gpus_per_node, 'GPU')}"
        return told if short else ""
    most = sorted((room.gpus for room in found if room.gpus), reverse=True)
    total = sum(most[: request.nodes] if request.nodes else most)
    if total >= request.gpus and len(most) >= request.least_nodes:
        return ""
    if total >= request.gpus:
        return f"{len(most)} of {some(request.least_nodes, 'node')} can give GPUs"
    where = f" on {some(request.nodes, 'node')}" if request.nodes else ""
    return f"{total} of {some(request.gpus, 'GPU')} can be given{where}"


def places(snapshot: Snapshot, request: Request, able: Sequence[Room], pick: Picker | None) -> tuple[Place, ...]:
    """Nodes on which the same would be given, as one. Picks are told of one-node jobs only."""
    classes = class_rows(snapshot)
    alike: dict[Place, list[str]] = {}
    for room in able:
        gpus, part = request.gpus_per_node or min(request.gpus, room.gpus), room.part
        name, one = snapshot.nodes.name[part.node], class_of(snapshot.topology, int(classes[part.node]))
        alone = request.least_nodes == 1 and (request.gpus_per_node or (request.nodes and gpus == request.gpus))
        mask = pick(name, part.mask, gpus) if pick and alone and part.mask is not None else UNKNOWN
        best = ideal = None
        if one is not None and one.known and part.mask is not None:
            best = _given(one, best_set(one, part.mask, gpus))
            ideal = _given(one, best_set(one, (1 << one.gpus) - 1, gpus))
        picked = None if mask in (0, UNKNOWN) else _given(one, mask)
        alike.setdefault(Place("", gpus, picked, best, ideal, part.standing == BOOT), []).append(name)
    return tuple(replace(place, nodes=fold(names)) for place, names in alike.items())


def _given(one: object, mask: int) -> Given:
    from slurmsched.model import GpuTopology

    link: Link | None = link_of(one, mask) if isinstance(one, GpuTopology) else None
    return Given(tuple(members(mask)), link.kind.name if link else "", link.gb_per_s if link else 0.0)


def _lacking(snapshot: Snapshot, found: Sequence[Room], able: Sequence[Room]) -> dict[str, str]:
    """Why -> the nodes that cannot take their share, as hostlists."""
    fine = {room.part.node for room in able}
    names: dict[str, list[str]] = {}
    for room in found:
        if room.part.node not in fine:
            names.setdefault(room.why or "it has too few GPUs", []).append(snapshot.nodes.name[room.part.node])
    return {why: fold(of) for why, of in names.items()}


def nearest(snapshot: Snapshot, request: Request, found: Sequence[Room]) -> Iterator[Nearest]:
    """Requests that differ in one thing and start now, the least change of each kind.

    What was not looked at of them alone, such as who may use another partition, is told with the meaning.
    """
    seen = eligible(snapshot, request).unseen
    for other, change, meaning in _others(snapshot, request, found):
        filled = with_partition(snapshot, other)
        if not partition_why(snapshot, filled) and not _why(snapshot, filled, _now(list(rooms(snapshot, filled)))):
            unseen = [one for one in eligible(snapshot, filled).unseen if one not in seen]
            yield Nearest(
                change, f"{meaning}, if Slurm lets it in (not looked at: {'; '.join(unseen)})" if unseen else meaning
            )


def _others(snapshot: Snapshot, request: Request, found: Sequence[Room]) -> Iterator[tuple[Request, str, str]]:
    """What might start instead: fewer GPUs, spread over more nodes, fewer nodes, or with less asked beside the GPUs."""
    most = sorted((room.gpus for room in found if room.gpus), reverse=True)
    nodes = request.least_nodes
    if request.gpus_per_node:
        if len(most) >= nodes and 0 < most[nodes - 1] < request.gpus_per_node:
            fewer = replace(request, gpus_per_node=most[nodes - 1])
            yield fewer, fewer.text(), "fewer GPUs on each node"
        if spread := _spread(request, most):
            yield spread, spread.text(), "the same GPUs on more nodes"
        together = most_together(snapshot.topology, _able(snapshot, found, request.gpus_per_node))
        able = int(min(together, most_nodes(snapshot, request)))
        if 0 < able < nodes and not request.node_list:
            yield replace(request, nodes=able), f"--nodes={able}", "fewer nodes"
    elif 0 < (total := sum(most[: request.nodes or None])) < request.gpus:
        yield replace(request, gpus=total), replace(request, gpus=total).text(), "fewer GPUs"
    yield from _lighter(snapshot, request)


def _spread(request: Request, most: Sequence[int]) -> Request | None:
    """The same number of GPUs on twice, four times, ... the nodes; the first of them that there is room for."""
    nodes, gpus = request.least_nodes, request.gpus_per_node
    while gpus % 2 == 0 and not request.node_list:
        nodes, gpus = nodes * 2, gpus // 2
        if sum(room >= gpus for room in most) >= nodes:
            return replace(request, nodes=nodes, gpus_per_node=gpus)
    return None


def _lighter(snapshot: Snapshot, request: Request) -> Iterator[tuple[Request, str, str]]:
    gpus = max(request.gpus_per_node, 1)
    yield replace(request, memory_mib=1024.0 * gpus, memory_per_gpu_mib=None, memory_per_cpu_mib=None), (
        f"--mem={gpus}G"), "less memory, if that is enough"  # fmt: skip
    if request.cpus_per_task > 1 or request.cpus_per_gpu != 1:
        yield replace(request, cpus_per_task=1, cpus_per_gpu=1), "--cpus-per-gpu=1", "fewer CPUs, if they are enough"
    if request.constraint:
        yield replace(request, constraint=""), "no --constraint", "any node"
    if request.gpu_type:
        yield replace(request, gpu_type=""), "no GPU type", "GPUs of any type"
    if request.exclusive:
        yield replace(request, exclusive=False), "no --exclusive", "nodes that others use too"
    if request.node_list or request.excluded:
        yield replace(request, node_list=(), excluded=()), "no --nodelist, --exclude", "any node"
    if (request.time_s or 0.0) > 3600.0:
        yield replace(request, time_s=3600.0), "--time=1:00:00", "shorter, before a reservation begins or as allowed"
    for name in snapshot.partitions.name:
        if name != request.partition:
            yield replace(request, partition=name), f"--partition={name}", "another partition"


@dataclass(frozen=True, slots=True)
class Largest:
    """Of one GPU type in one partition. one_node: most GPUs on one node; after_boot: the same of one that Slurm boots
    first. linked: most of those of one_node that are linked, None = not known.

    shapes: GPUs a node -> nodes of one job that can give so many, from the most to one.
    """

    gpu_type: str
    one_node: int
    linked: int | None
    shapes: dict[int, int]
    partition: str = ""
    after_boot: int = 0


def largest(snapshot: Snapshot, request: Request) -> tuple[Largest, ...]:
    """The largest requests that start now, by type. request: what is asked beside the GPUs. Raises as `fit`."""
    request = with_partition(snapshot, request)
    if partition_why(snapshot, request):
        return ()
    of: dict[str, list[Room]] = {}
    for room in rooms(snapshot, request):
        of.setdefault(room.part.gpu_type, []).append(room)
    most = most_nodes(snapshot, request)
    return tuple(
        replace(_largest(snapshot, gpu_type, of[gpu_type], most), partition=request.partition)
        for gpu_type in sorted(of)
    )


def _largest(snapshot: Snapshot, gpu_type: str, found: Sequence[Room], most_nodes: float) -> Largest:
    able = [room for room in _now(found) if room.gpus]
    boot = max((room.gpus for room in found if room.part.standing == BOOT), default=0)
    most = max((room.gpus for room in able), default=0)
    linked = [min(room.part.linked, room.gpus) for room in able if room.part.linked is not None]
    sizes = sorted({most, *(size for size in (1 << i for i in range(7)) if size < most)} - {0}, reverse=True)
    together = {size: most_together(snapshot.topology, _able(snapshot, able, size)) for size in sizes}
    shapes = {size: int(min(nodes, most_nodes)) for size, nodes in together.items()}
    return Largest(gpu_type, most, max(linked) if linked else None if able else 0, shapes, after_boot=boot)

"""Which nodes can take a request now, and what keeps the others from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model import NodeState, Snapshot
from slurmsched.model.columns import Bools
from slurmsched.model.gpu_masks import mask_members
from slurmsched.model.hostlists import fold_hostlist
from slurmsched.observe.survey.gpu_overview import state_words
from slurmsched.observe.survey.sbatch_request import WHOLE_MEMORY, NodeNeeds, SbatchRequest, check_name, node_needs
from slurmsched.plain_text import pluralize
from slurmsched.resources.by_type import whole_types
from slurmsched.resources.eligibility import Eligibility, Exclusion, eligibility
from slurmsched.resources.free import FreeForRequest, free_for, is_taken
from slurmsched.resources.gpu_sets import RingLink, best_set, ring_link
from slurmsched.resources.job_request import JobRequest, takes_whole
from slurmsched.resources.node_gpus import BOOT, DRAINED, OPEN, NodeGpus, node_gpus
from slurmsched.resources.partition_limits import shares_cpus_with_others
from slurmsched.resources.placeable_gpus import topology_class, topology_class_rows
from slurmsched.resources.topology_limits import (
    most_nodes_of_one_job,
    nodes_for_one_job,
    too_far_apart,
    topology_for_partitions,
    unknown_topology_rule,
)
from slurmsched.topology.slurm_selection import UNKNOWN_SELECTION


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """A node of the partition that has GPUs of the type asked for.

    node: its row.
    standing: see node_gpus.
    mask: which GPUs are free, None = not known.
    linked: the most free GPUs that are linked, None = not known.
    gpus: how many of the type the request could have there now, or after a boot where the standing says so, its CPUs
        and memory counted.
    why: what keeps it from more, or from any.
    """

    node: int
    standing: str
    mask: int | None
    linked: int | None
    gpus: int
    why: str


def with_partition(snapshot: Snapshot, request: SbatchRequest) -> SbatchRequest:
    """The request with its partition, time limit and least number of nodes filled in as Slurm does.

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
    default_s = float(partitions.default_time_s[row])
    longest = float(partitions.max_time_s[row])
    limit = request.time_s if request.time_s is not None else default_s if default_s == default_s else longest
    least = int(partitions.min_nodes[row])  # of a job that does not say; one that says so is refused below it
    nodes = least if not request.nodes and least > request.least_nodes else request.nodes
    return replace(request, partition=name, time_s=limit, nodes=nodes)


def request_eligibility(snapshot: Snapshot, request: SbatchRequest) -> Eligibility:
    """Which nodes the request may have, whatever their size. The request has its partition (see with_partition).

    It counts as one of the user that slurmsched runs as, of no known account and QOS, where it names none.
    """
    return eligibility(snapshot, job_request_for(snapshot, request), sized=False)


def job_request_for(snapshot: Snapshot, request: SbatchRequest) -> JobRequest:
    """The request as a job's."""
    asks, gpus = node_needs(snapshot, request), max(request.gpus_per_node, 1)
    memory_mib = asks.memory_for(gpus)
    return JobRequest(
        partitions=(request.partition,),
        gpus=gpus,
        types=((request.gpu_type, gpus),) if request.gpu_type else (),
        cpus=asks.cpus_for(gpus),
        memory_mib=0.0 if memory_mib == WHOLE_MEMORY else memory_mib,
        nodes=request.least_nodes,
        fixed=request.nodes > 0,
        spread=request.gpus > 1 and not request.nodes,
        whole=request.exclusive or takes_whole(snapshot, (request.partition,)),
        constraint=request.constraint,
        nodes_asked=",".join(request.node_list),
        nodes_excluded=",".join(request.excluded),
        time_limit_s=request.time_s or 0.0,
        user=request.user or snapshot.site.user,
        account=request.account,
        qos=request.qos,
        queued=False,
    )


def request_refusal(snapshot: Snapshot, request: SbatchRequest) -> str:
    """What of the partition keeps the request from starting at all; "" if nothing does."""
    return request_eligibility(snapshot, request).refusals.get(request.partition, "")


def most_nodes(snapshot: Snapshot, request: SbatchRequest) -> float:
    """Nodes that the partition gives one job at most."""
    table = snapshot.partitions
    return float(table.max_nodes[list(table.name).index(request.partition)])


def node_rooms(snapshot: Snapshot, request: SbatchRequest) -> Iterator[NodeRoom]:
    """Every node of the partition that has GPUs of the type, whether or not the partition would start such a job.

    The request has its partition (see with_partition).
    """
    free = free_for(snapshot, job_request_for(snapshot, request), sized=False)
    needs, exclusion = node_needs(snapshot, request), free.eligibility.exclusion.tolist()
    taken = is_taken(snapshot) & free.eligibility.request.whole
    kept = snapshot.nodes.cpus_per_gpu_kept * (not shares_cpus_with_others(snapshot, free.eligibility.request))
    for node, own in _parts_of_nodes(snapshot, request.gpu_type).items():
        why = exclusion[node]
        if why == Exclusion.PARTITION:
            continue
        words = f"not {request.constraint}" if why == Exclusion.CONSTRAINT else _WORDS.get(why, "")
        words = words or _closed_reason(snapshot, node, own[0].standing)
        words = words or ("other jobs are on it" if taken[node] else "")
        gpus, short = (0, words) if words else _most_gpus(snapshot, node, own, free, needs, int(kept[node]))
        mask, linked = (own[0].mask, own[0].linked) if len(own) == 1 else (None, None)
        yield NodeRoom(node, own[0].standing, mask, linked, gpus, short)


@lru_cache(maxsize=16)  # one request is tried in many ways
def _parts_of_nodes(snapshot: Snapshot, gpu_type: str) -> dict[int, list[NodeGpus]]:
    """The GPUs of the type by row of the node; "" = all."""
    parts: dict[int, list[NodeGpus]] = {}
    for part in node_gpus(snapshot):
        if gpu_type in ("", part.gpu_type):
            parts.setdefault(part.node, []).append(part)
    return parts


def _closed_reason(snapshot: Snapshot, node: int, standing: str) -> str:
    """Why the node takes no job, "" if it does: by its standing, and by its state where that is not drained."""
    if standing in (OPEN, BOOT):
        return ""
    state = int(snapshot.nodes.state[node])
    drains = standing != DRAINED or state & int(NodeState.DRAIN)
    return standing if drains else f"takes no new job ({state_words(state)})"


_WORDS = {
    Exclusion.EXCLUDED: "excluded",
    Exclusion.NOT_ASKED: "not among the nodes asked for",
    Exclusion.RESERVED: "reserved",
    Exclusion.USER: "another user is on it",
}


def _most_gpus(
    snapshot: Snapshot, node: int, own: Sequence[NodeGpus], free: FreeForRequest, needs: NodeNeeds, kept: int
) -> tuple[int, str]:
    """The most GPUs it can have there, and what keeps it from more.

    own: GPUs of the type that the node has.
    kept: CPUs that each GPU brings (RestrictedCoresPerGPU).
    """
    most, reserved = int(free.gpus[node]), int(free.eligibility.kept_gpus[node])
    why = "GPUs are reserved" if reserved else "GPUs are held" if most < sum(part.gpus for part in own) else ""
    others = max(most - free.eligibility.request.gpus, 0)
    cpus = free.cpus[node] + kept * others - kept * most  # with no GPU; each brings its own
    for gpus in range(most, 0, -1):
        memory_mib, used = needs.memory_for(gpus), snapshot.nodes.memory_used_mib[node] > 0
        short_memory = used if memory_mib == WHOLE_MEMORY else memory_mib > free.memory_mib[node]
        if needs.cpus_for(gpus) <= cpus + kept * gpus and not short_memory:
            return gpus, why
        held = snapshot.nodes.cpus_used[node] > 0
        why = ("memory is held" if held else "memory is too small") if short_memory else (
            "CPUs are held" if held else "CPUs are too few")  # fmt: skip
    return 0, why


# Whether a request starts now.

Picker = Callable[[str, int, int], int]  # node, mask of its free GPUs, GPUs wanted -> mask, or UNKNOWN


@dataclass(frozen=True, slots=True)
class GivenSet:
    """A set of GPUs and the smallest link on its best ring; gb_per_s 0 = not known, or a single GPU."""

    gpus: tuple[int, ...]
    link: str
    gb_per_s: float


@dataclass(frozen=True, slots=True)
class FitPlace:
    """Nodes on which it can start.

    gpus: on each.
    picked: what Slurm would give, None = not known.
    best: the best free set.
    ideal: the best set of the node were it empty; both None where the wiring is not known.
    boot: Slurm boots them first.
    """

    nodes: str
    gpus: int
    picked: GivenSet | None
    best: GivenSet | None
    ideal: GivenSet | None
    boot: bool = False


@dataclass(frozen=True, slots=True)
class NearestRequest:
    """A request like the one asked for that starts now. change: the option to write."""

    change: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Fit:
    """The answer.

    why: what keeps it from starting, "" if it starts.
    places: nodes that could take their share.
    boot: it starts when nodes have booted, since those that are up have no room.
    partition: the one that it is told of.
    lacking: why -> nodes that cannot.
    needs: nodes it takes, 0 = as Slurm likes.
    ahead: pending jobs of its partition.
    unseen: what was not looked at of what decides.
    """

    request: str
    partition: str
    starts: bool
    why: str
    needs: int
    places: tuple[FitPlace, ...]
    lacking: dict[str, str]
    nearest: tuple[NearestRequest, ...]
    ahead: int
    boot: bool = False
    unseen: tuple[str, ...] = ()


def by_partition(snapshot: Snapshot, request: SbatchRequest) -> tuple[SbatchRequest, ...]:
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


def fit(snapshot: Snapshot, request: SbatchRequest, pick: Picker | None = None) -> Fit:
    """The answer for one request. Limits of accounts and QOS, and the order of pending jobs, are not considered.

    Raises InputError for a partition or a constraint that cannot be told.
    """
    request = with_partition(snapshot, request)
    every = list(node_rooms(snapshot, request))
    found = _without_boot(every)
    why = request_refusal(snapshot, request) or _refusal_reason(snapshot, request, found)
    boot = bool(why) and not request_refusal(snapshot, request) and not _refusal_reason(snapshot, request, every)
    if boot:
        found, why = every, ""
    able = [room for room in found if room.gpus >= max(request.gpus_per_node, 1)]
    pending = snapshot.jobs.pending & ~snapshot.jobs.held
    asked = snapshot.jobs.partition.map(lambda names: request.partition in names.split(","), np.bool_)
    return Fit(
        request=request.text(),
        partition=request.partition,
        starts=not why,
        why=why,
        needs=0 if request.gpus and not request.nodes else request.least_nodes,
        places=fit_places(snapshot, request, able, pick) if not why else (),
        lacking=_lacking(snapshot, found, able),
        nearest=tuple(nearest_requests(snapshot, request, found)) if why else (),
        ahead=int((pending & asked).sum()),
        boot=boot,
        unseen=request_eligibility(snapshot, request).unseen,
    )


def _without_boot(found: Sequence[NodeRoom]) -> list[NodeRoom]:
    """What is there without a boot."""
    return [replace(room, gpus=0, why=BOOT) if room.standing == BOOT else room for room in found]


def _refusal_reason(snapshot: Snapshot, request: SbatchRequest, found: Sequence[NodeRoom]) -> str:
    """What keeps these nodes from taking the request; "" if they can."""
    if short := _scarce_resource(request, found):
        return short
    topology = topology_for_partitions(snapshot, request.partition)
    if why := unknown_topology_rule(topology, request.least_nodes):
        return why
    able = _able(snapshot, found, max(request.gpus_per_node, 1))
    together = nodes_for_one_job(topology, able, request.least_nodes).any()
    kept = too_far_apart(request.least_nodes)
    return "" if together else f"{pluralize(int(able.sum()), 'node has', 'nodes have')} room, but {kept}"


def _able(snapshot: Snapshot, found: Sequence[NodeRoom], gpus: int) -> Bools:
    """Nodes that can give that many GPUs each. (N,) bool."""
    return np.isin(np.arange(len(snapshot.nodes)), [room.node for room in found if room.gpus >= gpus])


def _most_together(snapshot: Snapshot, request: SbatchRequest, found: Sequence[NodeRoom], gpus: int) -> int:
    """On how many of these nodes at most Slurm would start one job with that many GPUs on each."""
    return most_nodes_of_one_job(topology_for_partitions(snapshot, request.partition), _able(snapshot, found, gpus))


def _scarce_resource(request: SbatchRequest, found: Sequence[NodeRoom]) -> str:
    """Of what there is too little; "" if of nothing."""
    if not found:
        return f"no node of {request.partition} has such GPUs"
    if request.gpus_per_node:
        able = sum(room.gpus >= request.gpus_per_node for room in found)
        short = able < request.least_nodes
        sentence = (
            f"{able} of {pluralize(request.least_nodes, 'node')} can give {pluralize(request.gpus_per_node, 'GPU')}"
        )
        return sentence if short else ""
    most = sorted((room.gpus for room in found if room.gpus), reverse=True)
    total = sum(most[: request.nodes] if request.nodes else most)
    if total >= request.gpus and len(most) >= request.least_nodes:
        return ""
    if total >= request.gpus:
        return f"{len(most)} of {pluralize(request.least_nodes, 'node')} can give GPUs"
    where = f" on {pluralize(request.nodes, 'node')}" if request.nodes else ""
    return f"{total} of {pluralize(request.gpus, 'GPU')} can be given{where}"


def fit_places(
    snapshot: Snapshot, request: SbatchRequest, able: Sequence[NodeRoom], pick: Picker | None
) -> tuple[FitPlace, ...]:
    """Nodes on which the same would be given, as one. Picks are told of one-node jobs only."""
    classes = topology_class_rows(snapshot)
    alike: dict[FitPlace, list[str]] = {}
    for room in able:
        gpus = request.gpus_per_node or min(request.gpus, room.gpus)
        name, one = snapshot.nodes.name[room.node], topology_class(snapshot.topology, int(classes[room.node]))
        alone = request.least_nodes == 1 and (request.gpus_per_node or (request.nodes and gpus == request.gpus))
        mask = pick(name, room.mask, gpus) if pick and alone and room.mask is not None else UNKNOWN_SELECTION
        best = ideal = None
        if one is not None and one.known and room.mask is not None:
            best = _given_set(one, best_set(one, room.mask, gpus))
            ideal = _given_set(one, best_set(one, (1 << one.gpus) - 1, gpus))
        picked = None if mask in (0, UNKNOWN_SELECTION) else _given_set(one, mask)
        alike.setdefault(FitPlace("", gpus, picked, best, ideal, room.standing == BOOT), []).append(name)
    return tuple(replace(place, nodes=fold_hostlist(names)) for place, names in alike.items())


def _given_set(one: object, mask: int) -> GivenSet:
    from slurmsched.model import GpuTopology

    link: RingLink | None = ring_link(one, mask) if isinstance(one, GpuTopology) else None
    return GivenSet(tuple(mask_members(mask)), link.kind.name if link else "", link.gb_per_s if link else 0.0)


def _lacking(snapshot: Snapshot, found: Sequence[NodeRoom], able: Sequence[NodeRoom]) -> dict[str, str]:
    """Why -> the nodes that cannot take their share, as hostlists."""
    fine = {room.node for room in able}
    names: dict[str, list[str]] = {}
    for room in found:
        if room.node not in fine:
            names.setdefault(room.why or "it has too few GPUs", []).append(snapshot.nodes.name[room.node])
    return {why: fold_hostlist(of) for why, of in names.items()}


def nearest_requests(snapshot: Snapshot, request: SbatchRequest, found: Sequence[NodeRoom]) -> Iterator[NearestRequest]:
    """Requests that differ in one thing and start now, the least change of each kind.

    What was not looked at of them alone, such as who may use another partition, is told with the meaning.
    """
    seen = request_eligibility(snapshot, request).unseen
    for other, change, meaning in _others(snapshot, request, found):
        filled = with_partition(snapshot, other)
        if not request_refusal(snapshot, filled) and not _refusal_reason(
            snapshot, filled, _without_boot(list(node_rooms(snapshot, filled)))
        ):
            unseen = [one for one in request_eligibility(snapshot, filled).unseen if one not in seen]
            yield NearestRequest(
                change, f"{meaning}, if Slurm lets it in (not looked at: {'; '.join(unseen)})" if unseen else meaning
            )


def _others(
    snapshot: Snapshot, request: SbatchRequest, found: Sequence[NodeRoom]
) -> Iterator[tuple[SbatchRequest, str, str]]:
    """Requests that might start instead: fewer GPUs, GPUs on more nodes, fewer nodes, or fewer CPUs and less memory."""
    most = sorted((room.gpus for room in found if room.gpus), reverse=True)
    nodes = request.least_nodes
    if request.gpus_per_node:
        if len(most) >= nodes and 0 < most[nodes - 1] < request.gpus_per_node:
            fewer = replace(request, gpus_per_node=most[nodes - 1])
            yield fewer, fewer.text(), "fewer GPUs on each node"
        if spread := _over_more_nodes(request, most):
            yield spread, spread.text(), "the same GPUs on more nodes"
        together = _most_together(snapshot, request, found, request.gpus_per_node)
        able = int(min(together, most_nodes(snapshot, request)))
        if 0 < able < nodes and not request.node_list:
            yield replace(request, nodes=able), f"--nodes={able}", "fewer nodes"
    elif 0 < (total := sum(most[: request.nodes or None])) < request.gpus:
        yield replace(request, gpus=total), replace(request, gpus=total).text(), "fewer GPUs"
    yield from _lighter(snapshot, request)


def _over_more_nodes(request: SbatchRequest, most: Sequence[int]) -> SbatchRequest | None:
    """The same number of GPUs on twice, four times, ... the nodes; the first of them that there is room for."""
    nodes, gpus = request.least_nodes, request.gpus_per_node
    while gpus % 2 == 0 and not request.node_list:
        nodes, gpus = nodes * 2, gpus // 2
        if sum(room >= gpus for room in most) >= nodes:
            return replace(request, nodes=nodes, gpus_per_node=gpus)
    return None


def _lighter(snapshot: Snapshot, request: SbatchRequest) -> Iterator[tuple[SbatchRequest, str, str]]:
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
class LargestRequest:
    """Of one GPU type in one partition.

    one_node: most GPUs on one node.
    after_boot: the same of one that Slurm boots first.
    linked: most of those of one_node that are linked, None = not known.
    shapes: GPUs a node -> nodes of one job that can give that many, from the most to one.
    """

    gpu_type: str
    one_node: int
    linked: int | None
    shapes: dict[int, int]
    partition: str = ""
    after_boot: int = 0


def largest_requests(snapshot: Snapshot, request: SbatchRequest) -> tuple[LargestRequest, ...]:
    """The largest requests that start now, by type. request: what is asked beside the GPUs. Raises as `fit`."""
    request = with_partition(snapshot, request)
    if request_refusal(snapshot, request):
        return ()
    has, most = snapshot.nodes.gpu_types, most_nodes(snapshot, request)
    found = list[LargestRequest]()
    for gpu_type in sorted({name for text in has.names for name in whole_types(text) or {"": 0}}):
        rooms = [room for room in node_rooms(snapshot, replace(request, gpu_type=gpu_type))
                 if gpu_type in (whole_types(has[room.node]) or {"": 0})]  # fmt: skip
        if rooms and request.gpu_type in ("", gpu_type):
            found.append(
                replace(
                    _largest_request(snapshot, replace(request, gpu_type=gpu_type), rooms, most),
                    partition=request.partition,
                )
            )
    return tuple(found)


def _largest_request(
    snapshot: Snapshot, request: SbatchRequest, found: Sequence[NodeRoom], most_nodes: float
) -> LargestRequest:
    able = [room for room in _without_boot(found) if room.gpus]
    boot = max((room.gpus for room in found if room.standing == BOOT), default=0)
    most = max((room.gpus for room in able), default=0)
    linked = [min(room.linked, room.gpus) for room in able if room.linked is not None]
    sizes = sorted({most, *(size for size in (1 << i for i in range(7)) if size < most)} - {0}, reverse=True)
    together = {size: _most_together(snapshot, request, able, size) for size in sizes}
    shapes = {size: int(min(nodes, most_nodes)) for size, nodes in together.items()}
    return LargestRequest(
        request.gpu_type, most, max(linked) if linked else None if able else 0, shapes, after_boot=boot
    )

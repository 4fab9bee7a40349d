"""Which nodes can take a request now, and what keeps the others from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from slurmsched.errors import InputError
from slurmsched.model import NodeState, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.resources.eligibility import Bar, Eligibility, eligibility, partition_cpus
from slurmsched.resources.free import partition_memory_mib, shares
from slurmsched.resources.job_request import JobRequest, takes_whole
from slurmsched.survey.names import check_name
from slurmsched.survey.overview import state_words
from slurmsched.survey.request import WHOLE, Needs, Request, needs
from slurmsched.survey.stock import BOOT, DRAINED, OPEN, Part, parts


@dataclass(frozen=True, slots=True)
class Room:
    """A node of the partition. gpus: of the type asked for that the request could have there now, or after a boot where
    the part says so, its CPUs and memory counted. why: what keeps it from more, or from any."""

    part: Part
    gpus: int
    why: str


def with_partition(snapshot: Snapshot, request: Request) -> Request:
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
    told = float(partitions.default_time_s[row])
    longest = float(partitions.max_time_s[row])
    limit = request.time_s if request.time_s is not None else told if told == told else longest
    least = int(partitions.min_nodes[row])  # of a job that does not say; one that says so is refused below it
    nodes = least if not request.nodes and least > request.least_nodes else request.nodes
    return replace(request, partition=name, time_s=limit, nodes=nodes)


def eligible(snapshot: Snapshot, request: Request) -> Eligibility:
    """Which nodes the request may have, whatever their size. The request has its partition (see with_partition).

    It counts as one of the user that slurmsched runs as, of no known account and QOS, where it names none.
    """
    return eligibility(snapshot, as_job(snapshot, request), sized=False)


def as_job(snapshot: Snapshot, request: Request) -> JobRequest:
    """The request as a job's."""
    asks, gpus = needs(snapshot, request), max(request.gpus_per_node, 1)
    memory_mib = asks.memory_for(gpus)
    return JobRequest(
        partitions=(request.partition,),
        gpus=gpus,
        types=((request.gpu_type, gpus),) if request.gpu_type else (),
        cpus=asks.cpus_for(gpus),
        memory_mib=0.0 if memory_mib == WHOLE else memory_mib,
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


def partition_why(snapshot: Snapshot, request: Request) -> str:
    """What of the partition keeps the request from starting at all; "" if nothing does."""
    return eligible(snapshot, request).limits.get(request.partition, "")


def most_nodes(snapshot: Snapshot, request: Request) -> float:
    """Nodes that the partition gives one job at most."""
    table = snapshot.partitions
    return float(table.max_nodes[list(table.name).index(request.partition)])


def rooms(snapshot: Snapshot, request: Request) -> Iterator[Room]:
    """Every node of the partition that has GPUs of the type, whether or not the partition would start such a job.

    The request has its partition (see with_partition).
    """
    found, free = eligible(snapshot, request), _Free.of(snapshot, request)
    for part in parts(snapshot):
        bar = Bar(int(found.bar[part.node]))
        if bar is Bar.PARTITION or request.gpu_type not in ("", part.gpu_type):
            continue
        why = _WORDS.get(bar, "") or _closed(snapshot, part)
        why = f"not {request.constraint}" if bar is Bar.CONSTRAINT else why
        gpus, short = (0, why) if why else _most(snapshot, part, free, found)
        yield Room(part, gpus, short)


def _closed(snapshot: Snapshot, part: Part) -> str:
    """Why the node takes no job, "" if it does: by its standing, and by its state where that is not drained."""
    if part.standing in (OPEN, BOOT):
        return ""
    state = int(snapshot.nodes.state[part.node])
    drains = part.standing != DRAINED or state & int(NodeState.DRAIN)
    return part.standing if drains else f"takes no new job ({state_words(state)})"


_WORDS = {
    Bar.EXCLUDED: "excluded", Bar.NOT_ASKED: "not among the nodes asked for", Bar.RESERVED: "reserved",
    Bar.USER: "another user is on it",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class _Free:
    """What the request takes, and what of each node its partition leaves for it. cpus, memory_mib: (N,).

    shared: jobs of the partition share CPUs whatever they do.
    """

    asks: Needs
    exclusive: bool
    shared: bool
    cpus: Floats
    memory_mib: Floats

    @classmethod
    def of(cls, snapshot: Snapshot, request: Request) -> _Free:
        one = as_job(snapshot, request)
        limits = partition_cpus(snapshot, one), partition_memory_mib(snapshot, one)
        return cls(needs(snapshot, request), one.whole, shares(snapshot, one), *limits)


def _most(snapshot: Snapshot, part: Part, free: _Free, found: Eligibility) -> tuple[int, str]:
    """The most GPUs it can have there, and what keeps it from more."""
    nodes, row, asks = snapshot.nodes, part.node, free.asks
    left = float(nodes.cpus[row] if free.shared else nodes.cpus[row] - nodes.cpus_used[row] - found.kept_cpus[row])
    cpus = min(left, float(free.cpus[row]))
    memory = float(nodes.memory_mib[row] - nodes.memory_used_mib[row])
    if free.exclusive and (nodes.cpus_used[row] or nodes.gpus_used[row]):
        return 0, "other jobs are on it"
    most = max(0, part.left - int(found.kept_gpus[row]))
    why = "" if part.left == part.gpus else "GPUs are held"
    why = why if most == part.left else "GPUs are reserved"
    for gpus in range(most, 0, -1):
        wants = asks.memory_for(gpus)
        short_memory = wants > min(memory, free.memory_mib[row]) if wants != WHOLE else nodes.memory_used_mib[row] > 0
        if asks.cpus_for(gpus) <= cpus and not short_memory:
            return gpus, why
        why = "memory is held" if short_memory else "CPUs are held"
        why = why if nodes.cpus_used[row] else why.replace("is held", "is too small").replace("are held", "are too few")
    return 0, why

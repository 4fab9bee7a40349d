"""The request of one job: of a job in the queue, or of one that is not submitted yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf

from slurmsched.model.hostlists import expand_hostlist, most_names_of
from slurmsched.model.overrides import types_of
from slurmsched.model.snapshot import Snapshot

UNEVEN = ("TresPerJob", "TresPerTask", "TresPerSocket")  # GPUs that need not be as many on each node
_NO_RECORD: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What a job asks for, as far as it decides on which nodes it may start.

    gpus, cpus, memory_mib: at least so much on each of its nodes.
    types: at least so many GPUs of each type on each of its nodes.
    partitions: it may start in any of them.
    apart: its GPU types may lie on different nodes.
    nodes: how many it takes at least.
    fixed: it takes exactly that many.
    spread: its GPUs may come from more nodes than that.
    whole: it shares a node with no other job.
    reservations: those it names.
    own: those kept for it.
    user, account, qos: "" = not known.
    lifted: bits of LIFTING_FLAGS, partition limits that its QOS lifts.
    queued: a job of the queue; one that is not must be taken by the partition first.
    """

    partitions: tuple[str, ...] = ()
    gpus: int = 0
    types: tuple[tuple[str, int], ...] = ()
    cpus: int = 0
    memory_mib: float = 0.0
    nodes: int = 1
    fixed: bool = False
    spread: bool = False
    apart: bool = False
    whole: bool = False
    constraint: str = ""
    nodes_asked: str = ""
    nodes_excluded: str = ""
    time_limit_s: float = inf
    user: str = ""
    account: str = ""
    qos: str = ""
    reservations: tuple[str, ...] = ()
    own: frozenset[str] = frozenset()
    queued: bool = True
    lifted: int = 0


@dataclass(slots=True)
class UnsupportedRules:
    """Rules that were not checked. doubts: about all nodes; partition_doubts: about those of a partition; others."""

    doubts: list[str] = field(default_factory=list)
    partition_doubts: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def doubt(self, why: str) -> None:
        """Add a reason that concerns all nodes, once."""
        if why not in self.doubts:
            self.doubts.append(why)

    def all(self) -> tuple[str, ...]:
        """Every reason once, those about all nodes first."""
        return tuple(dict.fromkeys((*self.doubts, *self.partition_doubts, *self.others)))


def request_of(snapshot: Snapshot, row: int, record: Mapping[str, str] = _NO_RECORD) -> JobRequest:
    """Of the job in this row. record: its fields in `scontrol show job`, which tell more.

    Without them GPUs by job, task or socket of a job that shows one node may come from more.
    """
    jobs, nodes = snapshot.jobs, max(1, int(snapshot.jobs.nodes[row]))
    named = _listed(jobs.partition[row])
    by = _form(jobs.gpus_by[row], record)
    fixed = nodes > 1 or record.get("NumNodes") == "1-1"
    uneven, gpus = by not in ("", "node"), int(jobs.gpus[row])
    spread = uneven and gpus > 1 and not fixed
    cpus, memory_mib = -(-int(jobs.cpus[row]) // nodes), float(jobs.memory_mib[row]) / nodes
    tasks, task = record.get("NumTasks", ""), record.get("CPUs/Task", "")
    if spread or (tasks.isdecimal() and int(tasks) > 1 and not fixed):
        cpus = min(cpus, int(task) if task.isdecimal() else 1)
        memory_mib = memory_mib if "MinMemoryNode" in record else 0.0
    each = min(gpus, 1) if spread or (uneven and nodes > 1) else -(-gpus // nodes)
    types = _types(jobs.gpu_request[row])
    apart = uneven and len(types) > 1 and record.get("NumNodes") != "1-1"
    least = tuple((name, 1 if each <= 1 and uneven else -(-count // nodes)) for name, count in types)
    own = (operation.reservation for operation in snapshot.operations if operation.job_id == jobs.job_id[row])
    return JobRequest(
        named, min(each, 1) if apart else each, least, cpus, memory_mib, nodes, fixed, spread, apart,
        _wants_whole_nodes(snapshot, row, named, record), jobs.features_asked[row], jobs.nodes_asked[row],
        jobs.nodes_excluded[row], float(jobs.time_limit_s[row]), jobs.user[row], jobs.account[row], jobs.qos[row],
        _listed(jobs.reservation[row]), frozenset(own), lifted=int(jobs.lifted_limits[row]),
    )  # fmt: skip


def _form(known: str, record: Mapping[str, str]) -> str:
    """What its option counts GPUs by, as far as that is told."""
    form = next((key for key in UNEVEN if "gpu" in record.get(key, "")), "")
    return form.removeprefix("TresPer").lower() or known


def _wants_whole_nodes(snapshot: Snapshot, row: int, named: tuple[str, ...], record: Mapping[str, str]) -> bool:
    """Whether it wants nodes alone: by its own option, which its record tells in a field of its own from 26.05 on, or
    by a partition of its own."""
    exclusive, shares = record.get("Exclusive"), record.get("OverSubscribe")
    own = shares == "NO" if exclusive is None else exclusive == "NODE"
    return bool(snapshot.jobs.exclusive[row]) or own or takes_whole(snapshot, named)


def takes_whole(snapshot: Snapshot, partitions: tuple[str, ...]) -> bool:
    """Whether one of these partitions gives its jobs whole nodes."""
    if "node" not in snapshot.partitions.exclusive.names:
        return False
    alone = snapshot.partitions.exclusive.isin(["node"])
    return bool((alone & snapshot.partitions.name.isin(partitions)).any())


@lru_cache(maxsize=1 << 10)
def _listed(names: str) -> tuple[str, ...]:
    return tuple(filter(None, names.split(",")))


@lru_cache(maxsize=1 << 12)
def _types(request: str) -> tuple[tuple[str, int], ...]:
    return tuple(types_of(request).items())


def hosts_named(text: str, found: UnsupportedRules, nodes: int) -> tuple[str, ...]:
    """Names in a hostlist. Unreadable: () and a doubt. nodes: of the cluster, which bounds their number."""
    try:
        return expand_hostlist(text, most_names_of(nodes))
    except ValueError as error:
        found.doubt(f"its list of nodes {text!r} ({error})")
        return ()


def lower_names(listed: str) -> list[str]:
    """The parts of a comma-separated list in lower case; [""] for an empty text."""
    return listed.lower().split(",")

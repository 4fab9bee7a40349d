"""What keeps one job off one node: the first thing known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from slurmsched.explain.facts import Facts
from slurmsched.explain.text import clock, shown
from slurmsched.model.columns import Int64s
from slurmsched.model.gres import parse_gres
from slurmsched.model.hostlist import expand
from slurmsched.model.snapshot import Snapshot
from slurmsched.planning.bounds import UnknownForm, meets
from slurmsched.survey.overview import state_words
from slurmsched.survey.stock import whole_types
from slurmsched.words import some

UNEVEN = ("TresPerJob", "TresPerTask", "TresPerSocket")  # GPUs that need not be as many on each node


class Kind(Enum):
    """NEVER: this node cannot serve the job, whoever else runs there."""

    NEVER = auto()
    CLOSED = auto()
    RESERVED = auto()
    GPUS = auto()
    CPUS = auto()
    MEMORY = auto()
    WHOLE = auto()


@dataclass(frozen=True, slots=True)
class Obstacle:
    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Kept:
    """A reservation that stands or is to come. nodes: None = all."""

    name: str
    start_s: float
    end_s: float
    nodes: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Asks:
    """What one job asks of a node. gpus, cpus, memory_mib: at least so much there. kept: reservations of others that
    overlap its time. whole: it shares a node with no other job."""

    snapshot: Snapshot
    row: int
    gpus: int
    cpus: int
    memory_mib: float
    partitions: frozenset[str]
    asked: frozenset[str]
    excluded: frozenset[str]
    types: frozenset[str]
    kept: tuple[Kept, ...]
    whole: bool

    @classmethod
    def of(cls, snapshot: Snapshot, row: int, facts: Facts) -> Asks:
        jobs = snapshot.jobs
        asked = names(jobs.nodes_asked[row])
        types = {one.type for one in parse_gres(jobs.gpu_request[row]) if one.kind == "gpu" and one.type}
        until_s = snapshot.now_s + float(jobs.time_limit_s[row])
        return cls(
            snapshot, row, *_least(snapshot, row, facts), frozenset(jobs.partition[row].split(",")),
            asked if len(asked) >= jobs.nodes[row] else frozenset(), names(jobs.nodes_excluded[row]),
            frozenset(types), tuple(one for one in kept(snapshot, row, facts) if one.start_s < until_s),
            whole(snapshot, row, facts),
        )  # fmt: skip

    def obstacle(self, at: int) -> Obstacle | None:
        """The first thing known that keeps it off the node in this row; None = nothing."""
        return self.elsewhere(at) or self._too_small(at) or self._standing(at) or self._reserved(at) or self._short(at)

    def _standing(self, at: int) -> Obstacle | None:
        nodes = self.snapshot.nodes
        if not nodes.closed[at]:
            return None
        if nodes.gpus_unread[at] and not nodes.down[at]:
            return Obstacle(Kind.CLOSED, "how many of its GPUs are in use cannot be read")
        reason = f": {shown(nodes.reason[at])}" if nodes.reason[at] else ""
        return Obstacle(Kind.CLOSED, f"it takes no new job ({state_words(int(nodes.state[at]))}{reason})")

    def elsewhere(self, at: int) -> Obstacle | None:
        """What the job says of nodes by partition, name, feature and GPU type."""
        jobs, nodes, row = self.snapshot.jobs, self.snapshot.nodes, self.row
        name, has = nodes.name[at], whole_types(nodes.gpu_types[at])
        if not self.partitions & set(nodes.partitions[at].split(",")):
            return Obstacle(Kind.NEVER, f"it is not in partition {jobs.partition[row]}")
        if name in self.excluded:
            return Obstacle(Kind.NEVER, "the job excludes it")
        if self.asked and name not in self.asked:
            return Obstacle(Kind.NEVER, f"the job asks for {jobs.nodes_asked[row]}")
        if not _featured(jobs.features_asked[row], nodes.features[at]):
            told = f"it is not {shown(jobs.features_asked[row])} (its features: {nodes.features[at] or 'none'})"
            return Obstacle(Kind.NEVER, told)
        if self.gpus and self.types and not self.types & set(has):
            told = f"it has no {' or '.join(sorted(self.types))} (its GPUs: {nodes.gpu_types[at] or 'none'})"
            return Obstacle(Kind.NEVER, told)
        return None

    def _too_small(self, at: int) -> Obstacle | None:
        """What the node has at all."""
        nodes = self.snapshot.nodes
        if self.gpus > nodes.gpus[at]:
            return Obstacle(Kind.NEVER, f"it has {some(int(nodes.gpus[at]), 'GPU')}, the job needs {self.gpus} there")
        if self.cpus > nodes.cpus[at]:
            return Obstacle(Kind.NEVER, f"it has {some(int(nodes.cpus[at]), 'CPU')}, the job needs {self.cpus} there")
        if self.memory_mib > nodes.memory_mib[at]:
            told = f"it has {nodes.memory_mib[at]:.0f} MiB of memory, the job needs {self.memory_mib:.0f} there"
            return Obstacle(Kind.NEVER, told)
        return None

    def _reserved(self, at: int) -> Obstacle | None:
        for one in self.kept:
            if one.nodes is None or self.snapshot.nodes.name[at] in one.nodes:
                return Obstacle(Kind.RESERVED, f"reservation {shown(one.name)} keeps it from {clock(one.start_s)} on")
        return None

    def _short(self, at: int) -> Obstacle | None:
        """GPUs, then CPUs and memory."""
        nodes = self.snapshot.nodes
        if self.whole and (nodes.cpus_used[at] or nodes.gpus_used[at]):
            return Obstacle(Kind.WHOLE, "others run there, and the job wants the whole node")
        free = int(nodes.gpus[at] - nodes.gpus_used[at])
        if self.gpus > free:
            return Obstacle(Kind.GPUS, _free(free, int(nodes.gpus[at]), "GPU", self.gpus))
        free_cpus = int(nodes.cpus[at] - nodes.cpus_used[at])
        if self.cpus > free_cpus:
            return Obstacle(Kind.CPUS, _free(free_cpus, int(nodes.cpus[at]), "CPU", self.cpus))
        free_mib = float(nodes.memory_mib[at] - nodes.memory_used_mib[at])
        if self.memory_mib > free_mib:
            told = f"{free_mib:.0f} MiB of its memory are free, the job needs {self.memory_mib:.0f} there"
            return Obstacle(Kind.MEMORY, told)
        return None


def _least(snapshot: Snapshot, row: int, facts: Facts) -> tuple[int, int, float]:
    """GPUs, CPUs and memory [MiB] on each node: evenly over its nodes unless it says otherwise."""
    jobs, record, nodes = snapshot.jobs, facts.record, max(1, int(snapshot.jobs.nodes[row]))
    gpus, cpus, memory_mib = int(jobs.gpus[row]), int(jobs.cpus[row]), float(jobs.memory_mib[row])
    spread, tasks = spreads(snapshot, row, facts), record.get("NumTasks", "")
    if spread or (tasks.isdigit() and int(tasks) > 1 and not _fixed(snapshot, row, record)):
        task, told = record.get("CPUs/Task", ""), "MinMemoryNode" in record
        return 1 if spread else gpus, min(cpus, int(task) if task.isdigit() else 1), memory_mib if told else 0.0
    uneven = nodes > 1 and any(key in record for key in UNEVEN)
    return min(gpus, 1) if uneven else -(-gpus // nodes), -(-cpus // nodes), memory_mib / nodes


def spreads(snapshot: Snapshot, row: int, facts: Facts) -> bool:
    """Whether its GPUs may come from more nodes than it shows: `--gpus=16` alone shows one, `-N1` shows "1-1"."""
    jobs, record = snapshot.jobs, facts.record
    return bool(jobs.gpus[row] > 1 and not _fixed(snapshot, row, record) and any(key in record for key in UNEVEN))


def _fixed(snapshot: Snapshot, row: int, record: Mapping[str, str]) -> bool:
    return bool(snapshot.jobs.nodes[row] > 1 or record.get("NumNodes") == "1-1")


def free_gpus(snapshot: Snapshot) -> Int64s:
    """Of each node that takes jobs. (N,) int64."""
    nodes = snapshot.nodes
    return np.where(nodes.closed, 0, np.maximum(nodes.gpus - nodes.gpus_used, 0)).astype(np.int64)


def names(hosts: str) -> frozenset[str]:
    """Those of a hostlist; none of one that cannot be read."""
    try:
        return frozenset(expand(hosts))
    except ValueError:
        return frozenset()


def whole(snapshot: Snapshot, row: int, facts: Facts) -> bool:
    """Whether it wants nodes alone: by its record, which tells it in a field of its own from 26.05 on, or its
    partitions."""
    told, shares = facts.record.get("Exclusive"), facts.record.get("OverSubscribe")
    own = shares == "NO" if told is None else told == "NODE"
    return bool(snapshot.jobs.exclusive[row]) or own or any(
        fields.get("OverSubscribe") == "EXCLUSIVE" for fields in facts.partitions.values()
    )  # fmt: skip


def _featured(asked: str, has: str) -> bool:
    try:
        return not asked or meets(asked, frozenset(has.split(",")))
    except UnknownForm:
        return True  # counts and brackets: what is nearer tells more


def kept(snapshot: Snapshot, row: int, facts: Facts) -> tuple[Kept, ...]:
    """Reservations that are not over and not for this job."""
    own = own_reservations(snapshot, row)
    return tuple(one for one in reservations(snapshot, facts) if one.name not in own)


def own_reservations(snapshot: Snapshot, row: int) -> frozenset[str]:
    """Names of those that the job names, and of those in which an act keeps nodes for it."""
    jobs = snapshot.jobs
    acts = (act.reservation for act in snapshot.acts if act.job_id == jobs.job_id[row])
    return frozenset((*jobs.reservation[row].split(","), *acts))


def reservations(snapshot: Snapshot, facts: Facts) -> tuple[Kept, ...]:
    """All that are not over."""
    table = facts.reservations
    return tuple(
        Kept(table.name[at], float(table.start_s[at]), float(table.end_s[at]),
             None if "ALL_NODES" in table.flags[at] else names(table.node_list[at]))
        for at in range(len(table)) if table.end_s[at] > snapshot.now_s
    )  # fmt: skip


def _free(free: int, of: int, what: str, needs: int) -> str:
    return f"{free} of its {some(of, what)} {'is' if free == 1 else 'are'} free, the job needs {needs} there"

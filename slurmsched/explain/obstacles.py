"""What keeps one job off one node: the first thing known."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from slurmsched.explain.facts import Facts
from slurmsched.explain.text import clock, shown
from slurmsched.model.columns import Int64s
from slurmsched.model.hostlist import expand
from slurmsched.model.snapshot import Snapshot
from slurmsched.planning.bounds import UnknownForm, meets
from slurmsched.slurm.gres import parse_gres
from slurmsched.survey.overview import state_words
from slurmsched.survey.stock import whole_types

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
class Asks:
    """What one job asks of a node. gpus: at least so many there. kept: reservations of others that overlap its time:
    name, begin [Unix s] and nodes, None = all. whole: it shares a node with no other job."""

    snapshot: Snapshot
    row: int
    gpus: int
    even: bool
    partitions: frozenset[str]
    asked: frozenset[str]
    excluded: frozenset[str]
    types: frozenset[str]
    kept: tuple[tuple[str, float, frozenset[str] | None], ...]
    whole: bool

    @classmethod
    def of(cls, snapshot: Snapshot, row: int, facts: Facts) -> Asks:
        jobs, spread = snapshot.jobs, int(snapshot.jobs.nodes[row]) > 1
        even = not (spread and any(key in facts.record for key in UNEVEN))
        gpus = int(jobs.gpus[row])
        each = -(-gpus // max(1, int(jobs.nodes[row]))) if even else min(gpus, 1)
        asked = names(jobs.nodes_asked[row])
        types = {one.type for one in parse_gres(jobs.gpu_request[row]) if one.kind == "gpu" and one.type}
        return cls(
            snapshot, row, each, even, frozenset(jobs.partition[row].split(",")),
            asked if len(asked) >= jobs.nodes[row] else frozenset(), names(jobs.nodes_excluded[row]),
            frozenset(types), _kept(snapshot, row, facts), bool(jobs.exclusive[row]) or _whole(facts),
        )  # fmt: skip

    def obstacle(self, at: int) -> Obstacle | None:
        """The first thing known that keeps it off the node in this row; None = nothing."""
        return self._unwanted(at) or self._standing(at) or self._reserved(at) or self._short(at)

    def _standing(self, at: int) -> Obstacle | None:
        nodes = self.snapshot.nodes
        if not nodes.closed[at]:
            return None
        reason = f": {shown(nodes.reason[at])}" if nodes.reason[at] else ""
        return Obstacle(Kind.CLOSED, f"it takes no new job ({state_words(int(nodes.state[at]))}{reason})")

    def _unwanted(self, at: int) -> Obstacle | None:
        """What the job says of nodes, and what the node has at all."""
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
        if self.gpus > nodes.gpus[at]:
            return Obstacle(Kind.NEVER, f"it has {int(nodes.gpus[at])} GPUs, the job needs {self.gpus} there")
        return None

    def _reserved(self, at: int) -> Obstacle | None:
        for name, start_s, nodes in self.kept:
            if nodes is None or self.snapshot.nodes.name[at] in nodes:
                return Obstacle(Kind.RESERVED, f"reservation {shown(name)} keeps it from {clock(start_s)} on")
        return None

    def _short(self, at: int) -> Obstacle | None:
        """GPUs, then CPUs and memory; a job spreads evenly over its nodes unless it says otherwise."""
        jobs, nodes, each = self.snapshot.jobs, self.snapshot.nodes, max(1, int(self.snapshot.jobs.nodes[self.row]))
        if self.whole and (nodes.cpus_used[at] or nodes.gpus_used[at]):
            return Obstacle(Kind.WHOLE, "others run there, and the job wants the whole node")
        free = int(nodes.gpus[at] - nodes.gpus_used[at])
        if self.gpus > free:
            told = f"{free} of its {int(nodes.gpus[at])} GPUs are free, the job needs {self.gpus} there"
            return Obstacle(Kind.GPUS, told)
        cpus, free_cpus = -(-int(jobs.cpus[self.row]) // each), int(nodes.cpus[at] - nodes.cpus_used[at])
        if cpus > free_cpus:
            told = f"{free_cpus} of its {int(nodes.cpus[at])} CPUs are free, the job needs {cpus} there"
            return Obstacle(Kind.CPUS, told)
        memory, free_mib = float(jobs.memory_mib[self.row]), float(nodes.memory_mib[at] - nodes.memory_used_mib[at])
        if memory / each > free_mib:
            told = f"{free_mib:.0f} MiB of its memory are free, the job needs {memory / each:.0f} there"
            return Obstacle(Kind.MEMORY, told)
        return None


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


def _whole(facts: Facts) -> bool:
    """By the job's record, which tells it in a field of its own from 26.05 on, or its partition."""
    told, shares = facts.record.get("Exclusive"), facts.record.get("OverSubscribe")
    own = shares == "NO" if told is None else told == "NODE"
    return own or any(fields.get("OverSubscribe") == "EXCLUSIVE" for fields in facts.partitions.values())


def _featured(asked: str, has: str) -> bool:
    try:
        return not asked or meets(asked, frozenset(has.split(",")))
    except UnknownForm:
        return True  # counts and brackets: what is nearer tells more


def _kept(snapshot: Snapshot, row: int, facts: Facts) -> tuple[tuple[str, float, frozenset[str] | None], ...]:
    jobs, table = snapshot.jobs, facts.reservations
    own, until_s = jobs.reservation[row].split(","), snapshot.now_s + float(jobs.time_limit_s[row])
    return tuple(
        (table.name[at], float(table.start_s[at]),
         None if "ALL_NODES" in table.flags[at] else names(table.node_list[at]))
        for at in range(len(table))
        if table.name[at] not in own and table.start_s[at] < until_s and table.end_s[at] > snapshot.now_s
    )  # fmt: skip

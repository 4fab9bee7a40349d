"""What keeps one job off one node: the first thing known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto

import numpy as np

from slurmsched.explain.facts import Facts
from slurmsched.explain.text import clock, shown
from slurmsched.model.columns import Int64s
from slurmsched.model.hostlist import expand
from slurmsched.model.snapshot import Snapshot
from slurmsched.resources.eligibility import Bar, Eligibility, eligibility, partition_cpus
from slurmsched.resources.free import shares
from slurmsched.resources.job_request import JobRequest, request_of
from slurmsched.survey.overview import state_words
from slurmsched.words import some


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


_ELSEWHERE = (Bar.PARTITION, Bar.EXCLUDED, Bar.NOT_ASKED, Bar.CONSTRAINT, Bar.GPU_TYPE)


@dataclass(frozen=True, slots=True)
class Asks:
    """What one job asks of nodes, and which it may have. room: what of them is free for it."""

    snapshot: Snapshot
    row: int
    request: JobRequest
    found: Eligibility

    @classmethod
    def of(cls, snapshot: Snapshot, row: int, facts: Facts) -> Asks:
        """facts: of the job; its record and the reservations count."""
        seen = replace(snapshot, reservations=facts.reservations)
        request = request_of(seen, row, facts.record)
        request = replace(request, whole=whole(snapshot, row, facts))
        return cls(seen, row, request, eligibility(seen, request))

    @property
    def unseen(self) -> tuple[str, ...]:
        """What was not looked at."""
        return self.found.unseen

    @property
    def kept(self) -> tuple[Kept, ...]:
        """Reservations that have whole nodes before it would be over."""
        by = {int(row) for row in self.found.reserved_by if row >= 0}
        return tuple(_kept_by(self.snapshot, row) for row in sorted(by))

    def obstacle(self, at: int) -> Obstacle | None:
        """The first thing known that keeps it off the node in this row; None = nothing."""
        bar = Bar(int(self.found.bar[at]))
        if bar is Bar.NONE:
            return self._short(at)
        return self.elsewhere(at) or self._barred(at, bar)

    def elsewhere(self, at: int) -> Obstacle | None:
        """What the job says of nodes by partition, name, feature and GPU type."""
        nodes, jobs, bar = self.snapshot.nodes, self.snapshot.jobs, int(self.found.bar[at])
        if bar not in _ELSEWHERE:
            return None
        gpu_types = sorted(name for name, _ in self.request.types)
        missing = [name for name in gpu_types if f":{name}:" not in f":{nodes.gpu_types[at]}:".replace(",", ":")]
        features = nodes.features[at] or "none"
        words = {
            Bar.PARTITION: f"it is not in partition {jobs.partition[self.row]}",
            Bar.EXCLUDED: "the job excludes it",
            Bar.NOT_ASKED: f"the job asks for {jobs.nodes_asked[self.row]}",
            Bar.CONSTRAINT: f"it is not {shown(self.request.constraint)} (its features: {features})",
            Bar.GPU_TYPE: f"it has no {' or '.join(missing)} (its GPUs: {nodes.gpu_types[at] or 'none'})",
        }
        return Obstacle(Kind.NEVER, words[Bar(bar)])

    def _barred(self, at: int, bar: Bar) -> Obstacle:
        nodes = self.snapshot.nodes
        if bar is Bar.PARTITION_LIMIT:
            serves = nodes.partitions[at].split(",")
            return Obstacle(Kind.NEVER, next(why for name, why in self.found.limits.items() if name in serves))
        if bar is Bar.OWN_RESERVATION:
            names = shown(",".join(self.request.reservations))
            return Obstacle(Kind.NEVER, f"it is not a node of reservation {names}, which the job names")
        if bar is Bar.SIZE:
            return self._too_small(at)
        if bar is Bar.CLOSED and nodes.gpus_unread[at] and not nodes.down[at]:
            return Obstacle(Kind.CLOSED, "how many of its GPUs are in use cannot be read")
        if bar is Bar.CLOSED:
            reason = f": {shown(nodes.reason[at])}" if nodes.reason[at] else ""
            return Obstacle(Kind.CLOSED, f"it takes no new job ({state_words(int(nodes.state[at]))}{reason})")
        if bar is Bar.PARTITION_CPUS:
            left = max(0, int(partition_cpus(self.snapshot, self.request)[at]))
            told = f"its partition's jobs may have {some(left, 'CPU')} more of it (MaxCPUsPerNode)"
            return Obstacle(Kind.CPUS, f"{told}, the job needs {self.request.cpus} there")
        if bar is Bar.USER:
            alone = "another user's job runs there, and users share no nodes (ExclusiveUser)"
            return Obstacle(Kind.WHOLE, alone)
        return self._reserved(at)

    def _too_small(self, at: int) -> Obstacle:
        """What the node has at all."""
        nodes, needs = self.snapshot.nodes, self.request
        if needs.gpus > nodes.gpus[at]:
            return Obstacle(Kind.NEVER, f"it has {some(int(nodes.gpus[at]), 'GPU')}, the job needs {needs.gpus} there")
        if needs.cpus > nodes.cpus[at]:
            return Obstacle(Kind.NEVER, f"it has {some(int(nodes.cpus[at]), 'CPU')}, the job needs {needs.cpus} there")
        if needs.memory_mib > nodes.memory_mib[at]:
            told = f"it has {nodes.memory_mib[at]:.0f} MiB of memory, the job needs {needs.memory_mib:.0f} there"
            return Obstacle(Kind.NEVER, told)
        wanted = ", ".join(f"{count} {name}" for name, count in needs.types)
        return Obstacle(Kind.NEVER, f"its GPUs are {nodes.gpu_types[at]}, the job needs {wanted} there")

    def _reserved(self, at: int) -> Obstacle:
        table, by = self.snapshot.reservations, int(self.found.reserved_by[at])
        if by >= 0:
            start = clock(float(table.start_s[by]))
            return Obstacle(Kind.RESERVED, f"reservation {shown(table.name[by])} keeps it from {start} on")
        kept_gpus, kept_cpus = int(self.found.kept_gpus[at]), int(self.found.kept_cpus[at])
        if kept_gpus or kept_cpus:
            kept = f"{some(kept_gpus, 'GPU')} and {some(kept_cpus, 'CPU')}"
            return Obstacle(Kind.RESERVED, f"a reservation keeps {kept} of it, and the rest is too little")
        return Obstacle(Kind.RESERVED, "a reservation keeps it")

    def _short(self, at: int) -> Obstacle | None:
        """GPUs, then CPUs and memory."""
        nodes, needs = self.snapshot.nodes, self.request
        if needs.whole and (nodes.cpus_used[at] or nodes.gpus_used[at]):
            return Obstacle(Kind.WHOLE, "others run there, and the job wants the whole node")
        free = int(nodes.gpus[at] - nodes.gpus_used[at] - self.found.kept_gpus[at])
        if needs.gpus > free:
            return Obstacle(Kind.GPUS, _free(free, int(nodes.gpus[at]), "GPU", needs.gpus))
        free_cpus = int(nodes.cpus[at] - nodes.cpus_used[at] - self.found.kept_cpus[at])
        if needs.cpus > free_cpus and not shares(self.snapshot, needs):
            return Obstacle(Kind.CPUS, _free(free_cpus, int(nodes.cpus[at]), "CPU", needs.cpus))
        free_mib = float(nodes.memory_mib[at] - nodes.memory_used_mib[at])
        if needs.memory_mib > free_mib:
            told = f"{free_mib:.0f} MiB of its memory are free, the job needs {needs.memory_mib:.0f} there"
            return Obstacle(Kind.MEMORY, told)
        return None


def spreads(snapshot: Snapshot, row: int, facts: Facts) -> bool:
    """Whether its GPUs may come from more nodes than it shows: `--gpus=16` alone shows one, `-N1` shows "1-1"."""
    return request_of(snapshot, row, facts.record).spread


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
    """Whether it wants nodes alone: by its record or its partitions."""
    told = any("EXCLUSIVE" in (one.get("OverSubscribe"), one.get("Exclusive", "").replace("NODE", "EXCLUSIVE"))
               for one in facts.partitions.values())  # fmt: skip
    return request_of(snapshot, row, facts.record).whole or told


def own_reservations(snapshot: Snapshot, row: int) -> frozenset[str]:
    """Names of those that the job names, and of those in which an act keeps nodes for it."""
    jobs = snapshot.jobs
    acts = (act.reservation for act in snapshot.acts if act.job_id == jobs.job_id[row])
    return frozenset((*jobs.reservation[row].split(","), *acts))


def reservations(snapshot: Snapshot, facts: Facts) -> tuple[Kept, ...]:
    """All that are not over."""
    table = facts.reservations
    seen = replace(snapshot, reservations=table)
    return tuple(_kept_by(seen, at) for at in range(len(table)) if table.end_s[at] > snapshot.now_s)


def _kept_by(snapshot: Snapshot, at: int) -> Kept:
    table = snapshot.reservations
    nodes = None if "ALL_NODES" in table.flags[at] else names(table.node_list[at])
    return Kept(table.name[at], float(table.start_s[at]), float(table.end_s[at]), nodes)


def _free(free: int, of: int, what: str, needs: int) -> str:
    return f"{free} of its {some(of, what)} {'is' if free == 1 else 'are'} free, the job needs {needs} there"

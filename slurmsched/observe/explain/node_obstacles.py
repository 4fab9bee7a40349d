"""Why a job cannot have a node, as text, and on how many nodes there is room for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.columns import Bools
from slurmsched.model.hostlists import expand_or_none
from slurmsched.model.job_details import JobDetails
from slurmsched.model.snapshot import Snapshot
from slurmsched.observe.explain.wording import local_time, printable
from slurmsched.observe.survey.gpu_overview import state_words
from slurmsched.plain_text import pluralize
from slurmsched.resources.by_type import gpus_of_type, surely_free
from slurmsched.resources.eligibility import Eligibility, Exclusion
from slurmsched.resources.free import FreeForRequest, free_for
from slurmsched.resources.job_request import JobRequest, request_of
from slurmsched.resources.partition_limits import partition_cpus
from slurmsched.resources.topology_limits import (
    nodes_for_one_job,
    too_far_apart,
    topology_for_job,
    unknown_topology_rule,
)


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """What one job asks of nodes, which it may have, and what of them is free for it."""

    snapshot: Snapshot
    row: int
    request: JobRequest
    free: FreeForRequest

    @classmethod
    def of(cls, snapshot: Snapshot, row: int, details: JobDetails) -> NodeCheck:
        """facts: of the job; its record and the reservations count."""
        seen = replace(snapshot, reservations=details.reservations)
        request = request_of(seen, row, details.record)
        return cls(seen, row, request, free_for(seen, request))

    @property
    def found(self) -> Eligibility:
        """Which nodes it may have, whoever runs there."""
        return self.free.eligibility

    @property
    def unseen(self) -> tuple[str, ...]:
        """Rules that were not checked."""
        return self.found.unseen

    def excluded_by(self, *reasons: Exclusion) -> Bools:
        """Nodes that the job cannot have for one of these reasons. (N,) bool."""
        return np.isin(self.free.exclusion, reasons)

    def enough(self, *reasons: Exclusion) -> bool:
        """Whether the nodes that are free for it, or that lack one of these, are enough for it, and near enough."""
        nodes, jobs, fit = self.snapshot.nodes, self.snapshot.jobs, self.excluded_by(Exclusion.NONE, *reasons)
        gpus = nodes.gpus[fit].sum() if self.request.spread else jobs.gpus[self.row]
        enough = int(fit.sum()) >= self.nodes and bool(gpus >= jobs.gpus[self.row])
        return enough and self.near_enough(fit)

    @property
    def nodes(self) -> int:
        """How many nodes it asks for, at least 1."""
        return max(1, int(self.snapshot.jobs.nodes[self.row]))

    def near_enough(self, nodes: Bools) -> bool:
        """Whether Slurm would start the job on some of these, by its switches or blocks. True where that is not known.

        nodes: (N,) bool, at least as many as it asks for.
        """
        topology = topology_for_job(self.snapshot, self.row)
        if self.request.spread or unknown_topology_rule(topology, self.nodes):
            return True
        return bool(nodes_for_one_job(topology, nodes, self.nodes).any())

    def text(self, at: int) -> str:
        """The first reason why the job cannot have the node in this row, as text; "" = there is none."""
        why = Exclusion(int(self.free.exclusion[at]))
        return "" if why is Exclusion.NONE else _TEXTS[why](self, at)


def _no_partition(check: NodeCheck, _: int) -> str:
    return f"it is not in partition {check.snapshot.jobs.partition[check.row]}"


def _not_asked(check: NodeCheck, _: int) -> str:
    return f"the job asks for {check.snapshot.jobs.nodes_asked[check.row]}"


def _no_feature(check: NodeCheck, at: int) -> str:
    features = check.snapshot.nodes.features[at] or "none"
    return f"it is not {printable(check.request.constraint)} (its features: {features})"


def _no_type(check: NodeCheck, at: int) -> str:
    has = check.snapshot.nodes.gpu_types[at]
    missing = [name for name, _ in sorted(check.request.types) if f":{name}:" not in f":{has}:".replace(",", ":")]
    return f"it has no {' or '.join(missing)} (its GPUs: {has or 'none'})"


def _partition_limit(check: NodeCheck, at: int) -> str:
    serves = check.snapshot.nodes.partitions[at].split(",")
    return next(why for name, why in check.found.refusals.items() if name in serves)


def _other_reservation(check: NodeCheck, _: int) -> str:
    return f"it is not a node of reservation {printable(','.join(check.request.reservations))}, which the job names"


def _closed_reason(check: NodeCheck, at: int) -> str:
    nodes = check.snapshot.nodes
    if nodes.gpus_unread[at] and not nodes.down[at]:
        return "how many of its GPUs are in use cannot be read"
    reason = f": {printable(nodes.reason[at])}" if nodes.reason[at] else ""
    return f"it takes no new job ({state_words(int(nodes.state[at]))}{reason})"


def _partition_cpus(check: NodeCheck, at: int) -> str:
    free = max(0, int(partition_cpus(check.snapshot, check.request)[at]))
    sentence = f"its partition's jobs may have {pluralize(free, 'CPU')} more of it (MaxCPUsPerNode)"
    return f"{sentence}, the job needs {check.request.cpus} there"


def _too_small(check: NodeCheck, at: int) -> str:
    """The reason if even the empty node is too small for the job; "" = it is not."""
    nodes, needs = check.snapshot.nodes, check.request
    if needs.gpus > nodes.gpus[at]:
        return f"it has {pluralize(int(nodes.gpus[at]), 'GPU')}, the job needs {needs.gpus} there"
    if needs.cpus > nodes.cpus[at]:
        return f"it has {pluralize(int(nodes.cpus[at]), 'CPU')}, the job needs {needs.cpus} there"
    if needs.memory_mib > nodes.memory_mib[at]:
        return f"it has {nodes.memory_mib[at]:.0f} MiB of memory, the job needs {needs.memory_mib:.0f} there"
    wanted = ", ".join(f"{count} {name}" for name, count in needs.types)
    return f"its GPUs are {nodes.gpu_types[at]}, the job needs {wanted} there"


def _reserved(check: NodeCheck, at: int) -> str:
    table, by = check.snapshot.reservations, int(check.found.reserved_by[at])
    if by >= 0:
        start = local_time(float(table.start_s[by]))
        return f"reservation {printable(table.name[by])} keeps it from {start} on"
    kept_gpus, kept_cpus = int(check.found.kept_gpus[at]), int(check.found.kept_cpus[at])
    if kept_gpus or kept_cpus:
        kept = f"{pluralize(kept_gpus, 'GPU')} and {pluralize(kept_cpus, 'CPU')}"
        return f"a reservation keeps {kept} of it, and the rest is too little"
    return "a reservation keeps it"


def _few_gpus(check: NodeCheck, at: int) -> str:
    nodes, needs = check.snapshot.nodes, check.request
    if needs.gpus > check.free.gpus[at] or not needs.types:
        return _few(int(check.free.gpus[at]), int(nodes.gpus[at]), "GPU", needs.gpus)
    kept = int(check.found.kept_gpus[at])
    free = {name: max(0, int(surely_free(check.snapshot, name)[at]) - kept) for name, _ in needs.types}
    name, count = next((name, count) for name, count in needs.types if free[name] < count)
    return _few(free[name], gpus_of_type(nodes.gpu_types[at], name), f"{name} GPU", count)


def _few_cpus(check: NodeCheck, at: int) -> str:
    nodes = check.snapshot.nodes
    free = int(nodes.cpus[at] - nodes.cpus_used[at] - check.found.kept_cpus[at])
    return _few(free, int(nodes.cpus[at]), "CPU", check.request.cpus)


def _little_memory(check: NodeCheck, at: int) -> str:
    free_mib = float(check.snapshot.nodes.memory_mib[at] - check.snapshot.nodes.memory_used_mib[at])
    return f"{free_mib:.0f} MiB of its memory are free, the job needs {check.request.memory_mib:.0f} there"


def _few(free: int, of: int, what: str, needs: int) -> str:
    return f"{free} of its {pluralize(of, what)} {'is' if free == 1 else 'are'} free, the job needs {needs} there"


_TEXTS: dict[Exclusion, Callable[[NodeCheck, int], str]] = {
    Exclusion.PARTITION: _no_partition,
    Exclusion.EXCLUDED: lambda *_: "the job excludes it",
    Exclusion.NOT_ASKED: _not_asked,
    Exclusion.CONSTRAINT: _no_feature,
    Exclusion.GPU_TYPE: _no_type,
    Exclusion.PARTITION_LIMIT: _partition_limit,
    Exclusion.OWN_RESERVATION: _other_reservation,
    Exclusion.SIZE: _too_small,
    Exclusion.CLOSED: _closed_reason,
    Exclusion.USER: lambda *_: "another user's job runs there, and users share no nodes (ExclusiveUser)",
    Exclusion.PARTITION_CPUS: _partition_cpus,
    Exclusion.RESERVED: _reserved,
    Exclusion.NOT_EMPTY: lambda *_: "others run there, and the job asks for the whole node",
    Exclusion.GPUS: _few_gpus,
    Exclusion.CPUS: _few_cpus,
    Exclusion.MEMORY: _little_memory,
}


def known_hosts(hosts: str) -> frozenset[str]:
    """Those of a hostlist; none of one that cannot be read."""
    return frozenset(expand_or_none(hosts) or ())


# On how many nodes there is room for a job now, and what the others lack.

_LACKS = {
    "closed": (Exclusion.CLOSED,), "reserved for others": (Exclusion.RESERVED,),
    "not empty": (Exclusion.USER, Exclusion.NOT_EMPTY), "short of GPUs": (Exclusion.GPUS,),
    "short of CPUs": (Exclusion.PARTITION_CPUS, Exclusion.CPUS), "short of memory": (Exclusion.MEMORY,),
}  # fmt: skip


def room_on_nodes(snapshot: Snapshot, row: int, details: JobDetails) -> str:
    """In words, by counts of GPUs, CPUs and memory; where no node could ever serve it, what keeps it off most."""
    check = NodeCheck.of(snapshot, row, details)
    if not check.found.ever.any():
        rows = np.flatnonzero(~check.excluded_by(Exclusion.PARTITION)).tolist()
        most = Counter(map(check.text, rows)).most_common(1)
        return f" No node can serve it: {most[0][0]}." if most else ""
    rule = unknown_topology_rule(topology_for_job(snapshot, row), check.nodes)
    unseen = [*check.unseen, *([rule] if rule else [])]
    return _room_by_counts(check) + (f" Not looked at: {printable('; '.join(unseen))}." if unseen else "")


def _room_by_counts(check: NodeCheck) -> str:
    """On how many of the nodes that could ever serve it there is room now."""
    snapshot, fit, jobs = check.snapshot, check.free.mask, check.snapshot.jobs
    lacks = {words: int(check.excluded_by(*reasons).sum()) for words, reasons in _LACKS.items()}
    needs, gpus = check.nodes, int(jobs.gpus[check.row])
    sentence = ", ".join(f"{nodes} {words}" for words, nodes in lacks.items() if nodes)
    many = pluralize(int(check.found.ever.sum()), "node")
    of = f"{int(fit.sum())} of {many} it may use" + (f" ({sentence})" if sentence else "")
    boots = int(snapshot.nodes.after_boot[fit].sum())
    of += f", on {boots} of these after a boot" if boots else ""
    if int(fit.sum()) < needs:
        return f" There is room for it on {of}; it needs {'at least ' * check.request.spread}{needs}."
    if (free := int(check.free.gpus[fit].sum())) < gpus:
        return f" There {'is' if free == 1 else 'are'} {pluralize(free, 'GPU')} free on {of}; it needs {gpus}."
    if not check.near_enough(fit):
        return f" By counts there is room for it on {of}, but {too_far_apart(needs)}."
    return f" By counts there is room for it on {of}."


# Why a job cannot have one node.

HOLDERS_SHOWN = 3
_HELD_BY_OTHERS = (
    Exclusion.USER, Exclusion.PARTITION_CPUS, Exclusion.NOT_EMPTY, Exclusion.GPUS, Exclusion.CPUS, Exclusion.MEMORY,
)  # fmt: skip


def why_not(snapshot: Snapshot, row: int, node: str, details: JobDetails) -> str:
    """In words; "" if nothing known does. Raises InputError for a node that Slurm does not have."""
    known = list(snapshot.nodes.name)
    if node not in known:
        raise InputError(f"Slurm has no node {printable(node)}; `sinfo -N` lists them")
    check, at = NodeCheck.of(snapshot, row, details), known.index(node)
    if not (why := check.text(at)):
        unseen = "; ".join(check.unseen)
        return f"nothing that was looked at. Not looked at: {printable(unseen)}" if unseen else ""
    return why + (_holders(snapshot, node) if check.excluded_by(*_HELD_BY_OTHERS)[at] else "")


def _holders(snapshot: Snapshot, node: str) -> str:
    """The jobs there, those that end first before the others."""
    jobs = snapshot.jobs
    may = (~jobs.pending & ~jobs.finished).nonzero()[0].tolist()
    rows = [row for row in may if node in known_hosts(jobs.node_list[row])]
    rows.sort(key=lambda row: (not isfinite(jobs.end_s[row]), jobs.end_s[row], jobs.job_id[row]))
    holders = [_holder(snapshot, row) for row in rows[:HOLDERS_SHOWN]]
    more = f" and {len(rows) - HOLDERS_SHOWN} more" if len(rows) > HOLDERS_SHOWN else ""
    return f"; there run{'s' * (len(rows) == 1)} {', '.join(holders)}{more}" if holders else ""


def _holder(snapshot: Snapshot, row: int) -> str:
    jobs = snapshot.jobs
    end_s = float(jobs.end_s[row])
    ends = f"until {local_time(end_s)} at the latest" if isfinite(end_s) else "with no time limit"
    return f"job {int(jobs.job_id[row])} of {printable(jobs.user[row])} {ends}"

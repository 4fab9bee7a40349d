"""Which nodes a job may have, and for each other node the first reason why not. Every command asks here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache, partial
from math import inf

import numpy as np

from slurmsched.model.columns import Bools, Floats, Int8s, Int32s, Int64s, Labels, sealed
from slurmsched.model.hostlist import expand, most_of
from slurmsched.model.nodes import Partitions
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.states import JobState, NodeState
from slurmsched.resources.constraints import judge_constraint
from slurmsched.resources.job_request import JobRequest, request_of

YEAR_S = 365 * 86_400.0  # what Slurm takes for an endless reservation
_KEPT_ANSWERS = 1 << 9  # of a snapshot: users write as many different requests as they like
_HOLDS = JobState.RUNNING | JobState.SUSPENDED | JobState.COMPLETING


class Bar(IntEnum):
    """The first that keeps a job off a node, in the order they are looked at. Those before CLOSED last, whoever leaves
    the node."""

    NONE = 0
    PARTITION = 1  # not a node of its partitions
    EXCLUDED = 2  # by the job
    NOT_ASKED = 3  # not among the nodes it asks for
    CONSTRAINT = 4
    GPU_TYPE = 5
    PARTITION_LIMIT = 6  # the partition starts no such job
    OWN_RESERVATION = 7  # not a node of the reservation that the job names
    SIZE = 8  # the node is too small
    CLOSED = 9  # it takes no new job
    USER = 10  # shared by jobs of one user alone, and another one has it
    PARTITION_CPUS = 11  # jobs of its partition have the CPUs that they may have of the node
    RESERVED = 12  # for others


LASTING = Bar.CLOSED  # bars below this one last


@dataclass(frozen=True, slots=True, eq=False)
class Eligibility:
    """The answer for one request. All (N,), by row of the nodes.

    bar: a Bar each. sure: whether all that decides of the node was looked at; where it was not, nobody is preempted and
    no node is chosen. doubts: what was not looked at that decides. unseen: all that was not looked at, doubts too.
    reserved_by: row of the reservation that bars it, -1 = none. kept_gpus, kept_cpus: what reservations of parts of the
    node keep from the job. limits: by partition, why it starts no such job.
    """

    request: JobRequest
    bar: Int8s
    sure: Bools
    doubts: tuple[str, ...]
    unseen: tuple[str, ...]
    reserved_by: Int32s
    kept_gpus: Int64s
    kept_cpus: Int64s
    limits: dict[str, str] = field(default_factory=dict)

    @property
    def mask(self) -> Bools:
        """Nodes that the job may have now, whoever runs there. (N,) bool."""
        found: Bools = self.bar == Bar.NONE
        return found

    @property
    def ever(self) -> Bools:
        """Nodes that the job may have once they are open and no reservation or other user has them. (N,) bool."""
        found: Bools = (self.bar == Bar.NONE) | (self.bar >= LASTING)
        return found

    @property
    def open(self) -> Bools:
        """Nodes that may serve it and take jobs, reservations not looked at. (N,) bool."""
        found: Bools = (self.bar == Bar.NONE) | (self.bar == Bar.RESERVED)
        return found


def eligible_nodes(snapshot: Snapshot, row: int) -> Eligibility:
    """The answer for the job in this row."""
    return eligibility(snapshot, request_of(snapshot, row))


def eligibility(snapshot: Snapshot, request: JobRequest, *, sized: bool = True) -> Eligibility:
    """The answer for this request. The last answers of a snapshot are remembered. What the snapshot does not tell of
    partitions and reservations bars nothing.

    sized: whether a node must be large enough; without, Bar.SIZE is not looked at.
    """
    return _answers(snapshot)(request, sized)


@lru_cache(maxsize=2)
def _answers(snapshot: Snapshot) -> Callable[[JobRequest, bool], Eligibility]:
    return lru_cache(maxsize=_KEPT_ANSWERS)(partial(_judged, snapshot))


def limit_classes(snapshot: Snapshot) -> list[Int64s]:
    """What jobs must have alike to be let into the same partitions, as numbers from 0; empty where no partition has a
    limit. Each (J,)."""
    jobs, table = snapshot.jobs, snapshot.partitions
    nodes = np.maximum(jobs.nodes, 1)
    by_node = np.isfinite(table.max_cpus_per_node).any() or np.isfinite(table.max_memory_mib).any()
    apart = by_node or table.min_nodes.max(initial=0) > 1  # one node is not fixed, and takes no certain share of each
    sizes = (
        (jobs.nodes, table.max_nodes),
        (jobs.nodes, np.append(table.min_nodes - 1.0, float(apart))),
        (jobs.time_limit_s, table.max_time_s),
        (-(-jobs.cpus // nodes), table.max_cpus_per_node),
        (jobs.memory_mib / nodes, table.max_memory_mib),
    )
    bounds = [(values, np.unique(limits[np.isfinite(limits) & (limits >= 0)])) for values, limits in sizes]
    found = [np.searchsorted(some, values, side="left").astype(np.int64) for values, some in bounds if len(some)]
    lists = ((jobs.account, (table.allow_accounts, table.deny_accounts)), (jobs.qos, (table.allow_qos, table.deny_qos)))
    found += [column.codes.astype(np.int64) for column, some in lists if any(set(one.names) - {""} for one in some)]
    if "user" in table.exclusive.names:
        found.append(jobs.user.codes.astype(np.int64))
    if table.needs_reservation.any():
        kept = [act.job_id for act in snapshot.acts]
        found.append((jobs.reservation.isin([""]) & ~np.isin(jobs.job_id, kept)).astype(np.int64))
    return found


def _judged(snapshot: Snapshot, request: JobRequest, sized: bool) -> Eligibility:
    nodes, rows = snapshot.nodes, len(snapshot.nodes)
    bar, found = np.zeros(rows, np.int8), _Doubts()

    def off(where: Bools, why: Bar) -> None:
        bar[(bar == Bar.NONE) & where] = why

    limits, admits, surely = _partitions(snapshot, request, found)
    off(~_any(_serving(nodes.partitions, name) for name in request.partitions) if request.partitions else
        np.ones(rows, np.bool_), Bar.PARTITION)  # fmt: skip
    asked, excluded = (_hosts(text, found, rows) for text in (request.nodes_asked, request.nodes_excluded))
    off(_named(nodes.name, excluded), Bar.EXCLUDED)
    if asked and len(asked) >= request.nodes:
        off(~_named(nodes.name, asked), Bar.NOT_ASKED)
    elif asked:
        found.doubt("it names some of its nodes and leaves others free")
    off(_unmet(snapshot, request, found), Bar.CONSTRAINT)
    off(_of_other_types(nodes.gpu_types, request, found), Bar.GPU_TYPE)
    off(~admits, Bar.PARTITION_LIMIT)
    off(_outside(snapshot, request, found), Bar.OWN_RESERVATION)
    if sized:
        off(_too_small(snapshot, request), Bar.SIZE)
    off(_closed(snapshot, request), Bar.CLOSED)
    off(_of_other_users(snapshot, request, found), Bar.USER)
    if sized:
        off(partition_cpus(snapshot, request) < request.cpus, Bar.PARTITION_CPUS)
        _doubt_cpus(snapshot, request, found)
    reserved, kept_gpus, kept_cpus = _reserved(snapshot, request, found)
    off((reserved >= 0) | _kept_unseen(snapshot, request), Bar.RESERVED)
    if sized:
        short = (nodes.gpus - kept_gpus < request.gpus) | (nodes.cpus - kept_cpus < request.cpus)
        off(short & ((kept_gpus > 0) | (kept_cpus > 0)), Bar.RESERVED)
    sure = surely if not found.doubts else np.zeros(rows, np.bool_)
    doubts = (*found.doubts, *found.partition_doubts)
    return Eligibility(request, bar, sure, doubts, found.all(), reserved, kept_gpus, kept_cpus, limits)


@dataclass(slots=True)
class _Doubts:
    """What was not looked at. doubts: that decides of all nodes; partition_doubts: of those of a partition; others."""

    doubts: list[str] = field(default_factory=list)
    partition_doubts: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def doubt(self, why: str) -> None:
        if why not in self.doubts:
            self.doubts.append(why)

    def all(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.doubts, *self.partition_doubts, *self.others)))


def _any(masks: Iterator[Bools]) -> Bools:
    found: Bools = np.logical_or.reduce(list(masks))
    return found


@lru_cache(maxsize=1 << 8)
def _serving(partitions: Labels, name: str) -> Bools:
    return partitions.map(lambda serves: name in serves.split(","), np.bool_)


@lru_cache(maxsize=1 << 8)
def _named(names: Labels, hosts: tuple[str, ...]) -> Bools:
    return names.isin(hosts)


def _hosts(text: str, found: _Doubts, nodes: int) -> tuple[str, ...]:
    try:
        return expand(text, most_of(nodes))
    except ValueError as error:
        found.doubt(f"its list of nodes {text!r} ({error})")
        return ()


def named_rows(snapshot: Snapshot, text: str) -> tuple[list[int], int] | None:
    """Rows of the nodes of a hostlist and how many names it has; None where it cannot be read."""
    try:
        names = expand(text, most_of(len(snapshot.nodes)))
    except ValueError:
        return None
    at = _rows_of(snapshot.nodes.name)
    return [at[name] for name in names if name in at], len(names)


@lru_cache(maxsize=2)
def _rows_of(names: Labels) -> dict[str, int]:
    return {name: row for row, name in enumerate(names)}


@lru_cache(maxsize=4)
def _nothing(rows: int) -> Int64s:
    return sealed(np.zeros(rows, np.int64))


def _unmet(snapshot: Snapshot, request: JobRequest, found: _Doubts) -> Bools:
    """Nodes whose features rule the job out."""
    features, nodes = snapshot.nodes.features, request.nodes if not request.spread else 0
    if not request.constraint:
        return np.zeros(len(features), np.bool_)
    verdicts = [judge_constraint(request.constraint, frozenset(has.split(",")), nodes) for has in features.names]
    for verdict in verdicts:
        if verdict.why:
            found.doubt(verdict.why)
    met = np.array([verdict.meets for verdict in verdicts], np.bool_)
    if _reboots(snapshot) and not met.all():
        found.others.append("other features that Slurm may boot nodes with (NodeFeaturesPlugins)")
    unmet: Bools = ~met[features.codes] if len(met) else np.zeros(len(features), np.bool_)
    return unmet


def _reboots(snapshot: Snapshot) -> bool:
    return snapshot.site.settings.get("NodeFeaturesPlugins", "(null)") not in ("", "(null)")


def _of_other_types(has: Labels, request: JobRequest, found: _Doubts) -> Bools:
    """Nodes without the GPU types it names: without any of them where these may lie on different nodes."""
    wanted = frozenset(name for name, _ in request.types)
    if not wanted:
        return np.zeros(len(has), np.bool_)
    if request.apart:
        found.doubt("which of its nodes give which of its GPU types")
        return has.map(lambda text: wanted.isdisjoint(_type_counts(text)), np.bool_)
    return has.map(lambda text: not wanted.issubset(_type_counts(text)), np.bool_)


def _too_few(has: Labels, request: JobRequest) -> Bools:
    """Nodes with fewer GPUs of a type than it takes of each node."""
    if not request.types or request.apart:
        return np.zeros(len(has), np.bool_)
    return has.map(lambda text: any(_type_counts(text).get(name, 0) < n for name, n in request.types), np.bool_)


def _too_small(snapshot: Snapshot, request: JobRequest) -> Bools:
    """Nodes that have less than it takes of each node, were they empty."""
    nodes = snapshot.nodes
    small: Bools = (nodes.gpus < request.gpus) | (nodes.cpus < request.cpus) | (nodes.memory_mib < request.memory_mib)
    return small | _too_few(nodes.gpu_types, request)


@lru_cache(maxsize=1 << 10)
def _type_counts(gpu_types: str) -> dict[str, int]:
    parts = (part.split(":") for part in gpu_types.split(",") if part.count(":") == 2)
    return {name: int(count) for _, name, count in parts}


def _partitions(snapshot: Snapshot, request: JobRequest, found: _Doubts) -> tuple[dict[str, str], Bools, Bools]:
    """Why each of its partitions starts no such job; nodes of those that do; and of those of which that is sure."""
    table, serves = snapshot.partitions, snapshot.nodes.partitions
    limits, admits, sure = dict[str, str](), np.zeros(len(serves), np.bool_), np.zeros(len(serves), np.bool_)
    rows = {name: row for row, name in enumerate(table.name)}
    for name in request.partitions:
        here, doubts, row = _serving(serves, name), list[str](), rows.get(name, -1)
        if row >= 0 and (why := partition_bar(table, row, request)):
            limits[name] = why
            continue
        if row >= 0:
            doubts = [f"partition {name}: {doubt}" for doubt in partition_doubts(table, row, request)]
            found.others += [f"partition {name}: {one}" for one in partition_unseen(table, row, request)]
        found.partition_doubts += doubts
        admits |= here
        if not doubts:
            sure |= here
    return limits, admits, sure


def partition_bar(table: Partitions, row: int, request: JobRequest) -> str:
    """Why this partition starts no such job, in words; "" if it may."""
    name = table.name[row]
    if not table.up[row] or (not request.queued and table.state[row] == "DRAIN"):
        return f"partition {name} is {table.state[row] if table.state[row] != 'UP' else 'not up'}"
    asks = (
        (request.nodes > table.max_nodes[row], "MaxNodes", f"{table.max_nodes[row]:g}", f"{request.nodes}"),
        (request.fixed and request.nodes < table.min_nodes[row], "MinNodes", table.min_nodes[row], f"{request.nodes}"),
        (request.time_limit_s > table.max_time_s[row], "MaxTime", f"{table.max_time_s[row] / 3600:g} h",
         "no limit" if request.time_limit_s == inf else f"{request.time_limit_s / 3600:g} h"),
        (request.cpus > table.max_cpus_per_node[row], "MaxCPUsPerNode", f"{table.max_cpus_per_node[row]:g}",
         f"{request.cpus} on each node"),
        (request.memory_mib > table.max_memory_mib[row], "MaxMemPerNode", f"{table.max_memory_mib[row]:g} MiB",
         f"{request.memory_mib:g} MiB on each node"),
    )  # fmt: skip
    for beyond, key, limit, wanted in asks:
        if beyond:
            return f"partition {name} has {key}={limit}, the job asks for {wanted}"
    if table.needs_reservation[row] and not request.reservations and not request.own:
        return f"partition {name} takes only jobs that name a reservation"
    if table.root_only[row] and not request.queued and request.user not in ("", "root"):
        return f"partition {name} takes jobs of root alone"
    return _not_let_in(table, row, request)


def _not_let_in(table: Partitions, row: int, request: JobRequest) -> str:
    name, account, qos = table.name[row], request.account.lower(), request.qos.lower()
    if account and account in _lower(table.deny_accounts[row]) and not table.allow_accounts[row]:
        return f"partition {name} takes no job of account {request.account}"
    if qos and table.allow_qos[row]:
        return "" if qos in _lower(table.allow_qos[row]) else f"partition {name} takes no job of QOS {request.qos}"
    if qos and qos in _lower(table.deny_qos[row]):
        return f"partition {name} takes no job of QOS {request.qos}"
    return ""


def partition_doubts(table: Partitions, row: int, request: JobRequest) -> Iterator[str]:
    """What of this partition's limits decides and was not looked at."""
    if request.nodes < table.min_nodes[row] and not request.fixed:
        yield f"MinNodes={table.min_nodes[row]}, which may give the job more nodes"
    if np.isfinite(table.max_cpus_per_socket[row]):
        yield f"MaxCPUsPerSocket={int(table.max_cpus_per_socket[row])}"
    if table.exclusive[row] == "topo":
        yield "Exclusive=TOPO (jobs share no block or switch)"
    allowed = table.allow_accounts[row]
    if allowed and request.account.lower() not in _lower(allowed):  # accounts below those listed are let in too
        yield f"AllowAccounts, whether it lets in account {request.account or '(not known)'}"
    for key, listed, known in (("DenyAccounts", table.deny_accounts[row] if not allowed else "", request.account),
                               ("AllowQos", table.allow_qos[row], request.qos),
                               ("DenyQos", table.deny_qos[row], request.qos)):  # fmt: skip
        if listed and not known:
            yield key


def partition_unseen(table: Partitions, row: int, request: JobRequest) -> Iterator[str]:
    """What of this partition was not looked at, and which Slurm looks at when a job is submitted."""
    if table.allow_groups[row]:
        yield "AllowGroups"
    if table.alloc_nodes[row] and not request.queued:
        yield "AllocNodes"
    if table.root_only[row] and not request.user:
        yield "RootOnly=YES"
    if np.isfinite(table.max_memory_per_cpu_mib[row]) and not request.queued:
        yield f"MaxMemPerCPU={int(table.max_memory_per_cpu_mib[row])}, which may give the job more CPUs"
    if shares_cpus(table, row):
        yield f"OverSubscribe={table.over_subscribe[row]}: CPUs, which several jobs may share"


def shares_cpus(table: Partitions, row: int) -> bool:
    """Whether jobs of the partition share CPUs whether they like it or not."""
    how, _, jobs = table.over_subscribe[row].partition(":")
    return how == "FORCE" and jobs != "1"


def _lower(listed: str) -> list[str]:
    return listed.lower().split(",")


def _outside(snapshot: Snapshot, request: JobRequest, found: _Doubts) -> Bools:
    """Nodes that are in none of the reservations it names; of one with FLEX it may have others too."""
    if not request.reservations:
        return np.zeros(len(snapshot.nodes), np.bool_)
    if not snapshot.reservations.name.isin(request.reservations).any():
        found.others.append(f"reservation {','.join(request.reservations)}, which is not known")
    return ~_own_nodes(snapshot, request)


def _own_nodes(snapshot: Snapshot, request: JobRequest) -> Bools:
    """Nodes of the reservations it names or that are kept for it. (N,) bool.

    All where it names one that is FLEX, or one that is not known.
    """
    table, named = snapshot.reservations, request.reservations
    rows = np.flatnonzero(table.name.isin({*named, *request.own})).tolist()
    own = np.full(len(snapshot.nodes), bool(named) and not table.name.isin(named).any())
    for row in rows:
        own |= ("FLEX" in table.flags[row].split(",") and table.name[row] in named) | _of(snapshot, row)
    return own


def _kept_unseen(snapshot: Snapshot, request: JobRequest) -> Bools:
    """Nodes that Slurm shows as reserved, by a reservation that was not read. (N,) bool."""
    reserved = snapshot.nodes.is_state(NodeState.RESERVED)
    if not reserved.any():
        return reserved
    table, seen = snapshot.reservations, _own_nodes(snapshot, request)
    for row in np.flatnonzero((table.start_s <= snapshot.now_s) & ~(table.end_s <= snapshot.now_s)).tolist():
        seen = seen | _of(snapshot, row)
    return reserved & ~seen


def _of(snapshot: Snapshot, row: int) -> Bools:
    """Nodes of a reservation; all of one whose nodes cannot be read. (N,) bool."""
    table = snapshot.reservations
    if "ALL_NODES" in table.flags[row].split(",") and not table.node_list[row]:
        return np.ones(len(snapshot.nodes), np.bool_)
    try:
        return _named(snapshot.nodes.name, expand(table.node_list[row], most_of(len(snapshot.nodes))))
    except ValueError:
        return np.ones(len(snapshot.nodes), np.bool_)


def _closed(snapshot: Snapshot, request: JobRequest) -> Bools:
    """Nodes that take no new job. Closed by a maintenance alone, one takes jobs of its reservation. (N,) bool."""
    nodes = snapshot.nodes
    if not request.reservations or not nodes.is_state(NodeState.MAINTENANCE).any():
        return nodes.closed
    table, own = snapshot.reservations, np.zeros(len(nodes), np.bool_)
    for row in np.flatnonzero(table.name.isin(request.reservations)).tolist():
        own |= _of(snapshot, row)
    others: Bools = nodes.with_columns(state=nodes.state & ~int(NodeState.MAINTENANCE)).closed
    return np.where(own, others, nodes.closed)


def _reserved(snapshot: Snapshot, request: JobRequest, found: _Doubts) -> tuple[Int32s, Int64s, Int64s]:
    """Row of the first reservation of others that has each node before the job would be over, -1 = none; GPUs and CPUs
    that those of parts of a node keep there. Three (N,)."""
    table, count = snapshot.reservations, len(snapshot.nodes)
    by, gpus, cpus = np.full(count, -1, np.int32), _nothing(count), _nothing(count)
    for row, here in kept_from(snapshot, request, found.others):
        if table.cores[row]:
            kept_gpus, kept_cpus = _parts_kept(snapshot, row)
            gpus, cpus = gpus + np.where(here, kept_gpus, 0), cpus + np.where(here, kept_cpus, 0)
        else:
            by[here & (by < 0)] = row
    return by, gpus, cpus


def kept_from(snapshot: Snapshot, request: JobRequest, unseen: list[str]) -> Iterator[tuple[int, Bools]]:
    """Rows of the reservations that keep nodes from the job before it would be over, by their start, and their nodes
    (N,). unseen: is told of those of which it is not known whether they let the job in."""
    table, until_s = snapshot.reservations, snapshot.now_s + min(request.time_limit_s, YEAR_S)
    rows = np.flatnonzero(~(table.start_s >= until_s) & ~(table.end_s <= snapshot.now_s))
    for row in rows[np.argsort(table.start_s[rows], kind="stable")].tolist():
        if table.name[row] in request.reservations or table.name[row] in request.own:
            continue
        if "MAGNETIC" in table.flags[row].split(",") and (let_in := _let_in(snapshot, row, request)) is not False:
            if let_in is None:
                unseen.append(f"reservation {table.name[row]} (MAGNETIC: whether the job may run in it)")
            continue
        yield row, _of(snapshot, row)


def _parts_kept(snapshot: Snapshot, row: int) -> tuple[Int64s, Int64s]:
    """GPUs and CPUs that a reservation of parts of nodes keeps on each: of GPUs all that it has, as far as the node has
    them, where it has several nodes that do not share them evenly; CPUs by its cores. Two (N,)."""
    table, nodes = snapshot.reservations, snapshot.nodes
    cores = {name: int(number) for name, _, number in (one.partition("=") for one in table.cores[row].split(","))}
    tres = {key: _number(value) for key, _, value in (one.partition("=") for one in table.tres[row].split(","))}
    count, gpus = max(len(cores), 1), tres.get("gres/gpu", 0)
    each = gpus // count if gpus % count == 0 else gpus
    threads = -(-tres.get("cpu", 0) // max(sum(cores.values()), 1))
    cpus = nodes.name.map(lambda name: cores.get(name, 0) * max(threads, 1), np.int64)
    return np.minimum(nodes.gpus.astype(np.int64), each), cpus


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _let_in(snapshot: Snapshot, row: int, request: JobRequest) -> bool | None:
    """Whether the job may run in a reservation, by its user and account; None = not known."""
    table = snapshot.reservations
    if table.groups[row] or table.qos[row]:
        return None
    answers = [_listed_in(table.users[row], request.user), _listed_in(table.accounts[row], request.account)]
    told = [answer for answer in answers if answer != "no list"]
    return None if not told or "unknown" in told else all(answer == "yes" for answer in told)


def _listed_in(listed: str, name: str) -> str:
    if not listed:
        return "no list"
    if not name:
        return "unknown"
    names = _lower(listed)
    if names[0].startswith("-"):
        return "no" if f"-{name.lower()}" in names else "yes"
    return "yes" if name.lower() in names else "no"


def _of_other_users(snapshot: Snapshot, request: JobRequest, found: _Doubts) -> Bools:
    """Nodes where another user's job runs, and either of the two shares nodes with its own user's jobs alone."""
    table, taken = snapshot.partitions, np.zeros(len(snapshot.nodes), np.bool_)
    if "user" not in table.exclusive.names:
        return taken
    alone = {name for name, how in zip(table.name, table.exclusive, strict=True) if how == "user"}
    mine = not alone.isdisjoint(request.partitions)
    for (user, partition), (rows, unread) in _runs(snapshot).items():
        if user != request.user and (mine or partition in alone):
            taken[rows] = True
            if unread:
                found.doubt(f"on which nodes a job of user {user} runs (its list of nodes cannot be read)")
    return taken


@lru_cache(maxsize=2)
def _placed(snapshot: Snapshot) -> tuple[Int64s, Int64s, frozenset[int]]:
    """Row and node of each job that holds nodes, one entry a node, and the rows of those whose list cannot be read."""
    jobs, rows, nodes, unread = snapshot.jobs, list[int](), list[int](), set[int]()
    for row in np.flatnonzero(jobs.is_state(_HOLDS)).tolist():
        here = named_rows(snapshot, jobs.node_list[row])
        if here is None:
            unread.add(row)
        else:
            nodes += here[0]
            rows += [row] * len(here[0])
    return np.array(rows, np.int64), np.array(nodes, np.int64), frozenset(unread)


@lru_cache(maxsize=2)
def _runs(snapshot: Snapshot) -> dict[tuple[str, str], tuple[list[int], bool]]:
    """By user and partition the rows of the nodes that their jobs hold, and whether a list of them cannot be read."""
    jobs, (rows, nodes, unread) = snapshot.jobs, _placed(snapshot)
    held: dict[tuple[str, str], set[int]] = {}
    for row, node in zip(rows.tolist(), nodes.tolist(), strict=True):
        held.setdefault((jobs.user[row], jobs.partition[row]), set()).add(node)
    lost = {(jobs.user[row], jobs.partition[row]) for row in unread}
    return {key: (sorted(held.get(key, ())), key in lost) for key in held.keys() | lost}


def partition_cpus(snapshot: Snapshot, request: JobRequest) -> Floats:
    """CPUs of each node that its partitions still give to their jobs (MaxCPUsPerNode), infinity = as many as are free.

    Of several partitions the one that gives most. (N,).
    """
    table, found = snapshot.partitions, np.full(len(snapshot.nodes), -inf)
    rows = {name: row for row, name in enumerate(table.name)}
    for name in request.partitions:
        limit = float(table.max_cpus_per_node[rows[name]]) if name in rows else inf
        found = np.maximum(found, inf if limit == inf else limit - _cpus_held(snapshot)[name][0])
    return found


def _doubt_cpus(snapshot: Snapshot, request: JobRequest, found: _Doubts) -> None:
    if not np.isfinite(snapshot.partitions.max_cpus_per_node).any():
        return
    for name in request.partitions:
        if name in (held := _cpus_held(snapshot)) and held[name][1]:
            found.doubt(f"partition {name}: on which nodes one of its jobs runs (its list of nodes cannot be read)")


@lru_cache(maxsize=2)
def _cpus_held(snapshot: Snapshot) -> dict[str, tuple[Floats, bool]]:
    """Of each partition with MaxCPUsPerNode the CPUs that its jobs hold on each node (N,), as spread evenly over
    theirs, and whether the list of nodes of one of them cannot be read. Suspended jobs hold none."""
    jobs, table, (rows, nodes, unread) = snapshot.jobs, snapshot.partitions, _placed(snapshot)
    runs = jobs.is_state(JobState.RUNNING | JobState.COMPLETING)
    each = jobs.cpus / np.maximum(np.bincount(rows, minlength=len(jobs)), 1)
    found = dict[str, tuple[Floats, bool]]()
    for at in np.flatnonzero(np.isfinite(table.max_cpus_per_node)).tolist():
        counts = runs & jobs.partition.isin([table.name[at]])
        here = counts[rows]
        held: Floats = np.bincount(nodes[here], each[rows[here]], len(snapshot.nodes)).astype(np.float64)
        found[table.name[at]] = held, any(counts[row] for row in unread)
    return found

"""Which nodes a job may have, and for each other node the first reason why not. Every command uses this."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import lru_cache, partial
from math import inf, isnan

import numpy as np

from slurmsched.model.columns import Bools, Int8s, Int32s, Int64s, Labels, made_read_only
from slurmsched.model.nodes import Partitions
from slurmsched.model.overrides import types_of
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.states import NodeState
from slurmsched.resources.allocated import held_nodes, named_rows, nodes_named, nodes_serving
from slurmsched.resources.by_type import has_several_types
from slurmsched.resources.feature_constraints import match_constraint
from slurmsched.resources.job_request import JobRequest, UnsupportedRules, hosts_named, request_of
from slurmsched.resources.partition_limits import admitting_nodes, doubt_partition_cpus, limit_classes, partition_cpus
from slurmsched.resources.reservation_limits import (
    UnknownEligibility,
    closed_nodes,
    outside_own_reservations,
    reservation_classes,
    reserved_nodes,
    reserved_unseen,
)

_KEPT_ANSWERS = 1 << 9  # of a snapshot: users write as many different requests as they like


class Exclusion(IntEnum):
    """Why a job cannot have a node: the first reason, in the order in which they are checked.

    Reasons before CLOSED last whoever leaves the node. Reasons after RESERVED are of resources.free: what others hold.
    """

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
    NOT_EMPTY = 13  # the job wants the whole node, and others run there
    GPUS = 14  # too few are free
    CPUS = 15
    MEMORY = 16


FIRST_PASSING = Exclusion.CLOSED  # reasons before this one last


@dataclass(frozen=True, slots=True, eq=False)
class Eligibility:
    """Which nodes one request may have, whatever others hold there. All (N,), by row of the nodes.

    exclusion: an Exclusion each, up to RESERVED.
    sure: whether everything that decides was checked; if not, no job is preempted and no node is chosen.
    doubts: what decides and was not checked.
    unseen: all that was not checked, doubts too.
    reserved_by: row of the reservation that has the node, -1 = none.
    kept_gpus, kept_cpus: what reservations of parts of the node keep from the job.
    refusals: by partition, why it starts no such job.
    """

    request: JobRequest
    exclusion: Int8s
    sure: Bools
    doubts: tuple[str, ...]
    unseen: tuple[str, ...]
    reserved_by: Int32s
    kept_gpus: Int64s
    kept_cpus: Int64s
    refusals: dict[str, str] = field(default_factory=dict)

    @property
    def mask(self) -> Bools:
        """Nodes that the job may have now, whoever runs there. (N,) bool."""
        found: Bools = self.exclusion == Exclusion.NONE
        return found

    @property
    def ever(self) -> Bools:
        """Nodes that the job may have once they are open and no reservation or other user has them. (N,) bool."""
        found: Bools = (self.exclusion == Exclusion.NONE) | (self.exclusion >= FIRST_PASSING)
        return found

    @property
    def open(self) -> Bools:
        """Nodes that may serve it and take jobs, reservations not looked at. (N,) bool."""
        found: Bools = (self.exclusion == Exclusion.NONE) | (self.exclusion == Exclusion.RESERVED)
        return found


def eligibility(snapshot: Snapshot, request: JobRequest, *, sized: bool = True) -> Eligibility:
    """The answer for this request. The last answers of a snapshot are remembered.

    What the snapshot does not show of partitions and reservations excludes nothing.
    sized: whether a node must be large enough; without, Exclusion.SIZE is not looked at.
    """
    return _answers(snapshot)(request, sized)


@lru_cache(maxsize=2)
def _answers(snapshot: Snapshot) -> Callable[[JobRequest, bool], Eligibility]:
    return lru_cache(maxsize=_KEPT_ANSWERS)(partial(_eligibility, snapshot))


def _eligibility(snapshot: Snapshot, request: JobRequest, sized: bool) -> Eligibility:
    rows, doubts = len(snapshot.nodes), UnsupportedRules()
    exclusion = np.zeros(rows, np.int8)

    def exclude(where: Bools, why: Exclusion) -> None:
        exclusion[(exclusion == Exclusion.NONE) & where] = why

    refusals, admits, surely = admitting_nodes(snapshot, request, doubts)
    for why, where in _by_request(snapshot, request, doubts):
        exclude(where, why)
    exclude(~admits, Exclusion.PARTITION_LIMIT)
    exclude(outside_own_reservations(snapshot, request, doubts), Exclusion.OWN_RESERVATION)
    if sized:
        exclude(_too_small(snapshot, request), Exclusion.SIZE)
    exclude(closed_nodes(snapshot, request), Exclusion.CLOSED)
    exclude(_of_other_users(snapshot, request, doubts), Exclusion.USER)
    if sized:
        exclude(partition_cpus(snapshot, request) < request.cpus, Exclusion.PARTITION_CPUS)
        doubt_partition_cpus(snapshot, request, doubts)
    reserved, kept_gpus, kept_cpus = reserved_nodes(snapshot, request, doubts)
    exclude((reserved >= 0) | reserved_unseen(snapshot, request), Exclusion.RESERVED)
    if sized:
        short = (snapshot.nodes.gpus - kept_gpus < request.gpus) | (snapshot.nodes.cpus - kept_cpus < request.cpus)
        exclude(short & ((kept_gpus > 0) | (kept_cpus > 0)), Exclusion.RESERVED)
    sure = surely if not doubts.doubts else np.zeros(rows, np.bool_)
    decides = (*doubts.doubts, *doubts.partition_doubts)
    return Eligibility(request, exclusion, sure, decides, doubts.all(), reserved, kept_gpus, kept_cpus, refusals)


def _by_request(snapshot: Snapshot, request: JobRequest, doubts: UnsupportedRules) -> Iterator[tuple[Exclusion, Bools]]:
    """Nodes by the job's own request: partition, node lists, features and GPU types."""
    nodes, rows = snapshot.nodes, len(snapshot.nodes)
    serving = [nodes_serving(nodes.partitions, name) for name in request.partitions]
    yield Exclusion.PARTITION, ~np.logical_or.reduce([np.zeros(rows, np.bool_), *serving])
    asked, excluded = (hosts_named(text, doubts, rows) for text in (request.nodes_asked, request.nodes_excluded))
    yield Exclusion.EXCLUDED, nodes_named(nodes.name, excluded)
    if asked and len(asked) >= request.nodes:
        yield Exclusion.NOT_ASKED, ~nodes_named(nodes.name, asked)
    elif asked:
        doubts.doubt("it names some of its nodes and leaves others free")
    yield Exclusion.CONSTRAINT, _unmet(snapshot, request, doubts)
    yield Exclusion.GPU_TYPE, _of_other_types(nodes.gpu_types, request, doubts)


def _unmet(snapshot: Snapshot, request: JobRequest, doubts: UnsupportedRules) -> Bools:
    """Nodes whose features rule the job out."""
    features, nodes = snapshot.nodes.features, request.nodes if not request.spread else 0
    if not request.constraint:
        return np.zeros(len(features), np.bool_)
    verdicts = [match_constraint(request.constraint, frozenset(has.split(",")), nodes) for has in features.names]
    for verdict in verdicts:
        if verdict.why:
            doubts.doubt(verdict.why)
    met = np.array([verdict.meets for verdict in verdicts], np.bool_)
    if _reboots(snapshot) and not met.all():
        doubts.others.append("other features that Slurm may boot nodes with (NodeFeaturesPlugins)")
    unmet: Bools = ~met[features.codes] if len(met) else np.zeros(len(features), np.bool_)
    return unmet


def _reboots(snapshot: Snapshot) -> bool:
    return snapshot.site.settings.get("NodeFeaturesPlugins", "(null)") not in ("", "(null)")


def _of_other_types(has: Labels, request: JobRequest, doubts: UnsupportedRules) -> Bools:
    """Nodes without the GPU types it names: without any of them where these may lie on different nodes."""
    wanted = frozenset(name for name, _ in request.types)
    if not wanted:
        return np.zeros(len(has), np.bool_)
    if request.apart:
        doubts.doubt("which of its nodes give which of its GPU types")
        return has.map(lambda text: wanted.isdisjoint(types_of(text)), np.bool_)
    return has.map(lambda text: not wanted.issubset(types_of(text)), np.bool_)


def _too_few(has: Labels, request: JobRequest) -> Bools:
    """Nodes with fewer GPUs of a type than it takes of each node."""
    if not request.types or request.apart:
        return np.zeros(len(has), np.bool_)
    return has.map(lambda text: any(types_of(text).get(name, 0) < n for name, n in request.types), np.bool_)


def _too_small(snapshot: Snapshot, request: JobRequest) -> Bools:
    """Nodes that are too small for its share, even when they are empty."""
    nodes = snapshot.nodes
    cpus = nodes.cpus - nodes.cpus_for_other_gpus(nodes.gpus - request.gpus)
    small: Bools = (nodes.gpus < request.gpus) | (cpus < request.cpus) | (nodes.memory_mib < request.memory_mib)
    return small | _too_few(nodes.gpu_types, request)


def _of_other_users(snapshot: Snapshot, request: JobRequest, doubts: UnsupportedRules) -> Bools:
    """Nodes where another user's job runs, and either of the two shares nodes with its own user's jobs alone."""
    table, taken = snapshot.partitions, np.zeros(len(snapshot.nodes), np.bool_)
    if "user" not in table.exclusive.names:
        return taken
    alone = {name for name, how in zip(table.name, table.exclusive, strict=True) if how == "user"}
    mine = not alone.isdisjoint(request.partitions)
    for (user, partition), (rows, unread) in _nodes_by_owner(snapshot).items():
        if user != request.user and (mine or partition in alone):
            taken[rows] = True
            if unread:
                doubts.doubt(f"on which nodes a job of user {user} runs (its list of nodes cannot be read)")
    return taken


@lru_cache(maxsize=2)
def _nodes_by_owner(snapshot: Snapshot) -> dict[tuple[str, str], tuple[list[int], bool]]:
    """By user and partition the rows of the nodes that their jobs hold, and whether a list of them cannot be read."""
    jobs, (rows, nodes, unread) = snapshot.jobs, held_nodes(snapshot)
    held: dict[tuple[str, str], set[int]] = {}
    for row, node in zip(rows.tolist(), nodes.tolist(), strict=True):
        held.setdefault((jobs.user[row], jobs.partition[row]), set()).add(node)
    lost = {(jobs.user[row], jobs.partition[row]) for row in unread}
    return {key: (sorted(held.get(key, ())), key in lost) for key in held.keys() | lost}


def _as_it_counts(snapshot: Snapshot, request: JobRequest) -> JobRequest:
    """The request without what decides nothing here, so that jobs of many users and times have one answer.

    Time limits between the same two limits of partitions and starts of reservations are one.
    """
    times_s, user, account, qos = _what_counts(snapshot)
    limits_s = [limit_s for limit_s in times_s if not limit_s < request.time_limit_s]
    return replace(
        request,
        time_limit_s=request.time_limit_s if isnan(request.time_limit_s) else min(limits_s, default=inf),
        user=request.user if user else "",
        account=request.account if account else "",
        qos=request.qos if qos else "",
    )


@lru_cache(maxsize=2)
def _what_counts(snapshot: Snapshot) -> tuple[tuple[float, ...], bool, bool, bool]:
    """Limits of partitions and starts of reservations [s from now]; and whether user, account and QOS decide."""
    table, kept = snapshot.partitions, snapshot.reservations
    starts_s = np.maximum(kept.start_s - snapshot.now_s, 0.0).tolist()
    magnetic = any("MAGNETIC" in flags for flags in kept.flags.names)
    accounts, qos = (any(column.any_text for column in columns) for columns in (
        (table.allow_accounts, table.deny_accounts), (table.allow_qos, table.deny_qos)))  # fmt: skip
    return (
        (*table.max_time_s.tolist(), *starts_s),
        magnetic or "user" in table.exclusive.names,
        magnetic or accounts,
        qos,
    )


def allowed_nodes(snapshot: Snapshot, row: int, several: Bools | None = None, *, sized: bool = True) -> Bools:
    """Open nodes that the job may have, as far as that is sure: see resources.eligibility. (N,) bool.

    several: (N,) bool, nodes of several GPU types that may serve a request by type; none if not given. Of a gang that
    names several partitions nodes that serve all of these: Slurm takes them from one. sized: see eligibility.

    Raises UnknownEligibility where something that decides was not looked at, such as a constraint with counts.
    """
    jobs, nodes = snapshot.jobs, snapshot.nodes
    found = eligibility(snapshot, _as_it_counts(snapshot, request_of(snapshot, row)), sized=sized)
    if found.doubts and not found.sure.any():
        raise UnknownEligibility(f"not looked at: {found.doubts[0]}")
    allowed = _surely_open(found)
    if len(listed := frozenset(jobs.partition[row].split(","))) > 1 and int(jobs.nodes[row]) > 1:  # it runs in one
        allowed = allowed & nodes.partitions.map(lambda serves: listed.issubset(serves.split(",")), np.bool_)
    if ":" in jobs.gpu_request[row].partition(":")[2]:  # of a certain type: which are free is told for all types only
        plain = ~has_several_types(nodes.gpu_types)
        allowed = allowed & (plain if several is None else plain | several)
    return allowed


@lru_cache(maxsize=_KEPT_ANSWERS)
def _surely_open(found: Eligibility) -> Bools:
    return made_read_only(found.open & found.sure)


def node_pools(snapshot: Snapshot, rows: Int64s | None = None) -> tuple[Int64s, Bools]:
    """Row of the table for each job, and the table: which nodes it may have now. (J,), (P, N).

    As eligibility tells, whatever the size of nodes. A node of which a reservation keeps parts from the job is left
    out. Of a node with several GPU types it is not looked at which are free.
    rows: (J,) of the jobs asked about; all if not given.
    """
    jobs = snapshot.jobs
    rows = np.arange(len(jobs)) if rows is None else rows
    if _unrestricted(snapshot):
        return np.zeros(len(rows), np.int64), _open_nodes(snapshot)[None]
    texts = (jobs.partition, jobs.gpu_request, jobs.features_asked, jobs.gpus_by, jobs.reservation)
    parts: list[Int64s] = [one.codes.astype(np.int64) for one in texts if len(one.names) > 1]
    classes = (*parts, *limit_classes(snapshot), *reservation_classes(snapshot))
    alike, kind = alike_rows(np.zeros(len(rows), np.int64), (column[rows] for column in classes))
    table = np.zeros((max(len(alike), 1), len(snapshot.nodes)), np.bool_)
    for at, row in enumerate(rows[alike].tolist()):
        any_node = replace(request_of(snapshot, row), nodes_asked="", nodes_excluded="")
        found = eligibility(snapshot, any_node, sized=False)
        table[at] = found.mask & (found.kept_gpus == 0) & (found.kept_cpus == 0)
    if jobs.nodes_asked.names in ((), ("",)) and jobs.nodes_excluded.names in ((), ("",)):
        return kind, table
    # A list of fewer nodes than the job takes is no limit, see _by_request.
    many = np.where(jobs.nodes_asked.isin([""]), 0, jobs.nodes).astype(np.int64)
    lists = (many, jobs.nodes_asked.codes.astype(np.int64), jobs.nodes_excluded.codes.astype(np.int64))
    first, pool = alike_rows(kind, (column[rows] for column in lists))
    usable = table[kind[first]]
    for at, row in enumerate(rows[first].tolist()):
        _keep_named(snapshot, row, usable[at])
    return pool, usable


# What of a partition lets some jobs in and not others: where all are at their defaults it takes every job.
_LIMITS = (
    "up", "min_nodes", "max_nodes", "max_time_s", "max_cpus_per_node", "max_memory_mib", "exclusive", "allow_accounts",
    "deny_accounts", "allow_qos", "deny_qos", "root_only", "needs_reservation",
)  # fmt: skip


def _unrestricted(snapshot: Snapshot) -> bool:
    """Whether partition and state of a node alone decide, alike for all jobs: a short way for a plain cluster."""
    jobs = snapshot.jobs
    words = (jobs.features_asked, jobs.gpus_by, jobs.reservation, jobs.nodes_asked, jobs.nodes_excluded)
    return (
        len(jobs.partition.names) == 1
        and not any(column.any_text for column in words)
        and not len(snapshot.reservations)
        and not _names_types(jobs.gpu_request.names)
        and _takes_all(snapshot.partitions)
    )


def _open_nodes(snapshot: Snapshot) -> Bools:
    """Nodes of the partitions of the first job that take jobs, reserved ones left out. (N,) bool."""
    nodes, found = snapshot.nodes, np.zeros(len(snapshot.nodes), np.bool_)
    for name in filter(None, snapshot.jobs.partition[0].split(",")):
        found = found | nodes_serving(nodes.partitions, name)
    found &= ~nodes.closed & ~nodes.is_state(NodeState.RESERVED)
    return found


@lru_cache(maxsize=64)
def _names_types(requests: tuple[str, ...]) -> bool:
    """Whether one of these requests, in normal form, names a GPU type."""
    return any(types_of(text) for text in requests)


@lru_cache(maxsize=4)
def _takes_all(table: Partitions) -> bool:
    """Whether no partition has a limit."""
    for spec in fields(table):
        if spec.name in _LIMITS:
            column, default = getattr(table, spec.name), spec.metadata["default"]
            if column.any_text if isinstance(column, Labels) else (column != default).any():
                return False
    return True


def alike_rows(code: Int64s, columns: Iterable[Int64s]) -> tuple[Int64s, Int64s]:
    """The first row of each class of rows with the same code and columns, and the class of each row. (C,), (N,)."""
    for column in columns:
        _, code = np.unique(code * (int(column.max(initial=0)) + 1) + column, return_inverse=True)
    _, first, made = np.unique(code, return_index=True, return_inverse=True)
    return first.astype(np.int64), made.astype(np.int64)


def _keep_named(snapshot: Snapshot, row: int, usable: Bools) -> None:
    """Takes from `usable` the nodes that the job in this row excludes or does not ask for, as eligibility does."""
    asked, excluded = snapshot.jobs.nodes_asked[row], snapshot.jobs.nodes_excluded[row]
    if excluded and (names := named_rows(snapshot, excluded)) is not None:
        usable[names[0]] = False
    if asked and (names := named_rows(snapshot, asked)) is not None and names[1] >= max(1, snapshot.jobs.nodes[row]):
        others = np.ones_like(usable)
        others[names[0]] = False
        usable[others] = False

"""Which jobs a partition starts, and how much of a node it gives them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import inf
from typing import NamedTuple

import numpy as np

from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.nodes import Partitions
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.states import JobState
from slurmsched.resources.allocated import held_nodes, nodes_serving
from slurmsched.resources.job_request import JobRequest, UnsupportedRules, lower_names

# Flags of a QOS, each of which lifts one limit of a partition; bit 0 of Jobs.lifted_limits is the first.
# Source: sacctmgr(1), and job_limits_check in Slurm's src/slurmctld/job_mgr.c.
LIFTING_FLAGS = {"PartitionTimeLimit": "MaxTime", "PartitionMaxNodes": "MaxNodes", "PartitionMinNodes": "MinNodes"}
_LIFTED = {key: 1 << bit for bit, key in enumerate(LIFTING_FLAGS.values())}


def beyond_limits(snapshot: Snapshot) -> Bools:
    """Pending jobs that are larger, smaller or longer than a partition of theirs allows. (J,) bool."""
    jobs, table = snapshot.jobs, snapshot.partitions
    found, rows = np.zeros(len(jobs), np.bool_), table.name.rows()
    for code, text in enumerate(jobs.partition.names):
        for row in (rows[name] for name in text.split(",") if name in rows):
            beyond = (jobs.nodes > table.max_nodes[row]) | (jobs.time_limit_s > table.max_time_s[row])
            found |= (jobs.partition.codes == code) & (beyond | (jobs.nodes < table.min_nodes[row]))
    return found & jobs.pending


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
    if jobs.lifted_limits.any():
        found.append(jobs.lifted_limits.astype(np.int64))
    if "user" in table.exclusive.names:
        found.append(jobs.user.codes.astype(np.int64))
    if table.needs_reservation.any():
        kept = [operation.job_id for operation in snapshot.operations]
        found.append((jobs.reservation.isin([""]) & ~np.isin(jobs.job_id, kept)).astype(np.int64))
    return found


def admitting_nodes(
    snapshot: Snapshot, request: JobRequest, found: UnsupportedRules
) -> tuple[dict[str, str], Bools, Bools]:
    """Why each of its partitions starts no such job; nodes of those that do; and of those of which that is sure."""
    table, serves = snapshot.partitions, snapshot.nodes.partitions
    limits, admits, sure = dict[str, str](), np.zeros(len(serves), np.bool_), np.zeros(len(serves), np.bool_)
    rows = table.name.rows()
    for name in request.partitions:
        here, doubts, row = nodes_serving(serves, name), list[str](), rows.get(name, -1)
        if row >= 0 and (why := partition_refusal(table, row, request)):
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


class BrokenLimit(NamedTuple):
    """A limit of a partition that a request does not keep.

    key: in Slurm's words.
    limit, asked: numbers [s, MiB].
    text: both in words.
    """

    key: str
    limit: float
    asked: float
    text: str


def broken_limits(table: Partitions, row: int, request: JobRequest) -> list[BrokenLimit]:
    """The limits of size and time of this partition that the request does not keep."""
    hours = "no limit" if request.time_limit_s == inf else f"{request.time_limit_s / 3600:g} h"
    asks = (
        ("MaxNodes", table.max_nodes[row], request.nodes, f"{table.max_nodes[row]:g}", f"{request.nodes}"),
        ("MinNodes", table.min_nodes[row], request.nodes, f"{table.min_nodes[row]}", f"{request.nodes}"),
        ("MaxTime", table.max_time_s[row], request.time_limit_s, f"{table.max_time_s[row] / 3600:g} h", hours),
        ("MaxCPUsPerNode", table.max_cpus_per_node[row], request.cpus, f"{table.max_cpus_per_node[row]:g}",
         f"{request.cpus} on each node"),
        ("MaxMemPerNode", table.max_memory_mib[row], request.memory_mib, f"{table.max_memory_mib[row]:g} MiB",
         f"{request.memory_mib:g} MiB on each node"),
    )  # fmt: skip
    return [
        BrokenLimit(
            key, float(limit), float(asked), f"partition {table.name[row]} has {key}={words}, the job asks for {wanted}"
        )
        for key, limit, asked, words, wanted in asks
        if (request.fixed and asked < limit if key == "MinNodes" else asked > limit)
        and not request.lifted & _LIFTED.get(key, 0)
    ]


def partition_refusal(table: Partitions, row: int, request: JobRequest) -> str:
    """Why this partition starts no such job, as text; "" if it may."""
    name = table.name[row]
    if not table.up[row] or (not request.queued and table.state[row] == "DRAIN"):
        return f"partition {name} is {table.state[row] if table.state[row] != 'UP' else 'not up'}"
    if broken := broken_limits(table, row, request):
        return broken[0].text
    if table.needs_reservation[row] and not request.reservations and not request.own:
        return f"partition {name} takes only jobs that name a reservation"
    if table.root_only[row] and not request.queued and request.user not in ("", "root"):
        return f"partition {name} takes jobs of root alone"
    return _account_refusal(table, row, request)


def _account_refusal(table: Partitions, row: int, request: JobRequest) -> str:
    name, account, qos = table.name[row], request.account.lower(), request.qos.lower()
    if account and account in lower_names(table.deny_accounts[row]) and not table.allow_accounts[row]:
        return f"partition {name} takes no job of account {request.account}"
    if qos and table.allow_qos[row]:
        return "" if qos in lower_names(table.allow_qos[row]) else f"partition {name} takes no job of QOS {request.qos}"
    if qos and qos in lower_names(table.deny_qos[row]):
        return f"partition {name} takes no job of QOS {request.qos}"
    return ""


def partition_doubts(table: Partitions, row: int, request: JobRequest) -> Iterator[str]:
    """Limits of this partition that decide and were not checked."""
    if request.nodes < table.min_nodes[row] and not request.fixed and not request.lifted & _LIFTED["MinNodes"]:
        yield f"MinNodes={table.min_nodes[row]}, which may give the job more nodes"
    if np.isfinite(table.max_cpus_per_socket[row]):
        yield f"MaxCPUsPerSocket={int(table.max_cpus_per_socket[row])}"
    if table.exclusive[row] == "topo":
        yield "Exclusive=TOPO (jobs share no block or switch)"
    allowed = table.allow_accounts[row]
    if allowed and request.account.lower() not in lower_names(allowed):  # accounts below those listed are let in too
        yield f"AllowAccounts, whether it lets in account {request.account or '(not known)'}"
    for key, listed, known in (("DenyAccounts", table.deny_accounts[row] if not allowed else "", request.account),
                               ("AllowQos", table.allow_qos[row], request.qos),
                               ("DenyQos", table.deny_qos[row], request.qos)):  # fmt: skip
        if listed and not known:
            yield key


def partition_unseen(table: Partitions, row: int, request: JobRequest) -> Iterator[str]:
    """Settings of this partition that were not checked, and that Slurm checks when a job is submitted."""
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
    """Whether jobs of the partition always share CPUs."""
    how, _, jobs = table.over_subscribe[row].partition(":")
    return how == "FORCE" and jobs != "1"


def partition_cpus(snapshot: Snapshot, request: JobRequest) -> Floats:
    """CPUs of each node that its partitions still give to their jobs (MaxCPUsPerNode), infinity = as many as are free.

    Of several partitions the one that gives most. (N,).
    """
    table, found = snapshot.partitions, np.full(len(snapshot.nodes), -inf)
    rows = table.name.rows()
    for name in request.partitions:
        limit = float(table.max_cpus_per_node[rows[name]]) if name in rows else inf
        found = np.maximum(found, inf if limit == inf else limit - _cpus_held(snapshot)[name][0])
    return found


def doubt_partition_cpus(snapshot: Snapshot, request: JobRequest, found: UnsupportedRules) -> None:
    """Add a doubt for each partition with MaxCPUsPerNode whose CPUs in use are not known."""
    if not np.isfinite(snapshot.partitions.max_cpus_per_node).any():
        return
    for name in request.partitions:
        if name in (held := _cpus_held(snapshot)) and held[name][1]:
            found.doubt(f"partition {name}: on which nodes one of its jobs runs (its list of nodes cannot be read)")


@lru_cache(maxsize=2)
def _cpus_held(snapshot: Snapshot) -> dict[str, tuple[Floats, bool]]:
    """Of each partition with MaxCPUsPerNode the CPUs that its jobs hold on each node (N,), as spread evenly over
    theirs.

    And whether the list of nodes of one of them cannot be read. Suspended jobs hold none.
    """
    jobs, table, (rows, nodes, unread) = snapshot.jobs, snapshot.partitions, held_nodes(snapshot)
    runs = jobs.is_state(JobState.RUNNING | JobState.COMPLETING)
    each = jobs.cpus / np.maximum(np.bincount(rows, minlength=len(jobs)), 1)
    found = dict[str, tuple[Floats, bool]]()
    for at in np.flatnonzero(np.isfinite(table.max_cpus_per_node)).tolist():
        counts = runs & jobs.partition.isin([table.name[at]])
        here = counts[rows]
        held: Floats = np.bincount(nodes[here], each[rows[here]], len(snapshot.nodes)).astype(np.float64)
        found[table.name[at]] = held, any(counts[row] for row in unread)
    return found


def partition_memory_mib(snapshot: Snapshot, request: JobRequest) -> Floats:
    """Memory of each node that a partition gives one job at most (MaxMemPerNode) [MiB]. (N,)."""
    table = snapshot.partitions
    limits = table.max_memory_mib[table.name.isin(request.partitions)]
    return np.full(len(snapshot.nodes), limits.max() if len(limits) else inf)


def shares_cpus_with_others(snapshot: Snapshot, request: JobRequest) -> bool:
    """Whether it shares CPUs with others whatever they do (OverSubscribe=FORCE), so that none need be free."""
    table = snapshot.partitions
    return any(shares_cpus(table, row) for row in np.flatnonzero(table.name.isin(request.partitions)).tolist())

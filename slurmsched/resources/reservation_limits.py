"""Which nodes reservations keep from a job, and from when on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import inf

import numpy as np

from slurmsched.model import NodeState, Operation, Snapshot
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s, made_read_only
from slurmsched.model.durations import DAY_S
from slurmsched.model.hostlists import expand_hostlist, most_names_of
from slurmsched.resources.allocated import nodes_named
from slurmsched.resources.job_request import JobRequest, UnsupportedRules, lower_names

YEAR_S = 365 * DAY_S  # what Slurm takes for an endless reservation


class UnknownEligibility(ValueError):
    """Something that decides which nodes a job may have was not looked at; no node is sure."""


def outside_own_reservations(snapshot: Snapshot, request: JobRequest, found: UnsupportedRules) -> Bools:
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
        own |= ("FLEX" in table.flags[row].split(",") and table.name[row] in named) | nodes_of_reservation(
            snapshot, row
        )
    return own


def reserved_unseen(snapshot: Snapshot, request: JobRequest) -> Bools:
    """Nodes that Slurm shows as reserved, by a reservation that was not read. (N,) bool."""
    reserved = snapshot.nodes.is_state(NodeState.RESERVED)
    if not reserved.any():
        return reserved
    table, seen = snapshot.reservations, _own_nodes(snapshot, request)
    for row in np.flatnonzero((table.start_s <= snapshot.now_s) & ~(table.end_s <= snapshot.now_s)).tolist():
        seen = seen | nodes_of_reservation(snapshot, row)
    return reserved & ~seen


def nodes_of_reservation(snapshot: Snapshot, row: int) -> Bools:
    """Nodes of a reservation; all of one whose nodes cannot be read. (N,) bool."""
    table = snapshot.reservations
    if "ALL_NODES" in table.flags[row].split(",") and not table.node_list[row]:
        return np.ones(len(snapshot.nodes), np.bool_)
    try:
        return nodes_named(
            snapshot.nodes.name, expand_hostlist(table.node_list[row], most_names_of(len(snapshot.nodes)))
        )
    except ValueError:
        return np.ones(len(snapshot.nodes), np.bool_)


def closed_nodes(snapshot: Snapshot, request: JobRequest) -> Bools:
    """Nodes that take no new job. Closed by a maintenance alone, one takes jobs of its reservation. (N,) bool."""
    nodes = snapshot.nodes
    if not request.reservations or not nodes.is_state(NodeState.MAINTENANCE).any():
        return nodes.closed
    table, own = snapshot.reservations, np.zeros(len(nodes), np.bool_)
    for row in np.flatnonzero(table.name.isin(request.reservations)).tolist():
        own |= nodes_of_reservation(snapshot, row)
    others: Bools = nodes.with_columns(state=nodes.state & ~int(NodeState.MAINTENANCE)).closed
    return np.where(own, others, nodes.closed)


def reserved_nodes(snapshot: Snapshot, request: JobRequest, found: UnsupportedRules) -> tuple[Int32s, Int64s, Int64s]:
    """Row of the first reservation of others that has each node before the job would be over, -1 = none; GPUs and CPUs
    that those of parts of a node keep there. Three (N,)."""
    table, count = snapshot.reservations, len(snapshot.nodes)
    by, gpus, cpus = np.full(count, -1, np.int32), _zeros(count), _zeros(count)
    for row, here in reservations_against(snapshot, request, found.others):
        if table.cores[row]:
            kept_gpus, kept_cpus = _parts_kept(snapshot, row)
            gpus, cpus = gpus + np.where(here, kept_gpus, 0), cpus + np.where(here, kept_cpus, 0)
        else:
            by[here & (by < 0)] = row
    return by, gpus, cpus


def reservations_against(snapshot: Snapshot, request: JobRequest, unseen: list[str]) -> Iterator[tuple[int, Bools]]:
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
        yield row, nodes_of_reservation(snapshot, row)


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
    known = [answer for answer in answers if answer != "no list"]
    return None if not known or "unknown" in known else all(answer == "yes" for answer in known)


def _listed_in(listed: str, name: str) -> str:
    if not listed:
        return "no list"
    if not name:
        return "unknown"
    names = lower_names(listed)
    if names[0].startswith("-"):
        return "no" if f"-{name.lower()}" in names else "yes"
    return "yes" if name.lower() in names else "no"


@lru_cache(maxsize=4)
def _zeros(rows: int) -> Int64s:
    return made_read_only(np.zeros(rows, np.int64))


def reserved_from_s(snapshot: Snapshot, operations: Iterable[Operation] = ()) -> Floats:
    """When another reservation than those of the operations begins on each node [Unix s]; infinity if none does. (N,).

    Slurm lets no two reservations overlap. Raises UnknownEligibility for a hostlist that cannot be read.
    """
    found, name = np.full(len(snapshot.nodes), inf), snapshot.nodes.name
    own, kept = [operation.reservation for operation in operations], snapshot.reservations
    for row in np.flatnonzero(~(kept.end_s <= snapshot.now_s) & ~kept.name.isin(own)).tolist():
        try:
            there = name.isin(expand_hostlist(kept.node_list[row], most_names_of(len(name))))
        except ValueError as error:
            raise UnknownEligibility(str(error)) from error
        found[there] = np.fmin(found[there], kept.start_s[row])
    return found


def unreserved_nodes(snapshot: Snapshot, row: int, blocked_s: Floats) -> Bools:
    """Nodes that no reservation holds, or has before the job in this row would be over by its limit. (N,) bool.

    blocked_s: (N,) as reserved_from_s, -infinity on nodes that are reserved now.
    """
    free: Bools = blocked_s >= snapshot.now_s + np.fmin(snapshot.jobs.time_limit_s[row], YEAR_S)
    return free


def reservation_classes(snapshot: Snapshot) -> list[Int64s]:
    """What jobs must have alike for reservations to keep the same nodes from them, as numbers from 0; empty where there
    are no reservations. Each (J,)."""
    jobs, table = snapshot.jobs, snapshot.reservations
    if not len(table):
        return []
    starts_s = np.unique(np.maximum(table.start_s - snapshot.now_s, 0.0))
    own = np.unique([operation.job_id for operation in snapshot.operations])
    found = [np.searchsorted(starts_s, jobs.time_limit_s, side="left").astype(np.int64)]
    found.append(np.where(np.isin(jobs.job_id, own), np.searchsorted(own, jobs.job_id) + 1, 0).astype(np.int64))
    if any("MAGNETIC" in flags.split(",") for flags in table.flags.names):
        found += [jobs.user.codes.astype(np.int64), jobs.account.codes.astype(np.int64)]
    return found

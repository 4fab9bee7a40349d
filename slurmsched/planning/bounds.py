"""Which nodes a pending job may have at all, whoever holds them now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import inf

import numpy as np

from slurmsched.model import Act, NodeState, Snapshot
from slurmsched.model.columns import Bools, Floats
from slurmsched.model.hostlist import expand, most_of
from slurmsched.resources.eligibility import YEAR_S, eligibility
from slurmsched.resources.free import FreeResources
from slurmsched.resources.job_request import request_of


class UnknownForm(ValueError):
    """Something that decides which nodes a job may have was not looked at; no node is sure."""


def allowed_nodes(snapshot: Snapshot, row: int, several: Bools | None = None, *, sized: bool = True) -> Bools:
    """Open nodes that the job may have, as far as that is sure: see resources.eligibility. (N,) bool.

    several: (N,) bool, nodes of several GPU types that may serve a request by type; none if not given. Of a gang that
    names several partitions nodes that serve all of these: Slurm takes them from one. sized: see eligibility.

    Raises UnknownForm where something that decides was not looked at, such as a constraint with counts.
    """
    jobs, nodes = snapshot.jobs, snapshot.nodes
    found = eligibility(snapshot, request_of(snapshot, row), sized=sized)
    if found.doubts and not found.sure.any():
        raise UnknownForm(f"not looked at: {found.doubts[0]}")
    allowed = found.open & found.sure
    if (listed := frozenset(jobs.partition[row].split(","))) and int(jobs.nodes[row]) > 1:  # it runs in one of them
        allowed &= nodes.partitions.map(lambda serves: listed.issubset(serves.split(",")), np.bool_)
    if ":" in jobs.gpu_request[row].partition(":")[2]:  # of a certain type: which are free is told for all types only
        plain = nodes.gpu_types.map(lambda has: "," not in has, np.bool_)
        allowed &= plain if several is None else plain | several
    return allowed


def blocked_from_s(snapshot: Snapshot, acts: Iterable[Act] = ()) -> Floats:
    """When another reservation than those of the acts begins on each node [Unix s]; infinity if none does. (N,).

    Slurm lets no two reservations overlap. Raises UnknownForm for a hostlist that cannot be read.
    """
    found, name = np.full(len(snapshot.nodes), inf), snapshot.nodes.name
    own, kept = [act.reservation for act in acts], snapshot.reservations
    for row in np.flatnonzero(~(kept.end_s <= snapshot.now_s) & ~kept.name.isin(own)).tolist():
        try:
            there = name.isin(expand(kept.node_list[row], most_of(len(name))))
        except ValueError as error:
            raise UnknownForm(str(error)) from error
        found[there] = np.fmin(found[there], kept.start_s[row])
    return found


def left_by_reservations(snapshot: Snapshot, row: int, stock: FreeResources, acts: Iterable[Act] = ()) -> Bools:
    """Nodes where Slurm would start the job now as far as reservations go: none has the whole node before it would be
    over, and what those of parts of it keep is not counted in. (N,) bool. stock: loses that.

    acts: whose reservations are counted otherwise.
    """
    table = snapshot.reservations
    if own := [act.reservation for act in acts]:
        snapshot = replace(snapshot, reservations=table.take(~table.name.isin(own)))
    found = eligibility(snapshot, request_of(snapshot, row), sized=False)
    stock.gpus = stock.gpus - found.kept_gpus
    stock.cpus = stock.cpus - found.kept_cpus
    free: Bools = found.reserved_by < 0
    return free


def free_of_reservations(snapshot: Snapshot, row: int, blocked_s: Floats) -> Bools:
    """Nodes that no reservation holds, or has before the job in this row would be over by its limit. (N,) bool.

    blocked_s: (N,) as blocked_from_s.
    """
    over_s = snapshot.now_s + np.fmin(snapshot.jobs.time_limit_s[row], YEAR_S)
    free: Bools = ~snapshot.nodes.is_state(NodeState.RESERVED) & (blocked_s >= over_s)
    return free

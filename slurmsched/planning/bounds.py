"""Which nodes a pending job may have at all, whoever holds them now."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from math import inf

import numpy as np

from slurmsched.model import Act, NodeState, Snapshot
from slurmsched.model.columns import Bools, Floats
from slurmsched.model.hostlist import expand
from slurmsched.placements.candidates import pools

YEAR_S = 365 * 86_400.0  # what Slurm takes for an endless reservation
_FEATURE = re.compile(r"[\w.:-]+")


class UnknownForm(ValueError):
    """A constraint is written in a form that is not understood here; no node is sure to meet it."""


def allowed_nodes(snapshot: Snapshot, row: int, several: Bools | None = None) -> Bools:
    """Open nodes that serve the job's partitions and GPU types and meet what it asks of nodes. (N,) bool.

    several: (N,) bool, nodes of several GPU types that may serve a request by type; none if not given.
    Nodes of a gang that names several partitions serve all of these: Slurm takes them from one.

    Raises UnknownForm for a constraint with counts, brackets or other forms than & and |, and for a broken hostlist.
    """
    jobs, nodes = snapshot.jobs, snapshot.nodes
    pool, usable = pools(snapshot)
    allowed: Bools = usable[pool[row]].copy()
    if (listed := frozenset(jobs.partition[row].split(","))) and int(jobs.nodes[row]) > 1:  # it runs in one of them
        allowed &= nodes.partitions.map(lambda serves: listed.issubset(serves.split(",")), np.bool_)
    if ":" in jobs.gpu_request[row].partition(":")[2]:  # of a certain type: which are free is told for all types only
        plain = nodes.gpu_types.map(lambda has: "," not in has, np.bool_)
        allowed &= plain if several is None else plain | several
    if asked := jobs.features_asked[row]:
        allowed &= nodes.features.map(lambda has: meets(asked, frozenset(has.split(","))), np.bool_)
    try:
        wanted, excluded = expand(jobs.nodes_asked[row]), expand(jobs.nodes_excluded[row])
    except ValueError as error:
        raise UnknownForm(str(error)) from error
    if wanted:
        if len(wanted) < int(jobs.nodes[row]):
            raise UnknownForm("it names some of its nodes and leaves others free")
        allowed &= nodes.name.isin(wanted)
    return allowed & ~nodes.name.isin(excluded)


def blocked_from_s(snapshot: Snapshot, acts: Iterable[Act] = ()) -> Floats:
    """When another reservation than those of the acts begins on each node [Unix s]; infinity if none does. (N,).

    Slurm lets no two reservations overlap. Raises UnknownForm for a hostlist that cannot be read.
    """
    found, name = np.full(len(snapshot.nodes), inf), snapshot.nodes.name
    own, kept = [act.reservation for act in acts], snapshot.reservations
    for row in np.flatnonzero(~(kept.end_s <= snapshot.now_s) & ~kept.name.isin(own)).tolist():
        try:
            there = name.isin(expand(kept.node_list[row]))
        except ValueError as error:
            raise UnknownForm(str(error)) from error
        found[there] = np.fmin(found[there], kept.start_s[row])
    return found


def free_of_reservations(snapshot: Snapshot, row: int, blocked_s: Floats) -> Bools:
    """Nodes that no reservation holds, or has before the job in this row would be over by its limit. (N,) bool.

    blocked_s: (N,) as blocked_from_s.
    """
    over_s = snapshot.now_s + np.fmin(snapshot.jobs.time_limit_s[row], YEAR_S)
    free: Bools = ~snapshot.nodes.is_state(NodeState.RESERVED) & (blocked_s >= over_s)
    return free


@lru_cache(maxsize=1 << 12)
def meets(asked: str, has: frozenset[str]) -> bool:
    """Whether a node with these features meets a constraint of names, & and |, read from left to right as Slurm does.

    Raises UnknownForm for any other form.
    """
    words = re.split(r"([&|,])", asked)
    names, signs = words[::2], words[1::2]
    if not all(_FEATURE.fullmatch(name) for name in names):
        raise UnknownForm(f"its constraint {asked!r} is of a form that is not understood")
    met = names[0] in has
    for sign, name in zip(signs, names[1:], strict=True):
        met = (met or name in has) if sign == "|" else (met and name in has)
    return met

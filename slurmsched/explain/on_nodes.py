"""What closed nodes, maintenances and reservations mean for one job, and what would change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from slurmsched.explain.by_plan import Nodes
from slurmsched.explain.case import Case, Said
from slurmsched.explain.obstacles import Asks
from slurmsched.explain.text import clock, minutes, shown
from slurmsched.model.hostlist import expand, fold
from slurmsched.resources.eligibility import Bar, kept_from

NODES_SHOWN = 5


def nodes(case: Case) -> Said:
    asked = _names(case.snapshot.jobs.nodes_asked[case.row])
    held = _in_the_way(case, asked)
    more = f" and {len(held) - NODES_SHOWN} more" if len(held) > NODES_SHOWN else ""
    words = shown(case.reason.more)
    if not held:
        return f"Nodes it needs take no job now: {words or 'not told which'}.", ()
    slurm = f" Slurm says: {words}." if words else ""
    return f"Nodes it needs take no job now: {', '.join(held[:NODES_SHOWN])}{more}.{slurm}", ()


def _in_the_way(case: Case, asked: frozenset[str]) -> list[str]:
    """Closed nodes with their reasons: those asked for or told by Slurm, else all that could serve the job where too
    few open ones are left for it. Slurm gives such a reason also where nodes are only kept for other jobs."""
    nodes, jobs, row = case.snapshot.nodes, case.snapshot.jobs, case.row
    told = asked or _names(case.reason.more.partition("UnavailableNodes:")[2])
    ever = Nodes.of(case.snapshot, case.facts).ever(row)
    left = ever & ~nodes.closed
    enough = np.count_nonzero(left) >= jobs.nodes[row] and nodes.gpus[left].sum() >= jobs.gpus[row]
    if not told and enough:
        return []
    may = nodes.name.isin(told) if told else ever
    by_why: dict[str, list[str]] = {}
    for at in np.flatnonzero(may & nodes.closed).tolist():
        unread = "how many of its GPUs are in use cannot be read" if nodes.gpus_unread[at] else ""
        by_why.setdefault(unread or shown(nodes.reason[at]) or "no reason given", []).append(nodes.name[at])
    return [f"{fold(names)} ({why})" for why, names in by_why.items()]


def reserved(case: Case) -> str:
    """Which reservations keep nodes from a job that waits for others; "" if none does."""
    kept = sorted(_kept(case), key=lambda one: (one.start_s, one.name))[:NODES_SHOWN]
    told = "; ".join(_keeps(one, case.snapshot.now_s) for one in kept)
    return f" Kept from it: {told}." if told else ""


def maintenance(case: Case) -> Said:
    kept = [one for one in _kept(case) if "MAINT" in one.flags.split(",")]
    return _runs_into(case, "a maintenance", kept)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A reservation for others. start_s: Unix [s]. nodes: those of it that the job may use."""

    start_s: float
    name: str
    flags: str
    nodes: frozenset[str]


def _runs_into(case: Case, what: str, kept: Sequence[_Kept]) -> Said:
    """Which reservations keep its nodes, and the longest time limit with which enough of these are left to it."""
    if not kept:
        return f"The nodes it needs are kept for {what}.", ()
    now_s = case.snapshot.now_s
    limit_s = _longest_s(case)
    shown_first = sorted(kept, key=lambda one: (one.start_s, one.name))[:NODES_SHOWN]
    keeps = "; ".join(_keeps(one, now_s) for one in shown_first)
    if not 60 <= limit_s < case.snapshot.jobs.time_limit_s[case.row]:
        return f"Nodes it needs are kept for {what}: {keeps}.", ()
    limit = minutes(limit_s)
    change = f"a time limit of up to {limit} still fits: scontrol update jobid={case.job_id} timelimit={limit}"
    return f"Its time limit runs into {what}: {keeps}.", (change,)


def _keeps(one: _Kept, now_s: float) -> str:
    since = f"since {clock(one.start_s)}" if one.start_s <= now_s else f"from {clock(one.start_s)} on"
    return f"reservation {shown(one.name)} keeps {fold(sorted(one.nodes))} {since}"


def _longest_s(case: Case) -> float:
    """From now until a reservation takes one node too many of those that it may have, of the open ones."""
    nodes, begins_s = case.snapshot.nodes, dict[str, float]()
    for one in _kept(case):
        for name in one.nodes:
            begins_s[name] = min(one.start_s, begins_s.get(name, inf))
    could = Nodes.of(case.snapshot, case.facts).ever(case.row) & ~nodes.closed
    ends_s = sorted((begins_s.get(nodes.name[at], inf) for at in np.flatnonzero(could).tolist()), reverse=True)
    many = max(1, int(case.snapshot.jobs.nodes[case.row]))
    return ends_s[many - 1] - case.snapshot.now_s if len(ends_s) >= many else 0.0


def _kept(case: Case) -> list[_Kept]:
    """Reservations for others, on nodes it may use, that overlap its time; of those of parts of nodes the nodes on
    which they leave too little."""
    asks = Asks.of(case.snapshot, case.row, case.facts)
    table, found, names = asks.snapshot.reservations, asks.found, list(asks.snapshot.nodes.name)
    short, kept = (found.bar == Bar.RESERVED) & (found.reserved_by < 0), list[_Kept]()
    for at, here in kept_from(asks.snapshot, asks.request, []):
        rows = np.flatnonzero(here & (short if table.cores[at] else found.ever)).tolist()
        if rows:
            nodes = frozenset(names[row] for row in rows)
            kept.append(_Kept(float(table.start_s[at]), table.name[at], table.flags[at], nodes))
    return kept


def reservation(case: Case) -> Said:
    name, table = case.snapshot.jobs.reservation[case.row], case.facts.reservations
    for at in range(len(table)):
        if table.name[at] in name.split(","):
            when = f"from {clock(float(table.start_s[at]))} to {clock(float(table.end_s[at]))}"
            return f"It waits for reservation {shown(name)}, {when}, or for nodes in it.", ()
    if not name:
        return _runs_into(case, "a reservation for others", _kept(case))
    leave = f"leave it: scontrol update jobid={case.job_id} reservationname="
    return f"Reservation {shown(name)} is not there ({case.reason.code}).", (leave,)


def gone(case: Case) -> Said:
    """Slurm takes the name off the jobs of a reservation that ends, and holds them (RESV_DEL_HOLD)."""
    if case.snapshot.jobs.reservation[case.row]:
        return reservation(case)
    told = f": {shown(case.reason.more)}" if case.reason.more else ""
    return f"The reservation it was for is gone, and Slurm holds it{told}.", (f"scontrol release {case.job_id}",)


def _names(text: str) -> frozenset[str]:
    try:
        return frozenset(expand(text))
    except ValueError:
        return frozenset()

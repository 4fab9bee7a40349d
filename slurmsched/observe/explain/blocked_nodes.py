"""What closed nodes, maintenances and reservations mean for one job, and what would change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from slurmsched.model.hostlists import expand_or_none, fold_hostlist
from slurmsched.model.job_details import JobDetails
from slurmsched.model.reasons import LimitValue, Reason
from slurmsched.model.snapshot import Snapshot
from slurmsched.observe.explain.node_obstacles import NodeCheck
from slurmsched.observe.explain.start_estimate import EligibleNodes
from slurmsched.observe.explain.wording import local_time, printable, sbatch_time
from slurmsched.resources.eligibility import Exclusion
from slurmsched.resources.reservation_limits import reservations_against

SentenceAndChanges = tuple[str, tuple[str, ...]]  # because, and what would change it


@dataclass(frozen=True, slots=True)
class BlockedJob:
    """One job.

    limits: those of the kind that blocks.
    competitors: rows of jobs that Slurm ranks before it, that may start and compete for its nodes.
    """

    snapshot: Snapshot
    row: int
    reason: Reason
    details: JobDetails
    limits: tuple[LimitValue, ...] = ()
    competitors: tuple[int, ...] = ()

    @property
    def job_id(self) -> int:
        return int(self.snapshot.jobs.job_id[self.row])


NODES_SHOWN = 5


def closed_by_reservation(case: BlockedJob) -> SentenceAndChanges:
    asked = _names(case.snapshot.jobs.nodes_asked[case.row])
    held = _in_the_way(case, asked)
    more = f" and {len(held) - NODES_SHOWN} more" if len(held) > NODES_SHOWN else ""
    words = printable(case.reason.more)
    if not held:
        return f"Nodes it needs take no job now: {words or 'not told which'}.", ()
    slurm = f" Slurm says: {words}." if words else ""
    return f"Nodes it needs take no job now: {', '.join(held[:NODES_SHOWN])}{more}.{slurm}", ()


def _in_the_way(case: BlockedJob, asked: frozenset[str]) -> list[str]:
    """Closed nodes with their reasons: those asked for or told by Slurm, else all that could serve the job where too
    few open ones are left for it. Slurm gives such a reason also where nodes are only kept for other jobs."""
    nodes, jobs, row = case.snapshot.nodes, case.snapshot.jobs, case.row
    named = asked or _names(case.reason.more.partition("UnavailableNodes:")[2])
    ever = EligibleNodes.of(case.snapshot, case.details).ever(row)
    open_nodes = ever & ~nodes.closed
    enough = np.count_nonzero(open_nodes) >= jobs.nodes[row] and nodes.gpus[open_nodes].sum() >= jobs.gpus[row]
    if not named and enough:
        return []
    may = nodes.name.isin(named) if named else ever
    by_why: dict[str, list[str]] = {}
    for at in np.flatnonzero(may & nodes.closed).tolist():
        unread = "how many of its GPUs are in use cannot be read" if nodes.gpus_unread[at] else ""
        by_why.setdefault(unread or printable(nodes.reason[at]) or "no reason given", []).append(nodes.name[at])
    return [f"{fold_hostlist(names)} ({why})" for why, names in by_why.items()]


def kept_by_reservations(case: BlockedJob) -> str:
    """Which reservations keep nodes from a job that waits for others; "" if none does."""
    kept = sorted(_foreign_reservations(case), key=lambda one: (one.start_s, one.name))[:NODES_SHOWN]
    sentences = "; ".join(_keeps(one, case.snapshot.now_s) for one in kept)
    return f" Kept from it: {sentences}." if sentences else ""


def maintenance(case: BlockedJob) -> SentenceAndChanges:
    kept = [one for one in _foreign_reservations(case) if "MAINT" in one.flags.split(",")]
    return _runs_into(case, "a maintenance", kept)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A reservation for others. start_s: Unix [s]. nodes: those of it that the job may use."""

    start_s: float
    name: str
    flags: str
    nodes: frozenset[str]


def _runs_into(case: BlockedJob, what: str, kept: Sequence[_Kept]) -> SentenceAndChanges:
    """Which reservations keep its nodes, and the longest time limit with which enough of these are left to it."""
    if not kept:
        return f"The nodes it needs are kept for {what}.", ()
    now_s = case.snapshot.now_s
    limit_s = _longest_s(case)
    shown_first = sorted(kept, key=lambda one: (one.start_s, one.name))[:NODES_SHOWN]
    keeps = "; ".join(_keeps(one, now_s) for one in shown_first)
    if not 60 <= limit_s < case.snapshot.jobs.time_limit_s[case.row]:
        return f"Nodes it needs are kept for {what}: {keeps}.", ()
    limit = sbatch_time(limit_s)
    change = f"a time limit of up to {limit} still fits: scontrol update jobid={case.job_id} timelimit={limit}"
    return f"Its time limit runs into {what}: {keeps}.", (change,)


def _keeps(one: _Kept, now_s: float) -> str:
    since = f"since {local_time(one.start_s)}" if one.start_s <= now_s else f"from {local_time(one.start_s)} on"
    return f"reservation {printable(one.name)} keeps {fold_hostlist(sorted(one.nodes))} {since}"


def _longest_s(case: BlockedJob) -> float:
    """From now until a reservation takes one node too many of those that it may have, of the open ones."""
    nodes, begins_s = case.snapshot.nodes, dict[str, float]()
    for one in _foreign_reservations(case):
        for name in one.nodes:
            begins_s[name] = min(one.start_s, begins_s.get(name, inf))
    could = EligibleNodes.of(case.snapshot, case.details).ever(case.row) & ~nodes.closed
    ends_s = sorted((begins_s.get(nodes.name[at], inf) for at in np.flatnonzero(could).tolist()), reverse=True)
    many = max(1, int(case.snapshot.jobs.nodes[case.row]))
    return ends_s[many - 1] - case.snapshot.now_s if len(ends_s) >= many else 0.0


def _foreign_reservations(case: BlockedJob) -> list[_Kept]:
    """Reservations for others, on nodes it may use, that overlap its time; of those of parts of nodes the nodes on
    which they leave too little."""
    asks = NodeCheck.of(case.snapshot, case.row, case.details)
    table, found, names = asks.snapshot.reservations, asks.found, list(asks.snapshot.nodes.name)
    short, kept = (found.exclusion == Exclusion.RESERVED) & (found.reserved_by < 0), list[_Kept]()
    for at, here in reservations_against(asks.snapshot, asks.request, []):
        rows = np.flatnonzero(here & (short if table.cores[at] else found.ever)).tolist()
        if rows:
            nodes = frozenset(names[row] for row in rows)
            kept.append(_Kept(float(table.start_s[at]), table.name[at], table.flags[at], nodes))
    return kept


def own_reservation(case: BlockedJob) -> SentenceAndChanges:
    name, table = case.snapshot.jobs.reservation[case.row], case.details.reservations
    for at in range(len(table)):
        if table.name[at] in name.split(","):
            when = f"from {local_time(float(table.start_s[at]))} to {local_time(float(table.end_s[at]))}"
            return f"It waits for reservation {printable(name)}, {when}, or for nodes in it.", ()
    if not name:
        return _runs_into(case, "a reservation for others", _foreign_reservations(case))
    if case.snapshot.site.hides("reservations"):
        return f"It waits for reservation {printable(name)}, which Slurm's PrivateData hides, or for nodes in it.", ()
    leave = f"leave it: scontrol update jobid={case.job_id} reservationname="
    return f"Reservation {printable(name)} is not there ({case.reason.code}).", (leave,)


def reservation_gone(case: BlockedJob) -> SentenceAndChanges:
    """Slurm takes the name off the jobs of a reservation that ends, and holds them (RESV_DEL_HOLD)."""
    if case.snapshot.jobs.reservation[case.row]:
        return own_reservation(case)
    more = f": {printable(case.reason.more)}" if case.reason.more else ""
    return f"The reservation it was for is gone, and Slurm holds it{more}.", (f"scontrol release {case.job_id}",)


def _names(text: str) -> frozenset[str]:
    return frozenset(expand_or_none(text) or ())

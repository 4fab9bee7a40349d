"""What closed nodes, maintenances and reservations mean for one job, and idle nodes that are kept for others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan

import numpy as np

from slurmsched.model import NodeState
from slurmsched.model.columns import Bools
from slurmsched.model.hostlists import expand_or_none, fold_hostlist
from slurmsched.model.job_details import JobDetails
from slurmsched.model.operations import RESERVATION_PREFIX
from slurmsched.model.reasons import LimitValue, Reason
from slurmsched.model.snapshot import Snapshot
from slurmsched.observe.explain.node_obstacles import NodeCheck
from slurmsched.observe.explain.start_estimate import EligibleNodes
from slurmsched.observe.explain.wording import local_time, printable, sbatch_time
from slurmsched.plain_text import pluralize
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
        return f"Nodes it needs take no job now: {words or 'Slurm does not show which'}.", ()
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


# Idle nodes that are reserved or planned for other jobs: for which, until when, and how many GPU hours.


_OURS = re.compile(rf"{RESERVATION_PREFIX}(?:[0-9a-f]{{6}}-)?(\d+)-\d+")


@dataclass(frozen=True, slots=True)
class KeptNodes:
    """Nodes that the job may use, kept by a reservation ("reserved") or by Slurm's backfill ("planned").

    whom: in words.
    nodes: hostlist.
    from_s, until_s: Unix [s]; NaN = not known.
    idle_gpus: free there now.
    gpu_h: GPU hours kept: of the idle GPUs from now, or of all from the begin; NaN = not known.
    text: all this in words.
    """

    how: str
    name: str
    whom: str
    nodes: str
    from_s: float
    until_s: float
    idle_gpus: int
    gpu_h: float
    text: str


def kept_nodes(snapshot: Snapshot, row: int, details: JobDetails) -> tuple[KeptNodes, ...]:
    """Idle nodes that the job may use but that are kept for others, the soonest to end first."""
    ever = EligibleNodes.of(snapshot, details).ever(row)
    found = [one for one in (*_reserved(snapshot, row, details, ever), *_planned(snapshot, row, details, ever))
             if one.idle_gpus or one.from_s > snapshot.now_s]  # fmt: skip
    return tuple(sorted(found, key=lambda one: (one.until_s if isfinite(one.until_s) else np.inf, one.how, one.name)))


def idle_line(snapshot: Snapshot, row: int, details: JobDetails, kept: tuple[KeptNodes, ...]) -> str:
    """How many idle GPUs of nodes that the job may use are kept for nobody; "" where nothing is kept."""
    if not kept:
        return ""
    names = {name for one in kept for name in expand_or_none(one.nodes) or ()}
    ever, idle = EligibleNodes.of(snapshot, details).ever(row) & ~snapshot.nodes.closed, _idle_gpus(snapshot)
    here = snapshot.nodes.name.isin(names)
    return (f"{pluralize(int(idle[ever & ~here].sum()), 'GPU is', 'GPUs are')} idle on nodes that are kept for no job, "
            f"{int(idle[ever & here].sum())} on nodes that are reserved or planned")  # fmt: skip


def _idle_gpus(snapshot: Snapshot) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.maximum(snapshot.nodes.gpus.astype(np.int64) - snapshot.nodes.gpus_used, 0)


def _reserved(snapshot: Snapshot, row: int, details: JobDetails, ever: Bools) -> Iterator[KeptNodes]:
    table, now_s = details.reservations, snapshot.now_s
    for at in range(len(table)):
        here = snapshot.nodes.name.isin(expand_or_none(table.node_list[at]) or ()) & ever
        own = table.name[at] in snapshot.jobs.reservation[row].split(",")
        if here.any() and not own and not table.end_s[at] <= now_s:
            times = float(table.start_s[at]), float(table.end_s[at])
            yield _kept_for(snapshot, "reserved", table.name[at], _whom(details, at), here, *times)


def _whom(details: JobDetails, at: int) -> str:
    """The users and accounts of a reservation, in words."""
    table = details.reservations
    ours = _OURS.fullmatch(table.name[at])
    users = f" of {printable(table.users[at])}" if table.users[at] else ""
    if ours:
        return f"job {ours[1]}{users}"
    if "MAINT" in table.flags[at].split(","):
        return "maintenance"
    lists = {"user": table.users[at], "account": table.accounts[at], "group": table.groups[at], "QOS": table.qos[at]}
    named = [f"{kind} {printable(text)}" for kind, text in lists.items() if text]
    return " and ".join(named) or "others, who are not shown"


def _planned(snapshot: Snapshot, row: int, details: JobDetails, ever: Bools) -> Iterator[KeptNodes]:
    """By the jobs that squeue shows with planned nodes; of nodes that none of them names it is not known for whom."""
    jobs, rest = snapshot.jobs, ever & ((snapshot.nodes.state & int(NodeState.PLANNED)) != 0)
    for one in details.planned or ():
        here = snapshot.nodes.name.isin(expand_or_none(one.nodes) or ()) & ever
        rest &= ~here
        if here.any() and one.job_id != jobs.job_id[row]:
            whom = f"job {one.job_id} of {printable(one.user)}"
            yield _kept_for(snapshot, "planned", str(one.job_id), whom, here, snapshot.now_s, one.start_s)
    if rest.any():
        whom = "a job (which one was not read)" if details.planned is None else "a job that Slurm does not show"
        yield _kept_for(snapshot, "planned", "", whom, rest, snapshot.now_s, nan)


def _kept_for(
    snapshot: Snapshot, how: str, name: str, whom: str, here: Bools, from_s: float, until_s: float
) -> KeptNodes:  # fmt: skip
    nodes = fold_hostlist(np.array(list(snapshot.nodes.name), object)[here].tolist())
    idle = int(_idle_gpus(snapshot)[here].sum())
    gpus = idle if from_s <= snapshot.now_s else int(snapshot.nodes.gpus[here].sum())
    gpu_h = gpus * max(until_s - max(from_s, snapshot.now_s), 0.0) / 3600
    begins = f"from {local_time(from_s)} " if from_s > snapshot.now_s else ""
    until = f"until {local_time(until_s)}" if isfinite(until_s) else "until a time that is not known"
    hours = f", {gpu_h:.1f} GPU h" if isfinite(gpu_h) else ""
    title = f" (reservation {printable(name)})" if how == "reserved" else ""
    text = f"{nodes} {how} for {whom} {begins}{until}: {pluralize(idle, 'idle GPU')}{hours}{title}"
    return KeptNodes(how, name, whom, nodes, from_s, until_s, idle, gpu_h, text)

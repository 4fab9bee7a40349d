"""Idle nodes that are reserved or planned for other jobs: for which, until when, and how many GPU hours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite, nan

import numpy as np

from slurmsched.model import NodeState
from slurmsched.model.columns import Bools
from slurmsched.model.hostlists import expand_or_none, fold_hostlist
from slurmsched.model.job_details import JobDetails
from slurmsched.model.operations import RESERVATION_PREFIX
from slurmsched.model.snapshot import Snapshot
from slurmsched.observe.explain.start_estimate import EligibleNodes
from slurmsched.observe.explain.wording import local_time, printable
from slurmsched.plain_text import pluralize

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
    return (f"{pluralize(int(idle[ever & ~here].sum()), 'GPU is', 'GPUs are')} idle on nodes that are kept for nobody, "
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

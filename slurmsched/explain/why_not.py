"""The first thing that keeps a job off one node, and who holds what it needs there."""

from __future__ import annotations

from math import isfinite

from slurmsched.errors import InputError
from slurmsched.explain.facts import Facts
from slurmsched.explain.obstacles import Asks, Kind, names
from slurmsched.explain.text import clock, shown
from slurmsched.model.snapshot import Snapshot

HOLDERS_SHOWN = 3


def why_not(snapshot: Snapshot, row: int, node: str, facts: Facts) -> str:
    """In words; "" if nothing known does. Raises InputError for a node that Slurm does not have."""
    known = list(snapshot.nodes.name)
    if node not in known:
        raise InputError(f"Slurm has no node {shown(node)}; `sinfo -N` lists them")
    asks = Asks.of(snapshot, row, facts)
    found = asks.obstacle(known.index(node))
    if found is None:
        unseen = "; ".join(asks.unseen)
        return f"nothing that was looked at. Not looked at: {shown(unseen)}" if unseen else ""
    held = found.kind in (Kind.GPUS, Kind.CPUS, Kind.MEMORY, Kind.WHOLE)
    return found.text + (_holders(snapshot, node) if held else "")


def _holders(snapshot: Snapshot, node: str) -> str:
    """The jobs there, those that end first before the others."""
    jobs = snapshot.jobs
    may = (~jobs.pending & ~jobs.finished).nonzero()[0].tolist()
    rows = [row for row in may if node in names(jobs.node_list[row])]
    rows.sort(key=lambda row: (not isfinite(jobs.end_s[row]), jobs.end_s[row], jobs.job_id[row]))
    told = [_holder(snapshot, row) for row in rows[:HOLDERS_SHOWN]]
    more = f" and {len(rows) - HOLDERS_SHOWN} more" if len(rows) > HOLDERS_SHOWN else ""
    return f"; there run{'s' * (len(rows) == 1)} {', '.join(told)}{more}" if told else ""


def _holder(snapshot: Snapshot, row: int) -> str:
    jobs = snapshot.jobs
    end_s = float(jobs.end_s[row])
    ends = f"until {clock(end_s)} at the latest" if isfinite(end_s) else "with no time limit"
    return f"job {int(jobs.job_id[row])} of {shown(jobs.user[row])} {ends}"

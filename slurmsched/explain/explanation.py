"""One job explained: blocker, limits, who is ahead, what would change it, what slurmsched did, hints, estimate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from slurmsched.explain.ahead import Ahead, ahead, ready, standing
from slurmsched.explain.because import said
from slurmsched.explain.by_plan import by_plan
from slurmsched.explain.case import Case
from slurmsched.explain.estimate import BY_TURNS, Estimate, by_turns, estimate
from slurmsched.explain.facts import Facts
from slurmsched.explain.room import MATTERS, room
from slurmsched.model.hints import parse_hints, written
from slurmsched.model.limits import LimitValue, limit_values
from slurmsched.model.plan import Plan
from slurmsched.model.reasons import Blocker, Reason, read_reason
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.states import JobState


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `explain` shows. slurm_reason: as Slurm names it. changes: what would change it. ours: what slurmsched did,
    oldest first. hints: as understood. ahead, estimate: None for a job that does not wait. expected: what the policy's
    estimate of its run time is made of, in words. move: of a running job, whether it may be asked to make way, and what
    that counts as."""

    job_id: int
    user: str
    state: str
    slurm_reason: str
    blocker: Blocker
    because: str
    changes: tuple[str, ...] = ()
    limits: tuple[LimitValue, ...] = ()
    ahead: Ahead | None = None
    estimate: Estimate | None = None
    ours: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    move: str = ""


def explain(
    snapshot: Snapshot, plan: Plan | None, row: int, facts: Facts, expected: tuple[str, ...] = (), move: str = ""
) -> Explanation:
    """The job in this row. plan: None where the policy's order is not known; then Slurm's priority counts. expected,
    move: see Explanation. Pure."""
    jobs = snapshot.jobs
    reason = _blocker(snapshot, row, facts)
    limits = limit_values(reason.limit, facts.limits, job_needs(snapshot, row)) if reason.limit else ()
    because, changes = said(Case(snapshot, row, reason, facts, limits))
    because += _component(snapshot, row) + _tasks(snapshot, row)
    because += room(snapshot, row, facts) if reason.blocker in MATTERS else ""
    waits = bool(jobs.pending[row])
    return Explanation(
        job_id=int(jobs.job_id[row]),
        user=jobs.user[row],
        state=(JobState(int(jobs.state[row])).name or "?").replace("|", "+"),
        slurm_reason=jobs.reason[row],
        blocker=reason.blocker,
        because=because,
        changes=changes,
        limits=limits,
        ahead=ahead(snapshot, plan, row) if waits else None,
        estimate=_estimate(snapshot, plan, row, reason.blocker, facts) if waits else None,
        ours=facts.ours,
        hints=(*written(jobs.comment[row]), *parse_hints(jobs.comment[row]).warnings),
        unread=facts.unread,
        expected=expected,
        move=move,
    )


def _estimate(snapshot: Snapshot, plan: Plan | None, row: int, blocker: Blocker, facts: Facts) -> Estimate:
    """By a promise or the past, else by the plan."""
    told = estimate(snapshot, row, blocker, snapshot.acts, facts.waits_s, facts.start_s)
    if told.source != "none" or blocker not in BY_TURNS:
        return told
    rows = standing(snapshot, plan, row).tolist()
    before = ready(snapshot, rows[: rows.index(row)])
    return by_turns(told, by_plan(snapshot, before, row, facts), len(before))


def job_needs(snapshot: Snapshot, row: int) -> dict[str, float]:
    """What the job adds to the use of limits, by TRES and "jobs"; memory in MiB."""
    jobs = snapshot.jobs
    counts: dict[str, Any] = {"cpu": jobs.cpus, "mem": jobs.memory_mib, "node": jobs.nodes, "gres/gpu": jobs.gpus}
    return {name: float(column[row]) for name, column in counts.items()} | {"jobs": 1.0}


def _component(snapshot: Snapshot, row: int) -> str:
    """What to add for a component of a heterogeneous job that waits."""
    jobs = snapshot.jobs
    leader = int(jobs.het_job_id[row])
    if not leader or not jobs.pending[row]:
        return ""
    others = [int(jobs.job_id[at]) for at in range(len(jobs)) if jobs.het_job_id[at] == leader and at != row]
    told = f": what keeps {', '.join(map(str, others))} keeps it too" if others else ""
    return f" It is component {int(jobs.het_offset[row])} of job {leader}, whose components start together{told}."


def _tasks(snapshot: Snapshot, row: int) -> str:
    """What to add for tasks of an array that wait as one record."""
    tasks = int(snapshot.jobs.array_tasks[row])
    return f" The same holds for all {tasks} tasks of its array that wait together." if tasks > 1 else ""


def _blocker(snapshot: Snapshot, row: int, facts: Facts) -> Reason:
    """Slurm's reason, made more exact by what else is known."""
    jobs = snapshot.jobs
    reason = read_reason(jobs.reason[row])
    if not jobs.pending[row]:
        return replace(reason, blocker=Blocker.ENDED if jobs.finished[row] else Blocker.RUNNING, more="", limit=None)
    if reason.blocker is Blocker.BEGIN_TIME and facts.requeued:
        return replace(reason, blocker=Blocker.REQUEUED)
    if reason.blocker is Blocker.NOT_TRIED and jobs.held[row]:
        return replace(reason, blocker=Blocker.HELD_BY_ADMIN)
    late = float(jobs.eligible_s[row])
    if reason.blocker is Blocker.NOT_TRIED and isfinite(late) and late > snapshot.now_s:
        return replace(reason, blocker=Blocker.BEGIN_TIME)
    return reason

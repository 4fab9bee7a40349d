"""One job explained: blocker, limits, who is ahead, what would change it, what slurmsched did, hints, estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from slurmsched.explain.ahead import Ahead, ahead, before
from slurmsched.explain.because import advice, said
from slurmsched.explain.by_plan import by_plan
from slurmsched.explain.case import Case
from slurmsched.explain.estimate import BY_TURNS, Estimate, by_turns, estimate
from slurmsched.explain.facts import Facts
from slurmsched.explain.obstacles import Asks, Kind, Obstacle, spreads
from slurmsched.explain.on_nodes import reserved
from slurmsched.explain.room import room
from slurmsched.explain.states import held_by_state, standing_by_state, state_name
from slurmsched.model.hints import parse_hints, written
from slurmsched.model.limits import LimitValue, limit_values
from slurmsched.model.plan import Plan
from slurmsched.model.reasons import Blocker, Reason, read_reason
from slurmsched.model.snapshot import Rights, Snapshot
from slurmsched.model.states import HELD, JobState
from slurmsched.resources.eligibility import Bar

BY_NODES = (Blocker.PRIORITY, Blocker.RESOURCES, Blocker.NODES, Blocker.NOT_TRIED)  # what the nodes say decides
_RESERVED = (Blocker.RESERVATION, Blocker.MAINTENANCE)
BY_REQUEST = (*BY_NODES, *_RESERVED, Blocker.PARTITION_CLOSED, Blocker.CONSTRAINTS)
_EVER = tuple(kind for kind in Kind if kind is not Kind.NEVER)
_TAKEN = tuple(kind for kind in _EVER if kind not in (Kind.CLOSED, Kind.RESERVED))


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
    waits = bool(jobs.pending[row])
    rivals = before(snapshot, None, row, facts) if waits else []
    reason = _blocker(snapshot, row, facts)
    reason = _judged(snapshot, row, facts, reason, bool(rivals)) if waits else reason
    limits = limit_values(reason.limit, facts.limits, job_needs(snapshot, row)) if reason.limit else ()
    case = Case(snapshot, row, reason, facts, limits, tuple(rivals))
    because, changes = said(case)
    because += _component(snapshot, row) + _tasks(snapshot, row)
    by_nodes = reason.blocker in (*BY_NODES, Blocker.CONSTRAINTS)
    by_nodes = by_nodes or (reason.blocker in _RESERVED and not jobs.reservation[row])
    because += room(snapshot, row, facts) if by_nodes else ""
    because += reserved(case) if reason.blocker in BY_NODES else ""
    if reason.blocker in BY_REQUEST:
        more, others = advice(case)
        because, changes = because + more, (*changes, *others)
    ranking = None if plan is None else plan.ranking
    first = rivals if ranking is None or not waits else before(snapshot, ranking, row, facts)
    return Explanation(
        job_id=int(jobs.job_id[row]),
        user=jobs.user[row],
        state=state_name(int(jobs.state[row])) or jobs.state_text[row] or "?",
        slurm_reason=jobs.reason[row],
        blocker=reason.blocker,
        because=because,
        changes=changes,
        limits=limits,
        ahead=ahead(snapshot, plan, row, first) if waits else None,
        estimate=_estimate(snapshot, row, reason.blocker, facts, first) if waits else None,
        ours=facts.ours,
        hints=(*written(jobs.comment[row]), *parse_hints(jobs.comment[row]).warnings),
        unread=(*_hidden(snapshot), *facts.unread),
        expected=expected,
        move=move,
    )


def _estimate(snapshot: Snapshot, row: int, blocker: Blocker, facts: Facts, first: list[int]) -> Estimate:
    """By a promise or the past, else by the plan. first: rows of the jobs before it."""
    told = estimate(snapshot, row, blocker, snapshot.acts, facts.waits_s, facts.start_s)
    if told.source != "none" or blocker not in BY_TURNS:
        return told
    return by_turns(told, by_plan(snapshot, first, row, facts), len(first))


def _hidden(snapshot: Snapshot) -> tuple[str, ...]:
    """What Slurm hides from the user who asks, of that on which the answer rests."""
    site = snapshot.site
    private = {name.strip().lower() for name in site.settings.get("PrivateData", "").split(",")}
    if site.rights >= Rights.OPERATOR:
        return ()
    told = {
        "jobs": "jobs of others: PrivateData=jobs. Ranks and jobs ahead count only the jobs that you may see",
        "nodes": "nodes: PrivateData=nodes hides them. Room is not known",
        "reservations": "reservations of others: PrivateData=reservations. They may keep nodes from the job",
    }
    return tuple(text for name, text in told.items() if private & {name, "all"})


def job_needs(snapshot: Snapshot, row: int) -> dict[str, float]:
    """What the job adds to the use of limits, by TRES, "jobs" and "wall"; memory in MiB, time in minutes."""
    jobs = snapshot.jobs
    counts: dict[str, Any] = {"cpu": jobs.cpus, "mem": jobs.memory_mib, "node": jobs.nodes, "gres/gpu": jobs.gpus}
    told = {name: float(column[row]) for name, column in counts.items()}
    return told | {"jobs": 1.0, "wall": float(jobs.time_limit_s[row]) / 60}


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
        return replace(reason, blocker=standing_by_state(int(jobs.state[row])), more="", limit=None)
    if reason.blocker is Blocker.BEGIN_TIME and facts.requeued:
        return replace(reason, blocker=Blocker.REQUEUED)
    if reason.blocker is Blocker.NOT_TRIED and (held := held_by_state(int(jobs.state[row]))):
        return replace(reason, blocker=held, code=state_name(int(jobs.state[row]) & int(HELD | JobState.REQUEUE_FED)))
    if reason.blocker is Blocker.NOT_TRIED and jobs.held[row]:
        return replace(reason, blocker=Blocker.HELD_BY_ADMIN)
    if reason.blocker is Blocker.NOT_TRIED and jobs.dependency[row]:
        return replace(reason, blocker=Blocker.DEPENDENCY)
    late = float(jobs.eligible_s[row])
    if reason.blocker is Blocker.NOT_TRIED and isfinite(late) and late > snapshot.now_s:
        return replace(reason, blocker=Blocker.BEGIN_TIME)
    return reason


def _judged(snapshot: Snapshot, row: int, facts: Facts, reason: Reason, rivals: bool) -> Reason:
    """What the nodes say of a job that waits for its turn or for nodes. Slurm tells only which of its checks was last.

    rivals: whether Slurm ranks others before it that may start on its nodes.
    """
    if reason.blocker not in BY_NODES or not len(snapshot.nodes):
        return reason
    asks = Asks.of(snapshot, row, facts)
    found = [asks.obstacle(at) for at in range(len(snapshot.nodes))]

    def enough(*kinds: Kind) -> bool:
        """Whether the nodes that lack nothing, or one of these, are enough for it."""
        fit = [at for at, one in enumerate(found) if one is None or one.kind in kinds]
        gpus = snapshot.nodes.gpus[fit].sum() if spreads(snapshot, row, facts) else snapshot.jobs.gpus[row]
        return len(fit) >= max(1, int(snapshot.jobs.nodes[row])) and bool(gpus >= snapshot.jobs.gpus[row])

    if not enough(*_EVER):
        return replace(reason, blocker=_never(asks, reason.blocker))
    if not enough(*_TAKEN, Kind.RESERVED):
        return replace(reason, blocker=Blocker.NODES)
    if not enough(*_TAKEN):
        return replace(reason, blocker=_reserving(asks, found, facts))
    if reason.blocker is not Blocker.PRIORITY or rivals or _hidden(snapshot):
        return reason
    return replace(reason, blocker=Blocker.NOT_TRIED if enough() else Blocker.RESOURCES)


def _reserving(asks: Asks, found: Sequence[Obstacle | None], facts: Facts) -> Blocker:
    """Whether maintenances alone keep nodes from it."""
    names = [asks.snapshot.nodes.name[at] for at, one in enumerate(found) if one and one.kind is Kind.RESERVED]
    flags = dict(zip(facts.reservations.name, facts.reservations.flags, strict=True))
    those = [one for one in asks.kept if one.nodes is None or not one.nodes.isdisjoint(names)]
    maintenance = all("MAINT" in flags[one.name].split(",") for one in those)
    return Blocker.MAINTENANCE if maintenance else Blocker.RESERVATION


def _never(asks: Asks, otherwise: Blocker) -> Blocker:
    """Why too few nodes could ever serve it. otherwise: where none of its nodes is shown, or not all was looked at."""
    bars = {Bar(bar) for bar in asks.found.bar.tolist()} - {Bar.PARTITION}
    if not bars or asks.found.doubts:
        return otherwise
    if Bar.PARTITION_LIMIT not in bars:
        return Blocker.CONSTRAINTS
    partitions = asks.snapshot.partitions
    down = {name for name, up in zip(partitions.name, partitions.up.tolist(), strict=True) if not up}
    return Blocker.PARTITION_CLOSED if down.issuperset(asks.found.limits) else Blocker.PARTITION_LIMIT

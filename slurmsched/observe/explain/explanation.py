"""One job explained: what blocks it, its place in the queue, what would change that, and what the planner says of it.

The planner gives the terms of its run time, its speed beside others, and whether it may be preempted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from slurmsched.config import PreemptionConfig, ScopeConfig
from slurmsched.estimators.group_speeds import MOST_JOBS, SOURCES, GroupSpeeds
from slurmsched.estimators.throughput_table import kind_of_job
from slurmsched.model.hints import parse_hints, written
from slurmsched.model.job_details import JobDetails, ShareAndUse
from slurmsched.model.operations import OperationStage
from slurmsched.model.plan import Plan
from slurmsched.model.reasons import Blocker, LimitValue, Reason, limit_values, read_reason
from slurmsched.model.snapshot import Rights, Snapshot
from slurmsched.model.states import HELD, JobState
from slurmsched.observe.explain.blocked_nodes import BlockedJob, KeptNodes, idle_line, kept_by_reservations, kept_nodes
from slurmsched.observe.explain.blocker_text import explain_blocker, nearby_requests
from slurmsched.observe.explain.node_obstacles import NodeCheck, room_on_nodes
from slurmsched.observe.explain.queue_position import (
    GpuUse,
    PriorityParts,
    QueuePosition,
    TierPlace,
    competitors_before,
    gpu_use,
    measured_use,
    priority_parts,
    queue_position,
    tier_place,
)
from slurmsched.observe.explain.start_estimate import (
    BY_TURNS,
    StartEstimate,
    estimate_by_plan,
    start_estimate,
    starts_by_plan,
)
from slurmsched.observe.explain.wording import blocker_of_state, held_by_flag, sbatch_time, state_name
from slurmsched.plain_text import pluralize
from slurmsched.planning.job_overrides import SHARD_FIELDS, SIZE_FIELDS, JobOverrides, by_job
from slurmsched.planning.operations.victims import (
    VICTIM_RULES,
    preemption_case,
    restart_cost_source,
    restart_costs_s,
    victim_verdicts,
)
from slurmsched.protocols import ExplainingEstimator
from slurmsched.resources.allocated import holding
from slurmsched.resources.eligibility import FIRST_PASSING, Exclusion
from slurmsched.resources.node_gpus import jobs_beside, jobs_to_join

DAYS = ("Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday")


def run_time_terms(planner: object, snapshot: Snapshot, row: int) -> tuple[str, ...]:
    """One line for the whole, then one for each factor, the greatest first; () where the planner cannot tell, or its
    policy's estimator has learnt nothing yet."""
    terms = planner.terms(snapshot) if isinstance(planner, ExplainingEstimator) else None
    if terms is None:
        return ()
    total_s = float(terms.usual_s * terms.factor[row].prod())
    pairs = list(zip(terms.names, terms.value[row].tolist(), terms.factor[row].tolist(), strict=True))
    pairs.sort(key=lambda each: -max(each[2], 1.0 / each[2]))
    first = f"run time {_time(total_s)}: the usual {_time(terms.usual_s)}, times the factors below"
    return (first, *(f"x {factor:.2f} for {_named(name, value)}" for name, value, factor in pairs))


def _named(name: str, value: float) -> str:
    """A factor's name with what the job has there."""
    if not isfinite(value):
        return f"{name}: none is known"
    if name.startswith("mean"):
        return f"{name}: {_time(value)}"
    if name == "weekday":
        return f"{name}: {DAYS[int(value) % 7]}, UTC"
    return f"{name}: {value:g}" + (" h, UTC" if name == "hour" else "")


def _time(time_s: float) -> str:
    """A duration; below a minute in seconds."""
    return f"{time_s:.0f} s" if time_s < 60 else sbatch_time(time_s)


# The size of an elastic job.


def size_outlook(snapshot: Snapshot, plan: Plan | None, row: int) -> str:
    """The size or part of a GPU that a job has by slurmsched, or why it gets none; "" if nothing is on record."""
    jobs, job_id = snapshot.jobs, int(snapshot.jobs.job_id[row])
    for record in by_job(snapshot.overrides, (*SIZE_FIELDS, *SHARD_FIELDS)):
        size = record.request
        if record.job_id == job_id and size.open and not record.abandoned:
            return _sent_words(record, int(jobs.gpus[row]))
        if record.job_id == job_id and record.abandoned and jobs.pending[row]:
            return f"it keeps what it asks for: {record.note}"
    refused = () if plan is None else (one for one in plan.refused if one.job_id == job_id)
    mine = (one for one in refused if one.rule.startswith(("size-", "share-")))
    return next((f"it keeps what it asks for: {one.reason}" for one in mine), "")


def _sent_words(record: JobOverrides, gpus: int) -> str:
    own = f"its own request is {record.request.base}"
    if not record.of_shards:
        return f"{pluralize(gpus, 'GPU')} by the policy; {own}"
    where = f" on {record.nodes.sent}" if record.nodes.open else ""
    return f"a part of a GPU, {record.request.sent}{where}: {record.note}; {own}"


# Interference.


def interference_outlook(snapshot: Snapshot, row: int, speeds: GroupSpeeds) -> str:
    """What a job keeps of its speed beside those on the GPU that it shares or is to share, and how that is known.

    "" where there are none, or Slurm does not show them.
    """
    others = jobs_beside(snapshot, row) or jobs_to_join(snapshot, row)
    if not others:
        return ""
    kinds, ids = [kind_of_job(snapshot.jobs, each) for each in (row, *others)], snapshot.jobs.job_id
    if len(kinds) > MOST_JOBS:
        return f"beside {pluralize(len(others), 'job')}: what they keep of their speeds is not known"
    kept, source = speeds.kept_by(kinds, 0, 1)
    theirs = (f"job {ids[each]} {speeds.kept_by(kinds, place, 1)[0]:.2f}" for place, each in enumerate(others, 1))
    names = " and ".join(f"job {ids[each]}" for each in others)
    return f"beside {names}: {kept:.2f} of its speed, {SOURCES[source]}; of theirs {', '.join(theirs)}"


# Whether a running job may be asked to make way for another one, and what its restart counts as.


def preemption_outlook(snapshot: Snapshot, row: int, config: PreemptionConfig, scope: ScopeConfig) -> str:
    """In words; "" for a job that holds no GPUs, and where preemption is off."""
    if not config.enabled or not holding(snapshot.jobs)[row]:
        return ""
    case = preemption_case(snapshot, config, scope)
    rule = int(victim_verdicts(case)[row])
    may = "it may be asked to make way" if rule < 0 else f"it keeps its GPUs: {VICTIM_RULES[rule].text(config)}"
    may = _leaving(snapshot, row) or may
    cost_s = restart_costs_s(snapshot.jobs, config.restart_cost_s)[row]
    counts = f"a restart counts as {cost_s:.0f} s, by {restart_cost_source(snapshot.jobs, row)}"
    loses_all = config.without_checkpoint and parse_hints(snapshot.jobs.comment[row]).ckpt is None
    return f"{may}; {counts}" + ", and all it has done, as it has no ckpt hint" * loses_all


def _leaving(snapshot: Snapshot, row: int) -> str:
    """That this run of the job is to leave its GPUs, and for which job; "" if it is not, or not any more."""
    run = int(snapshot.jobs.job_id[row]), int(snapshot.jobs.restarts[row])
    for operation in snapshot.operations:
        over = operation.stage in (OperationStage.CLEANING, OperationStage.REVERSING, OperationStage.CLOSED)
        if not over and any((victim.job_id, victim.restarts) == run for victim in operation.victims):
            return f"it is being asked to make way for job {operation.job_id}"
    return ""


BY_NODES = (Blocker.PRIORITY, Blocker.RESOURCES, Blocker.NODES, Blocker.NOT_TRIED)  # what the nodes say decides
_RESERVED = (Blocker.RESERVATION, Blocker.MAINTENANCE)
BY_REQUEST = (*BY_NODES, *_RESERVED, Blocker.PARTITION_CLOSED, Blocker.CONSTRAINTS)
_PASSING = tuple(why for why in Exclusion if why >= FIRST_PASSING)
_HELD = tuple(why for why in _PASSING if why not in (Exclusion.CLOSED, Exclusion.RESERVED))


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `explain` shows.

    slurm_reason: as Slurm names it.
    changes: what would change it.
    ours: what slurmsched did, oldest first.
    hints: as understood.
    ahead, estimate: None for a job that does not wait.
    expected: what the policy's estimate of its run time is made of, as text.
    move: of a running job, whether it may be asked to make way, and what that counts as.
    shares, use: of the account and user of a job that waits.
    priority: parts of the priority of a job that waits.
    tier: what orders a job that waits before the policy, None = no tier.
    kept: idle nodes that a job that waits may use, but that are reserved or planned for others.
    idle: GPUs kept for nobody, as text.
    measured: what a running job makes of its GPUs, as text, "" = not known.
    beside: what it keeps of its speed beside the jobs on the same GPU, as text, "" = there are none.
    size: that slurmsched gave it, or why it gives it none, "" = there is nothing to say.
    """

    job_id: int
    user: str
    state: str
    slurm_reason: str
    blocker: Blocker
    because: str
    changes: tuple[str, ...] = ()
    limits: tuple[LimitValue, ...] = ()
    ahead: QueuePosition | None = None
    estimate: StartEstimate | None = None
    ours: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    move: str = ""
    shares: tuple[ShareAndUse, ...] = ()
    use: tuple[GpuUse, ...] = ()
    priority: PriorityParts | None = None
    tier: TierPlace | None = None
    kept: tuple[KeptNodes, ...] = ()
    idle: str = ""
    measured: str = ""
    size: str = ""
    beside: str = ""


# Over 30 lines: one line for each part of the explanation.
def explain(
    snapshot: Snapshot, plan: Plan | None, row: int, details: JobDetails, expected: tuple[str, ...] = (),
    move: str = "", *, lever: str = "nice", beside: str = "",
) -> Explanation:  # fmt: skip
    """The job in this row. Pure.

    plan: None where the policy's order is not known; then Slurm's priority counts.
    expected, move, beside: see Explanation.
    lever: the lever's kind.
    """
    jobs = snapshot.jobs
    waits = bool(jobs.pending[row])
    competitors = competitors_before(snapshot, None, row, details) if waits else []
    reason = _blocker(snapshot, row, details)
    reason = _node_reason(snapshot, row, details, reason, bool(competitors)) if waits else reason
    limits = limit_values(reason.limit, details.limits, job_needs(snapshot, row)) if reason.limit else ()
    case = BlockedJob(snapshot, row, reason, details, limits, tuple(competitors))
    because, changes = _causes(case)
    ranking = None if plan is None else plan.ranking
    first = competitors if ranking is None or not waits else competitors_before(snapshot, ranking, row, details)
    ahead = queue_position(snapshot, plan, row, first) if waits else None
    kept = kept_nodes(snapshot, row, details) if waits else ()
    return Explanation(
        job_id=int(jobs.job_id[row]),
        user=jobs.user[row],
        state=state_name(int(jobs.state[row])) or jobs.state_text[row] or "?",
        slurm_reason=jobs.reason[row],
        blocker=reason.blocker,
        because=because,
        changes=changes,
        limits=limits,
        ahead=ahead,
        estimate=_estimate(snapshot, row, reason.blocker, details, first) if waits else None,
        ours=details.ours,
        hints=(*written(jobs.comment[row]), *parse_hints(jobs.comment[row]).warnings),
        unread=(*_hidden_facts(snapshot), *details.unread),
        expected=expected,
        move=move,
        shares=details.shares,
        use=gpu_use(snapshot, row) if waits else (),
        priority=priority_parts(snapshot, plan, row, details, lever) if waits else None,
        tier=tier_place(ahead.why) if ahead else None,
        kept=kept,
        idle=idle_line(snapshot, row, details, kept),
        measured=measured_use(snapshot.jobs, row),
        size=size_outlook(snapshot, plan, row),
        beside=beside,
    )


def _causes(case: BlockedJob) -> tuple[str, tuple[str, ...]]:
    """Why the job does not start, in sentences; and what its user could change."""
    snapshot, row, blocker = case.snapshot, case.row, case.reason.blocker
    because, changes = explain_blocker(case)
    because += _component(snapshot, row) + _tasks(snapshot, row)
    by_nodes = blocker in (*BY_NODES, Blocker.CONSTRAINTS)
    by_nodes = by_nodes or (blocker in _RESERVED and not snapshot.jobs.reservation[row])
    because += room_on_nodes(snapshot, row, case.details) if by_nodes else ""
    because += kept_by_reservations(case) if blocker in BY_NODES else ""
    if blocker not in BY_REQUEST:
        return because, changes
    more, others = nearby_requests(case)
    return because + more, (*changes, *others)


def _estimate(snapshot: Snapshot, row: int, blocker: Blocker, details: JobDetails, first: list[int]) -> StartEstimate:
    """By a gang reservation or the past, else by the plan. first: rows of the jobs before it."""
    estimate = start_estimate(snapshot, row, blocker, snapshot.operations, details.waits_s, details.start_s)
    if estimate.source != "none" or blocker not in BY_TURNS:
        return estimate
    return estimate_by_plan(estimate, starts_by_plan(snapshot, first, row, details), len(first))


def _hidden_facts(snapshot: Snapshot) -> tuple[str, ...]:
    """Facts that the answer needs and that Slurm hides from this user."""
    site = snapshot.site
    private = {name.strip().lower() for name in site.settings.get("PrivateData", "").split(",")}
    if site.rights >= Rights.OPERATOR:
        return ()
    hidden = {
        "jobs": "jobs of others: PrivateData=jobs. Ranks and jobs ahead count only the jobs that you may see",
        "nodes": "nodes: PrivateData=nodes hides them. Room is not known",
        "reservations": "reservations of others: PrivateData=reservations. They may keep nodes from the job",
    }
    return tuple(text for name, text in hidden.items() if private & {name, "all"})


def job_needs(snapshot: Snapshot, row: int) -> dict[str, float]:
    """The job's own part in the use of limits, by TRES, "jobs" and "wall"; memory in MiB, time in minutes."""
    jobs = snapshot.jobs
    counts: dict[str, Any] = {"cpu": jobs.cpus, "mem": jobs.memory_mib, "node": jobs.nodes, "gres/gpu": jobs.gpus}
    needs = {name: float(column[row]) for name, column in counts.items()}
    return needs | {"jobs": 1.0, "wall": float(jobs.time_limit_s[row]) / 60}


def _component(snapshot: Snapshot, row: int) -> str:
    """Lines to add for a component of a heterogeneous job that waits."""
    jobs = snapshot.jobs
    leader = int(jobs.het_job_id[row])
    if not leader or not jobs.pending[row]:
        return ""
    others = [int(jobs.job_id[at]) for at in range(len(jobs)) if jobs.het_job_id[at] == leader and at != row]
    more = f": what keeps {', '.join(map(str, others))} keeps it too" if others else ""
    return f" It is component {int(jobs.het_offset[row])} of job {leader}, whose components start together{more}."


def _tasks(snapshot: Snapshot, row: int) -> str:
    """Lines to add for tasks of an array that wait as one record."""
    tasks = int(snapshot.jobs.array_tasks[row])
    return f" The same holds for all {tasks} tasks of its array that wait together." if tasks > 1 else ""


def _blocker(snapshot: Snapshot, row: int, details: JobDetails) -> Reason:
    """Slurm's reason, made more exact by what else is known."""
    jobs = snapshot.jobs
    reason = read_reason(jobs.reason[row])
    if not jobs.pending[row]:
        return replace(reason, blocker=blocker_of_state(int(jobs.state[row])), more="", limit=None)
    if reason.blocker is Blocker.BEGIN_TIME and details.requeued:
        return replace(reason, blocker=Blocker.REQUEUED)
    if reason.blocker is Blocker.NOT_TRIED and (held := held_by_flag(int(jobs.state[row]))):
        return replace(reason, blocker=held, code=state_name(int(jobs.state[row]) & int(HELD | JobState.REQUEUE_FED)))
    if reason.blocker is Blocker.NOT_TRIED and jobs.held[row]:
        return replace(reason, blocker=Blocker.HELD_BY_ADMIN)
    if reason.blocker is Blocker.NOT_TRIED and jobs.dependency[row]:
        return replace(reason, blocker=Blocker.DEPENDENCY)
    late = float(jobs.eligible_s[row])
    if reason.blocker is Blocker.NOT_TRIED and isfinite(late) and late > snapshot.now_s:
        return replace(reason, blocker=Blocker.BEGIN_TIME)
    return reason


def _node_reason(snapshot: Snapshot, row: int, details: JobDetails, reason: Reason, competitors: bool) -> Reason:
    """What the nodes say of a job that waits for its turn or for nodes. Slurm tells only which of its checks was last.

    competitors: whether Slurm ranks others before it that may start on its nodes.
    """
    if reason.blocker not in BY_NODES or not len(snapshot.nodes):
        return reason
    check = NodeCheck.of(snapshot, row, details)
    if not check.enough(*_PASSING):
        return replace(reason, blocker=_never(check, reason.blocker))
    if not check.enough(*_HELD, Exclusion.RESERVED):
        return replace(reason, blocker=Blocker.NODES)
    if not check.enough(*_HELD):
        return replace(reason, blocker=_reserving(check))
    if reason.blocker is not Blocker.PRIORITY or competitors or _hidden_facts(snapshot):
        return reason
    return replace(reason, blocker=Blocker.NOT_TRIED if check.enough() else Blocker.RESOURCES)


def _reserving(check: NodeCheck) -> Blocker:
    """Whether maintenances alone keep nodes from it."""
    by = check.found.reserved_by[check.excluded_by(Exclusion.RESERVED)]
    flags = [check.snapshot.reservations.flags[row].split(",") for row in sorted(set(by[by >= 0].tolist()))]
    return Blocker.MAINTENANCE if flags and all("MAINT" in each for each in flags) else Blocker.RESERVATION


def _never(check: NodeCheck, otherwise: Blocker) -> Blocker:
    """Why too few nodes could ever serve it. otherwise: where none of its nodes is shown, or not all was looked at."""
    bars = {Exclusion(bar) for bar in check.found.exclusion.tolist()} - {Exclusion.PARTITION}
    if not bars or check.found.doubts:
        return otherwise
    if Exclusion.PARTITION_LIMIT not in bars:
        return Blocker.CONSTRAINTS
    partitions = check.snapshot.partitions
    down = {name for name, up in zip(partitions.name, partitions.up.tolist(), strict=True) if not up}
    return Blocker.PARTITION_CLOSED if down.issuperset(check.found.refusals) else Blocker.PARTITION_LIMIT

"""Rows of a snapshot and its plan for people: jobs in the order of the policy, operations, and the plan's changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from slurmsched.model import Jobs, JobState, Plan, Ranking, SetField, Snapshot
from slurmsched.model.columns import Int64s
from slurmsched.model.hints import parse_hints
from slurmsched.model.operations import Operation
from slurmsched.model.plan import Step
from slurmsched.model.policy_info import criteria, times_in
from slurmsched.model.states import ENDED, ON_NODES
from slurmsched.plain_text import pluralize
from slurmsched.planning.job_scope import JOB_RULES
from slurmsched.planning.priorities.order import DECIDED_BY, competing_jobs, queue_order
from slurmsched.planning.priorities.priority_fields import PRIORITY_FIELDS

if TYPE_CHECKING:
    from slurmsched.planning.priorities.priority_fields import PriorityField

_BASE_STATES = (JobState.COMPLETING, JobState.RUNNING, JobState.SUSPENDED, JobState.PENDING)
_SHOWN_STATES = tuple((name, int(JobState[name])) for name in ("COMPLETING", "PENDING", "RUNNING", "SUSPENDED"))


class JobKeys(NamedTuple):
    """What filters of jobs look at."""

    user: str
    account: str
    partition: str
    qos: str

    @classmethod
    def of(cls, jobs: Jobs, row: int) -> JobKeys:
        return cls(jobs.user[row], jobs.account[row], jobs.partition[row], jobs.qos[row])


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """A job that waits, or holds nodes, as `queue`, `plan`, `top` and the web pages show it.

    rank: from 1 among all pending jobs, whichever are shown, as in `explain`; None of jobs that hold nodes.
    gpus: of all tasks of an array that wait.
    expected_start_s: Slurm's estimate [Unix s], NaN = none.
    progress: share done by the job's own report, 0 to 1; None if it reports none.
    throughput: samples per second by its own report; None if it reports none.
    gpu_use: measured use of its GPUs, 0 to 1; NaN where it is not known.
    queue: the policy's queue; None of a policy without queues.
    why: the policy's own criteria.
    why_text: these in words, without the queue.
    lever_now, lever_wanted: value of the lever's field in Slurm, and by the plan.
    left_alone: the rule by which the job is left alone, None if it is managed.
    reason: of the planned change, or of none.
    """

    rank: int | None
    job_id: int
    user: str
    account: str
    partition: str
    qos: str
    name: str
    state: str
    time_limit_s: float
    nodes: int
    submit_s: float
    expected_start_s: float
    priority: int
    nice: int
    slurm_reason: str
    gpus: int
    attained_gpu_s: float
    progress: float | None
    throughput: float | None
    gpu_use: float
    queue: int | None
    why: Mapping[str, Any]
    why_text: str
    lever_now: int
    lever_wanted: int
    left_alone: str | None
    reason: str

    @property
    def why_shown(self) -> str:
        """Why it has its place, or why it is left alone; "-" where there is nothing to say."""
        return f"left alone: {self.reason}" if self.left_alone else self.why_text or "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRow:
    """A job that holds nodes. progress, throughput, gpu_use: as in QueueRow. end_s: NaN = no end is known."""

    job_id: int
    user: str
    account: str
    partition: str
    qos: str
    name: str
    state: str
    gpus: int
    nodes: int
    node_list: str
    start_s: float
    run_s: float
    end_s: float
    time_limit_s: float
    attained_gpu_s: float
    progress: float | None
    throughput: float | None
    gpu_use: float


def queue_rows(
    snapshot: Snapshot, plan: Plan, lever: str, *, managed_only: bool = False, running: bool = False
) -> list[QueueRow]:
    """Pending jobs, most urgent first; with running, jobs that hold nodes after them."""
    reasons = {action.job_id: action.reason for action in plan.actions}
    now = PRIORITY_FIELDS[lever].now(snapshot.jobs)
    rows = queue_order(snapshot, plan.ranking).tolist()
    found = [_queue_row(snapshot, plan, row, place, int(now[row]), reasons) for place, row in enumerate(rows, 1)
             if plan.managed[row] or not managed_only]  # fmt: skip
    holding = np.flatnonzero(snapshot.jobs.is_state(ON_NODES)).tolist() if running else []
    return found + [_queue_row(snapshot, plan, row, None, int(now[row]), reasons) for row in holding]


# Over 30 lines: one line for each field of the row.
def _queue_row(
    snapshot: Snapshot, plan: Plan, row: int, place: int | None, now: int, reasons: Mapping[int, str]
) -> QueueRow:
    jobs = snapshot.jobs
    ranking = plan.ranking or Ranking(np.arange(len(jobs)))
    why = {name: values[row].item() for name, values in ranking.why.items()}
    verdict, hints = int(plan.verdict[row]), parse_hints(jobs.comment[row])
    rule = JOB_RULES[verdict] if verdict >= 0 else None
    return QueueRow(
        rank=place,
        job_id=int(jobs.job_id[row]),
        user=jobs.user[row],
        account=jobs.account[row],
        partition=jobs.partition[row],
        qos=jobs.qos[row],
        name=jobs.name[row],
        state=_squeue_state(jobs, row),
        time_limit_s=float(jobs.time_limit_s[row]),
        nodes=int(jobs.nodes[row]),
        submit_s=float(jobs.submit_s[row]),
        expected_start_s=float(jobs.expected_start_s[row]),
        priority=int(jobs.priority[row]),
        nice=int(jobs.nice[row]),
        slurm_reason=jobs.reason[row],
        gpus=int(jobs.gpus[row]) * max(int(jobs.array_tasks[row]), 1),
        attained_gpu_s=float(jobs.attained_gpu_s[row]),
        progress=hints.progress,
        throughput=hints.throughput,
        gpu_use=float(jobs.gpu_use[row]),
        queue=int(why["queue"]) if "queue" in why else None,
        why=why,
        why_text=criteria({name: value for name, value in why.items() if name != "queue"}, ranking.words),
        lever_now=now,
        lever_wanted=int(plan.wanted_values[row]),
        left_alone=rule.name if rule else None,
        reason=reasons.get(int(jobs.job_id[row])) or (rule.reason if rule else "it is where it should be"),
    )


def running_rows(snapshot: Snapshot) -> list[RunningRow]:
    """Jobs that hold nodes, the one that must end first at the top."""
    jobs = snapshot.jobs
    holding = np.flatnonzero(jobs.is_state(ON_NODES))
    order = np.lexsort((jobs.job_id[holding], jobs.end_s[holding]))  # NaN, without an end, comes last
    return [_running_row(jobs, row) for row in holding[order].tolist()]


def _running_row(jobs: Jobs, row: int) -> RunningRow:
    hints = parse_hints(jobs.comment[row])
    return RunningRow(
        job_id=int(jobs.job_id[row]),
        user=jobs.user[row],
        account=jobs.account[row],
        partition=jobs.partition[row],
        qos=jobs.qos[row],
        name=jobs.name[row],
        state=_squeue_state(jobs, row),
        gpus=int(jobs.gpus[row]),
        nodes=int(jobs.nodes[row]),
        node_list=jobs.node_list[row],
        start_s=float(jobs.start_s[row]),
        run_s=float(jobs.run_s[row]),
        end_s=float(jobs.end_s[row]),
        time_limit_s=float(jobs.time_limit_s[row]),
        attained_gpu_s=float(jobs.attained_gpu_s[row]),
        progress=hints.progress,
        throughput=hints.throughput,
        gpu_use=float(jobs.gpu_use[row]),
    )


def _squeue_state(jobs: Jobs, row: int) -> str:
    """The job's state as squeue writes it; a job that still completes is COMPLETING."""
    state = int(jobs.state[row])
    return next((name for name, flag in _SHOWN_STATES if state & flag), "UNKNOWN")


def job_state_counts(jobs: Jobs) -> dict[str, int]:
    """How many job records are in each base state; a job that still completes counts as completing."""
    found, rest = dict[str, int](), np.ones(len(jobs), np.bool_)
    for state in _BASE_STATES:
        here = rest & jobs.is_state(state)
        rest &= ~here
        found[str(state.name).lower()] = int(here.sum())
    ended = rest & jobs.is_state(ENDED)
    return found | {"ended": int(ended.sum()), "other": int((rest & ~ended).sum())}


def as_slurm(snapshot: Snapshot, plan: Plan, lever: str) -> str:
    """Why the order of the plan is Slurm's own for all managed jobs that wait; "" if it is not, or fewer than two wait.

    Slurm's own order is that by its priority without our lever, then by submission and id.
    """
    rows = np.flatnonzero(plan.managed & snapshot.jobs.pending)
    if (
        plan.ranking is None
        or len(rows) < 2
        or not _same_order(snapshot, plan.ranking.order, rows, PRIORITY_FIELDS[lever])
    ):
        return ""
    same = f"the policy's order of the {pluralize(len(rows), 'waiting job')} is Slurm's own"
    times = times_in(plan.ranking.words)
    why = {name: values[rows] for name, values in plan.ranking.why.items() if name not in (DECIDED_BY, *times)}
    if why and all(_all_equal(values) for values in why.values()):
        shared = criteria({name: values[0].item() for name, values in why.items()}, plan.ranking.words)
        return f"{same}: it sees no difference between them" + (f" ({shared} for all)" if shared else "")
    return f"{same}: its criteria and Slurm's priority agree for these jobs"


def _same_order(snapshot: Snapshot, order: Int64s, rows: Int64s, lever: PriorityField) -> bool:
    """Whether these rows have the same order by the ranking and by Slurm, wherever they compete."""
    jobs, group = snapshot.jobs, competing_jobs(snapshot)
    place = np.empty(len(jobs), np.int64)
    place[order] = np.arange(len(order))
    priority = np.maximum(lever.factors(jobs) - lever.others(jobs), 1)
    ours = np.lexsort((place[rows], group[rows]))
    slurms = np.lexsort((jobs.job_id[rows], jobs.submit_s[rows], -priority[rows], group[rows]))
    return bool((ours == slurms).all())


def _all_equal(values: Int64s) -> bool:
    return bool((values == values[0]).all() or (values != values).all())


def operation_records(operations: Sequence[Operation]) -> list[dict[str, Any]]:
    """Operations as plain values: for whom, which nodes, how far, and what each node that is kept waits for."""
    return [
        {"operation": operation.id, "purpose": str(operation.purpose), "job_id": operation.job_id,
        "user": operation.user, "nodes": operation.nodes,
         "stage": str(operation.stage), "note": operation.note, "promised_s": operation.promised_s or None,
         "victims": [{"job_id": victim.job_id, "lost_gpu_s": victim.lost_gpu_s, "cost_by": victim.cost_by or None}
                     for victim in operation.victims],
         "waits": [{"node": wait.node, "job_id": wait.job_id or None,
         "until_s": wait.until_s} for wait in operation.waits],
         "idle_gpu_s": operation.idle_gpu_s}
        for operation in operations
    ]  # fmt: skip


# A plan for people and as plain values: jobs whose priority changes, steps, operations, and jobs left alone.


_VALUE_NAMES = {"pin": "nodes", "retype": "gpus", "defer": "start_s"}  # of the new value, by kind of step
_STEP_FIELDS = ("name", "nodes", "user", "signal", "start_s", "end_s", "whole", "gpus")


@dataclass(frozen=True, slots=True)
class RefusedJobs:
    """Jobs of the scope that the gate leaves alone by one rule and for one reason."""

    rule: str
    reason: str
    job_ids: tuple[int, ...]


def planned_rows(snapshot: Snapshot, plan: Plan, lever: str) -> list[QueueRow]:
    """The jobs whose priority field would change, in the order of the queue."""
    planned = {action.job_id for action in plan.priority_changes}
    return [row for row in queue_rows(snapshot, plan, lever) if row.job_id in planned]


def refused_jobs(plan: Plan) -> list[RefusedJobs]:
    """The refusals by rule and reason, the most frequent first."""
    found: dict[tuple[str, str], list[int]] = {}
    for refusal in plan.refused:
        found.setdefault((refusal.rule, refusal.reason), []).append(refusal.job_id)
    groups = sorted(found.items(), key=lambda item: -len(item[1]))
    return [RefusedJobs(rule, reason, tuple(ids)) for (rule, reason), ids in groups]


def managed_counts(snapshot: Snapshot, plan: Plan) -> tuple[int, int]:
    """Managed jobs, and jobs out of scope whose own priority would be restored."""
    managed = set(snapshot.jobs.job_id[plan.managed].tolist())
    return len(managed), sum(action.job_id not in managed for action in plan.priority_changes)


def plan_record(snapshot: Snapshot, plan: Plan, lever: str, changes: Sequence[QueueRow]) -> dict[str, Any]:
    """The plan as JSON has it. as_slurm: why the order is Slurm's own, null where it is not.

    changes: the rows of `planned_rows` that are shown.
    """
    return {
        "cluster": snapshot.site.cluster,
        "now_s": snapshot.now_s,
        "lever": lever,
        "jobs": len(snapshot.jobs),
        "managed": int(plan.managed.sum()),
        "planned": len(plan.actions),
        "deferred": plan.deferred,
        "changes": changes,
        "steps": step_records(plan.steps),
        "operations": operation_records(plan.operations),
        "refused": [{"job_id": each.job_id, "rule": each.rule, "reason": each.reason} for each in plan.refused],
        "as_slurm": as_slurm(snapshot, plan, lever) or None,
        "notes": plan.notes,
        "warnings": snapshot.warnings,
    }


def step_records(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Steps as plain values, with the fields that Slurm gets."""
    return [
        {"job_id": step.job_id, "step": step.kind, "operation": step.operation, "reason": step.reason}
        | {name: getattr(step, name) for name in _STEP_FIELDS if hasattr(step, name)}
        | ({_VALUE_NAMES.get(step.kind, "value"): step.new} if isinstance(step, SetField) else {})
        for step in steps
    ]

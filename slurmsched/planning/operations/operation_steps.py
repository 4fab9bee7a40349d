"""What an open operation needs next, from what Slurm shows: safe to repeat, and with a way back from everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from slurmsched.config import OperationsConfig
from slurmsched.model.hostlists import same_hosts
from slurmsched.model.operations import Operation, OperationStage, Purpose, Victim
from slurmsched.model.plan import (
    AllowStart,
    DeleteReservation,
    JoinReservation,
    MoveReservation,
    Requeue,
    Reserve,
    Signal,
    Step,
)
from slurmsched.model.snapshot import Snapshot
from slurmsched.planning.operations.operation_state import OperationState, job_row
from slurmsched.planning.operations.preemption import cannot_start
from slurmsched.resources.startable_jobs import not_waiting_for_gpus

PUT_OFF_S = 600.0  # so long a victim is told that it may start again; one that Slurm does not let is left then
SKEW_S = 30.0  # by so much slurmctld's clock may be behind ours, or ahead; it takes a start up to 60 s ago (26.05.5)


@dataclass(frozen=True, slots=True)
class NextSteps:
    """An operation and its next steps.

    operation: as it is from now on.
    steps: to send for that, in this order.
    next_look_s: when to look again [Unix s].
    """

    operation: Operation
    steps: tuple[Step, ...] = ()
    next_look_s: float = inf


def advance(operation: Operation, snapshot: Snapshot, config: OperationsConfig) -> NextSteps:
    """The next steps of an open operation; none if it only has to wait.

    They follow from the operation and the snapshot alone: asked again after a crash, the answer is the same.
    """
    state = OperationState(operation := _with_idle_time(operation, snapshot), snapshot)
    if operation.ending:
        return _ended(state, operation)
    if state.runs:
        return _ended(state, _at_stage(operation, OperationStage.CLEANING, snapshot.now_s))
    if reason := _given_up(state, config):
        return _ended(state, _at_stage(replace(operation, note=reason), OperationStage.REVERSING, snapshot.now_s))
    return _forward(state, config)


def end_steps(operation: Operation, snapshot: Snapshot) -> NextSteps:
    """The steps that end an open operation whatever its stage, as `undo` does: its job waits or runs without it."""
    ended = _at_stage(
        replace(operation, note=operation.note or "taken back by undo"), OperationStage.REVERSING, snapshot.now_s
    )
    return _ended(OperationState(ended, snapshot), ended)


def _given_up(state: OperationState, config: OperationsConfig) -> str:
    """Why an operation on its way is taken back; "" if it goes on."""
    operation, now_s = state.operation, state.snapshot.now_s
    if state.beneficiary < 0 or state.snapshot.jobs.finished[state.beneficiary]:
        return "its job left the queue"
    if not state.waits:
        return "its job is held"
    job = state.snapshot.jobs.take(np.array([state.beneficiary]))
    if operation.opens_s <= now_s and not_waiting_for_gpus(job)[0]:
        return f"its job waits for something else than GPUs ({job.reason[0]})"
    if operation.stage == OperationStage.WARNED and not operation.sure:
        return "slurmsched stopped while sending signals; it is unknown which victims got one"
    stands = state.reserved and (state.named >= 0 or operation.stage == OperationStage.PROMISED)
    if operation.stage != OperationStage.BEGUN and operation.sure and not stands:
        return "its reservation was taken away by somebody else"
    if state.remaining and state.closed and not state.graced:
        return f"node {state.closed} takes no new job; preempting there would be useless"
    if state.on_record and (why := cannot_start(operation, state.snapshot)):
        return why
    if state.late_s > config.start_timeout_s:
        return f"no step for {state.late_s:.0f} s; the victims' checkpoints are that old"
    ready_s = max(operation.stage_s, operation.promised_s)
    if operation.stage == OperationStage.REQUEUED and now_s - ready_s > config.start_timeout_s:
        return f"its job did not start within {config.start_timeout_s:g} s"
    return ""


def _forward(state: OperationState, config: OperationsConfig) -> NextSteps:
    """Towards the start of the job: nodes, name, signals, requeues; then it is Slurm's turn."""
    operation, now_s = state.operation, state.snapshot.now_s
    steps: list[Step] = list(_nodes(state, config))
    if operation.opens_s > now_s:
        if state.named >= 0 and state.to_come:  # the clock was set back since it joined
            steps.append(
                JoinReservation(operation.job_id, operation.submit_s, "its nodes are kept from later on", operation.id)
            )
        return NextSteps(
            replace(_at_stage(operation, OperationStage.PROMISED, now_s), sure=True), tuple(steps), operation.opens_s
        )
    if operation.stage == OperationStage.BEGUN and state.grace_s > 0:
        operation = _at_stage(operation, OperationStage.WARNED, now_s)
        steps += [_signal(operation, victim) for victim in state.remaining if victim.signal]
    elif not state.graced:
        operation = _at_stage(operation, OperationStage.REQUEUED, now_s)
        steps += [_requeue(operation, victim) for victim in state.remaining]
    next_look_s = (
        operation.stage_s + state.grace_s if operation.stage == OperationStage.WARNED else now_s + config.look_s
    )
    return NextSteps(replace(operation, sure=True), tuple(steps), next_look_s)


def _nodes(state: OperationState, config: OperationsConfig) -> Iterator[Step]:
    """A reservation as the operation wants it, and the name of it for the job once it has begun: a job that names one
    waits for nothing else."""
    operation, now_s = state.operation, state.snapshot.now_s
    key = (operation.job_id, operation.submit_s)
    start_s = now_s - SKEW_S if state.left_behind else max(operation.opens_s, now_s)
    end_s = max(operation.promised_s, now_s) + operation.time_limit_s + config.slack_s
    if not state.reserved:
        whole = bool(state.snapshot.jobs.exclusive[state.beneficiary])
        why = f"nodes for job {operation.job_id}"
        yield Reserve(
            *key, why, operation.id, operation.reservation, operation.nodes, operation.user, start_s, end_s, whole
        )
    elif operation.purpose == Purpose.RESERVE or state.left_behind:
        yield from _reservation_change(state, start_s, end_s)
    if state.named < 0 and start_s <= now_s:
        yield JoinReservation(*key, "it gets nodes of its own", operation.id, operation.reservation)


def _reservation_change(state: OperationState, start_s: float, end_s: float) -> Iterator[Step]:
    """The change that a reservation needs to be as the operation wants it. Slurm moves only the end of one that has
    begun."""
    operation, kept = state.operation, state.snapshot.reservations
    key, row = (operation.job_id, operation.submit_s), state.reservation_row
    if kept.start_s[row] <= state.snapshot.now_s:
        if kept.end_s[row] < operation.promised_s + operation.time_limit_s:
            yield MoveReservation(*key, "its nodes come free later", operation.id, operation.reservation, end_s=end_s)
    elif state.left_behind:
        if kept.start_s[row] - start_s >= 1:
            yield MoveReservation(
                *key,
                "it has not begun: a clock was set back",
                operation.id,
                operation.reservation,
                operation.nodes,
                start_s,
                end_s,
            )
    elif abs(kept.start_s[row] - start_s) >= 1 or not same_hosts(kept.node_list[row], operation.nodes):
        yield MoveReservation(
            *key,
            "its nodes come free at another time",
            operation.id,
            operation.reservation,
            operation.nodes,
            start_s,
            end_s,
        )


def _ended(state: OperationState, operation: Operation) -> NextSteps:
    """Names off first, since a named reservation cannot be deleted and its end would kill the job."""
    now_s, jobs = state.snapshot.now_s, state.snapshot.jobs
    why = operation.note or "its job runs"
    steps: list[Step] = []
    for row in state.naming:
        steps.append(JoinReservation(int(jobs.job_id[row]), float(jobs.submit_s[row]), why, operation.id))
    if state.reserved:
        steps.append(DeleteReservation(operation.job_id, operation.submit_s, why, operation.id, operation.reservation))
    for victim in state.put_off if now_s - operation.stage_s < PUT_OFF_S else ():
        submit_s = float(jobs.submit_s[job_row(state.snapshot, victim.job_id)])
        steps.append(
            AllowStart(victim.job_id, submit_s, "the nodes are given, it may start elsewhere", operation.id, now_s)
        )
    if not steps:
        return NextSteps(_at_stage(operation, OperationStage.CLOSED, now_s))
    return NextSteps(operation, tuple(steps), now_s)


def _with_idle_time(operation: Operation, snapshot: Snapshot) -> Operation:
    """The operation with what was idle on its nodes since it was last seen: as many GPUs as now, all that time."""
    since_s = max(snapshot.now_s - max(operation.seen_s, operation.begun_s), 0.0)
    idle_gpu_s = operation.idle_gpu_s + OperationState(operation, snapshot).idle_gpus * since_s
    return replace(operation, idle_gpu_s=idle_gpu_s, seen_s=snapshot.now_s)


def _signal(operation: Operation, victim: Victim) -> Signal:
    why = f"job {operation.job_id} gets its GPUs in {victim.grace_s:g} s"
    return Signal(victim.job_id, victim.submit_s, why, operation.id, victim.signal, victim.restarts)


def _requeue(operation: Operation, victim: Victim) -> Requeue:
    why = f"job {operation.job_id} gets its GPUs; it {victim.loses}"
    return Requeue(victim.job_id, victim.submit_s, why, operation.id, victim.restarts)


def _at_stage(operation: Operation, stage: OperationStage, now_s: float) -> Operation:
    return operation if operation.stage == stage else replace(operation, stage=stage, stage_s=now_s)

"""The steps of an operation on a simulated slurmctld: what slurmctld would refuse, and what each does there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmsched.errors import InputError
from slurmsched.model import SetNice, SetSiteFactor
from slurmsched.model.gpu_selection import counted, nodes_of_size
from slurmsched.model.hints import parse_hints
from slurmsched.model.plan import (
    Action,
    AllowStart,
    AskSize,
    DeleteReservation,
    JoinReservation,
    MoveReservation,
    Requeue,
    Reserve,
    SetSize,
    SetStart,
    Signal,
    Step,
)
from slurmsched.model.states import JobState
from slurmsched.sim.slurmctld.simulated_jobs import JobPhase

if TYPE_CHECKING:
    from slurmsched.sim.slurmctld.slurmctld_state import SlurmctldState


_ALIVE = (JobPhase.PENDING, JobPhase.RUNNING, JobPhase.COMPLETING)


def step_refusal(cluster: SlurmctldState, step: Step) -> str:
    """Why slurmctld would refuse the step now, "" if it would not."""
    match step:
        case Reserve() | MoveReservation():
            return cluster.bookings.refusal(step, cluster.now_s)
        case DeleteReservation():
            return _not_deleted(cluster, step.name)
        case JoinReservation() if step.name:
            return _not_joined(cluster, step)
        case JoinReservation():
            return "" if row_in_phase(cluster, step, *_ALIVE) >= 0 else "Invalid job id specified"
        case Requeue() | Signal() | AskSize():
            return "" if row_in_phase(cluster, step, JobPhase.RUNNING) >= 0 else "Job is not running"
        case SetSize():
            return _not_resized(cluster, step)
        case AllowStart() | SetStart():
            return "" if row_in_phase(cluster, step, JobPhase.PENDING) >= 0 else "Job is no longer pending execution"
    return f"no such step here: {step.kind}"


def do_step(cluster: SlurmctldState, step: Step) -> None:
    """Carry out a step that would not be refused now."""
    match step:
        case Reserve() | MoveReservation():
            cluster.book(step)
        case DeleteReservation():
            cluster.bookings.drop(step.name)
        case JoinReservation() if step.name:
            cluster.bookings.named[row_in_phase(cluster, step, JobPhase.PENDING)] = step.name
        case JoinReservation():
            cluster.bookings.named.pop(row_in_phase(cluster, step, *_ALIVE), None)
        case Signal():
            _signal(cluster, row_in_phase(cluster, step, JobPhase.RUNNING), step.signal)
        case AskSize():
            cluster.ask_size(row_in_phase(cluster, step, JobPhase.RUNNING), step.gpus)
        case Requeue():
            cluster.requeue(row_in_phase(cluster, step, JobPhase.RUNNING), cluster.model.kill_wait_s)
        case AllowStart():
            cluster.delay(row_in_phase(cluster, step, JobPhase.PENDING), step.start_s)
        case SetStart():
            cluster.delay(row_in_phase(cluster, step, JobPhase.PENDING), step.new)
        case SetSize():
            for row in _waiting_rows(cluster, step):
                cluster.resize(row, counted(step.new), nodes_of_size(step.new))
            cluster.poke()


def row_in_phase(cluster: SlurmctldState, step: Step, *phases: JobPhase) -> int:
    """Row of the step's job if it is in one of these phases, else -1. The id of an array stands for a waiting task."""
    job = cluster.job
    rows = [row for row in cluster.rows_of(step.job_id) if job.submit_s[row] == step.submit_s]
    fits = [row for row in rows if job.phase[row] in phases]
    exact = [row for row in fits if cluster.trace.job_id[row] == step.job_id or job.phase[row] == JobPhase.PENDING]
    return exact[0] if exact else -1


def _waiting_rows(cluster: SlurmctldState, step: Step) -> list[int]:
    """Rows of the step's job, or of the waiting tasks of its array."""
    job = cluster.job
    rows = [row for row in cluster.rows_of(step.job_id) if job.submit_s[row] == step.submit_s]
    return [row for row in rows if job.phase[row] == JobPhase.PENDING]


def _not_resized(cluster: SlurmctldState, step: SetSize) -> str:
    if not (rows := _waiting_rows(cluster, step)):
        return "Job is no longer pending execution"
    try:
        cluster.resized_demand(rows[0], counted(step.new), nodes_of_size(step.new))
    except InputError:
        return "Requested node configuration is not available"
    return ""


def _not_joined(cluster: SlurmctldState, step: JoinReservation) -> str:
    if (row := row_in_phase(cluster, step, JobPhase.PENDING)) < 0:
        return "Job is no longer pending execution"
    if step.name not in cluster.bookings:
        return "Requested reservation is invalid"
    allowed = cluster.bookings[step.name].user == cluster.job.requests.user[row]
    return "" if allowed else "Access denied to requested reservation"


def _not_deleted(cluster: SlurmctldState, name: str) -> str:
    if name not in cluster.bookings:
        return "Requested reservation is invalid"
    rows = [row for row, named in cluster.bookings.named.items() if named == name]
    return "Requested reservation is in use" if any(cluster.job.phase[row] in _ALIVE for row in rows) else ""


def _signal(cluster: SlurmctldState, row: int, signal: str) -> None:
    """A job that asked for this signal saves itself; any other one has no trap for it and dies of it."""
    asked = parse_hints(cluster.job.requests.comment[row]).ckpt
    if asked is None or asked.signal != signal:
        cluster.end_early(row, JobState.FAILED)
    else:
        cluster.save(row)


# Answers to actions.


def action_refusal(cluster: SlurmctldState, action: Action) -> str:
    """Why slurmctld would refuse the action, "" if it would not."""
    if isinstance(action, Step):
        return step_refusal(cluster, action)
    phases = {JobPhase(cluster.job.phase[row]) for row in cluster.rows_of(action.job_id)
              if cluster.job.submit_s[row] == action.submit_s}  # fmt: skip
    if not phases:
        return "Invalid job id specified"
    if not isinstance(action, SetNice | SetSiteFactor):
        return f"no such action here: {action.kind}"
    return "" if phases & {JobPhase.PENDING, JobPhase.COMPLETING} else "Job is no longer pending execution"


def do_action(cluster: SlurmctldState, action: Action) -> None:
    """Carry out an action that would be accepted now: on a job, or on what is left of an array."""
    if isinstance(action, Step):
        do_step(cluster, action)
    rows = () if isinstance(action, Step) else cluster.rows_of(action.job_id)
    for row in rows:
        if cluster.job.phase[row] in (JobPhase.PENDING, JobPhase.COMPLETING):
            if isinstance(action, SetNice):
                cluster.job.nice[row] = action.new
            elif isinstance(action, SetSiteFactor):
                cluster.job.site[row] = action.new
            cluster.job.changed(row)
    cluster.poke()

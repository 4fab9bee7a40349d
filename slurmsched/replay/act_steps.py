"""The steps of an act on an embedded cluster: what slurmctld would refuse, and what each does there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmsched.model.hints import parse_hints
from slurmsched.model.plan import Delay, Join, Move, Requeue, Reserve, Signal, Step, Unreserve
from slurmsched.model.states import JobState
from slurmsched.replay.jobtable import Phase

if TYPE_CHECKING:
    from slurmsched.replay.embedded_state import EmbeddedState

_ALIVE = (Phase.PENDING, Phase.RUNNING, Phase.COMPLETING)


def refusal(cluster: EmbeddedState, step: Step) -> str:
    """Why slurmctld would refuse the step now, "" if it would not."""
    match step:
        case Reserve() | Move():
            return cluster.bookings.refusal(step, cluster.now_s)
        case Unreserve():
            return _not_deleted(cluster, step.name)
        case Join() if step.name:
            return _not_joined(cluster, step)
        case Join():
            return "" if row_of(cluster, step, *_ALIVE) >= 0 else "Invalid job id specified"
        case Requeue() | Signal():
            return "" if row_of(cluster, step, Phase.RUNNING) >= 0 else "Job is not running"
        case Delay():
            return "" if row_of(cluster, step, Phase.PENDING) >= 0 else "Job is no longer pending execution"
    return f"no such step here: {step.kind}"


def do(cluster: EmbeddedState, step: Step) -> None:
    """Carry out a step that would not be refused now."""
    match step:
        case Reserve() | Move():
            cluster.book(step)
        case Unreserve():
            cluster.bookings.drop(step.name)
        case Join() if step.name:
            cluster.bookings.named[row_of(cluster, step, Phase.PENDING)] = step.name
        case Join():
            cluster.bookings.named.pop(row_of(cluster, step, *_ALIVE), None)
        case Signal():
            _signal(cluster, row_of(cluster, step, Phase.RUNNING), step.signal)
        case Requeue():
            cluster.requeue(row_of(cluster, step, Phase.RUNNING), cluster.model.kill_wait_s)
        case Delay():
            cluster.delay(row_of(cluster, step, Phase.PENDING), step.start_s)


def row_of(cluster: EmbeddedState, step: Step, *phases: Phase) -> int:
    """Row of the step's job if it is in one of these phases, else -1. The id of an array stands for a waiting task."""
    job = cluster.job
    rows = [row for row in cluster.rows_of(step.job_id) if job.submit_s[row] == step.submit_s]
    fits = [row for row in rows if job.phase[row] in phases]
    exact = [row for row in fits if cluster.trace.job_id[row] == step.job_id or job.phase[row] == Phase.PENDING]
    return exact[0] if exact else -1


def _not_joined(cluster: EmbeddedState, step: Join) -> str:
    if (row := row_of(cluster, step, Phase.PENDING)) < 0:
        return "Job is no longer pending execution"
    if step.name not in cluster.bookings:
        return "Requested reservation is invalid"
    allowed = cluster.bookings[step.name].user == cluster.job.requests.user[row]
    return "" if allowed else "Access denied to requested reservation"


def _not_deleted(cluster: EmbeddedState, name: str) -> str:
    if name not in cluster.bookings:
        return "Requested reservation is invalid"
    rows = [row for row, named in cluster.bookings.named.items() if named == name]
    return "Requested reservation is in use" if any(cluster.job.phase[row] in _ALIVE for row in rows) else ""


def _signal(cluster: EmbeddedState, row: int, signal: str) -> None:
    """A job that asked for this signal saves itself; any other one has no trap for it and dies of it."""
    asked = parse_hints(cluster.job.requests.comment[row]).ckpt
    if asked is None or asked.signal != signal:
        cluster.end_early(row, JobState.FAILED)
    else:
        cluster.save(row)

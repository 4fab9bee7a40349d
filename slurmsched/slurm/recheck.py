"""A last look at the jobs that are about to be written: what changed since the snapshot is left alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from slurmsched.errors import SlurmError, SlurmUnreachableError, UnreadableError
from slurmsched.model.acts import RESERVATION_PREFIX
from slurmsched.model.plan import Action, Join, Requeue, SetLever, SetNice, SetSiteFactor, Signal, Unreserve
from slurmsched.model.states import FINISHED, JobState, job_state
from slurmsched.slurm.commands import Commands

_RUNS = JobState.RUNNING | JobState.SUSPENDED


@dataclass(frozen=True, slots=True)
class Seen:
    """A job now. site_factor: None where sprio does not show the job (held, or not yet eligible)."""

    submit_s: float
    state: JobState
    nice: int
    site_factor: int | None = None
    reservation: str = ""


class Recheck:
    """Reads the few jobs of some actions again: one squeue, and one sprio if a site factor is among them."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def __call__(self, actions: Sequence[Action]) -> dict[int, Seen]:
        """Jobs by id; those that left the queue are absent. Raises SlurmError."""
        wanted = {action.job_id for action in actions}
        sites = self._site_factors() if any(isinstance(action, SetSiteFactor) for action in actions) else {}
        found: dict[int, Seen] = {}
        for line in self._squeue(wanted).splitlines():
            job_id, seen = _row(line, sites)
            if job_id in wanted:
                found[job_id] = seen
        return found

    def _squeue(self, job_ids: set[int]) -> str:
        # -r: without it split tasks of an array hide behind its record.
        ids = ",".join(map(str, sorted(job_ids)))
        try:
            return self._commands.run("squeue", "-h", "-a", "-r", "-t", "all", "-j", ids, "-o", "%A|%V|%y|%T|%v")
        except SlurmUnreachableError:
            raise
        except SlurmError as error:
            if "invalid job id" in str(error).lower():  # the only job asked for is gone
                return ""
            raise

    def _site_factors(self) -> dict[int, int]:
        rows = (line.split("|") for line in self._commands.run("sprio", "-h", "-o", "%i|%S").splitlines())
        try:
            return {int(job_id): int(site) for job_id, site in rows}
        except ValueError as error:
            raise UnreadableError("sprio printed no site factor", text=str(error)) from None


def changed(action: Action, seen: Mapping[int, Seen]) -> str:
    """Why the action no longer fits its job; "" if it does.

    A value that gives the base back may go to a job that has started meanwhile: it does no harm there,
    and a requeue keeps it. A reservation is deleted whatever became of its job.
    """
    if isinstance(action, Unreserve):
        return ""
    job = seen.get(action.job_id)
    if job is None:
        return "changed since the snapshot: it left the queue"
    if not isfinite(action.submit_s):
        return "its submit time is not known, so that its id could not be told from one used again"
    if abs(job.submit_s - action.submit_s) >= 1:
        return "changed since the snapshot: it was requeued, or its id is used again"
    if isinstance(action, SetLever):
        return _lever_changed(action, job)
    return _step_unfit(action, job)


def _lever_changed(action: SetLever, job: Seen) -> str:
    if job.state & FINISHED or (action.new != action.base and not _pending(job)):
        return f"changed since the snapshot: it is {_words(job.state)}"
    now = job.nice if isinstance(action, SetNice) else job.site_factor
    if now is not None and now != action.old:
        return f"changed since the snapshot: its {action.kind} is {now}, not {action.old}"
    return ""


def _step_unfit(action: Action, job: Seen) -> str:
    """Steps that take something from a job need it running, those that give it something need it waiting: a
    reservation set on a running job kills it at its end, a requeue of an ended one runs it again."""
    if isinstance(action, Join) and not action.name:
        ours = job.reservation.startswith(RESERVATION_PREFIX)
        return "" if ours else f"changed since the snapshot: its reservation is {job.reservation or 'none'}"
    takes = isinstance(action, Requeue | Signal)
    if not (job.state & _RUNS if takes else _pending(job)):
        return f"changed since the snapshot: it is {_words(job.state)}"
    if isinstance(action, Join) and job.reservation:
        return f"changed since the snapshot: its reservation is {job.reservation}"
    return ""


def _pending(job: Seen) -> bool:
    return bool(job.state & JobState.PENDING) and not job.state & JobState.COMPLETING


def _words(state: JobState) -> str:
    return "+".join(flag.name or "" for flag in JobState if flag & state)


def _row(line: str, sites: Mapping[int, int]) -> tuple[int, Seen]:
    try:
        job_id, submit_s, nice, state, reservation = line.split("|")
        number, named = int(job_id), "" if reservation == "(null)" else reservation
        return number, Seen(float(submit_s), job_state(state), int(nice), sites.get(number), named)
    except ValueError:
        raise UnreadableError("squeue printed something else than was asked for", text=line) from None

"""Attained service of the whole queue: which jobs need the rules of `attained`, and what each job has by now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

import numpy as np

from slurmsched.db import attained_service
from slurmsched.db.attained_service import EarlierRun, Fact, ObservedJob, RunEnded, Service
from slurmsched.db.remembered_jobs import JobRows
from slurmsched.errors import SlurmError
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s, column
from slurmsched.model.jobs import NAN, Jobs
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.states import JobState
from slurmsched.plain_text import pluralize

ASKS = 3  # sacct may lag behind: it is asked again for a run it does not know yet, but not for ever
GONE_KEPT_S = 86_400.0  # a job that left unseen is asked for this long while sacct does not answer

Ends = Callable[[Sequence[int]], Mapping[int, Sequence[RunEnded]]]
Runs = Callable[[Sequence[int]], "list[EarlierRun]"]


@dataclass(frozen=True, slots=True, eq=False)
class Services(JobRows):
    """One row a job with a past, see attained_service.Service."""

    job_id: Int64s = column(np.int64, 0)
    first_submit_s: Floats = column(np.float64, NAN)
    submit_s: Floats = column(np.float64, NAN)
    restarts: Int32s = column(np.int32, 0)
    executed_s: Floats = column(np.float64, 0.0)
    gpu_s: Floats = column(np.float64, 0.0)
    runs: Int32s = column(np.int32, 0)
    last_end_s: Floats = column(np.float64, NAN)
    run: Int32s = column(np.int32, -1)
    run_start_s: Floats = column(np.float64, NAN)
    run_gpus: Floats = column(np.float64, 0)
    mark_executed_s: Floats = column(np.float64, 0.0)
    mark_gpu_s: Floats = column(np.float64, 0.0)
    suspended_s: Floats = column(np.float64, 0.0)
    paused: Bools = column(np.bool_, False)
    missing: Int32s = column(np.int32, 0)
    asks: Int32s = column(np.int32, 0)
    gone_s: Floats = column(np.float64, NAN)

    def row(self, row: int) -> Service:
        """One row as a record."""
        return Service(**self.values(row))


@dataclass(slots=True)
class RunSources:
    """Where runs before our time are looked up.

    ends: our own facts by job.
    runs: sacct, None if it is not to be asked now.
    later: it may be asked another time.
    """

    ends: Ends
    runs: Runs | None = None
    later: bool = False


@dataclass(slots=True)
class Observation:
    """What one look at the queue adds: memory that changed, jobs that left, facts, and what went wrong."""

    services: Services
    changed: list[Service] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    refused: bool = False  # sacct did not answer


@dataclass(slots=True)
class _Case:
    """A job on its way through the rules."""

    service: Service
    sight: ObservedJob | None
    facts: list[Fact]
    fresh: bool


def observe(
    services: Services, snapshot: Snapshot, last_s: float, lookups: RunSources, *, gpu_jobs_only: bool
) -> Observation:
    """The services after this snapshot. last_s: time of the look before [s], NaN if there was none."""
    jobs, now_s = snapshot.jobs, snapshot.now_s
    views = _Views(jobs)
    seen = Observation(services)
    watched = _watched(jobs) if gpu_jobs_only else np.ones(len(jobs), np.bool_)
    restless = _restless(services, jobs, views, now_s, watched, asking=lookups.runs is not None)
    cases = [_departed(services, views.sight(row), at, last_s, seen) for row, at in restless]
    cases += [_vanished(services.row(at), now_s, last_s) for at in np.flatnonzero(~_present(services, jobs)).tolist()]
    sacct_runs = _look_up(cases, lookups, seen)
    for case in cases:
        if case.sight is None:
            _leave(case.service, case.facts, sacct_runs, now_s, lookups.later, seen)
        else:
            _stay(case.service, case.facts, case.sight, now_s, last_s, seen)
    seen.services = services.merged(seen.changed, seen.dropped)
    return seen


def columns(services: Services, jobs: Jobs, now_s: float) -> dict[str, Any]:
    """first_submit_s, attained_gpu_s, executed_s and waiting_s of each row of jobs. Each (N,) float64."""
    if not len(services):
        services = Services.build(1, {"job_id": [-1]})
    at, known = services.find(jobs.job_id)

    def of(name: str, otherwise: Any) -> Any:
        return np.where(known, getattr(services, name)[at], otherwise)

    views = _Views(jobs)
    is_open = of("run", -1) >= 0
    by_clock = np.where(of("paused", False), 0.0, now_s - of("run_start_s", now_s) - of("suspended_s", 0.0))
    marked_s = of("mark_executed_s", 0.0)
    run_s = np.where(is_open & views.between & (jobs.run_s == 0), np.maximum(by_clock, marked_s), jobs.run_s)
    counts = is_open | (~known & ~jobs.pending & ~views.between)
    gpus = np.where(is_open, of("run_gpus", 0.0), jobs.held_gpus)
    run_s = np.where(counts, run_s, 0.0)
    run_gpu_s = np.where(counts, of("mark_gpu_s", 0.0) + (run_s - marked_s) * gpus, 0.0)
    return {
        "first_submit_s": of("first_submit_s", jobs.submit_s),
        "attained_gpu_s": of("gpu_s", 0.0) + run_gpu_s,
        "executed_s": of("executed_s", 0.0) + run_s,
        "waiting_s": _waiting_s(jobs, of("last_end_s", NAN), now_s),
    }


def _waiting_s(jobs: Jobs, last_end_s: Floats, now_s: float) -> Floats:
    first_s = np.where(jobs.eligible_s > 0, np.fmax(jobs.eligible_s, jobs.submit_s), jobs.submit_s)
    since_s = np.where(np.isfinite(last_end_s), last_end_s, first_s)
    waited = np.where(np.isfinite(since_s), now_s - since_s, 0.0)
    return np.where(jobs.pending, np.maximum(waited, 0.0), 0.0)


class _Views:
    """The state columns of a snapshot's jobs as the rules speak of them."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.paused = jobs.is_state(JobState.SUSPENDED) & ~jobs.finished
        self.active = (jobs.running | self.paused) & ~jobs.finished
        # Requeued or ended, its nodes not free yet (squeue says COMPLETING alone), or in a state nobody knows: it
        # shows later what became of the run. Closed now, a run that goes on would count twice.
        self.between = ~self.active & ~jobs.finished & ~jobs.pending
        self.completed = jobs.is_state(JobState.COMPLETED)
        self.ran = jobs.finished & np.isfinite(jobs.start_s) & ((jobs.run_s > 0) | self.completed)

    def sight(self, row: int) -> ObservedJob:
        jobs = self.jobs
        return ObservedJob(
            int(jobs.job_id[row]), float(jobs.submit_s[row]), int(jobs.restarts[row]), float(jobs.start_s[row]),
            float(jobs.end_s[row]), float(jobs.run_s[row]), float(jobs.held_gpus[row]), bool(self.active[row]),
            bool(self.paused[row]), bool(jobs.finished[row]), bool(self.completed[row]),
        )  # fmt: skip


def _watched(jobs: Jobs) -> Bools:
    """Jobs that ask for or hold GPUs or parts of GPUs. (N,) bool."""
    return (jobs.gpus > 0) | (jobs.mig_devices > 0) | (jobs.shards > 0)


def _restless(
    services: Services, jobs: Jobs, views: _Views, now_s: float, watched: Bools, *, asking: bool
) -> list[tuple[int, int]]:
    """(row of jobs, row of services or -1) of each job that the rules must see: few, in a quiet queue."""
    at, known = services.find(jobs.job_id)
    strange = ~known & watched & (views.active | views.ran | (jobs.restarts > 0)) & ~views.between
    rest = np.zeros(len(jobs), np.bool_)
    if len(services):
        rest = known & ~_quiet(services.take(at), jobs, views, now_s, asking)
    rows = np.flatnonzero(strange | rest)
    return [(int(row), int(at[row]) if known[row] else -1) for row in rows]


def _quiet(known: Services, jobs: Jobs, views: _Views, now_s: float, asking: bool) -> Bools:
    """Whether nothing happened to each job that its row of services does not tell. (N,) bool."""
    same = (jobs.restarts == known.restarts) & (jobs.submit_s == known.submit_s)
    suspended_s = now_s - known.run_start_s - jobs.run_s
    going_on = (
        (known.run == jobs.restarts)
        & ((jobs.held_gpus == known.run_gpus) | (jobs.held_gpus == 0))
        & (views.paused == known.paused)
        & (views.paused | (suspended_s <= known.suspended_s + attained_service.SUSPENSION_S))
    )
    idle = (known.run < 0) & (~views.ran | (known.runs > jobs.restarts))
    settled = (known.missing == 0) | (known.asks >= ASKS) | (not asking)
    back = np.isfinite(known.gone_s)
    return views.between | (same & settled & ~back & np.where(views.active, going_on, idle))


def _present(services: Services, jobs: Jobs) -> Bools:
    """Whether the job of each row of services is in the queue. (S,) bool."""
    return np.isin(services.job_id, jobs.job_id)


def _departed(services: Services, sight: ObservedJob, at: int, last_s: float, seen: Observation) -> _Case:
    service = services.row(at) if at >= 0 else None
    if service and isfinite(service.gone_s):
        service = None  # it left and is back: the ledger has its past
    if service and not attained_service.same_job(service, sight):
        seen.facts += attained_service.vanish(service, last_s, last_s)[1]
        service = None
    if service is None:
        return _Case(attained_service.first_sight(sight), sight, [], fresh=True)
    service, facts = attained_service.depart(service, sight, last_s)
    return _Case(replace(service, submit_s=sight.submit_s, restarts=sight.restarts), sight, facts, fresh=False)


def _vanished(service: Service, now_s: float, last_s: float) -> _Case:
    service, facts = attained_service.vanish(service, now_s, last_s)
    return _Case(service, None, facts, fresh=False)


def _look_up(cases: list[_Case], lookups: RunSources, seen: Observation) -> list[EarlierRun] | None:
    """Own facts of each job that misses runs are added to it; what sacct says of them, None if it was not asked."""
    ids = [case.service.job_id for case in cases if case.service.missing and case.service.asks < ASKS]
    if not ids:
        return None
    ends = lookups.ends(ids)
    for case in cases:
        if case.fresh and case.service.missing:
            case.service = attained_service.merge_own_runs(case.service, ends.get(case.service.job_id, ()))
    ids = [case.service.job_id for case in cases if case.service.missing and case.service.asks < ASKS]
    if lookups.runs is None or not ids:
        return None
    try:
        sacct_runs = lookups.runs(ids)
    except SlurmError as error:
        seen.refused = True
        seen.warnings.append(
            f"sacct does not answer, earlier runs of {pluralize(len(ids), 'job')} are not counted yet: {error}"
        )
        return None
    for case in cases:
        _settle(case, ends, sacct_runs)
    return sacct_runs


def _settle(case: _Case, ends: Mapping[int, Sequence[RunEnded]], sacct_runs: list[EarlierRun]) -> None:
    service = case.service
    if not service.missing or service.asks >= ASKS:
        return
    ours = [end for end in ends.get(service.job_id, ()) if end.first_submit_s == service.first_submit_s]
    unsaved = [fact for fact in case.facts if isinstance(fact, RunEnded)]
    case.service, facts = attained_service.merge_sacct_runs(
        service, [*ours, *unsaved], sacct_runs, fresh=case.fresh and not ours
    )
    case.facts += facts


def _leave(
    service: Service,
    facts: list[Fact],
    sacct_runs: list[EarlierRun] | None,
    now_s: float,
    later: bool,
    seen: Observation,
) -> None:
    """A job that left unseen is kept while sacct may still tell how it ended."""
    seen.facts += facts
    of_it = [run for run in sacct_runs or () if run.job_id == service.job_id]
    if not service.missing and attained_service.completed_in_sacct(service, of_it):
        seen.facts.append(attained_service.completion(service))
    recent = now_s - service.gone_s < GONE_KEPT_S
    if service.missing and service.asks < ASKS and later and recent:
        seen.changed.append(service)
    else:
        seen.dropped.append(service.job_id)


def _stay(
    service: Service, facts: list[Fact], sight: ObservedJob, now_s: float, last_s: float, seen: Observation
) -> None:
    service, arrived = attained_service.arrive(service, sight, now_s, last_s)
    facts = [*facts, *arrived]
    ended = any(isinstance(fact, RunEnded) and fact.run == sight.restarts for fact in facts)
    seen.facts += facts
    seen.changed.append(service)
    if sight.completed and ended:
        seen.facts.append(attained_service.completion(service))

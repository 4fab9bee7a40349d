"""Attained service: the pure rules by which runs seen in snapshots and told by sacct add up.

A job is followed by its id and the time of its first submit. Slurm moves submit_s to the requeue time at each
requeue and counts restarts up, so run number k is the run that had restarts = k.
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite, isnan, nan

from slurmsched.db.facts import Completion, Fact, RunEnd, RunMark, RunStart, Service, Sight

SUSPENSION_S = 5.0  # a shorter suspension is lost in the rounding of Slurm's clocks


def same_job(service: Service, sight: Sight) -> bool:
    """Whether the sight is of the job we know, and not of a new one under the same id (ids wrap around)."""
    if sight.restarts < service.restarts:
        return False
    return sight.restarts > 0 or sight.submit_s <= service.submit_s


def first_sight(sight: Sight) -> Service:
    """A job without a past of ours; runs before this one are missing."""
    return Service(
        sight.job_id, sight.submit_s, sight.submit_s, sight.restarts, runs=sight.restarts, missing=sight.restarts
    )


def depart(service: Service, sight: Sight, last_s: float) -> tuple[Service, list[Fact]]:
    """The service once a run that is over is closed, and runs that passed unseen are counted as missing.

    last_s: time of the last look before this one [s].
    """
    facts: list[Fact] = []
    if service.run >= 0 and (not sight.active or sight.restarts != service.run):
        service, end = close(service, *_end_of(service, sight, last_s))
        facts.append(end)
    unseen = max(sight.restarts - service.runs, 0)
    asks = 0 if unseen else service.asks
    runs = max(service.runs, sight.restarts)
    return replace(service, runs=runs, missing=service.missing + unseen, asks=asks), facts


def arrive(service: Service, sight: Sight, now_s: float, last_s: float) -> tuple[Service, list[Fact]]:
    """The service once a run that is on is opened or marked, or a run that began and ended unseen is counted."""
    facts: list[Fact] = []
    service = replace(service, submit_s=sight.submit_s, restarts=sight.restarts)
    if sight.active and service.run < 0:
        service, start = _open(service, sight, now_s)
        facts.append(start)
    elif sight.active:
        service, marks = _mark(service, sight, now_s, last_s)
        facts += marks
    elif sight.ran and service.runs <= sight.restarts:
        service, start = _open(service, sight, sight.end_s)
        service, end = close(service, *_end_of(service, sight, last_s))
        facts += [start, end]
    return service, facts


def vanish(service: Service, now_s: float, last_s: float) -> tuple[Service, list[Fact]]:
    """The service of a job that left the queue without our seeing it finish."""
    if service.run < 0:
        return replace(service, gone_s=now_s if isnan(service.gone_s) else service.gone_s), []
    service, end = close(service, *_last_look(service, last_s))
    return replace(service, gone_s=now_s, missing=service.missing + 1, asks=0), [end]


def completion(service: Service) -> Completion:
    """The fact that a job ended well."""
    return Completion(service.job_id, service.first_submit_s, service.last_end_s, service.executed_s, service.gpu_s)


def close(service: Service, end_s: float, executed_s: float, source: str) -> tuple[Service, RunEnd]:
    """The service with its open run added to the closed ones."""
    executed_s = max(executed_s, service.mark_executed_s)
    gpu_s = run_gpu_s(service, executed_s)
    end = RunEnd(
        service.job_id, service.first_submit_s, service.run, service.run_start_s, end_s, executed_s, gpu_s, source
    )
    closed = replace(
        service,
        executed_s=service.executed_s + executed_s,
        gpu_s=service.gpu_s + gpu_s,
        runs=service.run + 1,
        last_end_s=end_s,
        run=-1,
        run_start_s=nan,
        run_gpus=0,
        mark_executed_s=0.0,
        mark_gpu_s=0.0,
        suspended_s=0.0,
        paused=False,
    )
    return closed, end


def run_gpu_s(service: Service, executed_s: float) -> float:
    """Service of the open run [GPU s] when it has executed for executed_s."""
    return service.mark_gpu_s + (executed_s - service.mark_executed_s) * service.run_gpus


def _open(service: Service, sight: Sight, until_s: float) -> tuple[Service, RunStart]:
    start_s = sight.start_s if isfinite(sight.start_s) else until_s - sight.run_s
    opened = replace(
        service,
        run=sight.restarts,
        run_start_s=start_s,
        run_gpus=sight.gpus,
        suspended_s=max(until_s - start_s - sight.run_s, 0.0),
        mark_executed_s=sight.run_s if sight.paused else 0.0,
        mark_gpu_s=sight.run_s * sight.gpus if sight.paused else 0.0,
        paused=sight.paused,
    )
    return opened, RunStart(service.job_id, service.first_submit_s, sight.restarts, start_s, sight.gpus)


def _mark(service: Service, sight: Sight, now_s: float, last_s: float) -> tuple[Service, list[Fact]]:
    gpus = sight.gpus or service.run_gpus
    suspended_s = max(now_s - service.run_start_s - sight.run_s, 0.0)
    resized = gpus != service.run_gpus
    stalled = not sight.paused and suspended_s > service.suspended_s + SUSPENSION_S
    if not (resized or stalled or sight.paused != service.paused):
        return service, []
    executed_s = sight.run_s
    if resized:  # it happened after our last look: what came since counts by the new size
        executed_s = min(_executed_by(service, last_s), sight.run_s)
    executed_s = max(executed_s, service.mark_executed_s)
    marked = replace(
        service,
        run_gpus=gpus,
        mark_executed_s=executed_s,
        mark_gpu_s=run_gpu_s(service, executed_s),
        suspended_s=suspended_s,
        paused=sight.paused,
    )
    fact = RunMark(
        service.job_id, service.first_submit_s, service.run, now_s, executed_s, marked.mark_gpu_s, gpus,
        suspended_s, sight.paused,
    )  # fmt: skip
    return marked, [fact]


def _executed_by(service: Service, at_s: float) -> float:
    """Seconds the open run had executed at at_s."""
    if service.paused:
        return service.mark_executed_s
    return max(at_s - service.run_start_s - service.suspended_s, service.mark_executed_s)


def _end_of(service: Service, sight: Sight, last_s: float) -> tuple[float, float, str]:
    if sight.finished and sight.restarts == service.run:
        end_s = sight.end_s if isfinite(sight.end_s) else service.run_start_s + sight.run_s
        return end_s, sight.run_s if sight.run_s > 0 else _executed_by(service, end_s), "record"
    if sight.restarts <= service.run + 1 and sight.submit_s >= service.run_start_s:
        return sight.submit_s, _executed_by(service, sight.submit_s), "requeue"
    return _last_look(service, last_s)


def _last_look(service: Service, last_s: float) -> tuple[float, float, str]:
    end_s = max(last_s, service.run_start_s) if isfinite(last_s) else service.run_start_s
    return end_s, _executed_by(service, end_s), "observed"

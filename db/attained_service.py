"""Attained service of a job: the facts about its runs, and the rules that add them up. Pure.

Times are Unix seconds, attained service is in GPU seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import isfinite, isnan, nan
from typing import Protocol, TypeVar

SOURCES = ("observed", "requeue", "record", "sacct")  # from weak to strong
T = TypeVar("T")


class EarlierRun(Protocol):
    """One record of `sacct -D`: a run, or the part of a run between two resizes."""

    @property
    def job_id(self) -> int: ...
    @property
    def submit_s(self) -> float: ...
    @property
    def start_s(self) -> float: ...
    @property
    def end_s(self) -> float: ...
    @property
    def suspended_s(self) -> float: ...
    @property
    def gpus(self) -> float: ...
    @property
    def state(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ObservedJob:
    """One job as one snapshot shows it. gpus: whole GPUs, or the part of one that its shards make up."""

    job_id: int
    submit_s: float
    restarts: int
    start_s: float
    end_s: float
    run_s: float
    gpus: float
    active: bool
    paused: bool
    finished: bool
    completed: bool

    @property
    def ran(self) -> bool:
        """Finished after a run that counts (a job cancelled in the queue has none)."""
        return self.finished and isfinite(self.start_s) and (self.run_s > 0 or self.completed)


@dataclass(frozen=True, slots=True)
class Service:
    """What is known of one job's runs.

    executed_s, gpu_s: sums over the closed runs.
    runs: number of the next one.
    run: number of the open run, -1 if none.
    mark_*: what the open run had at its last resize, suspension or resume.
    missing: runs that nobody saw.
    asks: how often sacct was asked for them in vain.
    gone_s: since when the job is out of the queue.
    """

    job_id: int
    first_submit_s: float
    submit_s: float
    restarts: int
    executed_s: float = 0.0
    gpu_s: float = 0.0
    runs: int = 0
    last_end_s: float = nan
    run: int = -1
    run_start_s: float = nan
    run_gpus: float = 0
    mark_executed_s: float = 0.0
    mark_gpu_s: float = 0.0
    suspended_s: float = 0.0
    paused: bool = False
    missing: int = 0
    asks: int = 0
    gone_s: float = nan


@dataclass(frozen=True, slots=True)
class RunStarted:
    job_id: int
    first_submit_s: float
    run: int
    start_s: float
    gpus: float


@dataclass(frozen=True, slots=True)
class RunMarked:
    job_id: int
    first_submit_s: float
    run: int
    seen_s: float
    executed_s: float
    gpu_s: float
    gpus: float
    suspended_s: float
    paused: bool


@dataclass(frozen=True, slots=True)
class RunEnded:
    job_id: int
    first_submit_s: float
    run: int
    start_s: float
    end_s: float
    executed_s: float
    gpu_s: float
    source: str


@dataclass(frozen=True, slots=True)
class Completion:
    job_id: int
    first_submit_s: float
    end_s: float
    executed_s: float
    gpu_s: float


Fact = RunStarted | RunMarked | RunEnded | Completion


# Runs seen in snapshots
#
# A job is followed by its id and the time of its first submit. Slurm moves submit_s to the requeue time at each
# requeue and counts restarts up, so run number k is the run that had restarts = k.

SUSPENSION_S = 5.0  # a shorter suspension is lost in the rounding of Slurm's clocks


def same_job(service: Service, sight: ObservedJob) -> bool:
    """Whether the sight is of the job we know, and not of a new one under the same id (ids wrap around)."""
    if sight.restarts < service.restarts:
        return False
    return sight.restarts > 0 or sight.submit_s <= service.submit_s


def first_sight(sight: ObservedJob) -> Service:
    """A job without records; runs before this one are missing."""
    return Service(
        sight.job_id, sight.submit_s, sight.submit_s, sight.restarts, runs=sight.restarts, missing=sight.restarts
    )


def depart(service: Service, sight: ObservedJob, last_s: float) -> tuple[Service, list[Fact]]:
    """The service once a run that is over is closed, and runs that passed unseen are counted as missing.

    last_s: time of the last look before this one [s].
    """
    facts: list[Fact] = []
    if service.run >= 0 and (not sight.active or sight.restarts != service.run):
        service, end = close_run(service, *_end_of(service, sight, last_s))
        facts.append(end)
    unseen = max(sight.restarts - service.runs, 0)
    asks = 0 if unseen else service.asks
    runs = max(service.runs, sight.restarts)
    return replace(service, runs=runs, missing=service.missing + unseen, asks=asks), facts


def arrive(service: Service, sight: ObservedJob, now_s: float, last_s: float) -> tuple[Service, list[Fact]]:
    """The service once a run that is on is opened or marked, or a run that began and ended unseen is counted."""
    facts: list[Fact] = []
    service = replace(service, submit_s=sight.submit_s, restarts=sight.restarts)
    if sight.active and service.run < 0:
        service, start = _open_run(service, sight, now_s)
        facts.append(start)
    elif sight.active:
        service, marks = _mark_run(service, sight, now_s, last_s)
        facts += marks
    elif sight.ran and service.runs <= sight.restarts:
        service, start = _open_run(service, sight, sight.end_s)
        service, end = close_run(service, *_end_of(service, sight, last_s))
        facts += [start, end]
    return service, facts


def vanish(service: Service, now_s: float, last_s: float) -> tuple[Service, list[Fact]]:
    """The service of a job that left the queue without our seeing it finish."""
    if service.run < 0:
        return replace(service, gone_s=now_s if isnan(service.gone_s) else service.gone_s), []
    service, end = close_run(service, *_last_look(service, last_s))
    return replace(service, gone_s=now_s, missing=service.missing + 1, asks=0), [end]


def completion(service: Service) -> Completion:
    """The fact that a job ended well."""
    return Completion(service.job_id, service.first_submit_s, service.last_end_s, service.executed_s, service.gpu_s)


def close_run(service: Service, end_s: float, executed_s: float, source: str) -> tuple[Service, RunEnded]:
    """The service with its open run added to the closed ones."""
    executed_s = max(executed_s, service.mark_executed_s)
    gpu_s = run_gpu_s(service, executed_s)
    end = RunEnded(
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


def _open_run(service: Service, sight: ObservedJob, until_s: float) -> tuple[Service, RunStarted]:
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
    return opened, RunStarted(service.job_id, service.first_submit_s, sight.restarts, start_s, sight.gpus)


def _mark_run(service: Service, sight: ObservedJob, now_s: float, last_s: float) -> tuple[Service, list[Fact]]:
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
    fact = RunMarked(
        service.job_id, service.first_submit_s, service.run, now_s, executed_s, marked.mark_gpu_s, gpus,
        suspended_s, sight.paused,
    )  # fmt: skip
    return marked, [fact]


def _executed_by(service: Service, at_s: float) -> float:
    """Seconds the open run had executed at at_s."""
    if service.paused:
        return service.mark_executed_s
    return max(at_s - service.run_start_s - service.suspended_s, service.mark_executed_s)


def _end_of(service: Service, sight: ObservedJob, last_s: float) -> tuple[float, float, str]:
    if sight.finished and sight.restarts == service.run:
        end_s = sight.end_s if isfinite(sight.end_s) else service.run_start_s + sight.run_s
        return end_s, sight.run_s if sight.run_s > 0 else _executed_by(service, end_s), "record"
    if sight.restarts <= service.run + 1 and sight.submit_s >= service.run_start_s:
        return sight.submit_s, _executed_by(service, sight.submit_s), "requeue"
    return _last_look(service, last_s)


def _last_look(service: Service, last_s: float) -> tuple[float, float, str]:
    end_s = max(last_s, service.run_start_s) if isfinite(last_s) else service.run_start_s
    return end_s, _executed_by(service, end_s), "observed"


# Runs that no snapshot showed: from sacct and from our own facts
#
# Every run is counted once, by the best account of its end: sacct's before the job record's, that before the requeue's
# time, that before our last look.


def merge_sacct_runs(
    service: Service, ends: Sequence[RunEnded], sacct_runs: Iterable[EarlierRun], *, fresh: bool
) -> tuple[Service, list[RunEnded]]:
    """The service with its past runs: from sacct, and from our own facts where sacct has none.

    ends: our own facts about this job.
    sacct_runs: sacct's records of this job id, also of earlier jobs with the same id.
    fresh: no fact is on record yet, so the first submit may still be corrected.
    Runs in progress are not changed.
    """
    over = _ended_runs(service, sacct_runs)
    latest = _latest(service, over)
    pasts = _numbered(over, ends, latest)
    if fresh and pasts and 0 in pasts:
        service = replace(service, first_submit_s=pasts[0][0].submit_s)
    facts = [_told_end(service, run, parts) for run, parts in sorted(pasts.items())]
    best = _strongest_ends([*ends, *facts], latest)
    missing = 0 if facts and len(best) > latest else service.missing
    settled = replace(
        service,
        executed_s=sum(end.executed_s for end in best),
        gpu_s=sum(end.gpu_s for end in best),
        last_end_s=max((end.end_s for end in best), default=service.last_end_s),
        missing=missing,
        asks=service.asks + 1,
    )
    known = {(end.run, end.end_s, end.executed_s) for end in ends if end.source == "sacct"}
    return settled, [fact for fact in facts if (fact.run, fact.end_s, fact.executed_s) not in known]


def merge_own_runs(service: Service, ends: Sequence[RunEnded]) -> Service:
    """The service with its past runs as our own facts have them; runs without a fact stay missing."""
    best = _strongest_ends(ends, service.restarts - 1)
    if not best:
        return service
    return replace(
        service,
        first_submit_s=best[0].first_submit_s,
        executed_s=sum(end.executed_s for end in best),
        gpu_s=sum(end.gpu_s for end in best),
        last_end_s=max(end.end_s for end in best),
        missing=max(service.restarts - len(best), 0),
    )


def completed_in_sacct(service: Service, sacct_runs: Iterable[EarlierRun]) -> bool:
    """Whether sacct says that the last run of a job that left the queue ended well."""
    over = _ended_runs(service, sacct_runs)
    return bool(over) and over[-1].submit_s >= service.submit_s and over[-1].state.startswith("COMPLETED")


def _strongest_ends(ends: Iterable[RunEnded], latest: int) -> list[RunEnded]:
    """One end a run up to number `latest`, in the order of runs."""
    best = strongest((end for end in ends if end.run <= latest), lambda end: end.run, lambda end: end.source)
    return sorted(best, key=lambda end: end.run)


def strongest(ends: Iterable[T], key: Callable[[T], Hashable], source: Callable[[T], str]) -> list[T]:
    """One end a key: of the strongest of SOURCES, and of equal ones the last."""
    best: dict[Hashable, T] = {}
    for end in ends:
        if (of := key(end)) not in best or SOURCES.index(source(end)) >= SOURCES.index(source(best[of])):
            best[of] = end
    return list(best.values())


def _ended_runs(service: Service, sacct_runs: Iterable[EarlierRun]) -> list[EarlierRun]:
    """The records of this job id that are over, in their order; for a job in the queue only those before its run."""
    in_queue = not isfinite(service.gone_s)
    over = [
        run
        for run in sacct_runs
        if run.job_id == service.job_id
        and isfinite(run.end_s)
        and run.end_s >= run.start_s > 0
        and (run.submit_s < service.submit_s or not in_queue)
    ]
    return sorted(over, key=lambda run: (run.submit_s, run.start_s))


def _latest(service: Service, over: Sequence[EarlierRun]) -> int:
    """Number of the last run that is over; a job out of the queue may have run again unseen."""
    if not isfinite(service.gone_s):
        return service.restarts - 1
    return service.restarts + len({run.submit_s for run in over if run.submit_s > service.submit_s})


def _numbered(over: Sequence[EarlierRun], ends: Sequence[RunEnded], latest: int) -> dict[int, list[EarlierRun]]:
    """Run number -> its records. Numbers count down from the latest; what is older is of another job."""
    ours = {round(end.start_s): end.run for end in ends}
    numbered: dict[int, list[EarlierRun]] = {}
    number = latest + 1
    for _, group in reversed([(s, list(g)) for s, g in groupby(over, key=lambda run: run.submit_s)]):
        number = min(ours.get(round(group[0].start_s), number - 1), number - 1)
        if number < 0:
            break
        numbered[number] = group
    return numbered


def _told_end(service: Service, run: int, parts: Sequence[EarlierRun]) -> RunEnded:
    executed_s = [max(part.end_s - part.start_s - part.suspended_s, 0.0) for part in parts]
    return RunEnded(
        service.job_id,
        service.first_submit_s,
        run,
        parts[0].start_s,
        parts[-1].end_s,
        sum(executed_s),
        sum(s * part.gpus for s, part in zip(executed_s, parts, strict=True)),
        "sacct",
    )

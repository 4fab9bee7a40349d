"""Runs that nobody saw: what sacct tells of them, and what our own facts do. Pure rules.

Every run is counted once, by the best account of its end: sacct's before the job record's, that before the
requeue's time, that before our last look.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from math import isfinite

from slurmsched.db.facts import SOURCES, EarlierRun, RunEnd, Service


def settle(
    service: Service, ends: Sequence[RunEnd], told: Iterable[EarlierRun], *, fresh: bool
) -> tuple[Service, list[RunEnd]]:
    """The service with its past runs as sacct tells them, where it does, and as we saw them, where it does not.

    ends: our own facts about this job. told: sacct's records of this job id, of earlier jobs under it too. fresh: no
    fact is on record yet, so that the first submit may still be corrected. Open runs are left alone.
    """
    over = _over(service, told)
    latest = _latest(service, over)
    pasts = _numbered(over, ends, latest)
    if fresh and pasts and 0 in pasts:
        service = replace(service, first_submit_s=pasts[0][0].submit_s)
    facts = [_told_end(service, run, parts) for run, parts in sorted(pasts.items())]
    best = _best([*ends, *facts], latest)
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


def recollect(service: Service, ends: Sequence[RunEnd]) -> Service:
    """The service with its past runs as our own facts have them; runs without a fact stay missing."""
    best = _best(ends, service.restarts - 1)
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


def completed_at_last(service: Service, told: Iterable[EarlierRun]) -> bool:
    """Whether sacct says that the last run of a job that left the queue ended well."""
    over = _over(service, told)
    return bool(over) and over[-1].submit_s >= service.submit_s and over[-1].state.startswith("COMPLETED")


def _best(ends: Iterable[RunEnd], latest: int) -> list[RunEnd]:
    """One end a run up to number `latest`: of the strongest source, and of equal ones the last."""
    best: dict[int, RunEnd] = {}
    for end in ends:
        rank = SOURCES.index(end.source)
        if end.run <= latest and (end.run not in best or rank >= SOURCES.index(best[end.run].source)):
            best[end.run] = end
    return [best[run] for run in sorted(best)]


def _over(service: Service, told: Iterable[EarlierRun]) -> list[EarlierRun]:
    """The records of this job id that are over, in their order; for a job in the queue only those before its run."""
    in_queue = not isfinite(service.gone_s)
    over = [
        run
        for run in told
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


def _numbered(over: Sequence[EarlierRun], ends: Sequence[RunEnd], latest: int) -> dict[int, list[EarlierRun]]:
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


def _told_end(service: Service, run: int, parts: Sequence[EarlierRun]) -> RunEnd:
    executed_s = [max(part.end_s - part.start_s - part.suspended_s, 0.0) for part in parts]
    return RunEnd(
        service.job_id,
        service.first_submit_s,
        run,
        parts[0].start_s,
        parts[-1].end_s,
        sum(executed_s),
        sum(s * part.gpus for s, part in zip(executed_s, parts, strict=True)),
        "sacct",
    )

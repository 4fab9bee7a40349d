"""Earliest starts of pending jobs, as the policy wants them: `Wants.start_s` written as Slurm's StartTime."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from slurmsched.config import Lever, Scope
from slurmsched.model import Defer, Deferral, Ranking, Refusal, Snapshot, Wants
from slurmsched.model.columns import Bools, Floats
from slurmsched.placements.candidates import eligible
from slurmsched.planning import managed as jobs_of

SAME_S = 1.5  # Slurm keeps whole seconds
_FOREIGN = "somebody else changed its start"


@dataclass(frozen=True, slots=True)
class Deferred:
    """actions: to send. refused: why jobs that were to start later are not told so. deferrals: records that change,
    as they are from now on."""

    actions: tuple[Defer, ...] = ()
    refused: tuple[Refusal, ...] = ()
    deferrals: tuple[Deferral, ...] = ()


def own_starts(snapshot: Snapshot) -> Snapshot:
    """The snapshot in which jobs may start when their users say: what a policy looks at."""
    mine, _ = _on_record(snapshot)
    if not mine:
        return snapshot
    begin_s = snapshot.jobs.eligible_s.copy()
    for row, record in mine.items():
        begin_s[row] = record.submit_s
    return replace(snapshot, jobs=snapshot.jobs.with_columns(eligible_s=begin_s))


def deferrals(snapshot: Snapshot, ranking: Ranking, managed: Bools, lever: Lever, scope: Scope) -> Deferred:
    """Starts to give, to move and to give back. snapshot: as read. managed: (N,) bool.

    A start that is far away, or not known, is written as lever.start_most_s from now and renewed when half of that is
    left, so that jobs may start if slurmsched does not come back.
    """
    mine, changed = _on_record(snapshot)
    want_s = _wanted_s(snapshot, ranking, lever)
    later = want_s > snapshot.now_s + 1
    over = {record.job_id for record in (*snapshot.deferrals, *changed) if record.over}
    asked = later & managed & eligible(own_starts(snapshot)) & ~np.isin(snapshot.jobs.job_id, list(over))
    asked[list(mine)] = False
    verdict = np.where(asked, jobs_of.start_verdicts(snapshot.jobs, scope), -1).astype(np.int8)
    moves = [*_kept(snapshot, mine, later & jobs_of.scoped(snapshot.jobs, scope), want_s, lever),
             *_new(snapshot, asked & (verdict < 0), want_s, lever)]  # fmt: skip
    refused = jobs_of.refusals(snapshot, verdict, jobs_of.START_RULES)
    return Deferred(tuple(action for action, _ in moves), refused, (*changed, *(record for _, record in moves)))


def given_back(snapshot: Snapshot, note: str) -> Deferred:
    """Every job may start again, as `undo` does."""
    mine, changed = _on_record(snapshot)
    moves = [_back(snapshot, row, record, note) for row, record in mine.items()]
    return Deferred(tuple(action for action, _ in moves), (), (*changed, *(record for _, record in moves)))


def untold(snapshot: Snapshot, ranking: Ranking, managed: Bools, lever: Lever) -> tuple[str, ...]:
    """What the policy wants of pending jobs and Slurm is not told, in words. managed: (N,) bool."""
    wants, jobs = ranking.wants or Wants(), snapshot.jobs
    waits, found = managed & jobs.pending, list[tuple[int, str]]()
    if wants.start_s is not None and not lever.start:
        later = int((waits & (wants.start_s > snapshot.now_s + 1)).sum())
        found.append((later, "to start later: lever.start = true tells Slurm"))
    if wants.gpus is not None:
        other = int((waits & (wants.gpus > 0) & (wants.gpus != jobs.gpus)).sum())
        found.append((other, "to have another number of GPUs: Slurm is not told"))
    if wants.gpu_type is not None:
        pairs = zip(wants.gpu_type, jobs.gpu_request, strict=True)
        typed = np.array([bool(name) and f":{name}:" not in asked for name, asked in pairs], np.bool_)
        found.append((int((waits & typed).sum()), "to run on a certain GPU type: Slurm is not told"))
    return tuple(f"the policy wants {count} jobs {what}" for count, what in found if count)


def _on_record(snapshot: Snapshot) -> tuple[dict[int, Deferral], tuple[Deferral, ...]]:
    """Pending jobs that have a start of ours to come, by row; and records that change because it is somebody else's.

    So it is, too, where a process died before it sent what it had put on record: the job is left alone then.
    """
    jobs, mine, changed = snapshot.jobs, dict[int, Deferral](), list[Deferral]()
    for record in snapshot.deferrals:
        row = int(np.searchsorted(jobs.job_id, record.job_id))
        if not record.open or row == len(jobs) or jobs.job_id[row] != record.job_id or not jobs.pending[row]:
            continue
        if jobs.submit_s[row] != record.submit_s or record.until_s <= snapshot.now_s:
            continue  # a requeue took it away, or it is reached
        if abs(float(jobs.eligible_s[row]) - record.until_s) <= SAME_S:
            mine[row] = record
        else:
            changed.append(replace(record, until_s=0.0, over=True, note=_FOREIGN))
    return mine, tuple(changed)


def _wanted_s(snapshot: Snapshot, ranking: Ranking, lever: Lever) -> Floats:
    """When each job is to start at the earliest [Unix s], -infinity: whenever. Who waited past the age cap: at once."""
    wants = ranking.wants
    if not lever.start or wants is None or wants.start_s is None:
        return np.full(len(snapshot.jobs), -math.inf)
    aged = np.asarray(ranking.why.get("over_age_cap", np.zeros(len(snapshot.jobs), np.bool_)), np.bool_)
    return np.where(aged, -math.inf, wants.start_s)


def _kept(
    snapshot: Snapshot, mine: dict[int, Deferral], later: Bools, want_s: Floats, lever: Lever
) -> Iterator[tuple[Defer, Deferral]]:
    """What changes of the starts that jobs have."""
    for row, record in mine.items():
        if not later[row]:
            yield _back(snapshot, row, record, "it may start now")
            continue
        target_s = _target_s(snapshot, float(want_s[row]), lever)
        near = want_s[row] - snapshot.now_s <= lever.start_most_s
        stale = record.until_s - snapshot.now_s < lever.start_most_s / 2 or record.until_s > target_s + SAME_S
        if abs(target_s - record.until_s) > SAME_S and (near or stale):
            yield _given(snapshot, row, target_s)


def _new(snapshot: Snapshot, asked: Bools, want_s: Floats, lever: Lever) -> Iterator[tuple[Defer, Deferral]]:
    for row in np.flatnonzero(asked).tolist():
        yield _given(snapshot, row, _target_s(snapshot, float(want_s[row]), lever))


def _target_s(snapshot: Snapshot, want_s: float, lever: Lever) -> float:
    """The start to write, in whole seconds [Unix s]."""
    return float(math.ceil(min(want_s, snapshot.now_s + lever.start_most_s)))


def _given(snapshot: Snapshot, row: int, until_s: float) -> tuple[Defer, Deferral]:
    key = _key(snapshot, row)
    action = Defer(*key, "the policy wants it to start later", f"defer-{key[0]}", until_s)
    return action, Deferral(*key, until_s)


def _back(snapshot: Snapshot, row: int, record: Deferral, note: str) -> tuple[Defer, Deferral]:
    key = _key(snapshot, row)
    action = Defer(*key, note, f"defer-{key[0]}", snapshot.now_s, back=True)
    return action, replace(record, until_s=0.0, note=note)


def _key(snapshot: Snapshot, row: int) -> tuple[int, float]:
    return int(snapshot.jobs.job_id[row]), float(snapshot.jobs.submit_s[row])

"""Earliest starts of pending jobs, as the policy wants them: `Wants.start_s` written as Slurm's StartTime."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from slurmsched.config import Lever, Scope
from slurmsched.model import Defer, Deferral, Ranking, Snapshot, Wants
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.deferrals import SAME_S
from slurmsched.placements.candidates import eligible
from slurmsched.planning import managed as jobs_of
from slurmsched.planning.parts import Deferred
from slurmsched.planning.type_nodes import nodes_by_type
from slurmsched.words import some

_FOREIGN = "somebody else changed its start"


def own_starts(snapshot: Snapshot) -> Snapshot:
    """The snapshot in which jobs may start when their users say: what a policy looks at."""
    mine, _ = _on_record(snapshot)
    if not mine:
        return snapshot
    begin_s = snapshot.jobs.eligible_s.copy()
    for row, record in mine.items():
        begin_s[row] = record.submit_s
    return replace(snapshot, jobs=snapshot.jobs.with_columns(eligible_s=begin_s))


def deferrals(
    snapshot: Snapshot, ranking: Ranking, managed: Bools, lever: Lever, scope: Scope, most: int = 500
) -> Deferred:
    """Starts to give, to move and to give back. snapshot: as read. managed: (N,) bool. most: writes of this cycle.

    A start that is far away, or not known, is written as lever.start_most_s from now and renewed when half of that is
    left, so that jobs may start if slurmsched does not come back. A job with an act under way is to start: it gets
    none. Starts are given back first, then moved, then given to new jobs, most urgent first.
    """
    mine, changed = _on_record(snapshot)
    want_s = wanted_s(snapshot, ranking) if lever.start else np.full(len(snapshot.jobs), -math.inf)
    later = want_s > snapshot.now_s + 1
    acting = np.isin(snapshot.jobs.job_id, [act.job_id for act in snapshot.acts])
    asked = later & managed & eligible(own_starts(snapshot)) & ~acting & ~_over(snapshot, changed)
    asked[list(mine)] = False
    verdict = np.where(asked, jobs_of.start_verdicts(snapshot.jobs, scope), -1).astype(np.int8)
    new = ranking.order[(asked & (verdict < 0))[ranking.order]]
    kept = list(_kept(snapshot, mine, later & jobs_of.scoped(snapshot.jobs, scope), want_s, lever))
    moves = [*sorted(kept, key=lambda move: not move[0].back), *_new(snapshot, new, want_s, lever)]
    refused, left = jobs_of.refusals(snapshot, verdict, jobs_of.START_RULES), moves[max(most, 0) :]
    moves = moves[: max(most, 0)]
    return Deferred(
        tuple(action for action, _ in moves), refused, (*changed, *(record for _, record in moves)),
        tuple(action.job_id for action, _ in left),
    )  # fmt: skip


def given_back(snapshot: Snapshot, note: str) -> Deferred:
    """Every job may start again, as `undo` does."""
    mine, changed = _on_record(snapshot)
    moves = [_back(snapshot, row, record, note) for row, record in mine.items()]
    return Deferred(tuple(action for action, _ in moves), (), (*changed, *(record for _, record in moves)))


def untold(
    snapshot: Snapshot, ranking: Ranking, managed: Bools, lever: Lever, *, types: bool = False
) -> tuple[str, ...]:
    """What the policy wants of pending jobs and Slurm is not told, in words. managed: (N,) bool. types: it is told
    GPU types."""
    wants, jobs = ranking.wants or Wants(), snapshot.jobs
    waits, found = managed & jobs.pending, list[tuple[int, str]]()
    if wants.start_s is not None and not lever.start:
        later = int((waits & (wants.start_s > snapshot.now_s + 1)).sum())
        found.append((later, "to start later: lever.start = true tells Slurm"))
    if wants.gpus is not None and not lever.size:
        other = int((waits & (wants.gpus > 0) & (wants.gpus != jobs.gpus)).sum())
        found.append((other, "to have another number of GPUs: lever.size = true tells Slurm"))
    if wants.gpu_type is not None and not types:
        pairs = zip(wants.gpu_type, jobs.gpu_request, strict=True)
        typed = np.array([bool(name) and f":{name}:" not in asked for name, asked in pairs], np.bool_)
        found.append(
            (int((waits & typed).sum()), "to run on a certain GPU type: placement.types = true sends them there")
        )
    if wants.gpus_by_type is not None:
        told = [row for row, nodes in nodes_by_type(snapshot, wants).items() if types and len(nodes) > 1]
        several = waits & ~wants.gpus_by_type.isin([""]) & ~np.isin(np.arange(len(jobs)), told)
        words = "on several GPU types at once: placement.types = true sends gangs of several nodes there"
        found.append((int(several.sum()), words))
    if wants.beside is not None:
        guests = int((waits & (wants.beside >= 0)).sum())
        found.append((guests, "on GPUs of another job: only jobs that ask for shards or MPS share any on Slurm"))
    return tuple(f"the policy wants {some(count, 'job')} {what}" for count, what in found if count)


def _on_record(snapshot: Snapshot) -> tuple[dict[int, Deferral], tuple[Deferral, ...]]:
    """Pending jobs that have a start of ours to come, by row; and records that change because it is somebody else's.

    Not every start on record was sent: the job may still have another of ours, or what it had before the first.
    """
    jobs, mine, changed = snapshot.jobs, dict[int, Deferral](), list[Deferral]()
    for record in snapshot.deferrals:
        row = jobs.row_of(record.job_id)
        if not record.open or row < 0 or not jobs.pending[row]:
            continue
        if jobs.submit_s[row] != record.submit_s or record.last_s <= snapshot.now_s:
            continue  # a requeue took it away, or it is reached
        has_s = float(jobs.eligible_s[row])
        if record.meant(has_s):
            if has_s > snapshot.now_s:
                mine[row] = _having(record, has_s)
        elif not (record.base_s and abs(has_s - record.base_s) <= SAME_S):
            changed.append(replace(record, until_s=0.0, over=True, note=_FOREIGN, values=(), base_s=0.0))
    return mine, tuple(changed)


def _having(record: Deferral, has_s: float) -> Deferral:
    """The record of a job that has this one of the starts that were meant for it."""
    if abs(has_s - record.until_s) <= SAME_S:
        return record
    return replace(record, until_s=has_s, values=(*record.values, record.until_s))


def _over(snapshot: Snapshot, changed: tuple[Deferral, ...]) -> Bools:
    """Jobs that are left alone until they have run: somebody else changed the start. (N,) bool."""
    jobs, over = snapshot.jobs, np.zeros(len(snapshot.jobs), np.bool_)
    for record in (*snapshot.deferrals, *changed):
        if record.over:
            over |= (jobs.job_id == record.job_id) & (jobs.submit_s == record.submit_s)
    return over


def wanted_s(snapshot: Snapshot, ranking: Ranking) -> Floats:
    """When each job is to start at the earliest [Unix s], -infinity: whenever. Who waited past the age cap: at once."""
    wants = ranking.wants
    if wants is None or wants.start_s is None:
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
            yield _given(snapshot, row, target_s, record)


def _new(snapshot: Snapshot, rows: Int64s, want_s: Floats, lever: Lever) -> Iterator[tuple[Defer, Deferral]]:
    """Starts of jobs that have none of ours. One that is on record for them was not sent, or is reached."""
    known = {(record.job_id, record.submit_s): record for record in snapshot.deferrals if record.open}
    for row in rows.tolist():
        key, base_s = _key(snapshot, row), float(np.nan_to_num(snapshot.jobs.eligible_s[row]))
        before = replace(known.get(key, Deferral(*key, 0.0)), base_s=base_s)
        yield _given(snapshot, row, _target_s(snapshot, float(want_s[row]), lever), before)


def _target_s(snapshot: Snapshot, want_s: float, lever: Lever) -> float:
    """The start to write, in whole seconds [Unix s]."""
    return float(math.ceil(min(want_s, snapshot.now_s + lever.start_most_s)))


def _given(snapshot: Snapshot, row: int, until_s: float, before: Deferral) -> tuple[Defer, Deferral]:
    """The write, and the record that still knows of the starts before."""
    key, was_s = _key(snapshot, row), float(snapshot.jobs.eligible_s[row])
    action = Defer(*key, "the policy wants it to start later", f"defer-{key[0]}", until_s, was_s=was_s)
    values = dict.fromkeys(at_s for at_s in (*before.values, before.until_s) if at_s > snapshot.now_s)
    return action, Deferral(*key, until_s, values=tuple(values), base_s=before.base_s)


def _back(snapshot: Snapshot, row: int, record: Deferral, note: str) -> tuple[Defer, Deferral]:
    key = _key(snapshot, row)
    was_s = float(snapshot.jobs.eligible_s[row])
    action = Defer(*key, note, f"defer-{key[0]}", snapshot.now_s, back=True, was_s=was_s)
    return action, replace(record, until_s=0.0, note=note, values=(), base_s=0.0)


def _key(snapshot: Snapshot, row: int) -> tuple[int, float]:
    return int(snapshot.jobs.job_id[row]), float(snapshot.jobs.submit_s[row])

"""Writes the earliest starts that the policy chose (`JobChanges.start_s`) as StartTime of pending jobs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from slurmsched.config import LeverConfig, ScopeConfig
from slurmsched.model import JobChanges, Override, Ranking, Rights, SetStart, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.overrides import SAME_S
from slurmsched.plain_text import pluralize
from slurmsched.planning import job_scope as jobs_of
from slurmsched.planning.job_overrides import left_alone, of_field, of_pending
from slurmsched.planning.node_lists.gpu_type_choice import nodes_by_type
from slurmsched.planning.proposals import Budget, Lever, Proposal, Records
from slurmsched.resources.startable_jobs import startable

if TYPE_CHECKING:
    from slurmsched.planning.planner import Planner

FIELD = SetStart.field
StartChange = tuple[SetStart, Records]
_FOREIGN = "somebody else changed its start"


@dataclass(frozen=True, slots=True)
class StartLever(Lever):
    """Writes earliest starts; those on record go back also after the lever is turned off."""

    config: LeverConfig
    scope: ScopeConfig

    @classmethod
    def of(cls, planner: Planner) -> StartLever:
        return cls(planner.lever, planner.scope)

    def as_submitted(self, snapshot: Snapshot) -> Snapshot:
        return own_starts(snapshot)

    def propose(self, snapshot: Snapshot, ranking: Ranking, budget: Budget) -> Proposal:
        if snapshot.site.rights < Rights.OPERATOR:
            return Proposal()
        return deferrals(snapshot, ranking, budget.jobs, self.config, self.scope, budget.writes)

    @staticmethod
    def restore(snapshot: Snapshot) -> Proposal:
        return restore_proposal(snapshot, "undo: its own start")


def own_starts(snapshot: Snapshot) -> Snapshot:
    """The snapshot in which jobs may start when their users say. This is the policy's input."""
    active, _ = _on_record(snapshot)
    if not active:
        return snapshot
    begin_s = snapshot.jobs.eligible_s.copy()
    for row, record in active.items():
        begin_s[row] = record.submit_s
    return replace(snapshot, jobs=snapshot.jobs.with_columns(eligible_s=begin_s))


def deferrals(
    snapshot: Snapshot, ranking: Ranking, managed: Bools, lever: LeverConfig, scope: ScopeConfig, most: int = 500
) -> Proposal:
    """Starts to give, to move and to give back. snapshot: as read. managed: (N,) bool. most: writes of this cycle.

    A start that is far away, or not known, is written as lever.start_most_s from now. It is renewed when half of that
    has passed, so that jobs may start if slurmsched does not come back. A job with an operation under way is to start:
    it gets none. Starts are given back first, then moved, then given to new jobs, most urgent first.
    """
    (active, changed), records = _on_record(snapshot), of_field(snapshot.overrides, FIELD)
    want_s = wanted_s(snapshot, ranking) if lever.start else np.full(len(snapshot.jobs), -math.inf)
    later = want_s > snapshot.now_s + 1
    acting = np.isin(snapshot.jobs.job_id, [operation.job_id for operation in snapshot.operations])
    asked = later & managed & startable(own_starts(snapshot)) & ~acting
    asked &= ~left_alone(snapshot.jobs, (*records, *changed))
    asked[list(active)] = False
    verdict = np.where(asked, jobs_of.start_verdicts(snapshot.jobs, scope), -1).astype(np.int8)
    new = ranking.order[(asked & (verdict < 0))[ranking.order]]
    kept = list(_recorded_changes(snapshot, active, later & jobs_of.scoped(snapshot.jobs, scope), want_s, lever))
    changes = [*sorted(kept, key=lambda change: not change[0].restores), *_new(snapshot, new, want_s, lever)]
    return Proposal.of_changes(changes, most, changed, jobs_of.refusals(snapshot, verdict, jobs_of.START_RULES))


def restore_proposal(snapshot: Snapshot, note: str) -> Proposal:
    """The writes that remove every earliest start, as `undo` does."""
    active, changed = _on_record(snapshot)
    changes = [_restore(snapshot, row, record, note) for row, record in active.items()]
    return Proposal.of_changes(changes, changed=changed)


# Over 30 lines: one note for each thing that the plan cannot do, in one order.
def unwritten_changes(
    snapshot: Snapshot, ranking: Ranking, managed: Bools, lever: LeverConfig, *, types: bool = False
) -> tuple[str, ...]:
    """What the policy wants of pending jobs and Slurm is not told, as text. managed: (N,) bool. types: it is told GPU
    types."""
    changes, jobs = ranking.changes or JobChanges(), snapshot.jobs
    waits, found = managed & jobs.pending, list[tuple[int, str]]()
    if changes.start_s is not None and not lever.start:
        later = int((waits & (changes.start_s > snapshot.now_s + 1)).sum())
        found.append((later, "the policy would start {} later; set lever.start = true to write that"))
    if changes.gpus is not None and not lever.size:
        other = int((waits & (changes.gpus > 0) & (changes.gpus != jobs.gpus)).sum())
        found.append((other, "the policy would give {} another number of GPUs; set lever.size = true to write that"))
    if changes.gpu_type is not None and not types:
        pairs = zip(changes.gpu_type, jobs.gpu_request, strict=True)
        typed = np.array([bool(name) and f":{name}:" not in asked for name, asked in pairs], np.bool_)
        words = "the policy would run {} on a certain GPU type; set placement.types = true to send them there"
        found.append((int((waits & typed).sum()), words))
    if changes.gpus_by_type is not None:
        mixed = [row for row, nodes in nodes_by_type(snapshot, changes).items() if types and len(nodes) > 1]
        several = waits & ~changes.gpus_by_type.isin([""]) & ~np.isin(np.arange(len(jobs)), mixed)
        words = (
            "the policy would run {} on several GPU types at once; set placement.types = true to send gangs of several "
            "nodes there"
        )
        found.append((int(several.sum()), words))
    if changes.beside is not None:
        guests = int((waits & (changes.beside >= 0)).sum())
        words = "the policy would run {} on GPUs of another job; Slurm shares GPUs only as shards or MPS"
        found.append((guests, words))
    return tuple(what.format(pluralize(count, "job")) for count, what in found if count)


def _on_record(snapshot: Snapshot) -> tuple[dict[int, Override], Records]:
    """Pending jobs that have a start of ours to come, by row; and records that change because it is somebody else's.

    Not every start on record was sent: the job may still have another of ours, or what it had before the first.
    """
    jobs, active, changed = snapshot.jobs, dict[int, Override](), list[Override]()
    for row, record in of_pending(jobs, of_field(snapshot.overrides, FIELD)):
        if jobs.submit_s[row] != record.submit_s or _last_s(record) <= snapshot.now_s:
            continue  # a requeue took it away, or it is reached
        has_s = float(jobs.eligible_s[row])
        if record.meant(has_s):
            if has_s > snapshot.now_s:
                active[row] = _having(record, has_s)
        elif not (record.base and abs(has_s - float(record.base)) <= SAME_S):
            changed.append(replace(record, base=0.0).closed(_FOREIGN, abandoned=True))
    return active, tuple(changed)


def _last_s(record: Override) -> float:
    """The latest start that the job may have by us [Unix s]."""
    return max(float(at_s) for at_s in (record.sent, *record.values, 0.0))


def _having(record: Override, has_s: float) -> Override:
    """The record of a job that has this one of the starts that were meant for it."""
    if abs(has_s - float(record.sent)) <= SAME_S:
        return record
    return replace(record, sent=has_s, values=(*record.values, record.sent))


def wanted_s(snapshot: Snapshot, ranking: Ranking) -> Floats:
    """The earliest start of each job [Unix s], -infinity: at any time. A job beyond the age cap may start at once."""
    changes = ranking.changes
    if changes is None or changes.start_s is None:
        return np.full(len(snapshot.jobs), -math.inf)
    aged = np.asarray(ranking.why.get("over_age_cap", np.zeros(len(snapshot.jobs), np.bool_)), np.bool_)
    return np.where(aged, -math.inf, changes.start_s)


def _recorded_changes(
    snapshot: Snapshot, active: dict[int, Override], later: Bools, want_s: Floats, lever: LeverConfig
) -> Iterator[StartChange]:
    """Changes of starts that are on record."""
    for row, record in active.items():
        if not later[row]:
            yield _restore(snapshot, row, record, "it may start now")
            continue
        target_s, until_s = _target_s(snapshot, float(want_s[row]), lever), float(record.sent)
        near = want_s[row] - snapshot.now_s <= lever.start_most_s
        stale = until_s - snapshot.now_s < lever.start_most_s / 2 or until_s > target_s + SAME_S
        if abs(target_s - until_s) > SAME_S and (near or stale):
            yield _change_of(snapshot, row, target_s, record)


def _new(snapshot: Snapshot, rows: Int64s, want_s: Floats, lever: LeverConfig) -> Iterator[StartChange]:
    """Starts of jobs that have none of ours. One that is on record for them was not sent, or is reached."""
    known = {(record.job_id, record.submit_s): record for record in of_field(snapshot.overrides, FIELD) if record.open}
    for row in rows.tolist():
        key, base_s = snapshot.jobs.id_and_submit(row), float(np.nan_to_num(snapshot.jobs.eligible_s[row]))
        before = replace(known.get(key, Override(*key, FIELD, 0.0, 0.0)), base=base_s)
        yield _change_of(snapshot, row, _target_s(snapshot, float(want_s[row]), lever), before)


def _target_s(snapshot: Snapshot, want_s: float, lever: LeverConfig) -> float:
    """The start to write, in whole seconds [Unix s]."""
    return float(math.ceil(min(want_s, snapshot.now_s + lever.start_most_s)))


def _change_of(snapshot: Snapshot, row: int, until_s: float, before: Override) -> StartChange:
    """The write, and the record that still knows of the starts before."""
    key, was_s = snapshot.jobs.id_and_submit(row), float(snapshot.jobs.eligible_s[row])
    action = SetStart(*key, "the policy starts it later", f"defer-{key[0]}", until_s, was_s)
    values = dict.fromkeys(at_s for at_s in (*before.values, before.sent) if float(at_s) > snapshot.now_s)
    return action, (Override(*key, FIELD, before.base, until_s, values=tuple(values)),)


def _restore(snapshot: Snapshot, row: int, record: Override, note: str) -> StartChange:
    key = snapshot.jobs.id_and_submit(row)
    was_s = float(snapshot.jobs.eligible_s[row])
    action = SetStart(*key, note, f"defer-{key[0]}", snapshot.now_s, was_s, base=snapshot.now_s)
    return action, (replace(record, base=0.0).closed(note),)

"""Overrides of nice and site factor: what was sent, what its user chose, and whether somebody else changed it.

Pure: the same rules serve the ledger and the replay's memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from slurmsched.config import LeverConfig
from slurmsched.db.remembered_jobs import JobRows
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s, column
from slurmsched.model.jobs import NAN, Jobs
from slurmsched.model.overrides import FieldValue, Override, OverrideState
from slurmsched.model.plan import Outcome, SetPriority
from slurmsched.plain_text import pluralize
from slurmsched.planning.priorities.priority_fields import PRIORITY_FIELDS

LONGEST_BACKOFF_S = 86_400.0  # however often somebody else changes a job, it is tried again after a day
NAMED = 5  # jobs named in a warning


@dataclass(frozen=True, slots=True)
class PriorityOverride(Override):
    """The override of a job's nice or site factor.

    It is abandoned while the value is somebody else's. values: what was there before a write that got no answer.
    backoffs: how often somebody else changed it so far.
    backoff_until_s: nothing is written before [Unix s].
    """

    restarts: int = 0
    backoff_until_s: float = 0.0
    backoffs: int = 0

    @property
    def sure(self) -> bool:
        """Whether Slurm answered the last write."""
        return not self.values

    @property
    def earlier(self) -> FieldValue:
        """What may be there in place of the value sent."""
        return self.values[0] if self.values else self.sent


@dataclass(frozen=True, slots=True, eq=False)
class PriorityOverrides(JobRows):
    """One row a job, see PriorityOverride; all of one field."""

    job_id: Int64s = column(np.int64, 0)
    submit_s: Floats = column(np.float64, NAN)
    restarts: Int32s = column(np.int32, 0)
    base: Int64s = column(np.int64, 0)
    earlier: Int64s = column(np.int64, 0)
    sent: Int64s = column(np.int64, 0)
    sure: Bools = column(np.bool_, True)
    abandoned: Bools = column(np.bool_, False)
    backoff_until_s: Floats = column(np.float64, 0.0)
    backoffs: Int32s = column(np.int32, 0)

    @property
    def ours(self) -> Bools:
        """Whether slurmsched sent the value, so it was neither found there nor restored. (N,) bool."""
        return (self.sent != self.base) & ~self.abandoned

    def row(self, at: int, field: str) -> PriorityOverride:
        """One row as an override of this field."""
        found = self.values(at) | {"field": field}
        sure, earlier, abandoned = found.pop("sure"), found.pop("earlier"), found.pop("abandoned")
        state = OverrideState.ABANDONED if abandoned else OverrideState.ACTIVE
        return PriorityOverride(**found, values=() if sure else (earlier,), state=state)


@dataclass(frozen=True, slots=True)
class OutsideChange:
    """The fact that a field holds another value than the one we wrote, or its user had chosen, last."""

    job_id: int
    first_submit_s: float
    field: str
    expected: int
    found: int
    base: int
    seen_s: float
    backoff_until_s: float
    cause: str


@dataclass(slots=True)
class PriorityCheck:
    """What one look at the queue adds.

    columns: of Jobs, each (N,).
    suspects: rows of jobs that have a value as we would write it, without a record.
    """

    overrides: PriorityOverrides
    columns: dict[str, Any]
    changed: list[PriorityOverride] = field(default_factory=list)
    changes: list[OutsideChange] = field(default_factory=list)
    suspects: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))


def value(jobs: Jobs, kind: str) -> Int64s:
    """Nice or site factor of each job now. (N,) int64."""
    return PRIORITY_FIELDS[kind].now(jobs)


def check(overrides: PriorityOverrides, jobs: Jobs, now_s: float, config: LeverConfig) -> PriorityCheck:
    """The overrides after this look at the queue: changes by others are noted and respected."""
    now = value(jobs, config.kind)
    at, known = match(overrides, jobs, now)
    ours = _as_written(overrides, at, now) | PRIORITY_FIELDS[config.kind].hidden(jobs)
    changed, changes = [], []
    for row in np.flatnonzero(known & jobs.pending & ~ours).tolist():
        theirs, change = _changed(overrides.row(at[row], config.kind), jobs, row, now_s, config)
        changed.append(theirs)
        changes.append(change)
    for row, lead in _strayed(overrides, jobs, now, known, config.kind):
        of_array = replace(overrides.row(lead, config.kind), job_id=int(jobs.job_id[row]))
        theirs, change = _changed(of_array, jobs, row, now_s, config)
        changed.append(theirs)
        changes.append(change)
    changed += _redated(overrides.merged(changed), now_s, config)
    overrides = overrides.merged(changed)
    at, known = match(overrides, jobs, now)
    suspects = ~known & jobs.pending & _like_ours(now, config)
    columns = _columns(overrides, at, known, now, now_s, config)
    columns["backoff"] |= suspects
    return PriorityCheck(overrides, columns, changed, changes, np.flatnonzero(suspects))


def match(overrides: PriorityOverrides, jobs: Jobs, now: Int64s) -> tuple[Int64s, Bools]:
    """For each row of jobs the override that is its own or its leader's, and whether there is one (ids wrap around).

    now: (N,) int64, nice or site factor.

    Slurm writes an array's record and a het job's leader through to their tasks and components. A task that starts
    takes its array's value along. A job that holds this value has its leader's row.
    """
    at, known = overrides.find(jobs.job_id)
    if not len(overrides):
        return at, known
    newer = (jobs.restarts < overrides.restarts[at]) | ((jobs.restarts == 0) & (jobs.submit_s > overrides.submit_s[at]))
    lead, led = overrides.find(jobs.leader)
    led &= (jobs.leader != jobs.job_id) & (now == overrides.sent[lead])
    led &= (jobs.restarts > 0) | (jobs.submit_s <= overrides.submit_s[lead])
    return np.where(led, lead, at), led | (known & ~newer)


def _as_written(overrides: PriorityOverrides, at: Int64s, now: Int64s) -> Bools:
    """Whether the value is the one we wrote or, after a write without an answer, what was there before. (N,) bool."""
    if not len(overrides):
        return np.ones(len(now), np.bool_)
    unsure = ~overrides.sure[at] & ((now == overrides.earlier[at]) | (now == overrides.base[at]))
    return (now == overrides.sent[at]) | unsure


def _strayed(
    overrides: PriorityOverrides, jobs: Jobs, now: Int64s, known: Bools, kind: str
) -> Iterator[tuple[int, int]]:
    """Rows of waiting array tasks to which somebody gave another value than we gave their array; rows of its own."""
    if not len(overrides):
        return
    lead, led = overrides.find(jobs.leader)
    led &= jobs.pending & (jobs.array_job_id > 0) & (jobs.leader != jobs.job_id) & ~known
    led &= (
        overrides.ours[lead]
        & overrides.sure[lead]
        & (now != overrides.sent[lead])
        & ~PRIORITY_FIELDS[kind].hidden(jobs)
    )
    led &= (jobs.restarts > 0) | (jobs.submit_s <= overrides.submit_s[lead])
    for row in np.flatnonzero(led).tolist():
        yield row, int(lead[row])


def adopt(overrides: PriorityOverrides, jobs: Jobs, records: Iterable[Override], kind: str) -> list[PriorityOverride]:
    """Overrides of jobs that hold a value that the journal knows and the ledger does not.

    After a crash between writing to Slurm and remembering it, and after `undo`, the journal is ahead of the ledger.
    The base counts as ours if it is the last value sent: else its user chose it again.
    """
    known_of = {record.job_id: record for record in records if record.field == kind}
    if not known_of:
        return []
    now = value(jobs, kind)
    at, known = match(overrides, jobs, now)
    job_ids = list(known_of)
    adopted: list[PriorityOverride] = []
    for row in np.flatnonzero(np.isin(jobs.job_id, job_ids) | np.isin(jobs.leader, job_ids)).tolist():
        job_id, found = int(jobs.job_id[row]), int(now[row])
        before = overrides.row(at[row], kind) if known[row] else None
        record = known_of.get(job_id) or known_of[int(jobs.leader[row])]
        told_of = record.meant(found) and _same_submit(jobs, row, record.submit_s)
        undone = found == record.base and found == record.sent and before is not None
        if told_of and (undone or found != record.base) and (before is None or found != before.sent):
            submit_s, restarts = float(jobs.submit_s[row]), int(jobs.restarts[row])
            adopted.append(
                PriorityOverride(job_id, submit_s, kind, record.base, found, restarts=restarts,
                                 backoffs=before.backoffs if before else 0)
            )  # fmt: skip
    return adopted


def remember(
    overrides: PriorityOverrides, jobs: Jobs, outcomes: Iterable[Outcome], kind: str
) -> list[PriorityOverride]:
    """Overrides of the jobs that were written to, or may have been."""
    made: dict[int, PriorityOverride] = {}
    at, known = match(overrides, jobs, value(jobs, kind))
    for outcome in outcomes:
        action = outcome.action
        row = int(np.searchsorted(jobs.job_id, action.job_id))
        if not isinstance(action, SetPriority) or action.kind != kind or row == len(jobs):
            continue
        if jobs.job_id[row] != action.job_id or (outcome.status == "refused" and not jobs.array_job_id[row]):
            continue  # of an array Slurm may refuse one task and take the rest
        before = overrides.row(at[row], kind) if known[row] else None
        if action.new == action.old and before is not None:
            continue  # an array task keeps what its user gave it
        made[action.job_id] = PriorityOverride(
            action.job_id,
            float(jobs.submit_s[row]),
            kind,
            action.base,
            action.new,
            values=() if outcome.status == "written" else (action.old,),
            restarts=int(jobs.restarts[row]),
            backoffs=before.backoffs if before else 0,
        )
    return list(made.values())


def gone(overrides: PriorityOverrides, jobs: Jobs) -> list[int]:
    """Ids of jobs that left the queue, and with them every task and component that may hold their value."""
    return overrides.job_id[~np.isin(overrides.job_id, np.concatenate([jobs.job_id, jobs.leader]))].tolist()


def warning(jobs: Jobs, suspects: Int64s, kind: str) -> str:
    """The warning that jobs have values that look like slurmsched's; empty if none has."""
    if not len(suspects):
        return ""
    named = ", ".join(map(str, jobs.job_id[suspects[:NAMED]].tolist())) + (", ..." if len(suspects) > NAMED else "")
    word = kind.replace("_", " ")
    return (
        f"{pluralize(len(suspects), 'job has', 'jobs have')} a {word} as slurmsched writes it, which is "
        "in neither ledger nor journal. It is not changed "
        f"({'job' if len(suspects) == 1 else 'jobs'} {named}). If their users did not choose "
        "it, set it back with "
        f"`scontrol update jobid=ID {'nice' if kind == 'nice' else 'sitefactor'}=0`"
    )


def _like_ours(now: Int64s, config: LeverConfig) -> Bools:
    """Values that only an operator can have given. A user's own nice is 0 or more, however large. (N,) bool."""
    return (-now if config.kind == "nice" else np.abs(now)) >= config.floor


def _same_submit(jobs: Jobs, row: int, submit_s: float) -> bool:
    now_s = float(jobs.submit_s[row])
    return now_s == submit_s or (int(jobs.restarts[row]) > 0 and submit_s < now_s)


def _changed(
    before: PriorityOverride, jobs: Jobs, row: int, now_s: float, config: LeverConfig
) -> tuple[PriorityOverride, OutsideChange]:
    found, kind, ours = int(value(jobs, config.kind)[row]), config.kind, before.open and not before.abandoned
    base = found if kind == "nice" else int(before.base)
    backoffs = before.backoffs + 1 if ours else max(before.backoffs, 1)
    until_s = now_s + float(_backoff_s(backoffs, config))
    theirs = PriorityOverride(
        before.job_id, float(jobs.submit_s[row]), kind, base, found, OverrideState.ABANDONED,
        restarts=int(jobs.restarts[row]), backoff_until_s=until_s, backoffs=backoffs,
    )  # fmt: skip
    cause = f"someone set it after slurmsched wrote {before.sent}" if ours else "someone set it anew"
    first_s, expected = float(jobs.first_submit_s[row]), int(before.sent)
    return theirs, OutsideChange(before.job_id, first_s, kind, expected, found, base, now_s, until_s, cause)


def _backoff_s(backoffs: Any, config: LeverConfig) -> Any:
    """How long a job is not written to after somebody else changed it this often [s]."""
    return np.minimum(config.backoff_s * 2.0 ** np.clip(backoffs - 1, 0, 30), LONGEST_BACKOFF_S)


def _redated(overrides: PriorityOverrides, now_s: float, config: LeverConfig) -> list[PriorityOverride]:
    """Those with more than twice their back-off left, since the clock was set back or backoff_s lowered: with as much
    as a change now would get."""
    wait_s = _backoff_s(overrides.backoffs, config)
    rows = np.flatnonzero(overrides.backoff_until_s - now_s > 2 * wait_s).tolist()
    return [replace(overrides.row(row, config.kind), backoff_until_s=now_s + float(wait_s[row])) for row in rows]


def _columns(
    overrides: PriorityOverrides, at: Int64s, known: Bools, now: Int64s, now_s: float, config: LeverConfig
) -> dict[str, Any]:
    base = now.copy() if config.kind == "nice" else np.zeros(len(now), np.int64)
    written, backoff = np.zeros(len(now), np.bool_), np.zeros(len(now), np.bool_)
    if len(overrides):
        base = np.where(known, overrides.base[at], base)
        written = known & overrides.ours[at]
        backoff = known & (overrides.backoff_until_s[at] > now_s)
    return {"base_nice": base, "written": written, "backoff": backoff}

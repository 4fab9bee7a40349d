"""What we last wrote to each job, what its user chose, and whether someone changed it behind our back.

Pure: the same rules serve the ledger and the replay's memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from slurmsched.config import Lever as LeverConfig
from slurmsched.db.memory import Memory
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s
from slurmsched.model.jobs import NAN, Jobs
from slurmsched.model.plan import Outcome, SetLever
from slurmsched.model.table import column
from slurmsched.planning.levers import LEVERS
from slurmsched.protocols import LeverRecord
from slurmsched.words import some

LONGEST_BACKOFF_S = 86_400.0  # however often a job is changed behind our back, it is tried again after a day
NAMED = 5  # jobs named in a warning


@dataclass(frozen=True, slots=True, eq=False)
class Levers(Memory):
    """One row a job whose lever has a history, see Lever."""

    job_id: Int64s = column(np.int64, 0)
    submit_s: Floats = column(np.float64, NAN)
    restarts: Int32s = column(np.int32, 0)
    base: Int64s = column(np.int64, 0)
    old: Int64s = column(np.int64, 0)
    new: Int64s = column(np.int64, 0)
    sure: Bools = column(np.bool_, True)
    written: Bools = column(np.bool_, False)
    backoff_until_s: Floats = column(np.float64, 0.0)
    backoffs: Int32s = column(np.int32, 0)


@dataclass(frozen=True, slots=True)
class Lever:
    """One job's lever.

    base: what user or admin chose. old, new: of the last write; not sure: no answer came, both may be there.
    written: `new` is ours (not: found there). backoffs: changes behind our back so far.
    """

    job_id: int
    submit_s: float
    restarts: int
    base: int
    old: int
    new: int
    sure: bool = True
    written: bool = True
    backoff_until_s: float = 0.0
    backoffs: int = 0


@dataclass(frozen=True, slots=True)
class LeverChange:
    """The fact that a lever holds another value than the one we wrote, or its user had chosen, last."""

    job_id: int
    first_submit_s: float
    kind: str
    expected: int
    found: int
    base: int
    seen_s: float
    backoff_until_s: float
    cause: str


@dataclass(slots=True)
class Check:
    """What one look at the levers adds. columns: of Jobs, each (N,). suspects: rows of jobs that have a value
    as we would write it, without a record."""

    levers: Levers
    columns: dict[str, Any]
    changed: list[Lever] = field(default_factory=list)
    changes: list[LeverChange] = field(default_factory=list)
    suspects: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))


def value(jobs: Jobs, kind: str) -> Int64s:
    """The lever's value now, of each job. (N,) int64."""
    return LEVERS[kind].now(jobs)


def check(levers: Levers, jobs: Jobs, now_s: float, config: LeverConfig) -> Check:
    """The levers after this look at the queue: changes behind our back are noted and respected."""
    now = value(jobs, config.kind)
    at, known = match(levers, jobs, now)
    ours = _ours(levers, at, now) | LEVERS[config.kind].hidden(jobs)
    changed, changes = [], []
    for row in np.flatnonzero(known & jobs.pending & ~ours).tolist():
        lever, change = _changed(Lever(**levers.values(at[row])), jobs, row, now_s, config)
        changed.append(lever)
        changes.append(change)
    for row, lead in _strayed(levers, jobs, now, known, config.kind):
        of_array = replace(Lever(**levers.values(lead)), job_id=int(jobs.job_id[row]))
        lever, change = _changed(of_array, jobs, row, now_s, config)
        changed.append(lever)
        changes.append(change)
    changed += _redated(levers.merged(changed), now_s, config)
    levers = levers.merged(changed)
    at, known = match(levers, jobs, now)
    suspects = ~known & jobs.pending & _like_ours(now, config)
    columns = _columns(levers, at, known, now, now_s, config)
    columns["backoff"] |= suspects
    return Check(levers, columns, changed, changes, np.flatnonzero(suspects))


def match(levers: Levers, jobs: Jobs, now: Int64s) -> tuple[Int64s, Bools]:
    """For each row of jobs the row of levers that tells of it, and whether there is one (ids wrap around).

    now: (N,) int64, lever values. Slurm writes an array's record and a het job's leader through to their tasks and
    components, and a task that starts takes its array's value along: one that holds it is told of by its leader's row.
    """
    at, known = levers.find(jobs.job_id)
    if not len(levers):
        return at, known
    newer = (jobs.restarts < levers.restarts[at]) | ((jobs.restarts == 0) & (jobs.submit_s > levers.submit_s[at]))
    lead, led = levers.find(jobs.leader)
    led &= (jobs.leader != jobs.job_id) & (now == levers.new[lead])
    led &= (jobs.restarts > 0) | (jobs.submit_s <= levers.submit_s[lead])
    return np.where(led, lead, at), led | (known & ~newer)


def _ours(levers: Levers, at: Int64s, now: Int64s) -> Bools:
    """Whether the value is the one we wrote or, after a write without an answer, what was there before. (N,) bool."""
    if not len(levers):
        return np.ones(len(now), np.bool_)
    unsure = ~levers.sure[at] & ((now == levers.old[at]) | (now == levers.base[at]))
    return (now == levers.new[at]) | unsure


def _strayed(levers: Levers, jobs: Jobs, now: Int64s, known: Bools, kind: str) -> Iterator[tuple[int, int]]:
    """Rows of waiting array tasks to which somebody gave another value than we gave their array, and of its lever."""
    if not len(levers):
        return
    lead, led = levers.find(jobs.leader)
    led &= jobs.pending & (jobs.array_job_id > 0) & (jobs.leader != jobs.job_id) & ~known
    led &= levers.written[lead] & levers.sure[lead] & (now != levers.new[lead]) & ~LEVERS[kind].hidden(jobs)
    led &= (jobs.restarts > 0) | (jobs.submit_s <= levers.submit_s[lead])
    for row in np.flatnonzero(led).tolist():
        yield row, int(lead[row])


def adopt(levers: Levers, jobs: Jobs, records: Iterable[LeverRecord], kind: str) -> list[Lever]:
    """Levers of jobs that hold a value that the journal knows and the ledger does not.

    After a crash between writing to Slurm and remembering it, and after `undo`, the journal is ahead of the ledger.
    The base counts as ours if it is the last value sent: else its user chose it again.
    """
    known_of = {record.job_id: record for record in records if record.kind == kind}
    if not known_of:
        return []
    now = value(jobs, kind)
    at, known = match(levers, jobs, now)
    told = list(known_of)
    adopted: list[Lever] = []
    for row in np.flatnonzero(np.isin(jobs.job_id, told) | np.isin(jobs.leader, told)).tolist():
        job_id, found = int(jobs.job_id[row]), int(now[row])
        before = Lever(**levers.values(at[row])) if known[row] else None
        record = known_of.get(job_id) or known_of[int(jobs.leader[row])]
        told_of = found in record.values and _same_submit(jobs, row, record.submit_s)
        undone = found == record.base and found == record.last and before is not None
        if told_of and (undone or found != record.base) and (before is None or found != before.new):
            submit_s, restarts = float(jobs.submit_s[row]), int(jobs.restarts[row])
            adopted.append(
                Lever(job_id, submit_s, restarts, record.base, found, found, written=not undone,
                      backoffs=before.backoffs if before else 0)
            )  # fmt: skip
    return adopted


def remember(levers: Levers, jobs: Jobs, outcomes: Iterable[Outcome], kind: str) -> list[Lever]:
    """Levers of the jobs that were written to, or may have been."""
    made: dict[int, Lever] = {}
    at, known = match(levers, jobs, value(jobs, kind))
    for outcome in outcomes:
        action = outcome.action
        row = int(np.searchsorted(jobs.job_id, action.job_id))
        if not isinstance(action, SetLever) or action.kind != kind or row == len(jobs):
            continue
        if jobs.job_id[row] != action.job_id or (outcome.status == "refused" and not jobs.array_job_id[row]):
            continue  # of an array Slurm may refuse one task and take the rest
        before = Lever(**levers.values(at[row])) if known[row] else None
        if action.new == action.old and before is not None:
            continue  # an array task keeps what its user gave it
        made[action.job_id] = Lever(
            action.job_id,
            float(jobs.submit_s[row]),
            int(jobs.restarts[row]),
            action.base,
            action.old,
            action.new,
            sure=outcome.status == "written",
            written=action.new != action.base,
            backoffs=before.backoffs if before else 0,
        )
    return list(made.values())


def gone(levers: Levers, jobs: Jobs) -> list[int]:
    """Ids of levers whose job has left the queue, and with it every task and component that may hold their value."""
    return levers.job_id[~np.isin(levers.job_id, np.concatenate([jobs.job_id, jobs.leader]))].tolist()


def warning(jobs: Jobs, suspects: Int64s, kind: str) -> str:
    """Says that jobs hold values that look like ours; empty if none does."""
    if not len(suspects):
        return ""
    named = ", ".join(map(str, jobs.job_id[suspects[:NAMED]].tolist())) + (", ..." if len(suspects) > NAMED else "")
    word = kind.replace("_", " ")
    return (
        f"{some(len(suspects), 'job has', 'jobs have')} a {word} as slurmsched writes it, of which neither ledger nor "
        f"journal knows: left alone ({'job' if len(suspects) == 1 else 'jobs'} {named}). If their users did not choose "
        "it, set it back with "
        f"`scontrol update jobid=ID {'nice' if kind == 'nice' else 'sitefactor'}=0`"
    )


def _like_ours(now: Int64s, config: LeverConfig) -> Bools:
    """Values that only an operator can have given. A user's own nice is 0 or more, however large. (N,) bool."""
    return (-now if config.kind == "nice" else np.abs(now)) >= config.floor


def _same_submit(jobs: Jobs, row: int, submit_s: float) -> bool:
    now_s = float(jobs.submit_s[row])
    return now_s == submit_s or (int(jobs.restarts[row]) > 0 and submit_s < now_s)


def _changed(lever: Lever, jobs: Jobs, row: int, now_s: float, config: LeverConfig) -> tuple[Lever, LeverChange]:
    found = int(value(jobs, config.kind)[row])
    base = found if config.kind == "nice" else lever.base
    backoffs = lever.backoffs + 1 if lever.written else max(lever.backoffs, 1)
    until_s = now_s + float(_backoff_s(backoffs, config))
    job_id, restarts = lever.job_id, int(jobs.restarts[row])
    now = Lever(job_id, float(jobs.submit_s[row]), restarts, base, found, found, True, False, until_s, backoffs)
    cause = f"someone set it after slurmsched wrote {lever.new}" if lever.written else "someone set it anew"
    first_s = float(jobs.first_submit_s[row])
    return now, LeverChange(job_id, first_s, config.kind, lever.new, found, base, now_s, until_s, cause)


def _backoff_s(backoffs: Any, config: LeverConfig) -> Any:
    """How long a job is left alone that was changed behind our back so often [s]."""
    return np.minimum(config.backoff_s * 2.0 ** np.clip(backoffs - 1, 0, 30), LONGEST_BACKOFF_S)


def _redated(levers: Levers, now_s: float, config: LeverConfig) -> list[Lever]:
    """Those with more than twice their back-off left, since the clock was set back or backoff_s lowered: with as much
    as a change now would get."""
    wait_s = _backoff_s(levers.backoffs, config)
    rows = np.flatnonzero(levers.backoff_until_s - now_s > 2 * wait_s).tolist()
    return [replace(Lever(**levers.values(row)), backoff_until_s=now_s + float(wait_s[row])) for row in rows]


def _columns(
    levers: Levers, at: Int64s, known: Bools, now: Int64s, now_s: float, config: LeverConfig
) -> dict[str, Any]:
    base = now.copy() if config.kind == "nice" else np.zeros(len(now), np.int64)
    written, backoff = np.zeros(len(now), np.bool_), np.zeros(len(now), np.bool_)
    if len(levers):
        base = np.where(known, levers.base[at], base)
        written = known & levers.written[at]
        backoff = known & (levers.backoff_until_s[at] > now_s)
    return {"base_nice": base, "written": written, "backoff": backoff}

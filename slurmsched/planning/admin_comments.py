"""AdminComment: what slurmsched did to a job, as a text that its user can read by Slurm's own commands.

The text has one part for each kind of change, so it is short and does not grow:

    slurmsched: requeued 2026-11-30T05:07Z for job 17; node list n[1-2]; GPUs gpu:2, asked gpu:4

It names jobs but no users: Slurm shows it to the owner of the job, also where PrivateData hides other users' jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from slurmsched.config import IdleGpusConfig, ScopeConfig
from slurmsched.model import Operation, Outcome, Override, Rights, SetAdminComment, Snapshot
from slurmsched.model.columns import Bools
from slurmsched.model.hostlists import folded
from slurmsched.model.operations import OperationStage, Purpose
from slurmsched.planning.gate import FOREIGN_COMMENT
from slurmsched.planning.job_scope import scoped
from slurmsched.planning.priorities.order import NO_IDLE, idle_jobs, some_idle
from slurmsched.planning.proposals import Budget, Lever, Proposal, Records, carried_out

if TYPE_CHECKING:
    from slurmsched.model import Ranking
    from slurmsched.planning.planner import Planner

FIELD = SetAdminComment.field
PREFIX = "slurmsched: "
LONGEST = 240  # characters of a text
LONGEST_NAME = 60  # characters of a hostlist or a request in it
ROUNDED_S = 600.0  # a promised start is named to ten minutes: it moves a little in most cycles
_ODD = re.compile(r"[^\w .,:;@+\[\]-]", re.ASCII)
# The parts of a text in their order, by their first words.
_REQUEUED, _KEPT, _LIST, _TYPE, _SIZE, _CPUS = "requeued", "nodes kept", "node list", "GPU type", "GPUs", "CPUs"
_PART, _MEMORY, IDLE = "part of a GPU", "memory in MiB", "idle"
_HEADS = (_REQUEUED, _KEPT, _LIST, _TYPE, _SIZE, _PART, _CPUS, _MEMORY, IDLE)
_NAMELESS = re.compile(rf"{_REQUEUED} [\d:TZ-]+ for job \d+", re.ASCII)
_BY_FIELD = {
    "node_list": _LIST, "shard_node": _LIST, "gpu_type": _TYPE, "size": _SIZE, "shards": _PART, "cpus": _CPUS,
    "memory": _MEMORY,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AdminCommentLever(Lever):
    """Writes the texts that have changed. Those on record are also removed after the lever is turned off.

    An Administrator writes to slurmctld. Slurm lets an Operator write to the job's record in slurmdbd only.
    """

    on: bool
    scope: ScopeConfig
    idle: IdleGpusConfig = NO_IDLE

    @classmethod
    def of(cls, planner: Planner) -> AdminCommentLever:
        return cls(planner.lever.admin_comment, planner.scope, planner.idle)

    def propose(self, snapshot: Snapshot, ranking: Ranking, budget: Budget) -> Proposal:
        wanted = admin_comments(snapshot, self.idle) if self.on else {}
        return _changes(snapshot, wanted, scoped(snapshot.jobs, self.scope), budget.writes, _allowed(snapshot))

    @staticmethod
    def restore(snapshot: Snapshot) -> Proposal:
        """Of each text on record, also where the right is lacking: then the gate or Slurm refuses it, and says so."""
        everywhere = np.ones(len(snapshot.jobs), np.bool_)
        return _changes(snapshot, {}, everywhere, len(snapshot.jobs), (True, False))

    @staticmethod
    def settled(planned: Records, before: Records, answers: Sequence[Outcome], steps: int) -> Records:
        """As of any lever, but a job with a text of somebody else is left alone until it is submitted again.

        A text is on record as unsure, among its own `values`, until Slurm took it: a cycle sends an unsure one again.
        """
        (record,) = planned
        if any(outcome.message.startswith(FOREIGN_COMMENT) for outcome in answers):
            return (record.closed(FOREIGN_COMMENT, abandoned=True),)
        if record.open and carried_out(answers):
            return (replace(record, values=tuple(each for each in record.values if each != record.sent)),)
        return Lever.settled(planned, before, answers, steps)


def _allowed(snapshot: Snapshot) -> tuple[bool, ...]:
    """Where Slurm lets us write the field: True = in slurmdbd, False = in slurmctld."""
    rights = snapshot.site.rights
    return ((False,) if rights >= Rights.ADMINISTRATOR else ()) + (
        (True,) if rights >= Rights.OPERATOR and snapshot.site.accounts_in_slurmdbd else ()
    )


def admin_comments(snapshot: Snapshot, idle: IdleGpusConfig = NO_IDLE) -> dict[int, str]:
    """What the AdminComment of each job is to say, by row of the job; of jobs to which nothing was done there is none.

    What is on record decides. What holds no more of a waiting job leaves the text. Of a running job it stays, as does
    the last requeue. That GPUs are idle is said as long as it holds. idle: whether that is said, and of whom.
    """
    jobs, parts = snapshot.jobs, dict[int, dict[str, str]]()
    pending = jobs.pending
    for row, head, text in (*_fields(snapshot), *_operations(snapshot), *_idle(snapshot, idle)):
        parts.setdefault(row, {})[head] = text
    for record in snapshot.overrides:
        row = jobs.row_of(record.job_id)
        if record.field == FIELD and record.open and row >= 0:
            stays = {_REQUEUED} if pending[row] else {*_HEADS} - {IDLE}
            old = {head: text for head, text in _parts(str(record.sent)).items() if head in stays}
            parts[row] = old | parts.get(row, {})
    return {row: _text(found) for row, found in parts.items() if found and _own_record(snapshot, row)}


def _own_record(snapshot: Snapshot, row: int) -> bool:
    """Whether a write to the job's id reaches this job alone. That of an array or a het job reaches all its parts."""
    jobs = snapshot.jobs
    return not (jobs.finished[row] or jobs.leader[row] == jobs.job_id[row])


def _fields(snapshot: Snapshot) -> Iterator[tuple[int, str, str]]:
    """Row, head and text of every field that slurmsched has changed."""
    for record in snapshot.overrides:
        head, row = _BY_FIELD.get(record.field), snapshot.jobs.row_of(record.job_id)
        if head and record.open and row >= 0:
            asked = f", asked {_short(str(record.base))}" if record.base else ""
            sent = _nodes(str(record.sent)) if head == _LIST else _short(str(record.sent))
            yield row, head, f"{head} {sent}{asked}"


def _operations(snapshot: Snapshot) -> Iterator[tuple[int, str, str]]:
    """Row, head and text of what preemptions and gang reservations did, the latest last."""
    jobs = snapshot.jobs
    for operation in (*snapshot.past_operations, *snapshot.operations):
        for victim in operation.victims:
            row = jobs.row_of(victim.job_id)
            if row >= 0 and jobs.restarts[row] == victim.restarts + 1 and _during(operation, float(jobs.submit_s[row])):
                yield row, _REQUEUED, f"{_REQUEUED} {_time(float(jobs.submit_s[row]))} for job {operation.job_id}"
        row = jobs.row_of(operation.job_id)
        if row >= 0 and operation.begun_s and not operation.ending and operation.stage != OperationStage.CLOSED:
            yield row, _KEPT, f"{_KEPT} for it {_nodes(operation.nodes)}{_promised(operation)}"


def says_idle(text: str) -> bool:
    """Whether one of our texts says that GPUs are idle."""
    return IDLE in _parts(text)


def _idle(snapshot: Snapshot, idle: IdleGpusConfig) -> Iterator[tuple[int, str, str]]:
    """Row, head and text of idle GPUs of running jobs. Only counts: a changing percentage would be written each
    time."""
    jobs = snapshot.jobs
    for row in np.flatnonzero(idle_jobs(jobs, idle) | some_idle(jobs, idle)).tolist() if idle.tell else ():
        gpus, unused = int(jobs.gpus[row]), float(jobs.idle_gpus[row])
        text = (
            f"{unused:.0f} of {gpus} GPUs" if unused > 0 else f"GPUs, used less than {idle.below_pct:g} pct of the time"
        )
        yield row, IDLE, f"{IDLE} {text}"


def _during(operation: Operation, requeued_s: float) -> bool:
    """Whether a job was requeued while the operation was under way: a requeue sets the submit time."""
    ended_s = operation.stage_s if operation.stage == OperationStage.CLOSED else np.inf
    return operation.begun_s - 1 <= requeued_s <= ended_s + 1


def _promised(operation: Operation) -> str:
    if operation.purpose != Purpose.RESERVE or not operation.promised_s:
        return ""
    return f" from about {_time(np.ceil(operation.promised_s / ROUNDED_S) * ROUNDED_S)}"


def _changes(
    snapshot: Snapshot, wanted: Mapping[int, str], scope: Bools, most: int, allowed: tuple[bool, ...]
) -> Proposal:
    """The writes that make the texts the wanted ones, and their records. wanted: by row; else none.

    scope: (N,) bool, jobs that may get a text; from any other it is only taken. most: writes. allowed: as _allowed.
    """
    known = {snapshot.jobs.row_of(record.job_id): record for record in snapshot.overrides if record.field == FIELD}
    rows = sorted({*(row for row in wanted if scope[row]), *(row for row, record in known.items() if record.open)})
    pairs = [pair for row in rows if row >= 0
             if (pair := _write(snapshot, row, wanted.get(row, "") if scope[row] else "", known.get(row)))
             and pair[0].accounting in allowed]  # fmt: skip
    return Proposal.of_changes(pairs, most)


def _write(snapshot: Snapshot, row: int, text: str, known: Override | None) -> tuple[SetAdminComment, Records] | None:
    """The write of one job, and its records; None where the text is there, or the field is somebody else's."""
    key = snapshot.jobs.id_and_submit(row)
    same_run = known is not None and known.submit_s == key[1]
    has = str(known.sent) if known is not None else ""
    accounting = _place(snapshot, known, same_run)
    unsure = known is not None and text in known.values
    if snapshot.jobs.finished[row] or (known is not None and known.abandoned and same_run):
        return None
    there = same_run or not accounting or not has  # of a requeued job slurmdbd begins another record
    if text == has and there and not unsure:
        return None
    texts = _distinct(known.values if known is not None else (), has)
    why = "what slurmsched did to it" if text else "nothing that slurmsched did to it holds any more"
    action = SetAdminComment(*key, why, f"comment-{key[0]}", text, has, "", texts, accounting)
    record = Override(*key, FIELD, "", text, values=_distinct(texts, text), note=why, accounting=accounting)
    return action, (record,)


def _place(snapshot: Snapshot, known: Override | None, same_run: bool) -> bool:
    """Whether the text goes to slurmdbd. One that is there is changed in its place, also if the right has changed."""
    if known is not None and known.open and (same_run or not known.accounting):
        return known.accounting
    return snapshot.site.rights < Rights.ADMINISTRATOR and snapshot.site.accounts_in_slurmdbd


def _distinct(values: Sequence[object], more: object) -> tuple[str, ...]:
    """The texts that a job may have, the latest four, `more` the last."""
    return tuple(str(each) for each in (*(value for value in values if value != more), more) if each)[-4:]


def hidden_admin_comments(snapshot: Snapshot, hidden: Snapshot) -> Records:
    """The overrides of an anonymised snapshot, with texts that are written again or not as those of the snapshot are.

    snapshot: as read. hidden: the same with names hidden, its overrides in the same order.
    """
    pairs = [(real, _bare(real, made)) for real, made in zip(snapshot.overrides, hidden.overrides, strict=True)]
    wanted = admin_comments(snapshot)
    after = admin_comments(replace(hidden, overrides=tuple(made for _, made in pairs)))
    there = [snapshot.jobs.row_of(real.job_id) if real.field == FIELD else -1 for real, _ in pairs]
    return tuple(
        _saying(real, made, after[row]) if row in after and wanted.get(row) == real.sent else made
        for row, (real, made) in zip(there, pairs, strict=True)
    )


def _bare(real: Override, made: Override) -> Override:
    """An anonymised record whose text has all its parts without their names."""
    if real.field != FIELD or not real.open:
        return made
    parts = _parts(str(real.sent))
    bare = {head: part if _NAMELESS.fullmatch(part) else f"{head} ..." for head, part in parts.items()}
    return _saying(real, made, _text(bare))


def _saying(real: Override, made: Override, text: str) -> Override:
    """The anonymised record with this text, which is among its values if that of the real one is among its own."""
    pairs = zip(real.values, made.values, strict=True)
    return replace(made, sent=text, values=tuple(text if old == real.sent else new for old, new in pairs))


def _text(parts: Mapping[str, str]) -> str:
    """The whole text; parts that would make it too long are left out, the last ones first."""
    text = PREFIX
    for head in _HEADS:
        part = parts.get(head, "")
        if part and len(text) + len(part) + 2 <= LONGEST:
            text += ("; " if text != PREFIX else "") + part
    return text


def _parts(text: str) -> dict[str, str]:
    """The parts of one of our texts by their heads."""
    found = text.removeprefix(PREFIX).split("; ")
    return {head: part for part in found for head in _HEADS if part.startswith(f"{head} ")}


def _nodes(hosts: str) -> str:
    return _short(folded(hosts))


def _short(name: str) -> str:
    """A hostlist or request, cut where it is long, without characters that could mean something to a command."""
    plain = _ODD.sub("_", name).replace(";", ",")
    return plain if len(plain) <= LONGEST_NAME else f"{plain[: LONGEST_NAME - 3]}..."


def _time(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%MZ}"

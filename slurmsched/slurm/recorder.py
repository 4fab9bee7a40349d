"""What a live cluster has on record of its jobs: put there before anything is sent, settled by Slurm's answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from slurmsched.db.override_log import OverrideLog
from slurmsched.errors import LedgerError
from slurmsched.logs import get_logger
from slurmsched.model.columns import Int64s
from slurmsched.model.operations import Operation, OperationStage
from slurmsched.model.overrides import Override
from slurmsched.model.plan import Action, Outcome, Plan, SetAdminComment, SetField, SetPriority, SetSize, Step
from slurmsched.model.snapshot import Snapshot
from slurmsched.planning.gate import UNREAD_COMMENT
from slurmsched.planning.levers import lever_of

log = get_logger()

COMPACT_BYTES = 16 << 20  # a log longer than this is cut down to the jobs in the queue
MOST_REPLACED = 5_000  # likewise where a process that starts has read more records that later ones replace
_Group = tuple[str, int]  # of a lever's overrides of one job


class OverrideRecorder:
    """The overrides on record, between cycles too. All methods raise LedgerError when the record cannot be kept."""

    def __init__(self, log: OverrideLog) -> None:
        self.log = log
        self._known: dict[tuple[int, str], Override] | None = None
        self._term = 0
        self._planned: dict[_Group, tuple[Override, ...]] = {}
        self._steps: dict[_Group, int] = {}
        self._before: dict[_Group, tuple[Override, ...]] = {}

    @property
    def known(self) -> tuple[Override, ...]:
        """Fields that may hold a value of ours, and those left to Slurm for good; read from the log once."""
        groups = _grouped(self._records().values()).values()
        return tuple(record for group in groups if any(each.matters for each in group) for record in group)

    def refresh(self) -> None:
        """Read the log anew where another host may have written it since: nobody else does while we lead."""
        if self.log.shared and not (self._term and self._term == self.log.term):
            self._known = None

    def begin(self, plan: Plan, queue: Int64s | None) -> None:
        """Before anything of the plan is sent. queue: ids of the jobs that Slurm has; the others are forgotten.

        What is to be given is on record from now on, what is given back stays there until Slurm has said yes. Records
        that come with no action of this plan are settled at once.
        """
        if queue is not None:
            live = frozenset(queue.tolist())
            self._known = {key: record for key, record in self._records().items() if key[0] in live}
        self._planned, self._before = _grouped(plan.overrides), _grouped(self.known)
        self._steps = {group: len(actions) for group, actions in _by_group(plan.actions).items()}
        self._note(
            record
            for group, records in self._planned.items()
            for record in records
            if any(each.open for each in records) or group not in self._steps
        )

    def end(self, outcomes: Iterable[Outcome]) -> None:
        """After the last answer: what each record becomes, by the rule of its lever."""
        answers: dict[_Group, list[Outcome]] = {}
        for outcome in outcomes:
            if isinstance(outcome.action, SetField):
                answers.setdefault(_group(outcome.action.job_id, outcome.action.field), []).append(outcome)
        settled = list[Override]()
        for group, records in self._planned.items():
            rule = lever_of(records[0].field).load().settled
            settled += rule(records, self._before.get(group, ()), answers.get(group, []), self._steps.get(group, 0))
        self._planned = {}
        self._note(settled)

    def _records(self) -> dict[tuple[int, str], Override]:
        if self._known is None:
            self._known, self._term = self.log.known(), self.log.term
        return self._known

    def _note(self, records: Iterable[Override]) -> None:
        """Put these on record, but for fields that were never written."""
        noted = [record for record in records if not _blank(record) or record.key in self._records()]
        if noted:
            self.log.record(noted)
            self._records().update({record.key: record for record in noted})


class Recorder:
    """All that is on record of a live cluster: overrides and operations.

    log: of the overrides.
    """

    def __init__(self, log: OverrideLog, operations: OperationRecorder) -> None:
        self.log, self.operations, self.overrides = log, operations, OverrideRecorder(log)
        self._compact_bytes = COMPACT_BYTES

    def read(self) -> None:
        """Before a snapshot: what another host may have written since is read anew."""
        self.overrides.refresh()
        if self.log.shared:
            self.operations.forget()

    def begin(self, plan: Plan, snapshot: Snapshot | None) -> None:
        """Before anything of the plan is sent. snapshot: that was read last."""
        if snapshot is not None:
            self._compact(snapshot)
        self.operations.begin(plan)
        self.overrides.begin(plan, snapshot.jobs.job_id if snapshot else None)

    def intend(self, cycle: str, due: Sequence[Action]) -> None:
        """Before these are sent, which a last look has left: their priorities are on record now."""
        self.log.intend(cycle, [action for action in due if isinstance(action, SetPriority)])

    def note(self, cycle: str, outcomes: Sequence[Outcome]) -> None:
        """After these were answered. What is lost here is told: the overrides are on disk, which is what counts."""
        priorities = [outcome for outcome in outcomes if isinstance(outcome.action, SetPriority)]
        try:
            self.log.outcome(cycle, priorities)
        except LedgerError as error:
            log.warning("journal.outcome_lost", error=str(error), outcomes=len(priorities))

    def end(self, outcomes: list[Outcome], now_s: float) -> None:
        """After the last answer, or when sending ended early. Drops outcomes that say what an earlier cycle said."""
        self.operations.end(now_s)
        self.overrides.end(outcomes)
        if not self.log.lenient:  # undo says all
            outcomes[:] = [outcome for outcome in outcomes if not repeated(outcome)]

    def _compact(self, snapshot: Snapshot) -> None:
        if self.log.size <= self._compact_bytes and self.log.replaced <= MOST_REPLACED:
            return
        jobs = snapshot.jobs
        live = ~jobs.finished  # a task or component is written through its leader, which may be gone
        dropped = self.log.compact(np.union1d(jobs.job_id[live], jobs.leader[live]).tolist())
        self._compact_bytes = max(COMPACT_BYTES, 2 * self.log.size)
        log.info("journal.compacted", dropped=dropped, size=self.log.size)


def repeated(outcome: Outcome) -> bool:
    """Whether it says nothing new in every cycle.

    It refuses to give a job its own size back for the very reason that the write itself gives: it was refused so
    before. It is tried in every cycle, since Slurm's list of jobs does not show all that keeps it back. Or it is about
    an AdminComment that could not be read, as of every job while slurmdbd is down: the log has that once a cycle.
    """
    action = outcome.action
    if isinstance(action, SetAdminComment) and outcome.message == UNREAD_COMMENT:
        return True
    back = isinstance(action, SetSize) and action.restores
    return back and outcome.status == "refused" and outcome.message == action.reason


def _blank(record: Override) -> bool:
    return record.base == record.sent == "" and not record.values and not record.abandoned


def _group(job_id: int, field: str) -> _Group:
    return lever_of(field).name, job_id


def _grouped(records: Iterable[Override]) -> dict[_Group, tuple[Override, ...]]:
    """By lever and job; of several records of a field the last counts."""
    found: dict[_Group, dict[str, Override]] = {}
    for record in records:
        found.setdefault(_group(record.job_id, record.field), {})[record.field] = record
    return {group: tuple(of_field.values()) for group, of_field in found.items()}


def _by_group(actions: Iterable[Action]) -> dict[_Group, list[SetField]]:
    found: dict[_Group, list[SetField]] = {}
    for action in actions:
        if isinstance(action, SetField):
            found.setdefault(_group(action.job_id, action.field), []).append(action)
    return found


# Operations.


class OperationRecords(Protocol):
    """Where operations are kept: a file on disk (db.operation_log), or the memory of a replay."""

    keep_s: float  # closed operations begun so lately are remembered [s]

    def begin(self, operations: Sequence[Operation]) -> None:
        """Record these operations before any of their steps is sent. Raises LedgerError."""

    def sent(self, operations: Sequence[Operation]) -> None:
        """Record these operations after all their steps were answered. Raises LedgerError."""

    def known(self) -> tuple[Operation, ...]:
        """All that are open or began within keep_s, oldest first."""
        ...

    def stepped(self) -> bool:
        """Whether the wall clock was set since the records were read last."""
        ...


class OperationRecorder:
    """What is under way, between cycles too. All methods raise LedgerError when the record cannot be kept."""

    def __init__(self, log: OperationRecords) -> None:
        self._log = log
        self._open: dict[str, Operation] | None = None
        self._closed: dict[str, Operation] = {}
        self._before: dict[str, Operation] = {}
        self._planned: dict[str, Operation] = {}
        self._unanswered: dict[str, int] = {}
        self._tried: set[str] = set()
        self._broken: dict[str, str] = {}

    @property
    def open(self) -> tuple[Operation, ...]:
        """The operations that are not closed, read from the record once, and anew when the wall clock was set."""
        if self._open is None or self._log.stepped():
            known = {operation.id: operation for operation in self._log.known()}
            self._open = {
                operation.id: operation for operation in known.values() if operation.stage != OperationStage.CLOSED
            }
            self._closed = {
                operation.id: operation for operation in known.values() if operation.stage == OperationStage.CLOSED
            }
        return tuple(self._open.values())

    def past(self, now_s: float) -> tuple[Operation, ...]:
        """The closed ones that are remembered."""
        _ = self.open
        self._closed = {
            operation.id: operation
            for operation in self._closed.values()
            if operation.begun_s > now_s - self._log.keep_s
        }
        return tuple(self._closed.values())

    def forget(self) -> None:
        """Read the record anew: another host may have written it."""
        self._open = None

    def begin(self, plan: Plan) -> None:
        """Before anything of the plan is sent: its operations are on record as they will be."""
        self._before = {operation.id: operation for operation in self.open}
        self._planned = {operation.id: operation for operation in plan.operations}
        steps = [action.operation for action in plan.actions if isinstance(action, Step) and action.operation]
        self._unanswered = {operation: steps.count(operation) for operation in self._planned}
        self._tried, self._broken = set(), {}
        self._log.begin(plan.operations)

    @property
    def broken(self) -> Mapping[str, str]:
        """Slurm's answers to the refused steps of this sending, the first of each operation, by the operation's id."""
        return self._broken

    def goes(self, action: Action) -> None:
        """It is sent now."""
        if isinstance(action, Step):
            self._tried.add(action.operation)

    def answered(self, outcome: Outcome) -> None:
        """What came of an action, or that it was not sent for a reason of its own."""
        action = outcome.action
        if not isinstance(action, Step) or outcome.status == "unknown":
            return
        if action.operation in self._unanswered:
            self._unanswered[action.operation] -= 1
        if outcome.status == "refused":
            self._broken.setdefault(action.operation, outcome.message)

    def end(self, now_s: float) -> None:
        """After the last answer, or when sending ended early. now_s: by the clock that times operations [Unix s]."""
        settled, unsure = [], []
        for operation in self._planned.values():
            if self._unanswered[operation.id] and operation.id in self._tried:
                unsure.append(replace(operation, sure=False))
            else:
                settled.append(
                    _timed(self._settled(operation, before := self._before.get(operation.id)), before, now_s)
                )
        self._log.sent(settled)
        now = self._before | {operation.id: operation for operation in (*settled, *unsure)}
        self._open = {operation.id: operation for operation in now.values() if operation.stage != OperationStage.CLOSED}
        self._closed |= {
            operation.id: operation for operation in now.values() if operation.stage == OperationStage.CLOSED
        }
        self._planned = {}

    def _settled(self, operation: Operation, before: Operation | None) -> Operation:
        """The operation as it is now that Slurm has answered: one that lost a step is taken back."""
        if self._unanswered[operation.id]:  # nothing of it was sent
            return before or replace(operation, stage=OperationStage.CLOSED, note="nothing of it was sent")
        if operation.id in self._broken and not operation.ending:
            return replace(operation, stage=OperationStage.REVERSING, note=self._broken[operation.id])
        return operation


def _timed(operation: Operation, before: Operation | None, now_s: float) -> Operation:
    """The operation, where victims were asked for a checkpoint just now with their grace from now on: reading the queue
    and sending all that went before has taken its time."""
    asked = operation.stage == OperationStage.WARNED and (before is None or before.stage != OperationStage.WARNED)
    return replace(operation, stage_s=max(operation.stage_s, now_s)) if asked else operation

"""A real Slurm: read through a reader, written through a writer, each write on record before it is sent."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from slurmsched.errors import (
    BusyError,
    LedgerError,
    PausedError,
    RightsError,
    SlurmschedError,
    SlurmUnreachableError,
)
from slurmsched.model.jobs import Jobs
from slurmsched.model.operations import Operation, Reservations
from slurmsched.model.plan import Action, Outcome, Plan, Receipt, Refusal, Requeue, Reserve, Signal
from slurmsched.model.snapshot import Snapshot
from slurmsched.planning.gate import CurrentJob, GateContext, GateTime, refusal, without_changed_options
from slurmsched.protocols import ClusterReader
from slurmsched.slurm.accounting import AccountedRun, with_parts
from slurmsched.slurm.recorder import Recorder
from slurmsched.slurm.scontrol_tables import end_orphans
from slurmsched.slurm.site import operator_line
from slurmsched.slurm.writer import WritePacer, Writer, lacks_rights

if TYPE_CHECKING:
    from slurmsched.db.leader_lease import LeaderLease

CHUNK = 200  # most actions between two looks at slurmctld's load and the stop file
FRESH_S = 10.0  # no job is written later after the last look at it; one look costs slurmctld a listing of its queue
HINDRANCES = {"rights": RightsError, "stop-file": PausedError, "load": BusyError}


class LastLook(Protocol):
    """Reads jobs again. again: the snapshot with an operation's job, victims and nodes as they are now."""

    def __call__(self, actions: Sequence[Action]) -> Mapping[int, CurrentJob]: ...
    def again(self, snapshot: Snapshot, operation: Operation, operations: Sequence[Operation]) -> Snapshot: ...


@dataclass(frozen=True, slots=True)
class OperationInputs:
    """What operations need to know beside the queue, each at a request of its own.

    wanted: whether new operations may begin, and reservations with our name that belong to none on record are taken
        back.
    always: whether reservations are read without operations too.
    tag: which slurmsched this is; reservations of another are left alone.
    reservations: reads those of Slurm.
    exclusive: reads which pending jobs ask for whole nodes.
    spreads: the jobs with what waiting gangs ask of the fabric.
    """

    reservations: Callable[[], Reservations]
    wanted: bool = False
    always: bool = False
    tag: str = ""
    exclusive: Callable[[], frozenset[int]] = frozenset
    spreads: Callable[[Jobs], Jobs] = lambda jobs: jobs


@dataclass(frozen=True, slots=True)
class SendCheck:
    """What may keep everything from being sent. lease: None = this host is the only one. stop_file: None = no file."""

    stop_file: Path | None = None
    lease: LeaderLease | None = None

    def fence(self) -> None:
        """See that we lead still. Raises NotLeadingError."""
        if self.lease is not None:
            self.lease.fence()

    def keep(self) -> None:
        """As fence, renewing the lease only when that is due."""
        if self.lease is not None:
            self.lease.keep()

    @property
    def stopped(self) -> str:
        """Why the administrator wants nothing sent, "" = nothing speaks against it."""
        there = self.stop_file is not None and self.stop_file.exists()
        return f"paused: {self.stop_file} exists; remove it to go on" if there else ""


class LiveCluster:
    """The cluster contract over a Slurm.

    recorder: what is on record of its jobs, before and after each write.
    apply: False = dry-run, nothing is touched.
    recheck: reads the jobs of actions again right before they are sent.
    earlier_runs: runs that slurmdbd has of some jobs, for the ledger.
    wiring: the snapshot with what is known of its topology.
    forget: removes what was asked of jobs that are gone, and of earlier runs of the others.
    clock: Unix seconds, for the names of cycles in the log and the begin of a grace.
    monotonic: seconds, for the age of a look.
    """

    def __init__(
        self,
        reader: ClusterReader,
        writer: Writer,
        recorder: Recorder,
        pace: WritePacer,
        *,
        apply: bool,
        recheck: LastLook,
        inputs: OperationInputs,
        guard: SendCheck,
        earlier_runs: Callable[[Sequence[int]], Sequence[AccountedRun]],
        wiring: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot,
        forget: Callable[[Jobs], None] = lambda jobs: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader, self._writer, self._recorder, self._pace = reader, writer, recorder, pace
        self._apply, self._recheck, self._inputs, self._guard = apply, recheck, inputs, guard
        self._clock, self._monotonic = clock, monotonic
        self._wiring, self._earlier_runs, self._forget = wiring, earlier_runs, forget
        self._seen: Mapping[int, CurrentJob] = {}
        self._seen_s = float("-inf")
        self._snapshot: Snapshot | None = None
        self._operations: dict[str, Operation] = {}
        self._cannot_start: dict[str, str] = {}  # by operation: why its job cannot start, as read in this sending

    def learn(self, past: Callable[[Snapshot], Snapshot]) -> None:
        """From now on snapshots have what `past` adds to them."""
        known = self._wiring
        self._wiring = lambda snapshot: past(known(snapshot))

    def earlier_runs(self, job_ids: Sequence[int]) -> Sequence[AccountedRun]:
        """Runs that slurmdbd has of these jobs. Raises SlurmError."""
        runs = self._earlier_runs(job_ids)
        return runs if self._snapshot is None else with_parts(runs, self._snapshot.nodes)

    def begin(self) -> None:
        """Start Slurm's commands for the next read; other work may go on meanwhile."""
        self._reader.begin()

    def read(self) -> Snapshot:
        """The cluster now. Raises SlurmError when it cannot be read whole."""
        self._recorder.read()
        snapshot = replace(self._wiring(self._reader.read()), tag=self._inputs.tag)
        try:
            if self._recorder.operations.open or self._inputs.wanted:
                snapshot = self._with_operations(snapshot)
            elif self._inputs.always:
                snapshot = replace(snapshot, reservations=self._inputs.reservations())
            overrides = self._recorder.overrides.known
            snapshot = replace(snapshot, overrides=overrides) if overrides else snapshot
        except LedgerError as error:
            if self._apply:
                raise
            snapshot = replace(snapshot, warnings=(*snapshot.warnings, f"what is under way is not known: {error}"))
        self._snapshot = snapshot
        return snapshot

    def _with_operations(self, snapshot: Snapshot) -> Snapshot:
        """What only operations need to know, at two more requests; with them what is left of operations that nobody
        knows."""
        reservations, operations = self._inputs.reservations(), self._recorder.operations.open
        orphans = end_orphans(snapshot.jobs, reservations, operations, self._inputs.tag) if self._inputs.wanted else ()
        exclusive = np.isin(snapshot.jobs.job_id, sorted(self._inputs.exclusive()))
        return replace(
            snapshot,
            jobs=self._inputs.spreads(snapshot.jobs).with_columns(exclusive=exclusive),
            operations=(*operations, *orphans),
            past_operations=self._recorder.operations.past(snapshot.now_s),
            reservations=reservations,
        )

    def apply(self, plan: Plan) -> Receipt:
        """Send the plan's actions in their order. Receipt.stopped says why sending ended early, or never began.

        Such an end is no error here: what was read, and written so far, must still reach the ledger.
        """
        if not self._apply:
            return Receipt(planned=len(plan.actions), dry_run=True)
        outcomes: list[Outcome] = []
        try:
            self._see_no_hindrance(GateContext(site=self._snapshot.site if self._snapshot else None))
            self._operations, self._cannot_start = {operation.id: operation for operation in plan.operations}, {}
            self._recorder.begin(plan, self._snapshot)
            try:
                self._send_all(plan.actions, outcomes)
                if self._snapshot and not self._guard.stopped:
                    self._forget(self._snapshot.jobs)
            finally:
                self._recorder.end(outcomes, self._clock())
        except SlurmschedError as error:
            return Receipt(tuple(outcomes), len(plan.actions), stopped=str(error), exit_code=error.exit_code)
        return Receipt(tuple(outcomes), len(plan.actions))

    def close(self) -> None:
        """Let the reader go."""
        self._reader.close()

    def _send_all(self, actions: Sequence[Action], outcomes: list[Outcome]) -> None:
        """Send in chunks, adding to outcomes. Raises the SlurmschedError that ends it early."""
        self._pace.begin()
        self._seen_s = float("-inf")
        cycle = f"{self._clock():.0f}-{os.getpid()}"
        at = 0
        while at < len(actions):
            stopped = self._guard.stopped
            busy = "" if stopped else self._pace.throttled or self._pace.busy()
            self._see_no_hindrance(GateContext(stopped=stopped, busy=busy))
            chunk = actions[at : at + self._chunk()]
            due, dropped = self._due(chunk, actions[at:])
            outcomes += dropped
            self._send(cycle, due, outcomes)
            at += len(chunk)

    def _chunk(self) -> int:
        """Actions that can be sent at the present pace while a look at their jobs is fresh."""
        return max(1, min(CHUNK, int(self._pace.rate_per_s * FRESH_S / 2)))

    def _see_no_hindrance(self, context: GateContext) -> None:
        """Raises what keeps everything from being sent now."""
        self._guard.fence()
        if found := refusal(None, context, GateTime.APPLY):
            remedy = f": {operator_line(context.site.user)}" if context.site and found.rule == "rights" else ""
            raise HINDRANCES[found.rule](found.reason + remedy)

    def _send(self, cycle: str, due: Sequence[Action], outcomes: list[Outcome]) -> None:
        """Send one chunk, adding to outcomes; on record first."""
        if not due:
            return
        self._recorder.intend(cycle, due)
        sent: list[Outcome] = []
        try:
            self._answers(due, sent)
        finally:
            outcomes += sent
            self._recorder.note(cycle, sent)

    def _answers(self, due: Sequence[Action], sent: list[Outcome]) -> None:
        for outcome in self._writer.send(self._paced(due, sent)):
            self._pace.answered()
            self._recorder.operations.answered(outcome)
            sent.append(outcome)
            if lacks_rights(outcome):
                self._reader.doubt_rights()
            if outcome.status == "unknown":
                raise SlurmUnreachableError(f"no answer to the write of job {outcome.action.job_id}: {outcome.message}")
        if len(sent) < len(due):
            raise BusyError(self._pace.throttled)

    def _paced(self, actions: Sequence[Action], sent: list[Outcome]) -> Iterator[Action]:
        for action in actions:
            if self._pace.throttled:
                return
            self._judge_beneficiary(action)
            if found := refusal(action, self._context, GateTime.SEND):
                sent.append(self._dropped(action, found))
                continue
            self._pace.wait()
            self._guard.keep()
            self._recorder.operations.goes(action)
            yield action

    @property
    def _context(self) -> GateContext:
        """What the gate looks at when an action is sent."""
        return GateContext(seen=self._seen, broken=self._recorder.operations.broken, cannot_start=self._cannot_start)

    def _judge_beneficiary(self, action: Action) -> None:
        """Before a job loses GPUs: ask Slurm whether the job that is to get them can start.

        Once for each operation, after its nodes were reserved: no other job gets them then.
        """
        operation = self._operations.get(action.operation) if isinstance(action, Requeue | Signal) else None
        known = self._cannot_start.keys() | self._recorder.operations.broken.keys()
        if operation is None or self._snapshot is None or operation.id in known:
            return
        from slurmsched.planning.operations.preemption import cannot_start

        again = self._recheck.again(self._snapshot, operation, tuple(self._operations.values()))
        self._cannot_start[operation.id] = cannot_start(operation, again)

    def _dropped(self, action: Action, found: Refusal) -> Outcome:
        outcome = Outcome(action, "refused", found.reason)
        self._recorder.operations.answered(outcome)
        return outcome

    def _due(self, chunk: Sequence[Action], unsent: Sequence[Action]) -> tuple[list[Action], list[Outcome]]:
        """The chunk's actions that still fit their jobs, and the others as refused.

        unsent: all actions that are not sent yet.
        """
        self._look(unsent)
        due, dropped = [], []
        for action in chunk:
            if found := refusal(action, self._context, GateTime.SEND):
                dropped.append(self._dropped(action, found))
            else:
                due.append(without_changed_options(action, self._context))
        return due, dropped

    def _look(self, unsent: Sequence[Action]) -> None:
        """Read the jobs of these actions anew, unless the last look will still be fresh when a chunk is sent."""
        now_s = self._monotonic()
        if now_s - self._seen_s > FRESH_S / 2:
            self._seen, self._seen_s = self._recheck(unsent), now_s
            if any(isinstance(action, Reserve) for action in unsent):
                whole = self._inputs.exclusive()
                self._seen = {job: replace(seen, exclusive=job in whole) for job, seen in self._seen.items()}

"""A real Slurm: read through a reader, written through a writer, each write on record before it is sent."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from slurmsched.db.journal import Journal
from slurmsched.errors import (
    BusyError,
    LedgerError,
    PausedError,
    RightsError,
    SlurmschedError,
    SlurmUnreachableError,
)
from slurmsched.logs import get_logger
from slurmsched.model.acts import Act, Reservations
from slurmsched.model.jobs import Jobs
from slurmsched.model.plan import Action, Outcome, Plan, Receipt, Requeue, Reserve, SetLever, Signal
from slurmsched.model.snapshot import Snapshot
from slurmsched.planning.gate import When, refusal
from slurmsched.planning.view import Seen, View
from slurmsched.slurm.acting import Acting
from slurmsched.slurm.deferring import Deferring
from slurmsched.slurm.finding import operator_line
from slurmsched.slurm.orphans import orphans
from slurmsched.slurm.pace import Pace
from slurmsched.slurm.pinning import Pinning, repeated
from slurmsched.slurm.sacct import Run
from slurmsched.slurm.writer import Writer, lacks_rights

if TYPE_CHECKING:
    from slurmsched.db.lease import Lease

log = get_logger()

CHUNK = 200  # most actions between two looks at slurmctld's load and the stop file
FRESH_S = 10.0  # no job is written later after the last look at it; one look costs slurmctld a listing of its queue
_HINDRANCES = {"rights": RightsError, "stop-file": PausedError, "load": BusyError}
COMPACT_BYTES = 16 << 20  # a journal longer than this is cut down to the jobs in the queue


class Reader(Protocol):
    """Whatever reads a cluster."""

    def begin(self) -> None: ...
    def read(self) -> Snapshot: ...
    def doubt_rights(self) -> None: ...
    def close(self) -> None: ...


class LiveCluster:
    """The cluster contract over a Slurm.

    apply: False = dry-run, nothing is touched. recheck: reads the jobs of all actions that are left again.
    again: the snapshot with an act's job, victims and nodes as they are now.
    acting: the acts under way. acts_on: whether new ones may begin, and reservations with our name that belong to no
    act on record are taken back. reservations: reads those of Slurm. reserved: whether they
    are read without acts too. exclusive: reads which pending jobs ask for whole
    nodes. spreads: the jobs with what waiting gangs ask of the fabric. lease: without it nothing is sent; None: this
    host is the only one. pinning: the node lists given to jobs.
    deferring: the earliest starts given to jobs.
    stop_file: while it exists nothing is sent; None: nobody looks for one.
    tag: which slurmsched this is; reservations of another are left alone.
    earlier_runs: runs that slurmdbd has of some jobs, for the ledger.
    wiring: the snapshot with what is known of its topology.
    clock: Unix seconds, for the names of cycles in the journal and the begin of a grace. monotonic: seconds, for the
        age of a look.
    """

    def __init__(
        self,
        reader: Reader,
        writer: Writer,
        journal: Journal,
        pace: Pace,
        *,
        apply: bool,
        recheck: Callable[[Sequence[Action]], Mapping[int, Seen]],
        again: Callable[[Snapshot, Act, Sequence[Act]], Snapshot] = lambda snapshot, *_: snapshot,
        acting: Acting,
        pinning: Pinning,
        deferring: Deferring,
        reservations: Callable[[], Reservations],
        acts_on: bool = False,
        reserved: bool = False,
        tag: str = "",
        exclusive: Callable[[], frozenset[int]] = frozenset,
        spreads: Callable[[Jobs], Jobs] = lambda jobs: jobs,
        stop_file: Path | None,
        lease: Lease | None = None,
        earlier_runs: Callable[[Sequence[int]], Sequence[Run]],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        wiring: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot,
    ) -> None:
        self._reader, self._writer, self._journal, self._pace = reader, writer, journal, pace
        self._apply, self._recheck, self._again, self._stop_file = apply, recheck, again, stop_file
        self._acting, self._reservations, self._pinning = acting, reservations, pinning
        self._deferring = deferring
        self._acts_on, self._reserved, self._exclusive, self._tag = acts_on, reserved, exclusive, tag
        self._spreads = spreads
        self._clock, self._monotonic = clock, monotonic
        self.earlier_runs = earlier_runs
        self._wiring = wiring
        self._lease = lease
        self._seen: Mapping[int, Seen] = {}
        self._seen_s = float("-inf")
        self._compact_bytes = COMPACT_BYTES
        self._snapshot: Snapshot | None = None
        self._acts: dict[str, Act] = {}
        self._judged: dict[str, str] = {}  # by act: why its job could not start, as looked at in this sending

    def learn(self, past: Callable[[Snapshot], Snapshot]) -> None:
        """From now on snapshots have what `past` adds to them."""
        known = self._wiring
        self._wiring = lambda snapshot: past(known(snapshot))

    def begin(self) -> None:
        """Start Slurm's commands for the next read; other work may go on meanwhile."""
        self._reader.begin()

    def read(self) -> Snapshot:
        """The cluster now. Raises SlurmError when it cannot be read whole."""
        if self._lease is not None:
            self._acting.forget()
            self._pinning.forget()
            self._deferring.forget()
        snapshot = replace(self._wiring(self._reader.read()), tag=self._tag)
        try:
            if self._acting.open or self._acts_on:
                snapshot = self._with_acts(snapshot)
            elif self._reserved:
                snapshot = replace(snapshot, reservations=self._reservations())
            snapshot = replace(snapshot, pins=self._pinning.known) if self._pinning.known else snapshot
            known = self._deferring.known
            snapshot = replace(snapshot, deferrals=known) if known else snapshot
        except LedgerError as error:
            if self._apply:
                raise
            snapshot = replace(snapshot, warnings=(*snapshot.warnings, f"what is under way is not known: {error}"))
        self._snapshot = snapshot
        return snapshot

    def _with_acts(self, snapshot: Snapshot) -> Snapshot:
        """What only acts need to know, at two more requests; with them what is left of acts that nobody knows."""
        reservations, acts = self._reservations(), self._acting.open
        left = orphans(snapshot.jobs, reservations, acts, self._tag) if self._acts_on else ()
        exclusive = np.isin(snapshot.jobs.job_id, sorted(self._exclusive()))
        return replace(
            snapshot,
            jobs=self._spreads(snapshot.jobs).with_columns(exclusive=exclusive),
            acts=(*acts, *left),
            past_acts=self._acting.past(snapshot.now_s),
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
            self._see_no_hindrance(View(site=self._snapshot.site if self._snapshot else None))
            self._compact()
            self._acts, self._judged = {act.id: act for act in plan.acts}, {}
            self._acting.begin(plan)
            queue = self._snapshot.jobs.job_id if self._snapshot else None
            self._pinning.begin(plan, queue)
            self._deferring.begin(plan, queue)
            try:
                self._send_all(plan.actions, outcomes)
            finally:
                self._acting.end(self._clock())
                self._pinning.end(outcomes)
                outcomes[:] = [outcome for outcome in outcomes if not repeated(outcome)]
                self._deferring.end(outcomes)
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
            stopped = self._stopped()
            busy = "" if stopped else self._pace.throttled or self._pace.busy()
            self._see_no_hindrance(View(stopped=stopped, busy=busy))
            chunk = actions[at : at + self._chunk()]
            due, dropped = self._due(chunk, actions[at:])
            outcomes += dropped
            self._send(cycle, due, outcomes)
            at += len(chunk)

    def _chunk(self) -> int:
        """Actions that can be sent at the present pace while a look at their jobs is fresh."""
        return max(1, min(CHUNK, int(self._pace.rate_per_s * FRESH_S / 2)))

    def _see_no_hindrance(self, view: View) -> None:
        """Raises what keeps everything from being sent now."""
        if self._lease is not None:
            self._lease.fence()
        if found := refusal(None, view, When.APPLY):
            remedy = f": {operator_line(view.site.user)}" if view.site and found.rule == "rights" else ""
            raise _HINDRANCES[found.rule](found.reason + remedy)

    def _stopped(self) -> str:
        there = self._stop_file is not None and self._stop_file.exists()
        return f"paused: {self._stop_file} exists; remove it to go on" if there else ""

    def _send(self, cycle: str, due: Sequence[Action], outcomes: list[Outcome]) -> None:
        """Send one chunk, adding to outcomes; on record first."""
        if not due:
            return
        self._journal.intend(cycle, [action for action in due if isinstance(action, SetLever)])
        sent: list[Outcome] = []
        try:
            self._answers(due, sent)
        finally:
            outcomes += sent
            self._note(cycle, [outcome for outcome in sent if isinstance(outcome.action, SetLever)])

    def _answers(self, due: Sequence[Action], sent: list[Outcome]) -> None:
        for outcome in self._writer.send(self._paced(due, sent)):
            self._pace.answered()
            self._acting.answered(outcome)
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
            if reason := self._acting.unfit(action) or self._in_vain(action):
                sent.append(self._dropped(action, reason))
                continue
            self._pace.wait()
            if self._lease is not None:
                self._lease.keep()
            self._acting.goes(action)
            yield action

    def _in_vain(self, action: Action) -> str:
        """Why nobody should lose GPUs by this step, as its job could not start on them; "" for any other action.

        Judged by what Slurm shows now, once for each act, after its nodes were reserved: nobody else gets them then.
        """
        if not isinstance(action, Requeue | Signal) or action.act not in self._acts or self._snapshot is None:
            return ""
        if action.act not in self._judged:
            from slurmsched.planning.taking import unable

            act = self._acts[action.act]
            self._judged[act.id] = unable(act, self._again(self._snapshot, act, tuple(self._acts.values())))
        return self._judged[action.act]

    def _dropped(self, action: Action, reason: str) -> Outcome:
        outcome = Outcome(action, "refused", reason)
        self._acting.answered(outcome)
        return outcome

    def _due(self, chunk: Sequence[Action], left: Sequence[Action]) -> tuple[list[Action], list[Outcome]]:
        """The chunk's actions that still fit their jobs, and the others as refused. left: all that are not sent yet."""
        self._look(left)
        due, dropped = [], []
        for action in chunk:
            found = refusal(action, View(seen=self._seen), When.SEND)
            if reason := self._acting.unfit(action) or (found.reason if found else ""):
                dropped.append(self._dropped(action, reason))
            else:
                due.append(action)
        return due, dropped

    def _look(self, left: Sequence[Action]) -> None:
        """Read the jobs of these actions anew, unless the last look will still be fresh when a chunk is sent."""
        now_s = self._monotonic()
        if now_s - self._seen_s > FRESH_S / 2:
            self._seen, self._seen_s = self._recheck(left), now_s
            if any(isinstance(action, Reserve) for action in left):
                whole = self._exclusive()
                self._seen = {job: replace(seen, exclusive=job in whole) for job, seen in self._seen.items()}

    def _note(self, cycle: str, outcomes: Sequence[Outcome]) -> None:
        try:
            self._journal.outcome(cycle, outcomes)
        except LedgerError as error:  # the intentions are on disk, which is what counts
            log.warning("journal.outcome_lost", error=str(error), outcomes=len(outcomes))

    def _compact(self) -> None:
        if self._snapshot is None or self._journal.size <= self._compact_bytes:
            return
        jobs = self._snapshot.jobs
        live = ~jobs.finished  # a task or component is written through its leader, which may be gone
        dropped = self._journal.compact(np.union1d(jobs.job_id[live], jobs.leader[live]).tolist())
        self._compact_bytes = max(COMPACT_BYTES, 2 * self._journal.size)
        log.info("journal.compacted", dropped=dropped, size=self._journal.size)

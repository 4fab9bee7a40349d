"""A real Slurm: read through a reader, written through a writer, each write on record before it is sent."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from slurmsched.db.journal import Journal
from slurmsched.errors import LedgerError, RightsError, SlurmError
from slurmsched.logs import get_logger
from slurmsched.model.plan import Action, Outcome, Plan, Receipt, SetNice, SetSiteFactor
from slurmsched.model.snapshot import Rights, Snapshot
from slurmsched.slurm.pace import Pace
from slurmsched.slurm.recheck import LeverAction, Seen, changed
from slurmsched.slurm.sacct import Run
from slurmsched.slurm.writer import Writer

log = get_logger()

CHUNK = 200  # actions between two looks at slurmctld's load, the stop file and the jobs themselves
COMPACT_BYTES = 16 << 20  # a journal longer than this is cut down to the jobs in the queue


class Reader(Protocol):
    """Whatever reads a cluster."""

    def begin(self) -> None: ...
    def read(self) -> Snapshot: ...
    def close(self) -> None: ...


class LiveCluster:
    """The cluster contract over a Slurm.

    apply: False = dry-run, nothing is touched. recheck: reads the jobs of some actions again.
    stop_file: while it exists nothing is sent; None: nobody looks for one.
    earlier_runs: runs that slurmdbd has of some jobs, for the ledger.
    clock: Unix seconds, for the names of cycles in the journal.
    """

    def __init__(
        self,
        reader: Reader,
        writer: Writer,
        journal: Journal,
        pace: Pace,
        *,
        apply: bool,
        recheck: Callable[[Sequence[LeverAction]], Mapping[int, Seen]],
        stop_file: Path | None,
        earlier_runs: Callable[[Sequence[int]], Sequence[Run]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._reader, self._writer, self._journal, self._pace = reader, writer, journal, pace
        self._apply, self._recheck, self._stop_file, self._clock = apply, recheck, stop_file, clock
        self.earlier_runs = earlier_runs
        self._compact_bytes = COMPACT_BYTES
        self._snapshot: Snapshot | None = None

    def begin(self) -> None:
        """Start Slurm's commands for the next read; other work may go on meanwhile."""
        self._reader.begin()

    def read(self) -> Snapshot:
        """The cluster now. Raises SlurmError when it cannot be read whole."""
        self._snapshot = self._reader.read()
        return self._snapshot

    def apply(self, plan: Plan) -> Receipt:
        """Send the plan's actions in their order. Receipt.stopped says why sending ended early.

        Raises RightsError when the user may not write, and LedgerError when the journal takes nothing; then
        nothing was sent.
        """
        if not self._apply:
            return Receipt(planned=len(plan.actions), dry_run=True)
        self._need_rights()
        self._compact()
        self._pace.begin()
        cycle = f"{self._clock():.0f}-{os.getpid()}"
        outcomes: list[Outcome] = []
        stopped = ""
        for first in range(0, len(plan.actions), CHUNK):
            try:
                stopped = self._hindrance() or self._send(cycle, plan.actions[first : first + CHUNK], outcomes)
            except SlurmError as error:
                stopped = str(error)
            if stopped:
                log.warning("apply.stopped", reason=stopped, answered=len(outcomes), planned=len(plan.actions))
                break
        return Receipt(tuple(outcomes), len(plan.actions), stopped=stopped)

    def close(self) -> None:
        """Let the reader go."""
        self._reader.close()

    def _need_rights(self) -> None:
        site = self._snapshot.site if self._snapshot else None
        if site and site.rights < Rights.OPERATOR:
            raise RightsError(
                f"{site.user} is {site.rights.name.capitalize()} (slurmdbd away?), writing needs Operator: "
                f"sacctmgr modify user {site.user} set adminlevel=Operator"
            )

    def _hindrance(self) -> str:
        """Why nothing may be sent now; "" if it may."""
        if self._stop_file is not None and self._stop_file.exists():
            return f"paused: {self._stop_file} exists; remove it to go on"
        return self._pace.throttled or self._pace.busy()

    def _send(self, cycle: str, actions: Sequence[Action], outcomes: list[Outcome]) -> str:
        """Send one chunk, adding to outcomes; why it ended early, or ""."""
        due, dropped = self._due(actions)
        outcomes += dropped
        if not due:
            return ""
        try:
            self._journal.intend(cycle, due)
        except LedgerError as error:
            if any(outcome.status == "written" for outcome in outcomes):
                return str(error)  # what went before must still reach the ledger
            raise
        sent: list[Outcome] = []
        try:
            return self._answers(due, sent)
        finally:
            outcomes += sent
            self._note(cycle, sent)

    def _answers(self, due: Sequence[LeverAction], sent: list[Outcome]) -> str:
        for outcome in self._writer.send(self._paced(due)):
            self._pace.answered()
            sent.append(outcome)
            if outcome.status == "unknown":
                return f"no answer to the write of job {outcome.action.job_id}: {outcome.message}"
        return self._pace.throttled if len(sent) < len(due) else ""

    def _paced(self, actions: Sequence[LeverAction]) -> Iterator[LeverAction]:
        for action in actions:
            if self._pace.throttled:
                return
            self._pace.wait()
            yield action

    def _due(self, actions: Sequence[Action]) -> tuple[list[LeverAction], list[Outcome]]:
        """The actions that still fit their jobs, and the others as refused."""
        levers = [action for action in actions if isinstance(action, SetNice | SetSiteFactor)]
        dropped = [_not_offered(action) for action in actions if not isinstance(action, SetNice | SetSiteFactor)]
        seen = self._recheck(levers) if levers else {}
        due = []
        for action in levers:
            reason = changed(action, seen)
            if reason:
                dropped.append(Outcome(action, "refused", reason))
            else:
                due.append(action)
        return due, dropped

    def _note(self, cycle: str, outcomes: Sequence[Outcome]) -> None:
        try:
            self._journal.outcome(cycle, outcomes)
        except LedgerError as error:  # the intentions are on disk, which is what counts
            log.warning("journal.outcome_lost", error=str(error), outcomes=len(outcomes))

    def _compact(self) -> None:
        if self._snapshot is None or self._journal.size <= self._compact_bytes:
            return
        jobs = self._snapshot.jobs
        dropped = self._journal.compact(jobs.job_id[~jobs.finished].tolist())
        self._compact_bytes = max(COMPACT_BYTES, 2 * self._journal.size)
        log.info("journal.compacted", dropped=dropped, size=self._journal.size)


def _not_offered(action: Action) -> Outcome:
    if action.kind == "requeue":
        return Outcome(action, "refused", "preemption is not offered yet")
    return Outcome(action, "refused", f"{action.kind} is not offered")

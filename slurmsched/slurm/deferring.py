"""The earliest starts of a live cluster while they are sent: on record before, settled by Slurm's answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from slurmsched.db.deferrals import DeferralLog
from slurmsched.model.columns import Int64s
from slurmsched.model.deferrals import Deferral
from slurmsched.model.plan import Defer, Outcome, Plan


class Deferring:
    """What is on record, between cycles too. All methods raise LedgerError when the record cannot be kept."""

    def __init__(self, log: DeferralLog) -> None:
        self._log = log
        self._known: dict[int, Deferral] | None = None
        self._planned: dict[int, Deferral] = {}
        self._before: dict[int, Deferral] = {}

    @property
    def known(self) -> tuple[Deferral, ...]:
        """Jobs that may have a start of ours, and those left alone for good; read from the record once."""
        return tuple(record for record in self._records().values() if record.open or record.over)

    def forget(self) -> None:
        """Read the record anew: another host may have written it."""
        self._known = None

    def begin(self, plan: Plan, queue: Int64s | None) -> None:
        """Before anything of the plan is sent. queue: ids of the jobs that Slurm has; the others are forgotten.

        A start that is to be given is on record from now on, one that is given back stays there until Slurm has said
        yes. Records that come with no action of this plan are settled at once.
        """
        if queue is not None:
            live = frozenset(queue.tolist())
            self._known = {job: record for job, record in self._records().items() if job in live}
        sent = {action.job_id for action in plan.actions if isinstance(action, Defer)}
        self._before = dict(self._records())
        self._planned = {record.job_id: record for record in plan.deferrals}
        self._note(record for record in plan.deferrals if record.open or record.job_id not in sent)
        if plan.deferrals:
            self._log.keep(self._records().values())

    def end(self, outcomes: Iterable[Outcome]) -> None:
        """After the last answer. A start that was given back is ours no longer; for one that Slurm refused the job has
        what it had before."""
        done = [self._settled(outcome) for outcome in outcomes if isinstance(outcome.action, Defer)]
        self._note(record for record in done if record is not None)
        self._planned = {}

    def _settled(self, outcome: Outcome) -> Deferral | None:
        """The record of a job after an answer, None where the one on record stands."""
        action, planned = outcome.action, self._planned.get(outcome.action.job_id)
        assert isinstance(action, Defer)
        if planned is None or outcome.status == "unknown":
            return None
        if action.back:
            return planned if outcome.status == "written" else None
        if outcome.status == "written":
            return None
        return self._before.get(action.job_id, replace(planned, until_s=0.0, note="Slurm refused the start"))

    def _records(self) -> dict[int, Deferral]:
        if self._known is None:
            self._known = self._log.known()
        return self._known

    def _note(self, records: Iterable[Deferral]) -> None:
        if noted := list(records):
            self._log.note(noted)
            self._records().update({record.job_id: record for record in noted})

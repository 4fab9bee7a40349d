"""The node lists of a live cluster while they are sent: on record before, settled by Slurm's answers."""

from __future__ import annotations

from collections.abc import Iterable

from slurmsched.db.pins import PinLog
from slurmsched.model.columns import Int64s
from slurmsched.model.pins import Pin
from slurmsched.model.plan import Outcome, PinNodes, Plan


class Pinning:
    """What is on record, between cycles too. All methods raise LedgerError when the record cannot be kept."""

    def __init__(self, log: PinLog) -> None:
        self._log = log
        self._known: dict[int, Pin] | None = None
        self._planned: dict[int, Pin] = {}

    @property
    def known(self) -> tuple[Pin, ...]:
        """Jobs that may hold a list of ours, and those left to Slurm for good; read from the record once."""
        return tuple(pin for pin in self._records().values() if pin.open or pin.over)

    def forget(self) -> None:
        """Read the record anew: another host may have written it."""
        self._known = None

    def begin(self, plan: Plan, queue: Int64s | None) -> None:
        """Before anything of the plan is sent. queue: ids of the jobs that Slurm has; the others are forgotten.

        A list that is to be given is on record from now on, one that is given back stays there until Slurm has said
        yes. Records that come with no action of this plan are settled at once.
        """
        records = self._records()
        if queue is not None:
            live = frozenset(queue.tolist())
            self._known = records = {job: pin for job, pin in records.items() if job in live}
        sent = {action.job_id for action in plan.actions if isinstance(action, PinNodes)}
        self._planned = {pin.job_id: pin for pin in plan.pins}
        self._note(pin for pin in plan.pins if pin.open or pin.job_id not in sent)
        if plan.pins:
            self._log.keep(self._records().values())

    def end(self, outcomes: Iterable[Outcome]) -> None:
        """After the last answer. A list that Slurm refused is not there; one without an answer may be."""
        done = []
        for outcome in outcomes:
            action = outcome.action
            if not isinstance(action, PinNodes) or (pin := self._planned.get(action.job_id)) is None:
                continue
            if outcome.status == "written" and not pin.open:
                done.append(pin)
            elif outcome.status == "refused" and pin.open and action.was == action.base:
                done.append(_never(pin))
        self._note(done)
        self._planned = {}

    def _records(self) -> dict[int, Pin]:
        if self._known is None:
            self._known = self._log.known()
        return self._known

    def _note(self, pins: Iterable[Pin]) -> None:
        noted = list(pins)
        self._log.note(noted)
        self._records().update({pin.job_id: pin for pin in noted})


def _never(pin: Pin) -> Pin:
    """The record of a job whose first list was refused: it has its own."""
    return Pin(pin.job_id, pin.submit_s, pin.base, pin.base, pin.since_s, note="Slurm refused the list")

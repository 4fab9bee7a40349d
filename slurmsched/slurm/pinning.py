"""The node lists and requests of a live cluster while they are sent: on record before, settled by Slurm's answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from slurmsched.db.pins import PinLog
from slurmsched.model.columns import Int64s
from slurmsched.model.pins import Pin
from slurmsched.model.plan import Action, Outcome, PinNodes, Plan, Retype
from slurmsched.planning.send_rules import ASKS
from slurmsched.slurm.recheck import DOUBTFUL


class Pinning:
    """What is on record, between cycles too. All methods raise LedgerError when the record cannot be kept."""

    def __init__(self, log: PinLog) -> None:
        self._log = log
        self._known: dict[int, Pin] | None = None
        self._planned: dict[int, Pin] = {}
        self._steps: Counter[int] = Counter()
        self._before: dict[int, Pin] = {}

    @property
    def known(self) -> tuple[Pin, ...]:
        """Jobs that may hold something of ours, and those left to Slurm for good; read from the record once."""
        return tuple(pin for pin in self._records().values() if pin.open or pin.over)

    def forget(self) -> None:
        """Read the record anew: another host may have written it."""
        self._known = None

    def begin(self, plan: Plan, queue: Int64s | None) -> None:
        """Before anything of the plan is sent. queue: ids of the jobs that Slurm has; the others are forgotten.

        What is to be given is on record from now on, what is given back stays there until Slurm has said yes. Records
        that come with no action of this plan are settled at once.
        """
        records = self._records()
        if queue is not None:
            live = frozenset(queue.tolist())
            self._known = records = {job: pin for job, pin in records.items() if job in live}
        self._steps = Counter(action.job_id for action in plan.actions if _pins(action))
        self._planned, self._before = {pin.job_id: pin for pin in plan.pins}, dict(records)
        self._note(pin for pin in plan.pins if pin.open or not self._steps[pin.job_id])
        if plan.pins:
            self._log.keep(self._records().values())

    def end(self, outcomes: Iterable[Outcome]) -> None:
        """After the last answer. What Slurm refused is not there; what got no answer may be."""
        answers: dict[int, list[Outcome]] = {}
        for outcome in outcomes:
            if _pins(outcome.action):
                answers.setdefault(outcome.action.job_id, []).append(outcome)
        ends = [
            _end(pin, answers[job_id], self._steps[job_id]) if job_id in answers else self._unsent(pin)
            for job_id, pin in self._planned.items()
        ]
        self._note(pin for pin in [*ends, *self._kept_from(answers)] if pin)
        self._planned = {}

    def _kept_from(self, answers: Mapping[int, Sequence[Outcome]]) -> Iterator[Pin]:
        """Records of jobs to which their own size could not be given back: with the reason, and left alone besides."""
        for job_id, of_job in answers.items():
            has, planned = self._records().get(job_id), self._planned.get(job_id)
            barred = planned is not None and not planned.open and of_job[0].status == "refused"
            kept = replace(has, over=True, note=of_job[0].message) if has and has.sized and barred else has
            if kept and kept != has:
                yield kept

    def _unsent(self, pin: Pin) -> Pin | None:
        """What a record becomes whose steps were not sent; None if it stays. A job whose size was to change has what
        it had."""
        if not (self._steps[pin.job_id] and pin.sized and pin.open):
            return None
        return self._before.get(pin.job_id, replace(pin, gpus=pin.own_gpus))

    def _records(self) -> dict[int, Pin]:
        if self._known is None:
            self._known = self._log.known()
        return self._known

    def _note(self, pins: Iterable[Pin]) -> None:
        noted = list(pins)
        self._log.note(noted)
        self._records().update({pin.job_id: pin for pin in noted})


def repeated(outcome: Outcome) -> bool:
    """Whether it refuses to give a job its own size back for the very reason that the write itself gives: it was
    refused so before. It is tried in every cycle, since Slurm's list of jobs does not show all that keeps it back."""
    action = outcome.action
    back = isinstance(action, Retype) and action.resizes and action.gpus == action.base
    return back and outcome.status == "refused" and outcome.message == action.reason


def _pins(action: Action) -> bool:
    return isinstance(action, PinNodes | Retype)


def _end(pin: Pin, answers: Sequence[Outcome], steps: int) -> Pin | None:
    """What a record becomes by these answers to so many steps of its job; None if it stays.

    A job has its own again when Slurm has taken every step of that. One whose first list was refused has it too, since
    no request is sent then. One whose size was refused gets its own back, if it has one of ours, and is left alone.
    """
    if not answers:
        return None
    if not pin.open:
        written = sum(outcome.status == "written" for outcome in answers)
        return pin if written == steps else None
    first = answers[0]
    if pin.sized and first.status == "refused":
        return replace(pin, over=True, note=first.message)
    refused = first.status == "refused" and isinstance(first.action, PinNodes) and first.action.was == pin.base
    return _never(pin, first.message) if refused else None


def _never(pin: Pin, why: str) -> Pin:
    """The record of a job whose first list was refused: it has its own. If by what it asks for, which Slurm's list of
    jobs does not show, it would be refused in every cycle: it is left to Slurm, unless that is another user's doing."""
    barred = why.startswith(ASKS) and not why.endswith(DOUBTFUL)
    note = why if barred else "Slurm refused the list"
    return Pin(pin.job_id, pin.submit_s, pin.base, pin.base, pin.since_s, over=barred, note=note)

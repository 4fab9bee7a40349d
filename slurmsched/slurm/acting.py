"""The acts of a live cluster while their steps are sent: on record before, settled after, whole or taken back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from slurmsched.model.acts import Act, Stage
from slurmsched.model.plan import Action, Outcome, Plan, Step


class ActRecord(Protocol):
    """Where acts are kept: a file on disk (db.acts), or the memory of a replay."""

    keep_s: float  # closed acts begun so lately are remembered [s]

    def begin(self, acts: Sequence[Act]) -> None: ...
    def sent(self, acts: Sequence[Act]) -> None: ...
    def known(self) -> tuple[Act, ...]: ...
    def stepped(self) -> bool: ...


class Acting:
    """What is under way, between cycles too. All methods raise LedgerError when the record cannot be kept."""

    def __init__(self, log: ActRecord) -> None:
        self._log = log
        self._open: dict[str, Act] | None = None
        self._closed: dict[str, Act] = {}
        self._before: dict[str, Act] = {}
        self._planned: dict[str, Act] = {}
        self._unanswered: dict[str, int] = {}
        self._tried: set[str] = set()
        self._broken: dict[str, str] = {}

    @property
    def open(self) -> tuple[Act, ...]:
        """The acts that are not closed, read from the record once, and anew when the wall clock was set."""
        if self._open is None or self._log.stepped():
            known = {act.id: act for act in self._log.known()}
            self._open = {act.id: act for act in known.values() if act.stage != Stage.CLOSED}
            self._closed = {act.id: act for act in known.values() if act.stage == Stage.CLOSED}
        return tuple(self._open.values())

    def past(self, now_s: float) -> tuple[Act, ...]:
        """The closed ones that are remembered."""
        _ = self.open
        self._closed = {act.id: act for act in self._closed.values() if act.begun_s > now_s - self._log.keep_s}
        return tuple(self._closed.values())

    def forget(self) -> None:
        """Read the record anew: another host may have written it."""
        self._open = None

    def begin(self, plan: Plan) -> None:
        """Before anything of the plan is sent: its acts are on record as they will be."""
        self._before = {act.id: act for act in self.open}
        self._planned = {act.id: act for act in plan.acts}
        steps = [action.act for action in plan.actions if isinstance(action, Step) and action.act]
        self._unanswered = {act: steps.count(act) for act in self._planned}
        self._tried, self._broken = set(), {}
        self._log.begin(plan.acts)

    def unfit(self, action: Action) -> str:
        """Why a step must not be sent any more; "" for any other action."""
        reason = self._broken.get(action.act, "") if isinstance(action, Step) else ""
        return f"an earlier step of its act was refused: {reason}" if reason else ""

    def goes(self, action: Action) -> None:
        """It is sent now."""
        if isinstance(action, Step):
            self._tried.add(action.act)

    def answered(self, outcome: Outcome) -> None:
        """What came of an action, or that it was not sent for a reason of its own."""
        action = outcome.action
        if not isinstance(action, Step) or outcome.status == "unknown":
            return
        if action.act in self._unanswered:
            self._unanswered[action.act] -= 1
        if outcome.status == "refused":
            self._broken.setdefault(action.act, outcome.message)

    def end(self, now_s: float) -> None:
        """After the last answer, or when sending ended early. now_s: by the clock that times acts [Unix s]."""
        settled, unsure = [], []
        for act in self._planned.values():
            if self._unanswered[act.id] and act.id in self._tried:
                unsure.append(replace(act, sure=False))
            else:
                settled.append(_timed(self._settled(act, before := self._before.get(act.id)), before, now_s))
        self._log.sent(settled)
        now = self._before | {act.id: act for act in (*settled, *unsure)}
        self._open = {act.id: act for act in now.values() if act.stage != Stage.CLOSED}
        self._closed |= {act.id: act for act in now.values() if act.stage == Stage.CLOSED}
        self._planned = {}

    def _settled(self, act: Act, before: Act | None) -> Act:
        """The act as it is now that Slurm has answered: one that lost a step is taken back."""
        if self._unanswered[act.id]:  # nothing of it was sent
            return before or replace(act, stage=Stage.CLOSED, note="nothing of it was sent")
        if act.id in self._broken and not act.ending:
            return replace(act, stage=Stage.REVERSING, note=self._broken[act.id])
        return act


def _timed(act: Act, before: Act | None, now_s: float) -> Act:
    """The act, where victims were asked for a checkpoint just now with their grace from now on: reading the queue and
    sending all that went before has taken its time."""
    asked = act.stage == Stage.WARNED and (before is None or before.stage != Stage.WARNED)
    return replace(act, stage_s=max(act.stage_s, now_s)) if asked else act

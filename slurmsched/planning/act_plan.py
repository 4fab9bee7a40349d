"""The acts of one cycle: open ones a step further, and new ones as far as the gate lets them begin."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from slurmsched.config import Acts, Gangs, Scope
from slurmsched.config import Preemption as Taking
from slurmsched.model import Act, Purpose, Ranking, Refusal, Rights, Snapshot, Stage
from slurmsched.model.columns import Bools
from slurmsched.planning.gate import When, first_refusal
from slurmsched.planning.managed import scoped
from slurmsched.planning.parts import Begun
from slurmsched.planning.view import View
from slurmsched.protocols import Estimator

if TYPE_CHECKING:
    from slurmsched.planning.acts import Advance
    from slurmsched.planning.promises import Promises


@dataclass(frozen=True, slots=True)
class ActPlan:
    """By which limits acts begin and go on; what they need is loaded where there are any."""

    taking: Taking
    gangs: Gangs
    limits: Acts
    scope: Scope
    estimator: Estimator

    def moves(
        self, snapshot: Snapshot, ranking: Ranking, ours: Bools, last: Bools, view: View
    ) -> tuple[list[Advance], list[Refusal]]:
        """Open acts a step further, whether or not new ones may begin; then new ones, as far as the gate lets them.

        ours: (N,) bool, jobs that an act may be for. last: (N,) bool, those that their users have put behind others.
        """
        begun = self._begun(snapshot, ranking, ours & ~last)
        renewed, refused = self._renewed(snapshot), list(begun.refused)
        if not (renewed or begun.acts):
            return [], refused
        from slurmsched.planning.acts import advance, taken_back

        moves: list[Advance] = []
        for act in (*renewed, *begun.acts):
            move = advance(self._still_wanted(act, snapshot, last), snapshot, self.limits)
            view = replace(view, acts={act.id: act})
            found = first_refusal(move.steps, view, When.PLAN)
            refused += [found] if found else []
            if found is None:
                moves.append(move)
                view = replace(view, begun=(*view.begun, act)) if act in begun.acts else view
            elif act not in begun.acts:
                moves.append(taken_back(replace(act, note=found.reason), snapshot))
        return moves, refused

    def _still_wanted(self, act: Act, snapshot: Snapshot, last: Bools) -> Act:
        """The act; one that is to end where its job waits and is out of scope by now, or behind others by its user's
        own nice."""
        row = snapshot.jobs.row_of(act.job_id)
        if act.ending or row < 0 or not snapshot.jobs.pending[row]:
            return act
        note = "a nice of its own puts its job behind other jobs" if last[row] else ""
        if not scoped(snapshot.jobs.take(np.array([row])), self.scope)[0]:
            note = "its job is not in scope any more"
        return replace(act, stage=Stage.REVERSING, stage_s=snapshot.now_s, note=note) if note else act

    def _begun(self, snapshot: Snapshot, ranking: Ranking, ours: Bools) -> Begun:
        """Acts to begin: preemptions, then promises to gangs for which nobody leaves."""
        begun = Begun()
        if snapshot.site.rights < Rights.OPERATOR:
            return begun
        if self.taking.enabled:
            from slurmsched.planning.taking import begin

            begun = begin(snapshot, ranking, ours, self.taking, self.scope, self.limits.lease_s)
        if self.gangs.reserve:
            begun += self._promises(snapshot).begin(ranking, ours, begun.acts)
        return begun

    def _renewed(self, snapshot: Snapshot) -> tuple[Act, ...]:
        """The open acts, promises by what is known now."""
        if not any(act.purpose == Purpose.PROMISE for act in snapshot.acts):
            return snapshot.acts
        promises = self._promises(snapshot)
        return tuple(promises.renewed(act) if act.purpose == Purpose.PROMISE else act for act in snapshot.acts)

    def _promises(self, snapshot: Snapshot) -> Promises:
        from slurmsched.planning.promises import Promises

        return Promises.of(snapshot, self.gangs, self.limits, self.estimator)

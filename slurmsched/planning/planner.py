"""Snapshot in, plan out: rank, gate, space, and name each change with its reason."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from slurmsched import registry
from slurmsched.config import Acts, Config, Gangs, Lever, Pace, Scope, Starvation
from slurmsched.config import Placement as Pinning
from slurmsched.config import Preemption as Taking
from slurmsched.estimators.hint import Hint
from slurmsched.model import (
    Action,
    Plan,
    Ranking,
    Refusal,
    Rights,
    SetNice,
    SetSiteFactor,
    Snapshot,
    Wake,
    frozen,
)
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.hints import hint_warnings
from slurmsched.model.terms import Terms
from slurmsched.planning import managed
from slurmsched.planning.act_plan import ActPlan
from slurmsched.planning.deferrals import deferrals, own_starts, untold, wanted_s
from slurmsched.planning.gate import When, refusal
from slurmsched.planning.left_scope import left_scope, shown
from slurmsched.planning.levers import LEVERS, AnyLever
from slurmsched.planning.notes import site_notes
from slurmsched.planning.order import put_back, with_own_nice
from slurmsched.planning.parts import Deferred, Pinned
from slurmsched.planning.reasons import criteria
from slurmsched.planning.starvation import aged_first
from slurmsched.planning.values import behind_arrays, due, lever_values
from slurmsched.planning.view import View
from slurmsched.protocols import Estimator, Placement, Policy, Telling

A = TypeVar("A", bound=Action)


@dataclass(frozen=True, slots=True)
class Planner:
    """The pure middle of a cycle, for a live Slurm and for a replay alike."""

    policy: Policy
    name: str = "policy"  # of the policy, for reasons
    scope: Scope = field(default_factory=Scope)
    lever: Lever = field(default_factory=Lever)
    pace: Pace = field(default_factory=Pace)
    placement: Placement | None = None  # where jobs are pinned to
    taking: Taking = field(default_factory=Taking)
    gangs: Gangs = field(default_factory=Gangs)
    limits: Acts = field(default_factory=Acts)
    starvation: Starvation = field(default_factory=Starvation)
    estimator: Estimator = field(default_factory=Hint)
    pinning: Pinning = field(default_factory=Pinning)

    @classmethod
    def from_config(cls, config: Config) -> Planner:
        """The planner a configuration describes. Raises ConfigError for an unknown plug-in or a bad parameter."""
        parameters, estimator = dict(config.policy.parameters), None
        if config.estimator is not None:
            estimator = registry.make("estimators", config.estimator.name, config.estimator.parameters, key="estimator")
            if "estimator" not in parameters:
                parameters |= _estimator_field(config.policy.name, estimator)
        policy = registry.make("policies", config.policy.name, parameters)
        return cls(
            policy, config.policy.name, config.scope, config.lever, config.pace, starvation=config.starvation,
            taking=config.preemption, gangs=config.gangs, limits=config.acts, estimator=estimator or Hint(),
            placement=registry.make("placements", config.placement.name, config.placement.parameters, key="placement"),
            pinning=config.placement,
        )  # fmt: skip

    def terms(self, snapshot: Snapshot) -> Terms | None:
        """What the policy's estimates of run times are made of; None where its estimator cannot tell."""
        estimator = getattr(self.policy, "estimator", None)
        return estimator.terms(snapshot) if isinstance(estimator, Telling) else None

    def plan(self, snapshot: Snapshot) -> Plan:
        """What this cycle would change. The same snapshot gives the same plan."""
        verdict = managed.verdicts(snapshot, self.scope, self.lever.kind)
        ours = verdict < 0
        seen = self._seen(snapshot)
        ranking = aged_first(self.policy.rank(seen), seen, ours, self.starvation.age_cap_s)
        lever = LEVERS[self.lever.kind]
        wanted = lever_values(snapshot, ranking, ours, lever, self.lever)
        ranking = with_own_nice(snapshot, ranking, ours, wanted, lever)
        last = put_back(snapshot, lever)
        writes = due(snapshot.jobs, wanted, lever.now(snapshot.jobs))
        changed = behind_arrays(
            snapshot.jobs, ranking.order, np.flatnonzero(writes[ranking.order])
        )  # most urgent first
        left = managed.out_of_scope(snapshot.jobs, self.scope, self.lever.kind)
        view = View(snapshot, self.scope, self.taking, self.limits, verdict, left=left)
        starts = self._starts(snapshot, ranking, ours)
        back = left_scope(snapshot, self.scope, lever, left)[: self.pace.writes_per_cycle]
        most = self.pace.writes_per_cycle - len(starts.actions) - len(back)
        resized = self._sizes(snapshot, ranking, ours, most)
        resizing = np.isin(snapshot.jobs.job_id, resized.jobs)
        moved = resizing | np.isin(snapshot.jobs.job_id, starts.jobs)
        most -= len(resized.actions)
        pinned = self._pins(snapshot, ranking, ours & ~moved, most)
        places = changed[: max(0, most - len(pinned.actions))]
        values = self._actions(snapshot, ranking, places, wanted, lever)
        levers, unfit = _passed((*back, *resized.actions, *starts.actions, *values), view)
        later = wanted_s(snapshot, ranking) > snapshot.now_s + 1  # nobody makes room for these
        placed = _gangs_on_lists(snapshot, pinned)  # nobody makes room for a list that may be given back
        acts = ActPlan(self.taking, self.gangs, self.limits, self.scope, self.estimator)
        moves, without = acts.moves(snapshot, ranking, ours & ~later & ~resizing & ~placed, last, view)
        return Plan(
            actions=(
                *pinned.actions,  # first: a look at their jobs is freshest then
                *levers,
                *(step for move in moves for step in move.steps),
            ),
            refused=(
                *managed.refusals(snapshot, verdict),
                *pinned.refused,
                *resized.refused,
                *starts.refused,
                *unfit,
                *without,
                *(self._left_waiting(snapshot, ours & last) if self.taking.enabled else ()),
            ),
            deferred=len(changed) - len(places) + len(starts.left),
            notes=(
                *ranking.notes,
                *untold(seen, ranking, ours, self.lever, types=self.pinning.types),
                *hint_warnings(snapshot.jobs),
                *site_notes(snapshot, self.scope),
            ),
            ranking=ranking,
            lever_wanted=frozen(shown(snapshot, wanted, back), np.int64),
            managed=frozen(ours, np.bool_),
            verdict=frozen(verdict, np.int8),
            acts=tuple(move.act for move in moves),
            pins=(*pinned.pins, *resized.pins),
            deferrals=starts.deferrals,
            wake=Wake(min([move.wake_s for move in moves], default=math.inf)),
        )

    def _actions(
        self, snapshot: Snapshot, ranking: Ranking, places: Int64s, wanted: Int64s, lever: AnyLever
    ) -> Iterator[SetNice | SetSiteFactor]:
        """The writes at these places of the ranking, each with its reason. Ranks count waiting jobs only."""
        waits = np.cumsum(snapshot.jobs.pending[ranking.order])
        for place in places.tolist():
            row = int(ranking.order[place])
            why = criteria({name: values[row].item() for name, values in ranking.why.items()})
            reason = f"{self.name}: rank {waits[place]} of {waits[-1]}" + (f", {why}" if why else "")
            yield lever.action(snapshot.jobs, row, int(wanted[row]), reason)

    def _left_waiting(self, snapshot: Snapshot, last: Bools) -> Iterator[Refusal]:
        """That nobody leaves for these jobs."""
        rows = np.flatnonzero(last & (snapshot.jobs.gpus > 0))[: self.taking.candidates].tolist()
        for row in rows:
            reason = "nobody gives it GPUs: a nice of its own puts it behind other jobs"
            yield Refusal(int(snapshot.jobs.job_id[row]), "own-nice", reason)

    def _seen(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot as the policy sees it: no start or size of ours is taken for its user's, and who only waits for
        a node of its type is ranked."""
        seen = own_starts(snapshot)
        if seen.pins:
            from slurmsched.planning.sizes import own_sizes

            seen = own_sizes(seen)
        if self.pinning.types:
            from slurmsched.planning.pins import soon

            seen = soon(seen, self.pinning.wait_s)
        return seen

    def _pins(self, snapshot: Snapshot, ranking: Ranking, ours: Bools, most: int) -> Pinned:
        """Node lists to give and to take back; those on record go back also after pinning is turned off."""
        on = self.pinning.pin != "off" or self.pinning.types
        if self.placement is None or not (snapshot.pins or on):
            return Pinned()
        from slurmsched.planning.pin_records import unsized

        if not (unsized(snapshot).pins or on):
            return Pinned()
        from slurmsched.planning.pins import pins

        ready = ours & (snapshot.site.rights >= Rights.OPERATOR)
        return pins(snapshot, ranking, ready, self.placement, self.pinning, self.scope, most)

    def _sizes(self, snapshot: Snapshot, ranking: Ranking, ours: Bools, most: int) -> Pinned:
        """Sizes to give and to take back; those on record go back also after the lever is turned off."""
        if snapshot.site.rights < Rights.OPERATOR or not (snapshot.pins or self.lever.size):
            return Pinned()
        from slurmsched.planning.pin_records import sized
        from slurmsched.planning.sizes import sizes

        if not (sized(snapshot).pins or self.lever.size):
            return Pinned()
        return sizes(snapshot, ranking, ours, self.lever, self.scope, most)

    def _starts(self, snapshot: Snapshot, ranking: Ranking, ours: Bools) -> Deferred:
        """Earliest starts to give and to take back; those on record go back also after the lever is turned off."""
        if snapshot.site.rights < Rights.OPERATOR or not (snapshot.deferrals or self.lever.start):
            return Deferred()
        return deferrals(snapshot, ranking, ours, self.lever, self.scope, self.pace.writes_per_cycle)


def _gangs_on_lists(snapshot: Snapshot, pinned: Pinned) -> Bools:
    """Jobs of several nodes that have a node list of ours, or had one until this cycle. (N,) bool."""
    listed = [pin.job_id for pin in (*snapshot.pins, *pinned.pins) if pin.listed]
    return np.isin(snapshot.jobs.job_id, listed) & (snapshot.jobs.nodes > 1)


def _passed(actions: Iterable[A], view: View) -> tuple[list[A], list[Refusal]]:
    """The actions that the gate lets pass, and why not the others."""
    passed, refused = list[A](), list[Refusal]()
    for action in actions:
        found = refusal(action, view, When.PLAN)
        passed += [] if found else [action]
        refused += [found] if found else []
    return passed, refused


def _estimator_field(policy: str, estimator: Any) -> dict[str, Any]:
    """The estimator as a parameter of the policy, if the policy uses one."""
    return {"estimator": estimator} if "estimator" in registry.parameters("policies", policy) else {}

"""Snapshot in, plan out: rank, gate, space, and name each change with its reason."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slurmsched import registry
from slurmsched.config import Acts, Config, Lever, Pace, Scope
from slurmsched.config import Preemption as Taking
from slurmsched.errors import ConfigError
from slurmsched.model import (
    Jobs,
    Plan,
    Ranking,
    Refusal,
    Requeue,
    Rights,
    SetNice,
    SetSiteFactor,
    Snapshot,
    Wake,
    frozen,
)
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.hints import hint_warnings
from slurmsched.planning import gate
from slurmsched.planning.acts import Advance, advance
from slurmsched.planning.groups import competing
from slurmsched.planning.levers import LEVERS, AnyLever
from slurmsched.planning.reasons import criteria
from slurmsched.planning.spacing import spaced
from slurmsched.planning.taking import Begun, begin
from slurmsched.planning.targets import Preemption
from slurmsched.protocols import Placement, Policy

_LEAST_GAP = 1000  # priority points: room for ten insertions by halving between two neighbours


@dataclass(frozen=True, slots=True)
class Planner:
    """The pure middle of a cycle, for a live Slurm and for a replay alike."""

    policy: Policy
    name: str = "policy"  # of the policy, for reasons
    scope: Scope = field(default_factory=Scope)
    lever: Lever = field(default_factory=Lever)
    pace: Pace = field(default_factory=Pace)
    preemption: Preemption | None = None
    placement: Placement | None = None
    taking: Taking = field(default_factory=Taking)
    limits: Acts = field(default_factory=Acts)

    @classmethod
    def from_config(cls, config: Config) -> Planner:
        """The planner a configuration describes. Raises ConfigError for an unknown plug-in or a bad parameter."""
        parameters = dict(config.policy.parameters)
        if config.estimator is not None and "estimator" not in parameters:
            estimator = registry.make("estimators", config.estimator.name, config.estimator.parameters, key="estimator")
            parameters |= _estimator_field(config.policy.name, estimator)
        policy = registry.make("policies", config.policy.name, parameters)
        return cls(
            policy, config.policy.name, config.scope, config.lever, config.pace,
            taking=config.preemption, limits=config.acts,
        )  # fmt: skip

    def plan(self, snapshot: Snapshot) -> Plan:
        """What this cycle would change. The same snapshot gives the same plan."""
        ranking = self.policy.rank(snapshot)
        verdict = gate.verdicts(snapshot, self.scope, self.lever.kind)
        managed = verdict < 0
        lever = LEVERS[self.lever.kind]
        wanted = self._values(snapshot, ranking, managed, lever)
        due = _due(snapshot.jobs, wanted != lever.now(snapshot.jobs))
        changed = np.flatnonzero(due[ranking.order])  # places, most urgent first
        places = changed[: self.pace.writes_per_cycle]
        moves, unfit = self._acts(snapshot, ranking, managed)
        return Plan(
            actions=(
                *self._actions(snapshot, ranking, places, wanted, lever),
                *self._requeues(snapshot, ranking, managed),  # after: the freed GPUs go to whom they are meant for
                *(step for move in moves for step in move.steps),
            ),
            refused=(*gate.refusals(snapshot, verdict), *unfit),
            deferred=len(changed) - len(places),
            notes=(*ranking.notes, *hint_warnings(snapshot.jobs), *_notes(snapshot, self.lever, self.scope)),
            ranking=ranking,
            lever_wanted=frozen(wanted, np.int64),
            managed=frozen(managed, np.bool_),
            verdict=frozen(verdict, np.int8),
            acts=tuple(move.act for move in moves),
            wake=Wake(min([move.wake_s for move in moves], default=math.inf)),
        )

    def _values(self, snapshot: Snapshot, ranking: Ranking, managed: Bools, lever: AnyLever) -> Int64s:
        """The lever value of every row: new where the order asks for it, else as it is. (N,) int64."""
        jobs, boost = snapshot.jobs, lever.boost(snapshot.jobs).copy()
        order = ranking.order[managed[ranking.order]]
        factors = np.rint(lever.factors(jobs)).astype(np.int64)
        tie = np.empty(len(jobs), np.int64)
        tie[np.lexsort((jobs.job_id, jobs.submit_s))] = np.arange(len(jobs))
        group = competing(snapshot)[order]
        for number in np.unique(group):
            rows = order[group == number]
            height = np.maximum((factors + boost)[rows], 1)  # Slurm never goes below 1
            made, kept = spaced(height, tie[rows], **self._band(snapshot, factors[rows]))
            boost[rows[~kept]] = (made - factors[rows])[~kept]
        return _with_followers(jobs, managed, lever.value(jobs, boost))

    def _band(self, snapshot: Snapshot, factors: Int64s) -> dict[str, int]:
        """Distances and bounds for the jobs of these factors, wide enough that ageing and fair share seldom reorder.

        Raises ConfigError if the band is too narrow for the jobs.
        """
        lever, weights = self.lever, int(snapshot.site.priority_weights)
        if lever.ceiling - lever.floor < len(factors):
            raise ConfigError(
                f"{lever.ceiling} leaves no room for {len(factors)} jobs above lever.floor = {lever.floor}",
                key="lever.ceiling",
            )
        room = (lever.ceiling - lever.floor) // (2 * len(factors))
        gap = max(1, min(lever.gap or max(_LEAST_GAP, weights // 5), room))
        bounds = {"floor": lever.floor, "ceiling": lever.ceiling, "start": int(factors.max())}
        return {"gap": gap, "margin": gap // 8 if weights else 0, **bounds}

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

    def _acts(self, snapshot: Snapshot, ranking: Ranking, managed: Bools) -> tuple[list[Advance], tuple[Refusal, ...]]:
        """Open acts a step further, whether or not new ones may begin; then new ones."""
        begun = Begun()
        if self.taking.enabled and snapshot.site.rights >= Rights.OPERATOR:
            begun = begin(snapshot, ranking, managed, self.taking, self.scope)
        return [advance(act, snapshot, self.limits) for act in (*snapshot.acts, *begun.acts)], begun.refused

    def _requeues(self, snapshot: Snapshot, ranking: Ranking, managed: Bools) -> tuple[Requeue, ...]:
        if self.preemption is None or self.placement is None:
            return ()
        movable = managed | (snapshot.jobs.running & gate.scoped(snapshot.jobs, self.scope))
        return self.preemption.requeues(snapshot, ranking, self.placement, movable)


def _due(jobs: Jobs, changed: Bools) -> Bools:
    """Changed rows without the array tasks that the write of their array reaches. (N,) bool."""
    rows, leader = _followers(jobs)
    due = changed.copy()
    due[rows[changed[leader]]] = False
    return due


def _followers(jobs: Jobs) -> tuple[Int64s, Int64s]:
    """Rows of pending tasks that follow their array, and the row of the array of each."""
    rows = np.flatnonzero(gate.follows_array(jobs) & jobs.pending)
    return rows, np.searchsorted(jobs.job_id, jobs.array_job_id[rows])


def _with_followers(jobs: Jobs, managed: Bools, wanted: Int64s) -> Int64s:
    """Array tasks follow their array: Slurm writes them together. (N,) int64."""
    rows, leader = _followers(jobs)
    rows, leader = rows[managed[leader]], leader[managed[leader]]
    wanted[rows] = wanted[leader]
    return wanted


def _notes(snapshot: Snapshot, lever: Lever, scope: Scope) -> tuple[str, ...]:
    """What keeps the plan from working at this site, in words."""
    site, found = snapshot.site, []
    if site.rights < Rights.OPERATOR:
        who = site.user or "this user"
        found.append(
            f"{who} has no Operator right in Slurm, which negative nice and SiteFactor need: nothing can be written"
        )
    if not site.multifactor and lever.kind == "site_factor":
        found.append('PriorityType is priority/basic, which ignores SiteFactor: set lever.kind = "nice"')
    if not scope.partitions:
        found.append('scope.partitions is empty: no job is managed; name partitions, or "*" for all')
    unknown = sorted({*scope.partitions} - {"*", *snapshot.partitions.name})
    if unknown and len(snapshot.partitions):
        found.append(f"scope.partitions names what Slurm does not know: {', '.join(unknown)}")
    return tuple(found)


def _estimator_field(policy: str, estimator: Any) -> dict[str, Any]:
    """The estimator as a parameter of the policy, if the policy uses one."""
    return {"estimator": estimator} if "estimator" in registry.parameters("policies", policy) else {}

"""Snapshot in, plan out: rank the jobs, let each lever propose changes, and pass these through the gate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from slurmsched import registry
from slurmsched.config import (
    Config,
    GangsConfig,
    IdleGpusConfig,
    JobReportsConfig,
    LeverConfig,
    OperationsConfig,
    PaceConfig,
    PlacementConfig,
    PreemptionConfig,
    ScopeConfig,
    SoftCaps,
    StarvationConfig,
)
from slurmsched.estimators.requested_time import Hint
from slurmsched.model import Action, Override, Plan, Ranking, Refusal, SetField, Snapshot, frozen
from slurmsched.model.columns import Bools
from slurmsched.model.hints import hint_warnings
from slurmsched.model.plan import RunTimeFactors, Step
from slurmsched.model.policy_info import criteria_words
from slurmsched.planning import job_scope
from slurmsched.planning.earliest_starts import unwritten_changes
from slurmsched.planning.gate import GateContext, GateTime, refusal
from slurmsched.planning.job_scope import site_notes, with_returned
from slurmsched.planning.levers import levers_of
from slurmsched.planning.moldable_sizes import moldable_sizes
from slurmsched.planning.priorities.order import (
    aged_first,
    behind_by_own_nice,
    capped_last,
    idle_users_last,
    in_tiers,
    unread_tiers,
    with_decider,
    with_own_nice,
)
from slurmsched.planning.priorities.priority_fields import PRIORITY_FIELDS, PriorityField
from slurmsched.planning.priorities.priority_values import wanted_values
from slurmsched.planning.priorities.priority_weights import weight_notes
from slurmsched.planning.proposals import Budget, Lever, Proposal
from slurmsched.protocols import Estimator, ExplainingEstimator, Placement, Policy
from slurmsched.tier_spec import Tier, read_tiers

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Planner:
    """The pure middle of a cycle, for a live Slurm and for a replay alike."""

    policy: Policy
    name: str = "policy"  # of the policy, for reasons
    scope: ScopeConfig = field(default_factory=ScopeConfig)
    lever: LeverConfig = field(default_factory=LeverConfig)
    pace: PaceConfig = field(default_factory=PaceConfig)
    placement: Placement | None = None  # where jobs are pinned to
    preemption: PreemptionConfig = field(default_factory=PreemptionConfig)
    gangs: GangsConfig = field(default_factory=GangsConfig)
    operations_config: OperationsConfig = field(default_factory=OperationsConfig)
    starvation: StarvationConfig = field(default_factory=StarvationConfig)
    estimator: Estimator = field(default_factory=Hint)
    placement_config: PlacementConfig = field(default_factory=PlacementConfig)
    tiers: tuple[Tier, ...] = ()  # keys that go before the policy
    soft_caps: SoftCaps = field(default_factory=SoftCaps)
    idle: IdleGpusConfig = field(default_factory=IdleGpusConfig)
    reports: JobReportsConfig = field(default_factory=JobReportsConfig)
    profiles: str = ""  # file of measured_use.profiles

    @classmethod
    def from_config(cls, config: Config) -> Planner:
        """The planner a configuration describes. Raises ConfigError for an unknown plug-in or a bad parameter."""
        plugins = registry.configured(config)
        return cls(
            plugins.policy, config.policy.name, config.scope, config.lever, config.pace, starvation=config.starvation,
            preemption=config.preemption, gangs=config.gangs, operations_config=config.operations,
            estimator=plugins.estimator or Hint(),
            placement=plugins.placement, placement_config=config.placement, tiers=read_tiers(config.policy.tiers),
            soft_caps=config.soft_caps, idle=config.idle_gpus, reports=config.job_reports,
            profiles=config.measured_use.profiles,
        )  # fmt: skip

    def terms(self, snapshot: Snapshot) -> RunTimeFactors | None:
        """The terms of the policy's estimates of run times; None if its estimator has none."""
        estimator = getattr(self.policy, "estimator", None)
        return estimator.terms(snapshot) if isinstance(estimator, ExplainingEstimator) else None

    # Over 30 lines: the numbered steps of a cycle.
    def plan(self, snapshot: Snapshot) -> Plan:
        """What this cycle would change. The same snapshot gives the same plan."""
        # 1. Which jobs are managed; for each other one the rule that excludes it.
        verdict = job_scope.verdicts(snapshot, self.scope, self.lever.kind)
        ours = verdict < 0
        # 2. The policy ranks the jobs as their users submitted them.
        levers = levers_of(self, snapshot)
        seen = reduce(lambda made, lever: lever.as_submitted(made), levers.values(), snapshot)
        priority = PRIORITY_FIELDS[self.lever.kind]
        ranking = self._ranked(seen, ours, priority)
        ranking = reduce(lambda made, lever: lever.reorder(snapshot, made), levers.values(), ranking)
        ranking = with_decider(seen, ranking)
        # 3. A nice of a user's own counts as it does in Slurm.
        values = wanted_values(snapshot, ranking, ours, priority, self.lever)
        ranking = with_own_nice(snapshot, ranking, ours, values, priority)
        # 4. Each lever proposes changes, within the writes that those before it have not used.
        context = self._context(snapshot, verdict)
        budget = Budget(ours, self.pace.writes_per_cycle, values, behind_by_own_nice(snapshot, priority), context)
        proposals = _proposals(levers, snapshot, ranking, budget)
        # 5. The gate leaves out what is not safe.
        passed, unfit = _passed(levers, proposals, context)
        # 6. The plan, with a reason for each change and each refusal.
        returned = proposals["out-of-scope"].actions
        return Plan(
            actions=tuple(passed),
            refused=(*job_scope.refusals(snapshot, verdict), *_of_all(proposals, lambda each: each.refusals), *unfit),
            deferred=len(_of_all(proposals, lambda each: each.postponed)),
            notes=self._notes(snapshot, seen, ranking, ours),
            ranking=ranking,
            wanted_values=frozen(with_returned(snapshot, values, returned), np.int64),
            managed=frozen(ours, np.bool_),
            verdict=frozen(verdict, np.int8),
            operations=_of_all(proposals, lambda each: each.operations),
            overrides=_changed_records(proposals, passed),
            next_look_s=min(proposal.next_look_s for proposal in proposals.values()),
        )

    def _ranked(self, seen: Snapshot, ours: Bools, priority: PriorityField) -> Ranking:
        """The policy's order within the tiers; jobs beyond a soft cap last, and beyond the age cap first."""
        made = self.policy.rank(seen)
        made = replace(made, words={**criteria_words(self.policy), **made.words})
        ranking = in_tiers(made, seen, self.tiers, priority.factors(seen.jobs))
        ranking = capped_last(ranking, seen, ours, self.soft_caps)
        ranking = idle_users_last(ranking, seen, ours, self.idle)
        ranking = moldable_sizes(ranking, seen, ours, self.lever, self.scope)
        return aged_first(ranking, seen, ours, self.starvation.age_cap_s)

    def _context(self, snapshot: Snapshot, verdict: NDArray[np.int8]) -> GateContext:
        """What the gate's rules look at when the plan is made. verdict: (N,), of job_scope.verdicts."""
        out_of_scope = job_scope.out_of_scope(snapshot.jobs, self.scope, self.lever.kind)
        return GateContext(
            snapshot, self.scope, self.preemption, self.operations_config, verdict, out_of_scope=out_of_scope
        )

    def _notes(self, snapshot: Snapshot, seen: Snapshot, ranking: Ranking, ours: Bools) -> tuple[str, ...]:
        """What this plan cannot do, as text."""
        return (
            *ranking.notes,
            *registry.plugin_notes(self.policy),
            *(registry.plugin_notes(self.placement) if self.placement_config.pin != "off" else ()),
            *unwritten_changes(seen, ranking, ours, self.lever, types=self.placement_config.types),
            *hint_warnings(snapshot.jobs),
            *site_notes(snapshot, self.scope),
            *unread_tiers(snapshot, self.tiers, ours),
            *(weight_notes(snapshot.site.settings, self.tiers) if self.scope.partitions else ()),
        )


def _proposals(levers: dict[str, Lever], snapshot: Snapshot, ranking: Ranking, budget: Budget) -> dict[str, Proposal]:
    """What each lever proposes, by name."""
    proposals: dict[str, Proposal] = {}
    for name, lever in levers.items():
        proposals[name] = lever.propose(snapshot, ranking, replace(budget, proposals=dict(proposals)))
        budget = replace(budget, writes=budget.writes - len(proposals[name].actions))
    return proposals


def _passed(
    levers: dict[str, Lever], proposals: dict[str, Proposal], context: GateContext
) -> tuple[list[Action], list[Refusal]]:
    """The actions that the gate lets pass, and why not the others. Steps of operations have passed it together.

    Actions of the levers that are marked `first` come before all others.
    """
    passed, refused = list[Action](), list[Refusal]()
    order = sorted(proposals, key=lambda name: not levers[name].first)
    operations = {operation.id for proposal in proposals.values() for operation in proposal.operations}
    for action in (action for name in order for action in proposals[name].actions):
        together = isinstance(action, Step) and action.operation in operations
        found = None if together else refusal(action, context, GateTime.PLAN)
        passed += [] if found else [action]
        refused += [found] if found else []
    return passed, refused


def _changed_records(proposals: dict[str, Proposal], passed: list[Action]) -> tuple[Override, ...]:
    """The records that change, without those of changes that the gate has refused."""
    every = [action for proposal in proposals.values() for action in proposal.actions]
    wanted, sent = ({(each.job_id, each.field) for each in actions if isinstance(each, SetField)}
                    for actions in (every, passed))  # fmt: skip
    records = _of_all(proposals, lambda each: each.overrides)
    return tuple(record for record in records if record.key not in wanted - sent)


def _of_all(proposals: dict[str, Proposal], part: Callable[[Proposal], tuple[Item, ...]]) -> tuple[Item, ...]:
    """This part of all proposals."""
    return tuple(item for proposal in proposals.values() for item in part(proposal))

"""The operations of one cycle: open ones a step further, and new ones as far as the gate lets them begin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from slurmsched.config import GangsConfig, OperationsConfig, PreemptionConfig, ScopeConfig
from slurmsched.model import Operation, OperationStage, Purpose, Ranking, Refusal, Rights, Snapshot
from slurmsched.model.columns import Bools
from slurmsched.planning.earliest_starts import wanted_s
from slurmsched.planning.gate import GateContext, GateTime, first_refusal
from slurmsched.planning.job_overrides import with_cpus
from slurmsched.planning.job_scope import scoped
from slurmsched.planning.proposals import Budget, Lever, Proposal, StartedOperations
from slurmsched.protocols import Estimator

if TYPE_CHECKING:
    from slurmsched.planning.operations.gang_reservations import GangReservations
    from slurmsched.planning.operations.operation_steps import NextSteps
    from slurmsched.planning.planner import Planner


@dataclass(frozen=True, slots=True)
class OperationLever(Lever):
    """Begins preemptions and gang reservations, and takes open ones a step further."""

    plan: OperationPlanner

    @classmethod
    def of(cls, planner: Planner) -> OperationLever:
        return cls(
            OperationPlanner(
                planner.preemption, planner.gangs, planner.operations_config, planner.scope, planner.estimator
            )
        )

    def propose(self, snapshot: Snapshot, ranking: Ranking, budget: Budget) -> Proposal:
        jobs, preemption = snapshot.jobs, self.plan.preemption
        later = wanted_s(snapshot, ranking) > snapshot.now_s + 1  # nobody makes room for these
        busy = [*budget.changed_by("size", "cpus", "memory", "share"), *with_cpus(snapshot)]
        busy += _gangs_on_lists(snapshot, budget)
        ours = budget.without(busy, jobs.job_id) & ~later
        next_steps, refused = self.plan.next_steps(snapshot, ranking, ours, budget.last, budget.context)
        waiting = _waiting_last(snapshot, budget, preemption.candidates) if preemption.enabled else ()
        return Proposal(
            actions=tuple(step for each in next_steps for step in each.steps),
            refusals=(*refused, *waiting),
            operations=tuple(each.operation for each in next_steps),
            next_look_s=min((each.next_look_s for each in next_steps), default=inf),
        )

    @staticmethod
    def restore(snapshot: Snapshot) -> Proposal:
        if not snapshot.operations:
            return Proposal()
        from slurmsched.planning.operations.operation_steps import end_steps

        next_steps = [end_steps(operation, snapshot) for operation in snapshot.operations]
        steps = tuple(step for each in next_steps for step in each.steps)
        return Proposal(steps, operations=tuple(each.operation for each in next_steps))


def _gangs_on_lists(snapshot: Snapshot, budget: Budget) -> list[int]:
    """Ids of gangs that have a node list of ours, or had one until this cycle: nobody makes room for a list that may be
    given back."""
    proposed = budget.proposals["node-list"].overrides if "node-list" in budget.proposals else ()
    listed = {
        record.job_id for record in (*snapshot.overrides, *proposed) if record.field == "node_list" and record.open
    }
    rows = (snapshot.jobs.row_of(job) for job in listed)
    return [int(snapshot.jobs.job_id[row]) for row in rows if row >= 0 and snapshot.jobs.nodes[row] > 1]


def _waiting_last(snapshot: Snapshot, budget: Budget, most: int) -> Iterator[Refusal]:
    """That no job loses GPUs for these."""
    rows = np.flatnonzero(budget.jobs & budget.last & (snapshot.jobs.gpus > 0))[:most].tolist()
    for row in rows:
        reason = "no job is preempted for it: its user's nice puts it behind other jobs"
        yield Refusal(int(snapshot.jobs.job_id[row]), "own-nice", reason)


@dataclass(frozen=True, slots=True)
class OperationPlanner:
    """By which limits operations begin and go on; what they need is loaded where there are any."""

    preemption: PreemptionConfig
    gangs: GangsConfig
    operations_config: OperationsConfig
    scope: ScopeConfig
    estimator: Estimator

    def next_steps(
        self, snapshot: Snapshot, ranking: Ranking, ours: Bools, last: Bools, context: GateContext
    ) -> tuple[list[NextSteps], list[Refusal]]:
        """Open operations a step further, whether or not new ones may begin; then new ones, as far as the gate lets
        them.

        ours: (N,) bool, jobs that an operation may be for. last: (N,) bool, those that their users have put behind
        others."""
        begun = self._begun(snapshot, ranking, ours & ~last)
        renewed, refused = self._renewed(snapshot), list(begun.refused)
        if not (renewed or begun.operations):
            return [], refused
        from slurmsched.planning.operations.operation_steps import advance, end_steps

        next_steps: list[NextSteps] = []
        for operation in (*renewed, *begun.operations):
            each = advance(self._still_wanted(operation, snapshot, last), snapshot, self.operations_config)
            context = replace(context, operations={operation.id: operation})
            found = first_refusal(each.steps, context, GateTime.PLAN)
            refused += [found] if found else []
            if found is None:
                next_steps.append(each)
                context = (
                    replace(context, begun=(*context.begun, operation)) if operation in begun.operations else context
                )
            elif operation not in begun.operations:
                next_steps.append(end_steps(replace(operation, note=found.reason), snapshot))
        return next_steps, refused

    def _still_wanted(self, operation: Operation, snapshot: Snapshot, last: Bools) -> Operation:
        """The operation; one that is to end where its job waits and is out of scope by now, or behind others by its
        user's own nice."""
        row = snapshot.jobs.row_of(operation.job_id)
        if operation.ending or row < 0 or not snapshot.jobs.pending[row]:
            return operation
        note = "its user's nice puts its job behind other jobs" if last[row] else ""
        if not scoped(snapshot.jobs.take(np.array([row])), self.scope)[0]:
            note = "its job is not in scope any more"
        return (
            replace(operation, stage=OperationStage.REVERSING, stage_s=snapshot.now_s, note=note) if note else operation
        )

    def _begun(self, snapshot: Snapshot, ranking: Ranking, ours: Bools) -> StartedOperations:
        """Operations to begin: preemptions, then gang reservations for which nobody leaves."""
        begun = StartedOperations()
        if snapshot.site.rights < Rights.OPERATOR:
            return begun
        if self.preemption.enabled:
            from slurmsched.planning.operations.preemption import begin_preemptions

            begun = begin_preemptions(
                snapshot, ranking, ours, self.preemption, self.scope, self.operations_config.lease_s
            )
        if self.gangs.reserve:
            begun += self._gang_reservations(snapshot).begin(ranking, ours, begun.operations)
        return begun

    def _renewed(self, snapshot: Snapshot) -> tuple[Operation, ...]:
        """The open operations, gang reservations by what is known now."""
        if not any(operation.purpose == Purpose.RESERVE for operation in snapshot.operations):
            return snapshot.operations
        reserving = self._gang_reservations(snapshot)
        return tuple(
            reserving.renewed(operation) if operation.purpose == Purpose.RESERVE else operation
            for operation in snapshot.operations
        )

    def _gang_reservations(self, snapshot: Snapshot) -> GangReservations:
        from slurmsched.planning.operations.gang_reservations import GangReservations

        return GangReservations.of(snapshot, self.gangs, self.operations_config, self.estimator)

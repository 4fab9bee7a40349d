"""The input and the output of levers. This module is small, since a cycle does not load levers that are off."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Self

import numpy as np

from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.operations import Operation
from slurmsched.model.overrides import Override
from slurmsched.model.plan import Action, Outcome, Ranking, Refusal
from slurmsched.model.snapshot import Snapshot

if TYPE_CHECKING:
    from slurmsched.planning.gate import GateContext
    from slurmsched.planning.planner import Planner

Records = tuple[Override, ...]
JobChange = tuple[Action, Records]


@dataclass(frozen=True, slots=True)
class Proposal:
    """What one lever would change in this cycle.

    actions: to send, in this order.
    overrides: the records that change, as they are once the actions are written.
    refusals: why other jobs are not changed.
    postponed: ids of jobs whose change waits for the next cycle, since the budget is used up.
    operations: preemptions and gang reservations that begin or go on, as they are once the actions are written.
    next_look_s: when to look again [Unix s].
    """

    actions: tuple[Action, ...] = ()
    overrides: tuple[Override, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    postponed: tuple[int, ...] = ()
    operations: tuple[Operation, ...] = ()
    next_look_s: float = inf

    @classmethod
    def of_changes(
        cls,
        changes: Sequence[JobChange],
        most: int | None = None,
        changed: Records = (),
        refusals: tuple[Refusal, ...] = (),
    ) -> Self:
        """The first moves, at most that many, None = all; the others wait for the next cycle.

        changes: actions, each with the records of its job. changed: records that change by themselves.
        """
        split = len(changes) if most is None else max(most, 0)
        sent, later = changes[:split], changes[split:]
        records = (*changed, *(record for _, of_job in sent for record in of_job))
        return cls(tuple(action for action, _ in sent), records, refusals, tuple(action.job_id for action, _ in later))

    @property
    def jobs(self) -> list[int]:
        """Ids of the jobs that it changes, in this cycle or the next."""
        return [*(action.job_id for action in self.actions), *self.postponed]


@dataclass(frozen=True, slots=True, eq=False)
class Budget:
    """What a lever may change.

    jobs: (N,) bool, the jobs of the snapshot that slurmsched manages.
    writes: how many more jobs may be written in this cycle.
    values: (N,) int64, the nice or site factor that puts each job in the order of the ranking.
    last: (N,) bool, jobs that a nice of their own puts behind others.
    context: the input of the gate.
    proposals: of the levers before this one, by name.
    """

    jobs: Bools
    writes: int
    values: Int64s
    last: Bools
    context: GateContext
    proposals: Mapping[str, Proposal] = field(default_factory=dict)

    def changed_by(self, *levers: str) -> list[int]:
        """Ids of the jobs that these levers change."""
        return [job for name in levers if name in self.proposals for job in self.proposals[name].jobs]

    def without(self, job_ids: list[int], jobs: Int64s) -> Bools:
        """The managed jobs but these. jobs: (N,) ids. (N,) bool."""
        free: Bools = self.jobs & ~np.isin(jobs, job_ids)
        return free


class Lever(ABC):
    """A way to change jobs: one field of a job, or an operation of several steps. Pure.

    A new one is a subclass in a file of its own, its action (see model.plan.SetField) and a line in levers.py.
    """

    first = False  # whether its actions are sent before those of other levers

    @classmethod
    @abstractmethod
    def of(cls, planner: Planner) -> Self:
        """The lever by the settings of this planner."""

    def as_submitted(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot for the policy, in which values of slurmsched are replaced by the users' own."""
        return snapshot

    def reorder(self, snapshot: Snapshot, ranking: Ranking) -> Ranking:
        """The ranking with the jobs first that start by what this lever gave them. snapshot: as read."""
        return ranking

    @abstractmethod
    def propose(self, snapshot: Snapshot, ranking: Ranking, budget: Budget) -> Proposal:
        """The changes of this cycle. snapshot: as read."""

    @staticmethod
    def restore(snapshot: Snapshot) -> Proposal:
        """The changes that give every job its own value back, as `undo` does."""
        return Proposal()

    @staticmethod
    def settled(planned: Records, before: Records, answers: Sequence[Outcome], steps: int) -> Records:
        """The records of one job by what became of its actions; () if those on record stay.

        planned: of the proposal. before: on record until then. answers: in order, less than `steps` where sending ended
        early. What is given is on record before it is sent; what is given back stays there until Slurm took it.
        """
        (record,) = planned
        if not record.open:
            return Lever.settled_restore(planned, answers, steps)
        if not any(outcome.status == "refused" for outcome in answers):
            return ()
        return before or (record.closed(f"Slurm refused the {record.field.replace('_', ' ')}"),)

    @staticmethod
    def settled_restore(planned: Records, answers: Sequence[Outcome], steps: int) -> Records:
        """The records of a job that gets its own values back: as planned once Slurm took every step, else as before."""
        return planned if answers and len(carried_out(answers)) == steps else ()


def carried_out(answers: Sequence[Outcome]) -> list[Outcome]:
    """The actions that Slurm has carried out."""
    return [outcome for outcome in answers if outcome.status == "written"]


@dataclass(frozen=True, slots=True)
class StartedOperations:
    """The operations that begin in this cycle.

    operations: to begin now.
    refused: why urgent jobs got none.
    """

    operations: tuple[Operation, ...] = ()
    refused: tuple[Refusal, ...] = ()

    def __add__(self, other: StartedOperations) -> StartedOperations:
        return StartedOperations((*self.operations, *other.operations), (*self.refused, *other.refused))

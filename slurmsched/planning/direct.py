"""Plans for a cluster that can be told who holds which GPUs: no levers, the target is the plan."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.model import Assignments, Plan, Ranking, Snapshot, Wake
from slurmsched.model.columns import Int64s
from slurmsched.placements.candidates import HOLDS, MAY_START, standing
from slurmsched.protocols import BackfillingPlacement, Placement, Policy

Filling = Literal["skip", "block", "easy"]
FILLINGS: tuple[Filling, ...] = ("skip", "block", "easy")


@dataclass(frozen=True, slots=True)
class DirectPlanner:
    """Rank, place, and name the target. A `Planner`; what it plans is enacted, not steered by priorities.

    filling: who gets GPUs that the first waiting job cannot use. "skip": every later job that fits. "block": nobody.
    "easy": later jobs that do not delay it (EASY backfill; the placement must offer `backfill`).
    A preemptive policy orders running and waiting jobs alike; under any other one running jobs keep their GPUs.
    Raises ConfigError for another filling, and for one that policy or placement cannot do.
    """

    policy: Policy
    placement: Placement
    filling: Filling = "skip"

    def __post_init__(self) -> None:
        if self.filling not in FILLINGS:
            raise ConfigError(f"must be one of {', '.join(FILLINGS)}, got {self.filling!r}", key="filling")
        if self.filling == "easy" and not isinstance(self.placement, BackfillingPlacement):
            raise ConfigError(f"{type(self.placement).__name__} cannot backfill; choose skip or block", key="filling")
        if self.filling != "skip" and self.preemptive:
            raise ConfigError(f"{type(self.policy).__name__} preempts, which needs skip", key="filling")

    @property
    def preemptive(self) -> bool:
        return bool(getattr(self.policy, "preemptive", False))

    def plan(self, snapshot: Snapshot) -> Plan:
        """Who should hold GPUs now. The same snapshot gives the same plan."""
        ranking = self.policy.rank(snapshot)
        target = self._target(snapshot, ranking)
        wake = self._wake(snapshot, ranking, target)
        return Plan(notes=ranking.notes, ranking=ranking, target=target, wake=wake)

    def _target(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        if self.preemptive:
            return self.placement.place(snapshot, ranking)
        if self.filling == "easy":
            return self.placement.backfill(snapshot, ranking)  # type: ignore[attr-defined]  # checked when made
        keeps = standing(snapshot)[ranking.order] == HOLDS
        order = np.concatenate([ranking.order[keeps], ranking.order[~keeps]])
        target = self.placement.place(snapshot, Ranking(order))
        return target if self.filling == "skip" else _blocked(snapshot, order, target)

    def _wake(self, snapshot: Snapshot, ranking: Ranking, target: Assignments) -> Wake:
        """When the next plan can differ; nothing is looked for while no job waits."""
        jobs = snapshot.jobs
        running = np.zeros(len(jobs), np.bool_)
        running[target.rows] = True
        waiting = (standing(snapshot) > 0) & ~running  # who is preempted waits too
        if not waiting.any():
            return Wake()
        at_s = math.inf
        if (next_change_s := getattr(self.policy, "next_change_s", None)) is not None:  # see ChangingPolicy
            at_s = next_change_s(snapshot, ranking, running)
        if self.preemptive:
            return Wake(at_s)
        if self.filling != "block":
            return Wake(at_s, int(jobs.gpus[waiting].min()))
        head = ranking.order[waiting[ranking.order]][0]
        return Wake(at_s, int(jobs.gpus[head]), arrivals=not getattr(self.policy, "arrivals_last", False))


def _blocked(snapshot: Snapshot, order: Int64s, target: Assignments) -> Assignments:
    """The target without what is placed after the first waiting job that does not fit."""
    served = np.zeros(len(order), np.bool_)
    served[target.rows] = True
    left = np.flatnonzero(((standing(snapshot) == MAY_START) & ~served)[order])
    if not len(left):
        return target
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    kept = int(np.count_nonzero(place[target.rows] < left[0]))
    last = int(target.count[:kept].sum())
    return Assignments(
        target.rows[:kept], target.first[:kept], target.count[:kept], target.node[:last], target.gpus[:last]
    )

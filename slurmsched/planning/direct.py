"""Plans for a cluster that can be told who holds which GPUs: no levers, the target is the plan."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.kernels.show import who_waits
from slurmsched.model import Assignments, Plan, Ranking, Snapshot, Wake, frozen
from slurmsched.model.columns import Bools, Int64s
from slurmsched.placements.candidates import HOLDS, MAY_START, standing
from slurmsched.planning.wants import as_wanted
from slurmsched.protocols import BackfillingPlacement, Placement, Policy, ReservingPlacement

Filling = Literal["skip", "block", "easy", "conservative"]
FILLINGS: tuple[Filling, ...] = ("skip", "block", "easy", "conservative")
ROOM_FOR_ALL = Wake(fits=True)


@dataclass(frozen=True, slots=True)
class DirectPlanner:
    """Rank, place, and name the target. A `Planner`; what it plans is enacted, not steered by priorities.

    filling: who gets GPUs that the first waiting job cannot use. "skip": every later job that fits. "block": nobody.
    "easy": later jobs that do not delay it (EASY backfill; the placement must offer `backfill`). "conservative": those
    that delay none before them (it must offer `reserve`).
    A preemptive policy orders running and waiting jobs alike; under any other one running jobs keep their GPUs.
    Raises ConfigError for another filling, and for one that policy or placement cannot do.
    """

    policy: Policy
    placement: Placement
    filling: Filling = "skip"

    def __post_init__(self) -> None:
        if self.filling not in FILLINGS:
            raise ConfigError(f"must be one of {', '.join(FILLINGS)}, got {self.filling!r}", key="filling")
        needed = {"easy": BackfillingPlacement, "conservative": ReservingPlacement}.get(self.filling)
        if needed and not isinstance(self.placement, needed):
            raise ConfigError(f"{type(self.placement).__name__} cannot backfill; choose skip or block", key="filling")
        if self.filling != "skip" and self.preemptive:
            raise ConfigError(f"{type(self.policy).__name__} preempts, which needs skip", key="filling")

    @property
    def preemptive(self) -> bool:
        return bool(getattr(self.policy, "preemptive", False))

    @property
    def settled(self) -> bool:
        """Whether the order of waiting jobs never changes, so that a plan can leave a queue."""
        return self.filling == "block" and bool(getattr(self.policy, "arrivals_last", False))

    def plan(self, snapshot: Snapshot) -> Plan:
        """Who should hold GPUs now. The same snapshot gives the same plan."""
        ranking = self.policy.rank(snapshot)
        wanted = as_wanted(snapshot, ranking.wants)
        stands = standing(wanted)
        target = self._target(wanted, ranking, stands)
        running, least, head = who_waits(ranking.order, stands, target.rows, wanted.jobs.gpus)  # preempted jobs wait
        at_s = self._change_s(snapshot, ranking, running) if head >= 0 else math.inf
        wake = self._wake(at_s, least, int(wanted.jobs.gpus[head])) if head >= 0 else ROOM_FOR_ALL
        if ranking.wants is not None:  # whoever comes is to be looked at, and whoever is held back to be let go
            wake = Wake(min(at_s, _begin_s(wanted, ranking)))
        queue = self._queue(ranking, stands, target)
        return Plan(notes=ranking.notes, ranking=ranking, target=target, wake=wake, queue=queue)

    def _target(self, snapshot: Snapshot, ranking: Ranking, stands: Int64s) -> Assignments:
        if self.preemptive:
            return self.placement.place(snapshot, ranking)
        if self.filling == "easy":
            return self.placement.backfill(snapshot, ranking)  # type: ignore[attr-defined]  # checked when made
        if self.filling == "conservative":
            return self.placement.reserve(snapshot, ranking)  # type: ignore[attr-defined]
        in_order = stands[ranking.order]
        order = np.concatenate([ranking.order[in_order == HOLDS], ranking.order[in_order == MAY_START]])
        target = self.placement.place(snapshot, Ranking(order))
        return target if self.filling == "skip" else _blocked(order, stands, target)

    def _change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When the order changes though nothing happens [Unix s], infinity if never; see ChangingPolicy."""
        next_change_s = getattr(self.policy, "next_change_s", None)
        return math.inf if next_change_s is None else float(next_change_s(snapshot, ranking, running))

    def _wake(self, at_s: float, least: int, head_gpus: int) -> Wake:
        """When the next plan can differ. least, head_gpus: GPUs of the smallest and of the first job that waits."""
        if self.preemptive:
            return Wake(at_s)
        if self.filling != "block":
            return Wake(at_s, least)
        return Wake(at_s, head_gpus, arrivals=not self.settled)

    def _queue(self, ranking: Ranking, stands: Int64s, target: Assignments) -> Int64s | None:
        """Who goes next, where neither time nor jobs that come can change that."""
        if not self.settled:
            return None
        waits = stands == MAY_START
        waits[target.rows] = False
        return frozen(ranking.order[waits[ranking.order]], np.int64)


def _begin_s(wanted: Snapshot, ranking: Ranking) -> float:
    """When the next job that the policy holds back may start [Unix s], infinity if it holds none."""
    if ranking.wants is None or ranking.wants.start_s is None:
        return math.inf
    begin_s = wanted.jobs.eligible_s[wanted.jobs.pending]
    return float(np.min(begin_s, initial=math.inf, where=begin_s > wanted.now_s))


def _blocked(order: Int64s, stands: Int64s, target: Assignments) -> Assignments:
    """The target without what is placed after the first waiting job that does not fit.

    order: rows that hold or may start, as placed. stands: as `standing` gives it.
    """
    served = np.zeros(len(stands), np.bool_)
    served[target.rows] = True
    blocked = ~served[order] & (stands[order] == MAY_START)
    if not blocked.any():
        return target
    kept = int(np.count_nonzero(served[order[: blocked.argmax()]]))
    last = int(target.count[:kept].sum())
    of_job, of_place = (target.rows, target.first, target.count), (target.node, target.gpus, target.gpu_mask)
    return Assignments(*(column[:kept] for column in of_job), *(column[:last] for column in of_place))

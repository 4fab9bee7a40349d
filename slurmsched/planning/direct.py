"""Plans for a cluster that can be told who holds which GPUs: no levers, the target is the plan."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.kernels.show import who_waits
from slurmsched.model import Assignments, Plan, Ranking, Snapshot, Wake
from slurmsched.model.columns import Bools, Int64s, sealed
from slurmsched.placements.candidates import HOLDS, MAY_START, standing
from slurmsched.planning.mixed import placed_whole
from slurmsched.planning.sharing import hosts_of, with_guests, without_guests
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
    each_order: wake at each change of the order and each event, whether or not GPUs change hands: where a new order
    costs something, or jobs may go on to better GPUs.
    steady: set by itself, see _steady.
    A preemptive policy orders running and waiting jobs alike; under any other one running jobs keep their GPUs.
    Raises ConfigError for another filling, and for one that policy or placement cannot do.
    """

    policy: Policy
    placement: Placement
    filling: Filling = "skip"
    each_order: bool = False
    steady: bool = field(init=False, repr=False, compare=False, default=False)

    def __post_init__(self) -> None:
        if self.filling not in FILLINGS:
            raise ConfigError(f"must be one of {', '.join(FILLINGS)}, got {self.filling!r}", key="filling")
        needed = {"easy": BackfillingPlacement, "conservative": ReservingPlacement}.get(self.filling)
        if needed and not isinstance(self.placement, needed):
            raise ConfigError(f"{type(self.placement).__name__} cannot backfill; choose skip or block", key="filling")
        if self.filling != "skip" and self.preemptive:
            raise ConfigError(f"{type(self.policy).__name__} preempts, which needs skip", key="filling")
        object.__setattr__(self, "steady", self._steady())

    @property
    def preemptive(self) -> bool:
        return bool(getattr(self.policy, "preemptive", False))

    def _steady(self) -> bool:
        """Whether a plan can say who takes GPUs that come back, though the policy preempts (see SteadyPolicy)."""
        if not self.preemptive or self.each_order or not hasattr(self.policy, "next_swap_s"):
            return False
        estimator = getattr(self.policy, "estimator", None)
        return estimator is None or bool(getattr(estimator, "constant", False))

    @property
    def settled(self) -> bool:
        """Whether the order of waiting jobs never changes, so that a plan can leave a queue."""
        return self.filling == "block" and bool(getattr(self.policy, "arrivals_last", False))

    def plan(self, snapshot: Snapshot) -> Plan:
        """Who should hold GPUs now. The same snapshot gives the same plan."""
        ranking = self.policy.rank(snapshot)
        host = hosts_of(snapshot, ranking.wants)
        alone = snapshot if host is None else without_guests(snapshot, ranking, host)
        wanted = as_wanted(alone, ranking.wants)
        stands = standing(wanted)
        target, queue = placed_whole(self._target, wanted, ranking), np.empty((2, len(stands)), np.int64)
        target = target if host is None else with_guests(target, host)
        running = np.empty(len(stands), np.bool_)
        least, waiting, need = who_waits(ranking.order, stands, target.rows, wanted.jobs.gpus, running, queue)
        rows, needs = sealed(queue)[:, :waiting]  # preempted jobs wait too
        steady = waiting > 0 and self.steady and ranking.wants is None
        may_move = ranking.wants is not None  # to another size or type, though nobody waits
        at_s = self._change_s(snapshot, ranking, running, steady) if waiting or may_move else math.inf
        if may_move:  # whoever comes is to be looked at, and whoever is held back to be let go
            wake = Wake(min(at_s, _begin_s(wanted, ranking)), running=True)
        elif steady:
            lets_in_gpu_s = getattr(self.policy, "unpassed_gpu_s", None)
            wake = Wake(at_s, max(need, 0), takes=True, lets_in_gpu_s=lets_in_gpu_s)
        else:
            wake = self._wake(at_s, least, int(wanted.jobs.gpus[rows[0]])) if waiting else ROOM_FOR_ALL
        return Plan(
            notes=ranking.notes, ranking=ranking, target=target, wake=wake,
            queue=rows if steady or self.settled else None, queue_needs=needs if steady else needs[:0],
        )  # fmt: skip

    def _target(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        if self.preemptive:
            return self.placement.place(snapshot, ranking)
        if self.filling == "easy":
            return self.placement.backfill(snapshot, ranking)  # type: ignore[attr-defined]  # checked when made
        if self.filling == "conservative":
            return self.placement.reserve(snapshot, ranking)  # type: ignore[attr-defined]
        stands = standing(snapshot)
        in_order = stands[ranking.order]
        order = np.concatenate([ranking.order[in_order == HOLDS], ranking.order[in_order == MAY_START]])
        target = self.placement.place(snapshot, Ranking(order))
        return target if self.filling == "skip" else _blocked(order, stands, target)

    def _change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools, steady: bool) -> float:
        """When the order changes though nothing happens, if steady so that it matters [Unix s]; infinity if never."""
        asked = getattr(self.policy, "next_swap_s" if steady else "next_change_s", None)
        return math.inf if asked is None else float(asked(snapshot, ranking, running))

    def _wake(self, at_s: float, least: int, head_gpus: int) -> Wake:
        """When the next plan can differ. least, head_gpus: GPUs of the smallest and of the first job that waits."""
        if self.preemptive:
            return Wake(at_s, takes=True)
        if self.filling != "block":
            return Wake(at_s, least)
        return Wake(at_s, head_gpus, arrivals=not self.settled)


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

"""Finish-time fairness: Themis, and its forms in later simulators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.estimators.hint import Hint
from slurmsched.model import Card, Family, Input, Ranking, Snapshot, Use, Wants
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.policies.auction import auction
from slurmsched.policies.cards import PREEMPTS, ROUNDS
from slurmsched.policies.checks import check_choice, check_number
from slurmsched.policies.expected import remaining_s
from slurmsched.policies.isolated import contending, stretch
from slurmsched.policies.leases import Leases, chosen, contenders, leases
from slurmsched.policies.memory import recall, remembered
from slurmsched.policies.order import arrival_s, ordered
from slurmsched.policies.solve import least
from slurmsched.protocols import Estimator

VARIANTS = ("auction", "sort", "minmax")
_ISOLATED = ("isolated_s", "executed_s", "stretch")  # in a carry, by job
MOST_BIDDERS = 200  # of one auction, the worst off first: its cost is bidders times GPUs (ours)


@dataclass(frozen=True, slots=True)
class Times:
    """By row of jobs, (N,) [s]. elapsed_s: since submission. left_s: run time still to come. isolated_s: whole time on
    1/N of the cluster."""

    elapsed_s: Floats
    left_s: Floats
    isolated_s: Floats

    @property
    def rho(self) -> Floats:
        """Shared time over isolated time if the job ran from now on. (N,)."""
        return (self.elapsed_s + self.left_s) / np.maximum(self.isolated_s, 1e-9)


@dataclass(frozen=True, slots=True)
class Themis:
    """The job whose finish is furthest behind that on its own 1/N of the cluster goes first.

    variant: "auction": free GPUs are offered to the worst off, who bid for them (the paper). "sort": by rho (the
    simulators of Muri and Blox). "minmax": shares of time that make the largest rho least, in turns by share over what
    was received (Gavel's finish_time_fairness, on one GPU type).
    fairness: part of the contenders, the best off, that is not offered GPUs in an auction (the paper's f).
    lease_s: for how long a job that got GPUs keeps them [s]; 0 = it contends at every look, as in others' rounds.
    estimator: where expected run times come from. A job without one is taken to run as long again as it ran.
    Each job is an app of one gang, all or nothing. What the auction leaves goes to the others by rho.
    Raises ConfigError for a parameter out of range.
    Source: Mahajan et al. (Themis), NSDI '20, for rho, leases, filter and auction, defaults unverified; Narayanan et
    al. (Gavel), OSDI '20, for "minmax". Leftovers by rho instead of at random are ours.
    """

    preemptive: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        Family.FAIRNESS,
        "Mahajan et al.: Themis, NSDI 2020",
        needs=(Input.DURATION, Input.SERVICE),
        uses=(Use.ORDER, Use.REQUEUE),
        on_slurm=(PREEMPTS, ROUNDS),
    )

    variant: str = "auction"
    fairness: float = 0.8
    lease_s: float = 1_200.0
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_choice("variant", self.variant, VARIANTS)
        check_number("fairness", self.fairness)
        if self.fairness >= 1:
            raise ConfigError(
                f"must be below 1, or nobody is offered GPUs, got {self.fairness!r}", key="policy.fairness"
            )
        check_number("lease_s", self.lease_s)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, held = snapshot.jobs, leases(snapshot, self.lease_s)
        columns = isolated_columns(snapshot)
        times, unknown = self._times(snapshot, columns)
        may = contenders(snapshot, held)
        urgency, part, wants = self._urgency(snapshot, held, times, may)
        order = ordered(jobs, ~held.held, urgency, -times.rho)
        renewed = held.renewed(chosen(snapshot, order, held.held | may), part)
        notes = (f"{unknown} jobs without an expected run time: taken to run as long again",) if unknown else ()
        why = {"rho": times.rho, "in_lease": held.held, "urgency": urgency}
        return Ranking(order, why=why, carry=remembered(jobs, renewed | columns), notes=notes, wants=wants)

    def _times(self, snapshot: Snapshot, columns: dict[str, Floats]) -> tuple[Times, int]:
        """The times of each job, and how many that contend have no expected run time."""
        jobs, left_s = snapshot.jobs, remaining_s(self.estimator, snapshot)
        unknown = np.isinf(left_s)
        left_s = np.where(unknown, np.maximum(jobs.executed_s, max(self.lease_s, 1.0)), left_s)
        elapsed_s = np.maximum(snapshot.now_s - arrival_s(jobs), 0.0)
        isolated_s = columns["isolated_s"] + left_s * columns["stretch"]
        known = np.where(np.isnan(elapsed_s), 0.0, elapsed_s)
        return Times(known, left_s, isolated_s), int((unknown & contending(snapshot)).sum())

    def _urgency(
        self, snapshot: Snapshot, held: Leases, times: Times, may: Bools
    ) -> tuple[Floats, Floats, Wants | None]:
        """Key of the order, least first; part of a lease that each would get; wants. (N,) each."""
        whole = np.ones(len(may))
        if self.variant == "sort":
            return -times.rho, whole, None
        if self.variant == "minmax":
            share = least_worst_shares(snapshot, times)
            received = np.minimum(snapshot.jobs.executed_s / np.maximum(times.elapsed_s, 1e-9), 1.0)
            return -share / np.maximum(received, 1e-9), whole, Wants(share=share)
        wins, part = self._auction(snapshot, held, times, may)
        return np.where(wins, 0.0, 1.0), part, None

    def _auction(self, snapshot: Snapshot, held: Leases, times: Times, may: Bools) -> tuple[Bools, Floats]:
        """Who wins GPUs that no lease keeps, and the part of a lease for each. (N,), (N,)."""
        gpus = snapshot.jobs.gpus.astype(np.int64)
        offered = int(snapshot.nodes.gpus[~snapshot.nodes.down].sum()) - int(gpus[held.held].sum())
        wins, part = np.zeros(len(gpus), np.bool_), np.ones(len(gpus))
        rows = self._bidders(snapshot, times, may & (gpus > 0))
        if len(rows) and offered > 0:
            total_s = np.maximum((times.elapsed_s + times.left_s)[rows], 1.0)
            gains = np.log1p(max(self.lease_s, 1.0) / total_s)
            wins[rows], part[rows] = auction(gains, gpus[rows], offered)
        return wins, part

    def _bidders(self, snapshot: Snapshot, times: Times, may: Bools) -> Int64s:
        """Rows of the fraction 1 - f of those that contend with the worst rho, at least one if any does."""
        order = ordered(snapshot.jobs, -times.rho)
        rows = order[may[order]]
        return rows[: min(int(np.ceil((1 - self.fairness) * len(rows))), MOST_BIDDERS)]

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When the next lease of those that hold GPUs is over [Unix s]."""
        held = leases(snapshot, self.lease_s)
        return held.next_end_s(recall(snapshot.jobs, ranking.carry, ("until_s",)), running)


def isolated_columns(snapshot: Snapshot) -> dict[str, Floats]:
    """Isolated time of the work done so far, counted with the N of each look, and what to remember. (N,) each."""
    jobs, known, now = snapshot.jobs, recall(snapshot.jobs, snapshot.carry, _ISOLATED), stretch(snapshot)
    new = np.isnan(known["isolated_s"])
    done_s = jobs.executed_s - np.where(new, 0.0, known["executed_s"])
    isolated_s = np.where(new, 0.0, known["isolated_s"]) + done_s * np.where(new, now, known["stretch"])
    return dict(zip(_ISOLATED, (isolated_s, jobs.executed_s, now), strict=True))


def least_worst_shares(snapshot: Snapshot, times: Times) -> Floats:
    """Shares of time at which the largest rho of those that contend is least, by bisection. (N,) in [0, 1]."""
    gpus = snapshot.jobs.gpus.astype(np.float64)
    who, capacity = contending(snapshot), float(snapshot.nodes.gpus[~snapshot.nodes.down].sum())

    def shares(rho: float) -> Floats:
        spare_s = rho * times.isolated_s - times.elapsed_s
        return np.where(who, np.divide(times.left_s, spare_s, out=np.full(len(gpus), 2.0), where=spare_s > 0), 0.0)

    def feasible(rho: float) -> bool:
        found = shares(rho)
        return bool((found <= 1.0).all() and found @ gpus <= capacity)

    high = max(float(np.max(times.rho, initial=0.0, where=who)), 1e-6)
    for _ in range(64):
        if feasible(high):
            return np.minimum(shares(least(feasible, 0.0, high)), 1.0)
        high *= 2
    return who.astype(np.float64)

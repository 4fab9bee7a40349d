"""Shockwave: rounds of the near future are bought on a market, by jobs whose batch size changes while they run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from slurmsched.allocation.fisher_market import (
    RemainingWork,
    RoundBuyers,
    RoundOffer,
    buy_rounds,
    fair_ends,
    jobs_of_rounds,
    remaining_work,
)
from slurmsched.allocation.job_times import UNKNOWN_RUN_TIME_S, total_or_unknown_s
from slurmsched.allocation.rounds import round_end_s
from slurmsched.errors import ConfigError
from slurmsched.estimators.requested_time import Hint
from slurmsched.model import JobChanges, PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.ordering import arrival_s, ordered
from slurmsched.model.parameters import Count, Period, SlotCount, Weight, check_choice, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION, ROUNDS_ARE_LEASES
from slurmsched.plain_text import pluralize
from slurmsched.protocols import Estimator
from slurmsched.resources.allocated import holding
from slurmsched.resources.startable_jobs import startable

KEY = "window"  # in a carry
EARLY = 0.05  # part of a round by which its end may come early: jobs of a replay end with whole steps


@dataclass(frozen=True, slots=True)
class Shockwave:
    """Jobs buy rounds of a window: log progress and the longest remaining time are best, no job ends too late.

    window: rounds planned ahead.
    again: rounds after which a window is planned again. It also is when jobs come or end.
    round_s: length of a round [s].
    k: price of the longest remaining run time.
    power: exponent of the weight of late jobs, where not all can be in time.
    rho_max: largest time from submission to planned end, over that to the fair end, that is still in time.
    fill: other jobs get GPUs that become free within a round.
    most_jobs: most jobs of one window, the earliest first.
    table: throughputs by batch size; "" = all batch sizes are equally fast.
    reference: GPU type whose throughputs in the table count.
    estimator: source of expected run times.
    Raises ConfigError for a parameter out of range.
    Source: Zheng et al. (Shockwave), NSDI '23; defaults are those of its released settings for 32 GPUs. Ours:
    most_jobs, and whole numbers of rounds, see allocation.fisher_market.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.FAIRNESS,
        "Zheng et al.: Shockwave, NSDI 2023",
        left_out=(
            "Running jobs near the GPUs that they had: the placement chooses GPUs.",
            "The stochastic programme over all ways that batch sizes may change: expected run times replace "
            "it, as in the released code.",
        ),
        needs=(PolicyInput.DURATION, PolicyInput.PROGRESS),
        uses=(PolicyLever.ORDER, PolicyLever.REQUEUE, PolicyLever.START),
        on_slurm=(NEEDS_PREEMPTION, ROUNDS_ARE_LEASES, "Batch sizes and progress are what jobs tell in their comment."),
        criteria={"in_round": "in this round", "remaining_s": "{} of run time to go", "fair_end_s": "fair end {at}"},
    )

    window: SlotCount = 20
    again: Count = 8
    round_s: Period = 120.0
    k: Weight = 1e-3
    power: Weight = 12.0
    rho_max: Weight = 1.0
    fill: bool = True
    most_jobs: Count = 500
    table: str = ""
    reference: str = "v100"
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)
        for name in ("table", "reference"):
            if not isinstance(getattr(self, name), str):
                raise ConfigError(f"must be a text, got {getattr(self, name)!r}", key=f"policy.{name}")
        check_choice("fill", self.fill, (True, False))

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs = snapshot.jobs
        whole_s, notes = self._whole_s(snapshot)
        work = remaining_work(snapshot, whole_s, self.table, self.reference)
        active = (holding(jobs) | startable(snapshot)) & (jobs.gpus > 0)
        ends = fair_ends(snapshot, active, work)
        plan = self._plan(snapshot, active, work, ends.fair_s)
        in_round = np.isin(jobs.job_id, plan["ids"][0] if plan["ids"] else []) & active
        start_s = None if self.fill else np.where(in_round | ~active, -np.inf, np.inf)
        why = {"in_round": in_round.astype(np.int64), "remaining_s": work.remaining_s, "fair_end_s": ends.fair_s}
        order = ordered(jobs, ~in_round, -work.remaining_s)
        return Ranking(order, why, {**work.carry, **ends.carry, KEY: plan}, notes, JobChanges(start_s=start_s))

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The end of the round [Unix s], infinity without jobs."""
        return round_end_s(ranking, running, self.round_s, KEY)

    def _whole_s(self, snapshot: Snapshot) -> tuple[Floats, tuple[str, ...]]:
        """Run time of each whole job at its present batch size (N,), and what is said of jobs of unknown length."""
        unknown = ~np.isfinite(self.estimator.estimate(snapshot).total_s)
        note = (
            f"no expected run time, counted as {UNKNOWN_RUN_TIME_S:g} s from the end: "
            f"{pluralize(int(unknown.sum()), 'job')}"
        )
        known = np.maximum(total_or_unknown_s(self.estimator, snapshot), 1.0)
        return known, (note,) if unknown.any() else ()

    def _plan(self, snapshot: Snapshot, active: Bools, work: RemainingWork, fair_s: Floats) -> dict[str, Any]:
        """The rounds from now on: ids of the jobs in each, the present one first."""
        carried = _kept(snapshot)
        here = sorted(snapshot.jobs.job_id[active].tolist())
        if carried and carried["jobs"] == here and snapshot.now_s < carried["begun_s"] + (1 - EARLY) * self.round_s:
            return carried
        passed = int(carried.get("passed", 0)) + 1 if carried else 0
        rounds = carried["ids"][1:] if carried else []
        if carried.get("jobs") != here or passed >= self.again or not rounds:
            rounds, passed = self._planned(snapshot, active, work, fair_s), 0
        return {"begun_s": snapshot.now_s, "passed": passed, "jobs": here, "ids": rounds}

    def _planned(self, snapshot: Snapshot, active: Bools, work: RemainingWork, fair_s: Floats) -> list[list[int]]:
        """A newly planned window: ids of the jobs in each round."""
        jobs, nodes = snapshot.jobs, snapshot.nodes
        gpus = float(nodes.gpus[~nodes.closed].sum())
        earliest: Int64s = ordered(jobs, arrival_s(jobs))
        rows = earliest[(active & (jobs.gpus <= gpus))[earliest]][: self.most_jobs]
        if not len(rows):
            return []
        offer = RoundOffer(self.window, gpus, self.round_s, snapshot.now_s, self.k, self.power, self.rho_max)
        buyers = RoundBuyers(jobs.gpus[rows].astype(np.int64), work.done[rows], work.remaining_s[rows],
                        work.pace_s[rows], fair_s[rows], arrival_s(jobs)[rows])  # fmt: skip
        rounds, weight = buy_rounds(buyers, offer)
        made = jobs_of_rounds(rounds, buyers, offer, weight, holding(jobs)[rows])
        return [jobs.job_id[rows[chosen]].tolist() for chosen in made]


def _kept(snapshot: Snapshot) -> dict[str, Any]:
    """The plan in the carry, empty if there is none."""
    found = snapshot.carry.get(KEY)
    return dict(found) if isinstance(found, dict) and {"begun_s", "jobs", "ids"} <= found.keys() else {}

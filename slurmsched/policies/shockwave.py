"""Shockwave: rounds of the near future are bought on a market, by jobs whose batch size changes while they run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.estimators.hint import Hint
from slurmsched.model import Card, Family, Input, Ranking, Snapshot, Use, Wants
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.placements.candidates import eligible
from slurmsched.policies.cards import PREEMPTS, ROUNDS
from slurmsched.policies.checks import check_choice
from slurmsched.policies.fair_end import fair_ends
from slurmsched.policies.fisher_market import Buyers, Offer, bought, timetable
from slurmsched.policies.left import UNKNOWN_S
from slurmsched.policies.order import arrival_s, ordered
from slurmsched.policies.ranges import Count, Period, Slots, Weight, check_ranges
from slurmsched.policies.regimes import Rest, rest
from slurmsched.protocols import Estimator
from slurmsched.resources.held import holding
from slurmsched.words import some

KEY = "window"  # in a carry
EARLY = 0.05  # part of a round by which its end may come early: jobs of a replay end with whole steps


@dataclass(frozen=True, slots=True)
class Shockwave:
    """Jobs buy rounds of a window so that log progress and the longest rest are best and nobody ends too late.

    window: rounds planned ahead. again: rounds after which a window is planned anew; it is whenever jobs come or end.
    round_s: [s]. k: price of the longest rest. power: by which late jobs weigh more where not all can be in time.
    rho_max: time from a job's submission to its end by the plan, over that to its fair end, that is still in time.
    fill: whether GPUs that come free within a round go to other jobs. most_jobs: earliest jobs that one window is
    planned for. table, reference: throughputs by batch size, and their GPU type; "" = all batch sizes are equally fast.
    estimator: where run times come from.
    Raises ConfigError for a parameter out of range.
    Source: Zheng et al. (Shockwave), NSDI '23; defaults are those of its released settings for 32 GPUs. most_jobs is
    ours, and what fisher_market says of rounds.
    """

    preemptive: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        Family.FAIRNESS,
        "Zheng et al.: Shockwave, NSDI 2023",
        left_out=(
            "Where jobs run, near the GPUs that they had, is the placement's to say.",
            "The stochastic programme over all ways that batch sizes may change: expected run times stand for it, as "
            "in the released code.",
        ),
        needs=(Input.DURATION, Input.PROGRESS),
        uses=(Use.ORDER, Use.REQUEUE, Use.START),
        on_slurm=(PREEMPTS, ROUNDS, "Batch sizes and progress are what jobs tell in their comment."),
    )

    window: Slots = 20
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
        left = rest(snapshot, whole_s, self.table, self.reference)
        active = (holding(jobs) | eligible(snapshot)) & (jobs.gpus > 0)
        ends = fair_ends(snapshot, active, left)
        plan = self._plan(snapshot, active, left, ends.fair_s)
        in_round = np.isin(jobs.job_id, plan["ids"][0] if plan["ids"] else []) & active
        start_s = None if self.fill else np.where(in_round | ~active, -np.inf, np.inf)
        why = {"in_round": in_round.astype(np.int64), "left_s": left.left_s, "fair_end_s": ends.fair_s}
        order = ordered(jobs, ~in_round, -left.left_s)
        return Ranking(order, why, {**left.carry, **ends.carry, KEY: plan}, notes, Wants(start_s=start_s))

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The end of the round [Unix s], infinity without jobs."""
        return float(ranking.carry[KEY]["begun_s"]) + self.round_s if running.any() else math.inf

    def _whole_s(self, snapshot: Snapshot) -> tuple[Floats, tuple[str, ...]]:
        """Run time of each whole job at its present batch size (N,), and what is said of jobs of unknown length."""
        total_s = self.estimator.estimate(snapshot).total_s
        unknown = ~np.isfinite(total_s)
        note = f"no expected run time, counted as {UNKNOWN_S:g} s from the end: {some(int(unknown.sum()), 'job')}"
        known = np.where(unknown, snapshot.jobs.executed_s + UNKNOWN_S, np.maximum(total_s, 1.0))
        return known, (note,) if unknown.any() else ()

    def _plan(self, snapshot: Snapshot, active: Bools, left: Rest, fair_s: Floats) -> dict[str, Any]:
        """The rounds from now on: ids of the jobs in each, the present one first."""
        kept = _kept(snapshot)
        here = sorted(snapshot.jobs.job_id[active].tolist())
        if kept and kept["jobs"] == here and snapshot.now_s < kept["begun_s"] + (1 - EARLY) * self.round_s:
            return kept
        passed = int(kept.get("passed", 0)) + 1 if kept else 0
        rounds = kept["ids"][1:] if kept else []
        if kept.get("jobs") != here or passed >= self.again or not rounds:
            rounds, passed = self._planned(snapshot, active, left, fair_s), 0
        return {"begun_s": snapshot.now_s, "passed": passed, "jobs": here, "ids": rounds}

    def _planned(self, snapshot: Snapshot, active: Bools, left: Rest, fair_s: Floats) -> list[list[int]]:
        """A window planned anew: ids of the jobs in each round."""
        jobs, nodes = snapshot.jobs, snapshot.nodes
        gpus = float(nodes.gpus[~nodes.closed].sum())
        earliest: Int64s = ordered(jobs, arrival_s(jobs))
        rows = earliest[(active & (jobs.gpus <= gpus))[earliest]][: self.most_jobs]
        if not len(rows):
            return []
        offer = Offer(self.window, gpus, self.round_s, snapshot.now_s, self.k, self.power, self.rho_max)
        buyers = Buyers(jobs.gpus[rows].astype(np.int64), left.done[rows], left.left_s[rows], left.pace_s[rows],
                        fair_s[rows], arrival_s(jobs)[rows])  # fmt: skip
        rounds, weight = bought(buyers, offer)
        made = timetable(rounds, buyers, offer, weight, holding(jobs)[rows])
        return [jobs.job_id[rows[chosen]].tolist() for chosen in made]


def _kept(snapshot: Snapshot) -> dict[str, Any]:
    """The plan in the carry, empty if there is none."""
    found = snapshot.carry.get(KEY)
    return dict(found) if isinstance(found, dict) and {"begun_s", "jobs", "ids"} <= found.keys() else {}

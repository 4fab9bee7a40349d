"""Gavel: heterogeneity-aware allocation of GPU types, and the rounds that carry it out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.estimators.alike import Alike
from slurmsched.estimators.hint import Hint
from slurmsched.model import Card, Family, Input, Jobs, Ranking, Snapshot, Use
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.policies import allocation, allocation_released, pairs, rounds, shared_allocation
from slurmsched.policies.allocation import Problem
from slurmsched.policies.cards import PREEMPTS, ROUNDS, SHARDS
from slurmsched.policies.checks import check_choice, check_words, named_numbers
from slurmsched.policies.gpu_market import Market, market
from slurmsched.policies.isolated_so_far import KEY, isolated_so_far
from slurmsched.policies.left import left_s
from slurmsched.policies.order import arrival_s, ordered
from slurmsched.policies.pairs import Allocation, Pairs
from slurmsched.policies.partition import partitioned
from slurmsched.policies.ranges import Count, Period, Seconds, check_ranges
from slurmsched.policies.rounds import RESET_S, Book, Rules
from slurmsched.policies.water_filling import Accounts, max_min, water_filled
from slurmsched.policies.weights import check_weights, unmet, weights_of
from slurmsched.protocols import Estimator, PairEstimator, SpeedEstimator

OBJECTIVES: Mapping[str, Callable[[Problem], Floats]] = {
    "max-min": max_min,
    "las": max_min,
    "ftf": allocation.finish_time_fairness,
    "makespan": allocation.makespan,
    "sum-throughput": allocation.sum_throughput,
    "fifo": allocation.first_come,
    "isolated": allocation.isolated,
    "proportional": allocation.equal_split,
}
AS_RELEASED: Mapping[str, Callable[[Problem], Floats]] = {
    "max-min": allocation_released.max_min,
    "las": allocation_released.max_min,
    "ftf": allocation_released.finish_time_fairness,
    "makespan": allocation_released.makespan,
    "sum-throughput": allocation_released.sum_throughput,
    "isolated": allocation_released.isolated,
}
COST = "cost"
FAIR = ("max-min", "las")  # objectives with weights and accounts
EVERY = "*"  # in_turn: all accounts
PAIRS = "pairs"  # in the carry
LEAST = 1e-3  # of the largest weight, that of an account without any share, lest its jobs wait for ever


@dataclass(frozen=True, slots=True)
class Gavel:
    """Each job's share of time on each GPU type is the solution of a programme; rounds make it come true.

    objective: max-min (las is the same, under its name in the paper), ftf, makespan, sum-throughput, cost, fifo or
    isolated. heterogeneity: whether speeds differ by type; false takes every type for equally fast. round_s: [s].
    fill: whether GPUs that come free within a round go to other jobs; the paper leaves them idle. prices: for cost, of
    a GPU in an hour, "TYPE=PRICE" each; a type not named costs 1. most_jobs: more are split at random into groups of
    no more, each with its part of every type (POP). reset_s: least time from one allocation to the next [s]. released:
    as the released simulator, in what the paper leaves open (see docs/policies/gavel.md). space_sharing: whether two
    jobs may be given the same GPUs, in a replay. tell_pairs: whether to say at each allocation what that would gain in
    max-min fairness. weights: for max-min, KIND:NAME=WEIGHT each, KIND qos, user or account: what jobs weigh, see
    policies.weights. accounts: for max-min, whether accounts share first, each as its Slurm shares times its weight,
    and then the jobs of each. in_turn: accounts whose jobs are served one after the other there; "*" = all. speeds,
    estimator: where speeds and run times come from.
    Raises ConfigError for a parameter out of range.
    Source: Narayanan et al. (Gavel), OSDI '20; Narayanan et al. (POP), SOSP '21; fill is ours.
    """

    preemptive: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        Family.HETEROGENEITY,
        "Narayanan et al.: Gavel, OSDI 2020",
        left_out=(
            "Estimating throughputs by profiling: they are read from a table, and completed where entries are missing.",
            "Where a gang runs: its speed on one node or several is the physics' of a replay, its nodes are the "
            "placement's to say.",
            "Deadlines in the objective `cost`: it is without them.",
        ),
        needs=(Input.SPEED, Input.DURATION, Input.SHARES),
        only_with=((Input.SHARES, "accounts"),),
        uses=(Use.ORDER, Use.GPU_TYPE, Use.REQUEUE, Use.START),
        on_slurm=(PREEMPTS, ROUNDS, SHARDS),
    )

    objective: str = "max-min"
    heterogeneity: bool = True
    round_s: Period = 360.0
    fill: bool = True
    prices: tuple[str, ...] = ()
    most_jobs: Count = 1_024
    reset_s: Seconds = RESET_S
    released: bool = False
    space_sharing: bool = False
    tell_pairs: bool = False
    weights: tuple[str, ...] = ()
    accounts: bool = False
    in_turn: tuple[str, ...] = ()
    speeds: SpeedEstimator = field(default_factory=Alike)
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choice("objective", self.objective, (*OBJECTIVES, COST))
        check_choice("heterogeneity", self.heterogeneity, (True, False))
        check_choice("fill", self.fill, (True, False))
        check_choice("released", self.released, (True, False))
        named_numbers("prices", self.prices, "TYPE=PRICE")
        self._check_fairness()
        for name in ("space_sharing", "tell_pairs"):
            check_choice(name, getattr(self, name), (True, False))
            if getattr(self, name) and not isinstance(self.speeds, PairEstimator):
                raise ConfigError('needs speeds of pairs: speeds = { name = "throughputs", table = "FILE" }',
                                  key=f"policy.{name}")  # fmt: skip
        if self.space_sharing and self.objective not in shared_allocation.OBJECTIVES:
            raise ConfigError(f"goes with the objectives {', '.join(shared_allocation.OBJECTIVES)}, not with "
                              f"{self.objective}", key="policy.space_sharing")  # fmt: skip

    def _check_fairness(self) -> None:
        """Weights and accounts, and what they go with."""
        check_weights(self.weights)
        check_choice("accounts", self.accounts, (True, False))
        check_words("in_turn", self.in_turn)
        for name in ("weights", "accounts"):
            if getattr(self, name) and self.objective not in FAIR:
                raise ConfigError(f"goes with the objective max-min, not with {self.objective}", key=f"policy.{name}")
        if self.accounts and (self.released or self.space_sharing):
            other = "released" if self.released else "space_sharing"
            raise ConfigError(f"goes not with {other}", key="policy.accounts")
        if self.in_turn and not self.accounts:
            raise ConfigError("needs accounts = true", key="policy.in_turn")

    def rank(self, snapshot: Snapshot) -> Ranking:
        here = market(snapshot, self.speeds)
        book = rounds.opened(snapshot, here, self.round_s)
        notes: tuple[str, ...] = ()
        kept = {key: snapshot.carry[key] for key in (KEY, *[PAIRS] * self.tell_pairs) if key in snapshot.carry}
        rules = Rules(self.round_s, self.reset_s, self.objective == "fifo", self.released)
        if rounds.over(book, snapshot.now_s, rules):
            to_come_s, told = left_s(self.estimator, snapshot, book.done_s)
            notes = told if self.objective in ("ftf", "makespan") else ()
            allocate = partial(self._allocation, snapshot, here, to_come_s, kept)
            queues = self._queues(snapshot, here, book)
            rounds.begin(book, snapshot, here, rules, allocate, queues)
        notes = (*notes, kept[PAIRS]) if PAIRS in kept else notes
        notes += unmet(snapshot, self.weights, [name for name in self.in_turn if name != EVERY])
        made = rounds.ranking(book, snapshot, here, self.fill, notes, shares=self.space_sharing)
        return replace(made, carry={**made.carry, **kept}) if kept else made

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The end of the round [Unix s], infinity without jobs."""
        return rounds.round_end_s(ranking, running, self.round_s) if running.any() else math.inf

    def _queues(self, snapshot: Snapshot, here: Market, book: Book) -> Int64s:
        """The order in which types are filled. (T,) int64."""
        if self.heterogeneity:
            return rounds.fastest_first(here)
        return (rounds.shuffled_as_released(here, snapshot, book.rounds) if self.released
                else rounds.shuffled(here, snapshot, book.rounds))  # fmt: skip

    def _allocation(self, snapshot: Snapshot, here: Market, to_come_s: Floats, kept: dict[str, Any]) -> Allocation:
        """Shares of all jobs, 0 for those that are not active, and of pairs, by row of the snapshot."""
        share = np.zeros(here.speed.shape)
        order = ordered(snapshot.jobs)  # of several best solutions the one that a solver finds depends on the order
        rows = order[here.active[order]]
        if not len(rows):
            return Allocation(share)
        runs = here.speed >= 0 if self.released else here.speed > 0
        speed = here.speed if self.heterogeneity else runs.astype(np.float64)
        elapsed_s = np.maximum(snapshot.now_s - arrival_s(snapshot.jobs), 0.0)
        problem = Problem(here.capacity, here.gpus[rows], speed[rows], to_come_s[rows], elapsed_s[rows],
                          weights_of(snapshot.jobs, self.weights)[rows])  # fmt: skip
        if self.released and self.objective == "ftf":
            alone = np.ones(len(share))
            alone[rows] = (allocation_released.isolated(problem) * problem.speed).sum(axis=1)
            isolated_s, kept[KEY] = isolated_so_far(snapshot, to_come_s, alone)
            problem = replace(problem, isolated_s=isolated_s[rows])
        together = partial(self._together, snapshot, here, rows)
        if self.tell_pairs:
            kept[PAIRS] = pairs.gain(problem, together, snapshot.seed)
        if self.space_sharing:
            made = shared_allocation.allocated(self.objective, problem, together, self.most_jobs, snapshot.seed)
            share[rows] = made.share
            return Allocation(share, self._real(snapshot, here, rows, made.pairs), made.shared)
        if self.accounts:
            share[rows] = self._by_account(snapshot, rows, problem)
        else:
            share[rows] = self._solved(problem, here, snapshot.seed)
        return Allocation(share)

    def _by_account(self, snapshot: Snapshot, rows: Int64s, problem: Problem) -> Floats:
        """Shares of accounts, then of their jobs. (R, T)."""
        jobs = snapshot.jobs.take(rows)
        weight = weights_of(jobs, self.weights, ("qos", "user"))
        problem = replace(problem, account=jobs.account.codes.astype(np.int64), weight=weight)
        fair = partial(water_filled, accounts=self._accounts(snapshot, jobs))
        return partitioned(fair, problem, -(-len(rows) // self.most_jobs), snapshot.seed)

    def _accounts(self, snapshot: Snapshot, jobs: Jobs) -> Accounts:
        """What the account of each name is entitled to: its shares in Slurm times its weight."""
        names = jobs.account.names
        own = np.ones(len(names))
        own[jobs.account.codes] = weights_of(jobs, self.weights, ("account",))
        here = np.bincount(jobs.account.codes, minlength=len(names)) > 0
        entitled = own * [snapshot.shares.get(name, 1.0) for name in names] * here
        in_turn = np.isin(names, self.in_turn) | (EVERY in self.in_turn)
        return Accounts(np.maximum(entitled, LEAST * (entitled.max() or 1.0)), in_turn)

    def _real(self, snapshot: Snapshot, here: Market, rows: Int64s, made: Pairs) -> Pairs:
        """The pairs by row of the snapshot, with the speeds that they have, whatever an objective took them for."""
        first, second = rows[made.first], rows[made.second]
        kept = self._together(snapshot, here, rows, made.first, made.second)
        return Pairs(first, second, pairs.beside(kept, here.speed, first, second))

    def _together(self, snapshot: Snapshot, here: Market, rows: Int64s, first: Int64s, second: Int64s) -> Floats:
        """What jobs of these rows keep of their speed side by side, see protocols.PairEstimator. (P, T, 2)."""
        assert isinstance(self.speeds, PairEstimator)
        return self.speeds.kept(snapshot, rows[first], rows[second], here.types)

    def _solved(self, problem: Problem, here: Market, seed: int) -> Floats:
        programmes = {**OBJECTIVES, **(AS_RELEASED if self.released else {})}
        programme = programmes.get(self.objective)
        if programme is None:
            known = named_numbers("prices", self.prices, "TYPE=PRICE")
            programme = partial(allocation.cost, prices=[known.get(type_, 1.0) for type_ in here.types])
        groups = 1 if self.objective == "fifo" else -(-len(problem.gpus) // self.most_jobs)
        return partitioned(programme, problem, groups, seed)

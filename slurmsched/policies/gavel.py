"""Gavel: heterogeneity-aware allocation of GPU types, and the rounds that carry it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from slurmsched.allocation import programmes, rounds, space_sharing
from slurmsched.allocation.finish_time import ISOLATED_KEY
from slurmsched.allocation.heterogeneity import HeterogeneousCluster, heterogeneous_cluster
from slurmsched.allocation.job_times import remaining_on_reference_s
from slurmsched.allocation.programmes import AllocationProblem, solve_in_groups
from slurmsched.allocation.rounds import RESET_S, RoundRules, RoundState
from slurmsched.allocation.space_sharing import JobPairs, TimeShares
from slurmsched.allocation.tenants import check_weights, unused_weights, weights_of
from slurmsched.allocation.water_filling import AccountWeights, max_min, water_filled
from slurmsched.errors import ConfigError
from slurmsched.estimators.requested_time import Hint
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.model import Jobs, PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.ordering import arrival_s, ordered
from slurmsched.model.parameters import Count, Period, Seconds, check_choice, check_ranges, check_words, named_numbers
from slurmsched.model.policy_info import NEEDS_PREEMPTION, NO_SHARED_GPUS, ROUND_CRITERIA, ROUNDS_ARE_LEASES
from slurmsched.protocols import Estimator, PairEstimator, SpeedEstimator

Programme = Callable[[AllocationProblem], Floats]
OBJECTIVES: Mapping[str, Programme] = {
    "max-min": max_min,
    "las": max_min,
    "ftf": programmes.finish_time_fairness,
    "makespan": programmes.makespan,
    "sum-throughput": programmes.sum_throughput,
    "fifo": programmes.first_come,
    "isolated": programmes.isolated,
    "proportional": programmes.equal_split,
}
COST = "cost"
FAIR = ("max-min", "las")  # objectives with weights and accounts
NEEDS_PAIRS = 'needs a table with speeds of pairs: speeds = { name = "throughputs", table = "FILE" }'
EVERY = "*"  # in_turn: all accounts
PAIRS = "pairs"  # in the carry
LEAST = 1e-3  # weight of an account without shares, relative to the largest: its jobs must not wait for ever


@dataclass(frozen=True, slots=True)
class Gavel:
    """Shares of time on each GPU type that are best for an objective, carried out in rounds.

    objective: "max-min" ("las" is the same, by its name in the paper), "ftf", "makespan", "sum-throughput", "cost",
        "fifo", "isolated" or "proportional".
    heterogeneity: whether speeds differ by GPU type. False: all types count as equally fast.
    round_s: length of a round [s].
    fill: other jobs get GPUs that become free within a round. The paper leaves these GPUs idle.
    prices: for "cost", the price of a GPU hour, "TYPE=PRICE" each. A type that is not named costs 1.
    most_jobs: more jobs are split at random into groups of at most this many, each with its part of every type (POP).
    reset_s: least time between two allocations [s].
    space_sharing: two jobs may get the same GPUs, in a replay.
    tell_pairs: at each allocation, a note says what pairs would gain in max-min fairness.
    weights: for "max-min", weights of jobs, "KIND:NAME=WEIGHT" each; KIND is qos, user or account.
    accounts: for "max-min", accounts share first, by their shares in Slurm times their weights, then their jobs.
    in_turn: accounts whose jobs are served one after the other; "*" = all.
    speeds: source of speeds by GPU type.
    estimator: source of expected run times.
    Raises ConfigError for a parameter out of range.
    Source: Narayanan et al. (Gavel), OSDI '20; Narayanan et al. (POP), SOSP '21. `fill` is ours.
    """

    preemptive: ClassVar[bool] = True
    objectives: ClassVar[Mapping[str, Programme]] = OBJECTIVES
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.HETEROGENEITY,
        "Narayanan et al.: Gavel, OSDI 2020",
        packages=("scipy",),
        left_out=(
            "Estimating throughputs by profiling: they are read from a table, and missing entries are completed.",
            "Where a gang runs: the placement chooses its nodes, and the physics of a replay its speed on one "
            "node or several.",
            "Deadlines in the objective `cost`.",
        ),
        needs=(PolicyInput.SPEED, PolicyInput.DURATION, PolicyInput.SHARES),
        only_with=((PolicyInput.SHARES, "accounts"),),
        uses=(PolicyLever.ORDER, PolicyLever.GPU_TYPE, PolicyLever.REQUEUE, PolicyLever.START),
        on_slurm=(NEEDS_PREEMPTION, ROUNDS_ARE_LEASES, NO_SHARED_GPUS),
        criteria=ROUND_CRITERIA,
    )

    objective: str = "max-min"
    heterogeneity: bool = True
    round_s: Period = 360.0
    fill: bool = True
    prices: tuple[str, ...] = ()
    most_jobs: Count = 1_024
    reset_s: Seconds = RESET_S
    space_sharing: bool = False
    tell_pairs: bool = False
    weights: tuple[str, ...] = ()
    accounts: bool = False
    in_turn: tuple[str, ...] = ()
    speeds: SpeedEstimator = field(default_factory=EqualSpeeds)
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choice("objective", self.objective, (*OBJECTIVES, COST))
        check_choice("heterogeneity", self.heterogeneity, (True, False))
        check_choice("fill", self.fill, (True, False))
        named_numbers("prices", self.prices, "TYPE=PRICE")
        self._check_fairness()
        for name in ("space_sharing", "tell_pairs"):
            check_choice(name, getattr(self, name), (True, False))
            if getattr(self, name) and not isinstance(self.speeds, PairEstimator):
                raise ConfigError(NEEDS_PAIRS, key=f"policy.{name}")
        if self.space_sharing and self.objective not in space_sharing.OBJECTIVES:
            known = ", ".join(space_sharing.OBJECTIVES)
            raise ConfigError(f"needs an objective of {known}; got {self.objective}", key="policy.space_sharing")

    def _check_fairness(self) -> None:
        """Check weights and accounts, and that they are used together with what they need."""
        check_weights(self.weights)
        check_choice("accounts", self.accounts, (True, False))
        check_words("in_turn", self.in_turn)
        for name in ("weights", "accounts"):
            if getattr(self, name) and self.objective not in FAIR:
                raise ConfigError(f"needs the objective max-min; got {self.objective}", key=f"policy.{name}")
        if self.accounts and self.space_sharing:
            raise ConfigError("cannot be combined with space_sharing", key="policy.accounts")
        if self.in_turn and not self.accounts:
            raise ConfigError("needs accounts = true", key="policy.in_turn")

    def rank(self, snapshot: Snapshot) -> Ranking:
        cluster = heterogeneous_cluster(snapshot, self.speeds)
        book = rounds.open_rounds(snapshot, cluster, self.round_s)
        notes: tuple[str, ...] = ()
        carried = {
            key: snapshot.carry[key] for key in (ISOLATED_KEY, *[PAIRS] * self.tell_pairs) if key in snapshot.carry
        }
        rules = self._rules()
        if rounds.round_is_over(book, snapshot.now_s, rules):
            to_come_s, unknown = remaining_on_reference_s(self.estimator, snapshot, book.done_s)
            notes = unknown if self.objective in ("ftf", "makespan") else ()
            allocate = partial(self._allocation, snapshot, cluster, to_come_s, carried)
            queues = self._queues(snapshot, cluster, book)
            rounds.begin_round(book, snapshot, cluster, rules, allocate, queues)
        notes = (*notes, carried[PAIRS]) if PAIRS in carried else notes
        notes += unused_weights(snapshot, self.weights, [name for name in self.in_turn if name != EVERY])
        made = rounds.round_ranking(book, snapshot, cluster, self.fill, notes, shares=self.space_sharing)
        return replace(made, carry={**made.carry, **carried}) if carried else made

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The end of the round [Unix s], infinity without jobs."""
        return rounds.round_end_s(ranking, running, self.round_s)

    def _rules(self) -> RoundRules:
        return RoundRules(self.round_s, self.reset_s, self.objective == "fifo")

    def _queues(self, snapshot: Snapshot, cluster: HeterogeneousCluster, book: RoundState) -> Int64s:
        """The order in which types are filled. (T,) int64."""
        if self.heterogeneity:
            return rounds.fastest_first(cluster)
        return rounds.shuffled(cluster, snapshot, book.rounds)

    def _allocation(
        self, snapshot: Snapshot, cluster: HeterogeneousCluster, to_come_s: Floats, kept: dict[str, Any]
    ) -> TimeShares:
        """Shares of all jobs, 0 for those that are not active, and of pairs, by row of the snapshot."""
        share = np.zeros(cluster.speed.shape)
        order = ordered(snapshot.jobs)  # of several best solutions the one that a solver finds depends on the order
        rows = order[cluster.active[order]]
        if not len(rows):
            return TimeShares(share)
        speed = cluster.speed if self.heterogeneity else self._types_of(cluster).astype(np.float64)
        elapsed_s = np.maximum(snapshot.now_s - arrival_s(snapshot.jobs), 0.0)
        problem = AllocationProblem(cluster.capacity, cluster.gpus[rows], speed[rows], to_come_s[rows], elapsed_s[rows],
                          weights_of(snapshot.jobs, self.weights)[rows])  # fmt: skip
        problem = self._with_past(problem, rows, snapshot, to_come_s, kept)
        together = partial(self._together, snapshot, cluster, rows)
        if self.tell_pairs:
            kept[PAIRS] = space_sharing.space_sharing_gain(problem, together, snapshot.seed)
        if self.space_sharing:
            made = space_sharing.allocate_with_pairs(self.objective, problem, together, self.most_jobs, snapshot.seed)
            share[rows] = made.share
            return TimeShares(share, self._real(snapshot, cluster, rows, made.pairs), made.shared)
        share[rows] = (self._by_account(snapshot, rows, problem) if self.accounts
                       else self._solved(problem, cluster, snapshot.seed))  # fmt: skip
        return TimeShares(share)

    def _types_of(self, cluster: HeterogeneousCluster) -> Bools:
        """The types on which a job may get time where all types count as equally fast. (N, T)."""
        return cluster.speed > 0

    def _with_past(
        self, problem: AllocationProblem, rows: Int64s, snapshot: Snapshot, to_come_s: Floats, kept: dict[str, Any]
    ) -> AllocationProblem:
        """The problem with what an objective remembers from allocation to allocation: nothing. kept: for the carry."""
        return problem

    def _by_account(self, snapshot: Snapshot, rows: Int64s, problem: AllocationProblem) -> Floats:
        """Shares of accounts, then of their jobs. (R, T)."""
        jobs = snapshot.jobs.take(rows)
        weight = weights_of(jobs, self.weights, ("qos", "user"))
        problem = replace(problem, account=jobs.account.codes.astype(np.int64), weight=weight)
        fair = partial(water_filled, accounts=self._accounts(snapshot, jobs))
        return solve_in_groups(fair, problem, -(-len(rows) // self.most_jobs), snapshot.seed)

    def _accounts(self, snapshot: Snapshot, jobs: Jobs) -> AccountWeights:
        """The entitlement of the account of each name: its shares in Slurm times its weight."""
        names = jobs.account.names
        own = np.ones(len(names))
        own[jobs.account.codes] = weights_of(jobs, self.weights, ("account",))
        present = np.bincount(jobs.account.codes, minlength=len(names)) > 0
        entitled = own * [snapshot.shares.get(name, 1.0) for name in names] * present
        in_turn = np.isin(names, self.in_turn) | (EVERY in self.in_turn)
        return AccountWeights(np.maximum(entitled, LEAST * (entitled.max() or 1.0)), in_turn)

    def _real(self, snapshot: Snapshot, cluster: HeterogeneousCluster, rows: Int64s, made: JobPairs) -> JobPairs:
        """The pairs by row of the snapshot, with the speeds that they have, whatever an objective took them for."""
        first, second = rows[made.first], rows[made.second]
        kept = self._together(snapshot, cluster, rows, made.first, made.second)
        return JobPairs(first, second, space_sharing.speeds_together(kept, cluster.speed, first, second))

    def _together(
        self, snapshot: Snapshot, cluster: HeterogeneousCluster, rows: Int64s, first: Int64s, second: Int64s
    ) -> Floats:
        """The share of their speed that jobs of these rows keep side by side, see protocols.PairEstimator. (P, T,
        2)."""
        assert isinstance(self.speeds, PairEstimator)
        return self.speeds.shared_speeds(snapshot, rows[first], rows[second], cluster.types)

    def _solved(self, problem: AllocationProblem, cluster: HeterogeneousCluster, seed: int) -> Floats:
        programme = self.objectives.get(self.objective)
        if programme is None:
            known = named_numbers("prices", self.prices, "TYPE=PRICE")
            programme = partial(programmes.cost, prices=[known.get(type_, 1.0) for type_ in cluster.types])
        groups = 1 if self.objective == "fifo" else -(-len(problem.gpus) // self.most_jobs)
        return solve_in_groups(programme, problem, groups, seed)


@dataclass(frozen=True, slots=True)
class Ossp(Gavel):
    """Minimize the makespan: gavel with objective = "makespan".

    GPU types are the machines of an open shop in which a job may be interrupted at no cost.
    Source: Gonzalez and Sahni, JACM 1976, for preemptive open shops; a baseline of Zheng et al. (Shockwave), NSDI '23,
    and `min_total_duration` of Gavel's released code (c4fa400), with one job on all its GPUs at a time.
    """

    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.HETEROGENEITY,
        "Gonzalez and Sahni, JACM 1976; as in Zheng et al.: Shockwave, NSDI 2023",
        packages=("scipy",),
        needs=(PolicyInput.DURATION, PolicyInput.SPEED),
        uses=(PolicyLever.ORDER, PolicyLever.GPU_TYPE, PolicyLever.REQUEUE, PolicyLever.START),
        on_slurm=(NEEDS_PREEMPTION, ROUNDS_ARE_LEASES),
        criteria=ROUND_CRITERIA,
    )

    objective: str = "makespan"

    def __post_init__(self) -> None:
        check_choice("objective", self.objective, ("makespan",))
        Gavel.__post_init__(self)


@dataclass(frozen=True, slots=True)
class MaxSumThroughput(Gavel):
    """Maximize the sum of all throughputs: gavel with objective = "sum-throughput".

    With `unit = "steps"` in the table of speeds, throughputs are steps a second, as in the public baselines: models
    with short steps go first.
    Source: Narayanan et al. (Gavel), OSDI '20, `max_sum_throughput_perf` of its released code (c4fa400).
    """

    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.HETEROGENEITY,
        "Narayanan et al.: Gavel, OSDI 2020",
        packages=("scipy",),
        needs=(PolicyInput.SPEED,),
        uses=(PolicyLever.ORDER, PolicyLever.GPU_TYPE, PolicyLever.REQUEUE, PolicyLever.START),
        on_slurm=(NEEDS_PREEMPTION, ROUNDS_ARE_LEASES),
        criteria=ROUND_CRITERIA,
    )

    objective: str = "sum-throughput"

    def __post_init__(self) -> None:
        check_choice("objective", self.objective, ("sum-throughput",))
        Gavel.__post_init__(self)

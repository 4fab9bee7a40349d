"""Sizes by evolution: many plans of the whole cluster are crossed and mutated, and the best one is taken: ONES."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np

from slurmsched.allocation.elastic import JobSizes, sizes_of, thinned, without_curve
from slurmsched.allocation.job_memory import recall, remembered
from slurmsched.allocation.job_times import active, cluster_gpus, total_or_unknown_s
from slurmsched.allocation.size_rounds import SizeRound, gpus_now, size_ranking, unstoppable
from slurmsched.estimators.requested_time import Hint
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hints import hint_column
from slurmsched.model.ordering import ordered
from slurmsched.model.parameters import Count, Part, Period, Range, SlotCount, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION, RESIZE_BY_REQUEUE
from slurmsched.protocols import Estimator, SpeedEstimator

ROUNDS, PLAN = "ones_rounds", "plan_{}"  # in a carry


@dataclass(frozen=True, slots=True)
class Ones:
    """The sizes with the least sum of remaining GPU time of the jobs that run, found by an evolutionary search.

    Each plan says how many GPUs every job has. In each generation plans are crossed GPU by GPU, and jobs are dropped
    from copies. Free GPUs go to new jobs, waiting jobs and then running ones. The best plans go on, also into the next
    round. The remaining work of a job is drawn at random: the less progress it made, the less certain it is. A job may
    have at most twice the most that it has had.

    population: plans that go on.
    generations: of each round.
    crossover: share of the GPUs that two plans exchange.
    mutation: share of the jobs that is dropped from a copy.
    epochs: parts of a job's work after which its progress is certain; the more, the less is left to chance.
    interval_s: time between two changes of sizes [s].
    most_jobs: most jobs of one search, those with GPUs and then the earliest first.
    serial: share of a job's work that more GPUs do not speed up (Amdahl's law).
    speeds: a table of throughputs by number of GPUs replaces Amdahl's law.
    estimator: source of expected run times, at the size that a job asks for.
    Raises ConfigError for a parameter out of range.
    Source: Bian et al. (ONES), SC '21, for the operators, the score and the Beta distribution of progress; its release
    for the defaults of crossover and mutation. Ours: run times are by the estimator, and fitness is of sizes alone.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.ELASTIC,
        "Bian et al.: ONES, SC 2021",
        left_out=(
            "The batch size of each GPU, and its limit that falls for jobs that run long.",
            "The regression that learns how far jobs are: progress is by hint, total work by `estimator`.",
            "The order of GPUs in a plan: the placement chooses nodes.",
        ),
        needs=(PolicyInput.DURATION, PolicyInput.SIZES, PolicyInput.SPEED, PolicyInput.PROGRESS),
        uses=(PolicyLever.ORDER, PolicyLever.SIZE, PolicyLever.REQUEUE, PolicyLever.START),
        on_slurm=(
            NEEDS_PREEMPTION,
            RESIZE_BY_REQUEUE,
            "The batch size is the job's own: slurmsched does not set it.",
        ),
        criteria={"given_gpus": "given {} GPUs"},
    )

    population: Annotated[int, Range(2, 64, whole=True)] = 16
    generations: SlotCount = 20
    crossover: Part = 0.3
    mutation: Part = 0.3
    epochs: Count = 20
    interval_s: Period = 300.0
    most_jobs: Count = 300
    serial: Part = 0.02
    speeds: SpeedEstimator = field(default_factory=EqualSpeeds)
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)

    def rank(self, snapshot: Snapshot) -> Ranking:
        who, before = active(snapshot), SizeRound.of(snapshot, "ones")
        names = [PLAN.format(at) for at in range(self.population)]
        known = recall(snapshot.jobs, snapshot.carry, names)
        plans = np.array([np.nan_to_num(known[name]) for name in names]).astype(np.int64)
        number = snapshot.carry.get(ROUNDS, 0)
        number = number if isinstance(number, int) and number >= 0 else 0
        if before.over(snapshot):
            plans, number = self._evolved(snapshot, who, before, plans, number), number + 1
            before = before.begun(snapshot, plans[0], self.interval_s)
        order = ordered(snapshot.jobs, before.given == 0, -before.given)
        ranking = size_ranking(snapshot, order, before, without_curve(snapshot, who, self.speeds))
        columns = dict(zip(names, plans.astype(np.float64), strict=True))
        carry = {**ranking.carry, **dict(remembered(snapshot.jobs, columns)), ROUNDS: number}
        return replace(ranking, carry=carry)

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When sizes may change next [Unix s]; infinity if there are no jobs."""
        return SizeRound.next_s(snapshot, ranking, "ones")

    def _evolved(self, snapshot: Snapshot, who: Bools, before: SizeRound, plans: Int64s, number: int) -> Int64s:
        """The plans of the next round, the best one first. plans: (K, N) those of the last one. (K, N)."""
        jobs, total = snapshot.jobs, cluster_gpus(snapshot)
        fixed, now = who & unstoppable(snapshot), gpus_now(snapshot)
        total = max(total - int(now[fixed].sum()), 0)
        has = np.where(before.given > 0, before.given, now)
        rows = ordered(jobs, has == 0)
        rows = rows[(who & ~fixed)[rows]][: self.most_jobs]
        sizes = [thinned(each) for each in sizes_of(snapshot, rows.tolist(), self.serial, self.speeds, max(total, 1))]
        limits = np.maximum(2 * np.maximum(before.most, has)[rows], [each.gpus[0] for each in sizes])
        chance = np.random.default_rng((abs(snapshot.seed), number))
        search = _PlanSearch.of(sizes, limits, before.most[rows] == 0, total, chance)
        first = np.vstack([has[rows], plans[:, rows]])
        parents = np.array([search.refreshed(plan) for plan in first])
        for _ in range(self.generations):
            children = [*parents]
            for _ in range(len(parents) // 2):
                pair = parents[chance.permutation(len(parents))[:2]]
                children += search.crossed(pair[0], pair[1], self.crossover)
            children += [search.mutated(plan, self.mutation) for plan in parents]
            score = search.scores(np.array(children), self._remaining_s(snapshot, rows, chance))
            parents = np.array(children)[np.argsort(score, kind="stable")[: self.population]]
        made = np.zeros((self.population, len(jobs)), np.int64)
        made[:, rows], made[:, fixed] = parents, now[fixed]
        return made

    def _remaining_s(self, snapshot: Snapshot, rows: Int64s, chance: np.random.Generator) -> Floats:
        """Run time to come at the size asked for, by progress drawn from a Beta distribution [s]. (J,)."""
        jobs = snapshot.jobs
        total_s = total_or_unknown_s(self.estimator, snapshot)[rows]
        share = hint_column(jobs, "progress")[rows]
        done = np.where(np.isnan(share), np.minimum(jobs.executed_s[rows] / np.maximum(total_s, 1e-9), 1.0), share)
        drawn = chance.beta(1.0 + self.epochs * done, 1.0 + self.epochs * (1.0 - done))
        drawn = np.maximum(drawn, 1e-6)
        return np.where(done > 0, done * total_s * (1.0 / drawn - 1.0), total_s)


@dataclass(frozen=True, slots=True, eq=False)
class _PlanSearch:
    """What the search knows of J jobs.

    floor: (J, G + 1) largest size that each may have of that many GPUs.
    cost: (J, G + 1) GPUs over the speed on that many.
    least: (J,) GPUs.
    new: (J,) never had any.
    gpus: of the cluster.
    """

    floor: Int64s
    cost: Floats
    least: Int64s
    new: Bools
    gpus: int
    chance: np.random.Generator

    @classmethod
    def of(
        cls, sizes: list[JobSizes], limits: Int64s, new: Bools, gpus: int, chance: np.random.Generator
    ) -> _PlanSearch:
        """limits: (J,) most GPUs of each."""
        floor, cost = np.zeros((len(sizes), gpus + 1), np.int64), np.zeros((len(sizes), gpus + 1))
        for job, each in enumerate(sizes):
            useful = each.gpus[each.gpus <= min(int(limits[job]), gpus)]
            at = np.searchsorted(useful, np.arange(gpus + 1), side="right")
            floor[job] = np.append(0, useful)[at]
            cost[job, useful] = useful / each.speed[: len(useful)]
        return cls(floor, cost, np.array([each.gpus[0] for each in sizes], np.int64), new, gpus, chance)

    def refreshed(self, plan: Int64s) -> Int64s:
        """A plan of jobs and GPUs that there are now: the last jobs go where there are too few GPUs. (J,)."""
        sizes = self._allowed(plan)
        sizes[np.cumsum(sizes) > self.gpus] = 0
        return self._filled(sizes)

    def crossed(self, first: Int64s, second: Int64s, share: float) -> list[Int64s]:
        """Two plans that exchanged the jobs of this share of their GPUs."""
        places = np.full((2, self.gpus), len(first))
        for row, plan in enumerate((first, second)):
            places[row, : plan.sum()] = np.repeat(np.arange(len(plan)), plan)
        swaps = self.chance.random(self.gpus) < share
        places[:, swaps] = places[::-1, swaps]
        counts = [np.bincount(row, minlength=len(first) + 1)[:-1] for row in places]
        return [self._filled(self._allowed(each)) for each in counts]

    def mutated(self, plan: Int64s, share: float) -> Int64s:
        """The plan without this share of its jobs, which may come back where GPUs are free. (J,)."""
        return self._filled(np.where(self.chance.random(len(plan)) < share, 0, plan))

    def scores(self, plans: Int64s, remaining_s: Floats) -> Floats:
        """Remaining GPU time of the jobs that each plan runs: the least is best. plans: (P, J). (P,)."""
        return np.asarray((self.cost[np.arange(plans.shape[1]), plans] * remaining_s).sum(axis=1).round(6))

    def _allowed(self, plan: Int64s) -> Int64s:
        return self.floor[np.arange(len(plan)), np.minimum(plan, self.gpus)]

    def _filled(self, plan: Int64s) -> Int64s:
        """The plan with free GPUs given away: to new jobs, then to waiting ones, then to those that may grow; of each
        kind by chance. (J,)."""
        made, free = plan.copy(), self.gpus - int(plan.sum())
        by_chance = self.chance.permutation(len(plan))
        for kind in (self.new, ~self.new):
            waits = by_chance[(kind & (made == 0) & (self.least <= free))[by_chance]]
            for job in waits.tolist():
                if self.least[job] <= free:
                    made[job] = self.floor[job, self.least[job]]
                    free -= int(made[job])
        for job in by_chance.tolist():
            if free <= 0:
                break
            if made[job]:
                grown = int(self.floor[job, min(int(made[job]) + free, self.gpus)])
                free, made[job] = free - (grown - int(made[job])), grown
        return made

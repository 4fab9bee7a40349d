"""Gandiva's packing: jobs of the same size share GPUs in pairs drawn by chance, and part if that does not pay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from slurmsched.allocation import rounds
from slurmsched.allocation.cpython_random import CPythonRandom
from slurmsched.allocation.heterogeneity import HeterogeneousCluster, heterogeneous_cluster
from slurmsched.allocation.rounds import RESET_S, RoundRules
from slurmsched.allocation.space_sharing import JobPairs, TimeShares, speeds_together
from slurmsched.errors import ConfigError
from slurmsched.estimators.throughputs import Throughputs
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.ordering import arrival_s, ordered
from slurmsched.model.parameters import Period, Seconds, check_choice, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION, NO_SHARED_GPUS, ROUND_CRITERIA, ROUNDS_ARE_LEASES
from slurmsched.protocols import PairEstimator, SpeedEstimator

KEY = "drawn"  # in the carry
DRAWS = 8  # times that all who are alone draw: pairs that cannot run are put back
WORD = 1 << 32
Couples = dict[int, int]  # row -> row of the partner, both ways


@dataclass(frozen=True, slots=True)
class Gandiva:
    """Random pairs share GPUs while jobs ask for more than there are. Pairs and single jobs get an even split.

    A pair stays together until one of its jobs ends, or until the next allocation if it does not pay: the shares of
    their speeds that both jobs keep, over all types that have any, add up to less than 1. Jobs without speeds beside
    other jobs are never a pair.
    round_s: length of a round [s].
    fill: other jobs get GPUs that become free within a round.
    reset_s: least time between two allocations [s].
    speeds: a table of throughputs with pairs.
    Raises ConfigError for a parameter out of range, and for speeds without pairs.
    Source: Xiao et al. (Gandiva), OSDI '18, for packing. Drawing, keeping and splitting are as in the released code of
    Narayanan et al. (Gavel), OSDI '20 (c4fa400). The whole of Gandiva is policies.introspective.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.HETEROGENEITY,
        "Xiao et al.: Gandiva, OSDI 2018",
        left_out=("Time slices within a GPU, migration, and growing and shrinking.",),
        needs=(PolicyInput.SPEED,),
        uses=(PolicyLever.ORDER, PolicyLever.GPU_TYPE, PolicyLever.REQUEUE, PolicyLever.START),
        on_slurm=(NEEDS_PREEMPTION, ROUNDS_ARE_LEASES, NO_SHARED_GPUS),
        criteria=ROUND_CRITERIA,
    )

    round_s: Period = 360.0
    fill: bool = True
    reset_s: Seconds = RESET_S
    speeds: SpeedEstimator = field(default_factory=lambda: Throughputs("gavel"))

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choice("fill", self.fill, (True, False))
        if not isinstance(self.speeds, PairEstimator):
            raise ConfigError('needs a table with speeds of pairs: speeds = { name = "throughputs", table = "FILE" }',
                              key="policy.speeds")  # fmt: skip

    def rank(self, snapshot: Snapshot) -> Ranking:
        cluster = heterogeneous_cluster(snapshot, self.speeds)
        book = rounds.open_rounds(snapshot, cluster, self.round_s)
        carried = {KEY: snapshot.carry.get(KEY)}
        rules = self._rules()
        if rounds.round_is_over(book, snapshot.now_s, rules):
            allocate = partial(self._allocation, snapshot, cluster, carried[KEY])
            carried |= rounds.begin_round(book, snapshot, cluster, rules, allocate, rounds.fastest_first(cluster))
        made = rounds.round_ranking(book, snapshot, cluster, self.fill, shares=True)
        return replace(made, carry={**made.carry, **carried}) if carried[KEY] else made

    def _rules(self) -> RoundRules:
        return RoundRules(self.round_s, self.reset_s)

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The end of the round [Unix s], infinity without jobs."""
        return rounds.round_end_s(ranking, running, self.round_s)

    def _allocation(self, snapshot: Snapshot, cluster: HeterogeneousCluster, kept: Any) -> TimeShares:
        """An even split of all GPUs among pairs and single jobs. kept: of the allocation before."""
        order = ordered(snapshot.jobs)
        rows = order[cluster.active[order]].tolist()
        crowded = cluster.gpus[rows].sum() > cluster.capacity.sum()
        couples, count = self._couples(snapshot, cluster, kept, rows if crowded else [])
        paired = couples if crowded else {}
        place = np.argsort(order).tolist()
        first = np.array([row for row in rows if row in paired and place[row] < place[paired[row]]], np.int64)
        second = np.array([paired[row] for row in first.tolist()], np.int64)
        alone = np.array([row for row in rows if row not in paired], np.int64)
        units = max(len(first) + len(alone), 1)
        share = np.zeros(cluster.speed.shape)
        share[alone] = _split(cluster, alone, units)
        speed = speeds_together(self._share(snapshot, cluster, first, second), cluster.speed, first, second)
        shared = np.where(self._may_share(speed), _split(cluster, first, units), 0.0)
        return TimeShares(share, JobPairs(first, second, speed), shared, {KEY: _remembered(snapshot, couples, count)})

    def _couples(
        self, snapshot: Snapshot, cluster: HeterogeneousCluster, kept: Any, rows: list[int]
    ) -> tuple[Couples, int]:
        """Pairs of these rows that stay together, newly drawn pairs, and a count for the next allocation."""
        couples = self._paying(snapshot, cluster, _kept(snapshot, cluster, kept))
        return self._drawn(snapshot, cluster, couples, [row for row in rows if row not in couples], count_so_far(kept))

    def _drawn(
        self, snapshot: Snapshot, cluster: HeterogeneousCluster, couples: Couples, rows: list[int], allocations: int
    ) -> tuple[Couples, int]:
        """The couples and those drawn of these rows, which have none, and the count of allocations with such rows."""
        made = dict(couples)
        random = CPythonRandom((snapshot.seed, allocations % WORD))
        for _ in range(DRAWS):
            drawn = draw_couples([row for row in rows if row not in made], cluster.gpus, random)
            made |= self._running(snapshot, cluster, drawn)
        return made, allocations + bool(rows)

    def _may_share(self, speed: Floats) -> Bools:
        """The types on which a pair gets time. speed: (P, T, 2). (P, T)."""
        return np.all(speed > 0, axis=2)

    def _share(self, snapshot: Snapshot, cluster: HeterogeneousCluster, first: Int64s, second: Int64s) -> Floats:
        """The share of its speed that each job keeps beside the other. (P, T, 2)."""
        assert isinstance(self.speeds, PairEstimator)
        return self.speeds.shared_speeds(snapshot, first, second, cluster.types)

    def _paying(self, snapshot: Snapshot, cluster: HeterogeneousCluster, couples: Couples) -> Couples:
        """The couples that stay together."""
        first, second = _ends(couples)
        shares = self._share(snapshot, cluster, first, second)
        runs = _runs(cluster, shares, first, second)
        return _only(couples, self._pays(shares, runs))

    def _pays(self, shares: Floats, runs: Bools) -> Bools:
        """Whether both jobs together keep all of one job's speed. shares: (P, T, 2). runs: (P, T). (P,)."""
        counted = np.where(runs[:, :, None], shares, 0.0)
        pays: Bools = np.logical_and(runs.any(axis=1), counted.sum(axis=(1, 2)) >= 1.0)
        return pays

    def _running(self, snapshot: Snapshot, cluster: HeterogeneousCluster, couples: Couples) -> Couples:
        """The couples that can run on some type."""
        first, second = _ends(couples)
        runs = _runs(cluster, self._share(snapshot, cluster, first, second), first, second)
        return _only(couples, np.asarray(runs.any(axis=1)))


def _ends(couples: Couples) -> tuple[Int64s, Int64s]:
    """The rows of the couples, in their order. (C,), (C,)."""
    first, second = np.array(list(couples.items()), np.int64).reshape(-1, 2).T
    return first, second


def _only(couples: Couples, wanted: Bools) -> Couples:
    """wanted: (C,), in their order."""
    return {row: other for (row, other), keeps in zip(couples.items(), wanted.tolist(), strict=True) if keeps}


def _runs(cluster: HeterogeneousCluster, shares: Floats, first: Int64s, second: Int64s) -> Bools:
    """Whether both keep some speed there, on a type where each runs alone. (P, T)."""
    return (shares > 0).all(axis=2) & (cluster.speed[first] > 0) & (cluster.speed[second] > 0)


def _split(cluster: HeterogeneousCluster, rows: Int64s, units: int) -> Floats:
    """An equal part of every type, in gangs, and no more than all the time. (R, T)."""
    share = np.tile(cluster.capacity / units, (len(rows), 1)) / cluster.gpus[rows][:, None]
    return share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)


def draw_couples(rows: list[int], gpus: Floats, random: CPythonRandom) -> Couples:
    """Pairs of the same size, drawn as often as there are jobs; who draws another size tries again."""
    couples: Couples = {}
    free = list(rows)
    for _ in rows:
        if len(free) < 2:
            break
        one, other = (free[place] for place in random.two(len(free)))
        if gpus[one] == gpus[other]:
            couples |= {one: other, other: one}
            free.remove(one)
            free.remove(other)
    return couples


def count_so_far(kept: Any) -> int:
    """The count of the last allocation in the carry."""
    return int(kept.get("count", 0)) if isinstance(kept, Mapping) else 0


def _kept(snapshot: Snapshot, cluster: HeterogeneousCluster, kept: Any) -> Couples:
    """The couples of the last allocation of which both jobs are still there."""
    if not isinstance(kept, Mapping):
        return {}
    jobs, arrived_s = snapshot.jobs, arrival_s(snapshot.jobs)
    known = {(job, at_s): row for row, (job, at_s) in enumerate(zip(jobs.job_id.tolist(), arrived_s.tolist(),
                                                                   strict=True)) if cluster.active[row]}  # fmt: skip
    found: Couples = {}
    for one, one_s, other, other_s in zip(*(kept[name] for name in _NAMES), strict=True):
        row, partner = known.get((one, one_s)), known.get((other, other_s))
        if row is not None and partner is not None and cluster.gpus[row] == cluster.gpus[partner]:
            found |= {row: partner, partner: row}
    return found


_NAMES = ("first", "first_arrival_s", "second", "second_arrival_s")


def _remembered(snapshot: Snapshot, couples: Couples, count: int) -> dict[str, Any]:
    """The couples, each once, and the count of _couples, for a carry."""
    jobs, arrived_s = snapshot.jobs, arrival_s(snapshot.jobs)
    ids = jobs.job_id.tolist()
    named = [(row, other) for row, other in couples.items() if ids[row] < ids[other]]
    rows = np.array(sorted(named, key=lambda pair: ids[pair[0]]), np.int64).reshape(-1, 2)
    columns = (jobs.job_id[rows[:, 0]], arrived_s[rows[:, 0]], jobs.job_id[rows[:, 1]], arrived_s[rows[:, 1]])
    return {"count": count} | {name: column.tolist() for name, column in zip(_NAMES, columns, strict=True)}

"""Gandiva's packing: jobs of the same size share GPUs in pairs drawn by chance, and part if that does not pay."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.estimators.throughputs import Throughputs
from slurmsched.model import Card, Family, Input, Ranking, Snapshot, Use
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.policies import rounds
from slurmsched.policies.cards import PREEMPTS, ROUNDS, SHARDS
from slurmsched.policies.checks import check_choice
from slurmsched.policies.gpu_market import Market, market
from slurmsched.policies.lots import Lots
from slurmsched.policies.order import arrival_s, ordered
from slurmsched.policies.pairs import Allocation, Pairs, beside
from slurmsched.policies.ranges import Period, Seconds, check_ranges
from slurmsched.policies.rounds import RESET_S, Rules
from slurmsched.protocols import PairEstimator, SpeedEstimator

KEY = "drawn"  # in the carry
DRAWS = 8  # times that all who are alone draw: pairs that cannot run are put back
WORD = 1 << 32
Couples = dict[int, int]  # row -> row of the partner, both ways


@dataclass(frozen=True, slots=True)
class Gandiva:
    """While jobs ask for more GPUs than there are, pairs drawn by chance share; time is split evenly among all.

    A pair stays together until one ends, or at the next allocation if its jobs keep less in all than one job alone:
    the shares of their speeds, of both and over all types that have any, add up to less than 1. Jobs of which no type
    has speeds side by side are no pair. round_s: [s]. fill: whether GPUs that come free within a round go to other
    jobs. reset_s: least time from one allocation to the next [s]. released: as the released simulator (see gavel),
    where pairs without speeds are drawn too and do not run. speeds: a table of throughputs that has pairs.
    Raises ConfigError for a parameter out of range, and for speeds that know no pairs.
    Source: Xiao et al. (Gandiva), OSDI '18, for packing; what is drawn, kept and split as in the released code of
    Narayanan et al. (Gavel), OSDI '20 (c4fa400). Without its migration, and its growing and shrinking.
    """

    preemptive: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        Family.HETEROGENEITY,
        "Xiao et al.: Gandiva, OSDI 2018",
        left_out=("Time slices within a GPU, migration, and growing and shrinking.",),
        needs=(Input.SPEED,),
        uses=(Use.ORDER, Use.GPU_TYPE, Use.REQUEUE, Use.START),
        on_slurm=(PREEMPTS, ROUNDS, SHARDS),
    )

    round_s: Period = 360.0
    fill: bool = True
    reset_s: Seconds = RESET_S
    released: bool = False
    speeds: SpeedEstimator = field(default_factory=lambda: Throughputs("gavel"))

    def __post_init__(self) -> None:
        check_ranges(self)
        for name in ("fill", "released"):
            check_choice(name, getattr(self, name), (True, False))
        if not isinstance(self.speeds, PairEstimator):
            raise ConfigError('needs speeds of pairs: speeds = { name = "throughputs", table = "FILE" }',
                              key="policy.speeds")  # fmt: skip

    def rank(self, snapshot: Snapshot) -> Ranking:
        here = market(snapshot, self.speeds)
        book = rounds.opened(snapshot, here, self.round_s)
        kept = {KEY: snapshot.carry.get(KEY)}
        rules = Rules(self.round_s, self.reset_s, released=self.released)
        if rounds.over(book, snapshot.now_s, rules):
            kept |= rounds.begin(book, snapshot, here, rules, lambda: self._allocation(snapshot, here, kept[KEY]),
                                 rounds.fastest_first(here))  # fmt: skip
        made = rounds.ranking(book, snapshot, here, self.fill, shares=True)
        return replace(made, carry={**made.carry, **kept}) if kept[KEY] else made

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The end of the round [Unix s], infinity without jobs."""
        return rounds.round_end_s(ranking, running, self.round_s) if running.any() else math.inf

    def _allocation(self, snapshot: Snapshot, here: Market, kept: Any) -> Allocation:
        """An even split of all GPUs among pairs and single jobs. kept: of the allocation before."""
        order = ordered(snapshot.jobs)
        rows = order[here.active[order]].tolist()
        crowded = here.gpus[rows].sum() > here.capacity.sum()
        couples, count = self._couples(snapshot, here, kept, rows if crowded else [])
        paired = couples if crowded else {}
        place = np.argsort(order).tolist()
        first = np.array([row for row in rows if row in paired and place[row] < place[paired[row]]], np.int64)
        second = np.array([paired[row] for row in first.tolist()], np.int64)
        alone = np.array([row for row in rows if row not in paired], np.int64)
        units = max(len(first) + len(alone), 1)
        share = np.zeros(here.speed.shape)
        share[alone] = _split(here, alone, units)
        speed = beside(self._share(snapshot, here, first, second), here.speed, first, second)
        shared = np.where(self.released | (speed > 0).all(axis=2), _split(here, first, units), 0.0)
        return Allocation(share, Pairs(first, second, speed), shared, {KEY: _remembered(snapshot, couples, count)})

    def _couples(self, snapshot: Snapshot, here: Market, kept: Any, rows: list[int]) -> tuple[Couples, int]:
        """Those that stay together and those drawn anew of these rows, and a count for the next allocation: of the lots
        used up so far, or where not released of the allocations."""
        couples = self._paying(snapshot, here, _kept(snapshot, here, kept))
        if self.released:
            lots = Lots((snapshot.seed,), _count(kept))
            return couples | _drawn([row for row in rows if row not in couples], here.gpus, lots), lots.count
        allocations = _count(kept)
        lots = Lots((snapshot.seed, allocations % WORD))
        for _ in range(DRAWS):
            drawn = _drawn([row for row in rows if row not in couples], here.gpus, lots)
            couples |= self._running(snapshot, here, drawn)
        return couples, allocations + bool(rows)

    def _share(self, snapshot: Snapshot, here: Market, first: Int64s, second: Int64s) -> Floats:
        """What each keeps of its speed beside the other. (P, T, 2)."""
        assert isinstance(self.speeds, PairEstimator)
        return self.speeds.kept(snapshot, first, second, here.types)

    def _paying(self, snapshot: Snapshot, here: Market, couples: Couples) -> Couples:
        """The couples that stay together."""
        first, second = _ends(couples)
        shares = self._share(snapshot, here, first, second)
        runs = _runs(here, shares, first, second)
        told = (shares > 0).all(axis=(1, 2)) if self.released else runs.any(axis=1)
        counted = shares if self.released else np.where(runs[:, :, None], shares, 0.0)
        pays: Bools = np.logical_and(told, counted.sum(axis=(1, 2)) >= 1.0)
        return _only(couples, pays)

    def _running(self, snapshot: Snapshot, here: Market, couples: Couples) -> Couples:
        """The couples that can run on some type."""
        first, second = _ends(couples)
        runs = _runs(here, self._share(snapshot, here, first, second), first, second)
        return _only(couples, np.asarray(runs.any(axis=1)))


def _ends(couples: Couples) -> tuple[Int64s, Int64s]:
    """The rows of the couples, in their order. (C,), (C,)."""
    first, second = np.array(list(couples.items()), np.int64).reshape(-1, 2).T
    return first, second


def _only(couples: Couples, wanted: Bools) -> Couples:
    """wanted: (C,), in their order."""
    return {row: other for (row, other), keeps in zip(couples.items(), wanted.tolist(), strict=True) if keeps}


def _runs(here: Market, shares: Floats, first: Int64s, second: Int64s) -> Bools:
    """Whether both keep some speed there, on a type where each runs alone. (P, T)."""
    return (shares > 0).all(axis=2) & (here.speed[first] > 0) & (here.speed[second] > 0)


def _split(here: Market, rows: Int64s, units: int) -> Floats:
    """An equal part of every type, in gangs, and no more than all the time. (R, T)."""
    share = np.tile(here.capacity / units, (len(rows), 1)) / here.gpus[rows][:, None]
    return share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)


def _drawn(rows: list[int], gpus: Floats, lots: Lots) -> Couples:
    """Pairs of the same size, drawn as often as there are jobs; who draws another size tries again."""
    couples: Couples = {}
    free = list(rows)
    for _ in rows:
        if len(free) < 2:
            break
        one, other = (free[place] for place in lots.two(len(free)))
        if gpus[one] == gpus[other]:
            couples |= {one: other, other: one}
            free.remove(one)
            free.remove(other)
    return couples


def _count(kept: Any) -> int:
    return int(kept.get("count", 0)) if isinstance(kept, Mapping) else 0


def _kept(snapshot: Snapshot, here: Market, kept: Any) -> Couples:
    """The couples of the last allocation of which both jobs are still there."""
    if not isinstance(kept, Mapping):
        return {}
    jobs, arrived_s = snapshot.jobs, arrival_s(snapshot.jobs)
    known = {(job, at_s): row for row, (job, at_s) in enumerate(zip(jobs.job_id.tolist(), arrived_s.tolist(),
                                                                   strict=True)) if here.active[row]}  # fmt: skip
    found: Couples = {}
    for one, one_s, other, other_s in zip(*(kept[name] for name in _NAMES), strict=True):
        row, partner = known.get((one, one_s)), known.get((other, other_s))
        if row is not None and partner is not None and here.gpus[row] == here.gpus[partner]:
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

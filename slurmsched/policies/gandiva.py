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
from slurmsched.policies.checks import check_choice, check_number
from slurmsched.policies.gpu_market import Market, market
from slurmsched.policies.lots import Lots
from slurmsched.policies.order import arrival_s, ordered
from slurmsched.policies.pairs import Allocation, Pairs, beside
from slurmsched.policies.rounds import RESET_S, Rules
from slurmsched.protocols import PairEstimator, SpeedEstimator

KEY = "drawn"  # in the carry
Couples = dict[int, int]  # row -> row of the partner, both ways


@dataclass(frozen=True, slots=True)
class Gandiva:
    """While jobs ask for more GPUs than there are, pairs drawn by chance share; time is split evenly among all.

    A pair stays together until one ends, or at the next allocation if its jobs keep less in all than one job alone:
    the shares of their speeds, of both and over all types, add up to less than 1. round_s: [s]. fill: whether GPUs
    that come free within a round go to other jobs. reset_s: least time from one allocation to the next [s]. released:
    as the released simulator (see gavel). speeds: a table of throughputs that has pairs.
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

    round_s: float = 360.0
    fill: bool = True
    reset_s: float = RESET_S
    released: bool = False
    speeds: SpeedEstimator = field(default_factory=lambda: Throughputs("gavel"))

    def __post_init__(self) -> None:
        check_number("round_s", self.round_s, above=0.0)
        check_number("reset_s", self.reset_s)
        for name in ("fill", "released"):
            check_choice(name, getattr(self, name), (True, False))
        if not isinstance(self.speeds, PairEstimator):
            raise ConfigError('needs speeds of pairs: speeds = { name = "throughputs", table = "FILE" }',
                              key="policy.speeds")  # fmt: skip

    def rank(self, snapshot: Snapshot) -> Ranking:
        here = market(snapshot, self.speeds)
        book = rounds.opened(snapshot, here, self.round_s)
        drawn = {KEY: snapshot.carry.get(KEY)}
        rules = Rules(self.round_s, self.reset_s, released=self.released)
        if rounds.over(book, snapshot.now_s, rules):
            rounds.begin(book, snapshot, here, rules, lambda: self._allocation(snapshot, here, drawn),
                         rounds.fastest_first(here))  # fmt: skip
        made = rounds.ranking(book, snapshot, here, self.fill, shares=True)
        return replace(made, carry={**made.carry, **drawn}) if drawn[KEY] else made

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The end of the round [Unix s], infinity without jobs."""
        return rounds.round_end_s(ranking, running, self.round_s) if running.any() else math.inf

    def _allocation(self, snapshot: Snapshot, here: Market, drawn: dict[str, Any]) -> Allocation:
        """An even split of all GPUs among pairs and single jobs."""
        share = np.zeros(here.speed.shape)
        order = ordered(snapshot.jobs)
        rows = order[here.active[order]]
        couples, lots = _kept(snapshot, here, drawn[KEY]), Lots(snapshot.seed, _count(drawn[KEY]))
        couples = self._paying(snapshot, here, couples)
        crowded = here.gpus[rows].sum() > here.capacity.sum()
        if crowded:
            couples |= _drawn([row for row in rows.tolist() if row not in couples], here.gpus, lots)
        drawn[KEY] = _remembered(snapshot, couples, lots.count)
        paired = couples if crowded else {}
        place = np.argsort(order).tolist()
        first = np.array([row for row in rows.tolist() if row in paired and place[row] < place[paired[row]]], np.int64)
        second = np.array([paired[row] for row in first.tolist()], np.int64)
        alone = np.array([row for row in rows.tolist() if row not in paired], np.int64)
        units = max(len(first) + len(alone), 1)
        share[alone] = _split(here, alone, units)
        speed = beside(self._share(snapshot, here, first, second), here.speed, first, second)
        return Allocation(share, Pairs(first, second, speed), _split(here, first, units))

    def _share(self, snapshot: Snapshot, here: Market, first: Int64s, second: Int64s) -> Floats:
        """What each keeps of its speed beside the other. (P, T, 2)."""
        assert isinstance(self.speeds, PairEstimator)
        return self.speeds.kept(snapshot, first, second, here.types)

    def _paying(self, snapshot: Snapshot, here: Market, couples: Couples) -> Couples:
        """The couples that stay together."""
        first, second = np.array(list(couples.items()), np.int64).reshape(-1, 2).T
        shares = self._share(snapshot, here, first, second)
        pays = (shares > 0).all(axis=(1, 2)) & (shares.sum(axis=(1, 2)) >= 1.0)
        return dict(zip(first[pays].tolist(), second[pays].tolist(), strict=True))


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
    """The couples, each once, and how many lots were drawn, for a carry."""
    jobs, arrived_s = snapshot.jobs, arrival_s(snapshot.jobs)
    ids = jobs.job_id.tolist()
    named = [(row, other) for row, other in couples.items() if ids[row] < ids[other]]
    rows = np.array(sorted(named, key=lambda pair: ids[pair[0]]), np.int64).reshape(-1, 2)
    columns = (jobs.job_id[rows[:, 0]], arrived_s[rows[:, 0]], jobs.job_id[rows[:, 1]], arrived_s[rows[:, 1]])
    return {"count": count} | {name: column.tolist() for name, column in zip(_NAMES, columns, strict=True)}

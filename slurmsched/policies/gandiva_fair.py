"""Stride scheduling over users' tickets, and trades of tickets across GPU types: Gandiva-fair."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np

from slurmsched.estimators.alike import Alike
from slurmsched.model import Card, Family, Input, Ranking, Snapshot, Use
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.policies import rounds
from slurmsched.policies.cards import PREEMPTS, ROUNDS
from slurmsched.policies.checks import check_choice
from slurmsched.policies.gpu_market import Market, gpu_type, market
from slurmsched.policies.isolated import contending
from slurmsched.policies.leases import chosen, contenders, leases
from slurmsched.policies.memory import recall, remembered
from slurmsched.policies.order import ordered
from slurmsched.policies.pairs import Allocation
from slurmsched.policies.ranges import Seconds, check_ranges
from slurmsched.policies.rounds import Rules
from slurmsched.policies.stride import turns
from slurmsched.policies.tenants import Tenants, tenants
from slurmsched.policies.trading import fair_tickets, told, traded
from slurmsched.protocols import SpeedEstimator

KEY = "passes"  # in a carry: pass of each tenant, and the GPU time that it counts
TRADES = "trades"  # in a carry: the last trade in words
NO_TRADE = "GPUs are not traded across types: no speed by GPU type is known"


@dataclass(frozen=True, slots=True)
class GandivaFair:
    """Equal GPU time by ticket for every account, whole gangs at a time; fast GPUs are traded for more slow ones.

    quantum_s: for how long a job that got GPUs keeps them [s]; 0 = it contends at every look. Half an hour by default,
    as `preemption.quantum_s` (ours): the paper has a minute, in which its jobs are suspended, not requeued.
    speeds: where speeds by GPU type come from. Without a table types count alike: the account with the least pass (GPU
    time per ticket) is picked, then its job with the least attained service per GPU; its pass moves on by the gang's
    quantum. A gang that does not fit is passed over and keeps its pass, so that it comes first later. Whoever comes new
    begins at the least pass of those that contend, so idle time is no credit.
    With a table and several types each job has its part of its account's tickets on every type. trade: whether the job
    that gains most from the faster of two types buys there from the one that gains least, at the second highest gain.
    trade_s: least time from one trade to the next [s]; who comes between has what is left until then. Rounds of a
    quantum give each job the time on each type that its tickets say.
    Raises ConfigError for a parameter out of range.
    Source: Chaudhary et al. (Gandiva-fair), EuroSys '20, for tickets of users, strides, whole gangs, trades and their
    price. Ours: without a table, accounts first, then jobs, instead of tickets split over jobs; trades between jobs,
    not users, so that no job has less; rounds as Gavel's in place of strides by type. Not done: migration.
    """

    preemptive: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        Family.FAIRNESS,
        "Chaudhary et al.: Gandiva-fair, EuroSys 2020",
        left_out=(
            "Speeds profiled while jobs run: they are read from a table.",
            "Migration, which balances load: a job moves only where it would be requeued anyway.",
            "A scheduler for each server beside that for gangs: one does both.",
        ),
        needs=(Input.SERVICE, Input.SHARES, Input.SPEED),
        uses=(Use.ORDER, Use.REQUEUE, Use.GPU_TYPE),
        on_slurm=(
            PREEMPTS, ROUNDS, "Jobs are neither migrated nor suspended: a turn ends with a requeue.",
        ),
    )  # fmt: skip

    quantum_s: Seconds = 1_800.0
    trade: bool = True
    trade_s: Seconds = 600.0
    speeds: SpeedEstimator = field(default_factory=Alike)

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choice("trade", self.trade, (True, False))

    def rank(self, snapshot: Snapshot) -> Ranking:
        nodes = snapshot.nodes
        several = len({gpu_type(nodes.gpu_types[row]) for row in np.flatnonzero(nodes.gpus > 0).tolist()}) > 1
        if several and not isinstance(self.speeds, Alike):
            return self._by_type(snapshot)
        return self._alike(snapshot, (NO_TRADE,) if several else ())

    def _by_type(self, snapshot: Snapshot) -> Ranking:
        """Rounds that give each job the time on each type that its tickets say after the trades."""
        here = market(snapshot, self.speeds)
        book, kept = rounds.opened(snapshot, here, self._round_s), {TRADES: snapshot.carry.get(TRADES)}
        rules = Rules(self._round_s, self.trade_s)
        if rounds.over(book, snapshot.now_s, rules):
            kept |= rounds.begin(book, snapshot, here, rules, partial(self._allocation, snapshot, here),
                                 rounds.fastest_first(here))  # fmt: skip
        notes = (str(kept[TRADES]),) if kept[TRADES] else ()
        made = rounds.ranking(book, snapshot, here, True, notes)
        return replace(made, carry={**made.carry, **kept, **tenants(snapshot).carry})

    @property
    def _round_s(self) -> float:
        return max(self.quantum_s, 1.0)

    def _allocation(self, snapshot: Snapshot, here: Market) -> Allocation:
        """The share of each job on each type by its tickets, and what is told of the trade."""
        book, order, share = tenants(snapshot), ordered(snapshot.jobs), np.zeros(here.speed.shape)
        rows = order[here.active[order]]  # of equal gains the first trades first
        part = replace(here, gpus=here.gpus[rows], speed=here.speed[rows], active=here.active[rows])
        tenant = book.tenant[rows]
        tickets, words = fair_tickets(part, tenant, book.shares), None
        if self.trade:
            after, deals = traded(tickets, part, _owners(tenant))
            words, tickets = told(tickets, after, deals, part, _owners(tenant)), after
        share[rows] = tickets / part.gpus[:, None]
        return Allocation(share, carry={TRADES: words})

    def _alike(self, snapshot: Snapshot, notes: tuple[str, ...]) -> Ranking:
        """Strides over accounts, then over their jobs."""
        jobs, book, held = snapshot.jobs, tenants(snapshot), leases(snapshot, self.quantum_s)
        passes = _passes(snapshot, book)
        tickets = book.shares[book.tenant]
        stride = np.where(contending(snapshot), jobs.gpus * max(self.quantum_s, 1.0), 0.0) / tickets
        served_s = jobs.attained_gpu_s / np.maximum(jobs.gpus, 1)
        own = ordered(jobs, ~held.held, served_s)
        turn = turns(book.tenant, own, passes, stride)
        order = ordered(jobs, ~held.held, turn)
        renewed = held.renewed(chosen(snapshot, order, held.held | contenders(snapshot, held)))
        known = {name: [now, had] for name, now, had in
                 zip(book.names, passes.tolist(), book.received_gpu_s.tolist(), strict=True)}  # fmt: skip
        carry = {**remembered(jobs, renewed), **book.carry, KEY: known}
        why = {"turn_gpu_s": turn, "pass_gpu_s": passes[book.tenant], "in_quantum": held.held}
        return Ranking(order, why=why, carry=carry, notes=notes)

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When the next quantum of those that hold GPUs is over [Unix s]."""
        if "round" in ranking.carry:
            return rounds.round_end_s(ranking, running, self._round_s) if running.any() else math.inf
        held = leases(snapshot, self.quantum_s)
        return held.next_end_s(recall(snapshot.jobs, ranking.carry, ("until_s",)), running)


def _passes(snapshot: Snapshot, book: Tenants) -> Floats:
    """GPU time that each tenant had per ticket, those that join lifted to the least of who contends. (T,) [GPU s]."""
    before = snapshot.carry.get(KEY)
    before = before if isinstance(before, dict) else {}
    known = np.array([before.get(name, (np.nan, 0.0)) for name in book.names], np.float64).reshape(-1, 2)
    passes = known[:, 0] + (book.received_gpu_s - known[:, 1]) / book.shares
    waits = book.demand_gpus > book.held_gpus
    active = ~np.isnan(passes)
    contended = active & waits if (active & waits).any() else active
    floor = float(np.min(passes, initial=np.inf, where=contended))
    return np.where(active & waits, passes, np.fmax(passes, floor if np.isfinite(floor) else 0.0))


def _owners(tenant: Int64s) -> Int64s:
    """Between whom prices are found: accounts; jobs, where all that contend are of one account. (N,)."""
    return tenant if len(np.unique(tenant)) > 1 else np.arange(len(tenant))

"""Stride scheduling over users' tickets, and trades of tickets across GPU types: Gandiva-fair."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np

from slurmsched.allocation import rounds
from slurmsched.allocation.finish_time import contending
from slurmsched.allocation.heterogeneity import HeterogeneousCluster, gpu_type, heterogeneous_cluster
from slurmsched.allocation.job_memory import recall, remembered
from slurmsched.allocation.leases import contenders, leases, who_gets_gpus
from slurmsched.allocation.rounds import RoundRules
from slurmsched.allocation.space_sharing import TimeShares
from slurmsched.allocation.tenants import (
    TenantService,
    fair_tickets,
    stride_order,
    tenants,
    trade_summary,
    trade_tickets,
)
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.ordering import ordered
from slurmsched.model.parameters import Seconds, check_choice, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION, ROUNDS_ARE_LEASES
from slurmsched.protocols import SpeedEstimator

KEY = "passes"  # in a carry: pass of each tenant, and the GPU time that it counts
TRADES = "trades"  # in a carry: the last trade in words
NO_TRADE = "GPUs are not traded across types: no speed by GPU type is known"


@dataclass(frozen=True, slots=True)
class GandivaFair:
    """Equal GPU time by ticket for every account, in whole gangs. Fast GPUs are traded for more slow ones.

    Without a table of speeds all types count alike. The account with the least pass (GPU time per ticket) is chosen,
    then its job with the least attained service per GPU. Its pass moves on by the gang's quantum. A gang that does not
    fit is skipped and keeps its pass. A new account begins at the least pass of those that compete, so idle time is no
    credit. With a table and several types, each job has its part of its account's tickets on every type. Rounds of a
    quantum give it the time on each type that its tickets stand for.

    quantum_s: how long a job keeps GPUs that it got [s]; 0: it competes in each cycle. The paper has a minute, because
        it suspends jobs and does not requeue them. The default is that of `preemption.quantum_s`.
    trade: the job that gains most from the faster of two types buys there from the job that gains least, at the second
        highest gain.
    trade_s: least time between two trades [s]. A job submitted in between gets the remaining GPUs until then.
    speeds: source of speeds by GPU type.
    Raises ConfigError for a parameter out of range.
    Source: Chaudhary et al. (Gandiva-fair), EuroSys '20, for tickets of users, strides, whole gangs, trades and their
    price. Ours: without a table, accounts first and then jobs, where the paper splits tickets over jobs; trades between
    jobs, not users, so that no job has less; rounds as Gavel's, where the paper has strides by type. Without migration.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.FAIRNESS,
        "Chaudhary et al.: Gandiva-fair, EuroSys 2020",
        left_out=(
            "Speeds profiled while jobs run: they are read from a table.",
            "Migration to balance load: a job moves only if it is requeued anyway.",
            "A scheduler for each server beside the one for gangs: one does both.",
        ),
        needs=(PolicyInput.SERVICE, PolicyInput.SHARES, PolicyInput.SPEED),
        uses=(PolicyLever.ORDER, PolicyLever.REQUEUE, PolicyLever.GPU_TYPE),
        on_slurm=(
            NEEDS_PREEMPTION, ROUNDS_ARE_LEASES, "Jobs are neither migrated nor suspended: a turn ends with a requeue.",
        ),
        criteria={"turn_gpu_s": "turn at {}", "pass_gpu_s": "pass of its tenant {}", "in_quantum": "in its quantum"},
    )  # fmt: skip

    quantum_s: Seconds = 1_800.0
    trade: bool = True
    trade_s: Seconds = 600.0
    speeds: SpeedEstimator = field(default_factory=EqualSpeeds)

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choice("trade", self.trade, (True, False))

    def rank(self, snapshot: Snapshot) -> Ranking:
        nodes = snapshot.nodes
        several = len({gpu_type(nodes.gpu_types[row]) for row in np.flatnonzero(nodes.gpus > 0).tolist()}) > 1
        if several and not isinstance(self.speeds, EqualSpeeds):
            return self._by_type(snapshot)
        return self._alike(snapshot, (NO_TRADE,) if several else ())

    def _by_type(self, snapshot: Snapshot) -> Ranking:
        """Rounds that give each job the time on each type that its tickets say after the trades."""
        cluster = heterogeneous_cluster(snapshot, self.speeds)
        book, carried = rounds.open_rounds(snapshot, cluster, self._round_s), {TRADES: snapshot.carry.get(TRADES)}
        rules = RoundRules(self._round_s, self.trade_s)
        if rounds.round_is_over(book, snapshot.now_s, rules):
            carried |= rounds.begin_round(book, snapshot, cluster, rules, partial(self._allocation, snapshot, cluster),
                                 rounds.fastest_first(cluster))  # fmt: skip
        notes = (str(carried[TRADES]),) if carried[TRADES] else ()
        made = rounds.round_ranking(book, snapshot, cluster, True, notes)
        return replace(made, carry={**made.carry, **carried, **tenants(snapshot).carry})

    @property
    def _round_s(self) -> float:
        return max(self.quantum_s, 1.0)

    def _allocation(self, snapshot: Snapshot, cluster: HeterogeneousCluster) -> TimeShares:
        """The share of each job on each type by its tickets, and notes on the trade."""
        book, order, share = tenants(snapshot), ordered(snapshot.jobs), np.zeros(cluster.speed.shape)
        rows = order[cluster.active[order]]  # of equal gains the first trades first
        part = replace(cluster, gpus=cluster.gpus[rows], speed=cluster.speed[rows], active=cluster.active[rows])
        tenant = book.tenant[rows]
        tickets, words = fair_tickets(part, tenant, book.shares), None
        if self.trade:
            after, deals = trade_tickets(tickets, part, _owners(tenant))
            words, tickets = trade_summary(tickets, after, deals, part, _owners(tenant)), after
        share[rows] = tickets / part.gpus[:, None]
        return TimeShares(share, carry={TRADES: words})

    def _alike(self, snapshot: Snapshot, notes: tuple[str, ...]) -> Ranking:
        """Strides over accounts, then over their jobs."""
        jobs, book, held_leases = snapshot.jobs, tenants(snapshot), leases(snapshot, self.quantum_s)
        passes = _passes(snapshot, book)
        tickets = book.shares[book.tenant]
        stride = np.where(contending(snapshot), jobs.gpus * max(self.quantum_s, 1.0), 0.0) / tickets
        served_s = jobs.attained_gpu_s / np.maximum(jobs.gpus, 1)
        own = ordered(jobs, ~held_leases.in_force, served_s)
        turn = stride_order(book.tenant, own, passes, stride)
        order = ordered(jobs, ~held_leases.in_force, turn)
        renewed = held_leases.renewed(
            who_gets_gpus(snapshot, order, held_leases.in_force | contenders(snapshot, held_leases))
        )
        known = {name: [now, had] for name, now, had in
                 zip(book.names, passes.tolist(), book.received_gpu_s.tolist(), strict=True)}  # fmt: skip
        carry = {**remembered(jobs, renewed), **book.carry, KEY: known}
        why = {"turn_gpu_s": turn, "pass_gpu_s": passes[book.tenant], "in_quantum": held_leases.in_force}
        return Ranking(order, why=why, carry=carry, notes=notes)

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When the next quantum of those that hold GPUs is over [Unix s]."""
        if "round" in ranking.carry:
            return rounds.round_end_s(ranking, running, self._round_s)
        held_leases = leases(snapshot, self.quantum_s)
        return held_leases.next_end_s(recall(snapshot.jobs, ranking.carry, ("until_s",)), running)


def _passes(snapshot: Snapshot, book: TenantService) -> Floats:
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
    """The traders by job: accounts, or jobs if all that compete are of one account. (N,)."""
    return tenant if len(np.unique(tenant)) > 1 else np.arange(len(tenant))

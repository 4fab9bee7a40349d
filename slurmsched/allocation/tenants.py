"""Tenants: GPU time received and deserved, weights, strides, and trades of GPU time across types.

A tenant is a Slurm account. What a tenant has at one cycle counts until the next cycle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from slurmsched.allocation.heterogeneity import HeterogeneousCluster
from slurmsched.allocation.rounds import fastest_first
from slurmsched.allocation.solver import water_fill
from slurmsched.model import Snapshot
from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.jobs import Jobs
from slurmsched.model.parameters import named_numbers
from slurmsched.resources.allocated import holding
from slurmsched.resources.startable_jobs import startable

KEY = "tenants"  # in a carry


@dataclass(frozen=True, slots=True, eq=False)
class TenantService:
    """One row a tenant, in ascending name.

    tenant: (N,) int64 row of each job's tenant; all other columns are (T,) float64.
    shares: part of the cluster that is each one's, 1 in all.
    demand_gpus: GPUs that its jobs hold or could start on now.
    held_gpus: GPUs that its jobs hold.
    received_gpu_s, deserved_gpu_s: since the book was begun, where a tenant deserves what it demands up to its share of
        the GPUs.
    Source: Ye et al. (Astraea), TPDS 2021, for what is deserved.
    """

    names: tuple[str, ...]
    tenant: Int64s
    shares: Floats
    demand_gpus: Floats
    held_gpus: Floats
    received_gpu_s: Floats
    deserved_gpu_s: Floats
    gpus: float
    now_s: float

    @property
    def deserved_gpus(self) -> Floats:
        """GPUs that each deserves now. (T,)."""
        return np.minimum(self.demand_gpus, self.shares * self.gpus)

    @property
    def carry(self) -> dict[str, Any]:
        """The book, for `tenants` to take back from the carry at the next look."""
        columns = (self.received_gpu_s, self.deserved_gpu_s, self.held_gpus, self.deserved_gpus)
        rows = np.column_stack(columns).tolist()
        return {KEY: {"at_s": self.now_s, "rows": dict(zip(self.names, rows, strict=True))}}


def tenants(snapshot: Snapshot) -> TenantService:
    """The book of every tenant that has jobs now or had any before, up to now_s."""
    jobs, book = snapshot.jobs, _book(snapshot.carry)
    names = tuple(sorted({*jobs.account.names, *book["rows"]}))
    place = {name: row for row, name in enumerate(names)}
    tenant = np.array([place[name] for name in jobs.account.names], np.int64)[jobs.account.codes]
    holds = holding(jobs)
    held = np.bincount(tenant[holds], jobs.gpus[holds], len(names)).astype(np.float64)
    waits = startable(snapshot)
    demand: Floats = held + np.bincount(tenant[waits], (jobs.gpus * jobs.array_tasks)[waits], len(names))
    shares = np.array([snapshot.shares.get(name, 1.0) for name in names], np.float64)
    kept = np.array([book["rows"].get(name, (0.0, 0.0, 0.0, 0.0)) for name in names]).reshape(len(names), 4)
    passed_s = max(snapshot.now_s - book["at_s"], 0.0)
    gpus = float(snapshot.nodes.gpus[~snapshot.nodes.down].sum())
    return TenantService(
        names, tenant, shares / (shares.sum() or 1.0), demand, held, kept[:, 0] + kept[:, 2] * passed_s,
        kept[:, 1] + kept[:, 3] * passed_s, gpus, snapshot.now_s,
    )  # fmt: skip


def _book(carry: Mapping[str, Any]) -> dict[str, Any]:
    """The book in a carry; an empty one if there is none, or another policy left it."""
    found = carry.get(KEY)
    if not isinstance(found, Mapping) or not isinstance(found.get("rows"), Mapping):
        return {"at_s": float("inf"), "rows": {}}
    return {"at_s": float(found["at_s"]), "rows": dict(found["rows"])}


# Weights of jobs.

WEIGHT_KINDS = ("qos", "user", "account")


def check_weights(texts: Sequence[str]) -> None:
    """Raises ConfigError for a text that is not KIND:NAME=WEIGHT, of a kind that jobs have."""
    named_numbers("weights", texts, "KIND:NAME=WEIGHT", kinds=WEIGHT_KINDS)


def weights_of(jobs: Jobs, texts: Sequence[str], kinds: Sequence[str] = WEIGHT_KINDS) -> Floats:
    """The weight of each job: the product of those of its QOS, its user and its account, of these kinds. (N,), above 0.

    texts: KIND:NAME=WEIGHT each; the default weight is 1.
    """
    found = np.ones(len(jobs))
    for key, weight in named_numbers("weights", texts, "KIND:NAME=WEIGHT", kinds=WEIGHT_KINDS).items():
        kind, _, name = key.partition(":")
        if kind in kinds:
            found *= np.where(getattr(jobs, kind).isin([name]), weight, 1.0)
    return found


def unused_weights(snapshot: Snapshot, texts: Sequence[str], accounts: Sequence[str] = ()) -> tuple[str, ...]:
    """A note that names entries of weights that no job has now: they may be misspelt.

    accounts: more names of accounts that must be some. An account that has shares is known without jobs too.
    """
    jobs = snapshot.jobs
    known = {f"{kind}:{name}" for kind in WEIGHT_KINDS for name in getattr(jobs, kind).names}
    known |= {f"account:{name}" for name in snapshot.shares}
    given = [*(text.rpartition("=")[0] for text in texts), *(f"account:{name}" for name in accounts)]
    missing = [key for key in dict.fromkeys(given) if key not in known]
    return (f"no job is of {', '.join(missing)} now",) if missing and len(jobs) else ()


# Stride scheduling.


def stride_order(tenant: Int64s, own_order: Int64s, passes: Floats, strides: Floats) -> Floats:
    """The pass at which each job's turn comes. (N,); jobs in ascending turn are what stride scheduling picks.

    The tenant with the least pass is picked, gets its next job, and its pass moves on by that job's stride.
    tenant: (N,) row of each job's tenant.
    own_order: (N,) rows of jobs, each tenant's jobs in the order it wants them.
    passes: (T,) at the start.
    strides: (N,) what a job's turn costs its tenant, at least 0.
    Source: Waldspurger and Weihl, MIT/LCS/TM-528, 1995.
    """
    by_tenant = own_order[np.argsort(tenant[own_order], kind="stable")]
    steps, owner = strides[by_tenant], tenant[by_tenant]
    before = np.cumsum(steps) - steps
    first = np.searchsorted(owner, owner, side="left") if len(owner) else owner
    found = np.empty(len(tenant))
    found[by_tenant] = passes[owner] + before - before[first]
    return found


# Trades of GPU time across types.


@dataclass(frozen=True, slots=True)
class TicketTrade:
    """One trade of GPUs between two jobs.

    seller, buyer: rows of jobs.
    fast, slow: columns of types.
    gpus: of the fast type.
    price: slow ones for one.
    """

    seller: int
    buyer: int
    fast: int
    slow: int
    gpus: float
    price: float


def fair_tickets(cluster: HeterogeneousCluster, account: Int64s, shares: Floats) -> Floats:
    """GPUs of each type that each job has as its part of its account's tickets. (N, T).

    account: (N,) row of each job's account. shares: (A,). One type after the other, fastest first, is split over
    accounts by their shares, then over their jobs by the GPUs that these still lack; who has enough leaves the rest to
    others.
    """
    found, lacks = np.zeros(cluster.speed.shape), np.where(cluster.active, cluster.gpus, 0.0)
    for column in fastest_first(cluster).tolist():
        asked = np.where(cluster.speed[:, column] > 0, lacks, 0.0)
        by_account: Floats = np.bincount(account, asked, len(shares)).astype(np.float64)
        given = water_fill(by_account, shares, float(cluster.capacity[column]))
        found[:, column] = asked * (given / np.maximum(by_account, 1e-12))[account]
        lacks = np.maximum(lacks - found[:, column], 0.0)
    return found


def trade_tickets(tickets: Floats, cluster: HeterogeneousCluster, owner: Int64s) -> tuple[Floats, list[TicketTrade]]:
    """Tickets after all deals, (N, T), and the deals. No job's throughput falls; every type is given out as before.

    For each two types the job that gains most from the fast one buys. The job that gains least sells. The price is the
    gain of the next owner's best job.

    tickets: (N, T) GPUs.
    owner: (N,); prices are found between the jobs of different owners.
    Source: Chaudhary et al. (Gandiva-fair), EuroSys '20, for deals of the highest with the lowest at the second price.
    """
    held, deals = tickets.copy(), list[TicketTrade]()
    order = fastest_first(cluster).tolist()
    for fast, slow in sorted(combinations(range(len(order)), 2), key=lambda pair: (pair[0], -pair[1])):
        deals += _between(held, cluster, owner, order[fast], order[slow])
    return held, deals


def _between(held: Floats, cluster: HeterogeneousCluster, owner: Int64s, fast: int, slow: int) -> list[TicketTrade]:
    """The deals in two types; held is changed. (N, T)."""
    runs = np.flatnonzero(cluster.active & (cluster.speed[:, fast] > 0) & (cluster.speed[:, slow] > 0))
    gain = cluster.speed[runs, fast] / cluster.speed[runs, slow]
    order = np.argsort(-gain, kind="stable")
    rows, gain = runs[order], gain[order]
    price = _second(gain, owner[rows])
    deals, top, low = list[TicketTrade](), 0, len(rows) - 1
    while top < low and price[top] >= gain[low] and gain[top] > gain[low] * (1 + 1e-9):
        one = TicketTrade(int(rows[low]), int(rows[top]), fast, slow, 0.0, float(price[top]))
        sold, bought = _tradable_gpus(held, cluster, one)
        gpus = min(sold, bought)
        if gpus > 0:
            deals.append(TicketTrade(one.seller, one.buyer, fast, slow, gpus, one.price))
            held[[one.seller, one.buyer], fast] += (-gpus, gpus)
            held[[one.seller, one.buyer], slow] += (gpus * one.price, -gpus * one.price)
        low, top = low - (sold <= gpus), top + (bought <= gpus)
    np.maximum(held, 0.0, out=held)  # what rounding left below
    return deals


def _second(gain: Floats, owner: Int64s) -> Floats:
    """The gain of the next job that is not of the same owner, NaN where there is none. (K,), gain descending."""
    found = np.full(len(gain), np.nan)
    for place in range(len(gain) - 2, -1, -1):
        found[place] = found[place + 1] if owner[place + 1] == owner[place] else gain[place + 1]
    return found


def _tradable_gpus(held: Floats, cluster: HeterogeneousCluster, deal: TicketTrade) -> tuple[float, float]:
    """Fast GPUs that the seller can give and the buyer can take: neither holds more in all than it asks for."""
    rise = deal.price - 1.0
    spare = {row: max(float(cluster.gpus[row] - held[row].sum()), 0.0) for row in (deal.seller, deal.buyer)}
    sold = spare[deal.seller] / rise if rise > 0 else np.inf
    bought = spare[deal.buyer] / -rise if rise < 0 else np.inf
    return (min(float(held[deal.seller, deal.fast]), sold),
            min(float(held[deal.buyer, deal.slow]) / deal.price, bought))  # fmt: skip


def trade_summary(
    before: Floats, after: Floats, deals: list[TicketTrade], cluster: HeterogeneousCluster, owner: Int64s
) -> str:
    """The deals in words. before, after: (N, T) tickets."""
    if not deals:
        return "no trade: no job gains more from a faster GPU than one that has it and needs more GPUs"
    sums: dict[tuple[int, int], list[float]] = {}
    for deal in deals:
        pair = sums.setdefault((deal.fast, deal.slow), [0.0, 0.0])
        pair[0] += deal.gpus
        pair[1] += deal.gpus * deal.price
    names = [name or "untyped" for name in cluster.types]
    parts = [f"{sold:.1f} {names[fast]} for {paid:.1f} {names[slow]}" for (fast, slow), (sold, paid) in sums.items()]
    had, have = (np.bincount(owner, (tickets * cluster.speed).sum(axis=1)) for tickets in (before, after))
    ratio = have[had > 0] / had[had > 0]
    return f"traded {', '.join(parts)} GPUs: each has {ratio.min():.2f} to {ratio.max():.2f} times as much"

"""Trades of GPU time across types: who gains little from fast GPUs sells them for more of the slow ones."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from slurmsched.model.columns import Floats, Int64s
from slurmsched.policies.gpu_market import Market
from slurmsched.policies.rounds import fastest_first
from slurmsched.policies.solve import water_fill


@dataclass(frozen=True, slots=True)
class Deal:
    """seller, buyer: rows of jobs. fast, slow: columns of types. gpus: of the fast type. price: slow ones for one."""

    seller: int
    buyer: int
    fast: int
    slow: int
    gpus: float
    price: float


def fair_tickets(here: Market, account: Int64s, shares: Floats) -> Floats:
    """GPUs of each type that each job has as its part of its account's tickets. (N, T).

    account: (N,) row of each job's account. shares: (A,). One type after the other, fastest first, is split over
    accounts by their shares, then over their jobs by the GPUs that these still lack; who has enough leaves the rest to
    others.
    """
    found, lacks = np.zeros(here.speed.shape), np.where(here.active, here.gpus, 0.0)
    for column in fastest_first(here).tolist():
        asked = np.where(here.speed[:, column] > 0, lacks, 0.0)
        by_account: Floats = np.bincount(account, asked, len(shares)).astype(np.float64)
        given = water_fill(by_account, shares, float(here.capacity[column]))
        found[:, column] = asked * (given / np.maximum(by_account, 1e-12))[account]
        lacks = np.maximum(lacks - found[:, column], 0.0)
    return found


def traded(tickets: Floats, here: Market, owner: Int64s) -> tuple[Floats, list[Deal]]:
    """Tickets after all deals, (N, T), and the deals. No job's throughput falls; every type is given out as before.

    tickets: (N, T) GPUs. owner: (N,), between whose jobs prices are found. For each two types the job that gains most
    from the fast one buys from the one that gains least, at the gain of the next owner's best job.
    Source: Chaudhary et al. (Gandiva-fair), EuroSys '20, for deals of the highest with the lowest at the second price.
    """
    held, deals = tickets.copy(), list[Deal]()
    order = fastest_first(here).tolist()
    for fast, slow in sorted(combinations(range(len(order)), 2), key=lambda pair: (pair[0], -pair[1])):
        deals += _between(held, here, owner, order[fast], order[slow])
    return held, deals


def _between(held: Floats, here: Market, owner: Int64s, fast: int, slow: int) -> list[Deal]:
    """The deals in two types; held is changed. (N, T)."""
    runs = np.flatnonzero(here.active & (here.speed[:, fast] > 0) & (here.speed[:, slow] > 0))
    gain = here.speed[runs, fast] / here.speed[runs, slow]
    order = np.argsort(-gain, kind="stable")
    rows, gain = runs[order], gain[order]
    price = _second(gain, owner[rows])
    deals, top, low = list[Deal](), 0, len(rows) - 1
    while top < low and price[top] >= gain[low] and gain[top] > gain[low] * (1 + 1e-9):
        one = Deal(int(rows[low]), int(rows[top]), fast, slow, 0.0, float(price[top]))
        sold, bought = _room(held, here, one)
        gpus = min(sold, bought)
        if gpus > 0:
            deals.append(Deal(one.seller, one.buyer, fast, slow, gpus, one.price))
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


def _room(held: Floats, here: Market, deal: Deal) -> tuple[float, float]:
    """Fast GPUs that the seller can give and the buyer can take: neither holds more in all than it asks for."""
    rise = deal.price - 1.0
    spare = {row: max(float(here.gpus[row] - held[row].sum()), 0.0) for row in (deal.seller, deal.buyer)}
    sold = spare[deal.seller] / rise if rise > 0 else np.inf
    bought = spare[deal.buyer] / -rise if rise < 0 else np.inf
    return (min(float(held[deal.seller, deal.fast]), sold),
            min(float(held[deal.buyer, deal.slow]) / deal.price, bought))  # fmt: skip


def told(before: Floats, after: Floats, deals: list[Deal], here: Market, owner: Int64s) -> str:
    """The deals in words. before, after: (N, T) tickets."""
    if not deals:
        return "no trade: nobody gains more from a faster GPU than somebody else who has one and room for more"
    sums: dict[tuple[int, int], list[float]] = {}
    for deal in deals:
        pair = sums.setdefault((deal.fast, deal.slow), [0.0, 0.0])
        pair[0] += deal.gpus
        pair[1] += deal.gpus * deal.price
    names = [name or "untyped" for name in here.types]
    parts = [f"{sold:.1f} {names[fast]} for {paid:.1f} {names[slow]}" for (fast, slow), (sold, paid) in sums.items()]
    had, have = (np.bincount(owner, (tickets * here.speed).sum(axis=1)) for tickets in (before, after))
    ratio = have[had > 0] / had[had > 0]
    return f"traded {', '.join(parts)} GPUs: everybody has {ratio.min():.2f} to {ratio.max():.2f} times as much"

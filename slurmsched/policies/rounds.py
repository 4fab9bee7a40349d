"""Gavel's round mechanism: who runs on which GPU type in each round, so that in the long run each has its share.

Kept in the carry, by job and type: the share, the time received since the last reset, the deficit of earlier resets,
and the type of this round. Source: Narayanan et al. (Gavel), OSDI '20, and its released code (c4fa400).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.model import Labels, Ranking, Snapshot, Wants
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.policies import pair_book
from slurmsched.policies.gpu_market import Market
from slurmsched.policies.memory import recall, table_of
from slurmsched.policies.order import arrival_s, ordered
from slurmsched.policies.pair_book import PairBook
from slurmsched.policies.pairs import Allocation

FIRST = 1e9  # priority over share of a pair that has received nothing
RESET_S = 1_920.0  # least time from one allocation to the next in the released code
WHOLE_STEPS = 0.05  # of a round, less than the longest steps of the public traces
_BY_TYPE = ("share", "received_s", "deficit_s")
_BY_JOB = ("on", "executed_s", "done_s")


@dataclass(frozen=True, slots=True)
class Rules:
    """round_s: length of a round [s]. reset_s: least time from one allocation to the next [s]. strict: as in
    pair_book.chosen.

    released: as in the released simulators, where jobs that came since the allocation wait for the next one, though
    they keep GPUs from others, and where an allocation at time 0 does not hold off the next one.
    """

    round_s: float
    reset_s: float = RESET_S
    strict: bool = False
    released: bool = False


@dataclass(slots=True, eq=False)
class Book:
    """share, received_s, deficit_s: (N, T), NaN for jobs not known. on: (N,) column of the type of this round, -1 none.

    executed_s: (N,) at the last look. done_s: (N,) run time made, in seconds of the reference type. worker_s: (T,) time
    received by all jobs since the reset. begun_s, reset_s: of round and allocation [Unix s], -inf = never. stale: jobs
    came or ended since the allocation. rounds: begun so far. pairs: of jobs that may share GPUs.
    """

    share: Floats
    received_s: Floats
    deficit_s: Floats
    on: Int64s
    executed_s: Floats
    done_s: Floats
    worker_s: Floats
    begun_s: float
    reset_s: float
    stale: bool
    rounds: int
    pairs: PairBook

    def carry(self, snapshot: Snapshot, market: Market) -> dict[str, Any]:
        """The book of the active jobs, for `opened` to take back."""
        rows = np.flatnonzero(market.active)
        made: dict[str, Any] = {
            "job_id": snapshot.jobs.job_id[rows].tolist(),
            "arrival_s": arrival_s(snapshot.jobs)[rows].tolist(),
            **{name: getattr(self, name)[rows].tolist() for name in _BY_JOB},
        }
        for name in _BY_TYPE:
            for column, type_ in enumerate(market.types):
                made[f"{name} {type_}"] = getattr(self, name)[rows, column].tolist()
        made |= self.pairs.carry(snapshot, market.types)
        worker = dict(zip(market.types, self.worker_s.tolist(), strict=True))
        return made | {"round": {"begun_s": self.begun_s, "reset_s": self.reset_s, "stale": self.stale,
                                 "worker_s": worker, "rounds": self.rounds}}  # fmt: skip


def opened(snapshot: Snapshot, market: Market, round_s: float) -> Book:
    """The book as it stands now: what jobs have run since the last look is entered."""
    jobs, carry = snapshot.jobs, snapshot.carry
    by_type = [f"{name} {type_}" for name in _BY_TYPE for type_ in market.types]
    kept = recall(jobs, carry, (*_BY_JOB, *by_type))
    share, received_s, deficit_s = (
        np.column_stack([kept[f"{name} {type_}"] for type_ in market.types]) for name in _BY_TYPE
    )
    last: dict[str, Any] = dict(carry.get("round", {}))
    worker_s = np.array([last.get("worker_s", {}).get(type_, 0.0) for type_ in market.types])
    known = ~np.isnan(kept["on"])
    gone = table_of(carry, (*_BY_JOB, *by_type)).shape[1] > np.count_nonzero(known & market.active)
    book = Book(
        share, np.where(np.isnan(received_s), round_s / 2, received_s), np.nan_to_num(deficit_s),
        np.where(known, kept["on"], -1).astype(np.int64), jobs.executed_s, np.nan_to_num(kept["done_s"]),
        worker_s, float(last.get("begun_s", -np.inf)), float(last.get("reset_s", -np.inf)),
        bool(last.get("stale", True)) or bool(gone) or bool((market.active & np.isnan(share).any(axis=1)).any()),
        int(last.get("rounds", 0)), pair_book.recalled(snapshot, market),
    )  # fmt: skip
    _enter(book, market, np.where(known, jobs.executed_s - np.nan_to_num(kept["executed_s"]), 0.0))
    book.on[~market.active] = -1
    return book


def _enter(book: Book, market: Market, ran_s: Floats) -> None:
    """Count run time of jobs on the type they had, of a pair once. ran_s: (N,) since the last look.

    Who ran without its partner, because that waits or has ended, counts as alone.
    """
    pairs = book.pairs
    shares, both = np.zeros(len(ran_s), np.bool_), (ran_s[pairs.first] > 0) & (ran_s[pairs.second] > 0)
    for pair in np.flatnonzero(pairs.runs & both & (book.on[pairs.first] >= 0)).tolist():
        members = np.array([pairs.first[pair], pairs.second[pair]])
        column, together_s = book.on[members[0]], ran_s[members].max()
        pairs.received_s[pair, column] += together_s
        book.worker_s[column] += together_s
        book.done_s[members] += ran_s[members] * pairs.speed[pair, column]
        shares[members] = True
    rows = np.flatnonzero((book.on >= 0) & (ran_s > 0) & ~shares)
    column = book.on[rows]
    book.received_s[rows, column] += ran_s[rows]
    book.done_s[rows] += ran_s[rows] * market.speed[rows, column]
    book.worker_s += np.bincount(column, ran_s[rows], len(market.types))


def over(book: Book, now_s: float, rules: Rules) -> bool:
    """Whether a new round begins: its time is up, or nobody of it is left.

    A round of the released simulators is over when all have done their last whole step in it.
    """
    early_s = WHOLE_STEPS * rules.round_s if rules.released else 1e-6
    return now_s >= book.begun_s + rules.round_s - early_s or not (book.on >= 0).any()


def fastest_first(market: Market) -> Int64s:
    """Columns by the mean speed of the active jobs there, highest first. (T,) int64."""
    mean = np.where(market.active[:, None], market.speed, 0.0).sum(axis=0)
    return np.lexsort((np.arange(len(mean)), -mean.round(9)))


def shuffled(market: Market, snapshot: Snapshot, rounds: int) -> Int64s:
    """Columns in an order of chance, another in each round. (T,) int64."""
    return np.random.default_rng((snapshot.seed, rounds)).permutation(len(market.types))


def shuffled_as_released(market: Market, snapshot: Snapshot, rounds: int) -> Int64s:
    """Columns in the order of chance that the released simulators draw for this round, from 0. (T,) int64.

    They shuffle the types, fastest first, with Python's own generator of seed + 5: its draws are made anew here.
    """
    fastest = fastest_first(market).tolist()
    draws = np.random.RandomState([snapshot.seed + 5])
    order = list(fastest)
    for _ in range(rounds + 1):
        order = list(fastest)
        for last in range(len(order) - 1, 0, -1):
            place, bits = last + 1, (last + 1).bit_length()
            while place > last:
                place = int(draws.randint(0, 1 << 32, dtype=np.uint32)) >> (32 - bits)
            order[last], order[place] = order[place], order[last]
    return np.array(order, np.int64)


def begin(
    book: Book, snapshot: Snapshot, market: Market, rules: Rules, allocate: Callable[[], Allocation], queues: Int64s
) -> dict[str, Any]:
    """A new round: the allocation if it is due, then who runs on which type. What is to be remembered of the
    allocation, nothing without one. queues: as in `pair_book.chosen`."""
    now_s, carry = snapshot.now_s, dict[str, Any]()
    if book.stale and (now_s - book.reset_s >= rules.reset_s or (rules.released and book.reset_s == 0)):
        _reset(book, now_s, rules.round_s)
        made, before = allocate(), book.pairs
        carry = dict(made.carry)
        book.share, book.pairs = made.share, PairBook.none(len(market.types))
        if made.pairs is not None and made.shared is not None:
            book.pairs = PairBook.of(made.pairs, made.shared, rules.round_s).owed(before)
        book.worker_s = book.received_s[market.active].sum(axis=0) + book.pairs.received_s.sum(axis=0)
        book.reset_s, book.stale = now_s, False
    book.begun_s, book.rounds = now_s, book.rounds + 1
    place = np.argsort(ordered(snapshot.jobs))
    share, priority = np.nan_to_num(book.share), priorities(book.share, book.received_s, book.worker_s)
    both = priorities(book.pairs.share, book.pairs.received_s, book.worker_s)
    book.on, book.pairs.runs = pair_book.chosen(book.pairs, both, share, priority, book.deficit_s, place, market,
                                                queues, rules.strict)  # fmt: skip
    if rules.released:
        book.on[np.isnan(book.share).any(axis=1)] = -1
    return carry


def _reset(book: Book, now_s: float, round_s: float) -> None:
    """What each pair should have received since the last allocation and has not becomes its deficit."""
    passed_s = now_s - book.reset_s
    if np.isfinite(passed_s):
        book.deficit_s = book.deficit_s + np.nan_to_num(book.share) * passed_s - (book.received_s - round_s / 2)
        pairs = book.pairs
        pairs.deficit_s = pairs.deficit_s + pairs.share * passed_s - (pairs.received_s - round_s / 2)
    book.received_s = np.full(book.received_s.shape, round_s / 2)


def priorities(share: Floats, received_s: Floats, worker_s: Floats) -> Floats:
    """Share over the fraction of the type's time received since the last reset, of jobs or of pairs.

    share, received_s: (U, T), NaN = no share. worker_s: (T,), see Book.
    """
    share = np.nan_to_num(share)
    fraction = np.divide(received_s, worker_s, out=np.zeros(share.shape),
                         where=np.broadcast_to(worker_s > 0, share.shape))  # fmt: skip
    return np.divide(share, fraction, out=share * FIRST, where=fraction > 0)


def ranking(
    book: Book, snapshot: Snapshot, market: Market, fill: bool, notes: tuple[str, ...] = (), *, shares: bool = False
) -> Ranking:
    """Jobs of the round first, then the others by priority; without `fill` those wait for the next round.

    shares: whether two jobs may share GPUs; then the guest comes after all that have GPUs of their own.
    """
    jobs, in_round, share = snapshot.jobs, book.on >= 0, np.nan_to_num(book.share).sum(axis=1)
    best = priorities(book.share, book.received_s, book.worker_s).max(axis=1, initial=0.0)
    types = Labels.of([market.types[column] if column >= 0 else "" for column in book.on.tolist()])
    start_s = None if fill else np.where(in_round | ~market.active, -np.inf, np.inf)
    beside = pair_book.hosts(book.pairs, snapshot) if shares else None
    guests = np.zeros(len(jobs), np.bool_) if beside is None else beside >= 0
    both = priorities(book.pairs.share, book.pairs.received_s, book.worker_s).max(axis=1, initial=0.0)
    for members in (book.pairs.first, book.pairs.second):
        np.maximum.at(best, members, both)
        np.add.at(share, members, book.pairs.share.sum(axis=1))
    why = {"in_round": in_round.astype(np.int64), "priority": best, "done_s": book.done_s}
    why |= {} if beside is None else {"beside": beside}
    wants = Wants(gpu_type=types, start_s=start_s, share=np.clip(share, 0.0, 1.0), beside=beside)
    return Ranking(ordered(jobs, ~in_round, guests, -best), why, book.carry(snapshot, market), notes, wants)


def round_end_s(ranking: Ranking, running: Bools, round_s: float) -> float:
    """When the round ends [Unix s], infinity if nobody runs in it."""
    return float(ranking.carry["round"]["begun_s"]) + round_s

"""Gavel's rounds: which job runs on which GPU type in each round, so that each has its share in the long run.

The carry holds, by job and type: the share, the time received since the last reset, the deficit of earlier resets, and
the type of this round. For pairs of jobs that may share GPUs it holds the same, their speeds, and whether the pair runs
in this round: a pair is one more entry of the rounds beside its two jobs.
Source: Narayanan et al. (Gavel), OSDI '20, and its released code (c4fa400).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.allocation.heterogeneity import HeterogeneousCluster
from slurmsched.allocation.job_memory import recall, table_of
from slurmsched.allocation.space_sharing import JobPairs, TimeShares
from slurmsched.model import JobChanges, Labels, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.ordering import arrival_s, ordered

PAIRS_KEY = "shared"  # in the carry
_PAIR_TABLES = ("share", "received_s", "deficit_s", "speed_first", "speed_second")
_PAIR_MEMBERS = ("first", "second")


@dataclass(slots=True, eq=False)
class PairRounds:
    """The pairs of jobs that may share GPUs, and their rounds.

    first, second: (P,) rows of the jobs.
    share, received_s, deficit_s: (P, T).
    speed: (P, T, 2) of each beside the other.
    runs: (P,) bool, in this round.
    """

    first: Int64s
    second: Int64s
    share: Floats
    received_s: Floats
    deficit_s: Floats
    speed: Floats
    runs: Bools

    @classmethod
    def of(cls, pairs: JobPairs, shared: Floats, round_s: float) -> PairRounds:
        """The book after an allocation."""
        received_s = np.full(shared.shape, round_s / 2)
        return cls(pairs.first, pairs.second, shared, received_s, np.zeros(shared.shape), pairs.speed,
                   np.zeros(len(shared), np.bool_))  # fmt: skip

    @classmethod
    def none(cls, types: int) -> PairRounds:
        """The book without pairs."""
        rows, empty = np.zeros(0, np.int64), np.zeros((0, types))
        return cls.of(JobPairs(rows, rows, np.zeros((0, types, 2))), empty, 0.0)

    def owed(self, before: PairRounds) -> PairRounds:
        """This book, with the deficits that these pairs had in the one before."""
        known = {pair: place for place, pair in enumerate(before.names)}
        for place, pair in enumerate(self.names):
            if pair in known:
                self.deficit_s[place] = before.deficit_s[known[pair]]
        return self

    @property
    def names(self) -> list[tuple[int, int]]:
        """The rows of each pair, ascending."""
        return [(min(pair), max(pair)) for pair in zip(self.first.tolist(), self.second.tolist(), strict=True)]

    def take(self, kept: Bools) -> PairRounds:
        """The pairs of a mask."""
        return PairRounds(self.first[kept], self.second[kept], self.share[kept], self.received_s[kept],
                        self.deficit_s[kept], self.speed[kept], self.runs[kept])  # fmt: skip

    def carry(self, snapshot: Snapshot, types: tuple[str, ...]) -> dict[str, Any]:
        """The book for recall_pairs to read; nothing without pairs."""
        if not len(self.first):
            return {}
        jobs, arrived_s = snapshot.jobs, arrival_s(snapshot.jobs)
        made: dict[str, Any] = {"runs": self.runs.tolist()}
        for name in _PAIR_MEMBERS:
            rows = getattr(self, name)
            made |= {name: jobs.job_id[rows].tolist(), f"{name}_arrival_s": arrived_s[rows].tolist()}
        tables = (self.share, self.received_s, self.deficit_s, self.speed[:, :, 0], self.speed[:, :, 1])
        for name, table in zip(_PAIR_TABLES, tables, strict=True):
            made |= {f"{name} {type_}": table[:, column].tolist() for column, type_ in enumerate(types)}
        return {PAIRS_KEY: made}


def recall_pairs(snapshot: Snapshot, cluster: HeterogeneousCluster) -> PairRounds:
    """The pairs of which both jobs are still active. A carry of other types is as good as none."""
    carried: Any = snapshot.carry.get(PAIRS_KEY)
    names = [f"{name} {type_}" for name in _PAIR_TABLES for type_ in cluster.types]
    if not isinstance(carried, Mapping) or not set(names) <= carried.keys():
        return PairRounds.none(len(cluster.types))
    tables = [np.column_stack([carried[f"{name} {type_}"] for type_ in cluster.types]) for name in _PAIR_TABLES]
    (first, one), (second, two) = (
        _rows_of_ids(snapshot, carried[name], carried[f"{name}_arrival_s"]) for name in _PAIR_MEMBERS
    )
    there = one & two
    there[there] &= cluster.active[first[there]] & cluster.active[second[there]]
    share, received_s, deficit_s, *speeds = tables
    return PairRounds(first, second, share, received_s, deficit_s, np.stack(speeds, axis=2),
                    np.array(carried["runs"], np.bool_)).take(there)  # fmt: skip


def _rows_of_ids(snapshot: Snapshot, ids: list[int], arrived_s: list[float]) -> tuple[Int64s, Bools]:
    """The row of each of these jobs, and whether it is there."""
    jobs = snapshot.jobs
    if not len(jobs):
        return np.zeros(len(ids), np.int64), np.zeros(len(ids), np.bool_)
    order = np.argsort(jobs.job_id, kind="stable")
    row = order[np.minimum(np.searchsorted(jobs.job_id[order], ids), len(jobs) - 1)]
    return row, (jobs.job_id[row] == np.array(ids)) & (arrival_s(jobs)[row] == np.array(arrived_s))


def hosts(pairs: PairRounds, snapshot: Snapshot) -> Int64s:
    """Id of the job beside which each is to run in this round, -1 = it is on its own. (N,).

    Of a pair the one that runs already is the host, else the first.
    """
    jobs = snapshot.jobs
    found = np.full(len(jobs), -1, np.int64)
    one, other = pairs.first[pairs.runs], pairs.second[pairs.runs]
    swap = jobs.running[other] & ~jobs.running[one]
    host, guest = np.where(swap, other, one), np.where(swap, one, other)
    found[guest] = jobs.job_id[host]
    return found


def fill_types(
    pairs: PairRounds, pair_priority: Floats, share: Floats, priority: Floats, deficit_s: Floats, place: Int64s,
    cluster: HeterogeneousCluster, queues: Int64s, strict: bool = False,
) -> tuple[Int64s, Bools]:  # fmt: skip
    """Column of the type that each job runs on in a round, -1 = none (N,), and which pairs run (P,).

    One type after the other, jobs and pairs by priority, deficit and share there, highest first. Each job runs once. A
    job or pair that does not fit is skipped. Pairs without a share do not run. queues: (T,) columns in the order of
    filling types. place: (N,) of each job among equals. strict: jobs without a share on a type never run there; else
    they take what is left.
    """
    able = (cluster.speed > 0) & cluster.active[:, None]
    rows, columns = np.nonzero(able & (priority > 0) if strict else able)
    pair, type_ = np.nonzero((pairs.share > 0) & (pairs.speed > 0).all(axis=2))
    one, other = np.append(rows, pairs.first[pair]), np.append(rows, pairs.second[pair])
    columns = np.append(columns, type_)
    tables = ((share, pairs.share), (deficit_s, pairs.deficit_s), (priority, pair_priority))
    keys = [np.append(alone[rows, columns[: len(rows)]], both[pair, type_]) for alone, both in tables]
    order = np.lexsort((place[other], place[one], *(-key for key in keys), np.argsort(queues)[columns]))
    found, free_gpus = np.full(len(share), -1, np.int64), cluster.capacity.tolist()
    runs, gpus = np.zeros(len(pairs.first), np.bool_), cluster.gpus.tolist()
    for unit in order.tolist():
        a, b, column = one[unit], other[unit], columns[unit]
        if found[a] < 0 and found[b] < 0 and gpus[a] <= free_gpus[column]:
            found[[a, b]] = column
            free_gpus[column] -= gpus[a]
            if unit >= len(rows):
                runs[pair[unit - len(rows)]] = True
    return found, runs


# Rounds.

FIRST = 1e9  # priority over share of a pair that has received nothing
RESET_S = 1_920.0  # least time from one allocation to the next in the released code
_BY_TYPE = ("share", "received_s", "deficit_s")
_BY_JOB = ("on", "executed_s", "done_s")


@dataclass(frozen=True, slots=True)
class RoundRules:
    """When rounds and allocations begin, and who takes part.

    round_s: length of a round [s].
    reset_s: least time from one allocation to the next [s].
    strict: as in fill_types.
    early_s: a round is over so long before its end [s].
    newcomers_wait: jobs that came since the allocation wait for the next one, though they keep GPUs from others.
    first_reset_free: an allocation at time 0 does not hold off the next one.
    """

    round_s: float
    reset_s: float = RESET_S
    strict: bool = False
    early_s: float = 1e-6
    newcomers_wait: bool = False
    first_reset_free: bool = False


@dataclass(slots=True, eq=False)
class RoundState:
    """The state of rounds and allocation at the last look.

    share, received_s, deficit_s: (N, T), NaN for jobs not known.
    on: (N,) column of the type of this round, -1 none.
    executed_s: (N,) at the last look.
    done_s: (N,) run time made, in seconds of the reference type.
    worker_s: (T,) time received by all jobs since the reset.
    begun_s, reset_s: of round and allocation [Unix s], -inf = never.
    stale: jobs came or ended since the allocation.
    rounds: begun so far.
    pairs: of jobs that may share GPUs.
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
    pairs: PairRounds

    def carry(self, snapshot: Snapshot, cluster: HeterogeneousCluster) -> dict[str, Any]:
        """The book of the active jobs, for open_rounds to read."""
        rows = np.flatnonzero(cluster.active)
        made: dict[str, Any] = {
            "job_id": snapshot.jobs.job_id[rows].tolist(),
            "arrival_s": arrival_s(snapshot.jobs)[rows].tolist(),
            **{name: getattr(self, name)[rows].tolist() for name in _BY_JOB},
        }
        for name in _BY_TYPE:
            for column, type_ in enumerate(cluster.types):
                made[f"{name} {type_}"] = getattr(self, name)[rows, column].tolist()
        made |= self.pairs.carry(snapshot, cluster.types)
        worker = dict(zip(cluster.types, self.worker_s.tolist(), strict=True))
        return made | {"round": {"begun_s": self.begun_s, "reset_s": self.reset_s, "stale": self.stale,
                                 "worker_s": worker, "rounds": self.rounds}}  # fmt: skip


def open_rounds(snapshot: Snapshot, cluster: HeterogeneousCluster, round_s: float) -> RoundState:
    """The book as it stands now: what jobs have run since the last look is entered."""
    jobs, carry = snapshot.jobs, snapshot.carry
    by_type = [f"{name} {type_}" for name in _BY_TYPE for type_ in cluster.types]
    carried = recall(jobs, carry, (*_BY_JOB, *by_type))
    share, received_s, deficit_s = (
        np.column_stack([carried[f"{name} {type_}"] for type_ in cluster.types]) for name in _BY_TYPE
    )
    last: dict[str, Any] = dict(carry.get("round", {}))
    worker_s = np.array([last.get("worker_s", {}).get(type_, 0.0) for type_ in cluster.types])
    known = ~np.isnan(carried["on"])
    gone = table_of(carry, (*_BY_JOB, *by_type)).shape[1] > np.count_nonzero(known & cluster.active)
    book = RoundState(
        share, np.where(np.isnan(received_s), round_s / 2, received_s), np.nan_to_num(deficit_s),
        np.where(known, carried["on"], -1).astype(np.int64), jobs.executed_s, np.nan_to_num(carried["done_s"]),
        worker_s, float(last.get("begun_s", -np.inf)), float(last.get("reset_s", -np.inf)),
        bool(last.get("stale", True)) or bool(gone) or bool((cluster.active & np.isnan(share).any(axis=1)).any()),
        int(last.get("rounds", 0)), recall_pairs(snapshot, cluster),
    )  # fmt: skip
    _count_run_time(book, cluster, np.where(known, jobs.executed_s - np.nan_to_num(carried["executed_s"]), 0.0))
    book.on[~cluster.active] = -1
    return book


def _count_run_time(book: RoundState, cluster: HeterogeneousCluster, ran_s: Floats) -> None:
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
    book.done_s[rows] += ran_s[rows] * cluster.speed[rows, column]
    book.worker_s += np.bincount(column, ran_s[rows], len(cluster.types))


def round_is_over(book: RoundState, now_s: float, rules: RoundRules) -> bool:
    """Whether a new round begins: its time is over, or all its jobs have ended."""
    return now_s >= book.begun_s + rules.round_s - rules.early_s or not (book.on >= 0).any()


def fastest_first(cluster: HeterogeneousCluster) -> Int64s:
    """Columns by the mean speed of the active jobs there, highest first. (T,) int64."""
    mean = np.where(cluster.active[:, None], cluster.speed, 0.0).sum(axis=0)
    return np.lexsort((np.arange(len(mean)), -mean.round(9)))


def shuffled(cluster: HeterogeneousCluster, snapshot: Snapshot, rounds: int) -> Int64s:
    """Columns in an order of chance, another in each round. (T,) int64."""
    return np.random.default_rng((snapshot.seed, rounds)).permutation(len(cluster.types))


def begin_round(
    book: RoundState,
    snapshot: Snapshot,
    cluster: HeterogeneousCluster,
    rules: RoundRules,
    allocate: Callable[[], TimeShares],
    queues: Int64s,
) -> dict[str, Any]:
    """A new round: the allocation if it is due, then who runs on which type. What is to be remembered of the
    allocation, nothing without one. queues: as in fill_types."""
    now_s, carry = snapshot.now_s, dict[str, Any]()
    if book.stale and (now_s - book.reset_s >= rules.reset_s or (rules.first_reset_free and book.reset_s == 0)):
        _reset(book, now_s, rules.round_s)
        made, before = allocate(), book.pairs
        carry = dict(made.carry)
        book.share, book.pairs = made.share, PairRounds.none(len(cluster.types))
        if made.pairs is not None and made.shared is not None:
            book.pairs = PairRounds.of(made.pairs, made.shared, rules.round_s).owed(before)
        book.worker_s = book.received_s[cluster.active].sum(axis=0) + book.pairs.received_s.sum(axis=0)
        book.reset_s, book.stale = now_s, False
    book.begun_s, book.rounds = now_s, book.rounds + 1
    place = np.argsort(ordered(snapshot.jobs))
    share, priority = np.nan_to_num(book.share), priorities(book.share, book.received_s, book.worker_s)
    both = priorities(book.pairs.share, book.pairs.received_s, book.worker_s)
    book.on, book.pairs.runs = fill_types(book.pairs, both, share, priority, book.deficit_s, place, cluster,
                                                queues, rules.strict)  # fmt: skip
    if rules.newcomers_wait:
        book.on[np.isnan(book.share).any(axis=1)] = -1
    return carry


def _reset(book: RoundState, now_s: float, round_s: float) -> None:
    """What each pair should have received since the last allocation and has not becomes its deficit."""
    passed_s = now_s - book.reset_s
    if np.isfinite(passed_s):
        book.deficit_s = book.deficit_s + np.nan_to_num(book.share) * passed_s - (book.received_s - round_s / 2)
        pairs = book.pairs
        pairs.deficit_s = pairs.deficit_s + pairs.share * passed_s - (pairs.received_s - round_s / 2)
    book.received_s = np.full(book.received_s.shape, round_s / 2)


def priorities(share: Floats, received_s: Floats, worker_s: Floats) -> Floats:
    """Share over the fraction of the type's time received since the last reset, of jobs or of pairs.

    share, received_s: (U, T), NaN = no share. worker_s: (T,), see RoundState.
    """
    share = np.nan_to_num(share)
    fraction = np.divide(received_s, worker_s, out=np.zeros(share.shape),
                         where=np.broadcast_to(worker_s > 0, share.shape))  # fmt: skip
    return np.divide(share, fraction, out=share * FIRST, where=fraction > 0)


def round_ranking(
    book: RoundState,
    snapshot: Snapshot,
    cluster: HeterogeneousCluster,
    fill: bool,
    notes: tuple[str, ...] = (),
    *,
    shares: bool = False,
) -> Ranking:
    """Jobs of the round first, then the others by priority; without `fill` those wait for the next round.

    shares: whether two jobs may share GPUs; then the guest comes after all that have GPUs of their own.
    """
    jobs, in_round, share = snapshot.jobs, book.on >= 0, np.nan_to_num(book.share).sum(axis=1)
    best = priorities(book.share, book.received_s, book.worker_s).max(axis=1, initial=0.0)
    types = Labels.of([cluster.types[column] if column >= 0 else "" for column in book.on.tolist()])
    start_s = None if fill else np.where(in_round | ~cluster.active, -np.inf, np.inf)
    beside = hosts(book.pairs, snapshot) if shares else None
    guests = np.zeros(len(jobs), np.bool_) if beside is None else beside >= 0
    both = priorities(book.pairs.share, book.pairs.received_s, book.worker_s).max(axis=1, initial=0.0)
    for members in (book.pairs.first, book.pairs.second):
        np.maximum.at(best, members, both)
        np.add.at(share, members, book.pairs.share.sum(axis=1))
    why = {"in_round": in_round.astype(np.int64), "priority": best, "done_s": book.done_s}
    why |= {} if beside is None else {"beside": beside}
    changes = JobChanges(gpu_type=types, start_s=start_s, share=np.clip(share, 0.0, 1.0), beside=beside)
    return Ranking(ordered(jobs, ~in_round, guests, -best), why, book.carry(snapshot, cluster), notes, changes)


def round_end_s(ranking: Ranking, running: Bools, round_s: float, key: str = "round") -> float:
    """When the round ends [Unix s], infinity if no job runs in it.

    running: (N,) bool. round_s: length of a round [s]. key: of the entry of the carry that has when the round began.
    """
    return float(ranking.carry[key]["begun_s"]) + round_s if running.any() else math.inf

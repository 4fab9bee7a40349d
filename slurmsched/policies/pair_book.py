"""What Gavel's rounds know of pairs of jobs that may share GPUs, and who runs in a round when some do.

Kept in the carry under KEY, by pair and type: the share, the time received since the last reset, the deficit of
earlier resets, the speeds, and whether the pair runs in this round. Source: Narayanan et al. (Gavel), OSDI '20, and its
released code (c4fa400), in which a pair is one more entry of the rounds beside its two jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.policies.gpu_market import Market
from slurmsched.policies.order import arrival_s
from slurmsched.policies.pairs import Pairs

KEY = "shared"  # in the carry
_BY_TYPE = ("share", "received_s", "deficit_s", "speed_first", "speed_second")
_JOBS = ("first", "second")


@dataclass(slots=True, eq=False)
class PairBook:
    """first, second: (P,) rows of the jobs. share, received_s, deficit_s: (P, T). speed: (P, T, 2) of each beside the
    other. runs: (P,) bool, in this round."""

    first: Int64s
    second: Int64s
    share: Floats
    received_s: Floats
    deficit_s: Floats
    speed: Floats
    runs: Bools

    @classmethod
    def of(cls, pairs: Pairs, shared: Floats, round_s: float) -> PairBook:
        """The book after an allocation."""
        received_s = np.full(shared.shape, round_s / 2)
        return cls(pairs.first, pairs.second, shared, received_s, np.zeros(shared.shape), pairs.speed,
                   np.zeros(len(shared), np.bool_))  # fmt: skip

    @classmethod
    def none(cls, types: int) -> PairBook:
        """The book without pairs."""
        rows, empty = np.zeros(0, np.int64), np.zeros((0, types))
        return cls.of(Pairs(rows, rows, np.zeros((0, types, 2))), empty, 0.0)

    def owed(self, before: PairBook) -> PairBook:
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

    def take(self, kept: Bools) -> PairBook:
        """The pairs of a mask."""
        return PairBook(self.first[kept], self.second[kept], self.share[kept], self.received_s[kept],
                        self.deficit_s[kept], self.speed[kept], self.runs[kept])  # fmt: skip

    def carry(self, snapshot: Snapshot, types: tuple[str, ...]) -> dict[str, Any]:
        """The book for `recalled` to take back; nothing without pairs."""
        if not len(self.first):
            return {}
        jobs, arrived_s = snapshot.jobs, arrival_s(snapshot.jobs)
        made: dict[str, Any] = {"runs": self.runs.tolist()}
        for name in _JOBS:
            rows = getattr(self, name)
            made |= {name: jobs.job_id[rows].tolist(), f"{name}_arrival_s": arrived_s[rows].tolist()}
        tables = (self.share, self.received_s, self.deficit_s, self.speed[:, :, 0], self.speed[:, :, 1])
        for name, table in zip(_BY_TYPE, tables, strict=True):
            made |= {f"{name} {type_}": table[:, column].tolist() for column, type_ in enumerate(types)}
        return {KEY: made}


def recalled(snapshot: Snapshot, market: Market) -> PairBook:
    """The pairs of which both jobs are still active. A carry of other types is as good as none."""
    kept: Any = snapshot.carry.get(KEY)
    names = [f"{name} {type_}" for name in _BY_TYPE for type_ in market.types]
    if not isinstance(kept, Mapping) or not set(names) <= kept.keys():
        return PairBook.none(len(market.types))
    tables = [np.column_stack([kept[f"{name} {type_}"] for type_ in market.types]) for name in _BY_TYPE]
    (first, one), (second, two) = (_rows(snapshot, kept[name], kept[f"{name}_arrival_s"]) for name in _JOBS)
    there = one & two
    there[there] &= market.active[first[there]] & market.active[second[there]]
    share, received_s, deficit_s, *speeds = tables
    return PairBook(first, second, share, received_s, deficit_s, np.stack(speeds, axis=2),
                    np.array(kept["runs"], np.bool_)).take(there)  # fmt: skip


def _rows(snapshot: Snapshot, ids: list[int], arrived_s: list[float]) -> tuple[Int64s, Bools]:
    """The row of each of these jobs, and whether it is there."""
    jobs = snapshot.jobs
    if not len(jobs):
        return np.zeros(len(ids), np.int64), np.zeros(len(ids), np.bool_)
    order = np.argsort(jobs.job_id, kind="stable")
    row = order[np.minimum(np.searchsorted(jobs.job_id[order], ids), len(jobs) - 1)]
    return row, (jobs.job_id[row] == np.array(ids)) & (arrival_s(jobs)[row] == np.array(arrived_s))


def hosts(pairs: PairBook, snapshot: Snapshot) -> Int64s:
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


def chosen(
    pairs: PairBook, pair_priority: Floats, share: Floats, priority: Floats, deficit_s: Floats, place: Int64s,
    market: Market, queues: Int64s, strict: bool = False,
) -> tuple[Int64s, Bools]:  # fmt: skip
    """Column of the type that each job runs on in a round, -1 = none (N,), and which pairs run (P,).

    One type after the other, jobs and pairs by priority, deficit and share there, highest first; each job once, and
    whoever does not fit is passed over. Pairs without a share do not run. queues: (T,) columns in the order in which
    types are filled. place: (N,) of each job among equals. strict: jobs without a share on a type never run there; else
    they take what is left.
    """
    able = (market.speed > 0) & market.active[:, None]
    rows, columns = np.nonzero(able & (priority > 0) if strict else able)
    pair, type_ = np.nonzero((pairs.share > 0) & (pairs.speed > 0).all(axis=2))
    one, other = np.append(rows, pairs.first[pair]), np.append(rows, pairs.second[pair])
    columns = np.append(columns, type_)
    tables = ((share, pairs.share), (deficit_s, pairs.deficit_s), (priority, pair_priority))
    keys = [np.append(alone[rows, columns[: len(rows)]], both[pair, type_]) for alone, both in tables]
    order = np.lexsort((place[other], place[one], *(-key for key in keys), np.argsort(queues)[columns]))
    found, left = np.full(len(share), -1, np.int64), market.capacity.tolist()
    runs, gpus = np.zeros(len(pairs.first), np.bool_), market.gpus.tolist()
    for unit in order.tolist():
        a, b, column = one[unit], other[unit], columns[unit]
        if found[a] < 0 and found[b] < 0 and gpus[a] <= left[column]:
            found[[a, b]] = column
            left[column] -= gpus[a]
            if unit >= len(rows):
                runs[pair[unit - len(rows)]] = True
    return found, runs

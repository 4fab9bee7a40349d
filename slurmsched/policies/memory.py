"""Numbers a policy remembers about jobs from one quantum to the next, inside Ranking.carry.

A column each, which read as plain lists, so that a carry of thousands of jobs is read without a loop and
can be written as JSON. A job is known by its id and first submission: ids are used again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurmsched.model.columns import Floats
from slurmsched.model.jobs import Jobs
from slurmsched.policies.order import arrival_s


class Memory(Mapping[str, list[float]]):
    """Columns that read as plain lists; kept as one table so that `recall` need not build it anew.

    table: (C, K) float64, job ids and first submissions first, then the columns named.
    """

    def __init__(self, names: Sequence[str], table: Floats) -> None:
        self.names, self.table = ("job_id", "arrival_s", *names), table

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self.names:
            raise KeyError(name)
        column = self.table[self.names.index(name)]
        return (column.astype(np.int64) if name == "job_id" else column).tolist()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def recall(jobs: Jobs, carry: Mapping[str, Any], names: Sequence[str]) -> dict[str, Floats]:
    """The remembered columns by row of jobs. (N,) float64 each, NaN for a job not remembered.

    A carry that another policy left is as good as none.
    """
    table = _table(carry, names)
    if table is None or not table.shape[1] or not len(jobs):
        return {name: np.full(len(jobs), np.nan) for name in names}
    known = table[0]
    if not (known[1:] >= known[:-1]).all():
        table = table[:, np.argsort(known, kind="stable")]
        known = table[0]
    place = np.minimum(np.searchsorted(known, jobs.job_id), len(known) - 1)
    found = table[:, place]
    found[:, (found[0] != jobs.job_id) | (found[1] != arrival_s(jobs))] = np.nan
    return dict(zip(names, found[2:], strict=True))


def remember(jobs: Jobs, rows: NDArray[np.bool_], columns: Mapping[str, NDArray[Any]]) -> Memory:
    """The carry that `recall` reads: the given columns of the rows that are marked."""
    arrived_s = arrival_s(jobs)
    kept = np.flatnonzero(rows & ~np.isnan(arrived_s))
    table = np.array([column[kept] for column in (jobs.job_id, arrived_s, *columns.values())], np.float64)
    return Memory(tuple(columns), table)


def _table(carry: Mapping[str, Any], names: Sequence[str]) -> Floats | None:
    """The named columns of a carry, under job ids and first submissions; None if it lacks one."""
    wanted = ("job_id", "arrival_s", *names)
    if isinstance(carry, Memory) and carry.names == wanted:
        return carry.table
    if any(name not in carry for name in wanted):
        return None
    return np.array([np.asarray(carry[name], np.float64) for name in wanted])

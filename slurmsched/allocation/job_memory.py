"""Numbers that a policy remembers about jobs from one cycle to the next, inside Ranking.carry.

One column each, which reads as a plain list. So a carry of thousands of jobs is read without a loop, and can be written
as JSON. A job is identified by its id and first submission, because Slurm uses ids again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Floats
from slurmsched.model.jobs import Jobs
from slurmsched.model.ordering import arrival_s

NEVER_S = -1e18  # in a carry: no such time. No time that can be is near it, whatever clocks count from
ORIGIN = "origin_s"  # in a carry


def origin_s(snapshot: Snapshot) -> float:
    """When the policy first looked [Unix s], to be remembered as ORIGIN: its slots are counted from there.

    Slots counted from the zero of the clock would make a plan another one where all times are later by a constant.
    """
    carried = snapshot.carry.get(ORIGIN)
    return float(carried) if isinstance(carried, int | float) and carried <= snapshot.now_s else snapshot.now_s


class JobMemory(Mapping[str, list[float]]):
    """Columns that read as plain lists; kept as one table so that `table_of` does not build it again.

    table: (C, K) float64, job ids and first submissions first, then the columns named.
    ascending: job ids are known to ascend.
    """

    def __init__(self, names: Sequence[str], table: Floats, *, ascending: bool = False) -> None:
        self.names, self.table, self.ascending = ("job_id", "arrival_s", *names), table, ascending

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self.names:
            raise KeyError(name)
        column = self.table[self.names.index(name)]
        return (column.astype(np.int64) if name == "job_id" else column).tolist()

    def rows(self, names: Sequence[str]) -> Floats:
        """The table of the named columns, without rows if it lacks one."""
        if self.names == names:
            return self.table
        if not set(names) <= set(self.names):
            return np.empty((len(names), 0))
        return self.table[[self.names.index(name) for name in names]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def remembered(jobs: Jobs, columns: Mapping[str, Floats]) -> JobMemory:
    """Columns by row as a carry, of the jobs that are not over. columns: (N,) each, without NaN."""
    rows = np.flatnonzero(~jobs.finished)
    rows = rows[np.argsort(jobs.job_id[rows], kind="stable")]
    table = np.vstack([jobs.job_id, arrival_s(jobs), *columns.values()])
    return JobMemory(tuple(columns), table[:, rows])


def recall(jobs: Jobs, carry: Mapping[str, Any], names: Sequence[str]) -> dict[str, Floats]:
    """The remembered columns by row of jobs. (N,) float64 each, NaN for a job not remembered.

    A carry that another policy left is as good as none.
    """
    table = table_of(carry, names)
    if not table.shape[1] or not len(jobs):
        return {name: np.full(len(jobs), np.nan) for name in names}
    place = np.minimum(np.searchsorted(table[0], jobs.job_id), table.shape[1] - 1)
    found = table[:, place]
    found[:, (found[0] != jobs.job_id) | (found[1] != arrival_s(jobs))] = np.nan
    return dict(zip(names, found[2:], strict=True))


def table_of(carry: Mapping[str, Any], names: Sequence[str]) -> Floats:
    """Job ids, ascending, first submissions and the named columns of a carry. (2 + C, K) float64; K = 0: none."""
    wanted = ("job_id", "arrival_s", *names)
    if isinstance(carry, JobMemory):
        table = carry.rows(wanted)
    elif all(name in carry for name in wanted):
        table = np.array([np.asarray(carry[name], np.float64) for name in wanted])
    else:
        table = np.empty((len(wanted), 0))
    known = table[0]
    if getattr(carry, "ascending", False) or (known[1:] >= known[:-1]).all():
        return table
    return np.ascontiguousarray(table[:, np.argsort(known, kind="stable")])


def job_keys(jobs: Jobs) -> list[str]:
    """A name for each job that its id used again does not have."""
    pairs = zip(jobs.job_id.tolist(), arrival_s(jobs).tolist(), strict=True)
    return [f"{job_id}@{came_s:.0f}" for job_id, came_s in pairs]

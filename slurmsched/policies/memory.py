"""Numbers a policy remembers about jobs from one quantum to the next, inside Ranking.carry.

Kept as plain lists, a column each, so that a carry of thousands of jobs is read without a loop and
can be written as JSON. A job is known by its id and first submission: ids are used again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurmsched.model.columns import Floats
from slurmsched.model.jobs import Jobs
from slurmsched.policies.order import arrival_s


def recall(jobs: Jobs, carry: Mapping[str, Any], names: Sequence[str]) -> dict[str, Floats]:
    """The remembered columns by row of jobs. (N,) float64 each, NaN for a job not remembered.

    A carry that another policy left is as good as none.
    """
    columns = {name: np.full(len(jobs), np.nan) for name in names}
    if any(name not in carry for name in ("job_id", "arrival_s", *names)) or not carry["job_id"] or not len(jobs):
        return columns
    known = np.asarray(carry["job_id"], np.int64)
    by_id = np.argsort(known, kind="stable")
    place = by_id[np.minimum(np.searchsorted(known[by_id], jobs.job_id), len(known) - 1)]
    same = (known[place] == jobs.job_id) & (np.asarray(carry["arrival_s"], np.float64)[place] == arrival_s(jobs))
    for name in names:
        columns[name][same] = np.asarray(carry[name], np.float64)[place[same]]
    return columns


def remember(jobs: Jobs, rows: NDArray[np.bool_], columns: Mapping[str, NDArray[Any]]) -> dict[str, list[float]]:
    """The carry that `recall` reads: the given columns of the rows that are marked."""
    rows = rows & ~np.isnan(arrival_s(jobs))
    known = {"job_id": jobs.job_id, "arrival_s": arrival_s(jobs), **columns}
    return {name: column[rows].tolist() for name, column in known.items()}

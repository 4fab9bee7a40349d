"""The common part of every policy's order: ordered keys, then submission, then job id."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.jobs import Jobs


def arrival_s(jobs: Jobs) -> Floats:
    """First submission of each job [Unix s]: a requeue does not move it as it moves Slurm's. (N,)."""
    first_s = jobs.first_submit_s
    if first_s is jobs.submit_s:  # no requeue has moved any
        return first_s
    unknown = np.isnan(first_s)
    return np.where(unknown, jobs.submit_s, first_s) if unknown.any() else first_s


def ordered(jobs: Jobs, *keys: NDArray[Any]) -> Int64s:
    """Rows by the first key, ties by the next one, in the end by submission and job id.

    keys: (N,) each, least goes first, NaN goes last. (N,) int64.
    """
    arrived_s = arrival_s(jobs)
    if _ascending(arrived_s) and _ascending(jobs.job_id):  # rows are in that order already, and sorting is stable
        return np.lexsort(keys[::-1]) if keys else np.arange(len(jobs))
    return np.lexsort((jobs.job_id, arrived_s, *reversed(keys)))


def _ascending(values: NDArray[Any]) -> bool:
    return bool((values[1:] >= values[:-1]).all())

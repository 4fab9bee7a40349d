"""What every policy's order has in common: ordered keys, then submission, then job id."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurmsched.kernels.order import order_by
from slurmsched.model.columns import Floats, Int64s, sealed
from slurmsched.model.jobs import Jobs


def arrival_s(jobs: Jobs) -> Floats:
    """First submission of each job [Unix s]: a requeue does not move it as it moves Slurm's. (N,)."""
    first_s = jobs.first_submit_s
    unknown = np.isnan(first_s)
    return np.where(unknown, jobs.submit_s, first_s) if unknown.any() else first_s


def ordered(jobs: Jobs, *keys: NDArray[Any]) -> Int64s:
    """Rows by the first key, ties by the next one, in the end by submission and job id.

    keys: (N,) each, exact as float64, least goes first, NaN goes last. (N,) int64.
    """
    table = np.array(keys, np.float64) if keys else np.empty((0, len(jobs)))
    return sealed(order_by(jobs.job_id, arrival_s(jobs), table))

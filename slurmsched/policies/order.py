"""What every policy's order has in common: ordered keys, then submission, then job id."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.jobs import Jobs


def arrival_s(jobs: Jobs) -> Floats:
    """First submission of each job [Unix s]: a requeue does not move it as it moves Slurm's. (N,)."""
    return np.where(np.isnan(jobs.first_submit_s), jobs.submit_s, jobs.first_submit_s)


def ordered(jobs: Jobs, *keys: NDArray[Any]) -> Int64s:
    """Rows by the first key, ties by the next one, in the end by submission and job id.

    keys: (N,) each, least goes first, NaN goes last. (N,) int64.
    """
    return np.lexsort((jobs.job_id, arrival_s(jobs), *reversed(keys)))

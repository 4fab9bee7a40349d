"""Expected run time from the job's time limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.model import Estimates, Snapshot


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """The time limit, as Slurm's own backfill takes it. None for a job without a limit. Source: ours."""

    constant: ClassVar[bool] = True

    def estimate(self, snapshot: Snapshot) -> Estimates:
        limit_s = snapshot.jobs.time_limit_s
        limited = np.isfinite(limit_s)
        if limited.all():
            return Estimates(limit_s, source=np.zeros(len(limit_s), np.int8), sources=("time-limit", "none"))
        total_s = np.where(limited, limit_s, np.nan)
        return Estimates(total_s, source=np.where(limited, 0, 1).astype(np.int8), sources=("time-limit", "none"))

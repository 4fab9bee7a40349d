"""Expected run times that users state: the hint `dur=`, the time limit, or none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model import Estimates, Snapshot
from slurmsched.model.hints import hint_column


@dataclass(frozen=True, slots=True)
class NoEstimate:
    """No estimate for any job. As the `estimator` of another estimator it leaves jobs unknown. Source: slurmsched."""

    def estimate(self, snapshot: Snapshot) -> Estimates:
        rows = len(snapshot.jobs)
        return Estimates(np.full(rows, np.nan), np.zeros(rows, np.int8), sources=("none",))


# The time limit.


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """The time limit, as Slurm's own backfill uses it. None for a job without a limit. Source: slurmsched."""

    def estimate(self, snapshot: Snapshot) -> Estimates:
        limit_s = snapshot.jobs.time_limit_s
        limited = np.isfinite(limit_s)
        if limited.all():
            return Estimates(limit_s, source=np.zeros(len(limit_s), np.int8), sources=("time-limit", "none"))
        total_s = np.where(limited, limit_s, np.nan)
        return Estimates(total_s, source=np.where(limited, 0, 1).astype(np.int8), sources=("time-limit", "none"))


# The hint of the user.


@dataclass(frozen=True, slots=True)
class Hint:
    """The hint `dur=`; for a job without it its time limit; else none. Source: slurmsched."""

    def estimate(self, snapshot: Snapshot) -> Estimates:
        limit = TimeLimit().estimate(snapshot)
        if snapshot.jobs.comment.names in ((), ("",)):
            return Estimates(limit.total_s, limit.source + np.int8(1), sources=("hint", *limit.sources))
        hinted_s = hint_column(snapshot.jobs, "dur_s")
        hinted = ~np.isnan(hinted_s)
        source = np.where(hinted, 0, limit.source + 1).astype(np.int8)
        return Estimates(np.where(hinted, hinted_s, limit.total_s), source, sources=("hint", *limit.sources))

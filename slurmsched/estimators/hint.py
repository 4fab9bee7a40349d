"""Expected run time from the user's own hint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.estimators.time_limit import TimeLimit
from slurmsched.model import Estimates, Snapshot
from slurmsched.model.hints import hint_column


@dataclass(frozen=True, slots=True)
class Hint:
    """The hint `dur=`; for a job without one its time limit; without that none. Source: ours."""

    constant: ClassVar[bool] = True

    def estimate(self, snapshot: Snapshot) -> Estimates:
        limit = TimeLimit().estimate(snapshot)
        if snapshot.jobs.comment.names in ((), ("",)):
            return Estimates(limit.total_s, limit.source + np.int8(1), sources=("hint", *limit.sources))
        hinted_s = hint_column(snapshot.jobs, "dur_s")
        hinted = ~np.isnan(hinted_s)
        source = np.where(hinted, 0, limit.source + 1).astype(np.int8)
        return Estimates(np.where(hinted, hinted_s, limit.total_s), source, sources=("hint", *limit.sources))

"""No estimate at all: the end of a chain of estimators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model import Estimates, Snapshot


@dataclass(frozen=True, slots=True)
class Nothing:
    """No estimate for any job; as the `estimator` of another one it leaves jobs unknown. Source: ours."""

    def estimate(self, snapshot: Snapshot) -> Estimates:
        rows = len(snapshot.jobs)
        return Estimates(np.full(rows, np.nan), np.zeros(rows, np.int8), sources=("none",))

"""What estimates mean to a policy that orders by them."""

from __future__ import annotations

import numpy as np

from slurmsched.model import Jobs, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.protocols import Estimator


def known_or_last(values: Floats) -> Floats:
    """values with infinity where there is none (NaN), so that such jobs come last. (N,)."""
    return np.where(np.isnan(values), np.inf, values)


def service(run_s: Floats, jobs: Jobs) -> Floats:
    """Run time [s] times GPUs [GPU s]; infinity stays infinity, without GPUs too. (N,)."""
    known = np.where(np.isinf(run_s), 0.0, run_s)
    return np.where(np.isinf(run_s), np.inf, known * jobs.gpus)


def remaining_s(estimator: Estimator, snapshot: Snapshot) -> Floats:
    """Expected run time still to come [s]: the estimate less what ran, at least 0. (N,), infinity if unknown.

    A job that ran longer than expected counts as about to end, as in Tiresias's simulator.
    """
    total_s = known_or_last(estimator.estimate(snapshot).total_s)
    return np.maximum(total_s - snapshot.jobs.executed_s, 0.0)

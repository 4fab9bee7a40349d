"""Run time still to come of jobs whose progress is counted on a reference type."""

from __future__ import annotations

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Floats
from slurmsched.model.hints import hint_column
from slurmsched.protocols import Estimator
from slurmsched.words import some

UNKNOWN_S = 3_600.0  # of a job whose run time nobody knows


def left_s(estimator: Estimator, snapshot: Snapshot, done_s: Floats) -> tuple[Floats, tuple[str, ...]]:
    """Run time still to come on the reference type (N,), at least 1 s, and what is said of jobs of unknown length.

    done_s: (N,) run time made, in seconds of the reference type. The hint `progress` counts before it.
    """
    total_s = estimator.estimate(snapshot).total_s
    unknown = ~np.isfinite(total_s)
    progress = hint_column(snapshot.jobs, "progress")
    total_s = np.where(unknown, done_s + UNKNOWN_S, total_s)
    to_come_s = np.where(np.isnan(progress), total_s - done_s, (1 - progress) * total_s)
    note = f"no expected run time, counted as {UNKNOWN_S:g} s from the end: {some(int(unknown.sum()), 'job')}"
    return np.maximum(to_come_s, 1.0), (note,) if unknown.any() else ()

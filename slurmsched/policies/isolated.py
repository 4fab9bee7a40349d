"""How long a job would take alone on its fair part of the cluster: what finish-time fairness measures against."""

from __future__ import annotations

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Floats
from slurmsched.model.states import FINISHED


def contending(snapshot: Snapshot) -> Bools:
    """Jobs that hold GPUs or wait for some: among these the cluster is divided. (N,) bool."""
    jobs = snapshot.jobs
    return (jobs.pending | jobs.running) & ~jobs.is_state(FINISHED) & (jobs.gpus > 0)


def stretch(snapshot: Snapshot) -> Floats:
    """How many times longer each job runs on 1/N of the GPUs, N jobs contending, than on all it asks for. (N,) >= 1.

    A gang larger than its part is taken to hold its GPUs for the part of the time that it pays for.
    Source: Mahajan et al. (Themis), NSDI '20, for 1/N; Narayanan et al. (Gavel), OSDI '20, for
    gangs in turns.
    """
    gpus = float(snapshot.nodes.gpus[~snapshot.nodes.down].sum())
    count = int(contending(snapshot).sum())
    return np.maximum(snapshot.jobs.gpus * count / gpus, 1.0) if gpus else np.ones(len(snapshot.jobs))

"""How long jobs take here and how long they would take on their own part of the cluster: finish-time fairness.

Source: Mahajan et al. (Themis), NSDI '20; Narayanan et al. (Gavel), OSDI '20, for shares of the least rho.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Floats
from slurmsched.policies.isolated import contending, stretch
from slurmsched.policies.memory import recall
from slurmsched.policies.solve import least

_ISOLATED = ("isolated_s", "executed_s", "stretch")  # in a carry, by job


@dataclass(frozen=True, slots=True)
class Times:
    """By row of jobs, (N,) [s]. elapsed_s: since submission. left_s: run time still to come. isolated_s: whole time on
    1/N of the cluster."""

    elapsed_s: Floats
    left_s: Floats
    isolated_s: Floats

    @property
    def rho(self) -> Floats:
        """Shared time over isolated time if the job ran from now on. (N,)."""
        return (self.elapsed_s + self.left_s) / np.maximum(self.isolated_s, 1e-9)


def isolated_columns(snapshot: Snapshot) -> dict[str, Floats]:
    """Isolated time of the work done so far, counted with the N of each look, and what to remember. (N,) each."""
    jobs, known, now = snapshot.jobs, recall(snapshot.jobs, snapshot.carry, _ISOLATED), stretch(snapshot)
    new = np.isnan(known["isolated_s"])
    done_s = jobs.executed_s - np.where(new, 0.0, known["executed_s"])
    isolated_s = np.where(new, 0.0, known["isolated_s"]) + done_s * np.where(new, now, known["stretch"])
    return dict(zip(_ISOLATED, (isolated_s, jobs.executed_s, now), strict=True))


def least_worst_shares(snapshot: Snapshot, times: Times) -> Floats:
    """Shares of time at which the largest rho of those that contend is least, by bisection. (N,) in [0, 1]."""
    gpus = snapshot.jobs.gpus.astype(np.float64)
    who, capacity = contending(snapshot), float(snapshot.nodes.gpus[~snapshot.nodes.down].sum())

    def shares(rho: float) -> Floats:
        spare_s = rho * times.isolated_s - times.elapsed_s
        return np.where(who, np.divide(times.left_s, spare_s, out=np.full(len(gpus), 2.0), where=spare_s > 0), 0.0)

    def feasible(rho: float) -> bool:
        found = shares(rho)
        return bool((found <= 1.0).all() and found @ gpus <= capacity)

    high = max(float(np.max(times.rho, initial=0.0, where=who)), 1e-6)
    for _ in range(64):
        if feasible(high):
            return np.minimum(shares(least(feasible, 0.0, high)), 1.0)
        high *= 2
    return who.astype(np.float64)

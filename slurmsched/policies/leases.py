"""Leases: a job that got GPUs keeps them for a while, then contends for them again.

A lease begins with the run. When it is over the job contends; if it is among those chosen then, it has another one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.placements.candidates import eligible
from slurmsched.policies.memory import NEVER_S, recall
from slurmsched.resources.held import holding

LONG_AGO_S = NEVER_S / 2  # start of a run of which Slurm does not say when it began: its lease is over
COLUMNS = ("run_s", "until_s")  # in a carry: start of the run that the lease is of, and its end


@dataclass(frozen=True, slots=True, eq=False)
class Leases:
    """By row of jobs. run_s: (N,) start of the run, NEVER_S for a job that holds no GPUs. until_s: (N,) end of its
    lease [Unix s], NEVER_S without one. held: (N,) bool, the lease is not over.
    """

    run_s: Floats
    until_s: Floats
    held: Bools
    now_s: float
    lease_s: float

    def renewed(self, chosen: Bools, part: Floats | float = 1.0) -> dict[str, Floats]:
        """The columns to remember when these jobs are to hold GPUs from now on. chosen: (N,) bool.

        part: (N,) of a whole lease that a chosen job gets.
        """
        anew = chosen & ~self.held & (self.run_s > NEVER_S)
        return {"run_s": self.run_s, "until_s": np.where(anew, self.now_s + part * self.lease_s, self.until_s)}

    def next_end_s(self, remembered: dict[str, Floats], running: Bools) -> float:
        """When the next lease ends of those that hold GPUs from now on [Unix s], infinity if none does."""
        until_s = np.where(self.run_s > NEVER_S, remembered["until_s"], self.now_s + self.lease_s)[running]
        return float(np.min(until_s, initial=np.inf, where=until_s > self.now_s))


def leases(snapshot: Snapshot, lease_s: float) -> Leases:
    """The leases as they stand at now_s."""
    jobs, known = snapshot.jobs, recall(snapshot.jobs, snapshot.carry, COLUMNS)
    holds = holding(jobs)
    run_s = np.where(holds, np.where(np.isnan(jobs.start_s), LONG_AGO_S, jobs.start_s), NEVER_S)
    same = holds & (known["run_s"] == run_s)
    until_s = np.where(same, known["until_s"], np.where(holds, run_s + lease_s, NEVER_S))
    return Leases(run_s, until_s, holds & (until_s > snapshot.now_s), snapshot.now_s, lease_s)


def contenders(snapshot: Snapshot, standing: Leases) -> Bools:
    """Jobs that may get GPUs at this look: those that wait, and those whose lease is over. (N,) bool."""
    return (eligible(snapshot) | (standing.run_s > NEVER_S)) & ~standing.held


def chosen(snapshot: Snapshot, order: Int64s, may: Bools, sizes: Int64s | None = None) -> Bools:
    """Who gets GPUs when they are counted out in this order, whoever finds too few left being passed over. (N,) bool.

    may: (N,) bool, who is counted at all. sizes: (N,) GPUs of each, None = what it asks for.
    """
    left = int(snapshot.nodes.gpus[~snapshot.nodes.down].sum())
    gpus = (snapshot.jobs.gpus if sizes is None else sizes).tolist()
    given = np.zeros(len(snapshot.jobs), np.bool_)
    for row in order[may[order]].tolist():
        if gpus[row] <= left:
            given[row], left = True, left - gpus[row]
        if not left:
            break
    return given

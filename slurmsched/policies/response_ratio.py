"""Highest response ratio next."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from slurmsched.allocation.job_times import known_or_last
from slurmsched.estimators.requested_time import Hint
from slurmsched.model import Jobs, PolicyFamily, PolicyInfo, PolicyInput, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats
from slurmsched.model.ordering import arrival_s, ordered
from slurmsched.model.parameters import Part, check_ranges
from slurmsched.protocols import Estimator

SHORTEST_S = 60.0  # a shorter run counts as this long: below it the ratio says more of the estimate than of the job


@dataclass(frozen=True, slots=True)
class ResponseRatio:
    """The job that has waited most for its length goes first: waiting time over expected run time.

    Short jobs go before long ones, and every job is first in the end: a job of an hour after hours, one of a day after
    days. Running jobs are not preempted. Jobs without an estimate go last, in FIFO order.

    gpus_power: the ratio counts times the job's GPUs to this power. 0 = GPUs do not matter. 0.33 = as in WFP3, so that
        large jobs come to the front sooner.
    estimator: where expected run times come from.
    Source: Brinch Hansen, IFIP Congress 1971; gpus_power: Tang et al., Cluster 2009 (WFP3).
    """

    preemptive: ClassVar[bool] = False
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.DURATION,
        "Brinch Hansen: An analysis of response ratio scheduling, IFIP Congress 1971",
        needs=(PolicyInput.DURATION,),
        criteria={"run_s": "runs {}"},
    )

    gpus_power: Part = 0.0
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, run_s = snapshot.jobs, known_or_last(self.estimator.estimate(snapshot).total_s)
        wait_s = _waited_s(snapshot)
        ratio = (wait_s + SHORTEST_S) * self._growth(jobs, run_s)
        return Ranking(ordered(jobs, -ratio), why={"response_ratio": ratio, "waited_s": wait_s, "run_s": run_s})

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When another waiting job passes the foremost one [Unix s]: its ratio is lower now, but grows faster."""
        waits = ranking.order[(snapshot.jobs.pending & ~running)[ranking.order]]
        if len(waits) < 2:
            return math.inf
        ratio, grows = ranking.why["response_ratio"], self._growth(snapshot.jobs, ranking.why["run_s"])
        behind, faster = ratio[waits[0]] - ratio[waits[1:]], grows[waits[1:]] - grows[waits[0]]
        ahead_s = np.divide(behind, faster, out=np.full(len(behind), np.inf), where=faster > 0)
        return snapshot.now_s + float(ahead_s.min()) + 1.0

    def _growth(self, jobs: Jobs, run_s: Floats) -> Floats:
        """The growth of each job's ratio per second of waiting. (N,)."""
        grows: Floats = np.maximum(jobs.gpus, 1) ** self.gpus_power / np.maximum(run_s, SHORTEST_S)
        return grows


def _waited_s(snapshot: Snapshot) -> Floats:
    """Time since a job could have started, for one that runs until it did [s]. (N,)."""
    jobs = snapshot.jobs
    since_s = np.where(np.isnan(jobs.eligible_s), arrival_s(jobs), np.fmax(jobs.eligible_s, arrival_s(jobs)))
    until_s = np.where(jobs.pending | np.isnan(jobs.start_s), snapshot.now_s, jobs.start_s)
    return np.maximum(until_s - since_s, 0.0)

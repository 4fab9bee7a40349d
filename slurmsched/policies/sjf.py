"""Shortest job first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from slurmsched.allocation.job_times import known_or_last
from slurmsched.estimators.requested_time import Hint
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, Ranking, Snapshot
from slurmsched.model.ordering import ordered
from slurmsched.protocols import Estimator


@dataclass(frozen=True, slots=True)
class Sjf:
    """Shortest expected run time first. Running jobs are not stopped.

    The key is the whole run time, not the GPUs: the Tiresias simulator's "sjf" is fewest GPUs first. Jobs without an
    estimate come last, in FIFO order.
    estimator: source of expected run times.
    Source: Conway, Maxwell and Miller, Theory of Scheduling (1967), chapter 3.
    """

    preemptive: ClassVar[bool] = False
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.BASELINE,
        "Conway, Maxwell, Miller: Theory of Scheduling, 1967",
        needs=(PolicyInput.DURATION,),
        criteria={"run_s": "runs {}"},
    )

    estimator: Estimator = field(default_factory=Hint)

    def rank(self, snapshot: Snapshot) -> Ranking:
        run_s = known_or_last(self.estimator.estimate(snapshot).total_s)
        return Ranking(ordered(snapshot.jobs, run_s), why={"run_s": run_s})

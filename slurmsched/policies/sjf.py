"""Shortest job first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from slurmsched.estimators.hint import Hint
from slurmsched.model import Card, Family, Input, Ranking, Snapshot
from slurmsched.policies.expected import known_or_last
from slurmsched.policies.order import ordered
from slurmsched.protocols import Estimator


@dataclass(frozen=True, slots=True)
class Sjf:
    """Shortest expected run time first; running jobs are left alone.

    estimator: where expected run times come from. Jobs without an estimate come last, in FIFO order.
    The key is the whole run time, not the GPUs: the Tiresias simulator's "sjf" is fewest GPUs first.
    Source: Conway, Maxwell and Miller, Theory of Scheduling (1967), chapter 3.
    """

    preemptive: ClassVar[bool] = False
    card: ClassVar[Card] = Card(
        Family.BASELINE,
        "Conway, Maxwell, Miller: Theory of Scheduling, 1967",
        needs=(Input.DURATION,),
    )

    estimator: Estimator = field(default_factory=Hint)

    def rank(self, snapshot: Snapshot) -> Ranking:
        run_s = known_or_last(self.estimator.estimate(snapshot).total_s)
        return Ranking(ordered(snapshot.jobs, run_s), why={"run_s": run_s})

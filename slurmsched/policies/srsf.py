"""Shortest remaining service first."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from slurmsched.estimators.hint import Hint
from slurmsched.model import Card, Family, Input, Ranking, Snapshot, Use
from slurmsched.model.columns import Bools
from slurmsched.policies.cards import PREEMPTS
from slurmsched.policies.expected import remaining_s, service
from slurmsched.policies.order import ordered
from slurmsched.protocols import Estimator


@dataclass(frozen=True, slots=True)
class Srsf:
    """Least remaining service [GPU s] first: remaining run time times GPUs, running jobs included.

    estimator: where expected run times come from. Jobs without an estimate come last, in FIFO order.
    Source: the SRSF of Gu et al. (Tiresias), NSDI '19, section 3.1.
    """

    preemptive: ClassVar[bool] = True
    unpassed_gpu_s: ClassVar[float] = math.inf
    card: ClassVar[Card] = Card(
        Family.SERVICE,
        "Gu et al.: Tiresias, NSDI 2019",
        needs=(Input.DURATION, Input.SERVICE),
        uses=(Use.ORDER, Use.REQUEUE),
        on_slurm=(PREEMPTS,),
    )

    estimator: Estimator = field(default_factory=Hint)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs = snapshot.jobs
        left_s = remaining_s(self.estimator, snapshot)
        left_gpu_s = service(left_s, jobs)
        return Ranking(ordered(jobs, left_gpu_s), why={"remaining_gpu_s": left_gpu_s, "remaining_s": left_s})

    def next_swap_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """Never: what is left shrinks only where it runs."""
        return math.inf

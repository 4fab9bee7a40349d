"""Shortest remaining time first."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from slurmsched.estimators.hint import Hint
from slurmsched.model import Card, Family, Input, Ranking, Snapshot, Use
from slurmsched.model.columns import Bools
from slurmsched.policies.cards import PREEMPTS
from slurmsched.policies.expected import remaining_s
from slurmsched.policies.order import ordered
from slurmsched.protocols import Estimator


@dataclass(frozen=True, slots=True)
class Srtf:
    """Shortest remaining run time first, running jobs included.

    estimator: where expected run times come from. Jobs without an estimate come last, in FIFO order.
    Source: Schrage, Operations Research 16(3), 1968; the SRTF of Gu et al. (Tiresias), NSDI '19, section 2.2.
    """

    preemptive: ClassVar[bool] = True
    unpassed_gpu_s: ClassVar[float] = math.inf
    card: ClassVar[Card] = Card(
        Family.BASELINE,
        "Schrage: shortest remaining processing time, Operations Research, 1968",
        needs=(Input.DURATION,),
        uses=(Use.ORDER, Use.REQUEUE),
        on_slurm=(PREEMPTS,),
    )

    estimator: Estimator = field(default_factory=Hint)

    def rank(self, snapshot: Snapshot) -> Ranking:
        left_s = remaining_s(self.estimator, snapshot)
        return Ranking(ordered(snapshot.jobs, left_s), why={"remaining_s": left_s})

    def next_swap_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """Never: what is left shrinks only where it runs."""
        return math.inf

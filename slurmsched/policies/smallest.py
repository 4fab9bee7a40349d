"""Smallest job first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from slurmsched.model import Card, Family, Ranking, Snapshot, Use
from slurmsched.model.columns import Bools
from slurmsched.policies.cards import PREEMPTS
from slurmsched.policies.order import ordered


@dataclass(frozen=True, slots=True)
class Smallest:
    """Fewest GPUs first, whatever the job has run or will run; running jobs included.

    Source: the preemptive smallest number of processes first of Majumdar, Eager and Bunt, SIGMETRICS 1988; "sjf" of the
    Tiresias simulator.
    """

    preemptive: ClassVar[bool] = True
    unpassed_gpu_s: ClassVar[float] = math.inf
    card: ClassVar[Card] = Card(
        Family.BASELINE,
        "Majumdar, Eager, Bunt: Scheduling in multiprogrammed parallel systems, SIGMETRICS 1988",
        uses=(Use.ORDER, Use.REQUEUE),
        on_slurm=(PREEMPTS,),
    )

    def rank(self, snapshot: Snapshot) -> Ranking:
        gpus = snapshot.jobs.gpus
        return Ranking(ordered(snapshot.jobs, gpus), why={"gpus": gpus})

    def next_swap_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """Never: its GPUs do not change."""
        return math.inf

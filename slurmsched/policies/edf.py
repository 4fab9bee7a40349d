"""Earliest deadline first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.model import Card, Family, Input, Ranking, Snapshot, Use
from slurmsched.model.columns import Bools
from slurmsched.policies.cards import PREEMPTS
from slurmsched.policies.deadlines import active, deadline_s
from slurmsched.policies.order import ordered
from slurmsched.words import some_of


@dataclass(frozen=True, slots=True)
class Edf:
    """Earliest deadline first, running jobs included. Jobs without a deadline come last, in FIFO order.

    The baseline of every policy with deadlines. It needs no run times, and so promises nothing: a job that is late
    keeps its place, and where there is too much work it makes others late as well.
    Source: Liu and Layland, Journal of the ACM 20(1), 1973.
    """

    preemptive: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        Family.BASELINE,
        "Liu and Layland: Scheduling Algorithms for Multiprogramming, Journal of the ACM, 1973",
        needs=(Input.DEADLINE,),
        uses=(Use.ORDER, Use.REQUEUE),
        on_slurm=(PREEMPTS,),
    )

    def rank(self, snapshot: Snapshot) -> Ranking:
        due_s, who = deadline_s(snapshot.jobs), active(snapshot)
        free = int((who & np.isinf(due_s)).sum())
        notes = (f"{some_of(free, int(who.sum()), 'job', 'tells', 'tell')} no deadline: last",) if free else ()
        return Ranking(ordered(snapshot.jobs, due_s), why={"deadline_s": due_s}, notes=notes)

    def next_swap_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """Never: a deadline does not move."""
        return math.inf

"""Earliest deadline first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.allocation.job_times import active, deadline_s
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.ordering import ordered
from slurmsched.model.policy_info import NEEDS_PREEMPTION
from slurmsched.plain_text import pluralize_of


@dataclass(frozen=True, slots=True)
class Edf:
    """Earliest deadline first, running jobs included. Jobs without a deadline come last, in FIFO order.

    It is the baseline of the policies with deadlines. It needs no run times and promises nothing: a late job keeps its
    place, so in overload it makes other jobs late as well.
    Source: Liu and Layland, Journal of the ACM 20(1), 1973.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.BASELINE,
        "Liu and Layland: Scheduling Algorithms for Multiprogramming, Journal of the ACM, 1973",
        needs=(PolicyInput.DEADLINE,),
        uses=(PolicyLever.ORDER, PolicyLever.REQUEUE),
        on_slurm=(NEEDS_PREEMPTION,),
        criteria={"deadline_s": "deadline {at}"},
    )

    def rank(self, snapshot: Snapshot) -> Ranking:
        due_s, who = deadline_s(snapshot.jobs), active(snapshot)
        free = int((who & np.isinf(due_s)).sum())
        notes = (f"{pluralize_of(free, int(who.sum()), 'job', 'has', 'have')} no deadline: last",) if free else ()
        return Ranking(ordered(snapshot.jobs, due_s), why={"deadline_s": due_s}, notes=notes)

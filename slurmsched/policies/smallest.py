"""Smallest job first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from slurmsched.model import PolicyFamily, PolicyInfo, PolicyLever, Ranking, Snapshot
from slurmsched.model.ordering import ordered
from slurmsched.model.policy_info import NEEDS_PREEMPTION


@dataclass(frozen=True, slots=True)
class Smallest:
    """Fewest GPUs first, whatever the run time; running jobs included.

    Source: the preemptive smallest number of processes first of Majumdar, Eager and Bunt, SIGMETRICS 1988; "sjf" of the
    Tiresias simulator.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.BASELINE,
        "Majumdar, Eager, Bunt: Scheduling in multiprogrammed parallel systems, SIGMETRICS 1988",
        uses=(PolicyLever.ORDER, PolicyLever.REQUEUE),
        on_slurm=(NEEDS_PREEMPTION,),
        criteria={"gpus": "asks for {} GPUs"},
    )

    def rank(self, snapshot: Snapshot) -> Ranking:
        gpus = snapshot.jobs.gpus
        return Ranking(ordered(snapshot.jobs, gpus), why={"gpus": gpus})

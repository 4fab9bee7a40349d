"""Shortest remaining time first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from slurmsched.allocation.job_times import expected_remaining_s
from slurmsched.estimators.requested_time import Hint
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.ordering import ordered
from slurmsched.model.policy_info import NEEDS_PREEMPTION
from slurmsched.protocols import Estimator


@dataclass(frozen=True, slots=True)
class Srtf:
    """Shortest remaining run time first, running jobs included.

    Jobs without an estimate come last, in FIFO order.
    estimator: source of expected run times.
    Source: Schrage, Operations Research 16(3), 1968; the SRTF of Gu et al. (Tiresias), NSDI '19, section 2.2.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.BASELINE,
        "Schrage: shortest remaining processing time, Operations Research, 1968",
        needs=(PolicyInput.DURATION,),
        uses=(PolicyLever.ORDER, PolicyLever.REQUEUE),
        on_slurm=(NEEDS_PREEMPTION,),
        criteria={"remaining_s": "{} of run time to go"},
    )

    estimator: Estimator = field(default_factory=Hint)

    def rank(self, snapshot: Snapshot) -> Ranking:
        remaining_s = expected_remaining_s(self.estimator, snapshot)
        return Ranking(ordered(snapshot.jobs, remaining_s), why={"remaining_s": remaining_s})

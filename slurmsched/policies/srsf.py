"""Shortest remaining service first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from slurmsched.allocation.job_times import expected_remaining_s, service
from slurmsched.estimators.requested_time import Hint
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.ordering import ordered
from slurmsched.model.policy_info import NEEDS_PREEMPTION
from slurmsched.protocols import Estimator


@dataclass(frozen=True, slots=True)
class Srsf:
    """Least remaining service [GPU s] first: remaining run time times GPUs, running jobs included.

    Jobs without an estimate come last, in FIFO order.
    estimator: source of expected run times.
    Source: the SRSF of Gu et al. (Tiresias), NSDI '19, section 3.1.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.SERVICE,
        "Gu et al.: Tiresias, NSDI 2019",
        needs=(PolicyInput.DURATION, PolicyInput.SERVICE),
        uses=(PolicyLever.ORDER, PolicyLever.REQUEUE),
        on_slurm=(NEEDS_PREEMPTION,),
        criteria={"remaining_gpu_s": "has {} to go", "remaining_s": "{} of run time to go"},
    )

    estimator: Estimator = field(default_factory=Hint)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs = snapshot.jobs
        remaining_s = expected_remaining_s(self.estimator, snapshot)
        remaining_gpu_s = service(remaining_s, jobs)
        return Ranking(
            ordered(jobs, remaining_gpu_s), why={"remaining_gpu_s": remaining_gpu_s, "remaining_s": remaining_s}
        )

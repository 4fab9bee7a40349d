"""Least attained service, continuous."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools
from slurmsched.model.ordering import ordered
from slurmsched.model.parameters import GpuSeconds, check_choice, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION


@dataclass(frozen=True, slots=True)
class Las:
    """Least attained service first: nothing has to be known about a job except its attained service.

    dimension: "2d" counts GPU seconds, "1d" seconds of run time.
    quantum_gpu_s: service is rounded down to multiples of it, [GPU s] in 2d and [s] in 1d. Jobs within one multiple
        keep FIFO order, so that two equal jobs do not preempt each other in every cycle. 0: exact, as in the papers.
        The default of ten GPU hours is ours: a quantum of 60 GPU s causes tens of thousands of preemptions for a few
        hundred jobs.
    Raises ConfigError for another dimension or a negative quantum.
    Source: Gu et al. (Tiresias), NSDI '19, section 3.2.1 (2D-LAS); Nuyens and Wierman, 2008 (1D).
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.SERVICE,
        "Gu et al.: Tiresias, NSDI 2019",
        left_out=("Keeping models with skewed tensors on few nodes: the placement does this, by the hint `topo`.",),
        needs=(PolicyInput.SERVICE,),
        uses=(PolicyLever.ORDER, PolicyLever.REQUEUE),
        on_slurm=(NEEDS_PREEMPTION,),
        criteria={"attained_gpu_s": "used {}", "service_gpu_s": "used {}", "service_s": "ran {}"},
    )

    dimension: str = "2d"
    quantum_gpu_s: GpuSeconds = 36_000.0

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choice("dimension", self.dimension, ("1d", "2d"))

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs = snapshot.jobs
        name, service = (
            ("attained_gpu_s", jobs.attained_gpu_s) if self.dimension == "2d" else ("executed_s", jobs.executed_s)
        )
        counted = np.floor(service / self.quantum_gpu_s) * self.quantum_gpu_s if self.quantum_gpu_s else service
        return Ranking(ordered(jobs, counted), why={name: service, "counted": counted})

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When a running job's service next reaches a multiple of the quantum [Unix s]; the next instant if exact."""
        jobs, counted = snapshot.jobs, ranking.why["counted"]
        if not self.quantum_gpu_s:
            return snapshot.now_s if running.any() else math.inf
        service, pace = (jobs.attained_gpu_s, jobs.gpus) if self.dimension == "2d" else (jobs.executed_s, 1)
        until = counted + self.quantum_gpu_s - service
        return snapshot.now_s + float(np.min(until / np.maximum(pace, 1), where=running, initial=math.inf))

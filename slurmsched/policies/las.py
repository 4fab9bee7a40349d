"""Least attained service, continuous."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.model import Card, Family, Input, Ranking, Snapshot, Use
from slurmsched.model.columns import Bools
from slurmsched.policies.cards import PREEMPTS
from slurmsched.policies.checks import check_choice
from slurmsched.policies.order import ordered
from slurmsched.policies.ranges import GpuSeconds, check_ranges


@dataclass(frozen=True, slots=True)
class Las:
    """Least attained service first: nothing need be known about a job but what it has had.

    dimension: "2d" counts GPU seconds, "1d" seconds of run time.
    quantum_gpu_s: service is rounded down to multiples of it, [GPU s] in 2d and [s] in 1d; jobs within one
    multiple keep FIFO order, so that two equal jobs do not pass each other at every cycle. 0: exact, as in the papers.
    Ten GPU hours by default (ours): a quantum of 60 GPU s stops jobs tens of thousands of times on traces of a few
    hundred jobs.
    Raises ConfigError for another dimension or a negative quantum.
    Source: Gu et al. (Tiresias), NSDI '19, section 3.2.1 (2D-LAS); Nuyens and Wierman, 2008 (1D).
    """

    preemptive: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        Family.SERVICE,
        "Gu et al.: Tiresias, NSDI 2019",
        left_out=(
            "Which models to keep on few nodes, by the skew of their tensors, is the placement's to say (hint `topo`).",
        ),
        needs=(Input.SERVICE,),
        uses=(Use.ORDER, Use.REQUEUE),
        on_slurm=(PREEMPTS,),
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
        return self._next_s(snapshot, ranking, running, -math.inf)

    def next_swap_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """As next_change_s, from where a job may fall behind one that waits; who waits may start at once."""
        here = ~snapshot.jobs.finished
        least = float(ranking.why["counted"].min(where=here & ~running, initial=math.inf))
        return self._next_s(snapshot, ranking, here, least)

    def _next_s(self, snapshot: Snapshot, ranking: Ranking, counts: Bools, least: float) -> float:
        """When the next of the jobs that count reaches a multiple of the quantum not below `least` [Unix s]."""
        jobs, counted = snapshot.jobs, ranking.why["counted"]
        if not self.quantum_gpu_s:
            return snapshot.now_s if counts.any() else math.inf
        service, pace = (jobs.attained_gpu_s, jobs.gpus) if self.dimension == "2d" else (jobs.executed_s, 1)
        left = np.maximum(counted + self.quantum_gpu_s, least) - service
        return snapshot.now_s + float(np.min(left / np.maximum(pace, 1), where=counts, initial=math.inf))

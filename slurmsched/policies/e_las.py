"""Least attained service, less for jobs that are nearly through their epochs: E-LAS."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.model import Card, Family, Input, Ranking, Snapshot, Use
from slurmsched.model.columns import Bools, Floats
from slurmsched.model.hints import hint_column
from slurmsched.policies.cards import PREEMPTS
from slurmsched.policies.order import ordered
from slurmsched.policies.ranges import GpuSeconds, check_ranges
from slurmsched.words import some_of


@dataclass(frozen=True, slots=True)
class ELas:
    """Least attained service first, times the share of epochs still to come: a job near its end passes its equals.

    quantum_gpu_s: the weighted service is rounded down to multiples of it [GPU s]; jobs within one keep FIFO order. 0:
    exact. Ten GPU hours by default, as of las.
    A job without the hint `progress=` counts as being at its beginning, which leaves plain least attained service.
    Raises ConfigError for a negative quantum.
    Source: Sultana et al. (E-LAS), ICPP '20, for service in time and GPUs guided by the real-time epoch progress rate;
    the product of both, and the quantum, are ours.
    """

    preemptive: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        Family.SERVICE,
        "Sultana, Chen, Xu, Yuan: E-LAS, ICPP 2020",
        left_out=("Its placement, on few nodes first and then on any, is the placement's to say.",),
        needs=(Input.SERVICE, Input.PROGRESS),
        uses=(Use.ORDER, Use.REQUEUE),
        on_slurm=(
            PREEMPTS,
            "Slurm knows no epochs: a job tells them in its comment (`progress=DONE/TOTAL`), as often as it likes.",
        ),
    )

    quantum_gpu_s: GpuSeconds = 36_000.0

    def __post_init__(self) -> None:
        check_ranges(self)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, progress = snapshot.jobs, hint_column(snapshot.jobs, "progress")
        left = 1.0 - np.where(np.isnan(progress), 0.0, progress)
        weighted = jobs.attained_gpu_s * left
        counted = (
            np.floor(weighted / self.quantum_gpu_s + 1e-9) * self.quantum_gpu_s if self.quantum_gpu_s else weighted
        )
        why = {"attained_gpu_s": jobs.attained_gpu_s, "epochs_left": left, "counted": counted}
        return Ranking(ordered(jobs, counted), why=why, notes=_notes(progress))

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When the next of the running jobs reaches a multiple of the quantum, if it tells no epoch before [Unix s]."""
        if not self.quantum_gpu_s:
            return snapshot.now_s if running.any() else math.inf
        why, gpus = ranking.why, np.maximum(snapshot.jobs.gpus, 1)
        needed = why["counted"] + self.quantum_gpu_s - why["attained_gpu_s"] * why["epochs_left"]
        pace = gpus * why["epochs_left"]
        soon_s = np.divide(needed, pace, out=np.full(len(pace), math.inf), where=pace > 0)
        return snapshot.now_s + float(np.min(soon_s, where=running, initial=math.inf))


def _notes(progress: Floats) -> tuple[str, ...]:
    silent = int(np.isnan(progress).sum())
    if not silent:
        return ()
    return (f"{some_of(silent, len(progress), 'job', 'tells', 'tell')} no progress: ordered by attained service alone",)

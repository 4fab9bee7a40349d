"""Least attained service, less for jobs that are nearly through their epochs: E-LAS."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats
from slurmsched.model.hints import hint_column
from slurmsched.model.ordering import ordered
from slurmsched.model.parameters import GpuSeconds, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION
from slurmsched.plain_text import pluralize_of


@dataclass(frozen=True, slots=True)
class ELas:
    """Least attained service, times the share of epochs still to come: a job near its end passes its equals.

    A job without the hint `progress=` counts as being at its beginning, which is plain least attained service.
    quantum_gpu_s: the weighted service is rounded down to multiples of it [GPU s]; jobs within one multiple keep FIFO
        order. 0: exact. The default is ten GPU hours, as for las.
    Raises ConfigError for a negative quantum.
    Source: Sultana et al. (E-LAS), ICPP '20, for service in time and GPUs guided by the real-time epoch progress rate.
    The product of both, and the quantum, are ours.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.SERVICE,
        "Sultana, Chen, Xu, Yuan: E-LAS, ICPP 2020",
        left_out=("Its placement, on few nodes first and then on any: the placement chooses nodes.",),
        needs=(PolicyInput.SERVICE, PolicyInput.PROGRESS),
        uses=(PolicyLever.ORDER, PolicyLever.REQUEUE),
        on_slurm=(
            NEEDS_PREEMPTION,
            "Slurm knows no epochs: a job tells them in its comment (`progress=DONE/TOTAL`), as often as it likes.",
        ),
        criteria={"attained_gpu_s": "used {}"},
    )

    quantum_gpu_s: GpuSeconds = 36_000.0

    def __post_init__(self) -> None:
        check_ranges(self)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, progress = snapshot.jobs, hint_column(snapshot.jobs, "progress")
        to_come = 1.0 - np.where(np.isnan(progress), 0.0, progress)
        weighted = jobs.attained_gpu_s * to_come
        counted = (
            np.floor(weighted / self.quantum_gpu_s + 1e-9) * self.quantum_gpu_s if self.quantum_gpu_s else weighted
        )
        why = {"attained_gpu_s": jobs.attained_gpu_s, "epochs_left": to_come, "counted": counted}
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
    count = pluralize_of(silent, len(progress), "job", "reports", "report")
    return (f"{count} no progress: ordered by attained service alone",)

"""Jobs share GPUs in lanes: each keeps its model there, and they take turns to use the rest of the memory: Salus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Annotated, ClassVar

import numpy as np

from slurmsched.allocation.job_packing import least_interference
from slurmsched.allocation.job_times import expected_remaining_s
from slurmsched.estimators.group_speeds import MOST_JOBS
from slurmsched.estimators.requested_time import Hint
from slurmsched.model import JobChanges, PolicyFamily, PolicyInfo, PolicyInput, Ranking, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.model.hints import hint_column
from slurmsched.model.ordering import arrival_s, ordered
from slurmsched.model.parameters import Part, Range, check_choice, check_ranges
from slurmsched.model.policy_info import ANY_PARTITION, NO_SHARED_GPUS
from slurmsched.protocols import Estimator

ORDERS = ("fifo", "srtf", "fair")
FEWEST = 1e-6  # weight of the number of jobs on a GPU: it counts where the memory is equal


@dataclass(frozen=True, slots=True)
class Salus:
    """A job that finds too few free GPUs goes beside those whose lane grows least by it, if a GPU has memory for it.

    A lane is what the jobs of a GPU need together: of each job the persistent memory, and of the largest all of it.
    Jobs without the hint `gpu_mem`, and those with `share=no`, share with nobody.
    order: "fifo", "srtf" (shortest remaining time first) or "fair" (least attained service first).
    most: jobs on one GPU.
    memory_gib: of a GPU.
    persistent: part of `gpu_mem` that a job needs between two iterations too.
    estimator: source of expected run times, for srtf.
    Raises ConfigError for a parameter out of range.
    Source: Yu and Chowdhury (Salus), MLSys 2020: lanes, and persistent memory of all jobs with the ephemeral memory of
    the largest. One lane a GPU, one part for all jobs, and where a job goes are ours.
    """

    preemptive: ClassVar[bool] = False
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.SERVICE,
        "Yu and Chowdhury: Salus, MLSys 2020",
        left_out=(
            "Switching jobs at each iteration: the order decides who gets a GPU first, and a job stays until it ends. "
            "Several lanes on a GPU, and lanes that change their size.",
            ANY_PARTITION,
        ),
        needs=(PolicyInput.DURATION, PolicyInput.SERVICE),
        on_slurm=(NO_SHARED_GPUS,),
        criteria={
            "submit_s": "submitted {at}",
            "remaining_s": "{} of run time to go",
            "attained_gpu_s": "used {}",
            "beside": "on GPUs of job {0+}",
        },
    )

    order: str = "fifo"
    most: Annotated[int, Range(1, MOST_JOBS, whole=True)] = MOST_JOBS
    memory_gib: Annotated[float, Range(1.0, 10_000.0)] = 16.0
    persistent: Part = 0.2
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choice("order", self.order, ORDERS)

    def rank(self, snapshot: Snapshot) -> Ranking:
        name, key = self._key(snapshot)
        order, memory = ordered(snapshot.jobs, key), np.nan_to_num(hint_column(snapshot.jobs, "gpu_mem"), nan=inf)
        memory = np.where(hint_column(snapshot.jobs, "share") == 0.0, inf, memory)
        host = least_interference(snapshot, order, lambda rows: self._lane(memory, rows), self.most)
        return Ranking(order, why={name: key, "beside": host}, changes=JobChanges(beside=host))

    def _key(self, snapshot: Snapshot) -> tuple[str, Floats]:
        """The criterion of the order and its values, less first. (N,)."""
        if self.order == "srtf":
            return "remaining_s", expected_remaining_s(self.estimator, snapshot)
        if self.order == "fair":
            return "attained_gpu_s", snapshot.jobs.attained_gpu_s
        return "submit_s", arrival_s(snapshot.jobs)

    def _lane(self, memory: Floats, rows: Sequence[int]) -> float:
        """The lane of jobs of these rows as a part of a GPU's memory; infinity if it does not fit.

        Of equal lanes the one with fewer jobs counts less. memory: (N,) of each job [GiB].
        """
        here = memory[list(rows)]
        if not np.isfinite(here).all():
            return inf
        lane = round(self.persistent * float(here.sum()) + (1 - self.persistent) * float(here.max()), 9)
        return lane / self.memory_gib + FEWEST * len(rows) ** 2 if lane <= self.memory_gib else inf

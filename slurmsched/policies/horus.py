"""First in, first out, and beside other jobs where the summed use of the GPUs stays under a cap: Horus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import inf
from typing import Annotated, ClassVar

import numpy as np

from slurmsched.allocation.job_packing import least_interference
from slurmsched.estimators.group_speeds import MOST_JOBS, MURI, GroupSpeeds, gpu_share, own_pairs, stage_table
from slurmsched.estimators.throughput_table import kind_of_job
from slurmsched.model import JobChanges, PolicyFamily, PolicyInfo, PolicyInput, Ranking, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.model.hints import hint_column, parse_hints
from slurmsched.model.ordering import arrival_s, ordered
from slurmsched.model.parameters import Range, check_ranges
from slurmsched.model.policy_info import ANY_PARTITION, NO_SHARED_GPUS

MeasuredLoss = Callable[[Sequence[int]], float | None]


@dataclass(frozen=True, slots=True)
class Horus:
    """First in, first out. A job that finds too few free GPUs goes beside those that use theirs least.

    The predicted use of all jobs on a GPU adds up to at most the cap. Of several groups the job goes to the one with
    the least more of the time in which two jobs compute at once. Jobs with the hint `share=no`, and jobs of models
    without a prediction, share with nobody.

    Where the daemon measured all pairs of a group, the speed that they lose counts in place of the prediction, and the
    cap does not. A model without a prediction may be in such a group.
    cap: part of the time that the jobs of a GPU use it together.
    most: jobs on one GPU.
    stages: a table of stages, from which the use of GPUs comes, or "muri", which is shipped.
    memory_gib: of a GPU; jobs whose hints `gpu_mem` add up to more do not share, nor do jobs without that hint. 0 =
    memory is no limit.
    measured: file of profiles with measured pairs; "" = that of the configuration.
    Raises ConfigError for a parameter out of range, InputError for a table that cannot be read.
    Source: Yeung et al. (Horus), TPDS 33 (2022), and Yeung et al., HotCloud '20: predicted use under a cap. The cost,
    the product of the uses of each two jobs, is ours.
    """

    preemptive: ClassVar[bool] = False
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.SERVICE,
        "Yeung et al.: Horus, TPDS 2022",
        left_out=(
            "Prediction of use from the graph of a model: it comes from a table of stages. Fair and priority queues: "
            "jobs go first in, first out.",
            ANY_PARTITION,
        ),
        needs=(PolicyInput.PROFILE,),
        on_slurm=(NO_SHARED_GPUS,),
        criteria={
            "submit_s": "submitted {at}",
            "beside": "on GPUs of job {0+}",
            "use": "its GPUs compute for {} of the time",
        },
    )

    cap: Annotated[float, Range(0.01, float(MOST_JOBS))] = 1.0
    most: Annotated[int, Range(1, MOST_JOBS, whole=True)] = 2
    stages: str = MURI
    memory_gib: Annotated[float, Range(0.0, 10_000.0)] = 0.0
    measured: str = ""

    def __post_init__(self) -> None:
        check_ranges(self)
        stage_table(self.stages)

    def rank(self, snapshot: Snapshot) -> Ranking:
        order, use = ordered(snapshot.jobs), self._use(snapshot)
        memory = np.nan_to_num(hint_column(snapshot.jobs, "gpu_mem"), nan=inf)
        seen = self._measured_losses(snapshot)
        host = least_interference(snapshot, order, lambda rows: self._lost(use, memory, seen, rows), self.most)
        why = {"submit_s": arrival_s(snapshot.jobs), "beside": host, "use": np.round(use, 2)}
        return Ranking(order, why=why, changes=JobChanges(beside=host))

    def _lost(self, use: Floats, memory: Floats, seen: MeasuredLoss, rows: Sequence[int]) -> float:
        """Part of the time in which two jobs of these rows compute at once, or what they lose of their speed as
        measured; infinity if they may not share."""
        if 0 < self.memory_gib < memory[list(rows)].sum():
            return inf
        if (measured := seen(rows)) is not None:
            return measured
        if use[list(rows)].sum() > self.cap:
            return inf
        return float(sum(use[one] * use[other] for one, other in combinations(rows, 2)))

    def _measured_losses(self, snapshot: Snapshot) -> MeasuredLoss:
        """What the daemon measured of jobs of these rows: speed that they lose in all; None where it lacks a pair, or
        one of them does not share. Of a job alone it is 0 if any pair of its model was measured."""
        if not self.measured:
            return lambda _: None
        jobs, speeds, alone = (
            snapshot.jobs,
            GroupSpeeds(measured=self.measured),
            hint_column(snapshot.jobs, "share") == 0.0,
        )
        kind = cache(lambda row: kind_of_job(jobs, row))

        def lost(rows: Sequence[int]) -> float | None:
            gpus, kinds = int(jobs.gpus[rows[0]]), [kind(row) for row in rows]
            if alone[list(rows)].any():
                return None
            if len(rows) == 1:
                return 0.0 if any(kinds[0] in pair for pair in own_pairs(self.measured, gpus)) else None
            kept = [speeds.measured_kept(kinds, mine, gpus) for mine in range(len(kinds))]
            return sum(1.0 - each for each in kept if each is not None) if None not in kept else None

        return lost

    def _use(self, snapshot: Snapshot) -> Floats:
        """Predicted part of the time that each job uses its GPUs; infinity for one that shares with nobody. (N,)."""
        jobs, known = snapshot.jobs, {model for model, _ in stage_table(self.stages)}
        models = [parse_hints(comment).model or "" for comment in jobs.comment]
        found = [gpu_share(self.stages, model, gpus) if model in known else inf
                 for model, gpus in zip(models, jobs.gpus.tolist(), strict=True)]  # fmt: skip
        return np.where(hint_column(jobs, "share") == 0.0, inf, np.array(found, np.float64))

"""First in, first out, and beside other jobs where the least slow-down is predicted: Co-scheML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import inf
from typing import Annotated, ClassVar

import numpy as np

from slurmsched.allocation.job_packing import least_interference
from slurmsched.estimators.group_speeds import MOST_JOBS, SOURCES, GroupSpeeds, check_group_speeds
from slurmsched.estimators.throughput_table import kind_of_job
from slurmsched.model import JobChanges, PolicyFamily, PolicyInfo, PolicyInput, Ranking, Snapshot
from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.hints import Hints, parse_hints
from slurmsched.model.ordering import arrival_s, ordered
from slurmsched.model.parameters import Range, check_ranges
from slurmsched.model.policy_info import ANY_PARTITION, NO_SHARED_GPUS


@dataclass(frozen=True, slots=True)
class CoScheMl:
    """First in, first out. A job that finds too few free GPUs goes beside those that lose the least speed by it.

    It waits where they would lose more than it makes there. Jobs with the hint `share=no`, and jobs of models that no
    table knows, share with nobody.
    most: jobs on one GPU.
    stages, pairs, type: tables that predict speeds, see estimators.group_speeds.
    measured: file of profiles with measured pairs, which come before those tables; "" = that of the configuration.
    memory_gib: of a GPU; jobs whose hints `gpu_mem` add up to more do not share. 0 = memory is no limit.
    Raises ConfigError for a parameter out of range, InputError for a table that cannot be read.
    Source: Kim and Kim (Co-scheML), ACSOS 2020. The regressor is ours, as are groups of more than two jobs.
    """

    preemptive: ClassVar[bool] = False
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.SERVICE,
        "Kim and Kim: Co-scheML, ACSOS 2020",
        left_out=(
            "Learning the slow-down from profiled metrics of each application: it is predicted from tables of stages "
            "and of pairs.",
            ANY_PARTITION,
        ),
        needs=(PolicyInput.PROFILE,),
        on_slurm=(NO_SHARED_GPUS,),
        criteria={
            "submit_s": "submitted {at}",
            "beside": "on GPUs of job {0+}",
            "kept": "keeps {} of its speed there",
            "figure": "|".join(SOURCES.values()),
        },
    )

    most: Annotated[int, Range(1, MOST_JOBS, whole=True)] = MOST_JOBS
    stages: str = ""
    pairs: str = "gavel"
    type: str = "v100"
    memory_gib: Annotated[float, Range(0.0, 10_000.0)] = 0.0
    measured: str = ""

    def __post_init__(self) -> None:
        check_ranges(self)
        check_group_speeds(self._speeds)

    @property
    def _speeds(self) -> GroupSpeeds:
        return GroupSpeeds(self.stages, self.pairs, self.type, self.measured)

    def rank(self, snapshot: Snapshot) -> Ranking:
        order = ordered(snapshot.jobs)
        hints = cache(lambda row: parse_hints(snapshot.jobs.comment[row]))
        host = least_interference(snapshot, order, lambda rows: self._lost(snapshot, rows, hints), self.most)
        kept, figure = self._kept(snapshot, host)
        why = {"submit_s": arrival_s(snapshot.jobs), "beside": host, "kept": kept, "figure": figure}
        return Ranking(order, why=why, changes=JobChanges(beside=host))

    def _kept(self, snapshot: Snapshot, host: Int64s) -> tuple[Floats, Floats]:
        """Share of its speed that each job of a group keeps, in hundredths, and how that is known, as a place in
        SOURCES; infinity for a job in none. (N,) each."""
        jobs, groups = snapshot.jobs, dict[int, list[int]]()
        found, figure = np.full(len(host), inf), np.full(len(host), inf)
        for row in np.flatnonzero(host >= 0).tolist():
            groups.setdefault(int(host[row]), [jobs.row_of(int(host[row]))]).append(row)
        for rows in groups.values():
            kinds, gpus = [kind_of_job(jobs, row) for row in rows], int(jobs.gpus[rows[0]])
            for place, row in enumerate(rows):
                kept, source = self._speeds.kept_by(kinds, place, gpus)
                found[row], figure[row] = round(kept, 2), list(SOURCES).index(source)
        return found, figure

    def _lost(self, snapshot: Snapshot, rows: Sequence[int], hints_of: Callable[[int], Hints]) -> float:
        """Speed that jobs of these rows lose on the same GPUs; infinity if they may not share."""
        hints = [hints_of(row) for row in rows]
        memory = sum(inf if each.gpu_mem is None else each.gpu_mem for each in hints)
        gpus = int(snapshot.jobs.gpus[rows[0]])
        kinds = tuple(sorted(kind_of_job(snapshot.jobs, row) for row in rows))
        if any(each.share is False for each in hints) or 0 < self.memory_gib < memory:
            return inf
        if not all(self._speeds.knows(kind, gpus) for kind in kinds):
            return inf
        return _lost_by(self._speeds, kinds, gpus) if len(rows) > 1 else 0.0


@lru_cache(maxsize=65_536)
def _lost_by(speeds: GroupSpeeds, kinds: tuple[str, ...], gpus: int) -> float:
    return len(kinds) - sum(speeds.kept(kinds, gpus).kept)

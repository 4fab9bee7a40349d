"""Muri: jobs whose stages use different resources take turns on the same GPUs, in groups of up to four."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np

from slurmsched.allocation.job_groups import JobGroup, Members, candidates, matched_groups
from slurmsched.allocation.job_times import cluster_gpus, remaining_on_reference_s, service
from slurmsched.estimators.group_speeds import (
    ALONE,
    MOST_JOBS,
    MURI,
    GroupSpeeds,
    StageTimes,
    group_time,
    own_pairs,
    stage_table,
    stages_of,
)
from slurmsched.estimators.requested_time import Hint
from slurmsched.estimators.throughput_table import job_kind, kind_of_job
from slurmsched.model import JobChanges, PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hints import parse_hints
from slurmsched.model.ordering import ordered
from slurmsched.model.parameters import Range, check_ascending, check_choice, check_ranges
from slurmsched.model.policy_info import ANY_PARTITION, NEEDS_PREEMPTION, NO_SHARED_GPUS
from slurmsched.policies.discretized_las import DiscretizedLas
from slurmsched.protocols import Estimator
from slurmsched.resources.allocated import holding
from slurmsched.resources.startable_jobs import startable

ORDERS = ("srsf", "2d-las")
RESOURCES = 4  # storage, CPU, GPU, network
SeenAs = tuple[str, int]  # a kind of job and its GPUs, as the daemon measured pairs of it
Kind = tuple[StageTimes, int, SeenAs]  # of a job; the second is the memory that it needs on each GPU [GiB]


@dataclass(frozen=True, slots=True)
class Muri:
    """Jobs in the order of SRSF or 2D-LAS, in groups that share GPUs by turns while there are too few of them.

    A group has jobs of one size, and runs one iteration of each in the time that the slowest step of each takes. Groups
    are matched for the largest sum of efficiencies: the time that the stages of a group are busy over the time that
    four resources are there. A group that takes longer than its jobs one after the other is none.
    order: "srsf", least remaining service (Muri-S), or "2d-las", attained service in a few queues (Muri-L).
    thresholds_gpu_s: of the queues of 2d-las.
    most: jobs on one GPU.
    stages: a table of stages, or "muri", which is shipped. A job whose model (hint `model`) is not in it runs alone.
    memory_gib: of a GPU; groups whose hints `gpu_mem` add up to more are none. 0 = memory is no limit.
    measured: file of profiles with measured pairs; "" = that of the configuration. A job of which all pairs in its
        group were measured keeps what these say, in place of what the stages say.
    estimator: source of expected run times, for srsf.
    Raises ConfigError for a parameter out of range, InputError for a table that cannot be read.
    Source: Zhao et al. (Muri), SIGCOMM '22, sections 4 and 5, and its released code. Memory is ours.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.SERVICE,
        "Zhao et al.: Muri, SIGCOMM 2022",
        left_out=(
            "Profiling of stages: they come from a table. The barrier between the stages of jobs on one GPU, which is "
            "in the authors' framework: replays count with it.",
            ANY_PARTITION,
        ),
        needs=(PolicyInput.SERVICE, PolicyInput.DURATION, PolicyInput.PROFILE),
        uses=(PolicyLever.ORDER, PolicyLever.REQUEUE),
        on_slurm=(NEEDS_PREEMPTION, NO_SHARED_GPUS),
        criteria={
            "remaining_gpu_s": "has {} to go",
            "service_gpu_s": "used {}",
            "beside": "on GPUs of job {0+}",
            "kept": "keeps {} of its speed there",
        },
    )

    order: str = "srsf"
    thresholds_gpu_s: tuple[float, ...] = (3_250.0, 7_200.0)
    most: Annotated[int, Range(1, MOST_JOBS, whole=True)] = MOST_JOBS
    stages: str = MURI
    memory_gib: Annotated[float, Range(0.0, 10_000.0)] = 0.0
    measured: str = ""
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choice("order", self.order, ORDERS)
        check_ascending("thresholds_gpu_s", self.thresholds_gpu_s)
        stage_table(self.stages)

    def rank(self, snapshot: Snapshot) -> Ranking:
        made = self._alone(snapshot)
        host, first, kept = self._hosts(snapshot, made.order)
        place = np.argsort(made.order)
        order = np.lexsort((place, place[first]))  # a group where its most urgent job is
        return replace(
            made, order=order, why={**made.why, "beside": host, "kept": kept}, changes=JobChanges(beside=host)
        )

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When a running job drops to a lower queue [Unix s]; infinity with srsf."""
        return self._queues.next_change_s(snapshot, ranking, running) if self.order == "2d-las" else math.inf

    @property
    def _queues(self) -> DiscretizedLas:
        return DiscretizedLas(self.thresholds_gpu_s)

    def _alone(self, snapshot: Snapshot) -> Ranking:
        """The order without groups."""
        if self.order == "2d-las":
            return self._queues.rank(snapshot)
        remaining_s, notes = remaining_on_reference_s(self.estimator, snapshot, snapshot.jobs.executed_s)
        remaining_gpu_s = service(remaining_s, snapshot.jobs)
        return Ranking(ordered(snapshot.jobs, remaining_gpu_s), why={"remaining_gpu_s": remaining_gpu_s}, notes=notes)

    def _hosts(self, snapshot: Snapshot, order: Int64s) -> tuple[Int64s, Int64s, Floats]:
        """Id of the job beside which each is to run, -1 = none; the row of the first of its group; and what it keeps of
        its speed in the group, infinity = it is in none. (N,) each."""
        jobs, rows = snapshot.jobs, np.arange(len(snapshot.jobs))
        able = (holding(jobs) | startable(snapshot)) & (jobs.gpus > 0)
        gpus, capacity = jobs.gpus.tolist(), cluster_gpus(snapshot)
        chosen = candidates(order[able[order]].tolist(), gpus, capacity, self.most)
        place, host, first = np.argsort(order).tolist(), np.full(len(jobs), -1, np.int64), rows.copy()
        kept = np.full(len(jobs), np.inf)
        units = {
            size: [JobGroup((row,), (place[row],), self._kinds(snapshot, row)) for row in members]
            for size, members in chosen.items()
        }
        for group in matched_groups(units, capacity, self._efficiency, self.most):
            if len(group.rows) > 1 and self._pays(group.kinds):
                host[list(group.rows[1:])] = jobs.job_id[group.rows[0]]
                first[list(group.rows)] = group.rows[0]
                kept[list(group.rows)] = [self._kept(snapshot, row, group.kinds) for row in group.rows]
        return host, first, kept

    def _kinds(self, snapshot: Snapshot, row: int) -> Members:
        """The one member of a group of a single job: stages, and memory where that is a limit. Without known stages, or
        with the hint share=no, it fits no group."""
        hints = parse_hints(snapshot.jobs.comment[row])
        stages = stages_of(self.stages, job_kind(hints.model or "", None), int(snapshot.jobs.gpus[row]))
        alone = stages is None or hints.share is False
        memory = (hints.gpu_mem or 0) if self.memory_gib else 0
        return ((UNKNOWN if alone else stages, memory, self._seen_as(snapshot, row)),)

    def _seen_as(self, snapshot: Snapshot, row: int) -> SeenAs:
        """How the daemon measured this job; UNSEEN if it did not, so that kinds stay few."""
        if not self.measured:
            return UNSEEN
        kind, gpus = kind_of_job(snapshot.jobs, row), int(snapshot.jobs.gpus[row])
        return (kind, gpus) if any(kind in pair for pair in own_pairs(self.measured, gpus)) else UNSEEN

    def _efficiency(self, members: Members) -> float:
        """Time that the stages of a group are busy, over that of all resources; 0 for a group that is not to be."""
        stages, memory = tuple(stages for stages, _, _ in members), sum(gib for _, gib, _ in members)
        if UNKNOWN in stages or (self.memory_gib and memory > self.memory_gib):
            return 0.0
        if not self._measured(members):
            return sum(each.work for each in stages) / (RESOURCES * group_time(stages))
        kept = self._kept_by(members)
        return (
            sum(one.work * share / (ALONE * one.iteration) for one, share in zip(stages, kept, strict=True)) / RESOURCES
        )

    def _measured(self, members: Members) -> bool:
        """Whether the daemon measured two or more jobs of a group."""
        return sum(seen != UNSEEN for _, _, seen in members) > 1

    def _kept_by(self, members: Members) -> list[float]:
        """Share of its speed that each job of a group keeps: as measured, else by stages."""
        time, speeds = group_time(tuple(stages for stages, _, _ in members)), GroupSpeeds(measured=self.measured)
        kinds, gpus = [seen[0] for _, _, seen in members], max(seen[1] for _, _, seen in members)
        own = [speeds.measured_kept(kinds, mine, gpus) for mine in range(len(kinds))]
        return [stages.iteration * ALONE / time if share is None else share
                for (stages, _, _), share in zip(members, own, strict=True)]  # fmt: skip

    def _kept(self, snapshot: Snapshot, row: int, members: Members) -> float:
        """Share of its speed that a job of this row keeps in a group, in hundredths."""
        (own,) = self._kinds(snapshot, row)
        return round(self._kept_by(members)[members.index(own)], 2)

    def _pays(self, members: Members) -> bool:
        """Whether a group is faster than its jobs one after the other."""
        if self._measured(members):
            return sum(self._kept_by(members)) >= 1.0
        stages = tuple(stages for stages, _, _ in members)
        return group_time(stages) <= ALONE * sum(each.iteration for each in stages)


UNKNOWN = StageTimes(0.0, 0.0, 0.0, 0.0)
UNSEEN: SeenAs = ("", 0)

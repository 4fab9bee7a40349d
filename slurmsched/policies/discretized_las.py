"""Least attained service in a few FIFO queues: Tiresias's discretized 2D-LAS."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from slurmsched.allocation.job_memory import JobMemory, recall, table_of
from slurmsched.kernels.service_queues import (
    AT_PLACE,
    KEY_GROUP,
    KEY_QUEUE,
    PROMOTED,
    SERVED,
    SINCE,
    STARTED,
    LasJobs,
    LasKeys,
    LasRules,
    empty_keys,
    las_rank,
    next_drop,
)
from slurmsched.model import Jobs, JobState, PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s, made_read_only
from slurmsched.model.ordering import arrival_s
from slurmsched.model.parameters import Multiple, check_ascending, check_choice, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION
from slurmsched.model.states import FINISHED

Columns = dict[str, NDArray[Any]]
Thresholds = tuple[float, ...]
FIFO_BY = ("start", "arrival", "submit")
_FLAGS = (int(JobState.PENDING), int(JobState.RUNNING), int(JobState.COMPLETING), int(FINISHED))
_REMEMBERED = ("started_s", "queue", "since_s", "ran_here", "place", "forgiven_gpu_s", "forgiven_s")


def queue_of(service_gpu_s: Floats, thresholds_gpu_s: Thresholds) -> Int64s:
    """Queue of each job, 0 the most urgent: a job drops when it reaches a threshold. (N,) int64."""
    return np.searchsorted(np.asarray(thresholds_gpu_s, np.float64), service_gpu_s, side="right").astype(np.int64)


def paces(jobs: Jobs, dimension: str) -> tuple[Floats, Int32s]:
    """Attained service of each job, [GPU s] in 2d and [s] in 1d, and how much of it a second of run time adds. (N,)."""
    if dimension == "1d":
        return jobs.executed_s, np.ones(len(jobs), np.int32)
    return jobs.attained_gpu_s, jobs.gpus


def next_drop_s(
    snapshot: Snapshot, service: Floats, counts: Bools, thresholds: Thresholds, least: int = 0, dimension: str = "2d"
) -> float:
    """When the next of the jobs that count drops to queue `least` or lower, if all run [Unix s]; infinity: none.

    service, thresholds: [GPU s] in 2d, [s] in 1d.
    """
    limits, (_, pace) = np.array(thresholds, np.float64), paces(snapshot.jobs, dimension)
    return snapshot.now_s + float(next_drop(service, pace, counts, limits, least))


@dataclass(frozen=True, slots=True)
class DiscretizedLas:
    """Least attained service in a few FIFO queues: short jobs pass, few are preempted.

    thresholds_gpu_s: ascending attained service [GPU s] at which a job drops one queue.
    promote_knob: a job that has waited this many times as long as it ran since its last promotion returns to queue 0.
        Its service counts from 0 again. inf: never.
    fifo_by: order inside a queue. "start": first start, jobs that never started last (the paper). "arrival": running
        jobs, then jobs preempted in this queue, then by arrival at it (the released simulator). "submit": submission
        (the simulators of Pollux and Lucid).
    dimension: "2d" counts GPU seconds, "1d" seconds of run time; thresholds are in that unit.
    Raises ConfigError if thresholds do not ascend, or another value is out of range.
    Source: Gu et al. (Tiresias), NSDI '19, section 3.2.3; thresholds of its released simulator.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.SERVICE,
        "Gu et al.: Tiresias, NSDI 2019",
        left_out=("Keeping models with skewed tensors on few nodes: the placement does this, by the hint `topo`.",),
        needs=(PolicyInput.SERVICE,),
        uses=(PolicyLever.ORDER, PolicyLever.REQUEUE),
        on_slurm=(NEEDS_PREEMPTION,),
        criteria={
            "service_gpu_s": "used {}",
            "service_s": "ran {}",
            "promoted": "promoted after waiting",
            "started_s": "first started {at}",
            "turn": "running|preempted in this queue|waiting|new in this queue",
            "place": "place {} in the last cycle",
            "since_s": "in this queue since {at}",
        },
    )

    thresholds_gpu_s: tuple[float, ...] = (3_250.0, 7_200.0)
    promote_knob: Multiple = math.inf
    fifo_by: str = "arrival"
    dimension: str = "2d"

    def __post_init__(self) -> None:
        check_ranges(self)
        check_ascending("thresholds_gpu_s", self.thresholds_gpu_s)
        check_choice("fifo_by", self.fifo_by, FIFO_BY)
        check_choice("dimension", self.dimension, ("1d", "2d"))

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, arrived_s, rows = snapshot.jobs, arrival_s(snapshot.jobs), len(snapshot.jobs)
        service, rate = paces(jobs, self.dimension)
        listed = LasJobs(
            jobs.job_id, arrived_s, jobs.state, jobs.start_s, jobs.executed_s, service, jobs.waiting_s, rate
        )
        thresholds, past = np.array(self.thresholds_gpu_s, np.float64), table_of(snapshot.carry, _REMEMBERED)
        rules = LasRules(thresholds, self.promote_knob, FIFO_BY.index(self.fifo_by), snapshot.now_s, *_FLAGS)
        order, keys, memory = np.empty(rows, np.int64), empty_keys(rows), np.empty((rows, len(_REMEMBERED) + 2))
        kept, ascending = las_rank(order, listed, rules, np.ascontiguousarray(past.T), keys, memory)
        why = {"queue": keys.ints[KEY_QUEUE], self._service: keys.floats[SERVED], **self._inside(keys),
               "promoted": keys.bools[PROMOTED]}  # fmt: skip
        return Ranking(
            made_read_only(order), why=why, carry=JobMemory(_REMEMBERED, memory[:kept].T, ascending=ascending)
        )

    @property
    def _service(self) -> str:
        """The name of attained service among the criteria."""
        return "service_gpu_s" if self.dimension == "2d" else "service_s"

    def _inside(self, keys: LasKeys) -> Columns:
        """The keys inside a queue, by name; none for plain submission order."""
        if self.fifo_by == "start":
            return {"started_s": keys.floats[STARTED]}
        if self.fifo_by == "arrival":
            return {"turn": keys.ints[KEY_GROUP], "place": keys.floats[AT_PLACE], "since_s": keys.floats[SINCE]}
        return {}

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The next threshold that a running job reaches, or the next promotion of a waiting one [Unix s]."""
        service = ranking.why[self._service]
        drop_s = next_drop_s(snapshot, service, running, self.thresholds_gpu_s, dimension=self.dimension)
        return min(drop_s, self.next_promotion_s(snapshot, ranking, ~running))

    def next_promotion_s(self, snapshot: Snapshot, ranking: Ranking, waits: Bools) -> float:
        """When the next of those that wait is promoted [Unix s], infinity if none is."""
        jobs = snapshot.jobs
        if math.isinf(self.promote_knob):
            return math.inf
        since = recall(jobs, ranking.carry, ("forgiven_s",))["forgiven_s"]
        ran_s = jobs.executed_s - _or_zero(since)
        low = waits & ~jobs.finished & (ranking.why["queue"] > 0) & (ran_s > 0)
        remaining_s = self.promote_knob * ran_s[low] - jobs.waiting_s[low]
        return snapshot.now_s + float(np.min(remaining_s, initial=math.inf))


def _or_zero(remembered: Floats) -> Floats:
    """The remembered value, 0 where there is none. (N,)."""
    return np.where(np.isnan(remembered), 0.0, remembered)

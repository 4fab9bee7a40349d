"""Least attained service in a few FIFO queues: Tiresias's discretized 2D-LAS."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from slurmsched.kernels.las import las_rank, next_drop, next_swap
from slurmsched.model import Card, Family, Input, Jobs, JobState, Ranking, Snapshot, Use
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s, sealed
from slurmsched.model.states import FINISHED
from slurmsched.policies.cards import PREEMPTS
from slurmsched.policies.checks import check_ascending, check_choice
from slurmsched.policies.memory import Memory, recall, table_of
from slurmsched.policies.order import arrival_s
from slurmsched.policies.ranges import Knob, check_ranges

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
    promote_knob: a waiting job returns to queue 0, its service counted anew, once it has waited this many
    times as long as it ran since its last promotion. inf: never.
    fifo_by: what FIFO goes by inside a queue. "start": first start, jobs never started last (the paper).
    "arrival": running jobs, then those preempted in this queue, then by arrival at it (the released simulator).
    "submit": submission (the simulators of Pollux and Lucid).
    dimension: "2d" counts GPU seconds, "1d" seconds of run time; thresholds are in the unit of it.
    Raises ConfigError if thresholds do not ascend, or another value is out of range.
    Source: Gu et al. (Tiresias), NSDI '19, section 3.2.3; thresholds of its released simulator.
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

    thresholds_gpu_s: tuple[float, ...] = (3_250.0, 7_200.0)
    promote_knob: Knob = math.inf
    fifo_by: str = "arrival"
    dimension: str = "2d"

    def __post_init__(self) -> None:
        check_ranges(self)
        check_ascending("thresholds_gpu_s", self.thresholds_gpu_s)
        check_choice("fifo_by", self.fifo_by, FIFO_BY)
        check_choice("dimension", self.dimension, ("1d", "2d"))

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, arrived_s = snapshot.jobs, arrival_s(snapshot.jobs)
        thresholds, past = np.array(self.thresholds_gpu_s, np.float64), table_of(snapshot.carry, _REMEMBERED)
        service, pace = paces(jobs, self.dimension)
        times = (jobs.start_s, jobs.executed_s, service, jobs.waiting_s)
        rows = len(jobs)
        floats, ints, bools = np.empty((8, rows)), np.empty((2, rows), np.int64), np.empty((2, rows), np.bool_)
        order, memory = np.empty(rows, np.int64), np.empty((rows, len(_REMEMBERED) + 2))
        kept, ascending = las_rank(
            (jobs.job_id, arrived_s, jobs.state), _FLAGS, pace, times, np.ascontiguousarray(past.T), thresholds,
            self.promote_knob, snapshot.now_s, FIFO_BY.index(self.fifo_by), floats, ints, bools, order, memory,
        )  # fmt: skip
        why = {"queue": ints[0], self._service: floats[3], **self._inside(floats, ints), "promoted": bools[0]}
        return Ranking(sealed(order), why=why, carry=Memory(_REMEMBERED, memory[:kept].T, ascending=ascending))

    @property
    def _service(self) -> str:
        """What attained service is called among the criteria."""
        return "service_gpu_s" if self.dimension == "2d" else "service_s"

    def _inside(self, floats: Floats, ints: Int64s) -> Columns:
        """The keys inside a queue, by name; none for plain submission order. floats, ints: of las_keys."""
        if self.fifo_by == "start":
            return {"started_s": floats[0]}
        if self.fifo_by == "arrival":
            return {"turn": ints[1], "place": floats[2], "since_s": floats[1]}
        return {}

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The next threshold that a running job reaches, or the next promotion of a waiting one [Unix s]."""
        service = ranking.why[self._service]
        drop_s = next_drop_s(snapshot, service, running, self.thresholds_gpu_s, dimension=self.dimension)
        return min(drop_s, self.next_promotion_s(snapshot, ranking, ~running))

    def next_swap_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The next drop to a queue in which, or above which, somebody waits; or the next promotion [Unix s].

        A job that waits may start before: it drops so early at the earliest.
        """
        jobs, why, limits = snapshot.jobs, ranking.why, np.array(self.thresholds_gpu_s, np.float64)
        pace, finished = paces(jobs, self.dimension)[1], int(FINISHED)
        soon_s = next_swap(why[self._service], why["queue"], pace, jobs.state, finished, running, limits)
        return min(snapshot.now_s + float(soon_s), self.next_promotion_s(snapshot, ranking, ~running))

    @property
    def unpassed_gpu_s(self) -> float | None:
        """Nobody who waits passes a job that came and started before its first drop; in 1d that is no service."""
        return None if self.dimension == "1d" else min(self.thresholds_gpu_s, default=math.inf)

    def next_promotion_s(self, snapshot: Snapshot, ranking: Ranking, waits: Bools) -> float:
        """When the next of those that wait is promoted [Unix s], infinity if none is."""
        jobs = snapshot.jobs
        if math.isinf(self.promote_knob):
            return math.inf
        since = recall(jobs, ranking.carry, ("forgiven_s",))["forgiven_s"]
        ran_s = jobs.executed_s - _or_zero(since)
        low = waits & ~jobs.finished & (ranking.why["queue"] > 0) & (ran_s > 0)
        left_s = self.promote_knob * ran_s[low] - jobs.waiting_s[low]
        return snapshot.now_s + float(np.min(left_s, initial=math.inf))


def _or_zero(remembered: Floats) -> Floats:
    """What is remembered, 0 where nothing is. (N,)."""
    return np.where(np.isnan(remembered), 0.0, remembered)

"""Least attained service in a few FIFO queues: Tiresias's discretized 2D-LAS."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from slurmsched.model import Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.policies.checks import check_ascending, check_choice, check_number
from slurmsched.policies.memory import recall, remember
from slurmsched.policies.order import arrival_s, ordered

Columns = dict[str, NDArray[Any]]
Thresholds = tuple[float, ...]
RUNS, PREEMPTED, WAITS, ARRIVED = range(4)
FIFO_BY = ("start", "arrival", "submit")
_REMEMBERED = ("started_s", "queue", "since_s", "ran_here", "place", "forgiven_gpu_s", "forgiven_s")


def queue_of(service_gpu_s: Floats, thresholds_gpu_s: Thresholds) -> Int64s:
    """Queue of each job, 0 the most urgent: a job drops when it reaches a threshold. (N,) int64."""
    return np.searchsorted(np.asarray(thresholds_gpu_s, np.float64), service_gpu_s, side="right").astype(np.int64)


def next_drop_s(
    snapshot: Snapshot, service_gpu_s: Floats, running: Bools, thresholds_gpu_s: tuple[float, ...]
) -> float:
    """When the next of the running jobs reaches a threshold [Unix s], infinity if none will."""
    limits = np.array([*thresholds_gpu_s, math.inf])
    service, gpus = service_gpu_s[running], snapshot.jobs.gpus[running]
    left_gpu_s = limits[np.searchsorted(limits, service, side="right")] - service
    return snapshot.now_s + float(np.min(left_gpu_s / np.maximum(gpus, 1), initial=math.inf))


@dataclass(frozen=True, slots=True)
class DiscretizedLas:
    """Least attained service in a few FIFO queues: short jobs pass, few are preempted.

    thresholds_gpu_s: ascending attained service [GPU s] at which a job drops one queue.
    promote_knob: a waiting job returns to queue 0, its service counted anew, once it has waited this many
    times as long as it ran since its last promotion. inf: never.
    fifo_by: what FIFO goes by inside a queue. "start": first start, jobs never started last (the paper).
    "arrival": running jobs, then those preempted in this queue, then by arrival at it (the released simulator).
    "submit": submission (the simulators of Pollux and Lucid).
    Raises ConfigError if thresholds do not ascend, or another value is out of range.
    Source: Gu et al. (Tiresias), NSDI '19, section 3.2.3; thresholds of its released simulator.
    """

    preemptive: ClassVar[bool] = True
    paper: ClassVar[str] = "Gu et al.: Tiresias, NSDI 2019"

    thresholds_gpu_s: tuple[float, ...] = (3_250.0, 7_200.0)
    promote_knob: float = math.inf
    fifo_by: str = "arrival"

    def __post_init__(self) -> None:
        check_ascending("thresholds_gpu_s", self.thresholds_gpu_s)
        check_number("promote_knob", self.promote_knob, above=0.0)
        check_choice("fifo_by", self.fifo_by, FIFO_BY)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs = snapshot.jobs
        past = recall(jobs, snapshot.carry, _REMEMBERED)
        promoted = self._starving(snapshot, past)
        forgiven_gpu_s = np.where(promoted, jobs.attained_gpu_s, _or_zero(past["forgiven_gpu_s"]))
        service_gpu_s = np.maximum(jobs.attained_gpu_s - forgiven_gpu_s, 0.0)
        queue = queue_of(service_gpu_s, self.thresholds_gpu_s)
        stay = _stay(snapshot, past, self._moves(snapshot, past, queue, service_gpu_s, promoted))
        inside = self._inside(snapshot, past, stay)
        order = ordered(jobs, queue, *inside.values())
        now = {
            **stay,
            "queue": queue,
            "place": _places(order),
            "forgiven_gpu_s": forgiven_gpu_s,
            "forgiven_s": np.where(promoted, jobs.executed_s, _or_zero(past["forgiven_s"])),
        }
        why = {"queue": queue, "service_gpu_s": service_gpu_s, **inside, "promoted": promoted}
        ran = np.isfinite(stay["started_s"]) & ~jobs.finished
        kept = {name: now[name] for name in _REMEMBERED}
        return Ranking(order, why=why, carry=remember(jobs, ran, kept))

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The next threshold that a running job reaches, or the next promotion of a waiting one [Unix s]."""
        drop_s = next_drop_s(snapshot, ranking.why["service_gpu_s"], running, self.thresholds_gpu_s)
        return min(drop_s, self._next_promotion_s(snapshot, ranking, ~running))

    def _next_promotion_s(self, snapshot: Snapshot, ranking: Ranking, waits: Bools) -> float:
        jobs = snapshot.jobs
        if math.isinf(self.promote_knob):
            return math.inf
        since = recall(jobs, ranking.carry, ("forgiven_s",))["forgiven_s"]
        ran_s = jobs.executed_s - _or_zero(since)
        low = waits & ~jobs.finished & (ranking.why["queue"] > 0) & (ran_s > 0)
        left_s = self.promote_knob * ran_s[low] - jobs.waiting_s[low]
        return snapshot.now_s + float(np.min(left_s, initial=math.inf))

    def _starving(self, snapshot: Snapshot, past: Mapping[str, Floats]) -> Bools:
        """Waiting jobs below queue 0 that waited promote_knob times as long as they ran. (N,) bool."""
        jobs = snapshot.jobs
        if math.isinf(self.promote_knob):
            return np.zeros(len(jobs), np.bool_)
        ran_s = jobs.executed_s - _or_zero(past["forgiven_s"])
        service_gpu_s = jobs.attained_gpu_s - _or_zero(past["forgiven_gpu_s"])
        low = queue_of(service_gpu_s, self.thresholds_gpu_s) > 0
        return jobs.pending & low & (ran_s > 0) & (jobs.waiting_s >= self.promote_knob * ran_s)

    def _moves(
        self, snapshot: Snapshot, past: Mapping[str, Floats], queue: Int64s, service_gpu_s: Floats, promoted: Bools
    ) -> _Moves:
        """Who changed queues since the last quantum, and when: a drop is dated back to the threshold."""
        jobs, unknown = snapshot.jobs, np.isnan(past["queue"])
        moved = promoted | np.where(unknown, queue > 0, past["queue"] != queue)
        reached = np.array([0.0, *self.thresholds_gpu_s])[queue]
        over_s = jobs.waiting_s + (service_gpu_s - reached) / np.maximum(jobs.gpus, 1)
        dropped_s = np.ceil(snapshot.now_s - over_s - 1e-6)  # in whole seconds, as all of Slurm's times
        return _Moves(queue, moved, np.where(promoted | (queue == 0), snapshot.now_s, dropped_s))

    def _inside(self, snapshot: Snapshot, past: Mapping[str, Floats], stay: Columns) -> Columns:
        """The keys inside a queue, by name; none for plain submission order."""
        if self.fifo_by == "start":
            return {"started_s": stay["started_s"]}
        if self.fifo_by == "arrival":
            turn = _turn(snapshot, stay)
            place = np.where(np.isnan(past["place"]) | stay["moved"], np.inf, past["place"])
            return {"turn": turn, "place": np.where(turn < WAITS, place, np.inf), "since_s": stay["since_s"]}
        return {}


@dataclass(frozen=True, slots=True, eq=False)
class _Moves:
    """queue: where each job is now. moved: whether it came there since the last quantum. moved_s: when [Unix s]."""

    queue: Int64s
    moved: Bools
    moved_s: Floats


def _stay(snapshot: Snapshot, past: Mapping[str, Floats], moves: _Moves) -> Columns:
    """How long and how each job is where it is: started_s, since_s, arrived, ran_here. (N,) each.

    started_s: first start [Unix s], infinity if none; of a job that ran before anything was remembered its submission.
    since_s: arrival at its queue [Unix s], at queue 0 the submission. arrived: since the last quantum, behind jobs
    that wait there. ran_here: since its arrival.
    """
    jobs, unknown = snapshot.jobs, np.isnan(past["queue"])
    seen_s = np.where(np.isnan(jobs.start_s), snapshot.now_s, jobs.start_s)
    first_s = np.where(jobs.running, seen_s, np.where(jobs.executed_s > 0, arrival_s(jobs), np.inf))
    waits_s = np.where(unknown, arrival_s(jobs), past["since_s"])
    since_s = np.where(moves.moved, moves.moved_s, waits_s)
    waiters = np.bincount(moves.queue[jobs.pending & ~moves.moved], minlength=int(moves.queue.max(initial=0)) + 1)
    arrived = moves.moved & ((waiters[moves.queue] > 0) | (since_s >= snapshot.now_s))
    return {
        "started_s": np.where(np.isnan(past["started_s"]), first_s, past["started_s"]),
        "since_s": since_s,
        "moved": moves.moved,
        "arrived": arrived,
        "ran_here": ~arrived & (jobs.running | moves.moved | (past["ran_here"] == 1)),
    }


def _or_zero(remembered: Floats) -> Floats:
    """What is remembered, 0 where nothing is. (N,)."""
    return np.where(np.isnan(remembered), 0.0, remembered)


def _places(order: Int64s) -> Int64s:
    """Place of each row in the order. (N,) int64."""
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places


def _turn(snapshot: Snapshot, stay: Columns) -> Int64s:
    """Where in its queue each job stands: RUNS, PREEMPTED here, WAITS since it came, ARRIVED just now. (N,) int64."""
    waits = np.where(stay["ran_here"], PREEMPTED, WAITS)
    return np.where(stay["arrived"], ARRIVED, np.where(snapshot.jobs.running, RUNS, waits))

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
RUNS, PREEMPTED, WAITS, ARRIVED = range(4)
FIFO_BY = ("start", "arrival", "submit")
_REMEMBERED = ("started_s", "queue", "since_s", "ran_here", "place", "forgiven_gpu_s", "forgiven_s")


def queue_of(service_gpu_s: Floats, thresholds_gpu_s: tuple[float, ...]) -> Int64s:
    """Queue of each job, 0 the most urgent: a job drops when it reaches a threshold. (N,) int64."""
    return np.searchsorted(np.asarray(thresholds_gpu_s, np.float64), service_gpu_s, side="right").astype(np.int64)


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
        forgiven_gpu_s = np.where(promoted, jobs.attained_gpu_s, np.nan_to_num(past["forgiven_gpu_s"]))
        service_gpu_s = np.maximum(jobs.attained_gpu_s - forgiven_gpu_s, 0.0)
        queue = queue_of(service_gpu_s, self.thresholds_gpu_s)
        stay = _stay(snapshot, past, queue, promoted)
        inside = self._inside(snapshot, past, stay)
        order = ordered(jobs, queue, *inside.values())
        now = {
            **stay,
            "queue": queue,
            "place": np.argsort(order),
            "forgiven_gpu_s": forgiven_gpu_s,
            "forgiven_s": np.where(promoted, jobs.executed_s, np.nan_to_num(past["forgiven_s"])),
        }
        why = {"queue": queue, "service_gpu_s": service_gpu_s, **inside, "promoted": promoted}
        ran = np.isfinite(stay["started_s"]) & ~jobs.finished
        kept = {name: now[name] for name in _REMEMBERED}
        return Ranking(order, why=why, carry=remember(jobs, ran, kept))

    def _starving(self, snapshot: Snapshot, past: Mapping[str, Floats]) -> Bools:
        """Waiting jobs below queue 0 that waited promote_knob times as long as they ran. (N,) bool."""
        jobs = snapshot.jobs
        if math.isinf(self.promote_knob):
            return np.zeros(len(jobs), np.bool_)
        ran_s = jobs.executed_s - np.nan_to_num(past["forgiven_s"])
        service_gpu_s = jobs.attained_gpu_s - np.nan_to_num(past["forgiven_gpu_s"])
        low = queue_of(service_gpu_s, self.thresholds_gpu_s) > 0
        return jobs.pending & low & (ran_s > 0) & (jobs.waiting_s >= self.promote_knob * ran_s)

    def _inside(self, snapshot: Snapshot, past: Mapping[str, Floats], stay: Columns) -> Columns:
        """The keys inside a queue, by name; none for plain submission order."""
        if self.fifo_by == "start":
            return {"started_s": stay["started_s"]}
        if self.fifo_by == "arrival":
            turn = _turn(snapshot, stay)
            place = np.where(np.isnan(past["place"]), np.inf, past["place"])
            return {"turn": turn, "place": np.where(turn < WAITS, place, np.inf), "since_s": stay["since_s"]}
        return {}


def _stay(snapshot: Snapshot, past: Mapping[str, Floats], queue: Int64s, promoted: Bools) -> Columns:
    """How long and how each job is where it is: started_s, since_s, arrived, ran_here. (N,) each.

    started_s: first start [Unix s], infinity if none; of a job that ran before anything was remembered its submission.
    since_s: arrival at its queue [Unix s], at queue 0 the submission. arrived: just now. ran_here: since its arrival.
    """
    jobs, unknown = snapshot.jobs, np.isnan(past["queue"])
    seen_s = np.where(np.isnan(jobs.start_s), snapshot.now_s, jobs.start_s)
    first_s = np.where(jobs.running, seen_s, np.where(jobs.executed_s > 0, arrival_s(jobs), np.inf))
    arrived = promoted | np.where(unknown, queue > 0, past["queue"] != queue)
    since_s = np.where(arrived, snapshot.now_s, np.where(unknown, arrival_s(jobs), past["since_s"]))
    return {
        "started_s": np.where(np.isnan(past["started_s"]), first_s, past["started_s"]),
        "since_s": since_s,
        "arrived": arrived,
        "ran_here": ~arrived & (jobs.running | (past["ran_here"] == 1)),
    }


def _turn(snapshot: Snapshot, stay: Columns) -> Int64s:
    """Where in its queue each job stands: RUNS, PREEMPTED here, WAITS since it came, ARRIVED just now. (N,) int64."""
    waits = np.where(stay["ran_here"], PREEMPTED, WAITS)
    return np.where(stay["arrived"], ARRIVED, np.where(snapshot.jobs.running, RUNS, waits))

"""Goodput shared fairly: sizes with the best mean of speedups over a fair share: Pollux."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np

from slurmsched.allocation.elastic import JobSizes, best_sizes, sizes_of, without_curve
from slurmsched.allocation.job_times import active, cluster_gpus
from slurmsched.allocation.size_rounds import SizeRound, gpus_now, size_ranking
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.ordering import arrival_s, ordered
from slurmsched.model.parameters import Part, Period, Range, Seconds, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION, RESIZE_BY_REQUEUE
from slurmsched.protocols import SpeedEstimator

LEAST = 1e-3  # added to each speedup, so that a job without GPUs has a value too


@dataclass(frozen=True, slots=True)
class Pollux:
    """The sizes with the best power mean of the speedups of all jobs, each over its fair share of the GPUs.

    A speedup is goodput: throughput times statistical efficiency, as `speeds` gives it. A job with hints min_gpus and
    max_gpus may have any size between them, but at most twice the most that it has had. Any other job has all its GPUs
    or none. A change of size counts less the younger the job is and the more changes it had.
    p: exponent of the mean. 1 is the sum, and the lower the fairer.
    restart_s: run time that a change of size costs, as the search counts it [s].
    interval_s: time between two changes of sizes [s].
    serial: share of a job's work that more GPUs do not speed up (Amdahl's law).
    speeds: a table replaces Amdahl's law; `profiles` with adapt = true has goodput.
    Raises ConfigError for a parameter out of range.
    Source: Qiao et al. (Pollux), OSDI '21, section 4. Ours: sizes are exact, by dynamic programming. The paper searches
    sizes and nodes together, by a genetic algorithm; here the placement chooses the nodes.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.ELASTIC,
        "Qiao et al.: Pollux, OSDI 2021",
        left_out=(
            "The genetic search over nodes: sizes are exact, and the placement chooses nodes.",
            "Interference avoidance (section 4.2.1).",
            "The agent that fits throughput while a job runs: goodput is by `speeds`.",
            "The size of a cloud cluster (section 4.2.2).",
        ),
        needs=(PolicyInput.SIZES, PolicyInput.SPEED, PolicyInput.PROGRESS),
        uses=(PolicyLever.SIZE, PolicyLever.ORDER, PolicyLever.REQUEUE, PolicyLever.START),
        on_slurm=(
            NEEDS_PREEMPTION,
            RESIZE_BY_REQUEUE,
            "The batch size is the job's own: slurmsched does not set it.",
        ),
        criteria={"given_gpus": "given {} GPUs"},
    )

    p: Annotated[float, Range(-10.0, 1.0)] = -1.0
    restart_s: Seconds = 30.0
    interval_s: Period = 60.0
    serial: Part = 0.02
    speeds: SpeedEstimator = field(default_factory=EqualSpeeds)

    def __post_init__(self) -> None:
        check_ranges(self)

    def rank(self, snapshot: Snapshot) -> Ranking:
        who, before = active(snapshot), SizeRound.of(snapshot, "pollux")
        if before.over(snapshot):
            before = before.begun(snapshot, self._given(snapshot, who, before), self.interval_s)
        order = ordered(snapshot.jobs, before.given == 0, -before.given)
        return size_ranking(snapshot, order, before, without_curve(snapshot, who, self.speeds))

    def _given(self, snapshot: Snapshot, who: Bools, before: SizeRound) -> Int64s:
        """GPUs of each job from now on. (N,)."""
        rows = ordered(snapshot.jobs)
        rows, total = rows[who[rows]], cluster_gpus(snapshot)
        sizes = sizes_of(snapshot, rows.tolist(), self.serial, self.speeds, max(total, 1))
        fair = max(-(-total // max(len(rows), 1)), 1)
        age_s = snapshot.now_s - arrival_s(snapshot.jobs)
        kept = np.maximum(age_s - before.changes * self.restart_s, 0.0) / (age_s + max(self.restart_s, 1e-9))
        kept = np.where(before.most > 0, kept, 1.0)  # a first start is no change
        now = gpus_now(snapshot)
        options = [
            self._option(each, fair, int(now[row]), int(before.most[row]), float(kept[row]))
            for row, each in zip(rows.tolist(), sizes, strict=True)
        ]
        given = np.zeros(len(snapshot.jobs), np.int64)
        given[rows] = best_sizes([gpus for gpus, _ in options], [cost for _, cost in options], total)
        return given

    def _option(self, sizes: JobSizes, fair: int, now: int, most: int, kept: float) -> tuple[Int64s, Floats]:
        """The sizes that a job may have, 0 first, and what each costs in the mean. (K,), (K,).

        now: GPUs that it has. most: that it ever had. kept: what is left of a speedup if its size changes.
        """
        known = sizes.gpus <= max(2 * most, int(sizes.gpus[0]))
        gpus, speed = np.append(0, sizes.gpus[known]), np.append(0.0, sizes.speed[known])
        base = float(sizes.speed[max(int(np.searchsorted(sizes.gpus, fair, side="right")) - 1, 0)])
        value = speed / base * np.where(gpus == now, 1.0, kept) + LEAST
        return gpus, _cost(value, self.p)

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When sizes may change next [Unix s]; infinity if there are no jobs."""
        return SizeRound.next_s(snapshot, ranking, "pollux")


def _cost(value: Floats, p: float) -> Floats:
    """What is least in sum where the power mean of the values is greatest. (K,)."""
    if p == 0:
        return np.asarray(-np.log(value))
    return np.asarray(value**p if p < 0 else -(value**p))

"""A share of its GPU time for each job in each hour, by QOS; what is over goes to elastic jobs: Singularity."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from slurmsched.allocation.job_memory import recall, remembered
from slurmsched.allocation.job_times import active, cluster_gpus
from slurmsched.allocation.size_rounds import SizeRound, elastic_jobs, gpus_now, size_ranking, unstoppable
from slurmsched.errors import ConfigError
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hints import hint_column
from slurmsched.model.ordering import arrival_s, ordered
from slurmsched.model.parameters import Period, check_ranges, named_numbers
from slurmsched.model.policy_info import NEEDS_PREEMPTION, RESIZE_BY_REQUEUE

WINDOW, BASE = "window", "window_gpu_s"  # in a carry, by job


@dataclass(frozen=True, slots=True)
class Singularity:
    """Jobs that are owed GPU time in this window go first, by guaranteed share and then by how long they can wait.

    They get what they ask for; an elastic one takes less where there is less. The others get their least size, running
    ones first. So elastic jobs shrink before any job is stopped. What is over goes to elastic jobs, one GPU at a time,
    by guaranteed share: first up to what they ask for, then up to their most. A running job with the hint preempt=no
    keeps what it holds.
    guarantees: QOS=SHARE, the share of the GPU time it asks for that a job of this QOS gets in each window; other jobs
        have no guarantee.
    window_s: length of a window, from a job's first submission on [s].
    interval_s: time between two changes of sizes [s].
    Raises ConfigError for a parameter out of range.
    Source: Shukla et al. (Singularity), arXiv 2202.07848, for GPU fractions by tier and hour, and for resizing before
    preemption. Ours: the shares of the default, the time that a job can wait as a key, growth in turn.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.ELASTIC,
        "Shukla et al.: Singularity, arXiv 2202.07848, 2022",
        left_out=(
            "Checkpoints that need nothing of the job, and several ranks on one GPU (replica splicing).",
            "Migration against fragmentation, and between clusters and regions.",
            "Inference jobs.",
        ),
        needs=(PolicyInput.SERVICE, PolicyInput.SIZES),
        uses=(PolicyLever.ORDER, PolicyLever.SIZE, PolicyLever.REQUEUE, PolicyLever.START),
        on_slurm=(
            NEEDS_PREEMPTION,
            RESIZE_BY_REQUEUE,
            "In the paper any job can be stopped and go on. On Slurm only jobs that may be requeued can, by the hint "
            "preempt=yes or as [preemption] says.",
        ),
        criteria={"given_gpus": "given {} GPUs", "owed_gpu_s": "owed {0+} in this window"},
    )

    guarantees: tuple[str, ...] = ("premium=0.95", "standard=0.7")
    window_s: Period = 3_600.0
    interval_s: Period = 300.0

    def __post_init__(self) -> None:
        check_ranges(self)
        for qos, share in self._shares().items():
            if share > 1:
                raise ConfigError(f"must be a share of at most 1, got {share:g} for {qos}", key="policy.guarantees")

    def _shares(self) -> dict[str, float]:
        return named_numbers("guarantees", self.guarantees, "QOS=SHARE")

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, who, before = snapshot.jobs, active(snapshot), SizeRound.of(snapshot, "singularity")
        shares = self._shares()
        share = jobs.qos.map(lambda qos: shares.get(qos, 0.0), np.float64)
        number, base_gpu_s = self._window(snapshot)
        owed_gpu_s = np.maximum(share * jobs.gpus * self.window_s - (jobs.attained_gpu_s - base_gpu_s), 0.0).round(3)
        order = self._order(snapshot, share, owed_gpu_s, number)
        if before.over(snapshot):
            given = _given(snapshot, order[who[order]], share, owed_gpu_s > 0)
            before = before.begun(snapshot, given, self.interval_s)
        place = np.empty(len(jobs), np.int64)
        place[order] = np.arange(len(jobs))
        ranking = size_ranking(snapshot, ordered(jobs, before.given == 0, place), before)
        carry = {**ranking.carry, **dict(remembered(jobs, {WINDOW: number, BASE: base_gpu_s}))}
        return replace(ranking, carry=carry, why={**ranking.why, "owed_gpu_s": owed_gpu_s})

    def _window(self, snapshot: Snapshot) -> tuple[Floats, Floats]:
        """Number of the window that each job is in, and its service when that began [GPU s]. (N,), (N,)."""
        jobs = snapshot.jobs
        number = np.floor(np.maximum(snapshot.now_s - arrival_s(jobs), 0.0) / self.window_s)
        known = recall(jobs, snapshot.carry, (WINDOW, BASE))
        first = np.where(number > 0, jobs.attained_gpu_s, 0.0)
        return number, np.where(known[WINDOW] == number, known[BASE], first)

    def _order(self, snapshot: Snapshot, share: Floats, owed_gpu_s: Floats, number: Floats) -> Int64s:
        """Fixed jobs, then those that are owed GPU time, then running ones, then the others. (N,)."""
        jobs, runs, owed = snapshot.jobs, gpus_now(snapshot) > 0, owed_gpu_s > 0
        ends_s = arrival_s(jobs) + (number + 1) * self.window_s - snapshot.now_s
        can_wait_s = (ends_s - owed_gpu_s / np.maximum(jobs.gpus, 1)).round(3)
        late = np.select([unstoppable(snapshot), owed, runs], [0, 1, 2], 3)
        return ordered(jobs, late, -share, np.where(owed, can_wait_s, 0.0))

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When sizes may change next [Unix s]; infinity if there are no jobs."""
        return SizeRound.next_s(snapshot, ranking, "singularity")


def _given(snapshot: Snapshot, rows: Int64s, share: Floats, owed: Bools) -> Int64s:
    """GPUs of each job from now on. rows: of active jobs, in their order. share, owed: (N,). (N,)."""
    jobs, now, elastic, free = snapshot.jobs, gpus_now(snapshot), elastic_jobs(snapshot), cluster_gpus(snapshot)
    asked = jobs.gpus.astype(np.int64)
    low, high = (
        np.where(elastic, hint_column(jobs, name), asked).astype(np.int64) for name in ("min_gpus", "max_gpus")
    )
    fixed, given = unstoppable(snapshot), np.zeros(len(jobs), np.int64)
    for row in rows.tolist():
        if fixed[row]:
            given[row] = now[row]
        elif low[row] <= free:
            most = min(max(int(asked[row]), int(low[row])), int(high[row]), free)
            given[row] = most if owed[row] else low[row]
        free = max(free - int(given[row]), 0)
    grows = rows[(elastic & ~fixed & (given > 0))[rows]]
    for top in (np.minimum(asked, high), high):
        for level in np.unique(share[grows])[::-1].tolist():
            each = grows[share[grows] == level]
            given[each], free = grown_in_turn(given[each], asked[each], top[each], free)
    return given


def grown_in_turn(given: Int64s, asked: Int64s, most: Int64s, free: int) -> tuple[Int64s, int]:
    """GPUs of each job after it grew, and GPUs still free: one at a time to the job with the least of what it asks for;
    of equals the first. given, asked, most: (J,). (J,)."""
    given = given.copy()
    while free > 0 and (more := np.flatnonzero(given < most)).size:
        part = given[more] / np.maximum(asked[more], 1)
        given[more[int(part.argmin())]] += 1
        free -= 1
    return given, free

"""Long-term GPU-time fairness of tenants, then of their jobs: Astraea."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.model import Card, Family, Input, Past, Ranking, Snapshot, Use
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.policies.cards import PREEMPTS
from slurmsched.policies.isolated import contending
from slurmsched.policies.leases import chosen, contenders, leases
from slurmsched.policies.memory import recall, remembered
from slurmsched.policies.order import arrival_s, ordered
from slurmsched.policies.ranges import Count, Patience, Seconds, check_ranges
from slurmsched.policies.stride import turns
from slurmsched.policies.tenants import Tenants, tenants

_JOB = ("deserved_gpu_s", "deserved_gpus", "at_s")  # in a carry, by job
LEAST_PAST = 20  # jobs of a size; with fewer, jobs of any size tell when a job ends (ours)


@dataclass(frozen=True, slots=True)
class Astraea:
    """The tenant that got least of the GPU time it deserved goes first, then its job that got least of its own.

    lease_s: for how long a job that got GPUs keeps them [s].
    levels: steps in which a job's ratio of received to deserved GPU time counts.
    starve_s: a job that waited so long goes before all but those in their lease [s]; inf: never.
    A tenant deserves what it demands up to its share; a job deserves an equal part of its tenant's share up to its
    GPUs. Each pick is charged to its tenant before the next one, so tenants take turns. Jobs of one level go by
    P(end within the next lease) per GPU, from jobs that ended; without those by submission.
    Raises ConfigError for a parameter out of range.
    Source: Ye et al. (Astraea), TPDS 2021, for ratios, tenants before jobs, leases of 30 minutes, 5 levels, the reward
    and the queue of starving jobs (4 hours). The bounds of the levels (equal steps up to 1) are ours.
    """

    preemptive: ClassVar[bool] = True
    learns: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        Family.FAIRNESS,
        "Ye et al.: Astraea, IEEE TPDS 2021",
        needs=(Input.SERVICE, Input.SHARES, Input.PAST),
        uses=(Use.ORDER, Use.REQUEUE),
        on_slurm=(PREEMPTS, "A lease ends with a requeue where another job is to have the GPUs; else it is renewed."),
    )

    lease_s: Seconds = 1_800.0
    levels: Count = 5
    starve_s: Patience = 14_400.0

    def __post_init__(self) -> None:
        check_ranges(self)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, book, held = snapshot.jobs, tenants(snapshot), leases(snapshot, self.lease_s)
        deserved = deserved_gpu_s(snapshot, book)
        ratio = np.divide(jobs.attained_gpu_s, deserved["deserved_gpu_s"], out=np.zeros(len(jobs)),
                          where=deserved["deserved_gpu_s"] > 0)  # fmt: skip
        level = np.minimum(np.floor(ratio * self.levels), self.levels - 1)
        reward = end_within(snapshot, self.lease_s) / np.maximum(jobs.gpus, 1)
        starving = jobs.pending & (jobs.waiting_s >= self.starve_s)
        first = np.where(held.held, 0, np.where(starving, 1, 2))
        turn = self._turns(snapshot, book, ordered(jobs, first, level, -reward))
        order = ordered(jobs, first, np.where(starving, 0.0, turn), level, -reward)
        renewed = held.renewed(chosen(snapshot, order, held.held | contenders(snapshot, held)))
        why = {"tenant_turn": turn, "level": level, "reward": reward, "in_lease": held.held, "starving": starving}
        notes = () if len(snapshot.past) else ("no job that ended is known: equal jobs go by submission",)
        return Ranking(order, why=why, carry={**remembered(jobs, renewed | deserved), **book.carry}, notes=notes)

    def _turns(self, snapshot: Snapshot, book: Tenants, own: Int64s) -> Floats:
        """Received over deserved GPU time of each job's tenant when its turn comes. (N,)."""
        lease_gpu_s = np.where(contending(snapshot), snapshot.jobs.gpus * max(self.lease_s, 1.0), 0.0)
        ahead_gpu_s = book.deserved_gpu_s + np.maximum(book.deserved_gpus * max(self.lease_s, 1.0), 1e-9)
        passes = book.received_gpu_s / ahead_gpu_s
        return turns(book.tenant, own, passes, lease_gpu_s / ahead_gpu_s[book.tenant])

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When the next lease is over, or the next job starves [Unix s]."""
        jobs, held = snapshot.jobs, leases(snapshot, self.lease_s)
        end_s = held.next_end_s(recall(jobs, ranking.carry, ("until_s",)), running)
        left_s = self.starve_s - jobs.waiting_s
        starves_s = np.min(left_s, initial=np.inf, where=jobs.pending & ~running & (left_s > 0))
        return min(end_s, snapshot.now_s + float(starves_s))


def deserved_gpu_s(snapshot: Snapshot, book: Tenants) -> dict[str, Floats]:
    """What each job deserved since it came [GPU s], and what to remember to count on. (N,) each."""
    jobs, known = snapshot.jobs, recall(snapshot.jobs, snapshot.carry, _JOB)
    counts = np.bincount(book.tenant[contending(snapshot)], minlength=len(book.names))
    part = (book.shares * book.gpus / np.maximum(counts, 1))[book.tenant]
    rate = np.where(contending(snapshot), np.minimum(jobs.gpus, part), 0.0)
    new, since_s = np.isnan(known["at_s"]), np.where(np.isnan(jobs.submit_s), snapshot.now_s, arrival_s(jobs))
    before = np.where(new, 0.0, known["deserved_gpu_s"])
    passed_s = np.maximum(snapshot.now_s - np.where(new, since_s, known["at_s"]), 0.0)
    deserved = before + passed_s * np.where(new, rate, known["deserved_gpus"])
    return dict(zip(_JOB, (deserved, rate, np.full(len(jobs), snapshot.now_s)), strict=True))


def end_within(snapshot: Snapshot, lease_s: float) -> Floats:
    """P(a job ends within lease_s more of run time, given what it ran), from jobs that ended. (N,), 0 if none tells.

    Jobs of the same GPUs tell; where there are fewer than LEAST_PAST, jobs of any size.
    """
    jobs, found = snapshot.jobs, np.zeros(len(snapshot.jobs))
    for gpus in np.unique(jobs.gpus).tolist():
        rows, times_s = jobs.gpus == gpus, _run_times(snapshot.past, gpus)
        above = np.searchsorted(times_s, jobs.executed_s[rows], side="right")
        ending = np.searchsorted(times_s, jobs.executed_s[rows] + lease_s, side="right") - above
        found[rows] = ending / np.maximum(len(times_s) - above, 1)
    return found


def _run_times(past: Past, gpus: int) -> Floats:
    same = past.gpus == gpus
    return np.sort(past.executed_s[same] if same.sum() >= LEAST_PAST else past.executed_s)

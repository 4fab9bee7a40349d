"""Long-term GPU-time fairness of tenants, then of their jobs: Astraea."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.model import Card, Family, Input, Past, Ranking, Snapshot, Use
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.policies.cards import PREEMPTS
from slurmsched.policies.isolated import contending
from slurmsched.policies.leases import Leases, chosen, contenders, leases
from slurmsched.policies.memory import recall, remembered
from slurmsched.policies.order import arrival_s, ordered
from slurmsched.policies.ranges import Count, Patience, Seconds, check_ranges
from slurmsched.policies.stride import turns
from slurmsched.policies.tenants import Tenants, tenants

_JOB = ("deserved_gpu_s", "deserved_gpus", "at_s")  # in a carry, by job
LEAST_QUOTA = 0.2  # tenants that hold less of their quota go before all others, as released
LEAST_PAST = 20  # jobs of a size; with fewer, jobs of any size tell when a job ends (ours)


@dataclass(frozen=True, slots=True)
class Astraea:
    """The tenant that got least of the GPU time it deserved goes first, then its job that got least of its own.

    lease_s: for how long a job that got GPUs keeps them [s].
    levels: steps in which a job's ratio of received to deserved GPU time counts, see level_of.
    starve_s: a job that waited so long goes before all others of its tenant but those in their lease [s]; inf: never.
    A tenant deserves what it demands up to its share; a job deserves an equal part of its tenant's share up to its
    GPUs. Each pick is charged to its tenant before the next one, so tenants take turns. A tenant that holds less than a
    fifth of its quota goes before those that hold more. Jobs of one level go by
    P(end within the next lease) per GPU, from jobs that ended; without those by submission.
    Raises ConfigError for a parameter out of range.
    Source: Ye et al. (Astraea), TPDS 2021, for ratios, tenants before jobs, leases of 30 minutes, 5 levels, the reward
    and the queue of starving jobs (4 hours); its released code (yzs981130/Astraea_Artifacts, 7720c2d) for the levels,
    the fifth of the quota and starving jobs within a tenant. What it does otherwise is told by the card.
    """

    preemptive: ClassVar[bool] = True
    learns: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        Family.FAIRNESS,
        "Ye et al.: Astraea, IEEE TPDS 2021",
        left_out=(
            "The window: the released code divides the GPU time of the last 24 hours by the quota; here it is all GPU "
            "time since the first look, by what the tenant deserved.",
            "Other quotas of the released code (static, dynamic with backfill), and jobs larger than their tenant's "
            "quota, which it drops.",
            "Stopping a run in its first minutes for a job that never ran, and holding back a tenant's other jobs "
            "behind one that does not fit.",
        ),
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
        level = level_of(ratio, self.levels)
        reward = end_within(snapshot, self.lease_s) / np.maximum(jobs.gpus, 1)
        starving = jobs.pending & (jobs.waiting_s >= self.starve_s)
        own = ordered(jobs, ~held.held, ~starving, np.where(starving, 0.0, level), np.where(starving, 0.0, -reward))
        behind, turn = self._turns(snapshot, book, own, held)
        within = np.argsort(own)  # place of a job among its tenant's
        order = ordered(jobs, ~held.held, ~behind, turn, within)
        renewed = held.renewed(chosen(snapshot, order, held.held | contenders(snapshot, held)))
        why = {
            "tenant_turn": turn,
            "below_quota": behind,
            "level": level,
            "reward": reward,
            "in_lease": held.held,
            "starving": starving,
        }
        notes = () if len(snapshot.past) else ("no job that ended is known: equal jobs go by submission",)
        return Ranking(order, why=why, carry={**remembered(jobs, renewed | deserved), **book.carry}, notes=notes)

    def _turns(self, snapshot: Snapshot, book: Tenants, own: Int64s, held: Leases) -> tuple[Bools, Floats]:
        """Whether a job's tenant has less than LEAST_QUOTA of its quota when the job's turn comes, and then that part;
        else received over deserved GPU time of its tenant at its turn. (N,), (N,)."""
        lease_s, gpus = max(self.lease_s, 1.0), np.where(contending(snapshot) & ~held.held, snapshot.jobs.gpus, 0)
        quota = np.maximum(book.shares * book.gpus, 1e-9)
        used = np.bincount(book.tenant[held.held], snapshot.jobs.gpus[held.held], len(book.names))
        part = turns(book.tenant, own, used / quota, gpus / quota[book.tenant])
        ahead_gpu_s = book.deserved_gpu_s + np.maximum(book.deserved_gpus * lease_s, 1e-9)
        turn = turns(book.tenant, own, book.received_gpu_s / ahead_gpu_s, gpus * lease_s / ahead_gpu_s[book.tenant])
        behind = (part < LEAST_QUOTA) & (gpus > 0)
        return behind, np.where(behind, part, turn)

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When the next lease is over, or the next job starves [Unix s]."""
        jobs, held = snapshot.jobs, leases(snapshot, self.lease_s)
        end_s = held.next_end_s(recall(jobs, ranking.carry, ("until_s",)), running)
        left_s = self.starve_s - jobs.waiting_s
        starves_s = np.min(left_s, initial=np.inf, where=jobs.pending & ~running & (left_s > 0))
        return min(end_s, snapshot.now_s + float(starves_s))


def level_of(ratio: Floats, levels: int) -> Floats:
    """The level of each ratio of received to deserved GPU time: 0 for a job that had nothing, else 1 to `levels`. (N,).

    Levels are narrow around a ratio of 1 and wide far from it, on a scale of log(ratio). Source: the released code.
    """
    logs = np.log(ratio, out=np.zeros(len(ratio)), where=ratio > 0).round(9)
    place = (1.0 - logs / np.sqrt(1.0 + logs * logs)) / 2.0
    return np.where(ratio > 0, np.clip(levels - np.floor(place * levels), 1, levels), 0.0)


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

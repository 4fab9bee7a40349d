"""Long-term GPU-time fairness of tenants, then of their jobs: Astraea."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.allocation.finish_time import contending
from slurmsched.allocation.job_memory import recall, remembered
from slurmsched.allocation.leases import Leases, contenders, leases, who_gets_gpus
from slurmsched.allocation.tenants import TenantService, stride_order, tenants
from slurmsched.model import Past, PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.ordering import arrival_s, ordered
from slurmsched.model.parameters import Count, Seconds, SecondsOrNever, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION

_JOB = ("deserved_gpu_s", "deserved_gpus", "at_s")  # in a carry, by job
LEAST_QUOTA = 0.2  # tenants that hold less of their quota go before all others, as released
LEAST_PAST = 20  # jobs of a size; with fewer, jobs of any size tell when a job ends (ours)


@dataclass(frozen=True, slots=True)
class Astraea:
    """The tenant that received least of its deserved GPU time goes first, then the job that received least of its own.

    A tenant deserves what it demands, up to its share. A job deserves an equal part of its tenant's share, up to its
    GPUs. Each chosen job is charged to its tenant before the next choice, so tenants take turns. A tenant that holds
    less than a fifth of its quota goes before tenants that hold more. Jobs of one level go by P(end within the next
    lease) per GPU, from jobs that ended; without such jobs by submission.
    lease_s: how long a job keeps GPUs that it got [s].
    levels: number of levels of a job's ratio of received to deserved GPU time, see level_of.
    starve_s: waiting time after which a job goes first within its tenant, behind jobs in their lease [s]; inf: never.
    Raises ConfigError for a parameter out of range.
    Source: Ye et al. (Astraea), TPDS 2021, for ratios, tenants before jobs, leases of 30 minutes, 5 levels, the reward
    and the queue of starving jobs (4 hours). Its released code (yzs981130/Astraea_Artifacts, 7720c2d) for the levels,
    the fifth of the quota, and starving jobs within a tenant.
    """

    preemptive: ClassVar[bool] = True
    learns: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.FAIRNESS,
        "Ye et al.: Astraea, IEEE TPDS 2021",
        left_out=(
            "The window of 24 hours: the released code divides the GPU time of the last 24 hours by the quota.",
            "Here all GPU time since the first cycle is divided by the time deserved.",
            "Other quotas of the released code: static, and dynamic with backfill.",
            "The released code drops jobs larger than the quota of their tenant; here they wait.",
            "The released code stops runs in their first minutes for a job that never ran, and holds back a "
            "tenant's jobs behind one that does not fit.",
        ),
        needs=(PolicyInput.SERVICE, PolicyInput.SHARES, PolicyInput.PAST),
        uses=(PolicyLever.ORDER, PolicyLever.REQUEUE),
        on_slurm=(
            NEEDS_PREEMPTION,
            "A lease ends with a requeue where another job is to have the GPUs; else it is renewed.",
        ),
        criteria={"below_quota": "tenant below its quota", "in_lease": "in its lease", "starving": "starving"},
    )

    lease_s: Seconds = 1_800.0
    levels: Count = 5
    starve_s: SecondsOrNever = 14_400.0

    def __post_init__(self) -> None:
        check_ranges(self)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, book, held_leases = snapshot.jobs, tenants(snapshot), leases(snapshot, self.lease_s)
        deserved = deserved_gpu_s(snapshot, book)
        ratio = np.divide(jobs.attained_gpu_s, deserved["deserved_gpu_s"], out=np.zeros(len(jobs)),
                          where=deserved["deserved_gpu_s"] > 0)  # fmt: skip
        level = level_of(ratio, self.levels)
        reward = end_within(snapshot, self.lease_s) / np.maximum(jobs.gpus, 1)
        starving = jobs.pending & (jobs.waiting_s >= self.starve_s)
        own = ordered(
            jobs, ~held_leases.in_force, ~starving, np.where(starving, 0.0, level), np.where(starving, 0.0, -reward)
        )
        behind, turn = self._turns(snapshot, book, own, held_leases)
        within = np.argsort(own)  # place of a job among its tenant's
        order = ordered(jobs, ~held_leases.in_force, ~behind, turn, within)
        renewed = held_leases.renewed(
            who_gets_gpus(snapshot, order, held_leases.in_force | contenders(snapshot, held_leases))
        )
        why = {
            "tenant_turn": turn,
            "below_quota": behind,
            "level": level,
            "reward": reward,
            "in_lease": held_leases.in_force,
            "starving": starving,
        }
        notes = () if len(snapshot.past) else ("no job that ended is known: equal jobs go by submission",)
        return Ranking(order, why=why, carry={**remembered(jobs, renewed | deserved), **book.carry}, notes=notes)

    def _turns(self, snapshot: Snapshot, book: TenantService, own: Int64s, held_leases: Leases) -> tuple[Bools, Floats]:
        """Whether a job's tenant has less than LEAST_QUOTA of its quota when the job's turn comes, (N,).

        And a part by which jobs go, (N,): of the quota where it has less, else received over deserved GPU time.
        """
        lease_s, gpus = (
            max(self.lease_s, 1.0),
            np.where(contending(snapshot) & ~held_leases.in_force, snapshot.jobs.gpus, 0),
        )
        quota = np.maximum(book.shares * book.gpus, 1e-9)
        used = np.bincount(book.tenant[held_leases.in_force], snapshot.jobs.gpus[held_leases.in_force], len(book.names))
        part = stride_order(book.tenant, own, used / quota, gpus / quota[book.tenant])
        ahead_gpu_s = book.deserved_gpu_s + np.maximum(book.deserved_gpus * lease_s, 1e-9)
        turn = stride_order(
            book.tenant, own, book.received_gpu_s / ahead_gpu_s, gpus * lease_s / ahead_gpu_s[book.tenant]
        )
        behind = (part < LEAST_QUOTA) & (gpus > 0)
        return behind, np.where(behind, part, turn)

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When the next lease is over, or the next job starves [Unix s]."""
        jobs, held_leases = snapshot.jobs, leases(snapshot, self.lease_s)
        end_s = held_leases.next_end_s(recall(jobs, ranking.carry, ("until_s",)), running)
        remaining_s = self.starve_s - jobs.waiting_s
        starves_s = np.min(remaining_s, initial=np.inf, where=jobs.pending & ~running & (remaining_s > 0))
        return min(end_s, snapshot.now_s + float(starves_s))


def level_of(ratio: Floats, levels: int) -> Floats:
    """The level of each ratio of received to deserved GPU time: 0 for a job that had nothing, else 1 to `levels`. (N,).

    Levels are narrow around a ratio of 1 and wide far from it, on a scale of log(ratio). Source: the released code.
    """
    logs = np.log(ratio, out=np.zeros(len(ratio)), where=ratio > 0).round(9)
    place = (1.0 - logs / np.sqrt(1.0 + logs * logs)) / 2.0
    return np.where(ratio > 0, np.clip(levels - np.floor(place * levels), 1, levels), 0.0)


def deserved_gpu_s(snapshot: Snapshot, book: TenantService) -> dict[str, Floats]:
    """GPU time that each job deserved since its submission [GPU s], and the state for the next cycle. (N,) each."""
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
    """P(a job ends within lease_s more of run time, given what it ran), from jobs that ended. (N,), 0 if there are
    none.

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

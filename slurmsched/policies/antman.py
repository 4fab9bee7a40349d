"""AntMan: guaranteed jobs on GPUs of their own, and opportunistic ones on what is idle, beside them too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.allocation.job_packing import MeasuredCosts, idlest_hosts
from slurmsched.allocation.job_times import cluster_gpus
from slurmsched.estimators.group_speeds import MURI, gpu_share, own_pairs, stage_table
from slurmsched.estimators.throughput_table import kind_of_job
from slurmsched.model import JobChanges, PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hints import hint_column, parse_hints
from slurmsched.model.ordering import arrival_s, ordered
from slurmsched.model.parameters import Part, check_ranges, check_words, named_numbers
from slurmsched.model.policy_info import ANY_PARTITION, NEEDS_PREEMPTION, NO_SHARED_GPUS
from slurmsched.resources.allocated import holding
from slurmsched.resources.startable_jobs import startable


@dataclass(frozen=True, slots=True)
class AntMan:
    """First in, first out for guaranteed jobs within the quotas of their accounts, then for opportunistic ones.

    A job with the hint `share=yes`, or of a QOS named here, is opportunistic. It gets GPUs that no guaranteed job has a
    use for. Without such it runs on those of a guaranteed job of its size: the one whose GPUs are used least, one guest
    each. When a guaranteed job needs GPUs, an opportunistic job that has them alone goes on beside somebody.
    quotas: ACCOUNT=GPUs of guaranteed jobs; accounts without one have no limit.
    opportunistic: names of QOS.
    stages: a table of stages, from which the use of GPUs comes, or "muri", which is shipped. A job whose model is not
    in it counts as one that uses its GPUs all the time, so that nobody runs beside it. So does one with `share=no`.
    measured: file of profiles with measured pairs; "" = that of the configuration. Where a pair was measured, what the
        guest loses there counts in place of the use of GPUs.
    keeps: least share of its speed, as measured, that a guaranteed job keeps beside a guest.
    Raises ConfigError for a quota that is none, InputError for a table that cannot be read.
    Source: Xiao et al. (AntMan), OSDI '20, section 4.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.SERVICE,
        "Xiao et al.: AntMan, OSDI 2020",
        left_out=(
            "The framework that shrinks the memory of opportunistic jobs and delays their kernels: replays count with "
            "it. Use of GPUs as measured: it comes from a table of stages, or from measured pairs. Guaranteed jobs "
            "over their quota wait, and do not become opportunistic.",
            ANY_PARTITION,
        ),
        needs=(PolicyInput.PROFILE,),
        uses=(PolicyLever.ORDER, PolicyLever.REQUEUE, PolicyLever.START),
        on_slurm=(NEEDS_PREEMPTION, NO_SHARED_GPUS),
        criteria={"opportunistic": "guaranteed|opportunistic", "submit_s": "submitted {at}",
                  "beside": "on GPUs of job {0+}"},
    )  # fmt: skip

    quotas: tuple[str, ...] = ()
    opportunistic: tuple[str, ...] = ()
    stages: str = MURI
    measured: str = ""
    keeps: Part = 0.9

    def __post_init__(self) -> None:
        check_ranges(self)
        named_numbers("quotas", self.quotas, '["ACCOUNT=GPUS"]')
        check_words("opportunistic", self.opportunistic)
        stage_table(self.stages)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs = snapshot.jobs
        guest = (hint_column(jobs, "share") == 1.0) | jobs.qos.isin(self.opportunistic)
        order = ordered(jobs, guest)
        able = (holding(jobs) | startable(snapshot)) & (jobs.gpus > 0)
        within = self._within_quota(snapshot, order, able & ~guest)
        waits = able & ~guest & ~within
        use, seen = self._gpu_share(snapshot), self._measured_costs(snapshot)
        host = idlest_hosts(snapshot, order, able & ~waits, guest, use, seen)
        start_s = np.where(waits, np.inf, -np.inf)
        why = {"opportunistic": guest.astype(np.int64), "submit_s": arrival_s(jobs), "beside": host}
        return Ranking(order, why=why, changes=JobChanges(beside=host, start_s=start_s))

    def _within_quota(self, snapshot: Snapshot, order: Int64s, guaranteed: Bools) -> Bools:
        """The guaranteed jobs whose account has GPUs for them beside those before them; running ones first. (N,)."""
        jobs, found = snapshot.jobs, np.zeros(len(guaranteed), np.bool_)
        free = named_numbers("quotas", self.quotas, '["ACCOUNT=GPUS"]')
        runs, all_gpus = holding(jobs), cluster_gpus(snapshot)
        for row in [*order[(guaranteed & runs)[order]].tolist(), *order[(guaranteed & ~runs)[order]].tolist()]:
            account, gpus = jobs.account[row], int(jobs.gpus[row])
            if runs[row] or gpus <= free.get(account, all_gpus):
                found[row] = True
                if account in free:
                    free[account] -= gpus
        return found

    def _measured_costs(self, snapshot: Snapshot) -> MeasuredCosts | None:
        """What the daemon measured of guests beside hosts; None without a file. A job with share=no is not measured."""
        if not self.measured:
            return None
        jobs, found = snapshot.jobs, dict[int, dict[tuple[str, str], float]]()
        for gpus in set(jobs.gpus.tolist()):
            kept = own_pairs(self.measured, gpus)
            found[gpus] = {(guest, host): 1.0 - min(share, 1.0) if kept[host, guest] >= self.keeps else np.inf
                           for (guest, host), share in kept.items() if (host, guest) in kept}  # fmt: skip
        hosts = {gpus: {host for _, host in pairs} for gpus, pairs in found.items()}
        alone = (hint_column(jobs, "share") == 0.0).tolist()
        kinds = [kind_of_job(jobs, row) for row in range(len(jobs))]
        rows = zip(kinds, jobs.gpus.tolist(), alone, strict=True)
        return MeasuredCosts(["" if lone or kind not in hosts[gpus] else kind for kind, gpus, lone in rows], found)

    def _gpu_share(self, snapshot: Snapshot) -> Floats:
        """Part of the time that each job uses its GPUs; 1 where that is not known, and with share=no. (N,)."""
        jobs = snapshot.jobs
        kinds = (parse_hints(comment).model or "" for comment in jobs.comment)
        pairs = zip(kinds, jobs.gpus.tolist(), strict=True)
        found = np.array([gpu_share(self.stages, kind, gpus) for kind, gpus in pairs], np.float64)
        return np.where(hint_column(jobs, "share") == 0.0, 1.0, found)

"""Slowdown and finish-time fairness of tenants, and who gains or loses under another schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.errors import InputError
from slurmsched.kernels.isolated_share import ends_alone
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s, Labels
from slurmsched.model.job_outcomes import JobOutcomes
from slurmsched.model.trace import Trace

# Bounded slowdown: below it a run time says more of the cluster than of the job. Feitelson et al., JSSPP 1997.
SLOWDOWN_FLOOR_S = 10.0
LEAST_CHANGE_S = 1e-3  # of a mean wait; less is rounding


@dataclass(frozen=True, slots=True, eq=False)
class JobTenants:
    """Whose each job of a trace is. code: (J,) int32, a place in names. of: user, account, or job if none is known."""

    of: str
    code: Int32s
    names: tuple[str, ...]

    @classmethod
    def find(cls, trace: Trace, by: str = "auto", source: str = "") -> JobTenants:
        """Tenants by user, else by account, else each job for itself. Raises InputError if `by` is not recorded."""
        wanted = ("user", "account") if by == "auto" else (by,)
        for name in wanted:
            labels: Labels = getattr(trace, name)
            if labels.any_text:
                return cls(name, labels.codes, labels.names)
        if by != "auto":
            raise InputError(f"does not have the {by} of its jobs; leave out --by", source=source)
        return cls("job", np.arange(len(trace), dtype=np.int32), ())

    def mean(self, values: Floats, chosen: Bools) -> Floats:
        """Mean over the chosen jobs of each tenant, NaN of none; values: (chosen jobs,). (T,)."""
        count = np.bincount(self.code[chosen], minlength=len(self.names))
        total = np.bincount(self.code[chosen], values, len(self.names))
        return np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)


def jct_alone_s(trace: Trace, tenants: JobTenants, cluster_gpus: int) -> Floats:
    """JCT of each job if every tenant had 1/n of the GPUs for itself, n = tenants of the trace with GPU jobs [s]. (J,).

    NaN of jobs without GPUs, and where each job is its own tenant. kernels.isolated_share says how a tenant uses its
    share.
    """
    alone_s = np.full(len(trace), np.nan)
    if not tenants.names:
        return alone_s
    holding = np.flatnonzero(trace.gpus > 0)
    order = holding[np.argsort(tenants.code[holding], kind="stable")]
    with_jobs, first = np.unique(tenants.code[order], return_index=True)
    for rows in np.split(order, first[1:]):
        submit_s, share = trace.submit_s[rows], cluster_gpus / len(with_jobs)
        alone_s[rows] = ends_alone(submit_s, trace.gpus[rows], trace.duration_s[rows], share) - submit_s
    return alone_s


def jain(values: Floats) -> float:
    """Jain's index: 1 if all are equal, 1/n if one has everything; NaN of none.

    Source: Jain, Chiu and Hawe, DEC-TR-301, 1984.
    """
    return float(values.sum() ** 2 / (len(values) * (values**2).sum())) if len(values) else np.nan


@dataclass(frozen=True, slots=True, eq=False)
class FairnessFigures:
    """How tenants fare, over the jobs that ended.

    slowdown: mean of a tenant's jobs (T,).
    rho: shared over isolated JCT, summed over its jobs (T,), empty if each job is its own tenant.
    """

    tenants: JobTenants
    slowdown: Floats
    rho: Floats

    @classmethod
    def of(cls, trace: Trace, tenants: JobTenants, alone_s: Floats, outcomes: JobOutcomes) -> FairnessFigures:
        """alone_s: of jct_alone_s."""
        done = np.isin(trace.job_id, outcomes.job_id)
        slowdown = np.maximum(outcomes.jct_s / np.maximum(trace.duration_s[done], SLOWDOWN_FLOOR_S), 1.0)
        if not tenants.names:
            return cls(tenants, slowdown, slowdown[:0])
        shared_s, isolated_s = tenants.mean(outcomes.jct_s, done), tenants.mean(alone_s[done], done)
        rho = np.divide(shared_s, isolated_s, out=np.full(len(tenants.names), np.nan), where=isolated_s > 0)
        return cls(tenants, tenants.mean(slowdown, done), rho)

    def figures(self) -> dict[str, Any]:
        """For JSON; None where nothing is known."""
        here = np.flatnonzero(~np.isnan(self.rho))
        worst = int(here[np.argmax(self.rho[here])]) if len(here) else -1
        return {
            "of": self.tenants.of,
            "tenants": len(self.slowdown),
            "jain_slowdown": jain(self.slowdown[~np.isnan(self.slowdown)]),
            "mean_rho": float(self.rho[here].mean()) if len(here) else None,
            "max_rho": float(self.rho[worst]) if len(here) else None,
            "max_rho_tenant": self.tenants.names[worst] if len(here) else None,
        }


@dataclass(frozen=True, slots=True)
class TenantChange:
    """What another schedule changes for a tenant: mean queueing delay of its jobs before and after [s]."""

    tenant: str
    jobs: int
    gpu_hours: float
    wait_before_s: float
    wait_after_s: float

    @property
    def change_s(self) -> float:
        return self.wait_after_s - self.wait_before_s


def tenant_changes(trace: Trace, tenants: JobTenants, before: JobOutcomes, after: JobOutcomes) -> list[TenantChange]:
    """One a tenant whose mean wait differs, most gained first, over jobs that ended in both; none without tenants."""
    if not tenants.names:
        return []
    ours, theirs = ended_in_both(after, before), ended_in_both(before, after)
    both = np.isin(trace.job_id, before.job_id[theirs])
    waits = [tenants.mean(done.delay_s[rows], both) for done, rows in ((before, theirs), (after, ours))]
    jobs = np.bincount(tenants.code[both], minlength=len(tenants.names))
    used = np.bincount(tenants.code[both], trace.gpu_s[both], len(tenants.names)) / 3600
    made = _changes_of(tenants.names, jobs, used, waits)
    return sorted(made, key=lambda change: (change.change_s, change.tenant))


def _changes_of(names: Sequence[str], jobs: Int64s, used: Floats, waits: list[Floats]) -> list[TenantChange]:
    differs = np.flatnonzero(np.abs(waits[1] - waits[0]) > LEAST_CHANGE_S)  # NaN does not
    return [TenantChange(names[t], int(jobs[t]), float(used[t]), float(waits[0][t]), float(waits[1][t]))
            for t in differs.tolist()]  # fmt: skip


def ended_in_both(ours: JobOutcomes, theirs: JobOutcomes) -> Bools:
    """Which of our jobs ended in their replay too. (J,) bool."""
    return np.isin(ours.job_id, theirs.job_id)

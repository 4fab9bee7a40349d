"""The figures of a report, ready for JSON; the page shows these and no others. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from math import isfinite
from typing import Any

import numpy as np

from slurmsched.db.ledger_queries import PlacementFacts, operation_totals
from slurmsched.model.columns import Bools, Floats, Int64s, Labels
from slurmsched.model.durations import DAY_S
from slurmsched.model.gpu_use import gpu_use_sums, sum_records
from slurmsched.model.job_outcomes import SIZE_CLASSES, JobOutcomes, in_size_class
from slurmsched.model.trace import Trace
from slurmsched.observe.fairness import FairnessFigures, JobTenants, jct_alone_s
from slurmsched.observe.report.report_input import SACCT, ReportedJobs, ReportInput
from slurmsched.observe.survey.gpu_overview import gpu_overview
from slurmsched.resources.startable_jobs import not_waiting_for_gpus

MOST_PERIODS = 14
MOST_ROWS = 50  # of tenants, operations and missed placements
UNKNOWN = "(unknown)"


def report_figures(of: ReportInput) -> dict[str, Any]:
    """All of them. Times in seconds, shares from 0 to 1, None where nothing is known."""
    jobs = of.jobs
    started = jobs.started_in(of.since_s, of.until_s)
    return {
        "cluster": of.cluster, "policy": of.policy, "since_s": of.since_s, "until_s": of.until_s, "source": of.source,
        "assumptions": assumptions(of), "unread": list(of.unread),
        "switched_s": of.switched_s if isfinite(of.switched_s) else None,
        "gpus": of.gpus or None, "started": int(started.sum()), "utilisation": utilisation(of, of.since_s, of.until_s),
        "gpu_hours": float(jobs.gpu_s_in(of.since_s, of.until_s).sum()) / 3600,
        "waits": waits_by_size(jobs, started), "waiting": waiting(of),
        "periods": [_period(of, name, from_s, to_s) for name, from_s, to_s in periods(of)],
        "accounts": tenants(of, jobs.account), "users": tenants(of, jobs.user), "fairness": fairness(of),
        **_cluster(of), "operations": _operations(of), "placement": _placement(of),
        "cycles": asdict(of.cycles) if of.cycles else {},
        "gpu_use": _gpu_use(of),
    }  # fmt: skip


def assumptions(of: ReportInput) -> list[str]:
    """What the figures rest on, as text, in the order of the line that `compare` has: model, cost of a preemption,
    limits, window."""
    whose = "Slurm's accounting" if of.source == SACCT else "slurmsched's ledger"
    return [
        f"no model: jobs as recorded by {whose}", "preemption: work lost as the ledger has it",
        "waits from the first submission, time limits play no part", "jobs that started in the span count",
    ]  # fmt: skip


def spread(values_s: Floats) -> dict[str, Any] | None:
    """Mean, median, p90 and the longest, None without values. Percentiles interpolate linearly."""
    if not len(values_s):
        return None
    p50, p90 = np.percentile(values_s, (50, 90))
    return {"jobs": len(values_s), "mean_s": float(values_s.mean()), "p50_s": float(p50), "p90_s": float(p90),
            "longest_s": float(values_s.max())}  # fmt: skip


def waits_by_size(jobs: ReportedJobs, chosen: Bools) -> dict[str, dict[str, Any] | None]:
    """Waits of the chosen jobs by GPUs held, and of all."""
    return _sizes(jobs.gpus[chosen], jobs.wait_s[chosen])


def waiting(of: ReportInput) -> dict[str, dict[str, Any] | None] | None:
    """How long jobs and tasks of arrays wait so far for GPUs; None where Slurm did not answer.

    Waits of jobs that started do not include jobs that still wait. The wait of a job that ran already begins at its
    requeue.
    """
    if of.snapshot is None:
        return None
    jobs, now_s = of.snapshot.jobs, of.snapshot.now_s
    may = jobs.pending & ~jobs.held & (jobs.gpus > 0) & ~(jobs.eligible_s > now_s) & ~not_waiting_for_gpus(jobs)
    here = jobs.take(np.flatnonzero(may & jobs.dependency.isin([""])))
    again = np.isnan(here.first_submit_s) | (here.restarts > 0)
    since_s = np.where(again, here.submit_s, here.first_submit_s)
    tasks = np.maximum(here.array_tasks, 1)
    return _sizes(np.repeat(here.gpus, tasks).astype(np.int64), np.repeat(np.maximum(now_s - since_s, 0.0), tasks))


def _sizes(gpus: Int64s, wait_s: Floats) -> dict[str, dict[str, Any] | None]:
    found = {name: spread(wait_s[in_size_class(gpus, least, most)]) for name, least, most in SIZE_CLASSES}
    return found | {"all": spread(wait_s)}


def periods(of: ReportInput) -> list[tuple[str, float, float]]:
    """Before and with slurmsched, where it began to write in the span; else days, or weeks of a longer span."""
    if of.since_s < of.switched_s < of.until_s:
        return [("before", of.since_s, of.switched_s), ("with slurmsched", of.switched_s, of.until_s)]
    step_s = DAY_S if of.until_s - of.since_s <= MOST_PERIODS * DAY_S else 7 * DAY_S
    ends = np.arange(of.until_s, of.since_s + 1.0, -step_s)[::-1]
    return [(f"{datetime.fromtimestamp(max(end - step_s, of.since_s), UTC):%Y-%m-%d %H:%M}",
             max(float(end) - step_s, of.since_s), float(end)) for end in ends]  # fmt: skip


def utilisation(of: ReportInput, from_s: float, to_s: float) -> float | None:
    """Share of the GPUs there are now that jobs held in the span; None where their number is not known."""
    offered = of.gpus * (to_s - from_s)
    return float(of.jobs.gpu_s_in(from_s, to_s).sum()) / offered if offered > 0 else None


def tenants(of: ReportInput, names: Labels) -> list[dict[str, Any]]:
    """One row a tenant, most GPU time first: jobs started, GPU hours, share, waits before and with slurmsched."""
    jobs, total = of.jobs, 0.0
    gpu_s = jobs.gpu_s_in(of.since_s, of.until_s)
    started = jobs.started_in(of.since_s, of.until_s)
    total = float(gpu_s.sum())
    rows = [_tenant(of, name, names.codes == code, gpu_s, started, total) for code, name in enumerate(names.names)]
    shown = [row for row in rows if row["jobs"] or row["gpu_hours"] > 0]
    return sorted(shown, key=lambda row: (-row["gpu_hours"], row["name"]))[:MOST_ROWS]


def _tenant(of: ReportInput, name: str, mine: Bools, gpu_s: Floats, started: Bools, total: float) -> dict[str, Any]:
    wait_s, begun = of.jobs.wait_s, mine & started
    parts = {
        key: _mean(wait_s[mine & of.jobs.started_in(from_s, to_s)])
        for key, (label, from_s, to_s) in zip(("before_s", "after_s"), periods(of), strict=False)
        if label in ("before", "with slurmsched")
    }
    held = float(gpu_s[mine].sum())
    found = spread(wait_s[begun]) or {}
    return {
        "name": name or UNKNOWN, "jobs": int(begun.sum()), "gpu_hours": held / 3600,
        "share": held / total if total else None, "mean_s": found.get("mean_s"), "p90_s": found.get("p90_s"),
        "before_s": parts.get("before_s"), "after_s": parts.get("after_s"),
    }  # fmt: skip


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def fairness(of: ReportInput) -> dict[str, Any] | None:
    """Fairness over the jobs that began and ended in the span, by user or account; None with fewer than two tenants."""
    jobs = of.jobs
    whole = jobs.take(np.flatnonzero(jobs.started_in(of.since_s, of.until_s) & jobs.ended & (jobs.executed_s > 0)))
    if not len(whole) or not of.gpus or max(len(set(whole.user)), len(set(whole.account))) < 2:
        return None
    trace = Trace.of(np.arange(len(whole)), whole.gpus, whole.submit_s, whole.executed_s, user=whole.user,
                     account=whole.account)  # fmt: skip
    rows = whole.take(np.lexsort((np.arange(len(whole)), whole.submit_s)))
    who = JobTenants.find(trace)
    outcomes = JobOutcomes(trace.job_id, trace.gpus, trace.submit_s, rows.start_s, rows.end_s, rows.executed_s,
                        rows.executed_s, np.zeros(len(rows), np.int64), of.gpus)  # fmt: skip
    return FairnessFigures.of(trace, who, jct_alone_s(trace, who, of.gpus), outcomes).figures() | {"jobs": len(whole)}


def _period(of: ReportInput, name: str, from_s: float, to_s: float) -> dict[str, Any]:
    waits = waits_by_size(of.jobs, of.jobs.started_in(from_s, to_s))
    means = {size: found["mean_s"] if found else None for size, found in waits.items()}
    every = waits["all"]
    return {"name": name, "from_s": from_s, "to_s": to_s, "jobs": every["jobs"] if every else 0, "mean_s": means,
            "p90_s": every["p90_s"] if every else None, "utilisation": utilisation(of, from_s, to_s)}  # fmt: skip


def _cluster(of: ReportInput) -> dict[str, Any]:
    """GPUs now by type, and stranded ones with cause and owners."""
    if of.snapshot is None:
        return {"types": [], "stranded": []}
    look = gpu_overview(of.snapshot)
    types = [{"name": one.name, "gpus": one.gpus, "free": one.free, "stranded": one.stranded, "used": one.used,
              "drained": one.drained, "down": one.down, "boot": one.boot, "unread": one.unread,
              "whole_nodes": one.whole, "linked_sets": {str(gpus): nodes for gpus, nodes in one.sets.items()},
              "unknown_sets": one.unknown}
             for one in look.types]  # fmt: skip
    stuck = [{"node": one.node, "gpus": one.gpus, "cause": one.cause,
              "holders": [{"job_id": job.job_id, "user": job.user, "cpus": float(job.cpus),
                           "memory_gib": float(job.memory_mib) / 1024, "gpus": job.gpus} for job in one.holders[:3]]}
             for one in look.stranded]  # fmt: skip
    return {"types": types, "stranded": stuck}


def _operations(of: ReportInput) -> dict[str, Any]:
    """Preemptions and gang reservations: what they cost, those of dry-runs apart; the latest first."""
    names = (
        "begun_s",
        "purpose",
        "operation",
        "job_id",
        "user",
        "gpus",
        "stage",
        "victims",
        "lost_gpu_s",
        "idle_gpu_s",
    )
    rows = [{name: getattr(each, name) for name in names} for each in reversed(of.operations) if not each.dry_run]
    done, would_have = (asdict(operation_totals(of.operations, dry_run)) for dry_run in (False, True))
    return {"done": done, "would_have": would_have, "rows": rows[:MOST_ROWS]}


def _placement(of: ReportInput) -> dict[str, Any]:
    """Bandwidth of jobs of several GPUs over the best possible, by number of GPUs; the worst misses first."""
    rows = of.placements
    sizes = [_bandwidth_figures(name, [row for row in rows if least <= row.gpus <= (most or row.gpus)])
             for name, least, most in SIZE_CLASSES[1:]]  # fmt: skip
    missed = sorted((row for row in rows if row.note), key=lambda row: (row.ratio, row.job_id))
    names = ("start_s", "job_id", "gpus", "nodes", "ratio", "note")
    return {
        "sizes": [one for one in sizes if one],
        "missed": [{name: getattr(row, name) for name in names} for row in missed[:MOST_ROWS]],
    }


def _gpu_use(of: ReportInput) -> dict[str, Any] | None:
    """Measured use of GPUs by account, user and type, most unused GPU hours first; None: not measured."""
    if of.gpu_use is None:
        return None
    known = sum(one.job_id in of.gpu_use.by_job for one in of.gpu_jobs)
    return {"source": of.gpu_use.source, "jobs": len(of.gpu_jobs), "measured": known} | {
        f"{by}s": sum_records(gpu_use_sums(of.gpu_jobs, of.gpu_use, by)[:MOST_ROWS], by)
        for by in ("account", "user", "type")
    }


def _bandwidth_figures(name: str, rows: Sequence[PlacementFacts]) -> dict[str, Any] | None:
    if not rows:
        return None
    return {
        "gpus": name, "jobs": len(rows), "mean_ratio": float(np.mean([row.ratio for row in rows])),
        "missed": sum(bool(row.note) for row in rows), "pinned": sum(row.pinned for row in rows),
    }  # fmt: skip

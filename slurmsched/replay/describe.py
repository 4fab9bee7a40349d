"""What the papers on GPU clusters ask of a trace: sizes, durations, waits, outcomes, users, hours, use.

Sources of the questions: Jeon et al., USENIX ATC '19 (Philly); Hu et al., SC '21 (Helios); Weng et al., NSDI '22 and
Wang et al., IISWC '19 (PAI).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.model.columns import Bools
from slurmsched.replay.metrics import SIZE_CLASSES, of_size
from slurmsched.replay.trace_files import Recorded
from slurmsched.replay.trace_stats import (
    distinct,
    has,
    has_waits,
    in_use,
    mean,
    percent,
    percentile,
    spread,
    tasks,
    times_run,
    top,
    wall_clock_s,
)  # fmt: skip
from slurmsched.replay.traces import Trace
from slurmsched.words import some

HOUR_S, DAY_S, WEEK_S = 3_600.0, 86_400.0, 604_800.0
EPOCH_WEEKDAY = 3  # 1970-01-01 was a Thursday, Monday is 0
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
LENGTHS = (("< 1 min", 0.0, 60.0), ("1-10 min", 60.0, 600.0), ("10-60 min", 600.0, HOUR_S),
           ("1-12 h", HOUR_S, 12 * HOUR_S), ("12-24 h", 12 * HOUR_S, DAY_S), ("1-7 d", DAY_S, WEEK_S),
           ("> 7 d", WEEK_S, np.inf))  # fmt: skip
PERCENTILES = (10, 25, 50, 75, 90, 95, 99)
TOP_USERS = (1, 5, 10, 20)  # per cent of the users
RECURRENT = 5  # runs of one task from which PAI calls it recurrent


@dataclass(frozen=True, slots=True)
class Section:
    """One table. columns: names with unit; rows: plain values, NaN where nothing is known. note: for people."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""

    def records(self) -> list[dict[str, Any]]:
        """One mapping a row, for JSON."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def describe(recorded: Recorded, cluster_gpus: int = 0) -> list[Section]:
    """All tables that the trace has the columns for. cluster_gpus: size of the cluster, 0 if unknown."""
    trace = recorded.trace
    sections = [overview(recorded), sizes(trace), lengths(trace)]
    if has_waits(trace):
        sections += [waits(trace), use(trace, cluster_gpus)]
    if has(trace.state):
        sections.append(outcomes(trace))
    if trace.requeues.any():
        sections.append(retries(trace))
    if has(trace.user):
        sections += [users(trace), recurrence(trace)]
    if not np.isnan(recorded.origin_s):
        sections += [hours(recorded), weekdays(recorded)]
    return sections


def figures(recorded: Recorded) -> dict[str, float]:
    """Single figures by name: the overview, and what papers give in one number. NaN where the trace cannot tell."""
    trace, wait_s = recorded.trace, recorded.trace.wait_s
    states = {word: trace.state.isin(names) for word, names in OUTCOMES.items()} if has(trace.state) else {}
    share = {f"{word}_pct": percent(chosen) for word, chosen in states.items()}
    gpu_share = {f"{word}_gpu_pct": percent(chosen, trace.gpu_s) for word, chosen in states.items()}
    return {
        "jobs": float(len(trace)),
        "span_days": float(np.ptp(trace.submit_s)) / DAY_S,
        "gpu_hours": float(trace.gpu_s.sum()) / HOUR_S,
        "users": distinct(trace.user),
        "accounts": distinct(trace.account),
        "mean_gpus": float(trace.gpus.mean()),
        "largest_gpus": float(trace.gpus.max()),
        "single_gpu_pct": percent(trace.gpus == 1),
        "partial_gpu_pct": percent(trace.gpu_share < 1),
        "mean_duration_s": float(trace.duration_s.mean()),
        "median_duration_s": float(np.median(trace.duration_s)),
        "longest_duration_s": float(trace.duration_s.max()),
        "over_a_week_pct": percent(trace.duration_s > WEEK_S),
        "mean_wait_s": mean(wait_s),
        "median_wait_s": percentile(wait_s, 50),
        "requeued_pct": percent(trace.requeues > 0),
        "recurrent_pct": percent(times_run(trace) >= RECURRENT) if has(trace.user) else np.nan,
        **{f"{word}{kind}": np.nan for word in OUTCOMES for kind in ("_pct", "_gpu_pct")},
        **share,
        **gpu_share,
    }


# the papers' three ends: completed; ended by its user; ended by an error or a limit
OUTCOMES = {
    "completed": ("COMPLETED",),
    "cancelled": ("CANCELLED", "REVOKED"),
    "failed": ("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "PREEMPTED"),
}


def overview(recorded: Recorded) -> Section:
    """The single figures."""
    rows = tuple((name, value) for name, value in figures(recorded).items())
    return Section("overview", f"Overview ({recorded.kind})", ("measure", "value"), rows)


def sizes(trace: Trace) -> Section:
    """By GPUs asked for: share of jobs and of GPU time, run time, wait."""
    columns = ("GPUs", "jobs", "jobs %", "GPU time %", "run mean s", "run p50 s", "run p95 s", "wait mean s",
               "wait p50 s", "wait p95 s")  # fmt: skip
    rows = [(name, *_class_row(trace, of_size(trace.gpus, least, most))) for name, least, most in SIZE_CLASSES]
    return Section("sizes", "By size", columns, tuple(rows))


def lengths(trace: Trace) -> Section:
    """By run time: share of jobs and of GPU time, and the wait of each class."""
    columns = ("run time", "jobs", "jobs %", "GPU time %", "run mean s", "run p50 s", "run p95 s", "wait mean s",
               "wait p50 s", "wait p95 s")  # fmt: skip
    within = [(name, (trace.duration_s >= least) & (trace.duration_s < most)) for name, least, most in LENGTHS]
    return Section("lengths", "By run time", columns, tuple((name, *_class_row(trace, rows)) for name, rows in within))


def waits(trace: Trace) -> Section:
    """Percentiles of run time, wait, and wait over completion time."""
    jct_s = trace.wait_s + trace.duration_s
    part = 100 * trace.wait_s / np.where(jct_s > 0, jct_s, np.nan)
    rows = [(f"p{p}", percentile(trace.duration_s, p), percentile(trace.wait_s, p), percentile(part, p))
            for p in PERCENTILES]  # fmt: skip
    return Section("waits", "Run time and wait", ("percentile", "run s", "wait s", "wait / JCT %"), tuple(rows))


def outcomes(trace: Trace) -> Section:
    """How jobs ended: share of jobs and of GPU time."""
    columns = ("state", "jobs", "jobs %", "GPU time %", "run p50 s", "mean GPUs", "mean requeues")
    rows = []
    for state in trace.state.names:
        chosen = trace.state.isin([state])
        rows.append((state or "unknown", int(chosen.sum()), percent(chosen), percent(chosen, trace.gpu_s),
                     percentile(trace.duration_s[chosen], 50), mean(trace.gpus[chosen]),
                     mean(trace.requeues[chosen])))  # fmt: skip
    return Section("outcomes", "Outcomes", columns, tuple(sorted(rows, key=lambda row: -row[1])))


def retries(trace: Trace) -> Section:
    """Requeues and retries by size."""
    rows = []
    for name, least, most in SIZE_CLASSES:
        chosen = of_size(trace.gpus, least, most)
        again = trace.requeues[chosen]
        rows.append((name, int(chosen.sum()), percent(again > 0), mean(again), int(again.max(initial=0))))
    return Section("retries", "Requeues by size", ("GPUs", "jobs", "requeued %", "mean", "most"), tuple(rows))


def users(trace: Trace) -> Section:
    """What the busiest users submit and use."""
    jobs = np.bincount(trace.user.codes)
    used = np.bincount(trace.user.codes, trace.gpu_s)
    rows = []
    for part in TOP_USERS:
        count = max(round(len(jobs) * part / 100), 1)
        rows.append((f"top {part} %", count, 100 * top(jobs, count), 100 * top(used, count)))
    note = some(len(jobs), "user")
    return Section("users", "Users", ("users", "count", "of jobs %", "of GPU time %"), tuple(rows), note)


def recurrence(trace: Trace) -> Section:
    """How often the same task (user, name or model, GPUs) comes back, and how alike its run times are."""
    task, times = tasks(trace)
    rows = []
    for least in (2, RECURRENT, 20):
        chosen = times[task] >= least
        rows.append((f">= {least} times", int((times >= least).sum()), percent(chosen), spread(trace, task, chosen)))
    columns = ("task comes", "tasks", "of jobs %", "run time sd / mean, median")
    return Section("recurrence", "Tasks that come back", columns, tuple(rows))


def hours(recorded: Recorded) -> Section:
    """Submissions by hour of the day on the site's clock: mean a day, and mean GPUs asked for."""
    clock_s = wall_clock_s(recorded)
    hour = (clock_s // HOUR_S % 24).astype(np.int64)
    days = max(np.ptp(clock_s) / DAY_S, 1.0)
    jobs, gpus = np.bincount(hour, minlength=24), np.bincount(hour, recorded.trace.gpus, minlength=24)
    rows = tuple((h, float(jobs[h]) / days, float(gpus[h]) / max(int(jobs[h]), 1)) for h in range(24))
    return Section("hours", "Submissions by hour of the day", ("hour", "jobs a day", "mean GPUs"), rows)


def weekdays(recorded: Recorded) -> Section:
    """Submissions by day of the week."""
    day = ((wall_clock_s(recorded) // DAY_S).astype(np.int64) + EPOCH_WEEKDAY) % 7
    jobs = np.bincount(day, minlength=7)
    rows = tuple((WEEKDAYS[d], int(jobs[d]), 100 * float(jobs[d]) / len(day)) for d in range(7))
    return Section("weekdays", "Submissions by day of the week", ("day", "jobs", "jobs %"), rows)


def use(trace: Trace, cluster_gpus: int) -> Section:
    """GPUs in use over time, by recorded starts. Runs of a requeued job count from its first start on, back to back."""
    times_s, held = in_use(trace)
    length_s = np.diff(times_s)
    lasting = np.flatnonzero(length_s)  # nobody holds GPUs between two events of one time
    order = lasting[np.argsort(held[lasting], kind="stable")]
    passed = np.cumsum(length_s[order]) / max(length_s.sum(), 1e-9)
    rows = [("mean", float((held[:-1] * length_s).sum() / max(length_s.sum(), 1e-9)))]
    for p in (50, 95, 100):
        at = min(int(np.searchsorted(passed, p / 100)), len(order) - 1)
        rows.append((f"p{p}" if p < 100 else "most", float(held[order[at]]) if len(order) else 0.0))
    total = cluster_gpus or np.nan
    made = tuple((name, gpus, 100 * gpus / total) for name, gpus in rows)
    return Section("use", "GPUs in use", ("over time", "GPUs", "of the cluster %"), made)


def _class_row(trace: Trace, chosen: Bools) -> tuple[Any, ...]:
    run_s, wait_s = trace.duration_s[chosen], trace.wait_s[chosen]
    return (int(chosen.sum()), percent(chosen), percent(chosen, trace.gpu_s), mean(run_s), percentile(run_s, 50),
            percentile(run_s, 95), mean(wait_s), percentile(wait_s, 50), percentile(wait_s, 95))  # fmt: skip

"""Statistics of a trace: numbers, tables, and published figures beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.columns import Bools, Floats, Int64s, Labels
from slurmsched.model.durations import DAY_S, HOUR_S, WEEK_S
from slurmsched.model.job_outcomes import SIZE_CLASSES, in_size_class
from slurmsched.model.trace import RecordedTrace, Trace
from slurmsched.plain_text import pluralize


def in_use(trace: Trace) -> tuple[Floats, Floats]:
    """Times [s] and the GPUs held from each until the next. Both (T,), T >= 2, times ascending."""
    known = ~np.isnan(trace.start_s)
    start_s, gpus = trace.start_s[known], (trace.gpus * trace.gpu_share)[known]
    times_s = np.concatenate([start_s, start_s + trace.duration_s[known]])
    change = np.concatenate([gpus, -gpus])
    order = np.argsort(times_s, kind="stable")
    return times_s[order], np.maximum(np.cumsum(change[order]), 0.0)


def wall_clock_s(recorded: RecordedTrace) -> Floats:
    """Submissions on the site's clock, as if it were UTC [Unix s]. (J,)."""
    return recorded.trace.submit_s + recorded.origin_s + recorded.utc_offset_s


def has_waits(trace: Trace) -> bool:
    """Whether any start was recorded."""
    return bool((~np.isnan(trace.start_s)).any())


def percent_of(chosen: Bools, weight: Floats | None = None) -> float:
    """Weighted share of the chosen rows [%], NaN of none."""
    total = float(len(chosen) if weight is None else weight.sum())
    part = float(chosen.sum() if weight is None else weight[chosen].sum())
    return 100 * part / total if total else np.nan


def known_mean(values: Any) -> float:
    """Mean of the known values, NaN of none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else np.nan


def known_percentile(values: Floats, p: float) -> float:
    """Percentile of the known values, interpolated linearly; NaN of none."""
    known = values[~np.isnan(values)]
    return float(np.percentile(known, p)) if len(known) else np.nan


def distinct_texts(labels: Labels) -> float:
    """Distinct texts of a column, NaN if it tells nothing."""
    return float(len(labels.names)) if labels.any_text else np.nan


def share_of_largest(values: Any, count: int) -> float:
    """Share that the largest `count` values have of all."""
    return float(np.sort(values)[-count:].sum() / max(values.sum(), 1e-9))


def recurring_tasks(trace: Trace) -> tuple[Int64s, Int64s]:
    """Task of each job, (J,), and how many jobs each task has, (T,)."""
    title = trace.name if trace.name.any_text else trace.model
    key = np.stack([trace.user.codes, title.codes, trace.gpus], axis=1)
    _, task, times = np.unique(key, axis=0, return_inverse=True, return_counts=True)
    return task.reshape(-1), times


def runs_of_task(trace: Trace) -> Int64s:
    """How often the task of each job comes. (J,)."""
    task, times = recurring_tasks(trace)
    return times[task]


def median_variation(trace: Trace, task: Int64s, chosen: Bools) -> float:
    """Median over tasks of standard deviation over mean of their run times; 0 of a task whose runs all took 0 s."""
    if not chosen.any():
        return np.nan
    _, group = np.unique(task[chosen], return_inverse=True)
    run_s, count = trace.duration_s[chosen], np.bincount(group)
    average = np.bincount(group, run_s) / count
    variance = np.bincount(group, (run_s - average[group]) ** 2) / count
    return float(np.median(np.sqrt(variance) / np.where(average > 0, average, 1.0)))


# Tables of sizes, durations, waits, outcomes, users, hours and use, as in the papers on GPU clusters.
#
# Sources of the questions: Jeon et al., USENIX ATC '19 (Philly); Hu et al., SC '21 (Helios); Weng et al., NSDI '22 and
# Wang et al., IISWC '19 (PAI).

EPOCH_WEEKDAY = 3  # 1970-01-01 was a Thursday, Monday is 0
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
LENGTHS = (("< 1 min", 0.0, 60.0), ("1-10 min", 60.0, 600.0), ("10-60 min", 600.0, HOUR_S),
           ("1-12 h", HOUR_S, 12 * HOUR_S), ("12-24 h", 12 * HOUR_S, DAY_S), ("1-7 d", DAY_S, WEEK_S),
           ("> 7 d", WEEK_S, np.inf))  # fmt: skip
PERCENTILES = (10, 25, 50, 75, 90, 95, 99)
TOP_USERS = (1, 5, 10, 20)  # per cent of the users
RECURRENT = 5  # runs of one task from which PAI calls it recurrent


@dataclass(frozen=True, slots=True)
class TraceSection:
    """One table.

    columns: names with unit.
    rows: plain values, NaN where nothing is known.
    note: for people.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""

    def records(self) -> list[dict[str, Any]]:
        """One mapping a row, for JSON."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def describe_trace(recorded: RecordedTrace, cluster_gpus: int = 0) -> list[TraceSection]:
    """All tables that the trace has the columns for. cluster_gpus: size of the cluster, 0 if unknown."""
    trace = recorded.trace
    sections = [overview_section(recorded), size_section(trace), length_section(trace)]
    if has_waits(trace):
        sections += [wait_section(trace), use_section(trace, cluster_gpus)]
    if trace.state.any_text:
        sections.append(outcome_section(trace))
    if trace.requeues.any():
        sections.append(retry_section(trace))
    if trace.user.any_text:
        sections += [user_section(trace), recurrence_section(trace)]
    if not np.isnan(recorded.origin_s):
        sections += [hours_section(recorded), weekday_section(recorded)]
    return sections


def trace_figures(recorded: RecordedTrace) -> dict[str, float]:
    """Single figures by name: the overview, and what papers give in one number. NaN where the trace cannot tell."""
    trace, wait_s = recorded.trace, recorded.trace.wait_s
    states = {word: trace.state.isin(names) for word, names in OUTCOMES.items()} if trace.state.any_text else {}
    share = {f"{word}_pct": percent_of(chosen) for word, chosen in states.items()}
    gpu_share = {f"{word}_gpu_pct": percent_of(chosen, trace.gpu_s) for word, chosen in states.items()}
    return {
        "jobs": float(len(trace)),
        "span_days": float(np.ptp(trace.submit_s)) / DAY_S,
        "gpu_hours": float(trace.gpu_s.sum()) / HOUR_S,
        "users": distinct_texts(trace.user),
        "accounts": distinct_texts(trace.account),
        "mean_gpus": float(trace.gpus.mean()),
        "largest_gpus": float(trace.gpus.max()),
        "single_gpu_pct": percent_of(trace.gpus == 1),
        "partial_gpu_pct": percent_of(trace.gpu_share < 1),
        "mean_duration_s": float(trace.duration_s.mean()),
        "median_duration_s": float(np.median(trace.duration_s)),
        "longest_duration_s": float(trace.duration_s.max()),
        "over_a_week_pct": percent_of(trace.duration_s > WEEK_S),
        "mean_wait_s": known_mean(wait_s),
        "median_wait_s": known_percentile(wait_s, 50),
        "requeued_pct": percent_of(trace.requeues > 0),
        "recurrent_pct": percent_of(runs_of_task(trace) >= RECURRENT) if trace.user.any_text else np.nan,
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


def overview_section(recorded: RecordedTrace) -> TraceSection:
    """The single figures."""
    rows = tuple((name, value) for name, value in trace_figures(recorded).items())
    return TraceSection("overview", f"Overview ({recorded.kind})", ("measure", "value"), rows)


def size_section(trace: Trace) -> TraceSection:
    """By GPUs asked for: share of jobs and of GPU time, run time, wait."""
    columns = ("GPUs", "jobs", "jobs %", "GPU time %", "run mean s", "run p50 s", "run p95 s", "wait mean s",
               "wait p50 s", "wait p95 s")  # fmt: skip
    rows = [(name, *_class_row(trace, in_size_class(trace.gpus, least, most))) for name, least, most in SIZE_CLASSES]
    return TraceSection("sizes", "By size", columns, tuple(rows))


def length_section(trace: Trace) -> TraceSection:
    """By run time: share of jobs and of GPU time, and the wait of each class."""
    columns = ("run time", "jobs", "jobs %", "GPU time %", "run mean s", "run p50 s", "run p95 s", "wait mean s",
               "wait p50 s", "wait p95 s")  # fmt: skip
    within = [(name, (trace.duration_s >= least) & (trace.duration_s < most)) for name, least, most in LENGTHS]
    return TraceSection(
        "lengths", "By run time", columns, tuple((name, *_class_row(trace, rows)) for name, rows in within)
    )


def wait_section(trace: Trace) -> TraceSection:
    """Percentiles of run time, wait, and wait over completion time."""
    jct_s = trace.wait_s + trace.duration_s
    part = 100 * trace.wait_s / np.where(jct_s > 0, jct_s, np.nan)
    rows = [
        (f"p{p}", known_percentile(trace.duration_s, p), known_percentile(trace.wait_s, p), known_percentile(part, p))
        for p in PERCENTILES
    ]
    return TraceSection("waits", "Run time and wait", ("percentile", "run s", "wait s", "wait / JCT %"), tuple(rows))


def outcome_section(trace: Trace) -> TraceSection:
    """How jobs ended: share of jobs and of GPU time."""
    columns = ("state", "jobs", "jobs %", "GPU time %", "run p50 s", "mean GPUs", "mean requeues")
    rows = []
    for state in trace.state.names:
        chosen = trace.state.isin([state])
        rows.append((state or "unknown", int(chosen.sum()), percent_of(chosen), percent_of(chosen, trace.gpu_s),
                     known_percentile(trace.duration_s[chosen], 50), known_mean(trace.gpus[chosen]),
                     known_mean(trace.requeues[chosen])))  # fmt: skip
    return TraceSection("outcomes", "Outcomes", columns, tuple(sorted(rows, key=lambda row: -row[1])))


def retry_section(trace: Trace) -> TraceSection:
    """Requeues and retries by size."""
    rows = []
    for name, least, most in SIZE_CLASSES:
        chosen = in_size_class(trace.gpus, least, most)
        again = trace.requeues[chosen]
        rows.append((name, int(chosen.sum()), percent_of(again > 0), known_mean(again), int(again.max(initial=0))))
    return TraceSection("retries", "Requeues by size", ("GPUs", "jobs", "requeued %", "mean", "most"), tuple(rows))


def user_section(trace: Trace) -> TraceSection:
    """What the busiest users submit and use."""
    jobs = np.bincount(trace.user.codes)
    used = np.bincount(trace.user.codes, trace.gpu_s)
    rows = []
    for part in TOP_USERS:
        count = max(round(len(jobs) * part / 100), 1)
        rows.append((f"top {part} %", count, 100 * share_of_largest(jobs, count), 100 * share_of_largest(used, count)))
    note = pluralize(len(jobs), "user")
    return TraceSection("users", "Users", ("users", "count", "of jobs %", "of GPU time %"), tuple(rows), note)


def recurrence_section(trace: Trace) -> TraceSection:
    """How often the same task (user, name or model, GPUs) comes back, and how alike its run times are."""
    task, times = recurring_tasks(trace)
    rows = []
    for least in (2, RECURRENT, 20):
        chosen = times[task] >= least
        rows.append(
            (
                f">= {least} times",
                int((times >= least).sum()),
                percent_of(chosen),
                median_variation(trace, task, chosen),
            )
        )
    columns = ("task comes", "tasks", "of jobs %", "run time sd / mean, median")
    return TraceSection("recurrence", "Tasks that come back", columns, tuple(rows))


def hours_section(recorded: RecordedTrace) -> TraceSection:
    """Submissions by hour of the day on the site's clock: mean a day, and mean GPUs asked for."""
    clock_s = wall_clock_s(recorded)
    hour = (clock_s // HOUR_S % 24).astype(np.int64)
    days = max(np.ptp(clock_s) / DAY_S, 1.0)
    jobs, gpus = np.bincount(hour, minlength=24), np.bincount(hour, recorded.trace.gpus, minlength=24)
    rows = tuple((h, float(jobs[h]) / days, float(gpus[h]) / max(int(jobs[h]), 1)) for h in range(24))
    return TraceSection("hours", "Submissions by hour of the day", ("hour", "jobs a day", "mean GPUs"), rows)


def weekday_section(recorded: RecordedTrace) -> TraceSection:
    """Submissions by day of the week."""
    day = ((wall_clock_s(recorded) // DAY_S).astype(np.int64) + EPOCH_WEEKDAY) % 7
    jobs = np.bincount(day, minlength=7)
    rows = tuple((WEEKDAYS[d], int(jobs[d]), 100 * float(jobs[d]) / len(day)) for d in range(7))
    return TraceSection("weekdays", "Submissions by day of the week", ("day", "jobs", "jobs %"), rows)


def use_section(trace: Trace, cluster_gpus: int) -> TraceSection:
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
    return TraceSection("use", "GPUs in use", ("over time", "GPUs", "of the cluster %"), made)


def _class_row(trace: Trace, chosen: Bools) -> tuple[Any, ...]:
    run_s, wait_s = trace.duration_s[chosen], trace.wait_s[chosen]
    return (
        int(chosen.sum()),
        percent_of(chosen),
        percent_of(chosen, trace.gpu_s),
        known_mean(run_s),
        known_percentile(run_s, 50),
        known_percentile(run_s, 95),
        known_mean(wait_s),
        known_percentile(wait_s, 50),
        known_percentile(wait_s, 95),
    )


# Published figures of public traces.


@dataclass(frozen=True, slots=True)
class PublishedFigure:
    """One figure: its name in describe.figures, the value as printed, and half of its last digit."""

    figure: str
    value: float
    precision: float


_HELIOS = "S-Lab-System-Group/HeliosArtifact bdaae109c21f, cluster summary of Hu et al., SC '21; GPU jobs only"
_PHILLY = "Jeon et al., USENIX ATC '19, table of job outcomes"
FIGURE_SOURCES = {
    "helios-venus": _HELIOS, "helios-earth": _HELIOS, "helios-saturn": _HELIOS, "helios-uranus": _HELIOS,
    "philly": _PHILLY,
    "pollux": "Qiao et al., OSDI '21, section 5: 160 jobs in 8 hours",
}  # fmt: skip
# jobs, mean GPUs, mean run time, median run time, mean wait, completed, cancelled and failed per cent
_CLUSTERS = {
    "helios-venus": (125_303, 6.736, 13_040.598, 204.0, 1_253.288, 52.6, 27.2, 20.2),
    "helios-earth": (427_148, 2.101, 5_130.609, 234.0, 319.483, 73.5, 13.6, 12.9),
    "helios-saturn": (698_896, 4.01, 5_252.927, 124.0, 611.561, 58.2, 27.2, 14.5),
    "helios-uranus": (329_117, 4.038, 9_163.725, 280.0, 1_949.182, 60.7, 20.1, 19.2),
}
_FIGURE_NAMES = ("jobs", "mean_gpus", "mean_duration_s", "median_duration_s", "mean_wait_s", "completed_pct",
          "cancelled_pct", "failed_pct")  # fmt: skip
_PRECISION = (0.0, 0.0005, 0.0005, 0.5, 0.0005, 0.05, 0.05, 0.05)
PUBLISHED_FIGURES: Mapping[str, tuple[PublishedFigure, ...]] = {
    **{name: tuple(map(PublishedFigure, _FIGURE_NAMES, values, _PRECISION)) for name, values in _CLUSTERS.items()},
    "philly": (
        PublishedFigure("jobs", 96_260, 0.0),
        PublishedFigure("completed_pct", 69.3, 0.05),
        PublishedFigure("cancelled_pct", 13.5, 0.05),
        PublishedFigure("failed_pct", 17.2, 0.05),
        PublishedFigure("completed_gpu_pct", 44.53, 0.005),
        PublishedFigure("cancelled_gpu_pct", 37.69, 0.005),
        PublishedFigure("failed_gpu_pct", 17.76, 0.005),
    ),
    "pollux": (PublishedFigure("jobs", 160, 0.0), PublishedFigure("span_days", 8 / 24, 0.5 / 24)),
}


def beside_published(name: str, ours: Mapping[str, float]) -> TraceSection:
    """Published figures with ours beside them. ours: describe.figures. Raises InputError for an unknown name."""
    if name not in PUBLISHED_FIGURES:
        raise InputError(f"no published figures called {name!r}; there are {', '.join(PUBLISHED_FIGURES)}")
    rows = []
    for each in PUBLISHED_FIGURES[name]:
        value = ours.get(each.figure, float("nan"))
        rows.append((each.figure, each.value, value, 100 * (value / each.value - 1), _verdict(each, value)))
    columns = ("figure", "published", "ours", "difference %", "verdict")
    return TraceSection(
        "published", f"Beside the published figures of {name}", columns, tuple(rows), FIGURE_SOURCES[name]
    )


def _verdict(published: PublishedFigure, value: float) -> str:
    if value != value:
        return "not reproduced: not in the trace"
    return (
        "reproduced" if abs(value - published.value) <= published.precision * (1 + 1e-9) else "not reproduced: differs"
    )

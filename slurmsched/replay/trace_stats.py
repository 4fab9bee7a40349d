"""Numbers of a trace that its tables and its plots share."""

from __future__ import annotations

from typing import Any

import numpy as np

from slurmsched.model.columns import Bools, Floats, Int64s, Labels
from slurmsched.replay.trace_files import Recorded
from slurmsched.replay.traces import Trace


def in_use(trace: Trace) -> tuple[Floats, Floats]:
    """Times [s] and the GPUs held from each until the next. Both (T,), T >= 2, times ascending."""
    known = ~np.isnan(trace.start_s)
    start_s, gpus = trace.start_s[known], (trace.gpus * trace.gpu_share)[known]
    times_s = np.concatenate([start_s, start_s + trace.duration_s[known]])
    change = np.concatenate([gpus, -gpus])
    order = np.argsort(times_s, kind="stable")
    return times_s[order], np.maximum(np.cumsum(change[order]), 0.0)


def wall_clock_s(recorded: Recorded) -> Floats:
    """Submissions on the site's clock, as if it were UTC [Unix s]. (J,)."""
    return recorded.trace.submit_s + recorded.origin_s + recorded.utc_offset_s


def has(labels: Labels) -> bool:
    """Whether a text column tells anything."""
    return labels.names not in ((), ("",))


def has_waits(trace: Trace) -> bool:
    """Whether any start was recorded."""
    return bool((~np.isnan(trace.start_s)).any())


def percent(chosen: Bools, weight: Floats | None = None) -> float:
    """Weighted share of the chosen rows [%], NaN of none."""
    total = float(len(chosen) if weight is None else weight.sum())
    part = float(chosen.sum() if weight is None else weight[chosen].sum())
    return 100 * part / total if total else np.nan


def mean(values: Any) -> float:
    """Mean of the known values, NaN of none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else np.nan


def percentile(values: Floats, p: float) -> float:
    """Percentile of the known values, interpolated linearly; NaN of none."""
    known = values[~np.isnan(values)]
    return float(np.percentile(known, p)) if len(known) else np.nan


def distinct(labels: Labels) -> float:
    """Distinct texts of a column, NaN if it tells nothing."""
    return float(len(labels.names)) if has(labels) else np.nan


def top(values: Any, count: int) -> float:
    """Share that the largest `count` values have of all."""
    return float(np.sort(values)[-count:].sum() / max(values.sum(), 1e-9))


def tasks(trace: Trace) -> tuple[Int64s, Int64s]:
    """Task of each job, (J,), and how many jobs each task has, (T,)."""
    title = trace.name if has(trace.name) else trace.model
    key = np.stack([trace.user.codes, title.codes, trace.gpus], axis=1)
    _, task, times = np.unique(key, axis=0, return_inverse=True, return_counts=True)
    return task.reshape(-1), times


def times_run(trace: Trace) -> Int64s:
    """How often the task of each job comes. (J,)."""
    task, times = tasks(trace)
    return times[task]


def spread(trace: Trace, task: Int64s, chosen: Bools) -> float:
    """Median over tasks of standard deviation over mean of their run times; 0 of a task whose runs all took 0 s."""
    if not chosen.any():
        return np.nan
    _, group = np.unique(task[chosen], return_inverse=True)
    run_s, count = trace.duration_s[chosen], np.bincount(group)
    average = np.bincount(group, run_s) / count
    variance = np.bincount(group, (run_s - average[group]) ** 2) / count
    return float(np.median(np.sqrt(variance) / np.where(average > 0, average, 1.0)))

"""Times of jobs: expected remaining run time by an estimator, and deadlines from hints."""

from __future__ import annotations

import math

import numpy as np

from slurmsched.model import Jobs, Snapshot
from slurmsched.model.columns import Bools, Floats
from slurmsched.model.hints import hint_column, parse_hints
from slurmsched.model.ordering import arrival_s
from slurmsched.plain_text import pluralize, pluralize_of
from slurmsched.protocols import Estimator
from slurmsched.resources.allocated import AllocatedGpus, holding
from slurmsched.resources.startable_jobs import startable


def known_or_last(values: Floats) -> Floats:
    """values with infinity where there is none (NaN), so that such jobs come last. (N,)."""
    return np.where(np.isnan(values), np.inf, values)


def service(run_s: Floats, jobs: Jobs) -> Floats:
    """Run time [s] times GPUs [GPU s]; infinity stays infinity, without GPUs too. (N,)."""
    known = np.where(np.isinf(run_s), 0.0, run_s)
    return np.where(np.isinf(run_s), np.inf, known * jobs.gpus)


def expected_remaining_s(estimator: Estimator, snapshot: Snapshot) -> Floats:
    """Expected run time still to come [s]: the estimate less what ran, at least 0. (N,), infinity if unknown.

    A job that ran longer than expected counts as about to end, as in Tiresias's simulator.
    """
    total_s = known_or_last(estimator.estimate(snapshot).total_s)
    return np.maximum(total_s - snapshot.jobs.executed_s, 0.0)


def remaining_work_s(estimator: Estimator, snapshot: Snapshot) -> Floats:
    """Expected run time still to come at the size that a job asks for [s]. (N,), infinity if unknown.

    Of an elastic job by the hint `progress`, since run time at other sizes tells nothing. Without the hint, and of any
    other job, the estimate less what ran, as expected_remaining_s.
    """
    jobs, total_s = snapshot.jobs, known_or_last(estimator.estimate(snapshot).total_s)
    progress = hint_column(jobs, "progress")
    elastic = hint_column(jobs, "min_gpus") <= hint_column(jobs, "max_gpus")  # NaN: no hint
    known = elastic & np.isfinite(progress) & np.isfinite(total_s)
    return np.where(known, (1.0 - np.where(known, progress, 0.0)) * np.where(known, total_s, 0.0),
                    np.maximum(total_s - jobs.executed_s, 0.0))  # fmt: skip


# Remaining run time.

UNKNOWN_RUN_TIME_S = 3_600.0  # of a job of unknown run time


def remaining_or_unknown_s(estimator: Estimator, snapshot: Snapshot) -> Floats:
    """As remaining_work_s, but a job of unknown run time is UNKNOWN_RUN_TIME_S from its end. (N,)."""
    remaining_s = remaining_work_s(estimator, snapshot)
    return np.where(np.isfinite(remaining_s), remaining_s, UNKNOWN_RUN_TIME_S)


def total_or_unknown_s(estimator: Estimator, snapshot: Snapshot) -> Floats:
    """Expected run times [s]; a job of unknown run time is UNKNOWN_RUN_TIME_S from its end. (N,)."""
    total_s = estimator.estimate(snapshot).total_s
    return np.where(np.isfinite(total_s), total_s, snapshot.jobs.executed_s + UNKNOWN_RUN_TIME_S)


def remaining_on_reference_s(
    estimator: Estimator, snapshot: Snapshot, done_s: Floats
) -> tuple[Floats, tuple[str, ...]]:
    """Run time still to come on the reference type (N,), at least 1 s, and what is said of jobs of unknown length.

    done_s: (N,) run time made, in seconds of the reference type. The hint `progress` counts before it.
    """
    total_s = estimator.estimate(snapshot).total_s
    unknown = ~np.isfinite(total_s)
    progress = hint_column(snapshot.jobs, "progress")
    total_s = np.where(unknown, done_s + UNKNOWN_RUN_TIME_S, total_s)
    to_come_s = np.where(np.isnan(progress), total_s - done_s, (1 - progress) * total_s)
    note = (
        f"no expected run time, counted as {UNKNOWN_RUN_TIME_S:g} s from the end: "
        f"{pluralize(int(unknown.sum()), 'job')}"
    )
    return np.maximum(to_come_s, 1.0), (note,) if unknown.any() else ()


# Deadlines from hints.


def deadline_s(jobs: Jobs) -> Floats:
    """When each must have ended [Unix s], infinity without a deadline. (N,)."""
    hinted = [parse_hints(comment).deadline for comment in jobs.comment]
    pairs = zip(hinted, arrival_s(jobs).tolist(), strict=True)
    return np.array([math.inf if due is None else due.due_s(came_s) for due, came_s in pairs], np.float64)


def active(snapshot: Snapshot) -> Bools:
    """Jobs with GPUs that hold them or could start now. (N,) bool."""
    return (holding(snapshot.jobs) | startable(snapshot)) & (snapshot.jobs.gpus > 0)


def cluster_gpus(snapshot: Snapshot) -> int:
    """GPUs of open nodes, and those that jobs hold on nodes that take no more jobs but are not down."""
    nodes, allocated = snapshot.nodes, AllocatedGpus.of(snapshot)
    last = (nodes.closed & ~nodes.down)[allocated.node]
    return int(nodes.gpus[~nodes.closed].sum() + allocated.gpus[last].sum())


def missing_time_notes(who: Bools, due_s: Floats, remaining_s: Floats) -> tuple[str, ...]:
    """Notes on jobs without a deadline or with one but no expected run time. who: (N,) bool, jobs that count."""
    free, blind = int((who & np.isinf(due_s)).sum()), int((who & np.isfinite(due_s) & np.isinf(remaining_s)).sum())
    notes = [f"{pluralize_of(free, int(who.sum()), 'job', 'has', 'have')} no deadline: best effort"] if free else []
    count = pluralize(blind, "job has", "jobs have")
    notes += [f"{count} a deadline but no expected run time: best effort"] if blind else []
    return tuple(notes)

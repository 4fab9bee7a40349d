"""Deadlines that users tell, and what to say of jobs that lack an input."""

from __future__ import annotations

import math

import numpy as np

from slurmsched.model import Jobs, Snapshot
from slurmsched.model.columns import Bools, Floats
from slurmsched.model.hints import parse_hints
from slurmsched.placements.candidates import eligible
from slurmsched.policies.order import arrival_s
from slurmsched.resources.held import holding
from slurmsched.words import some, some_of


def deadline_s(jobs: Jobs) -> Floats:
    """When each must have ended [Unix s], infinity without a deadline. (N,)."""
    told = [parse_hints(comment).deadline for comment in jobs.comment]
    pairs = zip(told, arrival_s(jobs).tolist(), strict=True)
    return np.array([math.inf if due is None else due.due_s(came_s) for due, came_s in pairs], np.float64)


def active(snapshot: Snapshot) -> Bools:
    """Jobs with GPUs that hold them or could start now. (N,) bool."""
    return (holding(snapshot.jobs) | eligible(snapshot)) & (snapshot.jobs.gpus > 0)


def cluster_gpus(snapshot: Snapshot) -> int:
    """GPUs of nodes that are not down."""
    return int(snapshot.nodes.gpus[~snapshot.nodes.down].sum())


def missing(who: Bools, due_s: Floats, left_s: Floats) -> tuple[str, ...]:
    """Notes on jobs without a deadline or with one but no expected run time. who: (N,) bool, jobs that count."""
    free, blind = int((who & np.isinf(due_s)).sum()), int((who & np.isfinite(due_s) & np.isinf(left_s)).sum())
    notes = [f"{some_of(free, int(who.sum()), 'job', 'tells', 'tell')} no deadline: best effort"] if free else []
    told = some(blind, "job has", "jobs have")
    notes += [f"{told} a deadline but no expected run time: best effort"] if blind else []
    return tuple(notes)

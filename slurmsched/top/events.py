"""What happened between two looks, in a line each. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from slurmsched.model import Act, Jobs, JobState, Snapshot, Stage
from slurmsched.terminal import harmless
from slurmsched.words import some

HOLDS = JobState.RUNNING | JobState.SUSPENDED
MOST = 100  # of jobs, between two looks


def events(before: Snapshot, after: Snapshot) -> list[str]:
    """Acts that began, moved on or are over, then jobs that started and that left their GPUs."""
    return [*_acts(before.acts, after.acts), *_jobs(before.jobs, after.jobs)]


def _acts(before: tuple[Act, ...], after: tuple[Act, ...]) -> Iterator[str]:
    old, new = ({act.id: act for act in acts} for acts in (before, after))
    for act in new.values():
        was = old.get(act.id)
        if was is None:
            yield f"{_said(act)} began{_victims(act)}"
        elif was.stage != act.stage:
            why = f": {harmless(act.note)}" if act.note else ""
            yield f"{_said(act)} is {act.stage}{why}"
    for act in old.values():
        if act.id not in new and act.stage != Stage.CLOSED:
            yield f"{_said(act)} is over"


def _said(act: Act) -> str:
    return f"{act.purpose} {act.id} for job {act.job_id} of {harmless(act.user)} on {harmless(act.nodes)}"


def _victims(act: Act) -> str:
    ids = ", ".join(str(victim.job_id) for victim in act.victims)
    return f", takes from {ids}" if ids else ""


def _jobs(before: Jobs, after: Jobs) -> Iterator[str]:
    held, holds = (_holding(jobs) for jobs in (before, after))
    for row in np.flatnonzero(holds & ~np.isin(after.job_id, before.job_id[held]))[:MOST].tolist():
        yield f"{_job(after, row)} started on {harmless(after.node_list[row]) or 'its nodes'}"
    waiting = after.job_id[after.pending]
    for row in np.flatnonzero(held & ~np.isin(before.job_id, after.job_id[holds]))[:MOST].tolist():
        yield f"{_job(before, row)} {'waits again' if before.job_id[row] in waiting else 'ended'}"


def _holding(jobs: Jobs) -> np.ndarray:
    return np.asarray(jobs.is_state(HOLDS) & (jobs.gpus > 0))


def _job(jobs: Jobs, row: int) -> str:
    gpus = int(jobs.gpus[row])
    return f"job {jobs.job_id[row]} of {harmless(jobs.user[row])} ({some(gpus, 'GPU')})"

"""What physics must keep to, as one call in a plug-in's own tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from slurmsched.kernels._jit import load
from slurmsched.model import Assignments, Labels, Ranking, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.placements.any_fit import AnyFit
from slurmsched.protocols import Physics
from slurmsched.testing.conformance import NonconformingError, checked_run, frozen_or_raise, turned
from slurmsched.testing.placements import busy_snapshot


def check_physics(physics: Physics, models: Sequence[str] = ("",)) -> None:
    """Raise NonconformingError unless the physics keeps every rule on busy clusters of wired nodes, and on idle ones.

    frozen, pure and repeatable as check_policy has them. speed: one a job, finite and above 0. costs: finite times of
    at least 0. row order: a job is as fast in whatever row. models: names that the jobs have in turn.
    """
    frozen_or_raise(physics)
    for name in ("restart_cost_s", "resize_cost_s"):
        if not 0 <= getattr(physics, name) < float("inf"):
            raise NonconformingError("costs", f"{name} must be a time of at least 0")
    load()  # lest a kernel be compiled in the watched run: the compiler reads a clock
    for given in (busy_snapshot(30, 1), busy_snapshot(0, 2)):
        speed = checked_run(partial(_speed, physics, models), given, np.ndarray)
        jobs = given.jobs.job_id[_held(given).rows].tolist()
        if speed.shape != (len(jobs),) or not (np.isfinite(speed) & (speed > 0)).all():
            raise NonconformingError("speed", f"must be {len(jobs)} finite numbers above 0")
        if dict(zip(jobs, speed.tolist(), strict=True)) != _by_job(physics, models, turned(given)):
            raise NonconformingError("row order", "the speed of a job depends on its row")


def _speed(physics: Physics, models: Sequence[str], given: Snapshot) -> Floats:
    """Of what the jobs hold, with the models as their names."""
    names = Labels.of([models[job % len(models)] for job in given.jobs.job_id.tolist()])
    return physics.speed(replace(given, jobs=given.jobs.with_columns(name=names)), _held(given))


def _held(given: Snapshot) -> Assignments:
    """What the jobs hold that run or could, drawn by job id."""
    return AnyFit().place(given, Ranking(np.argsort(given.jobs.job_id)))


def _by_job(physics: Physics, models: Sequence[str], given: Snapshot) -> dict[int, float]:
    jobs = given.jobs.job_id[_held(given).rows].tolist()
    return dict(zip(jobs, _speed(physics, models, given).tolist(), strict=True))

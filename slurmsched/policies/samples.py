"""What was seen of jobs' speed on each GPU type: progress in the time that they ran there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.hints import hint_column
from slurmsched.placements.candidates import node_rows
from slurmsched.policies.gpu_market import Market, gpu_type
from slurmsched.policies.memory import recall
from slurmsched.policies.order import arrival_s
from slurmsched.policies.timetable import amdahl

_BY_JOB = ("on", "waited", "done", "ran_s", "size", "pace", "was_on", "was_size")
UNKNOWN, MIXED = -1, -2  # for a column of types


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """What each job has in a round, by row of jobs. on: (N,) column of its type, -1 = none. waited: (N,) rounds since
    it ran. size: (N,) GPUs, 0 = as many as it asks for. pace: (N,) speed at that size over that at the one it asks for.
    """

    on: Int64s
    waited: Floats
    size: Floats
    pace: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Samples(Held):
    """What was seen besides. made, ran_s: (N, T) progress on each type, 0 to 1, as at the size that a job asks for, and
    the time it took. has_on: (N,) column of the type that it holds, UNKNOWN or MIXED. has_size: (N,) GPUs held.
    """

    made: Floats
    ran_s: Floats
    has_on: Int64s
    has_size: Int64s

    @property
    def rate(self) -> Floats:
        """Progress per second, NaN where there was none. (N, T)."""
        seen = (self.ran_s > 0) & (self.made > 0)
        return np.divide(self.made, self.ran_s, out=np.full(self.made.shape, np.nan), where=seen)

    @property
    def tried(self) -> Int64s:
        """Types on which each was seen to make progress. (N,) int64."""
        return (~np.isnan(self.rate)).sum(axis=1).astype(np.int64)

    def carry(self, snapshot: Snapshot, here: Market, held: Held) -> dict[str, Any]:
        """The samples of the active jobs, for `sampled` to take back."""
        jobs, rows = snapshot.jobs, np.flatnonzero(here.active)
        done = np.nan_to_num(hint_column(jobs, "progress"))
        columns = {"on": held.on, "waited": held.waited, "size": held.size, "pace": held.pace, "done": done,
                   "ran_s": jobs.executed_s, "was_on": self.has_on, "was_size": self.has_size}  # fmt: skip
        for column, name in enumerate(here.types):
            columns |= {f"made {name}": self.made[:, column], f"took {name}": self.ran_s[:, column]}
        rows = rows[np.argsort(jobs.job_id[rows], kind="stable")]
        return {
            "job_id": jobs.job_id[rows].tolist(),
            "arrival_s": arrival_s(jobs)[rows].tolist(),
            **{name: np.asarray(values, np.float64)[rows].tolist() for name, values in columns.items()},
        }


def sampled(snapshot: Snapshot, types: tuple[str, ...], serial: float) -> Samples:
    """The samples as they stand: progress since the last look counts for the type and size that the job held.

    Where no allocation tells what it held, now or then, those that it was to have count; where it held several, nothing
    does.
    serial: part of a job's work that more GPUs do not speed up.
    """
    jobs = snapshot.jobs
    by_type = [f"{what} {name}" for what in ("made", "took") for name in types]
    kept = recall(jobs, snapshot.carry, (*_BY_JOB, *by_type))
    made, took_s = (
        np.nan_to_num(np.column_stack([kept[f"{what} {name}"] for name in types])) for what in ("made", "took")
    )
    planned, pace = _column(kept["on"]), np.where(np.isnan(kept["pace"]), 1.0, kept["pace"])
    has_on, has_size = _holds(snapshot, types)
    on, size = _since(has_on, has_size, _column(kept["was_on"]), np.nan_to_num(kept["was_size"]))
    true_pace = amdahl(np.maximum(size, 1), serial) / amdahl(np.maximum(jobs.gpus, 1), serial)
    on, by = np.where(on == UNKNOWN, planned, on), np.where(on == UNKNOWN, pace, true_pace)
    new = np.nan_to_num(hint_column(jobs, "progress")) - np.nan_to_num(kept["done"])
    ran_s = np.where(np.isnan(kept["on"]), 0.0, jobs.executed_s - np.nan_to_num(kept["ran_s"]))
    rows = np.flatnonzero((on >= 0) & (on < len(types)) & (new > 0) & (ran_s > 0))
    made[rows, on[rows]] += new[rows] / by[rows]
    took_s[rows, on[rows]] += ran_s[rows]
    return Samples(planned, np.nan_to_num(kept["waited"]), np.nan_to_num(kept["size"]), pace, made, took_s,
                   has_on, has_size)  # fmt: skip


def _column(kept: Floats) -> Int64s:
    return np.where(np.isnan(kept), UNKNOWN, kept).astype(np.int64)


def _since(on: Int64s, size: Int64s, was_on: Int64s, was_size: Floats) -> tuple[Int64s, Floats]:
    """Type and size since the last look, by what is held now and was then: now's where any is. (N,), (N,)."""
    holds = size > 0
    moved = holds & (was_size > 0) & ((on != was_on) | (size != was_size))
    return np.where(moved, MIXED, np.where(holds, on, was_on)), np.where(holds, size, was_size)


def _holds(snapshot: Snapshot, types: tuple[str, ...]) -> tuple[Int64s, Int64s]:
    """Column of the type that each job holds by the allocations, and GPUs, 0 = none. (N,), (N,)."""
    held, jobs = snapshot.allocations, snapshot.jobs
    on, size = np.full(len(jobs), UNKNOWN), np.zeros(len(jobs), np.int64)
    row_of = {job: row for row, job in enumerate(jobs.job_id.tolist())}
    of_node = [gpu_type(text) for text in snapshot.nodes.gpu_types]
    for job, node, named, gpus in zip(held.job_id.tolist(), node_rows(snapshot).tolist(), held.gpu_type,
                                      held.gpus.tolist(), strict=True):  # fmt: skip
        name, row = named or (of_node[node] if node >= 0 else ""), row_of.get(job, -1)
        if row >= 0:
            column = types.index(name) if name in types else MIXED
            on[row] = column if not size[row] or on[row] == column else MIXED
            size[row] += gpus
    return on, size

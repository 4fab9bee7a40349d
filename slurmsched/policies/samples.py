"""What was seen of jobs' speed on each GPU type: progress in the time that they ran there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.hints import hint_column
from slurmsched.policies.gpu_market import Market
from slurmsched.policies.memory import recall
from slurmsched.policies.order import arrival_s

_BY_JOB = ("on", "waited", "done", "ran_s", "size", "pace")


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
    the time it took.
    """

    made: Floats
    ran_s: Floats

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
                   "ran_s": jobs.executed_s}  # fmt: skip
        for column, name in enumerate(here.types):
            columns |= {f"made {name}": self.made[:, column], f"took {name}": self.ran_s[:, column]}
        rows = rows[np.argsort(jobs.job_id[rows], kind="stable")]
        return {
            "job_id": jobs.job_id[rows].tolist(),
            "arrival_s": arrival_s(jobs)[rows].tolist(),
            **{name: np.asarray(values, np.float64)[rows].tolist() for name, values in columns.items()},
        }


def sampled(snapshot: Snapshot, types: tuple[str, ...]) -> Samples:
    """The samples as they stand: progress since the last look counts for the type that the job was on."""
    jobs = snapshot.jobs
    by_type = [f"{what} {name}" for what in ("made", "took") for name in types]
    kept = recall(jobs, snapshot.carry, (*_BY_JOB, *by_type))
    made, took_s = (
        np.nan_to_num(np.column_stack([kept[f"{what} {name}"] for name in types])) for what in ("made", "took")
    )
    known = ~np.isnan(kept["on"])
    on = np.where(known, kept["on"], -1).astype(np.int64)
    new = np.nan_to_num(hint_column(jobs, "progress")) - np.nan_to_num(kept["done"])
    ran_s = np.where(known, jobs.executed_s - np.nan_to_num(kept["ran_s"]), 0.0)
    rows = np.flatnonzero((on >= 0) & (on < len(types)) & (new > 0) & (ran_s > 0))
    pace = np.where(np.isnan(kept["pace"]), 1.0, kept["pace"])
    made[rows, on[rows]] += new[rows] / pace[rows]
    took_s[rows, on[rows]] += ran_s[rows]
    return Samples(on, np.nan_to_num(kept["waited"]), np.nan_to_num(kept["size"]), pace, made, took_s)

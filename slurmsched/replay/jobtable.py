"""The jobs of an embedded cluster: what each waits for, holds, has done and has lost."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from slurmsched.model.columns import Int64s
from slurmsched.replay.metrics import Runs
from slurmsched.replay.slurm_model import SlurmModel
from slurmsched.replay.traces import Trace

NAN = float("nan")


class Phase(IntEnum):
    """Where a job is in its life."""

    FUTURE = 0
    PENDING = 1
    RUNNING = 2
    COMPLETING = 3  # requeued, its GPUs not back yet
    DONE = 4


class JobTable:
    """One row a job of the trace, in its order. All columns are (J,); the cluster changes them in place.

    submit_s: Slurm's, moves at a requeue. start_s: of this run. stopped_s: when it last ran or came.
    kept_s: progress that survived all requeues. executed_s, wasted_s: run time over all runs, and the part of it
    that made no lasting progress (restarts, work since the last checkpoint).
    """

    def __init__(self, trace: Trace, model: SlurmModel) -> None:
        rows = len(trace)
        self.trace, self.model, self.runs = trace, model, Runs()
        self.phase = np.zeros(rows, np.int8)
        self.submit_s = trace.submit_s.copy()
        self.eligible_s = trace.submit_s.copy()
        self.stopped_s = trace.submit_s.copy()
        self.start_s, self.end_s, self.first_start_s = (np.full(rows, NAN) for _ in range(3))
        self.kept_s, self.executed_s, self.wasted_s = (np.zeros(rows) for _ in range(3))
        self.restarts, self.nice, self.site = (np.zeros(rows, np.int64) for _ in range(3))
        self.timed_out = np.zeros(rows, np.bool_)

    def startable(self, now_s: float) -> Int64s:
        """Rows that may start, ascending."""
        return np.flatnonzero((self.phase == Phase.PENDING) & (self.eligible_s <= now_s))

    def base_priority(self, rows: Int64s, now_s: float) -> Int64s:
        """The sum of factors, without nice and site factor. Age counts from the (re)submission."""
        age = np.clip(now_s - self.submit_s[rows], 0.0, self.model.max_age_s) / self.model.max_age_s
        return (self.model.base_priority + self.model.weight_age * age).astype(np.int64)

    def priority(self, rows: Int64s, now_s: float) -> Int64s:
        """Slurm's priority: factors + site factor - nice, never below 1."""
        return np.maximum(self.base_priority(rows, now_s) + self.site[rows] - self.nice[rows], 1)

    def queue(self, now_s: float) -> Int64s:
        """Rows that may start, in the order slurmctld tests them: priority, then submit, then job id."""
        rows = self.startable(now_s)
        return rows[np.lexsort((self.trace.job_id[rows], self.submit_s[rows], -self.priority(rows, now_s)))]

    def start(self, row: int, now_s: float) -> float:
        """The job runs from now on; returns when this run ends by itself or at the time limit [s]."""
        self.phase[row], self.start_s[row] = Phase.RUNNING, now_s
        if np.isnan(self.first_start_s[row]):
            self.first_start_s[row] = now_s
        needed = self.trace.duration_s[row] - self.kept_s[row] + self._restart_cost_s(row)
        self.timed_out[row] = needed > self.trace.time_limit_s[row]
        return now_s + min(needed, self.trace.time_limit_s[row])

    def finish(self, row: int, now_s: float) -> None:
        """The run ended by itself or at its time limit."""
        self._leave(row, now_s)
        self.phase[row], self.end_s[row] = Phase.DONE, now_s

    def stop(self, row: int, now_s: float) -> None:
        """The run is requeued; progress since the last checkpoint is lost."""
        self._leave(row, now_s)
        self.phase[row] = Phase.COMPLETING
        self.restarts[row] += 1

    def resubmit(self, row: int, now_s: float) -> float:
        """Its GPUs are back: it waits again; returns when it may start [s]."""
        self.phase[row], self.submit_s[row] = Phase.PENDING, now_s
        self.eligible_s[row] = now_s + self.model.requeue_delay_s
        return float(self.eligible_s[row])

    def _leave(self, row: int, now_s: float) -> None:
        run_s = now_s - self.start_s[row]
        self.runs.note(row, float(self.start_s[row]), now_s)
        total = self.kept_s[row] + max(0.0, run_s - self._restart_cost_s(row))
        whole = total >= self.trace.duration_s[row]
        step = self.model.checkpoint_s
        kept = total if step == 0 or whole else max(self.kept_s[row], total // step * step)
        self.executed_s[row] += run_s
        self.wasted_s[row] += run_s - (kept - self.kept_s[row])
        self.kept_s[row], self.stopped_s[row], self.start_s[row] = kept, now_s, NAN

    def _restart_cost_s(self, row: int) -> float:
        return self.model.restart_cost_s if self.restarts[row] else 0.0

"""The jobs of an embedded cluster: what each waits for, holds, has done and has lost."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from enum import IntEnum

import numpy as np

from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.states import JobState
from slurmsched.replay.metrics import Runs
from slurmsched.replay.requests import Requests
from slurmsched.replay.rowset import RowSet
from slurmsched.replay.slurm_model import SlurmModel
from slurmsched.replay.traces import Trace

NAN = float("nan")


class Phase(IntEnum):
    """Where a job is in its life."""

    FUTURE = 0
    PENDING = 1
    RUNNING = 2
    COMPLETING = 3  # requeued, what it held is not back yet
    ENDING = 4  # ended, what it held is not back yet
    DONE = 5


class JobTable:
    """One row a job of the trace, in its order. All columns are (J,); the cluster changes them in place.

    submit_s: Slurm's, moves at a requeue. eligible_s: when begin time, requeue delay and dependencies let it start.
    start_s: of this run. stopped_s: when it last ran or came. run_until_s: when this run ends by itself.
    kept_s: progress that survived all requeues. executed_s, wasted_s: run time over all runs, and the part of it
    that made no lasting progress (restarts, work since the last checkpoint). saved_s, safe_s: progress that the job
    saves when it is signalled, and since when that is on disk; NaN = not signalled in this run. ended_as: state in the
    end.
    factors: priority points that never change. points: those of fair share, of the rows that it is given. refused: it
    was not let in, and counts nowhere.
    """

    def __init__(
        self,
        trace: Trace,
        model: SlurmModel,
        requests: Requests | None = None,
        factors: Floats | None = None,
        points: Callable[[Int64s], Floats] | None = None,
    ) -> None:
        rows = len(trace)
        requests = requests or Requests.plain(rows)
        self.trace, self.model, self.requests, self.runs = trace, model, requests, Runs()
        self.phase = np.zeros(rows, np.int8)
        self.submit_s = trace.submit_s.copy()
        self.eligible_s = np.maximum(trace.submit_s, requests.begin_s)
        self.stopped_s = trace.submit_s.copy()
        self.start_s, self.end_s, self.first_start_s, self.run_until_s = (np.full(rows, NAN) for _ in range(4))
        self.kept_s, self.executed_s, self.wasted_s = (np.zeros(rows) for _ in range(3))
        self.saved_s, self.safe_s = (np.full(rows, NAN) for _ in range(2))
        self.restarts, self.site = (np.zeros(rows, np.int64) for _ in range(2))
        self.nice = requests.nice.copy()
        self.ended_as = np.full(rows, int(JobState.COMPLETED), np.int64)
        self.factors, self._points = np.zeros(rows) if factors is None else factors, points
        self.refused = np.zeros(rows, np.bool_)
        array, ids = requests.array_id, trace.job_id
        self.record_id: Int64s = np.where(array > 0, array, ids).astype(np.int64)
        # Tasks get new ids as they start; the last one is left with the array's own.
        self._turn = np.where(ids == self.record_id, np.iinfo(np.int64).max, ids)
        self._pending, self._alive, self._recent = RowSet(), RowSet(), deque[int]()  # alive: came, not done yet
        self._ready: Int64s = np.zeros(0, np.int64)
        self._ready_until_s = -np.inf  # startable rows stay the same until then, if nothing happens

    def shown(self, now_s: float) -> Int64s:
        """Rows that slurmctld knows: came and not done yet, or ended less than min_job_age_s ago. Ascending."""
        gone_s = now_s - self.model.min_job_age_s
        while self._recent and self.end_s[self._recent[0]] <= gone_s:
            self._recent.popleft()
        recent = np.array(self._recent, np.int64)
        return np.union1d(self._alive.rows, recent[self.end_s[recent] > gone_s])

    def startable(self, now_s: float) -> Int64s:
        """Rows that may start, ascending."""
        if now_s >= self._ready_until_s:
            rows = self._pending.rows
            eligible_s = self.eligible_s[rows]
            due = eligible_s <= now_s
            self._ready = rows[due]
            self._ready_until_s = float(eligible_s[~due].min(initial=np.inf))
        return self._ready

    def changed(self) -> None:
        """Phase or eligible time of a row changed."""
        self._ready_until_s = -np.inf

    def submit(self, row: int) -> None:
        """The job comes."""
        self.phase[row] = Phase.PENDING
        self._pending.add(row)
        self._alive.add(row)
        self.changed()

    def refuse(self, row: int) -> None:
        """The job is not let in."""
        self.phase[row], self.refused[row] = Phase.DONE, True
        self.ended_as[row] = int(JobState.CANCELLED)

    @property
    def alive(self) -> bool:
        """Whether any job came and is not done."""
        return len(self._alive) > 0

    def base_priority(self, rows: Int64s, now_s: float) -> Int64s:
        """The sum of factors, without nice and site factor. Age counts from when the job could start."""
        told_s = self.model.floor(now_s, self.model.calc_period_s)
        age = np.clip(told_s - self.eligible_s[rows], 0.0, self.model.max_age_s) / self.model.max_age_s
        fair = self._points(rows) if self._points else 0.0
        return (self.model.base_priority + self.factors[rows] + fair + self.model.weight_age * age).astype(np.int64)

    def priority(self, rows: Int64s, now_s: float) -> Int64s:
        """Slurm's priority: factors + site factor - nice, never below 1; or what an operator set."""
        made = np.maximum(self.base_priority(rows, now_s) + self.site[rows] - self.nice[rows], 1)
        fixed = self.requests.fixed_priority[rows]
        return np.where(fixed > 0, fixed, made)

    def queue(self, now_s: float, tier: Int64s | None = None) -> Int64s:
        """Rows that may start, in the order slurmctld tests them: partition tier, priority, submit, then job id.

        tier: (J,) PriorityTier of each row's partition, None if all are equal.
        """
        rows = self.startable(now_s)
        keys = [self._turn[rows], self.record_id[rows], self.submit_s[rows], -self.priority(rows, now_s)]
        return rows[np.lexsort(keys if tier is None else [*keys, -tier[rows]])]

    def start(self, row: int, now_s: float) -> float:
        """The job runs from now on; returns when this run ends by itself or at the time limit [s]."""
        self.phase[row], self.start_s[row] = Phase.RUNNING, now_s
        self._pending.discard(row)
        self.changed()
        if np.isnan(self.first_start_s[row]):
            self.first_start_s[row] = now_s
        needed = self.trace.duration_s[row] - self.kept_s[row] + self._restart_cost_s(row)
        limit_s, late_s = self.trace.time_limit_s[row], self.model.time_limit_check_s
        if needed > limit_s:
            self.ended_as[row] = int(JobState.TIMEOUT)
        elif self.requests.fails[row]:
            self.ended_as[row] = int(JobState.FAILED)
        self.run_until_s[row] = now_s + (needed if needed <= limit_s + late_s else limit_s + late_s / 2)
        return float(self.run_until_s[row])

    def save(self, row: int, now_s: float) -> float:
        """The running job begins to save what it has done; returns when that is safe [s]."""
        self.saved_s[row], self.safe_s[row] = self._progress_s(row, now_s), now_s + self.model.save_s
        return float(self.safe_s[row])

    def finish(self, row: int, now_s: float, state: JobState | None = None) -> None:
        """The run ended by itself or at its time limit, or in this state; what it held is not back yet."""
        self._leave(row, now_s)
        self.phase[row] = Phase.ENDING
        self._ended(row, now_s, state)

    def give_up(self, row: int, now_s: float, state: JobState) -> None:
        """The waiting job is over."""
        self._ended(row, now_s, state)
        self.settle(row)

    def settle(self, row: int) -> None:
        """The job is over, and holds nothing any more."""
        self.phase[row] = Phase.DONE
        self._pending.discard(row)
        self._alive.discard(row)
        self._recent.append(row)
        self.changed()

    def _ended(self, row: int, now_s: float, state: JobState | None) -> None:
        self.end_s[row] = now_s
        if state is not None:
            self.ended_as[row] = int(state)

    def stop(self, row: int, now_s: float) -> None:
        """The run is requeued; progress since the last checkpoint is lost."""
        self._leave(row, now_s)
        self.phase[row] = Phase.COMPLETING
        self.ended_as[row] = int(JobState.COMPLETED)
        self.restarts[row] += 1

    def resubmit(self, row: int, now_s: float) -> float:
        """What it held is back: it waits again; returns when it may start [s]."""
        self.phase[row], self.submit_s[row] = Phase.PENDING, now_s
        self._pending.add(row)
        self.changed()
        self.eligible_s[row] = now_s + self.model.requeue_delay_s
        return float(self.eligible_s[row])

    def _leave(self, row: int, now_s: float) -> None:
        run_s = now_s - self.start_s[row]
        self.runs.note(row, float(self.start_s[row]), now_s)
        kept = self._survives_s(row, now_s)
        self.executed_s[row] += run_s
        self.wasted_s[row] += run_s - (kept - self.kept_s[row])
        self.kept_s[row], self.stopped_s[row], self.start_s[row] = kept, now_s, NAN
        self.saved_s[row] = self.safe_s[row] = NAN

    def _progress_s(self, row: int, now_s: float) -> float:
        """Work of all runs, this one included, as far as it is not lost yet [s]."""
        run_s = now_s - self.start_s[row]
        return float(self.kept_s[row] + max(0.0, run_s - self._restart_cost_s(row)))

    def _survives_s(self, row: int, now_s: float) -> float:
        """What of that is left if the run ends now [s]."""
        total, step = self._progress_s(row, now_s), self.model.checkpoint_s
        if step == 0 or total >= self.trace.duration_s[row]:
            return total
        kept = float(self.saved_s[row]) if self.safe_s[row] <= now_s else 0.0
        return max(float(self.kept_s[row]), kept, total // step * step if step < math.inf else 0.0)

    def _restart_cost_s(self, row: int) -> float:
        return self.model.restart_cost_s if self.restarts[row] else 0.0

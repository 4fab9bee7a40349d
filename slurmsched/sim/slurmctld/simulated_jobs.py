"""Rows of a job table that are in some state now, in ascending order."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from enum import IntEnum

import numpy as np

from slurmsched.model.columns import NAN, Bools, Floats, Int64s
from slurmsched.model.job_outcomes import RunLog
from slurmsched.model.states import JobState
from slurmsched.model.trace import Trace
from slurmsched.sim.slurmctld.job_demands import SubmittedRequests
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings


class RowSet:
    """A set of rows kept in order while single ones come and go: cheap to read whole, whatever the table's length."""

    def __init__(self) -> None:
        self._rows, self._count = np.zeros(64, np.int64), 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, row: int) -> bool:
        place = int(self.rows.searchsorted(row))
        return place < self._count and bool(self._rows[place] == row)

    @property
    def rows(self) -> Int64s:
        """The rows, ascending; valid until the next change."""
        return self._rows[: self._count]

    def add(self, row: int) -> None:
        """Put a row in; nothing happens if it is there."""
        place = int(self.rows.searchsorted(row))
        if place < self._count and self._rows[place] == row:
            return
        if self._count == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._rows[place + 1 : self._count + 1] = self._rows[place : self._count]
        self._rows[place] = row
        self._count += 1

    def discard(self, row: int) -> None:
        """Take a row out; nothing happens if it is not there."""
        place = int(self.rows.searchsorted(row))
        if place < self._count and self._rows[place] == row:
            self._rows[place : self._count - 1] = self._rows[place + 1 : self._count]
            self._count -= 1


# What runs hold on which nodes.


class HeldNodes:
    """Nodes of each row that holds some, and GPUs, CPUs and MiB held there; flat, so that many are read at once.

    kinds: how many kinds are held, those three and CPUs of each partition that limits them.
    """

    def __init__(self, rows: int, kinds: int = 3) -> None:
        self._first, self._count = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        self._node, self._held, self._used = np.zeros(1024, np.int64), np.zeros((1024, kinds), np.int64), 0
        self._holders = RowSet()

    @property
    def rows(self) -> Int64s:
        """Rows that hold something, ascending; valid until the next change."""
        return self._holders.rows

    def of(self, row: int) -> tuple[Int64s, Int64s]:
        """Nodes of the row (K,), and what it holds on them (K, R)."""
        parts = slice(self._first[row], self._first[row] + self._count[row])
        return self._node[parts], self._held[parts]

    def take(self, row: int, node: Int64s, held: Int64s) -> None:
        """The row, which holds nothing, holds this from now on."""
        if self._used + len(node) > len(self._node):
            self._make_room(len(node))
        parts = slice(self._used, self._used + len(node))
        self._node[parts], self._held[parts] = node, held
        self._first[row], self._count[row], self._used = self._used, len(node), parts.stop
        self._holders.add(row)

    def keep(self, row: int, kept: Bools) -> None:
        """The row gives back its nodes but these. kept: (K,)."""
        node, held = self.of(row)
        node, held, first = node[kept], held[kept], self._first[row]
        self._node[first : first + len(node)], self._held[first : first + len(node)] = node, held
        self._count[row] = len(node)

    def drop(self, row: int) -> None:
        self._holders.discard(row)

    def parts(self, rows: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """How many nodes each row holds (R,), and one after the other their nodes (H,) and what is held (H, R)."""
        count = self._count[rows]
        ends = np.cumsum(count)
        at = np.arange(ends[-1] if len(ends) else 0) + np.repeat(self._first[rows] - (ends - count), count)
        return count, self._node[at], self._held[at]

    def _make_room(self, wanted: int) -> None:
        """Leave out what was dropped, and double the room if that is not enough."""
        rows = self._holders.rows.copy()
        count, node, held = self.parts(rows)
        size = len(self._node)
        while len(node) + wanted > size // 2:
            size *= 2
        self._node, self._used = np.zeros(size, np.int64), len(node)
        self._held = np.zeros((size, held.shape[1]), np.int64)
        self._node[: len(node)], self._held[: len(node)] = node, held
        self._first[rows] = np.cumsum(count) - count


# The jobs of a simulated slurmctld.


ROUNDING_S = 1e-4  # a run that ends at a checkpoint has reached it, whatever the sum of its floats says
FEW = 8  # rows that come to a queue in order, up to which each is put in its place


class JobPhase(IntEnum):
    """Where a job is in its life."""

    FUTURE = 0
    PENDING = 1
    RUNNING = 2
    COMPLETING = 3  # requeued, what it held is not back yet
    ENDING = 4  # ended, what it held is not back yet
    DONE = 5


class SimulatedJobs:
    """One row a job of the trace, in its order. All columns are (J,); the cluster changes them in place.

    submit_s: Slurm's, moves at a requeue.
    eligible_s: when begin time, requeue delay and dependencies let it start.
    start_s: of this run.
    stopped_s: when it last ran or came.
    run_until_s: when this run ends by itself.
    kept_s: progress that survived all requeues.
    executed_s: run time over all runs.
    wasted_s: the part of it that made no lasting progress (restarts, work since the last checkpoint).
    saved_s: progress that the job saves when it is signalled; NaN = not signalled in this run.
    safe_s: since when that is on disk.
    ended_as: state in the end.
    leave_s: when this run ends as it was preempted, infinite = it was not.
    factors: priority points that never change.
    points: those of fair share, of the rows that it is given.
    refused: it was not let in, and counts nowhere.
    speed: of its runs, 1 = with the GPUs that its user asked for.
    """

    # Over 30 lines: one line for each array of the state.
    def __init__(
        self,
        trace: Trace,
        model: SlurmctldSettings,
        requests: SubmittedRequests | None = None,
        factors: Floats | None = None,
        points: Callable[[Int64s], Floats] | None = None,
    ) -> None:
        rows = len(trace)
        requests = requests or SubmittedRequests.plain(rows)
        self.trace, self.model, self.requests, self.runs = trace, model, requests, RunLog()
        self.phase = np.zeros(rows, np.int8)
        self.submit_s = trace.submit_s.copy()
        self.eligible_s = np.maximum(trace.submit_s, requests.begin_s)
        self.stopped_s = trace.submit_s.copy()
        self.start_s, self.end_s, self.first_start_s, self.run_until_s = (np.full(rows, NAN) for _ in range(4))
        self.kept_s, self.executed_s, self.wasted_s = (np.zeros(rows) for _ in range(3))
        self.saved_s, self.safe_s = (np.full(rows, NAN) for _ in range(2))
        self.leave_s = np.full(rows, np.inf)
        self.nodes: dict[int, Int64s] = {}  # of the last run of each row
        self.restarts, self.site = (np.zeros(rows, np.int64) for _ in range(2))
        self.nice = requests.nice.copy()
        self.ended_as = np.full(rows, int(JobState.COMPLETED), np.int64)
        self.factors, self._points = np.zeros(rows) if factors is None else factors, points
        self.refused = np.zeros(rows, np.bool_)
        self.speed = np.ones(rows)
        array, ids = requests.array_id, trace.job_id
        self.record_id: Int64s = np.where(array > 0, array, ids).astype(np.int64)
        # Tasks get new ids as they start; the last one is left with the array's own.
        self._turn = np.where(ids == self.record_id, np.iinfo(np.int64).max, ids)
        self._alive, self._recent = RowSet(), deque[int]()  # alive: came, not done yet
        # Rows that may start, times at which others may, and rows that changed since the last look.
        self._ready, self._later, self._touched = RowSet(), list[tuple[float, int]](), list[int]()
        # The last order of the queue, the rows that came, left or changed since, priorities, and the ages in these.
        self._order: Int64s = np.zeros(0, np.int64)
        self._moved, self._made = set[int](), np.zeros(rows, np.int64)
        self._aged_s = NAN

    def shown(self, now_s: float) -> Int64s:
        """Rows that slurmctld knows: came and not done yet, or ended less than min_job_age_s ago. Ascending."""
        gone_s = now_s - self.model.min_job_age_s
        while self._recent and self.end_s[self._recent[0]] <= gone_s:
            self._recent.popleft()
        recent = np.array(self._recent, np.int64)
        return np.union1d(self._alive.rows, recent[self.end_s[recent] > gone_s])

    def startable(self, now_s: float) -> Int64s:
        """Rows that may start, ascending; valid until the next change."""
        while self._later and self._later[0][0] <= now_s:
            self._touched.append(heapq.heappop(self._later)[1])
        for row in self._touched:
            self._sort_in(row, now_s)
        self._moved.update(self._touched)
        self._touched.clear()
        return self._ready.rows

    def _sort_in(self, row: int, now_s: float) -> None:
        """Put a row among those that may start, or those that may later."""
        waits, eligible_s = self.phase[row] == JobPhase.PENDING, float(self.eligible_s[row])
        (self._ready.add if waits and eligible_s <= now_s else self._ready.discard)(row)
        if waits and now_s < eligible_s < np.inf:
            heapq.heappush(self._later, (eligible_s, row))

    def changed(self, row: int) -> None:
        """Phase, eligible time, nice or site factor of a row changed."""
        self._touched.append(row)

    def weighed_anew(self) -> None:
        """Factors of many rows changed that the model was not told of one by one, as fair share."""
        self._aged_s = NAN

    def submit(self, row: int) -> None:
        """The job comes."""
        self.phase[row] = JobPhase.PENDING
        self._alive.add(row)
        self.changed(row)

    def refuse(self, row: int) -> None:
        """The job is not let in."""
        self.phase[row], self.refused[row] = JobPhase.DONE, True
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
        rows, aged_s = self.startable(now_s), float(self.model.floor(now_s, self.model.calc_period_s))
        come = [row for row in self._moved if row in self._ready]
        if aged_s != self._aged_s or len(come) > FEW:
            self._made[rows], self._aged_s = self.priority(rows, now_s), aged_s
            keys = [self._turn[rows], self.record_id[rows], self.submit_s[rows], -self._made[rows]]
            self._order = rows[np.lexsort(keys if tier is None else [*keys, -tier[rows]])]
        elif self._moved:
            self._update_order(come, now_s, tier)
        self._moved.clear()
        return self._order

    def _update_order(self, come: list[int], now_s: float, tier: Int64s | None) -> None:
        """Take out who came, left or changed since, and put in those of them who may start: a few."""
        moved = np.zeros(len(self.phase), np.bool_)
        moved[list(self._moved)] = True
        self._order = self._order[~moved[self._order]]
        self._made[come] = self.priority(np.array(come, np.int64), now_s)

        def key(row: int) -> tuple[float, ...]:
            above = 0 if tier is None else -int(tier[row])
            return above, -self._made[row], self.submit_s[row], self.record_id[row], self._turn[row]

        come.sort(key=key)
        places = [bisect_left(self._order, key(row), key=key) for row in come]
        self._order = np.insert(self._order, places, come)

    def start(self, row: int, now_s: float) -> float:
        """The job runs from now on; returns when this run ends by itself or at the time limit [s]."""
        self.phase[row], self.start_s[row] = JobPhase.RUNNING, now_s
        self.changed(row)
        if np.isnan(self.first_start_s[row]):
            self.first_start_s[row] = now_s
        needed = (self.trace.duration_s[row] - self.kept_s[row]) / self.speed[row] + self._restart_cost_s(row)
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

    def checkpoint(self, row: int, now_s: float) -> float:
        """When the running job has saved its work: at its next checkpoint, or after save_s if it can save at any time
        [s]."""
        step = self.model.checkpoint_s
        if step in (0.0, math.inf):
            return self.save(row, now_s)
        rest_s = self._restart_cost_s(row) - (now_s - self.start_s[row])
        return float(now_s + max(rest_s, 0.0) + (step - self._progress_s(row, now_s) % step) / self.speed[row])

    def done(self, rows: Int64s, now_s: float) -> Floats:
        """Share of the work of these rows that is done. (R,)."""
        found = [self.kept_s[row] if np.isnan(self.start_s[row]) else self._progress_s(row, now_s) for row in rows]
        return np.clip(np.array(found) / np.maximum(self.trace.duration_s[rows], 1e-9), 0.0, 1.0)

    def finish(self, row: int, now_s: float, state: JobState | None = None) -> None:
        """The run ended by itself or at its time limit, or in this state; what it held is not back yet."""
        self._leave(row, now_s)
        self.phase[row] = JobPhase.ENDING
        self._ended(row, now_s, state)

    def give_up(self, row: int, now_s: float, state: JobState) -> None:
        """The waiting job is over."""
        self._ended(row, now_s, state)
        self.settle(row)

    def settle(self, row: int) -> None:
        """The job is over, and holds nothing any more."""
        self.phase[row] = JobPhase.DONE
        self._alive.discard(row)
        self._recent.append(row)
        self.changed(row)

    def _ended(self, row: int, now_s: float, state: JobState | None) -> None:
        self.end_s[row] = now_s
        if state is not None:
            self.ended_as[row] = int(state)

    def stop(self, row: int, now_s: float) -> None:
        """The run is requeued; progress since the last checkpoint is lost."""
        self._leave(row, now_s)
        self.phase[row] = JobPhase.COMPLETING
        self.ended_as[row] = int(JobState.COMPLETED)
        self.restarts[row] += 1

    def resubmit(self, row: int, now_s: float) -> float:
        """What it held is back: it waits again; returns when it may start [s]."""
        self.phase[row], self.submit_s[row] = JobPhase.PENDING, now_s
        self.changed(row)
        self.eligible_s[row] = now_s + self.model.requeue_delay_s
        return float(self.eligible_s[row])

    def _leave(self, row: int, now_s: float) -> None:
        run_s = now_s - self.start_s[row]
        self.runs.note(row, float(self.start_s[row]), now_s)
        kept = self._survives_s(row, now_s)
        self.executed_s[row] += run_s
        self.wasted_s[row] += run_s - (kept - self.kept_s[row]) / self.speed[row]
        self.kept_s[row], self.stopped_s[row], self.start_s[row] = kept, now_s, NAN
        self.saved_s[row] = self.safe_s[row] = NAN
        self.leave_s[row] = np.inf

    def _progress_s(self, row: int, now_s: float) -> float:
        """Work of all runs, this one included, as far as it is not lost yet [s]."""
        run_s = now_s - self.start_s[row]
        return float(self.kept_s[row] + max(0.0, run_s - self._restart_cost_s(row)) * self.speed[row])

    def _survives_s(self, row: int, now_s: float) -> float:
        """What of that is left if the run ends now [s]."""
        total, step = self._progress_s(row, now_s), self.model.checkpoint_s
        if step == 0 or total >= self.trace.duration_s[row]:
            return total
        kept = float(self.saved_s[row]) if self.safe_s[row] <= now_s else 0.0
        steps = (total + ROUNDING_S) // step * step if step < math.inf else 0.0
        return max(float(self.kept_s[row]), kept, steps)

    def _restart_cost_s(self, row: int) -> float:
        return self.model.restart_cost_s if self.restarts[row] else 0.0

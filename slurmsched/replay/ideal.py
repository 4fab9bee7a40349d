"""The ideal cluster: enacts the plan's target at once or at round ends, as papers' simulators do."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.kernels.gang import pick_gang
from slurmsched.kernels.show import changes
from slurmsched.model import Plan, Receipt, Snapshot, Wake, frozen
from slurmsched.model.columns import Floats
from slurmsched.model.plan import Assignments
from slurmsched.replay.ideal_model import IdealModel
from slurmsched.replay.ideal_queue import ASK, NOBODY, Queue, queue_of
from slurmsched.replay.ideal_view import Cast, Shares, Stage, snapshot
from slurmsched.replay.metrics import History, Outcomes, Runs
from slurmsched.replay.too_large import too_large, unparted
from slurmsched.replay.traces import Trace

NAN = float("nan")
_NONE = np.zeros(0, np.int64)
_START, _RAN, _STOPPED, _SUBMIT = range(4)  # columns of Cast.times
_GPUS, _RESTARTS = 1, 3  # columns of Cast.counts


def _by_number(table: Any) -> Any:
    """A view of the table through which single numbers are read and written faster."""
    return memoryview(table)


class End(NamedTuple):
    """A run that will end by itself; void once the job was preempted."""

    time_s: float
    row: int
    run: int


class IdealCluster:
    """A trace on nodes of GPUs that do as they are told; a `Cluster` for run_cycle, an `EventCluster` for replay.

    nodes: GPUs of each node. One node that holds all GPUs is the pile that the `count` placement assumes.
    Raises InputError for a job that could never start. Not modelled: time limits (the recorded run time counts),
    partitions, CPUs and memory; a node never fails.
    """

    def __init__(self, trace: Trace, nodes: Sequence[int], model: IdealModel | None = None, *, seed: int = 0) -> None:
        self.trace, self.model, self.seed = trace, model or IdealModel(), seed
        self.capacity = np.array(nodes, np.int64)
        self.cast = Cast.of(trace, int(self.capacity.max(initial=0)))
        self.stage = Stage.of(self.capacity)
        self.free = int(self.capacity.sum())
        self._history, self._runs = History(self.free), Runs()
        jobs, times, counts = len(trace), self.cast.times, self.cast.counts
        self.start_s, self.executed_s, self.stopped_s, submit_s = times.T[:4]  # see Cast
        self.first_start_s, self.end_s = np.full(jobs, NAN), np.full(jobs, NAN)
        self.progress_s, self.rate = np.zeros(jobs), np.ones(jobs)
        self.job_id, self.gpus, self.restarts = counts[:, 0], counts[:, 1], counts[:, 3]
        self._times, self._counts = _by_number(times), _by_number(counts)
        self._active, self._present, self._held = np.zeros(jobs, np.int64), 0, 0  # rows that wait or run, ascending
        self._seen = _NONE  # rows of the last snapshot
        self._shares = (_NONE, _NONE, _NONE)  # GPUs held since the last plan: row, node row, GPUs
        self._arrivals, self._arrived = _by_number(np.lexsort((self.job_id, submit_s))), 0
        self._ends: list[End] = []
        self._now_s, self._left = 0.0, jobs
        self._wake, self._wake_s = Wake(), math.inf
        self._pile = len(self.capacity) == 1  # then who goes where is no question, and a queue can be followed
        self._queue: Queue | None = None
        self._open = False  # whoever comes starts while there is room
        self._woke = self._came = self._gave = False
        self._bound = 0  # GPUs that must be free for the next plan to differ
        self._refuse_impossible()

    @property
    def history(self) -> History:
        """GPUs in use and jobs waiting over time."""
        return self._history

    @property
    def runs(self) -> Runs:
        """The runs that ended."""
        return self._runs

    # -- time

    @property
    def now_s(self) -> float:
        return self._now_s

    @property
    def next_event_s(self) -> float:
        """Next arrival, end or change of order; infinite when there is none."""
        while self._ends and self._void(self._ends[0]):
            heapq.heappop(self._ends)
        end_s = self._ends[0].time_s if self._ends else math.inf
        return min(end_s, self._next_arrival_s, self._wake_s)

    @property
    def _next_arrival_s(self) -> float:
        if self._arrived == len(self._arrivals):
            return math.inf
        submit_s: float = self._times[self._arrivals[self._arrived], _SUBMIT]
        return submit_s

    @property
    def quiet_s(self) -> float:
        """When all jobs that run now will have ended; infinite when none runs."""
        return max((end.time_s for end in self._ends if not self._void(end)), default=math.inf)

    @property
    def waiting(self) -> int:
        return self._present - self._held

    @property
    def finished(self) -> bool:
        return self._left == 0

    @property
    def ended(self) -> int:
        """Jobs that ended so far."""
        return len(self.trace) - self._left

    @property
    def undecided(self) -> bool:
        """Whether a plan made now can differ from the last one (see Plan.wake)."""
        if self._woke or (self._came and self._wake.takes):
            return self.waiting > 0 or self._wake.running
        if self._queue is not None:
            return False
        return self.waiting > 0 and (self._came or self._gave) and self.free >= self._bound

    def advance(self, until_s: float) -> int:
        """Let time pass up to and with until_s: at each time jobs end, then come."""
        happened = 0
        while (time_s := self.next_event_s) <= until_s:
            self._now_s = time_s
            while self._ends and self._ends[0].time_s <= time_s:
                self._end(heapq.heappop(self._ends))
                happened += 1
            happened += self._receive(time_s)
            if self._wake_s <= time_s:
                self._woke, self._wake_s = True, math.inf
                happened += 1
            if self._queue is not None and not self.undecided:
                self._follow(self._queue)
            self._history.note(time_s, self._history.gpus - self.free, self.waiting)
        if until_s < math.inf:
            self._now_s = max(self._now_s, until_s)
        return happened

    def proceed(self) -> None:
        """Let time pass to the next event, or to a later one before which no plan can matter."""
        self.advance(self.next_event_s)

    # -- the Cluster contract

    def read(self) -> Snapshot:
        """The cluster now."""
        rows = self._seen = self._active[: self._present].copy()
        used, shares = self._holders()
        return snapshot(self._now_s, rows, self.cast, self.stage, used, shares, self.seed)

    def apply(self, plan: Plan) -> Receipt:
        """Stop who is not in the target, start who is. Raises ConfigError for a plan without one."""
        if plan.target is None:
            raise ConfigError("an ideal cluster needs a planner that names who holds which GPUs", key="placement")
        seen, target = self._seen, plan.target
        self._check_alone(target)
        self._check_sizes(plan, target)
        differ = np.empty(len(seen), np.int64)
        stops, changed = changes(seen, self.cast.times, target.rows, differ)
        for row in seen[differ[:stops]].tolist():
            self._stop(row)
        for place in differ[stops:changed].tolist():
            self._start(int(seen[place]))
        if not self._pile:
            self._hold(target)
        self._await(plan.wake)
        self._queue = self._left_by(plan)
        followed = self._pile and not self.model.round_s
        self._open = followed and plan.wake.fits and self._queue is None
        self._history.note(self._now_s, self._history.gpus - self.free, self.waiting)
        return Receipt(planned=changed)

    def _check_alone(self, target: Assignments) -> None:
        """Raises ConfigError where two jobs are given the same GPUs: how fast they would be there is not known."""
        if (guests := target.host >= 0).any():
            one, other = (self.job_id[self._seen[rows[guests][0]]] for rows in (target.host, target.rows))
            raise ConfigError(
                f"jobs {one} and {other} would share GPUs, and how fast they run there is not known: give physics "
                "that knows, --physics colocated:throughputs=FILE", key="physics",
            )  # fmt: skip

    def _check_sizes(self, plan: Plan, target: Assignments) -> None:
        """Raises ConfigError where a job is given other than its GPUs: how fast it would run on them is not known."""
        if plan.ranking is None or plan.ranking.wants is None or plan.ranking.wants.gpus is None:
            return
        held = np.zeros(len(target.rows), np.int64)
        np.add.at(held, np.repeat(np.arange(len(target.rows)), target.count), target.gpus)
        rows = self._seen[target.rows]
        if (wrong := held != self.gpus[rows]).any():
            job, gpus, own = self.job_id[rows[wrong][0]], held[wrong][0], self.gpus[rows[wrong][0]]
            raise ConfigError(
                f"job {job} would have {gpus} GPUs in place of {own}, and how fast it runs on those is not known: "
                "leave min_gpus and max_gpus out of the trace's comments", key="policy",
            )  # fmt: skip

    def outcomes(self) -> Outcomes:
        """What became of the jobs that ended so far, in the trace's order."""
        order = np.searchsorted(self.job_id, self.trace.job_id)
        done = order[np.isfinite(self.end_s[order])]
        useful_s = np.where(np.isfinite(self.end_s), self.cast.duration_s, self.progress_s)
        columns: dict[str, Any] = {
            "job_id": self.job_id, "gpus": self.gpus, "submit_s": self.cast.times[:, _SUBMIT],
            "first_start_s": self.first_start_s, "end_s": self.end_s, "executed_s": self.executed_s,
            "useful_s": useful_s, "preemptions": self.restarts,
        }  # fmt: skip
        cut = {name: frozen(column[done], column.dtype) for name, column in columns.items()}
        return Outcomes(**cut, cluster_gpus=self._history.gpus)

    def endings(self) -> tuple[Floats, Floats]:
        """End [s], NaN while it has not, and executed time [s] of each job, in the trace's order. (J,), (J,)."""
        order = np.searchsorted(self.job_id, self.trace.job_id)
        return self.end_s[order], self.executed_s[order]

    def _holders(self) -> tuple[Sequence[int], Shares | None]:
        """GPUs held by node, and who holds them where that is a question."""
        if self._pile:
            return (self._history.gpus - self.free,), None
        row, node, gpus = self._shares
        still = ~np.isnan(self.start_s[row])
        row, node, gpus = row[still], node[still], gpus[still]
        used = np.bincount(node, gpus, len(self.capacity)).astype(np.int64)
        return used.tolist(), Shares(self.job_id[row], node.astype(np.int32), gpus.astype(np.int32))

    # -- what happens to a job

    def _receive(self, time_s: float) -> int:
        """Jobs that come until time_s; they start if the plan lets all in and there is room. Returns their number."""
        first, came_before = self._arrived, self._came
        while self._next_arrival_s <= time_s:
            self._arrive(self._arrivals[self._arrived])
        came = self._arrived - first
        if came and self._open and self.waiting == came:
            rows = self._arrivals[first : self._arrived].tolist()
            if sum(self._counts[row, _GPUS] for row in rows) <= self.free:
                for row in rows:
                    self._start(row)
        elif came and self._queue is not None and not came_before:
            self._let_in(self._arrivals[first : self._arrived].tolist(), self._queue)
        return came

    def _let_in(self, rows: Sequence[int], queue: Queue) -> None:
        """Start those that came where the plan allows that and all find GPUs that nobody else has a use for."""
        asked, holds_gpu_s = sum(self._counts[row, _GPUS] for row in rows), self._wake.lets_in_gpu_s
        if holds_gpu_s is None or self._woke or self._wake_s <= self._now_s or asked > self.free:
            return
        if queue.yields(self.free, asked):
            self._came = False
            for row in rows:
                self._start(row)
                changes_s = self._now_s + holds_gpu_s / self._counts[row, _GPUS]
                self._wake_s = min(self._wake_s, self.model.wake_s(changes_s, self._now_s))

    def _arrive(self, row: int) -> None:
        active, present = self._active, self._present
        place = int(active[:present].searchsorted(row))
        active[place + 1 : present + 1] = active[place:present]
        active[place] = row
        self._present += 1
        self._arrived += 1
        if self._queue is not None:
            self._queue.append(row, self._counts[row, _GPUS])
        if self._wake.arrivals:
            self._came, self._bound = True, 0 if self._wake.takes else min(self._bound, self._counts[row, _GPUS])

    def _follow(self, queue: Queue) -> None:
        """Start who is next in the plan's queue, as long as it fits; where it cannot tell, the next plan does."""
        while (row := queue.next(self.free)) != NOBODY:
            if row == ASK:
                self._woke = True
                return
            self._start(row)

    def _start(self, row: int) -> None:
        gpus: int = self._counts[row, _GPUS]
        first = math.isnan(self.first_start_s[row])
        if first:
            self.first_start_s[row] = self._now_s
        self.rate[row] = 1.0
        left_s = self._cost_s(row, first) + (self.cast.duration_s[row] - self.progress_s[row]) / self.rate[row]
        self._times[row, _START] = self._now_s
        self.free -= gpus
        self._held += 1
        self._until(row, self._now_s + float(left_s))

    def _cost_s(self, row: int, first: bool) -> float:
        """Run time without progress of the first run, or of a later one."""
        return self.model.start_cost_s if first else self.model.restart_cost_s

    def _until(self, row: int, end_s: float) -> None:
        """This run ends by itself then."""
        heapq.heappush(self._ends, End(end_s, row, self._counts[row, _RESTARTS]))

    def _stop(self, row: int) -> None:
        made_s, step_s = self._made_s(row, self._leave(row)), self.model.checkpoint_s
        self.progress_s[row] = max(self.progress_s[row], made_s // step_s * step_s) if step_s else made_s
        self.restarts[row] += 1
        self.stopped_s[row] = self._now_s

    def _made_s(self, row: int, run_s: float) -> float:
        """Progress of a job after a run that is over now and took run_s."""
        cost_s = self._cost_s(row, not self.restarts[row])
        made_s: float = self.progress_s[row] + max(0.0, run_s - cost_s) * self.rate[row]
        return made_s

    def _end(self, event: End) -> None:
        if self._void(event):
            return
        self._leave(event.row)
        self.end_s[event.row] = self._now_s
        active, present = self._active, self._present
        place = int(active[:present].searchsorted(event.row))
        active[place : present - 1] = active[place + 1 : present]
        self._present -= 1
        self._left -= 1
        self._gave = True

    def _leave(self, row: int) -> float:
        """GPUs back; returns how long this run took [s]."""
        start_s: float = self._times[row, _START]
        run_s = self._now_s - start_s
        self._runs.note(row, start_s, self._now_s)
        self._times[row, _RAN] += run_s
        self._times[row, _START] = NAN
        self.free += self._counts[row, _GPUS]
        self._held -= 1
        return run_s

    def _void(self, event: End) -> bool:
        return bool(event.run != self._counts[event.row, _RESTARTS])

    # -- what the plan said

    def _hold(self, target: Assignments) -> None:
        """Remember who holds what from now on, ascending row and node."""
        row = self._seen[target.rows]
        if len(target.node) > len(row):
            row = np.repeat(row, target.count)
        order = np.argsort(row, kind="stable")  # the nodes of a job ascend already
        self._shares = (row[order], target.node[order], target.gpus[order])

    def _left_by(self, plan: Plan) -> Queue | None:
        """Who takes GPUs that come back before the next plan; None if only that one tells."""
        if plan.queue is None or not self._pile or self.model.round_s:
            return None
        rows = self._seen[plan.queue]
        return queue_of(rows, self.gpus[rows], plan.queue_needs)

    def _await(self, wake: Wake) -> None:
        self._wake = wake
        self._bound = 0 if wake.takes and not self._pile else wake.free_gpus  # running jobs may move to better GPUs
        self._wake_s = self.model.wake_s(wake.at_s, self._now_s)
        self._woke = self._came = self._gave = False

    def _refuse_impossible(self) -> None:
        size, shares = int(self.capacity.max(initial=0)), np.zeros(len(self.capacity), np.int64)
        never = [gpus for gpus in np.unique(self.gpus).tolist()
                 if not size or not pick_gang(self.capacity, np.zeros(len(shares)), gpus, 1, size, shares)]  # fmt: skip
        have, most = int(self.capacity.sum()), max(never, default=0)
        if most > have:
            rows = np.isin(self.gpus, never) & (self.gpus > have)
            raise too_large(self.job_id[rows], self.gpus[rows], have)
        if most:
            raise unparted(int(self.job_id[self.gpus == most].min()), most, self.capacity)

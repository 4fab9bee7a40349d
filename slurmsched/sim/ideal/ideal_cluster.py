"""The ideal cluster: enacts the plan's target at once or at round ends, as papers' simulators do."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.kernels.gang_fit import pick_gang
from slurmsched.kernels.job_scan import changed_runs
from slurmsched.model import Plan, Receipt, Snapshot, frozen
from slurmsched.model.columns import NAN, Floats, Int64s
from slurmsched.model.job_outcomes import JobOutcomes, RunLog, UsageHistory
from slurmsched.model.plan import Assignments
from slurmsched.model.trace import Trace
from slurmsched.plain_text import pluralize
from slurmsched.sim.cluster_layout import no_even_parts, oversized_jobs
from slurmsched.sim.ideal.ideal_plan import (
    ASK,
    NOBODY,
    UNTIL_ANY_EVENT,
    IdealPlan,
    NodeFinder,
    StandingQueue,
    queue_left,
)
from slurmsched.sim.ideal.ideal_settings import IdealSettings
from slurmsched.sim.ideal.ideal_snapshot import HeldGpus, JobArrays, NodeArrays, snapshot

_NONE = np.zeros(0, np.int64)
_START, _RAN, _STOPPED, _SUBMIT = range(4)  # columns of JobArrays.times
_GPUS, _NODES, _RESTARTS = 1, 2, 3  # columns of JobArrays.counts


def by_number(table: Any) -> Any:
    """A view of the table through which single numbers are read and written faster."""
    return memoryview(table)


class RunEnd(NamedTuple):
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

    _steady: ClassVar[bool] = True  # jobs run as fast whoever comes or goes

    # Over 30 lines: one line for each array of the state.
    def __init__(
        self, trace: Trace, nodes: Sequence[int], model: IdealSettings | None = None, *, seed: int = 0
    ) -> None:
        self.trace, self.model, self.seed = trace, model or IdealSettings(), seed
        self.capacity = np.array(nodes, np.int64)
        self.job_arrays = JobArrays.of(trace, int(self.capacity.max(initial=0)))
        self.stage = NodeArrays.of(self.capacity)
        self.free = int(self.capacity.sum())
        self._history, self._runs = UsageHistory(self.free), RunLog()
        jobs, times, counts = len(trace), self.job_arrays.times, self.job_arrays.counts
        self.start_s, self.executed_s, self.stopped_s, submit_s = times.T[:4]  # see JobArrays
        self.first_start_s, self.end_s = np.full(jobs, NAN), np.full(jobs, NAN)
        self.progress_s, self.rate = np.zeros(jobs), np.ones(jobs)
        self.job_id, self.gpus, self.restarts = counts[:, 0], counts[:, 1], counts[:, 3]
        self._times, self._counts = by_number(times), by_number(counts)
        self._first_start_s, self._progress_s = by_number(self.first_start_s), by_number(self.progress_s)
        self._rates, self._duration_s = by_number(self.rate), by_number(self.job_arrays.duration_s)
        self._active, self._present, self._held = np.zeros(jobs, np.int64), 0, 0  # rows that wait or run, ascending
        self._active_rows = by_number(self._active)
        self._seen = _NONE  # rows of the last snapshot
        self._shares = (_NONE, _NONE, _NONE)  # GPUs held since the last plan: row, node row, GPUs
        self._arrivals, self._arrived = by_number(np.lexsort((self.job_id, submit_s))), 0
        self._next_arrival_s = self._arrival_s()
        self._ends: list[RunEnd] = []
        self._now_s, self._unfinished = 0.0, jobs
        self._takes = by_number(self.gpus.copy())  # of what is free, by the job
        self._validity, self._look_s = UNTIL_ANY_EVENT, math.inf  # of the last plan; when to plan again in any case
        self._pile = len(self.capacity) == 1  # then who goes where is no question, and a queue can be followed
        self._queue: StandingQueue | None = None
        self._open = False  # whoever comes starts while there is room
        self._due = self._came = self._ended = False  # since the last plan: it is time, jobs came, jobs ended
        self._enough = 0  # GPUs that must be free for the next plan to differ
        self._node_needs: Int64s | None = None  # as Validity has it, less what came free since the plan
        self._finder: NodeFinder | None = None  # as Validity has it, while it may be asked
        self._let_in_rows = set[int]()  # jobs that it found nodes for, on GPUs that were free at the plan
        self._refuse_impossible()

    @property
    def history(self) -> UsageHistory:
        """GPUs in use and jobs waiting over time."""
        return self._history

    @property
    def runs(self) -> RunLog:
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
        time_s = min(self._next_arrival_s, self._look_s)
        return min(time_s, self._ends[0].time_s) if self._ends else time_s

    def _arrival_s(self) -> float:
        """When the next job comes."""
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
        return self._unfinished == 0

    @property
    def ended(self) -> int:
        """Jobs that ended so far."""
        return len(self.trace) - self._unfinished

    @property
    def next_look_s(self) -> float:
        """Never: that is an event here."""
        return math.inf

    @property
    def undecided(self) -> bool:
        """Whether a plan made now can differ from the last one (see Validity)."""
        if self._due:
            return self._present > 0
        if self._came and self._validity.preempts:
            return self.waiting > 0
        if self._queue is not None:
            return False
        return (self._came or self._ended) and self.free >= self._enough and self.waiting > 0

    def advance(self, until_s: float) -> int:
        """Let time pass up to and with until_s. Returns the number of events that happened."""
        happened = 0
        while (time_s := self.next_event_s) <= until_s:
            happened += self._step(time_s)
        if until_s < math.inf:
            self._now_s = max(self._now_s, until_s)
        return happened

    def proceed(self) -> bool:
        """Let time pass to the next event. Returns whether there was one."""
        time_s = self.next_event_s
        if time_s == math.inf:
            return False
        self._step(time_s)
        return True

    def _step(self, time_s: float) -> int:
        """All that happens at this time: jobs end, then come, then jobs start that the plan has start by themselves."""
        self._now_s, happened = time_s, 0
        while self._ends and self._ends[0].time_s <= time_s:
            self._end(heapq.heappop(self._ends))
            happened += 1
        if self._next_arrival_s <= time_s:
            happened += self._receive(time_s)
        if self._look_s <= time_s:
            self._due, self._look_s = True, math.inf
            happened += 1
        if self._queue is not None and not self.undecided:
            self._follow(self._queue)
        self._history.note(time_s, self._history.units - self.free, self.waiting)
        return happened

    # -- the Cluster contract

    def read(self) -> Snapshot:
        """The cluster now."""
        rows = self._seen = self._active[: self._present].copy()
        used, shares = self._holders()
        return snapshot(self._now_s, rows, self.job_arrays, self.stage, used, shares, self.seed)

    def apply(self, plan: Plan) -> Receipt:
        """Stop who is not in the target, start who is. Raises ConfigError for a plan without one."""
        if not isinstance(plan, IdealPlan) or plan.target is None:
            raise ConfigError("an ideal cluster needs a planner that names who holds which GPUs", key="placement")
        seen, target = self._seen, plan.target
        self._check_alone(target)
        self._check_sizes(plan, target)
        differ = np.empty(len(seen), np.int64)
        stops, changed = changed_runs(seen, self.job_arrays.times, target.rows, differ)
        for row in seen[differ[:stops]].tolist():
            self._stop(row)
        for place in differ[stops:changed].tolist():
            self._start(int(seen[place]))
        if not self._pile:
            self._hold(target)
        self._stand_by(plan)
        self._history.note(self._now_s, self._history.units - self.free, self.waiting)
        return Receipt(planned=changed)

    def _check_alone(self, target: Assignments) -> None:
        """Raises ConfigError where two jobs are given the same GPUs: how fast they would be there is not known."""
        if len(target.host) and (guests := target.host >= 0).any():
            one, other = (self.job_id[self._seen[rows[guests][0]]] for rows in (target.host, target.rows))
            raise ConfigError(
                f"jobs {one} and {other} would share GPUs, and how fast they run there is not known: give physics "
                "that knows, --physics colocated:throughputs=FILE", key="physics",
            )  # fmt: skip

    def _check_sizes(self, plan: Plan, target: Assignments) -> None:
        """Raises ConfigError where a job is given other than its GPUs: how fast it would run on them is not known."""
        if plan.ranking is None or plan.ranking.changes is None or plan.ranking.changes.gpus is None:
            return
        held = np.zeros(len(target.rows), np.int64)
        np.add.at(held, np.repeat(np.arange(len(target.rows)), target.count), target.gpus)
        rows = self._seen[target.rows]
        if (wrong := held != self.gpus[rows]).any():
            job, gpus, own = self.job_id[rows[wrong][0]], held[wrong][0], self.gpus[rows[wrong][0]]
            raise ConfigError(
                f"job {job} would have {pluralize(int(gpus), 'GPU')} in place of {own}, and its speed on them is "
                "not known: give physics that knows, --physics amdahl, or leave min_gpus and max_gpus out of "
                "the trace's comments",
                key="policy",
            )  # fmt: skip

    def outcomes(self) -> JobOutcomes:
        """What became of the jobs that ended so far, in the trace's order."""
        order = np.searchsorted(self.job_id, self.trace.job_id)
        done = order[np.isfinite(self.end_s[order])]
        useful_s = np.where(np.isfinite(self.end_s), self.job_arrays.duration_s, self.progress_s)
        columns: dict[str, Any] = {
            "job_id": self.job_id, "gpus": self.gpus, "submit_s": self.job_arrays.times[:, _SUBMIT],
            "first_start_s": self.first_start_s, "end_s": self.end_s, "executed_s": self.executed_s,
            "useful_s": useful_s, "preemptions": self.restarts,
        }  # fmt: skip
        cut = {name: frozen(column[done], column.dtype) for name, column in columns.items()}
        return JobOutcomes(**cut, cluster_gpus=self._history.gpus)

    def endings(self) -> tuple[Floats, Floats]:
        """End [s], NaN while it has not, and executed time [s] of each job, in the trace's order. (J,), (J,)."""
        order = np.searchsorted(self.job_id, self.trace.job_id)
        return self.end_s[order], self.executed_s[order]

    def _holders(self) -> tuple[Sequence[int], HeldGpus | None]:
        """GPUs held by node, and who holds them where that is a question."""
        if self._pile:
            return (self._history.gpus - self.free,), None
        row, node, gpus = self._shares
        still = ~np.isnan(self.start_s[row])
        row, node, gpus = row[still], node[still], gpus[still]
        used = np.bincount(node, gpus, len(self.capacity)).astype(np.int64)
        return used.tolist(), HeldGpus(self.job_id[row], node.astype(np.int32), gpus.astype(np.int32))

    # -- what happens to a job

    def _receive(self, time_s: float) -> int:
        """Jobs that come until time_s; they start if the plan lets them in and there is room. Returns their number."""
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
        elif came == 1 and self._finder is not None and not came_before:
            self._find_nodes(self._arrivals[first], self._finder)
        return came

    def _let_in(self, rows: Sequence[int], queue: StandingQueue) -> None:
        """Start those that came where the plan allows that and all find GPUs that nobody else has a use for."""
        asked, keeps_gpu_s = sum(self._counts[row, _GPUS] for row in rows), self._validity.keeps_gpu_s
        if keeps_gpu_s is None or self._due or self._look_s <= self._now_s or asked > self.free:
            return
        if queue.yields(self.free, asked):
            self._came = False
            for row in rows:
                self._start_until(row, keeps_gpu_s)

    def _find_nodes(self, row: int, finder: NodeFinder) -> None:
        """Start a job that came where it finds nodes and no other waits or has a use for the GPUs that are free."""
        keeps_gpu_s = math.inf if self._validity.all_run else self._validity.keeps_gpu_s
        used = self._node_needs is None or self._ended
        if keeps_gpu_s is None or self._due or self._look_s <= self._now_s or (used and not self._validity.all_run):
            return
        free = self.capacity - np.array(self._holders()[0], np.int64)
        found = finder.find(self._counts[row, _GPUS], self._counts[row, _NODES], free)
        if found is not None:
            self._came = False
            self._let_in_rows.add(row)
            holder, node, gpus = self._shares
            at = np.full(len(found[0]), holder.searchsorted(row))
            self._shares = (np.insert(holder, at, row), np.insert(node, at, found[0]), np.insert(gpus, at, found[1]))
            self._start_until(row, keeps_gpu_s)

    def _start_until(self, row: int, keeps_gpu_s: float) -> None:
        """Start a job that nobody overtakes before it attained this service; the next plan is made then."""
        self._start(row)
        changes_s = self._now_s + keeps_gpu_s / self._counts[row, _GPUS]
        self._look_s = min(self._look_s, self.model.takes_effect_s(changes_s, self._now_s))

    def _arrive(self, row: int) -> None:
        active, present = self._active, self._present
        place = present
        if present and self._active_rows[present - 1] > row:
            place = int(active[:present].searchsorted(row))
            active[place + 1 : present + 1] = active[place:present]
        self._active_rows[place] = row
        self._present += 1
        self._arrived += 1
        self._next_arrival_s = self._arrival_s()
        if self._queue is not None:
            self._queue.append(row, self._counts[row, _GPUS])
        if self._validity.arrivals:
            self._came = True
            self._enough = 0 if self._validity.preempts else min(self._enough, self._counts[row, _GPUS])

    def _follow(self, queue: StandingQueue) -> None:
        """Start who is next in the plan's queue, as long as it fits; where it cannot tell, the next plan does."""
        while (row := queue.next(self.free)) != NOBODY:
            if row == ASK:
                self._due = True
                return
            self._start(row)

    def _start(self, row: int) -> None:
        now_s, first_start_s = self._now_s, self._first_start_s
        if first := math.isnan(first_start_s[row]):
            first_start_s[row] = now_s
        self._rates[row] = 1.0
        self._times[row, _START] = now_s
        self.free -= self._takes[row]
        self._held += 1
        remaining_s = self._cost_s(row, first) + (self._duration_s[row] - self._progress_s[row])
        self._until(row, now_s + remaining_s)

    def _cost_s(self, row: int, first: bool) -> float:
        """Run time without progress of the first run, or of a later one."""
        return self.model.start_cost_s if first else self.model.restart_cost_s

    def _until(self, row: int, end_s: float) -> None:
        """This run ends by itself then."""
        heapq.heappush(self._ends, RunEnd(end_s, row, self._counts[row, _RESTARTS]))

    def _stop(self, row: int) -> None:
        made_s, step_s = self._made_s(row, self._leave(row)), self.model.checkpoint_s
        self._progress_s[row] = max(self._progress_s[row], made_s // step_s * step_s) if step_s else made_s
        self._counts[row, _RESTARTS] += 1
        self._times[row, _STOPPED] = self._now_s

    def _made_s(self, row: int, run_s: float) -> float:
        """Progress of a job after a run that is over now and took run_s."""
        cost_s = self._cost_s(row, not self._counts[row, _RESTARTS])
        made_s: float = self._progress_s[row] + max(0.0, run_s - cost_s) * self._rates[row]
        return made_s

    def _end(self, event: RunEnd) -> None:
        if self._void(event):
            return
        self._leave(event.row)
        self.end_s[event.row] = self._now_s
        active, present = self._active, self._present
        place = int(active[:present].searchsorted(event.row))
        active[place : present - 1] = active[place + 1 : present]
        self._present -= 1
        self._unfinished -= 1
        self._ended = self._ended or self._makes_room(event.row)

    def _makes_room(self, row: int) -> bool:
        """Whether a waiting job may find room now that this one is gone."""
        if self._node_needs is None:
            return True
        if row in self._let_in_rows:
            return False  # nobody had a use for its GPUs when it came
        holder, node, gpus = self._shares
        mine = slice(*holder.searchsorted((row, row + 1)))
        self._node_needs[node[mine]] -= gpus[mine]
        return bool((self._node_needs[node[mine]] <= 0).any())

    def _leave(self, row: int) -> float:
        """GPUs back; returns how long this run took [s]."""
        start_s: float = self._times[row, _START]
        run_s = self._now_s - start_s
        self._runs.note(row, start_s, self._now_s)
        self._times[row, _RAN] += run_s
        self._times[row, _START] = NAN
        self.free += self._takes[row]
        self._held -= 1
        return run_s

    def _void(self, event: RunEnd) -> bool:
        return bool(event.run != self._counts[event.row, _RESTARTS])

    # -- what the plan said

    def _hold(self, target: Assignments) -> None:
        """Remember who holds what from now on, ascending row and node."""
        row = self._seen[target.rows]
        if len(target.node) > len(row):
            row = np.repeat(row, target.count)
        order = np.argsort(row, kind="stable")  # the nodes of a job ascend already
        self._shares = (row[order], target.node[order], target.gpus[order])

    def _stand_by(self, plan: IdealPlan) -> None:
        """Heed what the plan says of the time until the next one."""
        validity = self._validity = plan.validity
        self._due = self._came = self._ended = False
        self._look_s = self.model.takes_effect_s(plan.next_look_s, self._now_s)
        self._enough = 0 if validity.preempts and not self._pile else validity.free_gpus  # jobs may move to better GPUs
        needs = validity.node_needs if self._steady and not self.model.round_s else None
        self._node_needs = None if needs is None else needs.copy()
        self._finder = validity.finder if self._steady and not self.model.round_s else None
        self._let_in_rows.clear()
        heeded = self._pile and not self.model.round_s
        self._queue = queue_left(validity, self._seen, self.gpus) if heeded else None
        self._open = heeded and validity.all_run and validity.queue is None

    def _refuse_impossible(self) -> None:
        size, shares = int(self.capacity.max(initial=0)), np.zeros(len(self.capacity), np.int64)
        never = [gpus for gpus in np.unique(self.gpus).tolist()
                 if not size or not pick_gang(self.capacity, np.zeros(len(shares)), gpus, 1, size, shares)]  # fmt: skip
        have, most = int(self.capacity.sum()), max(never, default=0)
        if most > have:
            rows = np.isin(self.gpus, never) & (self.gpus > have)
            raise oversized_jobs(self.job_id[rows], self.gpus[rows], have)
        if most:
            raise no_even_parts(int(self.job_id[self.gpus == most].min()), most, self.capacity)


class MovableEnds(IdealCluster):
    """The ideal cluster where the end of a run may move while the job runs."""

    _steady = False

    def __init__(
        self, trace: Trace, nodes: Sequence[int], model: IdealSettings | None = None, *, seed: int = 0
    ) -> None:
        super().__init__(trace, nodes, model, seed=seed)
        self._due_s = np.full(len(trace), NAN)  # end of this run, as it goes now

    def _leave(self, row: int) -> float:
        self._due_s[row] = NAN
        return super()._leave(row)

    def _until(self, row: int, end_s: float) -> None:
        if end_s != self._due_s[row]:
            self._due_s[row] = end_s
            super()._until(row, end_s)

    def _void(self, event: RunEnd) -> bool:
        return super()._void(event) or event.time_s != self._due_s[event.row]

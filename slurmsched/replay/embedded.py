"""The embedded cluster: slurmctld's behaviour on simulated time, behind the daemon's own contract."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from slurmsched.errors import InputError
from slurmsched.kernels.backfill import backfill
from slurmsched.kernels.gang import pick_gang
from slurmsched.model import Outcome, Plan, Receipt, Requeue, SetNice, SetSiteFactor, Snapshot
from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.plan import Action
from slurmsched.replay import view
from slurmsched.replay.engine import Event, EventHeap, Kind
from slurmsched.replay.jobtable import JobTable, Phase
from slurmsched.replay.metrics import History
from slurmsched.replay.slurm_model import SlurmModel
from slurmsched.replay.traces import Trace


class EmbeddedCluster:
    """A trace on nodes of GPUs under slurmctld's rules; a `Cluster` for run_cycle, a `SimulatedCluster` for replay.

    nodes: GPUs of each node. One node that holds all GPUs is the "count" model, where nodes do not matter.
    Raises InputError for a job that could never start. Not modelled: several partitions, CPU and memory,
    fair share, slurmctld's own running time; a node never fails.
    """

    def __init__(self, trace: Trace, nodes: Sequence[int], model: SlurmModel | None = None, *, seed: int = 0) -> None:
        self.trace, self.model, self.seed = trace, model or SlurmModel(), seed
        self.capacity = np.array(nodes, np.int64)
        self.size = int(self.capacity.max()) if len(nodes) else 0
        self.free = self.capacity.copy()
        self.scene = view.Scene.of(self.capacity, self.model)
        self.job = JobTable(trace, self.model)
        self.shares: dict[int, Int64s] = {}  # row -> GPUs held on each node
        self.history = History(int(self.capacity.sum()))
        self._now_s = 0.0
        self._row = {int(job): row for row, job in enumerate(trace.job_id.tolist())}
        self._events = EventHeap()
        self._price = np.zeros(len(nodes))
        self._buffer = np.zeros(len(nodes), np.int64)
        self._last_pass_s, self._due = -math.inf, {Kind.SCHEDULE: False, Kind.BACKFILL: False}
        self._left = len(trace)
        self._refuse_impossible()
        for row, submit_s in enumerate(trace.submit_s.tolist()):
            self._events.push(submit_s, Kind.SUBMIT, row)

    # -- the SimulatedCluster contract

    @property
    def now_s(self) -> float:
        return self._now_s

    @property
    def next_event_s(self) -> float:
        return self._events.next_s

    @property
    def waiting(self) -> int:
        return len(self.job.startable(self._now_s))

    @property
    def finished(self) -> bool:
        return self._left == 0

    @property
    def ended(self) -> int:
        """Jobs that ended so far."""
        return len(self.trace) - self._left

    def advance(self, until_s: float) -> int:
        happened = 0
        while self._events.next_s <= until_s:
            event = self._events.pop()
            self._now_s = event.time_s
            if self._handle(event):
                happened += 1
                self.history.note(self._now_s, int((self.capacity - self.free).sum()), self.waiting)
        if until_s < math.inf:
            self._now_s = max(self._now_s, until_s)
        return happened

    # -- the Cluster contract

    def read(self) -> Snapshot:
        """The cluster now, as a reader of a live Slurm gives it, with the service of each job filled in."""
        return view.snapshot(self)

    def apply(self, plan: Plan) -> Receipt:
        """Do as slurmctld does with each action; one that it would refuse stops no other."""
        outcomes = tuple(self._apply(action) for action in plan.actions)
        if any(outcome.status == "written" for outcome in outcomes):
            self._poke()
        return Receipt(outcomes, len(outcomes))

    def _apply(self, action: Action) -> Outcome:
        row = self._row.get(action.job_id, -1)
        if row < 0 or self.job.submit_s[row] != action.submit_s:
            return Outcome(action, "refused", "Invalid job id specified")
        phase = self.job.phase[row]
        if isinstance(action, Requeue):
            if phase != Phase.RUNNING:
                return Outcome(action, "refused", "Job is not running")
            self.job.stop(row, self._now_s)
            self._events.push(self._now_s + self.model.kill_wait_s, Kind.RELEASE, row, int(self.job.restarts[row]))
            return Outcome(action, "written")
        if phase not in (Phase.PENDING, Phase.COMPLETING):
            return Outcome(action, "refused", "Job is no longer pending execution")
        if isinstance(action, SetNice):
            self.job.nice[row] = action.new
        elif isinstance(action, SetSiteFactor):
            self.job.site[row] = action.new
        else:
            return Outcome(action, "refused", f"no such action here: {action.kind}")
        return Outcome(action, "written")

    # -- events

    def _handle(self, event: Event) -> bool:
        """Whether the event changed anything."""
        row, kind, now_s = event.row, event.kind, self._now_s
        if row >= 0 and event.run != self.job.restarts[row]:
            return False
        if kind == Kind.SCHEDULE:
            return self._schedule()
        if kind == Kind.BACKFILL:
            return self._backfill()
        if kind == Kind.END:
            self.free += self.shares.pop(row)
            self.job.finish(row, now_s)
            self._left -= 1
        elif kind == Kind.RELEASE:
            self.free += self.shares.pop(row)
            self._events.push(self.job.resubmit(row, now_s), Kind.ELIGIBLE, row, event.run)
        elif kind == Kind.SUBMIT:
            self.job.phase[row] = Phase.PENDING
        self._poke()
        return True

    def _poke(self) -> None:
        """Something changed: both schedulers look again at their next time. Without a change they would find
        what they found last: ages grow alike, so the order stands and reservations only come nearer."""
        if not self._due[Kind.SCHEDULE]:
            self._due[Kind.SCHEDULE] = True
            self._events.push(max(self._now_s, self._last_pass_s + self.model.batch_sched_delay_s), Kind.SCHEDULE)
        if self.model.backfill != "none" and not self._due[Kind.BACKFILL]:
            self._due[Kind.BACKFILL] = True
            step = self.model.bf_interval_s
            self._events.push((self._now_s // step + 1) * step if step else self._now_s, Kind.BACKFILL)

    # -- scheduling

    def _schedule(self) -> bool:
        """The main scheduler: jobs in priority order, until the first that does not fit."""
        self._due[Kind.SCHEDULE], self._last_pass_s = False, self._now_s
        started = False
        if not self.free.any():
            return False
        for row in self.job.queue(self._now_s).tolist():
            if not self._fits(self.free, int(self.trace.gpus[row])):
                break
            self._start(row, self._buffer.copy())
            started = True
        return started

    def _backfill(self) -> bool:
        """The backfill scheduler: jobs in priority order, where they delay no reservation."""
        self._due[Kind.BACKFILL] = False
        rows = self.job.queue(self._now_s)[: self.model.bf_max_job_test]
        gpus = self.trace.gpus[rows]
        if not len(rows) or gpus.min() > self.free.sum():
            return False
        times, free = self._outlook()
        nodes, limit_s = -(-gpus // self.size), self.trace.time_limit_s[rows]
        whole = self.model.backfill == "slurm"
        started = backfill(times, free, gpus, nodes, limit_s, self.size, self.model.reservations, whole)
        for place in np.flatnonzero(started.any(axis=1)).tolist():
            self._start(int(rows[place]), started[place])
        return bool(started.any())

    def _outlook(self) -> tuple[Floats, Int64s]:
        """Free GPUs from now on, if every job runs to its time limit. times (K,), free (K, N)."""
        rows = np.array(sorted(self.shares), np.int64)
        released = self.job.stopped_s[rows] + self.model.kill_wait_s
        limit = self.job.start_s[rows] + self.trace.time_limit_s[rows]
        ahead = np.where(self.job.phase[rows] == Phase.RUNNING, limit, released) - self._now_s
        step = self.model.bf_resolution_s
        ahead = np.ceil(ahead / step) * step if step else ahead
        near = ahead <= self.model.bf_window_s
        times, place = np.unique(np.concatenate([[0.0], ahead[near]]), return_inverse=True)
        back = np.zeros((len(times), len(self.capacity)), np.int64)
        for row, slot in zip(rows[near].tolist(), place[1:].tolist(), strict=True):
            back[slot] += self.shares[row]
        back[0] += self.free
        return self._now_s + times, np.cumsum(back, axis=0)

    def _start(self, row: int, shares: Int64s) -> None:
        self.free -= shares
        self.shares[row] = shares
        self._events.push(self.job.start(row, self._now_s), Kind.END, row, int(self.job.restarts[row]))

    def _refuse_impossible(self) -> None:
        for gpus in np.unique(self.trace.gpus).tolist():
            if not self.size or not self._fits(self.capacity, gpus):
                job = self.trace.job_id[self.trace.gpus == gpus][0]
                nodes = ", ".join(map(str, self.capacity.tolist()))
                raise InputError(
                    f"job {job} asks for {gpus} GPUs, more than nodes of {nodes} GPUs ever hold; add nodes"
                )

    def _fits(self, free: Int64s, gpus: int) -> bool:
        """Whether a gang fits into the free GPUs; its shares are then in the buffer."""
        return bool(pick_gang(free, self._price, gpus, -(-gpus // self.size), self.size, self._buffer))

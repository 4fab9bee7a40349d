"""The state of the embedded cluster: jobs, nodes, holdings and reservations, and what follows from each change."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slurmsched.model import JobState, Move, Reserve
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.replay import view
from slurmsched.replay.admission import Entry, time_limits
from slurmsched.replay.associations import Associations
from slurmsched.replay.bookings import Bookings
from slurmsched.replay.budgets import Budgets, amounts
from slurmsched.replay.demand import Demand
from slurmsched.replay.dependencies import Dependencies
from slurmsched.replay.engine import EventHeap, Kind
from slurmsched.replay.fair_share import FairShare
from slurmsched.replay.holdings import Holdings
from slurmsched.replay.jobtable import JobTable, Phase
from slurmsched.replay.layout import Layout
from slurmsched.replay.limits import RUNNING, LimitTable
from slurmsched.replay.metrics import History
from slurmsched.replay.pass_times import PassTimes, ToldPasses, last_told
from slurmsched.replay.requests import Requests
from slurmsched.replay.slurm_model import SlurmModel
from slurmsched.replay.traces import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """What an embedded cluster is made of; see EmbeddedCluster."""

    trace: Trace
    layout: Layout
    model: SlurmModel
    seed: int
    requests: Requests
    told: Sequence[tuple[float, Kind, bool]]


class EmbeddedState:
    """What slurmctld would know at one time, and its own changes of it. As EmbeddedCluster, which sets it going."""

    def __init__(self, setting: Setting) -> None:
        self.model, self.seed, self.layout = setting.model, setting.seed, setting.layout
        self._admit(setting.trace, setting.requests)
        self._equip()
        self._index()
        self.holdings, self.bookings = Holdings(len(self.trace)), Bookings(self.layout)
        self.history = History(int(self.capacity.sum()))
        self._now_s, self._left, self._busy = 0.0, len(self.trace), 0  # GPUs held
        self._events = EventHeap()
        self._passes = (ToldPasses(self.model, self._events, setting.told) if setting.told
                        else PassTimes(self.model, self._events))  # fmt: skip
        self.fair_share.told_until(last_told(setting.told, Kind.USAGE))

    def _admit(self, trace: Trace, requests: Requests) -> None:
        """The jobs: what they ask for, under which limits, and what their priority is."""
        self.demand = Demand.of(trace, requests, self.layout, self.model)
        tree = Associations.of(self.layout.accounts, requests)
        self.trace = trace = trace.with_columns(time_limit_s=time_limits(trace, requests, self.layout, tree))
        self.limits = LimitTable(self.layout, requests, amounts(trace, self.model.safe_limits), tree, RUNNING)
        self.budgets = Budgets(self.limits, trace, self.layout, requests, self.model)
        self.entry = Entry.of(trace, requests, self.layout, tree, self.demand.nodes, self.limits)
        self.fair_share = FairShare.of(tree, self.model, self.layout, self.demand, requests)
        self.dependencies = Dependencies(trace, requests)
        self.job = JobTable(trace, self.model, requests, self.demand.factors, self.fair_share.points)

    def _equip(self) -> None:
        """The nodes: what they have and what is left of it."""
        self.capacity = self.layout.column("gpus")
        self.size = int(self.capacity.max(initial=0))
        self.left = np.stack([self.layout.column(name) for name in ("gpus", "cpus", "memory_mib")])
        self.left[2] = np.where(self.left[2] > 0, self.left[2], np.iinfo(np.int64).max // 2)
        tiers = np.array([partition.tier for partition in self.layout.partitions], np.int64)
        self.tier = tiers[self.demand.part] if len(np.unique(tiers)) > 1 else None
        self.open_nodes: Bools = np.ones(len(self.capacity), np.bool_)
        self.completing, self._held = (np.zeros(len(self.capacity), np.int64) for _ in range(2))  # jobs; their GPUs too
        self.scene = view.Scene.of(self.layout, self.model)

    def _index(self) -> None:
        """Rows of jobs and arrays by id."""
        self._rows, self._tasks = dict[int, list[int]](), dict[int, Int64s]()
        ids = zip(self.trace.job_id.tolist(), self.job.record_id.tolist(), strict=True)
        for row, (job, record) in enumerate(ids):
            for key in {job, record}:
                self._rows.setdefault(key, []).append(row)

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

    @property
    def refused(self) -> dict[str, int]:
        """Jobs not let in so far, by the limit that they exceed."""
        rows = np.flatnonzero(self.job.refused).tolist()
        return dict(Counter(self.entry.why[row] or "MaxSubmitJobs" for row in rows))

    def endings(self) -> tuple[Floats, Floats]:
        """End [s], NaN while it has not, and executed time [s] of each job, in the trace's order. (J,), (J,)."""
        return self.job.end_s, self.job.executed_s

    @property
    def free(self) -> Int64s:
        """GPUs of each node that no job holds, one that is completing included. (N,) int64.

        slurmctld itself counts what a job gave back as free when it ends, but starts nothing on its nodes until all
        their epilogs are done: `left`, and `completing`, the number of such jobs on each node.
        """
        return self.capacity - self._held

    def rows_of(self, job_id: int) -> Sequence[int]:
        """Rows of the job, or of the tasks of the array, with this id."""
        return self._rows.get(job_id, ())

    # -- what steps do

    def book(self, step: Reserve | Move) -> None:
        """Keep nodes from others, or keep other ones, or at another time."""
        booking = self.bookings.put(step)
        for time_s in (booking.start_s, booking.end_s):
            if time_s > self._now_s:
                self._events.push(time_s, Kind.BOOKING)

    def save(self, row: int) -> None:
        """A running job hears the signal on which it saves its work."""
        self._events.push(self.job.save(row, self._now_s), Kind.SAVED, row, int(self.job.restarts[row]))

    def requeue(self, row: int, wait_s: float) -> None:
        """A running job is stopped; what it holds comes back wait_s later [s]."""
        self.job.stop(row, self._now_s)
        self._complete(row, wait_s)

    def end_early(self, row: int, state: JobState) -> None:
        """A running job is over, before its time."""
        self.job.finish(row, self._now_s, state)
        self.job.run_until_s[row] = -math.inf
        self._left -= 1
        self._complete(row, self._epilog_s(row))

    def delay(self, row: int, start_s: float) -> None:
        """A waiting job may start at start_s, not before."""
        self.job.eligible_s[row] = max(start_s, self._now_s)
        self.job.changed()
        self._events.push(float(self.job.eligible_s[row]), Kind.ELIGIBLE, row, int(self.job.restarts[row]))

    # -- what follows from events

    def poke(self) -> None:
        """Something changed that makes both schedulers look again."""
        self._passes.ask(self._now_s)

    def _start(self, row: int, node: Int64s, kind: Int64s) -> None:
        held = np.where((kind == 1)[:, None], self.demand.need[row], self.demand.last[row])
        self.left[:, node] -= held.T
        self._hold(node, held[:, 0])
        self.holdings.take(row, node, held)
        self.limits.use(row)
        self.budgets.started(row, self._now_s)
        self.fair_share.started(row, self._now_s)
        self._events.push(self.job.start(row, self._now_s), Kind.END, row, int(self.job.restarts[row]))
        self._freed(self.dependencies.started(row))

    def _look(self) -> None:
        """An epilog is done: where there is one, the main scheduler looks at once."""
        self.poke()
        if self.model.has_epilog and not self.model.defer:
            self._passes.push(Kind.SCHEDULE, self._now_s)

    def _give_back(self, row: int, which: Bools) -> None:
        """These nodes of the job start others again. which: (K,)."""
        node, held = self.holdings.of(row)
        self.completing[node[which]] -= 1
        self._hold(node[which], -held[which, 0])

    def _hold(self, node: Int64s, gpus: Int64s) -> None:
        """A job holds so many GPUs more on these nodes."""
        self._held[node] += gpus
        self._busy += int(gpus.sum())

    def _epilog_s(self, row: int) -> float:
        told_s = float(self.job.requests.epilog_s[row])
        return self.model.epilog_s if math.isnan(told_s) else told_s

    def _complete(self, row: int, wait_s: float) -> None:
        """The run is over, and its nodes are completing for wait_s."""
        node, held = self.holdings.of(row)
        self.left[:, node] += held.T
        self.completing[node] += 1
        self.limits.use(row, -1)
        if self.job.phase[row] == Phase.ENDING:
            self.entry.leaves(row)
            if spread_s := abs(float(self.job.requests.epilog_spread_s[row])) * (len(node) > 1):
                part_s = max(self._now_s + wait_s - spread_s, self._now_s)
                self._events.push(part_s, Kind.PART_RELEASE, row, int(self.job.restarts[row]))
        self.budgets.stopped(row, self._now_s)
        self.fair_share.stopped(row, self._now_s)
        self._events.push(self._now_s + wait_s, Kind.RELEASE, row, int(self.job.restarts[row]))
        self._watch_limits()

    def _watch_limits(self) -> None:
        """See to it that running jobs are looked at again while some have used up their limit."""
        if self.budgets.counts and self.budgets.gone():
            self._passes.ask_check(self._now_s)

    def _fail(self, nodes: Bools) -> None:
        """Nodes go down: their jobs are requeued at once."""
        for row in self.holdings.rows.tolist():
            if self.job.phase[row] == Phase.RUNNING and nodes[self.holdings.of(row)[0]].any():
                self.requeue(row, 0.0)

    def _never_runs(self, row: int) -> None:
        """A waiting job is cancelled, and with it all that could only start after its success."""
        if self.job.phase[row] == Phase.PENDING:
            self.entry.leaves(row)
        self.job.give_up(row, self._now_s, JobState.CANCELLED)
        self._left -= 1
        self._settle(row, ok=False)
        self.poke()

    def _comes_with(self, row: int) -> Int64s:
        """The job, and the other tasks of its array that are let in with it or not at all."""
        array = int(self.job.requests.array_id[row])
        if not array or self.entry.endless:
            return np.array([row], np.int64)
        if array not in self._tasks:
            self._tasks[array] = np.array(self.rows_of(array), np.int64)
        tasks = self._tasks[array]
        return tasks[self.job.phase[tasks] == Phase.FUTURE]

    def _refuse(self, rows: list[int]) -> None:
        """These are not let in, nor what needs their success."""
        for row in rows:
            self.job.refuse(row)
        self._left -= len(rows)
        for row in rows:
            self._settle(row, ok=False)

    def _settle(self, row: int, ok: bool) -> None:
        """Tell the jobs that wait for this one."""
        free, dead = self.dependencies.ended(row, ok)
        self._freed(free)
        for waiter in dead:
            if self.job.phase[waiter] in (Phase.FUTURE, Phase.PENDING):
                self._never_runs(waiter)

    def _freed(self, rows: list[int]) -> None:
        """Rows whose last dependency is satisfied may start, and begin to age."""
        for row in rows:
            self.job.eligible_s[row] = max(self._now_s, self.job.submit_s[row], self.job.requests.begin_s[row])
            self.job.changed()
            if self.job.eligible_s[row] > self._now_s and self.job.phase[row] == Phase.PENDING:
                self._events.push(float(self.job.eligible_s[row]), Kind.ELIGIBLE, row)

    def planned(self, besides: str = "") -> tuple[Floats, Bools]:
        """Times known beforehand in which nodes start nothing: begin and end (B, 2) [s], and their nodes (B, N).

        Closures, and reservations as those see them who do not name them. besides: the one that a job names.
        """
        ahead = [each for each in self.layout.closures if each.planned and each.until_s > self._now_s]
        times = np.array([(each.from_s, each.until_s) for each in ahead], np.float64).reshape(-1, 2)
        nodes = np.array([self.layout.mask(each.nodes) for each in ahead], np.bool_).reshape(-1, len(self.capacity))
        kept_s, kept = self.bookings.ahead(besides)
        return np.concatenate([times, kept_s]), np.concatenate([nodes, kept])

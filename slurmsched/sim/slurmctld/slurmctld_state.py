"""The state of the simulated slurmctld: jobs, nodes, holdings and reservations, and what follows from each change."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slurmsched.allocation.elastic import amdahl
from slurmsched.kernels.slurmctld_nodes import NodeOrder
from slurmsched.model import JobState, MoveReservation, Reserve
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.job_outcomes import UsageHistory
from slurmsched.model.trace import Trace
from slurmsched.sim.cluster_layout import ClusterLayout, OutageTimes
from slurmsched.sim.event_loop import EventHeap, EventKind
from slurmsched.sim.slurmctld import slurmctld_snapshot
from slurmsched.sim.slurmctld.association_limits import (
    RUNNING,
    Admission,
    LimitTable,
    UsageLimits,
    amounts,
    time_limits,
)
from slurmsched.sim.slurmctld.association_usage import AssociationTree, FairShareFactors
from slurmsched.sim.slurmctld.job_demands import Dependencies, JobDemands, SubmittedRequests
from slurmsched.sim.slurmctld.scheduler_passes import PassTimes, RecordedPassTimes, last_recorded
from slurmsched.sim.slurmctld.simulated_jobs import HeldNodes, JobPhase, SimulatedJobs
from slurmsched.sim.slurmctld.simulated_reservations import SimulatedReservations
from slurmsched.sim.slurmctld.slurm_preemption import PreemptionRules, preemptions
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings


@dataclass(frozen=True, slots=True, eq=False)
class SlurmctldSetup:
    """What a simulated slurmctld is made of; see SimulatedSlurmctld."""

    trace: Trace
    layout: ClusterLayout
    model: SlurmctldSettings
    seed: int
    requests: SubmittedRequests
    recorded_passes: Sequence[tuple[float, EventKind, bool]]


class SlurmctldState:
    """What slurmctld would know at one time, and its own changes of it. As SimulatedSlurmctld, which sets it going."""

    def __init__(self, setting: SlurmctldSetup) -> None:
        self.model, self.seed, self.layout = setting.model, setting.seed, setting.layout
        self._admit(setting.trace, setting.requests)
        self._equip()
        self._index()
        self.holdings = HeldNodes(len(self.trace), len(self.free_resources))
        self.bookings = SimulatedReservations(self.layout)
        self.history = UsageHistory(int(self.capacity.sum()))
        self._now_s, self._unfinished, self._busy = 0.0, len(self.trace), 0  # GPUs held
        self._events = EventHeap()
        self._passes = (RecordedPassTimes(self.model, self._events, setting.recorded_passes) if setting.recorded_passes
                        else PassTimes(self.model, self._events))  # fmt: skip
        self._preemption = PreemptionRules(self) if self.model.preempt_type != "none" else None
        self._victims_of = dict[int, Int64s]()  # waiting job -> running jobs that slurmctld ends for it
        self._kills_from_s = dict[int, float]()  # waiting job -> from when its passes end those whose time is over
        self.fair_share.recorded_until(last_recorded(setting.recorded_passes, EventKind.USAGE))

    def _admit(self, trace: Trace, requests: SubmittedRequests) -> None:
        """The jobs: what they ask for, under which limits, and what their priority is."""
        self.demand = JobDemands.of(trace, requests, self.layout, self.model)
        self.one_record_each = not (self.demand.several or requests.array_id.any())  # in slurmctld's queue
        tree = AssociationTree.of(self.layout.accounts, requests)
        self.trace = trace = trace.with_columns(time_limit_s=time_limits(trace, requests, self.layout, tree))
        self.alike = self.demand.alike(trace.time_limit_s)  # of each job, a number for what it asks for
        self.requests_differ = int(self.alike.max(initial=-1)) + 1
        self.shape = self.demand.alike(np.zeros(len(trace)))  # likewise, for however long
        self.shapes = int(self.shape.max(initial=-1)) + 1
        self.wanted = np.zeros(len(trace), np.int64)  # GPUs to which each job was asked to change, 0 = none
        self.gpus, self._resized = trace.gpus.copy(), dict[tuple[int, int], int]()  # a number for each new request
        self._alike_own = self.alike.copy()
        self.limits = LimitTable(self.layout, requests, amounts(trace, self.model.safe_limits), tree, RUNNING)
        self.budgets = UsageLimits(self.limits, trace, self.layout, requests, self.model)
        self.entry = Admission.of(trace, requests, self.layout, tree, self.demand.nodes, self.demand.never, self.limits)
        self.fair_share = FairShareFactors.of(tree, self.model, self.layout, self.demand, requests)
        self.dependencies = Dependencies(trace, requests)
        self.job = SimulatedJobs(trace, self.model, requests, self.demand.factors, self.fair_share.points)

    def _equip(self) -> None:
        """The nodes: what they have and what is left of it."""
        self.capacity = self.layout.column("gpus")
        self.size = int(self.capacity.max(initial=0))
        self.free_resources = self.layout.resources()
        self.node_order = NodeOrder(self.model.shortest_run, self.layout.column("weight"))
        tiers = np.array([partition.tier for partition in self.layout.partitions], np.int64)
        self.tier = tiers[self.demand.part] if len(np.unique(tiers)) > 1 else None
        self.open_nodes: Bools = np.ones(len(self.capacity), np.bool_)
        self.completing, self._held = (np.zeros(len(self.capacity), np.int64) for _ in range(2))  # jobs; their GPUs too
        self._outages = OutageTimes.of(self.layout)
        self.scene = slurmctld_snapshot.SnapshotConstants.of(self.layout, self.model)

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
        return self._unfinished == 0

    @property
    def ended(self) -> int:
        """Jobs that ended so far."""
        return len(self.trace) - self._unfinished

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
        their epilogs are done: `free_resources`, and `completing`, the number of such jobs on each node.
        """
        return self.capacity - self._held

    def rows_of(self, job_id: int) -> Sequence[int]:
        """Rows of the job, or of the tasks of the array, with this id."""
        return self._rows.get(job_id, ())

    # -- what steps do

    def book(self, step: Reserve | MoveReservation) -> None:
        """Keep nodes from others, or keep other ones, or at another time."""
        booking = self.bookings.put(step)
        for time_s in (booking.start_s, booking.end_s):
            if time_s > self._now_s:
                self._events.push(time_s, EventKind.BOOKING)

    def save(self, row: int) -> None:
        """A running job hears the signal on which it saves its work."""
        self._events.push(self.job.save(row, self._now_s), EventKind.SAVED, row, int(self.job.restarts[row]))

    def ask_size(self, row: int, gpus: int) -> None:
        """A running job is asked to change to so many GPUs, 0 = no more. It hears of it, and leaves once it has saved
        its work."""
        self.wanted[row] = gpus
        if gpus and self.model.resizes:
            saved_s = self.job.checkpoint(row, self._now_s)
            self._events.push(saved_s, EventKind.SAVED, row, int(self.job.restarts[row]))

    def requeue(self, row: int, wait_s: float) -> None:
        """A running job is stopped; what it holds comes back wait_s later [s]."""
        self.job.stop(row, self._now_s)
        self._complete(row, wait_s)

    def end_early(self, row: int, state: JobState) -> None:
        """A running job is over, before its time."""
        self.job.finish(row, self._now_s, state)
        self.job.run_until_s[row] = -math.inf
        self._unfinished -= 1
        self._complete(row, self._epilog_s(row))

    def preempt(self, full: bool) -> bool:
        """A main pass ends running jobs for those that it could not start, by PreemptType. Whether it ended any.

        full: whether the pass is over the whole queue.
        """
        if self._preemption is None:
            return False
        holding = self.holdings.rows
        self._victims_of = {row: victims for row, victims in self._victims_of.items()
                            if self.job.phase[row] == JobPhase.PENDING and np.isin(victims, holding).any()}  # fmt: skip
        over = self._end_grace()
        made = preemptions(self, self._preemption, self._victims_of, full)
        for row, victims in made:
            self._victims_of[row] = victims
            begun_s = float(self.model.whole_ticks(self._now_s))
            self._kills_from_s[row] = begun_s + self.model.kill_wait_s + self.model.message_timeout_s
            for victim in victims.tolist():
                self._preempt(victim, float(self._preemption.grace_s[victim]))
        if made:
            self._end_grace()
        return bool(made or over)

    def _end_grace(self) -> int:
        """End the victims whose GraceTime is over, once Slurm tries the job again that they make room for. How many. A
        pass looks at the others when that may be.

        Source: Slurm's src/slurmctld/node_scheduler.c, select_nodes: not before KillWait and MessageTimeout are over.
        """
        had_grace, ended = set(self._had_grace()), 0
        for row, victims in self._victims_of.items():
            for victim in victims[self.job.phase[victims] == JobPhase.RUNNING].tolist():
                at_s = max(float(self.job.leave_s[victim]), self._kills_from_s[row])
                if victim in had_grace and at_s <= self._now_s:
                    self._preempt(victim, 0.0)
                    ended += 1
                elif self._now_s < at_s < math.inf:
                    self._passes.ask_full(at_s)
        return ended

    def _preempt(self, row: int, grace_s: float) -> None:
        """A running job has so long left; then it is cancelled, or requeued. slurmctld ends it when it next looks at
        running jobs, if no pass has ended it before."""
        if grace_s:
            over_s = float(self.model.whole_ticks(self._now_s)) + grace_s
            end_s = self._passes.check_from(over_s)
            self.job.leave_s[row] = min(over_s, end_s)
            self._events.push(end_s, EventKind.CHECK)
        elif self._preemption is not None and self._preemption.cancels(row):
            self.end_early(row, JobState.PREEMPTED)
        else:
            self.requeue(row, self.model.kill_wait_s)

    def _had_grace(self) -> list[int]:
        """Preempted jobs that still run, and whose time is over."""
        rows = self.holdings.rows
        over = (self.job.phase[rows] == JobPhase.RUNNING) & (self.job.leave_s[rows] <= self._now_s)
        return [int(row) for row in rows[over]]

    def delay(self, row: int, start_s: float) -> None:
        """A waiting job may start at start_s, not before."""
        self.job.eligible_s[row] = max(start_s, self._now_s)
        self.job.changed(row)
        self._events.push(float(self.job.eligible_s[row]), EventKind.ELIGIBLE, row, int(self.job.restarts[row]))

    def resized_demand(self, row: int, gpus: int, nodes: int) -> JobDemands:
        """What a job would take from its nodes with so many GPUs, on so many nodes if they are several; of one row.

        Raises InputError if these nodes can never hold it.
        """
        requests = self.job.requests.take(np.array([row]))
        if nodes > 1 and requests.nodes[0]:
            cpus = requests.cpus * nodes // requests.nodes
            requests = requests.with_columns(nodes=np.array([nodes]), cpus=cpus)
        one = self.trace.take(np.array([row])).with_columns(gpus=np.array([gpus]), counted=np.ones(1, np.bool_))
        return JobDemands.of(one, requests, self.layout, self.model)

    def resize(self, row: int, gpus: int, nodes: int) -> None:
        """A waiting job asks for so many GPUs from now on. Limits, usage and priority count its own request."""
        made = self.resized_demand(row, gpus, nodes)
        for name in ("nodes", "need", "last", "parted"):
            getattr(self.demand, name)[row] = getattr(made, name)[0]
        own = int(self._alike_own[row])
        if gpus != self.trace.gpus[row]:
            self.requests_differ += (own, gpus) not in self._resized
            own = self._resized.setdefault((own, gpus), self.requests_differ - 1)
        self.alike[row], self.gpus[row] = own, gpus
        self.shape[row], self.shapes = self.shapes, self.shapes + 1
        has, asked = amdahl(np.array([gpus, self.trace.gpus[row]]), self.model.serial)
        self.job.speed[row] = has / asked
        self.job.changed(row)

    # -- what follows from events

    def poke(self) -> None:
        """Something changed that makes both schedulers look again."""
        self._passes.ask(self._now_s)

    def _start(self, row: int, node: Int64s, kind: Int64s) -> None:
        held = np.where((kind == 1)[:, None], self.demand.need[row], self.demand.last[row])
        self.free_resources[:, node] -= held.T
        self._hold(node, held[:, 0])
        self.holdings.take(row, node, held)
        self.job.nodes[row], self.wanted[row] = node, 0
        self.limits.use(row)
        self.budgets.started(row, self._now_s)
        self.fair_share.started(row, self._now_s)
        self._events.push(self.job.start(row, self._now_s), EventKind.END, row, int(self.job.restarts[row]))
        self._freed(self.dependencies.started(row))

    def _look(self) -> None:
        """An epilog is done: where there is one, the main scheduler looks at once."""
        self.poke()
        if self.model.has_epilog and not self.model.defer:
            self._passes.push(EventKind.SCHEDULE, self._now_s)

    def _give_back(self, row: int, which: Bools) -> None:
        """These nodes of the job start others again. which: (K,)."""
        node, held = self.holdings.of(row)
        self.completing[node[which]] -= 1
        self._hold(node[which], -held[which, 0])

    def _hold(self, node: Int64s, gpus: Int64s) -> None:
        """A job holds that many GPUs more on these nodes."""
        self._held[node] += gpus
        self._busy += int(gpus.sum())

    def _epilog_s(self, row: int) -> float:
        recorded_s = float(self.job.requests.epilog_s[row])
        return self.model.epilog_s if math.isnan(recorded_s) else recorded_s

    def _complete(self, row: int, wait_s: float) -> None:
        """The run is over, and its nodes are completing for wait_s."""
        node, held = self.holdings.of(row)
        self.free_resources[:, node] += held.T
        self.completing[node] += 1
        self.limits.use(row, -1)
        if self.job.phase[row] == JobPhase.ENDING:
            self.entry.leaves(row)
            if spread_s := abs(float(self.job.requests.epilog_spread_s[row])) * (len(node) > 1):
                part_s = max(self._now_s + wait_s - spread_s, self._now_s)
                self._events.push(part_s, EventKind.PART_RELEASE, row, int(self.job.restarts[row]))
        self.budgets.stopped(row, self._now_s)
        self.fair_share.stopped(row, self._now_s)
        self._events.push(self._now_s + wait_s, EventKind.RELEASE, row, int(self.job.restarts[row]))
        self._watch_limits()

    def _watch_limits(self) -> None:
        """See to it that running jobs are looked at again while some have used up their limit."""
        if self.budgets.counts and self.budgets.gone():
            self._passes.ask_check(self._now_s)

    def _fail(self, nodes: Bools) -> None:
        """Nodes go down: their jobs are requeued at once."""
        for row in self.holdings.rows.tolist():
            if self.job.phase[row] == JobPhase.RUNNING and nodes[self.holdings.of(row)[0]].any():
                self.requeue(row, 0.0)

    def _never_runs(self, row: int) -> None:
        """A waiting job is cancelled, and with it all that could only start after its success."""
        if self.job.phase[row] == JobPhase.PENDING:
            self.entry.leaves(row)
        self.job.give_up(row, self._now_s, JobState.CANCELLED)
        self._unfinished -= 1
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
        return tasks[self.job.phase[tasks] == JobPhase.FUTURE]

    def _refuse(self, rows: list[int]) -> None:
        """These are not let in, nor what needs their success."""
        for row in rows:
            self.job.refuse(row)
        self._unfinished -= len(rows)
        for row in rows:
            self._settle(row, ok=False)

    def _settle(self, row: int, ok: bool) -> None:
        """Tell the jobs that wait for this one."""
        free, dead = self.dependencies.ended(row, ok)
        self._freed(free)
        for waiter in dead:
            if self.job.phase[waiter] in (JobPhase.FUTURE, JobPhase.PENDING):
                self._never_runs(waiter)

    def _freed(self, rows: list[int]) -> None:
        """Rows whose last dependency is satisfied may start, and begin to age."""
        for row in rows:
            self.job.eligible_s[row] = max(self._now_s, self.job.submit_s[row], self.job.requests.begin_s[row])
            self.job.changed(row)
            if self.job.eligible_s[row] > self._now_s and self.job.phase[row] == JobPhase.PENDING:
                self._events.push(float(self.job.eligible_s[row]), EventKind.ELIGIBLE, row)

    def planned(self, besides: str = "") -> tuple[Floats, Bools]:
        """Times known beforehand in which nodes start nothing: begin and end (B, 2) [s], and their nodes (B, N).

        Closures, and reservations as those see them who do not name them. besides: the one that a job names.
        """
        times, nodes = self._outages.planned_after(self._now_s)
        kept_s, kept = self.bookings.ahead(besides)
        return np.concatenate([times, kept_s]), np.concatenate([nodes, kept])

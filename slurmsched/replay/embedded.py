"""The embedded cluster: slurmctld's behaviour on simulated time, behind the daemon's own contract."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from slurmsched.model import (
    Act,
    JobState,
    Move,
    Outcome,
    Plan,
    Receipt,
    Reserve,
    SetNice,
    SetSiteFactor,
    Snapshot,
    Step,
)
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.deferrals import Deferral
from slurmsched.model.plan import Action
from slurmsched.replay import act_steps, schedulers, view
from slurmsched.replay.act_memory import ActMemory
from slurmsched.replay.admission import Entry
from slurmsched.replay.associations import Associations
from slurmsched.replay.bookings import Bookings
from slurmsched.replay.demand import Demand
from slurmsched.replay.dependencies import Dependencies
from slurmsched.replay.engine import Event, EventHeap, Kind
from slurmsched.replay.fair_share import FairShare
from slurmsched.replay.holdings import Holdings
from slurmsched.replay.jobtable import JobTable, Phase
from slurmsched.replay.layout import Layout
from slurmsched.replay.limits import RUNNING, LimitTable
from slurmsched.replay.metrics import History
from slurmsched.replay.pass_times import PassTimes, ToldPasses
from slurmsched.replay.requests import Requests
from slurmsched.replay.slurm_model import SlurmModel
from slurmsched.replay.traces import Trace
from slurmsched.slurm.acting import Acting

LEAST_LOOK_S = 1.0  # as the daemon's: between two cycles, however soon a plan wants to look again


class EmbeddedCluster:
    """A trace on nodes under slurmctld's rules; a `Cluster` for run_cycle, a `SimulatedCluster` for replay.

    nodes: GPUs of each node, or the whole layout. One node that holds all GPUs is the "count" model, where nodes do not
    matter. requests: what the jobs ask for beyond GPUs and time. told: passes of a recorded slurmctld.
    docs/replay.md lists what is left out.
    Raises InputError for a job that could never start and for names that are not in the layout.
    """

    def __init__(
        self,
        trace: Trace,
        nodes: Sequence[int] | Layout,
        model: SlurmModel | None = None,
        *,
        seed: int = 0,
        requests: Requests | None = None,
        told: Sequence[tuple[float, Kind, bool]] = (),
    ) -> None:
        self.model, self.seed = model or SlurmModel(), seed
        self.layout = nodes if isinstance(nodes, Layout) else Layout.of_gpus(nodes)
        requests = requests or Requests.plain(len(trace))
        self.demand = Demand.of(trace, requests, self.layout, self.model)
        tree = Associations.of(self.layout.accounts, requests)
        self.entry = Entry.of(trace, requests, self.layout, tree, self.demand.nodes)
        self.trace = trace = trace.with_columns(time_limit_s=self.entry.time_limit_s)
        self.limits = LimitTable(self.layout, requests, trace.gpus, tree, RUNNING)
        self.fair_share = FairShare.of(tree, self.model, self.layout, self.demand, requests)
        self.dependencies = Dependencies(trace, requests)
        self.job = JobTable(trace, self.model, requests, self.demand.factors, self.fair_share.points)
        self.capacity = self.layout.column("gpus")
        self.size = int(self.capacity.max(initial=0))
        self.left = np.stack([self.layout.column(name) for name in ("gpus", "cpus", "memory_mib")])
        self.left[2] = np.where(self.left[2] > 0, self.left[2], np.iinfo(np.int64).max // 2)
        tiers = np.array([partition.tier for partition in self.layout.partitions], np.int64)
        self.tier = tiers[self.demand.part] if len(np.unique(tiers)) > 1 else None
        self.open_nodes: Bools = np.ones(len(self.capacity), np.bool_)
        self.completing, self._held = (np.zeros(len(self.capacity), np.int64) for _ in range(2))  # jobs; their GPUs too
        self.scene = view.Scene.of(self.layout, self.model)
        self.holdings, self.bookings = Holdings(len(trace)), Bookings(self.layout)
        self._acting, self.wake_s = Acting(ActMemory()), math.inf  # when the last plan's acts want a look
        self._deferrals: dict[int, Deferral] = {}
        self.history = History(int(self.capacity.sum()))
        self._now_s, self._left, self._busy = 0.0, len(trace), 0  # GPUs held
        self._rows: dict[int, list[int]] = {}
        for row, (job, record) in enumerate(zip(trace.job_id.tolist(), self.job.record_id.tolist(), strict=True)):
            for key in {job, record}:
                self._rows.setdefault(key, []).append(row)
        self._events, self._writes = EventHeap(), list[Action]()
        self._passes = ToldPasses(self.model, self._events, told) if told else PassTimes(self.model, self._events)
        self._handlers: dict[Kind, Callable[[Event], bool]] = {
            Kind.END: self._end, Kind.PART_RELEASE: self._part_release, Kind.RELEASE: self._release,
            Kind.SUBMIT: self._submit, Kind.ELIGIBLE: self._eligible,
            Kind.CANCEL: self._cancel, Kind.NODES: self._nodes_change, Kind.WRITE: self._write_arrives,
            Kind.BOOKING: self._bookings_change, Kind.SAVED: self._saved, Kind.USAGE: self._count_usage,
            Kind.SCHEDULE: self._schedule, Kind.BACKFILL: self._backfill,
        }  # fmt: skip
        self._foresee()

    def _foresee(self) -> None:
        """Events known from the start."""
        for row, submit_s in enumerate(self.trace.submit_s.tolist()):
            self._events.push(submit_s, Kind.SUBMIT, row)
        for row in np.flatnonzero(np.isfinite(self.job.requests.cancel_s)).tolist():
            self._events.push(float(self.job.requests.cancel_s[row]), Kind.CANCEL, row)
        for closure in self.layout.closures:
            self._events.push(closure.from_s, Kind.NODES)
            if closure.until_s < math.inf:
                self._events.push(closure.until_s, Kind.NODES)
        waits = self.dependencies.open > 0
        self.job.eligible_s[waits] = math.inf

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

    def advance(self, until_s: float) -> int:
        happened = 0
        while self._events.next_s <= until_s:
            event = self._events.pop()
            self._now_s = event.time_s
            if self._handlers[event.kind](event):
                happened += 1
                self.history.note(self._now_s, self._busy, self.waiting)
        if until_s < math.inf:
            self._now_s = max(self._now_s, until_s)
        return happened

    # -- the Cluster contract

    def read(self) -> Snapshot:
        """The cluster now, as a reader of a live Slurm gives it, with the service of each job filled in."""
        return view.snapshot(self)

    def apply(self, plan: Plan) -> Receipt:
        """Do as slurmctld does with each action; one that it would refuse stops no other, but the later steps of its
        act. With a latency or a pace in the model a lever counts as written if it would be accepted now.
        """
        self._acting.begin(plan)
        outcomes = tuple(self._answered(action, at) for at, action in enumerate(plan.actions))
        self._acting.end()
        self._deferrals |= {record.job_id: record for record in plan.deferrals}
        self.wake_s = max(plan.wake.at_s, self._now_s + LEAST_LOOK_S) if plan.acts else math.inf
        return Receipt(outcomes, len(outcomes))

    @property
    def acts(self) -> tuple[Act, ...]:
        """Those under way, as the daemon's journal has them."""
        return self._acting.open

    @property
    def deferrals(self) -> tuple[Deferral, ...]:
        """Earliest starts that jobs may have by us."""
        return tuple(record for record in self._deferrals.values() if record.open or record.over)

    @property
    def past_acts(self) -> tuple[Act, ...]:
        """Closed ones that caps and leases still count."""
        return self._acting.past(self._now_s)

    def _answered(self, action: Action, place: int) -> Outcome:
        if not (isinstance(action, Step) and action.act):
            return self._apply(action, place)
        if reason := self._acting.unfit(action):
            outcome = Outcome(action, "refused", reason)
        else:
            self._acting.goes(action)
            outcome = self._apply(action, place)
        self._acting.answered(outcome)
        return outcome

    def _apply(self, action: Action, place: int) -> Outcome:
        if reason := self._refusal(action):
            return Outcome(action, "refused", reason)
        pause_s = place / self.model.writes_per_s if self.model.writes_per_s else 0.0
        if isinstance(action, Step) or self.model.rpc_latency_s + pause_s == 0:
            self._do(action)
        else:
            self._writes.append(action)
            arrives_s = self._now_s + self.model.rpc_latency_s + pause_s
            self._events.push(arrives_s, Kind.WRITE, run=len(self._writes) - 1)
        return Outcome(action, "written")

    def _refusal(self, action: Action) -> str:
        """Why slurmctld would refuse the action, "" if it would not."""
        if isinstance(action, Step):
            return act_steps.refusal(self, action)
        phases = {Phase(self.job.phase[row]) for row in self.rows_of(action.job_id)
                  if self.job.submit_s[row] == action.submit_s}  # fmt: skip
        if not phases:
            return "Invalid job id specified"
        if not isinstance(action, SetNice | SetSiteFactor):
            return f"no such action here: {action.kind}"
        return "" if phases & {Phase.PENDING, Phase.COMPLETING} else "Job is no longer pending execution"

    def _do(self, action: Action) -> None:
        """Carry out an action that would be accepted now: on a job, or on what is left of an array."""
        if isinstance(action, Step):
            act_steps.do(self, action)
        for row in () if isinstance(action, Step) else self.rows_of(action.job_id):
            if self.job.phase[row] in (Phase.PENDING, Phase.COMPLETING):
                if isinstance(action, SetNice):
                    self.job.nice[row] = action.new
                elif isinstance(action, SetSiteFactor):
                    self.job.site[row] = action.new
        self._poke()

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

    # -- events; each tells whether it changed anything

    def _submit(self, event: Event) -> bool:
        if self.job.phase[event.row] != Phase.FUTURE:
            return False
        tasks = self._comes_with(event.row)
        if not self.entry.lets_in(event.row, tasks):
            self._refuse(tasks)
            return True
        self.job.submit(event.row)
        self.fair_share.watch(self._now_s, self._events, True)
        begin_s = float(self.job.eligible_s[event.row])
        if self._now_s < begin_s < math.inf:
            self._events.push(begin_s, Kind.ELIGIBLE, event.row)
        self._poke()
        return True

    def _end(self, event: Event) -> bool:
        if self._stale(event):
            return False
        self.job.finish(event.row, self._now_s)
        self._left -= 1
        self._complete(event.row, self._epilog_s(event.row))
        return True

    def _part_release(self, event: Event) -> bool:
        """All nodes of a job but one are done with its end."""
        if self._stale(event):
            return False
        kept = np.zeros(len(self.holdings.of(event.row)[0]), np.bool_)
        kept[-1 if self.job.requests.epilog_spread_s[event.row] > 0 else 0] = True
        self._give_back(event.row, ~kept)
        self.holdings.keep(event.row, kept)
        self._look()
        return True

    def _release(self, event: Event) -> bool:
        if self._stale(event):
            return False
        self._give_back(event.row, np.ones(len(self.holdings.of(event.row)[0]), np.bool_))
        self.holdings.drop(event.row)
        if self.job.phase[event.row] == Phase.ENDING:
            self.job.settle(event.row)
            ok = bool(self.job.ended_as[event.row] == int(JobState.COMPLETED))
            self._settle(event.row, ok)
        else:
            self._events.push(self.job.resubmit(event.row, self._now_s), Kind.ELIGIBLE, event.row, event.run)
        self._look()
        return True

    def _eligible(self, event: Event) -> bool:
        if self._stale(event):
            return False
        self._passes.ask_full(self._now_s)
        self._passes.ask_backfill(self._now_s)
        return True

    def _cancel(self, event: Event) -> bool:
        row, phase = event.row, self.job.phase[event.row]
        if phase == Phase.RUNNING:
            self.end_early(row, JobState.CANCELLED)
        elif phase in (Phase.FUTURE, Phase.PENDING):
            self._never_runs(row)
        return phase != Phase.DONE

    def _nodes_change(self, event: Event) -> bool:
        now = [each for each in self.layout.closures if each.from_s <= self._now_s < each.until_s]
        self.open_nodes = np.ones(len(self.capacity), np.bool_)
        for closure in now:
            self.open_nodes &= ~self.layout.mask(closure.nodes)
            if closure.down and closure.from_s == self._now_s:
                self._fail(self.layout.mask(closure.nodes))
        self._poke()
        return True

    def _bookings_change(self, event: Event) -> bool:
        """A reservation begins or ends; who still runs in it then is over its time, who waits for it is free again."""
        for name in self.bookings.over(self._now_s):
            rows = [row for row, named in self.bookings.named.items() if named == name]
            self.bookings.drop(name)
            for row in rows:
                if self.job.phase[row] == Phase.RUNNING:
                    self.end_early(row, JobState.TIMEOUT)
        self._poke()
        return True

    def _saved(self, event: Event) -> bool:
        leaves = self.model.leaves_saved and not self._stale(event) and self.job.phase[event.row] == Phase.RUNNING
        if leaves:
            self.requeue(event.row, self._epilog_s(event.row))
        return leaves

    def _write_arrives(self, event: Event) -> bool:
        action = self._writes[event.run]
        if self._refusal(action):
            return False
        self._do(action)
        return True

    def _schedule(self, event: Event) -> bool:
        if not self._passes.begins(event):
            return False
        full = self._passes.is_full(self._now_s)
        if not full and self.waiting > self.model.queue_depth:
            self._passes.ask_full(self._now_s)
        booked = self._booked()
        return (self._started(schedulers.main_starts(self, full)) if self.left[0].any() else False) or booked

    def _backfill(self, event: Event) -> bool:
        if not self._passes.begins(event):
            return False
        booked = self._booked()
        return self._started(schedulers.backfill_starts(self)) or booked

    def _booked(self) -> bool:
        """Start who waits for a reservation and can have it: Slurm tests those first. Whether anybody started."""
        if not (named := self.bookings.named):
            return False
        waiting = [row for row in self.job.startable(self._now_s).tolist() if row in named]
        return sum(self._started(schedulers.booked_starts(self, row)) for row in waiting) > 0

    def _stale(self, event: Event) -> bool:
        """Whether the event was made in an earlier run of the job, or the job was cancelled since."""
        cancelled = event.kind == Kind.END and self.job.run_until_s[event.row] != event.time_s
        return cancelled or event.run != self.job.restarts[event.row]

    def _count_usage(self, event: Event) -> bool:
        """The decay thread: with what was used the order of those that wait may change."""
        self.fair_share.count(self._now_s)
        self.fair_share.watch(self._now_s, self._events, self.job.alive)
        if self.waiting:
            self._passes.ask_full(self._now_s)
            self._passes.ask_backfill(self._now_s)
        return self.waiting > 0

    # -- what follows from events

    def _poke(self) -> None:
        """Something changed that makes both schedulers look again."""
        self._passes.ask(self._now_s)

    def _started(self, starts: list[schedulers.Start]) -> bool:
        for row, node, kind in starts:
            self._start(row, node, kind)
        return bool(starts)

    def _start(self, row: int, node: Int64s, kind: Int64s) -> None:
        held = np.where((kind == 1)[:, None], self.demand.need[row], self.demand.last[row])
        self.left[:, node] -= held.T
        self._hold(node, held[:, 0])
        self.holdings.take(row, node, held)
        self.limits.use(row)
        self.fair_share.started(row, self._now_s)
        self._events.push(self.job.start(row, self._now_s), Kind.END, row, int(self.job.restarts[row]))
        self._freed(self.dependencies.started(row))

    def _look(self) -> None:
        """An epilog is done: where there is one, the main scheduler looks at once."""
        self._poke()
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
                self._events.push(self._now_s + wait_s - spread_s, Kind.PART_RELEASE, row, int(self.job.restarts[row]))
        self.fair_share.stopped(row, self._now_s)
        self._events.push(self._now_s + wait_s, Kind.RELEASE, row, int(self.job.restarts[row]))

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
        self._poke()

    def _comes_with(self, row: int) -> list[int]:
        """The job, and the other tasks of its array that come with it."""
        array = int(self.job.requests.array_id[row])
        return [task for task in self.rows_of(array) if self.job.phase[task] == Phase.FUTURE] if array else [row]

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

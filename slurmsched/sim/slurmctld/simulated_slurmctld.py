"""The events of the simulated slurmctld: what slurmctld does at each, on simulated time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from slurmsched.model import JobState, Operation, Outcome, Plan, Receipt, Snapshot, Step
from slurmsched.model.columns import frozen
from slurmsched.model.job_outcomes import JobOutcomes
from slurmsched.model.overrides import Override
from slurmsched.model.plan import Action
from slurmsched.model.trace import Trace
from slurmsched.planning.gate import GateContext, earlier_step
from slurmsched.sim.cluster_layout import ClusterLayout
from slurmsched.sim.event_loop import Event, EventKind
from slurmsched.sim.replay_stores import OperationMemory
from slurmsched.sim.slurmctld import scheduler_passes, slurmctld_requests, slurmctld_snapshot
from slurmsched.sim.slurmctld.job_demands import SubmittedRequests
from slurmsched.sim.slurmctld.simulated_jobs import JobPhase
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings
from slurmsched.sim.slurmctld.slurmctld_state import SlurmctldSetup, SlurmctldState
from slurmsched.slurm.recorder import OperationRecorder


class SlurmctldEvents(SlurmctldState):
    """The state, moved on by events in their order. A handler returns whether it changed anything."""

    def __init__(self, setting: SlurmctldSetup) -> None:
        super().__init__(setting)
        self._writes, self._changed = list[Action](), False  # since the last plan
        self._handlers: dict[EventKind, Callable[[Event], bool]] = {
            EventKind.END: self._end, EventKind.PART_RELEASE: self._part_release, EventKind.RELEASE: self._release,
            EventKind.SUBMIT: self._submit, EventKind.ELIGIBLE: self._eligible,
            EventKind.CANCEL: self._cancel, EventKind.NODES: self._nodes_change, EventKind.WRITE: self._write_arrives,
            EventKind.BOOKING: self._bookings_change, EventKind.SAVED: self._saved, EventKind.USAGE: self._count_usage,
            EventKind.CHECK: self._check_limits,
            EventKind.SCHEDULE: self._schedule, EventKind.BACKFILL: self._backfill,
        }  # fmt: skip
        self._foresee()

    def _foresee(self) -> None:
        """Events known from the start."""
        for row, submit_s in enumerate(self.trace.submit_s.tolist()):
            self._events.push(submit_s + self.model.submit_late_s, EventKind.SUBMIT, row)
        for row in np.flatnonzero(np.isfinite(self.job.requests.cancel_s)).tolist():
            self._events.push(float(self.job.requests.cancel_s[row]), EventKind.CANCEL, row)
        for closure in self.layout.closures:
            self._events.push(closure.from_s, EventKind.NODES)
            if closure.until_s < math.inf:
                self._events.push(closure.until_s, EventKind.NODES)
        waits = self.dependencies.open > 0
        self.job.eligible_s[waits] = math.inf

    def advance(self, until_s: float) -> int:
        """As SimulatedCluster. That usage is counted is no event for a job that waits alone: it has no order."""
        happened = 0
        while self._events.next_s <= until_s:
            event = self._events.pop()
            self._now_s = event.time_s
            if self._handlers[event.kind](event):
                waiting = self.waiting
                happened += event.kind != EventKind.USAGE or waiting > 1 or self.budgets.counts
                self.history.note(self._now_s, self._busy, waiting)
                self._passes.changed(self._now_s, waiting > 0)
        if until_s < math.inf:
            self._now_s = max(self._now_s, until_s)
        self._changed = self._changed or happened > 0
        return happened

    @property
    def undecided(self) -> bool:
        """Whether a plan made now can differ from the last one: jobs wait, something has changed since, or running jobs
        may be asked for another size."""
        return self._changed or self.waiting > 0 or (self.model.resizes and len(self.holdings.rows) > 0)

    def _submit(self, event: Event) -> bool:
        if self.job.phase[event.row] != JobPhase.FUTURE:
            return False
        tasks = self._comes_with(event.row)
        if not self.entry.lets_in(event.row, tasks):
            self._refuse(tasks.tolist())
            return True
        self.job.submit(event.row)
        self._watch_usage()
        begin_s = float(self.job.eligible_s[event.row])
        if self._now_s < begin_s < math.inf:
            self._events.push(begin_s, EventKind.ELIGIBLE, event.row)
        self.poke()
        return True

    def _end(self, event: Event) -> bool:
        if self._stale(event):
            return False
        self.job.finish(event.row, self._now_s)
        self._unfinished -= 1
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
        if self.job.phase[event.row] == JobPhase.ENDING:
            self.job.settle(event.row)
            ok = bool(self.job.ended_as[event.row] == int(JobState.COMPLETED))
            self._settle(event.row, ok)
        else:
            self._events.push(self.job.resubmit(event.row, self._now_s), EventKind.ELIGIBLE, event.row, event.run)
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
        if phase == JobPhase.RUNNING:
            self.end_early(row, JobState.CANCELLED)
        elif phase in (JobPhase.FUTURE, JobPhase.PENDING):
            self._never_runs(row)
        return phase != JobPhase.DONE

    def _nodes_change(self, event: Event) -> bool:
        self.open_nodes = self._outages.open_at(self._now_s)
        for closure in self._outages.failing_at(self._now_s):
            self._fail(self.layout.mask(closure.nodes))
        self.poke()
        return True

    def _bookings_change(self, event: Event) -> bool:
        """A reservation begins or ends; who still runs in it then is over its time, who waits for it is free again."""
        for name in self.bookings.over(self._now_s):
            rows = [row for row, named in self.bookings.named.items() if named == name]
            self.bookings.drop(name)
            for row in rows:
                if self.job.phase[row] == JobPhase.RUNNING:
                    self.end_early(row, JobState.TIMEOUT)
        self.poke()
        return True

    def _saved(self, event: Event) -> bool:
        leaves = self.model.leaves_saved or (self.model.resizes and self.wanted[event.row] > 0)
        leaves = leaves and not self._stale(event) and self.job.phase[event.row] == JobPhase.RUNNING
        if leaves:
            self.requeue(event.row, self._epilog_s(event.row))
        return bool(leaves)

    def _write_arrives(self, event: Event) -> bool:
        action = self._writes[event.run]
        if slurmctld_requests.action_refusal(self, action):
            return False
        slurmctld_requests.do_action(self, action)
        return True

    def _schedule(self, event: Event) -> bool:
        if not self._passes.begins(event):
            return False
        full = self._passes.is_full(self._now_s)
        if not full and self.waiting > self.model.queue_depth:
            self._passes.ask_full(self._now_s)
        booked = self._booked()
        fits = self.free_resources[0].any() and scheduler_passes.anyone_fits(self)
        started = self._started(scheduler_passes.main_starts(self, full)) if fits else False
        return self.preempt(full) or started or booked

    def _backfill(self, event: Event) -> bool:
        if not self._passes.begins(event):
            return False
        booked = self._booked()
        if self.model.backfill == "slurm" and not scheduler_passes.anyone_fits(self):
            return booked
        return self._started(scheduler_passes.backfill_starts(self)) or booked

    def _booked(self) -> bool:
        """Start who waits for a reservation and can have it: Slurm tests those first. Whether anybody started."""
        if not (named := self.bookings.named):
            return False
        waiting = [row for row in self.job.startable(self._now_s).tolist() if row in named]
        return sum(self._started(scheduler_passes.booked_starts(self, row)) for row in waiting) > 0

    def _stale(self, event: Event) -> bool:
        """Whether the event was made in an earlier run of the job, or the job was cancelled since."""
        cancelled = event.kind == EventKind.END and self.job.run_until_s[event.row] != event.time_s
        return cancelled or event.run != self.job.restarts[event.row]

    def _count_usage(self, event: Event) -> bool:
        """The decay thread: with what was used the order of those that wait may change, and limits on it."""
        self.budgets.count(self._now_s, self.fair_share.count(self._now_s))
        self.job.weighed_anew()
        self._watch_limits()
        if self.budgets.counts and not len(self.holdings.rows):
            for row in self.budgets.never(self.job.startable(self._now_s)):
                self._never_runs(row)
        if self.job.alive:
            self._watch_usage()
        if self.waiting:
            self._passes.ask_full(self._now_s)
            self._passes.ask_backfill(self._now_s)
        return self.waiting > 0

    def _check_limits(self, event: Event) -> bool:
        """slurmctld looks for jobs that run beyond their limits: those whose limit is used up, or that have had their
        GraceTime, are over."""
        gone, preempted = self.budgets.gone() if self.budgets.counts else [], self._had_grace()
        for row in gone:
            self.end_early(row, JobState.TIMEOUT)
        for row in preempted:
            self._preempt(row, 0.0)
        return bool(gone or preempted)

    def _watch_usage(self) -> None:
        if self.model.weight_fairshare or self.budgets.counts:
            self.fair_share.watch(self._now_s, self._events)

    def _started(self, starts: list[scheduler_passes.Start]) -> bool:
        for row, node, kind in starts:
            self._start(row, node, kind)
        return bool(starts)


# The simulated slurmctld.

LEAST_LOOK_S = 1.0  # as the daemon's: between two cycles, however soon a plan wants to look again


class SimulatedSlurmctld(SlurmctldEvents):
    """A trace on nodes under slurmctld's rules; a `Cluster` for run_cycle, a `SimulatedCluster` for replay.

    nodes: GPUs of each node, or the whole layout. One node that holds all GPUs is the "count" model, where nodes do not
        matter.
    requests: what the jobs ask for beyond GPUs and time.
    recorded_passes: those of a recorded slurmctld.

    docs/replay.md lists what is left out.
    Raises InputError for a job that could never start and for names that are not in the layout.
    """

    def __init__(
        self,
        trace: Trace,
        nodes: Sequence[int] | ClusterLayout,
        model: SlurmctldSettings | None = None,
        *,
        seed: int = 0,
        requests: SubmittedRequests | None = None,
        recorded_passes: Sequence[tuple[float, EventKind, bool]] = (),
    ) -> None:
        layout = nodes if isinstance(nodes, ClusterLayout) else ClusterLayout.of_gpus(nodes)
        requests = requests or SubmittedRequests.plain(len(trace))
        super().__init__(SlurmctldSetup(trace, layout, model or SlurmctldSettings(), seed, requests, recorded_passes))
        self._acting, self._next_look_s = OperationRecorder(OperationMemory()), math.inf
        self._overrides: dict[tuple[int, str], Override] = {}

    def read(self) -> Snapshot:
        """The cluster now, as a reader of a live Slurm gives it, with the service of each job filled in."""
        return slurmctld_snapshot.snapshot(self)

    def apply(self, plan: Plan) -> Receipt:
        """Do as slurmctld does with each action; one that it would refuse stops no other, but the later steps of its
        operation. With a latency or a pace in the model a lever counts as written if it would be accepted now.
        """
        self._acting.begin(plan)
        outcomes = tuple(self._answered(action, at) for at, action in enumerate(plan.actions))
        self._acting.end(self._now_s)
        self._overrides |= {record.key: record for record in plan.overrides}
        self._next_look_s = max(plan.next_look_s, self._now_s + LEAST_LOOK_S) if plan.operations else math.inf
        self._changed = False
        return Receipt(outcomes, len(outcomes))

    @property
    def next_look_s(self) -> float:
        """When the operations of the last plan need another look; infinite if none is under way."""
        return self._next_look_s

    def late_s(self, place: int) -> float:
        """How long after it was planned the lever at this place of a plan takes effect [s]."""
        pause_s = place / self.model.writes_per_s if self.model.writes_per_s else 0.0
        return self.model.rpc_latency_s + pause_s

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Those under way, as the daemon's journal has them."""
        return self._acting.open

    @property
    def overrides(self) -> tuple[Override, ...]:
        """Earliest starts that jobs may have by us."""
        return tuple(record for record in self._overrides.values() if record.matters)

    @property
    def past_operations(self) -> tuple[Operation, ...]:
        """Closed ones that caps and leases still count."""
        return self._acting.past(self._now_s)

    def _answered(self, action: Action, place: int) -> Outcome:
        if not (isinstance(action, Step) and action.operation):
            return self._apply(action, place)
        if reason := earlier_step(action, GateContext(broken=self._acting.broken)):
            outcome = Outcome(action, "refused", reason)
        else:
            self._acting.goes(action)
            outcome = self._apply(action, place)
        self._acting.answered(outcome)
        return outcome

    def _apply(self, action: Action, place: int) -> Outcome:
        if reason := slurmctld_requests.action_refusal(self, action):
            return Outcome(action, "refused", reason)
        late_s = 0.0 if isinstance(action, Step) else self.late_s(place)
        if not late_s:
            slurmctld_requests.do_action(self, action)
        else:
            self._writes.append(action)
            self._events.push(self._now_s + late_s, EventKind.WRITE, run=len(self._writes) - 1)
        return Outcome(action, "written")


def outcomes_of(cluster: SimulatedSlurmctld) -> JobOutcomes:
    """What became of the jobs that ended so far. A job that was resized counts with the GPUs of its last run."""
    job, trace = cluster.job, cluster.trace
    ended = np.isfinite(job.end_s)
    return JobOutcomes(
        job_id=trace.job_id[ended],
        gpus=trace.gpus[ended],
        submit_s=trace.submit_s[ended],
        first_start_s=frozen(job.first_start_s[ended], np.float64),
        end_s=frozen(job.end_s[ended], np.float64),
        executed_s=frozen(job.executed_s[ended], np.float64),
        useful_s=frozen((job.executed_s - job.wasted_s)[ended], np.float64),
        preemptions=frozen(job.restarts[ended], np.int64),
        cluster_gpus=int(cluster.capacity.sum()),
        gpu_share=(cluster.gpus / np.maximum(trace.gpus, 1))[ended] if (cluster.gpus != trace.gpus).any() else None,
    )

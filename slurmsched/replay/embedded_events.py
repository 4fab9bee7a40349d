"""The events of the embedded cluster: what slurmctld does at each, on simulated time."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from slurmsched.model import JobState
from slurmsched.model.plan import Action
from slurmsched.replay import embedded_actions, schedulers
from slurmsched.replay.embedded_state import EmbeddedState, Setting
from slurmsched.replay.engine import Event, Kind
from slurmsched.replay.jobtable import Phase


class EmbeddedEvents(EmbeddedState):
    """The state, moved on by events in their order; a handler tells whether it changed anything. As EmbeddedCluster."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._writes = list[Action]()
        self._handlers: dict[Kind, Callable[[Event], bool]] = {
            Kind.END: self._end, Kind.PART_RELEASE: self._part_release, Kind.RELEASE: self._release,
            Kind.SUBMIT: self._submit, Kind.ELIGIBLE: self._eligible,
            Kind.CANCEL: self._cancel, Kind.NODES: self._nodes_change, Kind.WRITE: self._write_arrives,
            Kind.BOOKING: self._bookings_change, Kind.SAVED: self._saved, Kind.USAGE: self._count_usage,
            Kind.CHECK: self._check_limits,
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

    def _submit(self, event: Event) -> bool:
        if self.job.phase[event.row] != Phase.FUTURE:
            return False
        tasks = self._comes_with(event.row)
        if not self.entry.lets_in(event.row, tasks):
            self._refuse(tasks.tolist())
            return True
        self.job.submit(event.row)
        self._watch_usage()
        begin_s = float(self.job.eligible_s[event.row])
        if self._now_s < begin_s < math.inf:
            self._events.push(begin_s, Kind.ELIGIBLE, event.row)
        self.poke()
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
        self.poke()
        return True

    def _bookings_change(self, event: Event) -> bool:
        """A reservation begins or ends; who still runs in it then is over its time, who waits for it is free again."""
        for name in self.bookings.over(self._now_s):
            rows = [row for row, named in self.bookings.named.items() if named == name]
            self.bookings.drop(name)
            for row in rows:
                if self.job.phase[row] == Phase.RUNNING:
                    self.end_early(row, JobState.TIMEOUT)
        self.poke()
        return True

    def _saved(self, event: Event) -> bool:
        leaves = self.model.leaves_saved and not self._stale(event) and self.job.phase[event.row] == Phase.RUNNING
        if leaves:
            self.requeue(event.row, self._epilog_s(event.row))
        return leaves

    def _write_arrives(self, event: Event) -> bool:
        action = self._writes[event.run]
        if embedded_actions.refusal(self, action):
            return False
        embedded_actions.do(self, action)
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
        """The decay thread: with what was used the order of those that wait may change, and limits on it."""
        self.budgets.count(self._now_s, self.fair_share.count(self._now_s))
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
        """slurmctld looks for jobs that run beyond their limits: those whose limit is used up are over."""
        gone = self.budgets.gone()
        for row in gone:
            self.end_early(row, JobState.TIMEOUT)
        return bool(gone)

    def _watch_usage(self) -> None:
        if self.model.weight_fairshare or self.budgets.counts:
            self.fair_share.watch(self._now_s, self._events)

    def _started(self, starts: list[schedulers.Start]) -> bool:
        for row, node, kind in starts:
            self._start(row, node, kind)
        return bool(starts)

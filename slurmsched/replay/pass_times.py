"""When slurmctld's two schedulers look at the queue, and when it looks at running jobs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from slurmsched.replay.engine import Event, EventHeap, Kind
from slurmsched.replay.slurm_model import SlurmModel


class PassTimes:
    """The next main and the next backfill pass, as events; one of each kind is due at a time, the earliest asked for.

    Without a change a pass would find what the last one found: ages grow alike, so the order stands and reservations
    only come nearer. Hence passes are asked for.
    """

    def __init__(self, model: SlurmModel, events: EventHeap) -> None:
        self._model, self._events = model, events
        self._last = {Kind.SCHEDULE: -math.inf, Kind.BACKFILL: model.bf_phase_s - model.bf_interval_s}
        self._due = {Kind.SCHEDULE: math.inf, Kind.BACKFILL: math.inf}
        self._check_s = -math.inf  # the last look at running jobs that was asked for or told

    def ask(self, now_s: float) -> None:
        """Something changed: both schedulers look again at their next time."""
        wish_s = max(now_s, self._last[Kind.SCHEDULE] + self._model.batch_sched_delay_s)
        self.push(Kind.SCHEDULE, self._tick_from(wish_s))
        self.ask_backfill(now_s)

    def ask_full(self, now_s: float) -> None:
        """slurmctld is not told: the pass over the whole queue will see it."""
        self.push(Kind.SCHEDULE, self._full_pass_from(now_s))

    def ask_backfill(self, now_s: float) -> None:
        """Backfill looks again at its next time, if there is any."""
        if self._model.backfill != "none":
            wish_s = max(now_s, self._last[Kind.BACKFILL] + self._model.bf_interval_s)
            self.push(Kind.BACKFILL, _next(wish_s, self._model.tick_s, self._model.bf_phase_s))

    def ask_check(self, now_s: float) -> None:
        """Running jobs are held against their limits when slurmctld next looks at them."""
        if self._check_s <= now_s:
            self._check_s = _next(now_s, self._model.time_limit_check_s, 0.0)
            self._events.push(self._check_s, Kind.CHECK)

    def push(self, kind: Kind, time_s: float) -> None:
        """A pass of this kind at this time, if none is due before."""
        if time_s < self._due[kind]:
            self._due[kind] = time_s
            self._events.push(time_s, kind)

    def begins(self, event: Event) -> bool:
        """Whether the pass of this event is the one that is due; then it is under way, and none is due."""
        kind, now_s = event.kind, event.time_s
        if now_s != self._due[kind]:
            return False
        self._due[kind] = math.inf
        if kind == Kind.BACKFILL or now_s == self._tick_from(now_s):  # an Epilog's own pass is beside the clock
            self._last[kind] = now_s
        return True

    def is_full(self, now_s: float) -> bool:
        """Whether a main pass now looks at the whole queue."""
        return now_s == self._full_pass_from(now_s)

    def _tick_from(self, wish_s: float) -> float:
        tick_s = self._model.tick_s
        return _next(wish_s, tick_s, -self._model.epoch_s % tick_s if tick_s else 0.0)

    def _full_pass_from(self, wish_s: float) -> float:
        return _next(wish_s, self._model.sched_interval_s, self._tick_from(self._model.sched_phase_s))


class ToldPasses(PassTimes):
    """Passes at the times at which a recorded slurmctld made them; after those as PassTimes has them.

    told: time, scheduler, whether over the whole queue; or when usage was counted, or held against limits. For
    comparison with a real one, whose passes take wall time and come later by the load of its machine.
    """

    def __init__(self, model: SlurmModel, events: EventHeap, told: Sequence[tuple[float, Kind, bool]]) -> None:
        super().__init__(model, events)
        self._full = {time_s for time_s, _, full in told if full}
        self._until_s = max(last_told(told, kind) for kind in self._last)
        self._check_s = last_told(told, Kind.CHECK)
        for time_s, kind, _ in told:
            events.push(time_s, kind)

    def push(self, kind: Kind, time_s: float) -> None:
        """Nothing is asked for before the last one told."""
        if time_s > self._until_s:
            super().push(kind, time_s)

    def begins(self, event: Event) -> bool:
        """Every one told does."""
        if event.time_s > self._until_s:
            return super().begins(event)
        self._last[event.kind] = event.time_s
        return True

    def is_full(self, now_s: float) -> bool:
        return now_s in self._full or (now_s > self._until_s and super().is_full(now_s))


def last_told(told: Sequence[tuple[float, Kind, bool]], kind: Kind) -> float:
    """The last time told of this kind, minus infinity if there is none [s]."""
    return max((time_s for time_s, each, _ in told if each == kind), default=-math.inf)


def _next(wish_s: float, step_s: float, phase_s: float) -> float:
    """The first of phase_s, phase_s + step_s, ... that is not before wish_s; wish_s itself without a step."""
    return round(math.ceil((wish_s - phase_s) / step_s - 1e-9) * step_s + phase_s, 9) if step_s else wish_s

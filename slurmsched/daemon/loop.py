"""The daemon: a cycle every interval, signals between cycles, failures backed off and survived."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from math import inf

from slurmsched.config import Config
from slurmsched.cycle import run_cycle
from slurmsched.daemon.assemble import Parts, assembled, paused
from slurmsched.daemon.leading import Leading
from slurmsched.daemon.lock import AtWork, work_of
from slurmsched.daemon.notify import Notifier
from slurmsched.daemon.signals import Signals
from slurmsched.daemon.told import Told
from slurmsched.daemon.wakers import Wakers
from slurmsched.daemon.watch import Watch
from slurmsched.errors import ConfigError, NotLeadingError, SlurmschedError
from slurmsched.logs import configure, get_logger
from slurmsched.model.plan import Plan, Receipt, Step
from slurmsched.model.snapshot import Snapshot

LONGEST_BACKOFF_S = 600.0
LEAST_LOOK_S = 1.0  # between two cycles, however soon a plan wants to look again
LEAST_REST = 0.1  # of a cycle's length, before the next: slurmctld and users come first
MOST_SAID = 300  # characters of a refused reload's reason that are published
FIXED = ("url", "journal", "lock")  # of the ledger: what a running daemon holds

log = get_logger()


class Loop:
    """Runs cycles until told to stop.

    load: the configuration, read anew at each reload. forced: "apply", "dry-run" or None = as configured.
    publish: tells others what this daemon does.
    """

    def __init__(
        self,
        load: Callable[[], Config],
        notifier: Notifier,
        forced: str | None = None,
        publish: Callable[[AtWork], None] = lambda _: None,
    ) -> None:
        self._load, self._notifier, self._forced, self._publish = load, notifier, forced, publish
        self.signals = Signals()
        self._failures = 0
        self._look_s = inf  # so soon after its begin the last cycle wants another
        self._config = load()
        self._told = Told(placing=self._config.placement.places)
        self._wakers = _wakers(self._config)
        self._stack, self._parts = self._open(self._config)
        self._leading = Leading(self._parts.lead)
        self._watch = Watch(self._config, apply=self._mode(self._config) == "apply")
        self._work = work_of(self._config, apply=self._mode(self._config) == "apply")
        publish(self._work)

    def run(self) -> None:
        """Cycles until SIGTERM or SIGINT; the one under way is finished first."""
        self._notifier.ready("waiting for the first cycle")
        log.info("daemon.started", mode=self._mode(self._config), interval_s=self._config.cycle.interval_s)
        while not self.signals.stop:
            if self.signals.reload:
                self._reread()
            begun_s = time.monotonic()
            self._cycle()
            ended_s = time.monotonic()
            self._wait_until(self.next_s(begun_s, ended_s), self.woken_s(begun_s, ended_s))
        self._notifier.stopping()
        self._watch.close()
        self._stack.close()
        if self._wakers:
            self._wakers.close()
        self.signals.close()
        log.info("daemon.stopped")

    def next_s(self, begun_s: float, ended_s: float) -> float:
        """When the next cycle begins, by the clock of begun_s and ended_s: after the interval, or sooner where a
        preemption under way needs it. A cycle longer than the interval is followed by a rest all the same."""
        wait_s = self.pause_s() if self._failures else min(self.pause_s(), max(self._look_s, LEAST_LOOK_S))
        return max(begun_s + wait_s, ended_s + LEAST_REST * (ended_s - begun_s))

    def woken_s(self, begun_s: float, ended_s: float) -> float:
        """When the next cycle begins if somebody calls (`daemon.socket`): not while cycles fail."""
        wait_s = inf if self._failures else self._config.daemon.wake_s
        return max(begun_s + wait_s, ended_s + LEAST_REST * (ended_s - begun_s))

    def pause_s(self) -> float:
        """From the begin of a cycle to the next [s]: the interval, doubled for each failure in a row up to a limit."""
        interval_s = self._config.cycle.interval_s
        longest_s = max(interval_s, LONGEST_BACKOFF_S)
        return float(min(interval_s * 2 ** min(self._failures, 30), longest_s))

    def _cycle(self) -> None:
        self._look_s = inf
        try:
            if not self._leading():
                self._stand_by()
                return
            parts = self._parts
            receipt = run_cycle(*self._watch.parts(parts.cluster, parts.planner, parts.store), self._tell)
        except NotLeadingError as error:
            log.warning("cycle.dropped", error=str(error))
            self._watch.ended("dropped")
            self._look_s = LEAST_LOOK_S
        except Exception as error:
            self._failures += 1
            expected = isinstance(error, SlurmschedError)
            log.error("cycle.failed", error=str(error), kind=type(error).__name__, in_a_row=self._failures,
                      next_s=self.pause_s(), exc_info=not expected)  # fmt: skip
            self._watch.ended("failed")
            self._notifier.status(f"failing: {error}")
        else:
            self._failures = 0
            said = f"last cycle: {receipt.planned} planned, {len(receipt.written)} written"
            held = self._mode(self._config) == "apply" and paused(self._config)  # it goes on watching
            self._notifier.status(f"{said}; paused by {self._config.cycle.stop_file}" if held else said)
        self._notifier.watchdog()

    def _stand_by(self) -> None:
        """Another host leads: look, so that taking over is known to work, and neither write nor remember."""
        self._watch.looked(*self._parts.look(), self._parts.planner)
        self._failures = 0
        self._look_s = self._leading.look_s()
        self._watch.ended("standby")
        self._notifier.status(f"stands by: {self._leading.standby}")
        self._notifier.watchdog()

    def _tell(self, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
        self._told(snapshot, plan, receipt)
        self._watch.done(snapshot, plan, receipt)
        if plan.acts and not receipt.dry_run and not receipt.stopped:
            steps = [outcome.action for outcome in receipt.refused if isinstance(outcome.action, Step)]
            given_up = {step.act for step in steps} & {act.id for act in plan.acts}  # to be taken back
            self._look_s = 0.0 if given_up else plan.wake.at_s - snapshot.now_s

    def _wait_until(self, then_s: float, woken_s: float = inf) -> None:
        """Sleep, telling the watchdog twice in its time, until then or until a signal asks for something.

        woken_s: when to return once somebody has called; no call is lost, nor looked for again. Callers who do not
        count are looked for once in wake_s, so that a flood of theirs costs nothing.
        """
        step_s = min(self._notifier.watchdog_s / 2 or inf, self._leading.step_s)
        signals, wakers, deaf_until_s = self.signals, self._wakers, -inf
        while not (signals.stop or signals.reload) and (left_s := then_s - (now_s := time.monotonic())) > 0:
            if wakers is None:
                signals.sleep(min(left_s, step_s))
            elif now_s < deaf_until_s:
                signals.sleep(min(left_s, step_s, deaf_until_s - now_s))
            elif signals.sleep(min(left_s, step_s), wakers):
                if wakers.called():
                    then_s, wakers = min(then_s, woken_s), None
                else:
                    deaf_until_s = time.monotonic() + self._config.daemon.wake_s
            self._notifier.watchdog()
            self._leading.keep()

    def _reread(self) -> None:
        """The new configuration in place of the old one; the old one stays if the new one does not open."""
        self.signals.reload = False
        self._notifier.reloading()
        try:
            config = self._load()
            _see_held(self._config, config)
            stack, parts = self._open(config)
            self._adopted(config, stack)
        except Exception as error:
            configure(self._config.log.level, self._config.log.format)
            expected = isinstance(error, SlurmschedError)
            log.error("config.refused", error=str(error), kind=type(error).__name__, kept="the configuration before",
                      exc_info=not expected)  # fmt: skip
            self._work = replace(self._work, refused=str(error)[:MOST_SAID])
        else:
            old, self._config, self._stack, self._parts = self._stack, config, stack, parts
            self._told.placing = config.placement.places
            self._leading = Leading(parts.lead)
            _closed(old)
            self._work = work_of(config, apply=self._mode(config) == "apply")
            log.info("config.reloaded", mode=self._mode(config))
        self._publish(self._work)
        self._notifier.ready("reloaded")

    def _adopted(self, config: Config, stack: ExitStack) -> None:
        """Metrics and pages by the new configuration; what was opened for it is closed again if that cannot be."""
        try:
            self._watch.adopt(config, apply=self._mode(config) == "apply")
        except BaseException:
            stack.close()
            raise

    def _open(self, config: Config) -> tuple[ExitStack, Parts]:
        configure(config.log.level, config.log.format)
        stack = ExitStack()
        return stack, stack.enter_context(assembled(config, apply=self._mode(config) == "apply", indices=True))

    def _mode(self, config: Config) -> str:
        return self._forced or config.mode


def _wakers(config: Config) -> Wakers | None:
    """The socket of `daemon.socket`; None where there is none. Raises ConfigError."""
    return Wakers(config.daemon.socket, config.daemon.users) if config.daemon.socket else None


def _closed(stack: ExitStack) -> None:
    """Close what the configuration before had open. What goes wrong is told: the new one is in force already."""
    try:
        stack.close()
    except Exception as error:
        expected = isinstance(error, SlurmschedError)
        log.warning("config.not_closed", error=str(error), kind=type(error).__name__, exc_info=not expected)


def _see_held(old: Config, new: Config) -> None:
    """Raises ConfigError naming what cannot change under a running daemon: it holds the old lock and socket."""
    if (old.daemon.socket, old.daemon.users) != (new.daemon.socket, new.daemon.users):
        raise ConfigError("changed, which a reload cannot do: restart the daemon", key="daemon.socket")
    if old.leader != new.leader:
        raise ConfigError("changed, which a reload cannot do: restart the daemon", key="leader")
    for name in FIXED:
        if getattr(old.ledger, name) != getattr(new.ledger, name):
            raise ConfigError("changed, which a reload cannot do: restart the daemon", key=f"ledger.{name}")

"""The daemon: a cycle every interval, signals between cycles, a longer pause after failures, and the leader lease."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from slurmsched.config import Config
from slurmsched.cycle import run_cycle
from slurmsched.daemon.cycle_parts import CycleParts, open_cycle_parts, paused
from slurmsched.daemon.lock import LockHolder, work_of_config
from slurmsched.daemon.observers import Observers, WarningLog
from slurmsched.daemon.service import Notifier, Signals, WakeupSocket
from slurmsched.errors import ConfigError, LedgerError, NotLeadingError, SlurmschedError
from slurmsched.logs import configure, get_logger
from slurmsched.model.plan import Plan, Receipt, Step
from slurmsched.model.snapshot import Snapshot

if TYPE_CHECKING:
    from slurmsched.db.leader_lease import LeaderFiles


SOON_S = 0.5  # delay after the end of a lease before it is read again

log = get_logger()


class Leadership:
    """Whether this daemon leads. It is checked before each cycle and renewed between cycles.

    lead: None = this host is the only one and always leads."""

    def __init__(self, lead: LeaderFiles | None) -> None:
        self._lease = lead.lease if lead else None
        self._leads: bool | None = None
        self.standby = ""  # who leads in our place, as text

    def __call__(self) -> bool:
        """Whether a cycle may write. Raises LedgerError if the database does not answer."""
        if self._lease is None:
            return True
        leads = self._lease.take()
        self.standby = "" if leads else str(self._lease.leader())
        self._tell(leads)
        return leads

    def keep(self) -> None:
        """Renew the lease between cycles if it is due. Failures are logged; the next cycle tries again."""
        if self._lease is None or not self._leads:
            return
        try:
            self._lease.keep()
        except NotLeadingError as error:
            self._tell(False, str(error))
        except LedgerError as error:
            log.warning("leader.not_renewed", error=str(error), remaining_s=round(self._lease.remaining_s, 1))

    @property
    def step_s(self) -> float:
        """Longest sleep between cycles before `keep` must be called again [s]."""
        return self._lease.lease_s / 8 if self._lease and self._leads else inf

    def look_s(self) -> float:
        """When a standby should look again [s from now]: after the end of the leader's lease. Raises LedgerError."""
        return inf if self._lease is None or self._leads else max(self._lease.leader().remaining_s, 0.0) + SOON_S

    def _tell(self, leads: bool, why: str = "") -> None:
        if leads != self._leads and self._lease is not None:
            if leads:
                log.info("leader.taken", name=self._lease.name, term=self._lease.term)
            elif self._leads:
                log.warning("leader.lost", name=self._lease.name, term=self._lease.term, why=why or self.standby)
            else:
                log.info("leader.standby", name=self._lease.name, why=self.standby)
        self._leads = leads


# The loop of cycles.

LONGEST_BACKOFF_S = 600.0
LEAST_LOOK_S = 1.0  # least time between two cycles
LEAST_REST = 0.1  # least rest after a cycle, as a share of its length, so that slurmctld serves others
MOST_SAID = 300  # most characters of the reason of a refused reload
FIXED_LEDGER_KEYS = ("url", "journal", "lock")  # keys of the ledger that a reload cannot change


class Loop:
    """Runs cycles until a signal stops it.

    load: reads the configuration, at the start and at each reload.
    forced: "apply", "dry-run" or None = as configured.
    publish: makes public what this daemon does.
    """

    def __init__(
        self,
        load: Callable[[], Config],
        notifier: Notifier,
        forced: str | None = None,
        publish: Callable[[LockHolder], None] = lambda _: None,
    ) -> None:
        self._load, self._notifier, self._forced, self._publish = load, notifier, forced, publish
        self.signals = Signals()
        self._failures = 0
        self._look_s = inf  # the last cycle needs another one so soon after its start
        self._config = load()
        self._warning_log = WarningLog(placing=self._config.placement.places)
        self._wakers = _wakers(self._config)
        self._stack, self._parts = self._open(self._config)
        self._leading = Leadership(self._parts.lead)
        self._watch = Observers(self._config, apply=self._mode(self._config) == "apply")
        self._work = work_of_config(self._config, apply=self._mode(self._config) == "apply")
        publish(self._work)

    def run(self) -> None:
        """Run cycles until SIGTERM or SIGINT; the current one is finished first."""
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
        """When the next cycle begins, by the clock of begun_s and ended_s.

        That is after the interval, or sooner if a preemption under way needs it. There is a rest after every cycle."""
        wait_s = self.pause_s() if self._failures else min(self.pause_s(), max(self._look_s, LEAST_LOOK_S))
        return max(begun_s + wait_s, ended_s + LEAST_REST * (ended_s - begun_s))

    def woken_s(self, begun_s: float, ended_s: float) -> float:
        """When the next cycle begins after a wake-up (`daemon.socket`); never while cycles fail."""
        wait_s = inf if self._failures else self._config.daemon.wake_s
        return max(begun_s + wait_s, ended_s + LEAST_REST * (ended_s - begun_s))

    def pause_s(self) -> float:
        """From the start of a cycle to the next [s]: the interval, doubled for each failure in a row up to a limit."""
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
        """Another host leads. Read and plan, so that taking over is known to work, but write nothing."""
        self._watch.looked(*self._parts.look(), self._parts.planner)
        self._failures = 0
        self._look_s = self._leading.look_s()
        self._watch.ended("standby")
        self._notifier.status(f"stands by: {self._leading.standby}")
        self._notifier.watchdog()

    def _tell(self, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
        self._warning_log(snapshot, plan, receipt)
        self._watch.done(snapshot, plan, receipt)
        if plan.operations and not receipt.dry_run and not receipt.stopped:
            steps = [outcome.action for outcome in receipt.refused if isinstance(outcome.action, Step)]
            # Operations of refused steps are taken back in the next cycle, at once.
            given_up = {step.operation for step in steps} & {operation.id for operation in plan.operations}
            self._look_s = 0.0 if given_up else plan.next_look_s - snapshot.now_s

    def _wait_until(self, then_s: float, woken_s: float = inf) -> None:
        """Sleep until then_s or a signal. The watchdog is answered twice in its period.

        woken_s: when to return after a wake-up. No wake-up is lost. Messages of other senders are checked once in
            wake_s, so that a flood of them costs nothing.
        """
        step_s = min(self._notifier.watchdog_s / 2 or inf, self._leading.step_s)
        signals, wakers, deaf_until_s = self.signals, self._wakers, -inf
        while not (signals.stop or signals.reload) and (remaining_s := then_s - (now_s := time.monotonic())) > 0:
            if wakers is None:
                signals.sleep(min(remaining_s, step_s))
            elif now_s < deaf_until_s:
                signals.sleep(min(remaining_s, step_s, deaf_until_s - now_s))
            elif signals.sleep(min(remaining_s, step_s), wakers):
                if wakers.called():
                    then_s, wakers = min(then_s, woken_s), None
                else:
                    deaf_until_s = time.monotonic() + self._config.daemon.wake_s
            self._notifier.watchdog()
            self._leading.keep()

    def _reread(self) -> None:
        """Load the new configuration. The old one stays if the new one does not open."""
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
            self._warning_log.placing = config.placement.places
            self._leading = Leadership(parts.lead)
            _close_all(old)
            self._work = work_of_config(config, apply=self._mode(config) == "apply")
            log.info("config.reloaded", mode=self._mode(config))
        self._publish(self._work)
        self._notifier.ready("reloaded")

    def _adopted(self, config: Config, stack: ExitStack) -> None:
        """Adopt the new configuration for metrics and pages. If that fails, close what was opened for it."""
        try:
            self._watch.adopt(config, apply=self._mode(config) == "apply")
        except BaseException:
            stack.close()
            raise

    def _open(self, config: Config) -> tuple[ExitStack, CycleParts]:
        configure(config.log.level, config.log.format)
        stack = ExitStack()
        return stack, stack.enter_context(open_cycle_parts(config, apply=self._mode(config) == "apply", indices=True))

    def _mode(self, config: Config) -> str:
        return self._forced or config.mode


def _wakers(config: Config) -> WakeupSocket | None:
    """The socket of `daemon.socket`; None without one. Raises ConfigError."""
    return WakeupSocket(config.daemon.socket, config.daemon.users) if config.daemon.socket else None


def _close_all(stack: ExitStack) -> None:
    """Close what the old configuration had open. Failures are only logged, since the new one is in force."""
    try:
        stack.close()
    except Exception as error:
        expected = isinstance(error, SlurmschedError)
        log.warning("config.not_closed", error=str(error), kind=type(error).__name__, exc_info=not expected)


def _see_held(old: Config, new: Config) -> None:
    """Raises ConfigError for a change that a running daemon cannot make: it holds the old lock and socket."""
    if (old.daemon.socket, old.daemon.users) != (new.daemon.socket, new.daemon.users):
        raise ConfigError("changed, which a reload cannot do: restart the daemon", key="daemon.socket")
    if old.leader != new.leader:
        raise ConfigError("changed, which a reload cannot do: restart the daemon", key="leader")
    for name in FIXED_LEDGER_KEYS:
        if getattr(old.ledger, name) != getattr(new.ledger, name):
            raise ConfigError("changed, which a reload cannot do: restart the daemon", key=f"ledger.{name}")

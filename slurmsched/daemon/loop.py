"""The daemon: a cycle every interval, signals between cycles, failures backed off and survived."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType

from slurmsched.config import Config
from slurmsched.cycle import run_cycle
from slurmsched.daemon.assemble import Parts, assembled, paused
from slurmsched.daemon.notify import Notifier
from slurmsched.errors import SlurmschedError
from slurmsched.logs import configure, get_logger

LONGEST_BACKOFF_S = 600.0

log = get_logger()


class Loop:
    """Runs cycles until told to stop.

    load: the configuration, read anew at each reload. forced: "apply", "dry-run" or None = as configured.
    """

    def __init__(self, load: Callable[[], Config], notifier: Notifier, forced: str | None = None) -> None:
        self._load, self._notifier, self._forced = load, notifier, forced
        self._wake = threading.Event()
        self._stop = self._reload = False
        self._failures = 0
        self._config = load()
        self._stack, self._parts = self._open(self._config)

    def run(self) -> None:
        """Cycles until SIGTERM or SIGINT; the one under way is finished first."""
        self._notifier.ready("waiting for the first cycle")
        log.info("daemon.started", mode=self._mode(self._config), interval_s=self._config.cycle.interval_s)
        while not self._stop:
            if self._reload:
                self._reread()
            begun_s = time.monotonic()
            self._cycle()
            self._wait_until(begun_s + self.pause_s())
        self._notifier.stopping()
        self._stack.close()
        log.info("daemon.stopped")

    def listen(self) -> None:
        """Take over SIGTERM, SIGINT and SIGHUP. Only in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_reload)

    def pause_s(self) -> float:
        """From the begin of a cycle to the next [s]: the interval, doubled for each failure in a row up to a limit."""
        interval_s = self._config.cycle.interval_s
        longest_s = max(interval_s, LONGEST_BACKOFF_S)
        return float(min(interval_s * 2 ** min(self._failures, 30), longest_s))

    def _cycle(self) -> None:
        if self._mode(self._config) == "apply" and paused(self._config):
            log.info("cycle.paused", stop_file=str(self._config.cycle.stop_file))
            self._notifier.status(f"paused by {self._config.cycle.stop_file}")
            self._notifier.watchdog()
            return
        try:
            receipt = run_cycle(self._parts.cluster, self._parts.planner, self._parts.store)
        except Exception as error:
            self._failures += 1
            expected = isinstance(error, SlurmschedError)
            log.error("cycle.failed", error=str(error), kind=type(error).__name__, in_a_row=self._failures,
                      next_s=self.pause_s(), exc_info=not expected)  # fmt: skip
            self._notifier.status(f"failing: {error}")
        else:
            self._failures = 0
            self._notifier.status(f"last cycle: {receipt.planned} planned, {len(receipt.written)} written")
        self._notifier.watchdog()

    def _wait_until(self, then_s: float) -> None:
        """Sleep, telling the watchdog twice in its time, until then or until a signal asks for something."""
        step_s = self._notifier.watchdog_s / 2 or float("inf")
        while not (self._stop or self._reload) and (left_s := then_s - time.monotonic()) > 0:
            self._wake.wait(min(left_s, step_s))
            self._wake.clear()
            self._notifier.watchdog()

    def _reread(self) -> None:
        """The new configuration in place of the old one; the old one stays if the new one does not open."""
        self._reload = False
        self._notifier.reloading()
        try:
            config = self._load()
            stack, parts = self._open(config)
        except SlurmschedError as error:
            configure(self._config.log.level, self._config.log.format)
            log.error("config.refused", error=str(error), kept="the configuration before")
        else:
            self._stack.close()
            self._config, self._stack, self._parts = config, stack, parts
            log.info("config.reloaded", mode=self._mode(config))
        self._notifier.ready("reloaded")

    def _open(self, config: Config) -> tuple[ExitStack, Parts]:
        configure(config.log.level, config.log.format)
        stack = ExitStack()
        return stack, stack.enter_context(assembled(config, apply=self._mode(config) == "apply"))

    def _mode(self, config: Config) -> str:
        return self._forced or config.mode

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self._stop = True
        self._wake.set()

    def _on_reload(self, number: int, frame: FrameType | None) -> None:
        self._reload = True
        self._wake.set()

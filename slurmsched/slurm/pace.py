"""How fast slurmctld is written to, and when not at all."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from slurmsched import config

SLOW_S = 1.0  # Slurm's client answers the rate limiter by waiting one second, without a word, and asking again
MOST_SLOW = 5  # slow answers in one apply before the rest is left to the next cycle
RECOVER_S = 60.0  # after each such time without a slow answer the pace doubles, up to the configured one


class Load(Protocol):
    """What sdiag tells: server threads in use, messages that wait for slurmdbd."""

    @property
    def threads(self) -> int: ...
    @property
    def dbd_queue(self) -> int: ...


class Pace:
    """A token bucket of one second's writes, and a guard that looks at slurmctld's load and at slow answers.

    read_load: asks slurmctld. clock: monotonic seconds. sleep: waits that many seconds.
    """

    def __init__(
        self,
        limits: config.Pace,
        read_load: Callable[[], Load],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._limits, self._read_load = limits, read_load
        self._clock, self._sleep = clock, sleep
        self._rate_per_s = limits.writes_per_s
        self._tokens = max(limits.writes_per_s, 1.0)
        self._filled_s = self._sent_s = self._changed_s = clock()
        self._slow = 0

    @property
    def rate_per_s(self) -> float:
        """Writes a second at present: the configured pace, or less after slow answers."""
        return self._rate_per_s

    def busy(self) -> str:
        """Why nothing should be written now; "" if all is well. Raises what read_load raises."""
        load = self._read_load()
        if load.threads > self._limits.busy_threads:
            return _too_busy("server threads", load.threads, "busy_threads", self._limits.busy_threads)
        if load.dbd_queue > self._limits.busy_dbd_queue:
            return _too_busy("messages to slurmdbd", load.dbd_queue, "busy_dbd_queue", self._limits.busy_dbd_queue)
        return ""

    def begin(self) -> None:
        """A new apply begins: slow answers are counted anew, the pace stays."""
        self._slow = 0

    @property
    def throttled(self) -> str:
        """Why the rest should be left to the next cycle; "" while answers come at a good pace."""
        if self._slow < MOST_SLOW:
            return ""
        return (
            f"{self._slow} answers took {SLOW_S:g} s or more: Slurm's rate limiter (rl_enable) or a busy slurmctld; "
            "raise rl_bucket_size and rl_refill_rate, or lower pace.writes_per_cycle"
        )

    def wait(self) -> None:
        """Return when one more write is due."""
        self._fill()
        if self._tokens < 1:
            self._sleep((1 - self._tokens) / self._rate_per_s)
            self._fill()
        self._tokens -= 1
        self._sent_s = self._clock()

    def answered(self) -> None:
        """The write was answered. A slow answer halves the pace, not below one a second."""
        now_s = self._clock()
        if now_s - self._sent_s >= SLOW_S:
            self._slow += 1
            self._rate_per_s = max(self._rate_per_s / 2, min(1.0, self._limits.writes_per_s))
            self._tokens = 0.0
            self._filled_s = self._changed_s = now_s

    def _fill(self) -> None:
        now_s = self._clock()
        while now_s - self._changed_s >= RECOVER_S and self._rate_per_s < self._limits.writes_per_s:
            self._rate_per_s = min(self._rate_per_s * 2, self._limits.writes_per_s)
            self._changed_s += RECOVER_S
        earned = (now_s - self._filled_s) * self._rate_per_s
        self._tokens = min(self._tokens + earned, max(self._rate_per_s, 1.0))
        self._filled_s = now_s


def _too_busy(what: str, found: int, key: str, limit: int) -> str:
    return f"slurmctld is busy: {found} {what}, more than {limit} (pace.{key})"

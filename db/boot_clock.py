"""The wall clock beside one that nobody sets, so that a step of the former is not taken for time that passed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

LEAST_S = 1.0  # a smaller difference is the reading of two clocks, or a clock that is slewed


def uptime() -> float:
    """Seconds since the machine was started, those that it slept included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@cache
def boot_id() -> str:
    """What tells this start of the machine from any other, "" where the system has no such name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class BootClock:
    """The time of a machine.

    wall: Unix seconds.
    up: seconds since the machine was started.
    boot: which start that was.
    """

    wall: Callable[[], float] = time.time
    up: Callable[[], float] = uptime
    boot: Callable[[], str] = boot_id

    def mark(self) -> dict[str, Any]:
        """Both clocks now, as plain values to be put on record."""
        return {"time_s": self.wall(), "up_s": self.up(), "boot": self.boot()}

    def step_s(self, mark: Mapping[str, Any]) -> float:
        """How far the wall clock was set since that mark: forward is positive; 0 where it cannot be told.

        Of a mark by another start of a machine, or another machine, only this is known: it was not made after now. One
        that is of a time to come counts as made now.
        """
        if self.elsewhere(mark):
            step_s = min(self.wall() - mark["time_s"], 0.0)
        else:
            step_s = (self.wall() - self.up()) - (mark["time_s"] - mark["up_s"])
        return float(step_s) if abs(step_s) >= LEAST_S else 0.0

    def elsewhere(self, mark: Mapping[str, Any]) -> bool:
        """Whether another start of a machine made that mark, or it is not known which."""
        up_s = mark.get("up_s")
        return not mark.get("boot") or mark["boot"] != self.boot() or not isinstance(up_s, int | float)

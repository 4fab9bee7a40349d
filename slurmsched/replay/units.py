"""Units that times are shown in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of time and its length [s]."""

    name: str
    seconds: float

    def text(self, seconds: float | None) -> str:
        """A time in this unit, "-" if unknown."""
        return "-" if seconds is None or seconds != seconds else f"{seconds / self.seconds:,.2f}"


SECONDS, HOURS, DAYS = Unit("s", 1.0), Unit("h", 3_600.0), Unit("days", 86_400.0)


def of_jobs(longest_mean_s: float) -> Unit:
    """For times of jobs: hours if a mean reaches one."""
    return HOURS if longest_mean_s >= HOURS.seconds else SECONDS


def of_span(span_s: float) -> Unit:
    """For an axis of time: the largest unit of which the span holds three."""
    return next((unit for unit in (DAYS, HOURS) if span_s >= 3 * unit.seconds), SECONDS)

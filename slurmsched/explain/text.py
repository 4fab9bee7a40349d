"""Plain words, safe to print: whatever users may write is escaped."""

from __future__ import annotations

from datetime import datetime
from math import isfinite

LONGEST = 200


def shown(text: str) -> str:
    """The text with control characters, escapes of terminals and marks of direction written out, and cut."""
    cut = text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def clock(time_s: float) -> str:
    """A Unix time as local time."""
    return f"{datetime.fromtimestamp(time_s):%Y-%m-%dT%H:%M:%S}"


def minutes(time_s: float) -> str:
    """A duration as `sbatch --time` takes it, rounded down to minutes: "1-02:30:00", "UNLIMITED"."""
    if not isfinite(time_s):
        return "UNLIMITED"
    days, left = divmod(int(time_s) // 60, 1440)
    return f"{days}-{left // 60:02}:{left % 60:02}:00" if days else f"{left // 60:02}:{left % 60:02}:00"

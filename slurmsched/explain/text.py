"""Plain words, safe to print: whatever users may write is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from math import isfinite
from typing import Any

from slurmsched.planning.reasons import criteria

LONGEST = 200


def shown(text: str) -> str:
    """The text with control characters, escapes of terminals and marks of direction written out, and cut."""
    cut = text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def clock(time_s: float) -> str:
    """A Unix time as local time."""
    return f"{datetime.fromtimestamp(time_s):%Y-%m-%dT%H:%M:%S}"


def against(other: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """By what another job stands before this one: those criteria of it that differ."""
    apart = {name: value for name, value in other.items() if value != own.get(name)}
    return criteria(apart) or "equal by these, before it by submission or id"


def minutes(time_s: float) -> str:
    """A duration as `sbatch --time` takes it, rounded down to minutes: "1-02:30:00", "UNLIMITED"."""
    if not isfinite(time_s):
        return "UNLIMITED"
    days, left = divmod(int(time_s) // 60, 1440)
    return f"{days}-{left // 60:02}:{left % 60:02}:00" if days else f"{left // 60:02}:{left % 60:02}:00"

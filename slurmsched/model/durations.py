"""Durations, as people and Slurm write them."""

from __future__ import annotations

import re
from math import isfinite
from operator import mul

MINUTE_S, HOUR_S, DAY_S, WEEK_S = 60.0, 3_600.0, 86_400.0, 604_800.0

UNITS_S = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
FORMS = "30s, 90m, 2h, 1d12h, 1.5h or Slurm's 1-02:03:04, 02:00:00, 30:00"

_UNITS = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+", re.ASCII)
_UNIT = re.compile(r"([\d.]+)([smhdw])", re.ASCII)
_WHOLE = re.compile(r"\d{1,15}", re.ASCII)
UNSIGNED = re.compile(r"\d{1,15}(?:\.\d{0,9})?", re.ASCII)
_HOURS, _MINUTES = (3_600.0, 60.0, 1.0), (60.0, 1.0)
_LONGEST_S = 100 * 365 * UNITS_S["d"]


def duration_s(text: str) -> float:
    """Seconds of a duration above zero: "1d12h", "1.5h", or a form of `sbatch --time` (see clock_s).

    A bare number is refused, since Slurm reads minutes and most people mean seconds. Raises ValueError, which names the
    forms.
    """
    seconds = _units(text.lower())
    seconds = clock_s(text) if seconds is None else seconds
    if seconds is None:
        unit = " with a unit" if re.fullmatch(r"[\d.]+", text) else ""
        raise ValueError(f"is no duration{unit}: write {FORMS}")
    if not 0 < seconds <= _LONGEST_S:
        raise ValueError("is no duration above zero and under 100 years")
    return seconds


def duration_text(value_s: float) -> str:
    """The text that duration_s reads, in days and smaller units, to the millisecond: "1d12h", "1h30m", "1m30.5s"."""
    rest, parts = round(value_s, 3), list[str]()
    for unit in ("d", "h", "m"):
        count, rest = divmod(rest, UNITS_S[unit])
        parts += [f"{count:.0f}{unit}"] * bool(count)
    return "".join([*parts, f"{round(rest, 3):g}s"] if rest or not parts else parts)


def _units(text: str) -> float | None:
    if not _UNITS.fullmatch(text):
        return None
    return sum(float(count) * UNITS_S[unit] for count, unit in _UNIT.findall(text))


def clock_s(text: str, *, bare_unit_s: float | None = None, fractions: bool = False) -> float | None:
    """Seconds of D-HH[:MM[:SS]], HH:MM:SS or MM:SS; None for any other text. Slurm's one grammar of durations.

    bare_unit_s: what a number alone counts [s], as 60 in slurm.conf; None = it is none.
    fractions: whether numbers may have decimals, as sacct prints them.
    """
    days, dash, clock = text.rpartition("-")
    parts, number = clock.split(":"), (UNSIGNED if fractions else _WHOLE).fullmatch
    if not all(map(number, parts)) or (dash and not number(days)):
        return None
    if not dash and len(parts) == 1:
        return None if bare_unit_s is None else bare_unit_s * float(parts[0])
    units = _HOURS if dash or len(parts) == 3 else _MINUTES
    if len(parts) > len(units):
        return None
    return UNITS_S["d"] * float(days or 0) + sum(map(mul, units, map(float, parts)))


# For people.


def gpu_hours(gpu_s: float) -> str:
    """GPU seconds as people count them: "1.0 GPU h", "40 GPU min", "30 GPU s"."""
    if abs(gpu_s) >= 3_600:
        return f"{gpu_s / 3_600:,.1f} GPU h"
    return f"{gpu_s / 60:.0f} GPU min" if abs(gpu_s) >= 600 else f"{gpu_s:.0f} GPU s"


def duration(seconds: float) -> str:
    """As in "3 d 4 h", "2 h 30 min", "12 min", "30 s"; a minus before one that is past, "-" where it is not known."""
    if not isfinite(seconds):
        return "-"
    sign, rest_s = ("-" if seconds < 0 else ""), round(abs(seconds))
    for size, name, below, small in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min")):
        if rest_s >= size:
            rest = rest_s % size // below
            return f"{sign}{rest_s // size} {name}" + (f" {rest} {small}" if rest else "")
    return f"{sign}{rest_s // 60} min" if rest_s >= 600 else f"{sign}{rest_s} s"

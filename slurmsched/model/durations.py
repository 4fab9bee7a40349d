"""Durations as people and Slurm write them."""

from __future__ import annotations

import re

UNITS_S = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
FORMS = "30s, 90m, 2h, 1d12h, 1.5h or Slurm's 1-02:03:04, 02:00:00, 30:00"

_UNITS = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+", re.ASCII)
_UNIT = re.compile(r"([\d.]+)([smhdw])", re.ASCII)
_DAYS = re.compile(r"(\d+)-(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)
_CLOCK = re.compile(r"(?:(\d+):)?(\d+):(\d+)", re.ASCII)
_LONGEST_S = 100 * 365 * UNITS_S["d"]


def duration_s(text: str) -> float:
    """Seconds of a duration above zero: "1d12h", "1.5h", or as `sbatch --time` takes it.

    Of Slurm's forms D-HH[:MM[:SS]], HH:MM:SS and MM:SS are read. A bare number is refused: Slurm
    means minutes by it, most people seconds. Raises ValueError saying which forms there are.
    """
    seconds = _units(text.lower())
    seconds = _slurm(text) if seconds is None else seconds
    if seconds is None:
        unit = " with a unit" if re.fullmatch(r"[\d.]+", text) else ""
        raise ValueError(f"is no duration{unit}: write {FORMS}")
    if not 0 < seconds <= _LONGEST_S:
        raise ValueError("is no duration above zero and under 100 years")
    return seconds


def duration_text(value_s: float) -> str:
    """As duration_s reads it, in days and below, to the millisecond: "1d12h", "1h30m", "90.5s" as "1m30.5s"."""
    left, parts = round(value_s, 3), list[str]()
    for unit in ("d", "h", "m"):
        count, left = divmod(left, UNITS_S[unit])
        parts += [f"{count:.0f}{unit}"] * bool(count)
    return "".join([*parts, f"{round(left, 3):g}s"] if left or not parts else parts)


def _units(text: str) -> float | None:
    if not _UNITS.fullmatch(text):
        return None
    return sum(float(count) * UNITS_S[unit] for count, unit in _UNIT.findall(text))


def _slurm(text: str) -> float | None:
    if match := _DAYS.fullmatch(text):
        days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
        return days * UNITS_S["d"] + hours * UNITS_S["h"] + minutes * UNITS_S["m"] + seconds
    if match := _CLOCK.fullmatch(text):
        hours, minutes, seconds = (float(part or 0) for part in match.groups())
        return hours * UNITS_S["h"] + minutes * UNITS_S["m"] + seconds
    return None

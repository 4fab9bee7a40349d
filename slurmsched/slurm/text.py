"""The small texts Slurm prints everywhere: times, durations, sizes, task lists, key=value records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache

from slurmsched.errors import UnreadableError

NAN = float("nan")
INF = float("inf")
UNSET = frozenset({"", "N/A", "n/a", "NONE", "None", '"None"', "Unknown", "UNKNOWN", "(null)", "NOT_SET", "INVALID",
                   "Partition_Limit", "None assigned"})  # fmt: skip
ENDLESS = frozenset({"UNLIMITED", "INFINITE"})
_KEY = re.compile(r"(?:^|\s)([A-Z][\w/:.*]*)=")
_MIB = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_COUNT = re.compile(r"(\d{1,18}(?:\.\d{1,3})?)([KMGTP]?)", re.ASCII | re.IGNORECASE)
_COUNT_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


def time_s(text: str) -> float:
    """Unix seconds of a point in time: "1763321773", "2025-09-12T14:06:12" (local); NaN when not known.

    Raises UnreadableError.
    """
    if text.isdigit():
        return float(text) or NAN
    if text in UNSET:
        return NAN
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise UnreadableError("not a time", text=text) from None


def duration_s(text: str) -> float:
    """Seconds of "[days-]hours:minutes:seconds" or "minutes:seconds"; inf when endless, NaN when not set.

    Fractions of a second are kept. Raises UnreadableError.
    """
    if text in ENDLESS:
        return INF
    if text in UNSET:
        return NAN
    days, dash, clock = text.rpartition("-")
    try:
        parts = [float(part) for part in clock.split(":")]
        seconds = 0.0
        for part in parts:
            seconds = seconds * 60 + part
        if len(parts) > 3 or (dash and len(parts) < 3) or len(parts) < 2:
            raise ValueError(text)
        return seconds + 86_400 * float(days or 0)
    except ValueError:
        raise UnreadableError("not a duration", text=text) from None


def memory_mib(text: str) -> float:
    """MiB of "4000M", "62.50G", "512" (a plain number is MiB); 0 when not set. Raises UnreadableError."""
    if text in UNSET:
        return 0.0
    unit = text[-1].upper()
    number = text[:-1] if unit in _MIB else text
    try:
        return float(number) * _MIB.get(unit, 1.0)
    except ValueError:
        raise UnreadableError("not a memory size", text=text) from None


@lru_cache(maxsize=1 << 12)
def count_units(text: str) -> int:
    """A count as Slurm prints it, powers of 1024: "12", "1.50K" -> 1536; 0 when not set.

    Raises UnreadableError, also for a count that was rounded ("0.01K").
    Source: convert_num_unit2 in Slurm's slurm_protocol_api.c, which sacct calls unless --noconvert is given.
    """
    if text in UNSET:
        return 0
    match = _COUNT.fullmatch(text)
    if match is None:
        raise UnreadableError("not a count", text=text)
    value = float(match[1]) * _COUNT_UNITS[match[2].upper()]
    if not value.is_integer():
        raise UnreadableError("a rounded count; sacct --noconvert prints it whole", text=text)
    return int(value)


@lru_cache(maxsize=1 << 14)
def count_tasks(text: str) -> int:
    """Tasks of a pending array record: "1-10,15%4" -> 11, "0-8:4" -> 3; 1 for a single task or no array.

    Raises UnreadableError.
    """
    tasks = 0
    for part in text.partition("%")[0].split(",") if text not in UNSET else ():
        match = _RANGE.fullmatch(part)
        if match is None:
            raise UnreadableError("not a list of array tasks", text=text)
        low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        tasks += (high - low) // max(step, 1) + 1
    return max(tasks, 1)


def has_task(text: str, task: int) -> bool:
    """Whether a list of array tasks ("1-10,15%4", "0-8:4", "3") has this one. False for a list that cannot be read."""
    for part in text.partition("%")[0].split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            return False
        low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if task in range(low, high + 1, max(step, 1)):
            return True
    return False


def plain(text: str) -> str:
    """The text, or "" for Slurm's ways of saying that there is none."""
    return "" if text in ("(null)", "N/A", "n/a", "None", "(none)") else text


def records(text: str, first: str) -> Iterator[str]:
    """The records of `scontrol show`, one line or many lines each, blank lines and odd indentation or not.

    first: key that begins a record, as "NodeName". A record's lines are joined by newlines.
    """
    starts = [match.start() for match in re.finditer(rf"^[ \t]*{first}=", text, re.MULTILINE)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=False):
        yield text[start:end].strip()


def fields(record: str) -> dict[str, str]:
    """Keys and values of a `scontrol show` record. Of a key that comes twice the first counts.

    A value goes on to the next " Key=" or the end of its line, so it may hold blanks.
    """
    found: dict[str, str] = {}
    marks = list(_KEY.finditer(record))
    for mark, following in zip(marks, [*marks[1:], None], strict=False):
        value = record[mark.end() : following.start() if following else len(record)]
        found.setdefault(mark[1], value.partition("\n")[0].strip())
    return found

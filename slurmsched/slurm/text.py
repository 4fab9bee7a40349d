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
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)
_SIGNED = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_REAL = re.compile(r"\d{1,15}(?:\.\d{0,9})?", re.ASCII)
BLANKS = " \t\r\n"  # not all that Python takes for a blank
MOST_COUNT = 2**31 - 1  # what int32 columns hold
MOST = 10**18 - 1  # what int64 columns hold
LAST_S = 253_402_300_800.0  # the year 10000: a later point in time is none
LONGEST_S = 86_400 * 365_000.0  # a longer duration is none
MOST_MIB = 1e12  # an exbibyte
MOST_TASKS = 4_000_001  # slurm.conf's MaxArraySize at most


def whole(text: str, otherwise: int = 0, most: int = MOST) -> int:
    """A number from 0 to `most` in plain digits; `otherwise` for any other text."""
    text = text.strip(BLANKS)
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        return otherwise
    number = int(text)
    return number if number <= most else otherwise


def is_signed(text: str) -> bool:
    """Whether the text is a number that 64 bits hold."""
    return _SIGNED.fullmatch(text.strip(BLANKS)) is not None


def signed(text: str) -> int:
    """A number that may be below 0. Raises UnreadableError."""
    if not is_signed(text):
        raise UnreadableError("not a number", text=text)
    return int(text.strip(BLANKS))


def time_s(text: str) -> float:
    """Unix seconds of a point in time: "1763321773", "2025-09-12T14:06:12" (local); NaN when not known.

    Raises UnreadableError.
    """
    if text.isascii() and text.isdigit():
        seconds = float(text[:30]) or NAN
    elif text in UNSET:
        return NAN
    else:
        try:
            seconds = datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError, OSError):
            raise UnreadableError("not a time", text=text) from None
    if not 0 <= seconds < LAST_S and seconds == seconds:
        raise UnreadableError("not a time", text=text)
    return seconds


def duration_s(text: str) -> float:
    """Seconds of "[days-]hours:minutes:seconds" or "minutes:seconds"; inf when endless, NaN when not set.

    Fractions of a second are kept. Raises UnreadableError.
    """
    if text in ENDLESS:
        return INF
    if text in UNSET:
        return NAN
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    numbers = all(_REAL.fullmatch(part) for part in (*parts, days or "0"))
    if not numbers or len(parts) > 3 or (dash and (len(parts) < 3 or not days)) or len(parts) < 2:
        raise UnreadableError("not a duration", text=text)
    seconds = 86_400 * float(days or 0)
    for place, part in enumerate(reversed(parts)):
        seconds += float(part) * 60**place
    if seconds > LONGEST_S:
        raise UnreadableError("not a duration", text=text)
    return seconds


def memory_mib(text: str) -> float:
    """MiB of "4000M", "62.50G", "512" (a plain number is MiB); 0 when not set. Raises UnreadableError."""
    if text in UNSET:
        return 0.0
    unit = text[-1].upper()
    number = text[:-1] if unit in _MIB else text
    size = float(number) * _MIB.get(unit, 1.0) if _REAL.fullmatch(number) else INF
    if size > MOST_MIB:
        raise UnreadableError("not a memory size", text=text)
    return size


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


def count_of(text: str) -> int:
    """As count_units, of at most 31 bits. Raises UnreadableError."""
    number = count_units(text.strip(BLANKS))
    if number > MOST_COUNT:
        raise UnreadableError("not a count", text=text[:100])
    return number


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
        if high < low:
            raise UnreadableError("not a list of array tasks", text=text)
        tasks += (high - low) // max(step, 1) + 1
    if tasks > MOST_TASKS:
        raise UnreadableError("more tasks than an array can have", text=text[:100])
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

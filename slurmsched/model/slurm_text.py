"""Texts that Slurm prints everywhere: times, durations, sizes, lists of array tasks, key=value records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from math import isfinite

from slurmsched.errors import UnreadableError
from slurmsched.model.durations import UNSIGNED, clock_s

NAN = float("nan")
INF = float("inf")
UNSET = frozenset({"", "N/A", "n/a", "NONE", "None", '"None"', "Unknown", "UNKNOWN", "(null)", "NOT_SET", "INVALID",
                   "Partition_Limit", "None assigned"})  # fmt: skip
ENDLESS = frozenset({"UNLIMITED", "INFINITE"})
RECORD_KEY = re.compile(r"(?:^|\s)([A-Z][\w/:.*]*)=")
MIB_OF_UNIT = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_COUNT = re.compile(r"(\d{1,18}(?:\.\d{1,3})?)([KMGTP]?)", re.ASCII | re.IGNORECASE)
COUNT_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)
_LICENSE = re.compile(r"([^\s,;:=*|()]+)(?:[:=*](\d{1,9}))?", re.ASCII)
_SIGNED = re.compile(r"[+-]?\d{1,18}", re.ASCII)
BLANKS = " \t\r\n"  # Python's strip() removes more than these
MOST_COUNT = 2**31 - 1  # limit of int32 columns
MOST_INT64 = 10**18 - 1  # below the limit of int64 columns
LAST_TIME_S = 253_402_300_800.0  # the year 10000: later times are not accepted
LONGEST_DURATION_S = 86_400 * 365_000.0  # longer durations are not accepted
MOST_MIB = 1e12  # about an exbibyte
MOST_TASKS = 4_000_001  # upper limit of MaxArraySize in slurm.conf


def whole_number(text: str, otherwise: int = 0, most: int = MOST_INT64) -> int:
    """A number from 0 to `most` in plain digits; `otherwise` for any other text."""
    text = text.strip(BLANKS)
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        return otherwise
    number = int(text)
    return number if number <= most else otherwise


def real_number(text: str, otherwise: float = 0.0) -> float:
    """A finite number; `otherwise` for any other text."""
    try:
        value = float(text)
    except ValueError:
        return otherwise
    return value if isfinite(value) else otherwise


def license_counts(text: str) -> dict[str, int]:
    """Number of each licence of a text such as "matlab:2,ansys" (--licenses, Licenses=); {} of one with alternatives
    ("a|b"), and of one that is none."""
    found = [_LICENSE.fullmatch(part.strip(BLANKS)) for part in re.split("[,;]", text)]
    return {part[1]: int(part[2] or 1) for part in found if part} if all(found) else {}


def is_signed_number(text: str) -> bool:
    """Whether the text is a whole number with at most 18 digits."""
    return _SIGNED.fullmatch(text.strip(BLANKS)) is not None


def signed_number(text: str) -> int:
    """A number that may be negative. Raises UnreadableError."""
    if not is_signed_number(text):
        raise UnreadableError("not a number", text=text)
    return int(text.strip(BLANKS))


def time_s(text: str) -> float:
    """Unix seconds of a point in time: "1763321773", "2025-09-12T14:06:12" (local); NaN if not set.

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
    if not 0 <= seconds < LAST_TIME_S and seconds == seconds:
        raise UnreadableError("not a time", text=text)
    return seconds


def slurm_duration_s(text: str) -> float:
    """Seconds of a duration as Slurm prints it (see durations.clock_s); inf if unlimited, NaN if not set.

    Fractions of a second are kept. Raises UnreadableError.
    """
    if text in ENDLESS:
        return INF
    if text in UNSET:
        return NAN
    seconds = clock_s(text, fractions=True)
    if seconds is None or seconds > LONGEST_DURATION_S:
        raise UnreadableError("not a duration", text=text)
    return seconds


def setting_s(text: str) -> float:
    """Seconds of a setting of `scontrol show config`: "30 sec", "00:05:00", "7-00:00:00"; NaN for any other text."""
    seconds = clock_s(text.removesuffix(" sec"), bare_unit_s=1.0)
    return NAN if seconds is None else seconds


def memory_mib(text: str) -> float:
    """MiB of "4000M", "62.50G", "512" (a plain number is MiB); 0 if not set. Raises UnreadableError."""
    if text in UNSET:
        return 0.0
    unit = text[-1].upper()
    number = text[:-1] if unit in MIB_OF_UNIT else text
    size = float(number) * MIB_OF_UNIT.get(unit, 1.0) if UNSIGNED.fullmatch(number) else INF
    if size > MOST_MIB:
        raise UnreadableError("not a memory size", text=text)
    return size


@lru_cache(maxsize=1 << 12)
def parse_count_with_unit(text: str) -> int:
    """A count as Slurm prints it, in powers of 1024: "12", "1.50K" -> 1536; 0 if not set.

    Raises UnreadableError, also for a rounded count ("0.01K").
    Source: convert_num_unit2 in Slurm's slurm_protocol_api.c, which sacct calls unless --noconvert is given.
    """
    if text in UNSET:
        return 0
    match = _COUNT.fullmatch(text)
    if match is None:
        raise UnreadableError("not a count", text=text)
    value = float(match[1]) * COUNT_UNITS[match[2].upper()]
    if not value.is_integer():
        raise UnreadableError("a rounded count; sacct --noconvert prints it whole", text=text)
    return int(value)


def parse_count(text: str) -> int:
    """As parse_count_with_unit, at most MOST_COUNT. Raises UnreadableError."""
    number = parse_count_with_unit(text.strip(BLANKS))
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
    """Whether a list of array tasks ("1-10,15%4", "0-8:4", "3") contains this one. False for an unreadable list."""
    for part in text.partition("%")[0].split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            return False
        low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if task in range(low, high + 1, max(step, 1)):
            return True
    return False


def text_or_empty(text: str) -> str:
    """The text, or "" for "(null)", "N/A" and the like."""
    return "" if text in ("(null)", "N/A", "n/a", "None", "(none)") else text


def split_records(text: str, first: str) -> Iterator[str]:
    """The records of `scontrol show`, of one line or several each, with any indentation and blank lines.

    first: key that begins a record, such as "NodeName".
    """
    starts = [match.start() for match in re.finditer(rf"^[ \t]*{first}=", text, re.MULTILINE)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=False):
        yield text[start:end].strip()


def record_fields(record: str) -> dict[str, str]:
    """Keys and values of a record of `scontrol show`. If a key occurs twice, the first counts.

    A value ends at the next " Key=" or at the end of its line, so it may contain blanks.
    """
    _, *parts = RECORD_KEY.split(record)
    values = (value.partition("\n")[0] for value in parts[::-2]) if "\n" in record else parts[::-2]
    # Backwards: of equal keys the first is set last.
    return dict(zip(parts[-2::-2], map(str.strip, values), strict=True))

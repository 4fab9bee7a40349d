"""The small things every reader of topology text needs: clean lines, numbers in lists, hostlists, joined groups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from slurmsched.model import hostlist

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_ENDS = re.compile(r"\r*\n|\r")
_CONTROLS = dict.fromkeys([*range(9), *range(11, 32), 127], "")
_BLANKS = _CONTROLS | {0xA0: " ", 0x2007: " ", 0x202F: " ", 0x200B: "", 0xFEFF: ""}  # what web pages put in their place
_MARK = re.compile(r">+|[\w.-]+:(?=[ \t]|$)")
_SPAN = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
MOST_NUMBERS = 1 << 16  # a longer list of CPUs or devices is a typing error


def clean(text: str) -> str:
    """The text without terminal escape codes, other control characters and a byte order mark, its blanks as typed."""
    return _ENDS.sub("\n", _ESCAPE.sub("", text)).translate(_BLANKS)


def unquoted(text: str) -> str:
    """The text without what stands before each of its lines: "> " of a mail, "node01: " of pdsh or clush.

    Where several hosts answered, what the first of them says.
    """
    lines = [line for line in text.split("\n") if line.strip()]
    marks = [_MARK.match(line) for line in lines]
    if not lines or not all(marks):
        return text
    first = next(mark[0].rstrip() for mark in marks if mark)
    rows = (line for line in text.split("\n") if line.startswith(first))
    return "\n".join(line[len(first) :].removeprefix(" ") for line in rows)


def decoded(content: bytes) -> str:
    """The text of a file: UTF-8, or UTF-16 as PowerShell's `>` writes it; bytes that are neither become U+FFFD."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", "replace")
    if content[1:8:2] == b"\0\0\0\0":
        return content.decode("utf-16-le", "replace")
    return content.decode("utf-8", "replace")


def numbers(text: str) -> tuple[int, ...] | None:
    """The whole numbers of a list such as "0-3,8", in its order; None if it is none."""
    found: list[int] = []
    for part in text.split(","):
        match = _SPAN.fullmatch(part.strip())
        if match is None:
            return None
        low, high = int(match[1]), int(match[2] or match[1])
        if not 0 <= high - low < MOST_NUMBERS:
            return None
        found += range(low, high + 1)
    return tuple(found)


def ranges(listed: Sequence[int]) -> str:
    """(0, 1, 2, 8) -> "0-2,8"."""
    runs: list[list[int]] = []
    for number in sorted(set(listed)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}-{b}" if b > a else str(a) for a, b in runs)


def parts(text: str) -> list[str]:
    """The comma list's parts; a comma in brackets separates nothing: "a[1,2],b" -> ["a[1,2]", "b"]."""
    return [part.strip() for part in hostlist.split_list(text) if part.strip()]


def hosts(text: str) -> tuple[str, ...] | None:
    """The names of a hostlist, in its order; None if it is none. Brackets may stand in names of files too."""
    try:
        return tuple(name for part in parts(text) for name in hostlist.expand(part))
    except ValueError:
        return None


def fold(names: Iterable[str]) -> str:
    """The names as one hostlist, as hostlist.fold does it; a comma list of what are no names of hosts."""
    listed = list(names)
    try:
        return hostlist.fold(listed)
    except ValueError:
        return ",".join(listed)


def joined(size: int, pairs: Iterable[Sequence[int]]) -> list[int]:
    """For each of so many things the lowest number of those it is joined with, over any chain of pairs."""
    root = list(range(size))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    for i, j in pairs:
        low, high = sorted((find(i), find(j)))
        root[high] = low
    return [find(i) for i in range(size)]


def numbered(keys: Sequence[int], least: int = 2) -> list[int]:
    """Equal keys as equal numbers 0, 1, ... in order of appearance; -1 for a key held by fewer than `least`."""
    number: dict[int, int] = {}
    for key in keys:
        if keys.count(key) >= least:
            number.setdefault(key, len(number))
    return [number.get(key, -1) for key in keys]


def apart(lists: Sequence[Sequence[int] | None]) -> list[int]:
    """The number of each list among the distinct ones, ascending by their first member.

    [] where a list is empty or unknown, or two lists overlap without being equal: then they tell nothing apart.
    """
    sets = [frozenset(members or ()) for members in lists]
    distinct = sorted(set(sets), key=lambda members: min(members, default=-1))
    if frozenset() in distinct or sum(map(len, distinct)) != len(frozenset().union(*distinct)):
        return []
    return [distinct.index(members) for members in sets]

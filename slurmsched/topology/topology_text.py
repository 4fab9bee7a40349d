"""What all readers of topology files need: clean lines, lists of numbers, hostlists, groups, labelled tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slurmsched.model import hostlists

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_ENDS = re.compile(r"\r*\n|\r")
_CONTROLS = dict.fromkeys([*range(9), *range(11, 32), 127], "")
_BLANKS = _CONTROLS | {0xA0: " ", 0x2007: " ", 0x202F: " ", 0x200B: "", 0xFEFF: ""}  # what web pages put in their place
_MARK = re.compile(r">+|[\w.-]+:(?=[ \t]|$)")
_SPAN = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
MOST_NUMBERS = 1 << 16  # a longer list of CPUs or devices is a typing error


def clean(text: str) -> str:
    """The text without escape codes, control characters and a byte order mark; blanks of web pages become blanks."""
    return _ENDS.sub("\n", _ESCAPE.sub("", text)).translate(_BLANKS)


def unquoted(text: str) -> str:
    """The text without a prefix of each line: "> " of a mail, "node01: " of pdsh or clush.

    If several hosts answered, only the lines of the first.
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


def numbers_or_none(text: str) -> tuple[int, ...] | None:
    """The whole numbers of a list such as "0-3,8", in its order; None if it is no such list."""
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


def fold_numbers(listed: Sequence[int]) -> str:
    """(0, 1, 2, 8) -> "0-2,8"."""
    runs: list[list[int]] = []
    for number in sorted(set(listed)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}-{b}" if b > a else str(a) for a, b in runs)


def comma_parts(text: str) -> list[str]:
    """The parts of a comma list. A comma within brackets does not separate: "a[1,2],b" -> ["a[1,2]", "b"]."""
    return [part.strip() for part in hostlists.split_comma_list(text) if part.strip()]


def hosts_or_none(text: str) -> tuple[str, ...] | None:
    """The names of a hostlist or of a list of files, in its order; None if it is no such list."""
    return hostlists.expand_or_none(",".join(comma_parts(text)))


def fold_names(names: Iterable[str]) -> str:
    """The names as one hostlist; a comma list if they are no host names."""
    listed = list(names)
    try:
        return hostlists.fold_hostlist(listed)
    except ValueError:
        return ",".join(listed)


def connected_groups(size: int, pairs: Iterable[Sequence[int]]) -> list[int]:
    """For each of `size` items the lowest item that it is connected with, over any chain of pairs."""
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


def number_groups(keys: Sequence[int], least: int = 2) -> list[int]:
    """Equal keys as equal numbers 0, 1, ... in order of appearance; -1 for a key that occurs fewer than `least`
    times."""
    number: dict[int, int] = {}
    for key in keys:
        if keys.count(key) >= least:
            number.setdefault(key, len(number))
    return [number.get(key, -1) for key in keys]


def disjoint_groups(lists: Sequence[Sequence[int] | None]) -> list[int]:
    """The number of each list among the distinct ones, ascending by their first member.

    [] if a list is empty or unknown, or if two lists overlap without being equal.
    """
    sets = [frozenset(members or ()) for members in lists]
    distinct = sorted(set(sets), key=lambda members: min(members, default=-1))
    if frozenset() in distinct or sum(map(len, distinct)) != len(frozenset().union(*distinct)):
        return []
    return [distinct.index(members) for members in sets]


# Labelled tables.

GPU = re.compile(r"GPU(\d{1,4})")


@dataclass(frozen=True, slots=True)
class LabelledTable:
    """A table of labelled rows and columns, as the vendors' tools print it, complete or damaged.

    columns: labels.
    rows: label -> cells, one for each column; only rows that can be trusted.
    others: labels of the other rows.
    shifted: whether cells may be in the wrong column: a row of full length has its own mark elsewhere, or most rows do
        not fit.
    block: whether only the columns of the GPUs are read, out of rows with more cells.
    """

    columns: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]
    others: tuple[str, ...] = ()
    shifted: bool = False
    block: bool = False

    @property
    def gpus(self) -> int:
        """Highest GPU number among the columns, plus one."""
        return max((number + 1 for label in self.columns if (number := gpu_number(label)) is not None), default=0)

    def cells(self) -> Iterator[tuple[str, str, str]]:
        """Row label, column label and cell, for all trusted rows."""
        for row, cells in self.rows.items():
            for column, cell in zip(self.columns, cells, strict=True):
                yield row, column, cell

    def missing(self) -> tuple[str, ...]:
        """Columns that have no row of their own."""
        return tuple(label for label in self.columns if label not in self.rows and label not in self.others)


def gpu_number(label: str) -> int | None:
    """The number of "GPU3"; None for any other label."""
    match = GPU.fullmatch(label)
    return int(match[1]) if match else None


def best_table(heads: Sequence[Sequence[str]], rows: Mapping[str, Sequence[str]], mark: str) -> LabelledTable:
    """The rows under the head that most rows fit; of equal heads the first.

    mark: what a row holds in its own column.
    """
    grids = [_grid(tuple(head), rows, mark) for head in heads if head and len(set(head)) == len(head)]
    return max(grids, key=lambda grid: len(grid.rows), default=LabelledTable((), {}, tuple(rows)))


def gpu_block(head: Sequence[str], rows: Mapping[str, Sequence[str]], mark: str) -> LabelledTable:
    """Only the columns of the GPUs, found by the header or, without one, by each row's own mark.

    Such a table counts as shifted: a link is certain only if both rows agree.
    """
    gpus = {label: cells for label, cells in rows.items() if gpu_number(label) is not None}
    if head:
        place = {label: at for at, label in enumerate(head) if gpu_number(label) is not None}
    else:
        length = max((len(cells) for cells in gpus.values()), default=0)
        gpus = {label: cells for label, cells in gpus.items() if len(cells) == length and cells.count(mark) == 1}
        place = {label: cells.index(mark) for label, cells in gpus.items()}
    if not place or len(set(place.values())) < len(place):
        return LabelledTable((), {}, tuple(rows))
    fits = {label: tuple(cells[at] for at in place.values()) for label, cells in gpus.items()
            if len(cells) > max(place.values()) and label in place and cells[place[label]] == mark}  # fmt: skip
    others = tuple(label for label in rows if gpu_number(label) is not None and label not in fits)
    return LabelledTable(tuple(place), fits, others, shifted=True, block=True)


def _grid(columns: tuple[str, ...], rows: Mapping[str, Sequence[str]], mark: str) -> LabelledTable:
    sound, others, shifted = {}, [], False
    for label, cells in rows.items():
        if len(cells) == len(columns) and label in columns and cells[columns.index(label)] == mark:
            sound[label] = tuple(cells)
        else:
            others.append(label)
            shifted |= len(cells) == len(columns)
    return LabelledTable(columns, sound, tuple(others), shifted or len(others) > len(sound))

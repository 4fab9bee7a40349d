"""Hostlists of Slurm, "n[1-3,7]", to names and back. All errors of ClusterShell become ValueError."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

MOST_NAMES = 1 << 20  # most names of one hostlist
LARGEST_CLUSTER = 1 << 16  # nodes of the largest Slurm cluster
MOST_DIGITS = 255  # digits of a number; longer host names are not possible
MOST_KEPT = 1 << 14  # most names of a list that is cached
_GROUP = re.compile(r"\[([^\[\]]*)\]")
_NUMBERED = re.compile(r"([\w.-]*[A-Za-z_.-])(\d{1,15})", re.ASCII)  # a name with a number at its end
# Differences, steps and other digits: ClusterShell accepts them, Slurm does not.
_RANGES = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*", re.ASCII)
_NOT_SLURMS = re.compile(r"[!&^]|\[[^\]]*[^\]0-9,-]")


def expand_hostlist(text: str, most: int = MOST_NAMES) -> tuple[str, ...]:
    """Node names of a hostlist, in its order. Raises ValueError, also for more than `most` names."""
    if "[" not in text:
        names = tuple(text.split(",")) if text else ()
        if len(names) > most:
            raise ValueError(f"not a hostlist (more than {most} names)")
        return names
    if _NOT_SLURMS.search(text) or not all(map(_RANGES.fullmatch, _GROUP.findall(text))):
        raise ValueError("not a hostlist (Slurm has no steps, and joins lists only by commas)")
    names_at_least = _spanned(text)
    if names_at_least > most:
        raise ValueError(f"not a hostlist (more than {most} names)")
    return _kept(text) if names_at_least <= MOST_KEPT else _expanded(text)


def expand_or_none(text: str, most: int = MOST_NAMES) -> tuple[str, ...] | None:
    """As expand_hostlist; None for a text that is no hostlist."""
    try:
        return expand_hostlist(text, most)
    except ValueError:
        return None


def split_comma_list(text: str, brackets: str = "[]") -> list[str]:
    """The parts of a comma list. A comma within brackets does not separate: "a[1,2],b" -> ["a[1,2]", "b"]."""
    parts = list[list[str]]([[]])
    for number, piece in enumerate(text.split(brackets[0])):
        inner, closing, outer = piece.rpartition(brackets[1])
        first, *others = outer.split(",")
        parts[-1] += [brackets[0] * (number > 0), inner, closing, first]
        parts += [[other] for other in others]
    return ["".join(part) for part in parts]


def _expanded(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in dict.fromkeys(split_comma_list(text)) for name in _names(part)))


_kept = lru_cache(maxsize=64)(_expanded)


def most_names_of(nodes: int) -> int:
    """Most names of a hostlist in a cluster that shows this many nodes.

    Slurm hides powered down nodes of a cloud, and nodes may have been removed since the list was written."""
    return min(max(2 * nodes, LARGEST_CLUSTER), MOST_NAMES)


def _names(part: str) -> list[str]:
    """Names of one part of a list, "a[01-02]b[1,3]". Numbers are padded to the width of the lower end."""
    head, *rest = re.split(r"\[([^\[\]]*)\]", part)
    if not part or "[" in head or "]" in "".join((head, *rest[1::2])):
        raise ValueError("not a hostlist (a bracket without its other one, or nothing between commas)")
    names = [head]
    for group, tail in zip(rest[::2], rest[1::2], strict=True):
        names = [name + number + tail for name in names for number in _numbers(group)]
    return names


def _numbers(group: str) -> Iterator[str]:
    for span in group.split(","):
        low, _, high = span.partition("-")
        if int(high or low) < int(low):
            raise ValueError("not a hostlist (a range that goes down)")
        yield from (str(number).zfill(len(low)) for number in range(int(low), int(high or low) + 1))


def _spanned(text: str) -> int:
    """A lower limit for the number of names, without making them."""
    total = 0
    for part in split_comma_list(text):
        names = 1
        for group in _GROUP.findall(part):
            spans = [span.partition("-") for span in group.split(",")]
            names *= sum(_size(low, high or low) for low, _, high in spans)
        total += names
    return total


def _size(low: str, high: str) -> int:
    """Numbers from low to high."""
    short = max(len(low), len(high)) <= MOST_DIGITS
    return max(1, int(high) - int(low) + 1) if short else MOST_NAMES + 1


def fold_hostlist(names: Iterable[str]) -> str:
    """The names as one hostlist: ("n1", "n2", "n3") -> "n[1-3]". Raises ValueError if they are no host names."""
    others, runs = _in_runs(names)
    if not others and len({(head, len(low)) for head, low, _ in runs}) == 1:  # ClusterShell makes the same, slowly
        spans = [low if low == high else f"{low}-{high}" for _, low, high in runs]
        text = ",".join(spans)
        return runs[0][0] + (text if text == runs[0][1] else f"[{text}]")
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    made = [f"{head}[{low}-{high}]" for head, low, high in runs]
    try:
        return str(NodeSet.fromlist([*others, *made], resolver=RESOLVER_NOGROUP))
    except Exception as error:
        raise ValueError(f"not names of hosts ({error})") from error


def _in_runs(names: Iterable[str]) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Names without a number at their end; head, lowest and highest number of those with numbers that follow each
    other: ClusterShell reads name by name."""
    others, numbers = list[str](), dict[tuple[str, int], set[int]]()
    for name in names:
        if match := _NUMBERED.fullmatch(name):
            numbers.setdefault((match[1], len(match[2])), set()).add(int(match[2]))
        else:
            others.append(name)
    runs = list[tuple[str, str, str]]()
    for (head, width), found in numbers.items():
        ordered = sorted(found)
        lows = [f"{number:0{width}}" for number in ordered if number - 1 not in found]
        highs = [f"{number:0{width}}" for number in ordered if number + 1 not in found]
        runs += [(head, low, high) for low, high in zip(lows, highs, strict=True)]
    return others, runs


def folded(text: str) -> str:
    """A hostlist with its names in the order that people count in, n2 before n10; as it is where it is none."""
    names = expand_or_none(text)
    try:
        return fold_hostlist(names) if names and len(names) > 1 else text
    except ValueError:
        return text


def counting_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """A key that sorts names as people count: n2 before n10."""
    parts = re.split(r"([0-9]{1,18})", name)
    return tuple((0, int(part), part) if part.isascii() and part.isdecimal() else (1, 0, part) for part in parts)


def same_hosts(a: str, b: str) -> bool:
    """Whether two hostlists name the same nodes, however they are written. A broken one is like no other."""
    if a == b:
        return True
    ours, others = expand_or_none(a), expand_or_none(b)
    return ours is not None and others is not None and set(ours) == set(others)

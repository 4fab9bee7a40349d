"""Slurm's hostlists, "n[1-3,7]", to names and back. What ClusterShell raises, whatever it is, is a ValueError here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

MOST = 1 << 20  # names of one hostlist: more is a typing error, or meant to take the memory
LARGEST_CLUSTER = 1 << 16  # nodes of the largest Slurm cluster: a hostlist may have as many names on any
MOST_DIGITS = 255  # of a number: Linux takes no longer name of a host
MOST_KEPT = 1 << 14  # names of a list that is remembered
_GROUP = re.compile(r"\[([^\[\]]*)\]")
# Differences, steps, other digits than Slurm's and the like: ClusterShell knows them, Slurm does not.
_RANGES = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*", re.ASCII)
_NOT_SLURMS = re.compile(r"[!&^]|\[[^\]]*[^\]0-9,-]")


def expand(text: str, most: int = MOST) -> tuple[str, ...]:
    """Node names of a hostlist, in its order; they may be `most` at most. Raises ValueError."""
    if "[" not in text:
        names = tuple(text.split(",")) if text else ()
        if len(names) > most:
            raise ValueError(f"not a hostlist (more than {most} names)")
        return names
    if _NOT_SLURMS.search(text) or not all(map(_RANGES.fullmatch, _GROUP.findall(text))):
        raise ValueError("not a hostlist (Slurm knows neither steps nor what joins lists but a comma)")
    names_at_least = _spanned(text)
    if names_at_least > most:
        raise ValueError(f"not a hostlist (more than {most} names)")
    return _kept(text) if names_at_least <= MOST_KEPT else _expanded(text)


def split_list(text: str, brackets: str = "[]") -> list[str]:
    """The parts of a comma list; a comma in brackets separates nothing: "a[1,2],b" -> ["a[1,2]", "b"]."""
    parts = list[list[str]]([[]])
    for number, piece in enumerate(text.split(brackets[0])):
        inner, closing, outer = piece.rpartition(brackets[1])
        first, *others = outer.split(",")
        parts[-1] += [brackets[0] * (number > 0), inner, closing, first]
        parts += [[other] for other in others]
    return ["".join(part) for part in parts]


def _expanded(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in dict.fromkeys(split_list(text)) for name in _names(part)))


_kept = lru_cache(maxsize=64)(_expanded)


def most_of(nodes: int) -> int:
    """How many names a hostlist of a cluster may have that shows so many nodes: Slurm hides nodes of a cloud while they
    are powered down, and nodes may have gone since it was written."""
    return min(max(2 * nodes, LARGEST_CLUSTER), MOST)


def _names(part: str) -> list[str]:
    """Names of one part of a list, "a[01-02]b[1,3]": each group stands for its numbers, as wide as the lower one."""
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
    """At least as many names as the text stands for, found without making them."""
    total = 0
    for part in split_list(text):
        names = 1
        for group in _GROUP.findall(part):
            spans = [span.partition("-") for span in group.split(",")]
            names *= sum(_size(low, high or low) for low, _, high in spans)
        total += names
    return total


def _size(low: str, high: str) -> int:
    """Numbers from low to high."""
    short = max(len(low), len(high)) <= MOST_DIGITS
    return max(1, int(high) - int(low) + 1) if short else MOST + 1


def fold(names: Iterable[str]) -> str:
    """The names as one hostlist: ("n1", "n2", "n3") -> "n[1-3]". Raises ValueError for what are no names of hosts."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    try:
        return str(NodeSet.fromlist(list(names), resolver=RESOLVER_NOGROUP))
    except Exception as error:
        raise ValueError(f"not names of hosts ({error})") from error


def same_hosts(a: str, b: str) -> bool:
    """Whether two hostlists name the same nodes, however they are written. One that is broken is like no other."""
    try:
        return a == b or set(expand(a)) == set(expand(b))
    except ValueError:
        return False

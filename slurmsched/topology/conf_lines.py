"""Lines of Key=Value pairs, as in Slurm's configuration files and in what scontrol prints."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from slurmsched.topology.plain import clean

Include = Callable[[str], str | None]  # a file's name as written -> its text, None if it cannot be read
PAIR = re.compile(r"(\w+)\s*=\s*(\"[^\"]*\"|\S*)")
_COMMENT = re.compile(r"(?<!\\)#.*")
INCLUDE = re.compile(r"include\s+(\S+)", re.IGNORECASE)
DEEPEST = 8  # of files that include each other


@dataclass(frozen=True, slots=True)
class ConfLine:
    """values: key in small letters -> value; of a key that comes twice the last counts. comment: the lines before."""

    number: int
    values: Mapping[str, str]
    source: str = ""
    comment: str = ""

    @property
    def where(self) -> str:
        """ "line 3", or "gpus.conf line 3" for a line of an included file."""
        return f"{self.source} line {self.number}".strip()

    def get(self, *keys: str) -> str:
        """The first of these keys that has a value, "" if none has."""
        return next((value for key in keys if (value := self.values.get(key, ""))), "")


@dataclass(slots=True)
class Lines:
    """Reads a file and those it includes. warnings: what was left out, filled as lines are read."""

    include: Include | None = None
    warnings: list[str] = field(default_factory=list)

    def read(self, text: str, source: str = "", depth: int = 0) -> Iterator[ConfLine]:
        """The lines that hold pairs; comments gone, lines that end in a backslash joined to the next."""
        comment: list[str] = []
        for number, line in _logical(clean(text)):
            bare = _COMMENT.sub("", line).strip()
            if not bare:
                comment.append(line.strip().lstrip("#").strip())
                continue
            if match := INCLUDE.fullmatch(bare):
                yield from self._included(match[1], depth)
                continue
            values = {key.lower(): value.strip('"') for key, value in PAIR.findall(bare)}
            if not values or PAIR.sub("", bare).strip():
                place = f"{source} line {number}".strip()
                self.warnings.append(f"{place}: not Key=Value pairs: {bare[:60]!r}")
            if values:
                yield ConfLine(number, values, source, "\n".join(comment))
            comment = []

    def _included(self, name: str, depth: int) -> Iterator[ConfLine]:
        text = self.include(name) if self.include and depth < DEEPEST else None
        if text is None:
            self.warnings.append(f"{name} is included, but cannot be read from here")
        else:
            yield from self.read(text, name, depth + 1)


def written(text: str) -> Iterator[tuple[int, str, str]]:
    """Of each line with those that follow its backslash: its number, as it is written, and without comments."""
    lines = clean(text).split("\n")
    logical = list(_logical(clean(text)))
    ends = [number for number, _ in logical[1:]] + [len(lines) + 1]
    for (number, line), end in zip(logical, ends, strict=True):
        yield number, "\n".join(lines[number - 1 : end - 1]), _COMMENT.sub("", line).strip()


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Number of the first line, and the line with those that follow its backslash, as Slurm joins them: comments go
    first, blanks after the backslash too, and nothing comes in its place. An even number of backslashes is none."""
    held, begun = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        begun, bare = begun or number, _COMMENT.sub("", line).rstrip()
        if (len(bare) - len(bare.rstrip("\\"))) % 2:
            held += bare[:-1]
            continue
        yield begun, held + line
        held, begun = "", 0
    if held:
        yield begun, held

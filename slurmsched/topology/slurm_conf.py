"""Slurm's configuration files: their lines of Key=Value pairs, and what slurm.conf says about GPUs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from slurmsched.errors import UnreadableError
from slurmsched.model.gres import count_gpus, count_mig, parse_gres
from slurmsched.topology.topology_text import clean, comma_parts, hosts_or_none

Include = Callable[[str], str | None]  # a file's name as written -> its text, None if it cannot be read
PAIR = re.compile(r"(\w+)\s*=\s*(\"[^\"]*\"|\S*)")
_COMMENT = re.compile(r"(?<!\\)#.*")
INCLUDE = re.compile(r"include\s+(\S+)", re.IGNORECASE)
DEEPEST = 8  # of files that include each other


@dataclass(frozen=True, slots=True)
class ConfLine:
    """A line of pairs.

    number: of its first line in the file.
    values: lower-case key -> value; if a key occurs twice, the last counts.
    source: name of the included file, "" = the file itself.
    comment: the comment lines before it."""

    number: int
    values: Mapping[str, str]
    source: str = ""
    comment: str = ""

    @property
    def where(self) -> str:
        """ "line 3", or "gpus.conf line 3" for a line of an included file."""
        return f"{self.source} line {self.number}".strip()

    def get(self, *keys: str) -> str:
        """The value of the first of these keys that has one, else ""."""
        return next((value for key in keys if (value := self.values.get(key, ""))), "")


@dataclass(slots=True)
class ConfReader:
    """Reads a file and the files that it includes. warnings: filled while lines are read."""

    include: Include | None = None
    warnings: list[str] = field(default_factory=list)

    def read(self, text: str, source: str = "", depth: int = 0) -> Iterator[ConfLine]:
        """The lines with pairs, without comments. A line that ends in a backslash is joined to the next."""
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


def written_lines(text: str) -> Iterator[tuple[int, str, str]]:
    """For each line, joined at backslashes: its number, its text as written, and its text without comments."""
    lines = clean(text).split("\n")
    logical = list(_logical(clean(text)))
    ends = [number for number, _ in logical[1:]] + [len(lines) + 1]
    for (number, line), end in zip(logical, ends, strict=True):
        yield number, "\n".join(lines[number - 1 : end - 1]), _COMMENT.sub("", line).strip()


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Number of the first line, and the line joined at backslashes as Slurm does it.

    Comments and blanks after the backslash are removed first. An even number of backslashes does not join."""
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


# slurm.conf, as far as it tells of GPUs: how many each node has, and whether Slurm accounts for them.


@dataclass(frozen=True, slots=True)
class SlurmConf:
    """What slurm.conf says about GPUs.

    gpus: node -> GPUs of its Gres, MIG devices counted as GPUs; nodes without GPUs are absent.
    nodes: all nodes that it names.
    topology: TopologyPlugin without "topology/".
    accounted: whether AccountingStorageTRES has gres/gpu.
    """

    gpus: Mapping[str, int] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    topology: str = ""
    accounted: bool = False
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def with_defaults(lines: Iterable[ConfLine]) -> Iterator[tuple[ConfLine, Mapping[str, str]]]:
    """The lines of slurm.conf, each with its values and those of earlier DEFAULT lines of nodes or partitions.

    The DEFAULT lines themselves are left out.
    """
    defaults: dict[str, Mapping[str, str]] = {"nodename": {}, "partitionname": {}}
    for line in lines:
        kind = next((key for key in defaults if line.get(key)), "")
        values = {**defaults.get(kind, {}), **line.values}
        if kind and line.get(kind).upper() == "DEFAULT":
            defaults[kind] = values
        else:
            yield line, values


def read_slurm_conf(text: str, include: Include | None = None) -> SlurmConf:
    """Read the file. A line that cannot be read is left out, with a warning."""
    lines = ConfReader(include)
    gpus: dict[str, int] = {}
    settings: dict[str, str] = {}
    nodes = list[str]()
    for line, values in with_defaults(lines.read(text)):
        if name := line.get("nodename"):
            nodes += hosts_or_none(name) or ()
            gpus.update(_gpus(line, values.get("gres", ""), lines.warnings))
        elif not line.get("partitionname"):
            settings.update({key: value for key, value in line.values.items() if key not in settings})
    tres = comma_parts(settings.get("accountingstoragetres", "").lower())
    accounted = any(part == "gres/gpu" for part in tres)
    plugin = settings.get("topologyplugin", "").rpartition("/")[2]
    return SlurmConf(
        gpus, tuple(dict.fromkeys(nodes)), plugin, accounted, tuple(lines.warnings), _notes(gpus, accounted)
    )


def _gpus(line: ConfLine, gres: str, warnings: list[str]) -> dict[str, int]:
    names = hosts_or_none(line.get("nodename"))
    try:
        entries = parse_gres(gres)
    except UnreadableError as error:
        names, entries = None, ()
        warnings.append(f"{line.where}: {error}; the line is left out")
    count = count_gpus(entries) + count_mig(entries)
    return dict.fromkeys(names or (), count) if count else {}


def _notes(gpus: Mapping[str, int], accounted: bool) -> tuple[str, ...]:
    if accounted or not gpus:
        return ()
    return ("AccountingStorageTRES lacks gres/gpu: sacct and fair share do not see GPUs",)

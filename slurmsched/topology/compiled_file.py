"""What `topology compile` writes: the wiring that it compiled from, as comments, and the new gres.conf as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from slurmsched.model.topology import GpuTopology, LinkKind
from slurmsched.topology.conf_lines import DEEPEST, INCLUDE, PAIR, ConfLine, Include, written
from slurmsched.topology.devices import Device, class_of_devices, class_of_said
from slurmsched.topology.links import Link, few_enough
from slurmsched.topology.plain import fold, hosts, ranges

MARK = "slurmsched:"  # begins every comment that compile writes
NO_NVLINK, UNKNOWN = "NV0", "-"
_WORD = re.compile(r"(NV|XGMI)(\d{1,3})|PIX|PXB|PHB|NODE|SYS")
_ROW = re.compile(rf"{MARK} GPU(\d{{1,2}}) ([\w -]+) numa (-?\d{{1,4}})")
_HEAD = re.compile(rf"{MARK} wiring of \S+ type (\S+):.*")
_COMPILED = "by slurmsched topology compile"


def wiring_comment(nodes: Sequence[str], wiring: GpuTopology, order: Iterable[int]) -> list[str]:
    """The true links, a row for each GPU by its place in the new file. order: the GPU at each place."""
    head = f"# {MARK} wiring of {fold(nodes) or '*'} type {wiring.gpu_type.replace(' ', '_') or UNKNOWN}:"
    places = [int(g) for g in order]
    rows = [f"# {MARK} GPU{at} {' '.join(_cell(wiring, g, h) for h in places)} numa {wiring.numa[g]}"
            for at, g in enumerate(places)]  # fmt: skip
    return [f"{head} true links by GPU; the Links below only steer which GPUs Slurm takes", *rows]


def _cell(wiring: GpuTopology, i: int, j: int) -> str:
    kind, lanes = LinkKind(int(wiring.kind[i, j])), int(wiring.lanes[i, j])
    if i == j:
        return "X"
    if kind == LinkKind.UNKNOWN:
        return NO_NVLINK if wiring.bandwidth_gb_per_s[i, j] else UNKNOWN
    return f"{'NV' if kind == LinkKind.NVLINK else kind.name}{lanes if kind >= LinkKind.XGMI else ''}"


def told_by(line: ConfLine) -> tuple[str, ...]:
    """What the comment before a line of gres.conf says of its true links; () where compile did not write it."""
    rows = [text for text in line.comment.split("\n") if _HEAD.fullmatch(text) or _ROW.fullmatch(text)]
    return tuple(rows) or ((_COMPILED,) if _COMPILED in line.comment else ())


def class_as_told(name: str, devices: Sequence[Device], wiring: Sequence[str]) -> GpuTopology:
    """The class by the links that the file was compiled from. The Links of its lines are never taken for them.

    Where those are not told, or of another number of GPUs, no link is known, with a warning.
    """
    plain = {at: replace(device, links=()) for at, device in enumerate(devices)}
    head = next((match for text in wiring if (match := _HEAD.fullmatch(text))), None)
    rows = [match for text in wiring if (match := _ROW.fullmatch(text))]
    size, _ = few_enough(len(devices))
    square = all(len(row[2].split()) == len(rows) and int(row[1]) == at for at, row in enumerate(rows))
    if head is None or not square or len(rows) != size:
        lost = "Links are compiled, and the true links beside them cannot be read: compile again from the true links"
        return class_of_devices(name, plain, (lost,))
    said = {(i, j): link for i, row in enumerate(rows) for j, cell in enumerate(row[2].split())
            if i != j and (link := _link(cell))}  # fmt: skip
    types = {device.type for device in devices}
    told = "" if head[1] == UNKNOWN else head[1]
    return class_of_said(
        name, size, said, gpu_type=told or (types.pop() if len(types) == 1 else ""), warnings=(),
        numa=[int(row[3]) for row in rows], mig=[device.mig for device in devices[:size]],
    )  # fmt: skip


def _link(cell: str) -> Link | None:
    match = _WORD.fullmatch(cell)
    if match is None:
        return None
    if match[1] is None:
        return LinkKind[cell], 0
    kind = LinkKind.NVLINK if match[1] == "NV" else LinkKind.XGMI
    return (LinkKind.UNKNOWN, 0) if cell == NO_NVLINK else (kind, int(match[2]))


@dataclass(slots=True)
class NewFile:
    """A gres.conf with new lines for the GPUs of some nodes. parts: those nodes, () = every node, and their lines.

    named: whether the lines without NodeName give way to lines of nodes by name. lines: what the new file holds.
    replaced: file ("" = this one) and number of the old lines.
    """

    parts: list[tuple[tuple[str, ...], list[str]]]
    include: Include | None = None
    named: bool = False
    lines: list[str] = field(default_factory=list)
    replaced: list[tuple[str, int]] = field(default_factory=list)
    nodes: set[str] = field(init=False)
    every: bool = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = {node for of, _ in self.parts for node in of}
        self.every = self.named or any(not of for of, _ in self.parts)

    def write(self, text: str, source: str = "", depth: int = 0) -> None:
        """All lines of the old file: those of the GPUs of these nodes give way to the new ones, where the first was."""
        held: list[str] = []  # comments, which go with the line that follows
        for number, raw, bare in written(text):
            if not bare:
                held.append(raw)
                continue
            kept = self._kept(raw, bare, (source, number), depth)
            ours = not kept or kept != [raw]
            self.lines += [line for line in held if not (ours and line.lstrip("# ").startswith(MARK))]
            self.lines += kept if kept == [raw] else [*self._new(bare), *kept]
            held = []
        self.lines += held[: -1 if held and not held[-1] else None]

    def changes(self) -> str:
        """The old lines in words: "lines 2-9", "gpus.conf line 3"."""
        files: dict[str, list[int]] = {}
        for source, number in self.replaced:
            files.setdefault(source, []).append(number)
        told = [f"{name} line{'s' if len(of) > 1 else ''} {ranges(of)}".strip() for name, of in files.items()]
        return ", ".join(told)

    def finish(self) -> list[str]:
        """The lines, with those of nodes that the old file has no lines for."""
        for _, lines in self.parts:
            self.lines += lines
        return self.lines

    def _kept(self, raw: str, bare: str, where: tuple[str, int], depth: int) -> list[str]:
        """What stays of a line: all, none, or the line for its other nodes; an Include in which nothing changes."""
        if match := INCLUDE.fullmatch(bare):
            return self._included(raw, match[1], depth)
        values = {key.lower(): value.strip('"') for key, value in PAIR.findall(bare)}
        name, nodes = values.get("name", "").lower(), hosts(values.get("nodename", ""))
        local = name == "" and "autodetect" in values and nodes
        if nodes is None or not (name == "gpu" or local):
            return [raw]
        if not nodes:
            self.replaced += [where] if self.every else []
            return [] if self.every else [raw]
        left = [node for node in nodes if node not in self.nodes]
        if len(left) == len(nodes):
            return [raw]
        self.replaced.append(where)
        return [re.sub(r"(?i)(nodename\s*=\s*)(\"[^\"]*\"|\S+)", rf"\g<1>{fold(left)}", bare, count=1)] if left else []

    def _included(self, raw: str, name: str, depth: int) -> list[str]:
        text = self.include(name) if self.include and depth < DEEPEST else None
        if text is None:
            return [raw]
        inner = replace(self, parts=list(self.parts), lines=[], replaced=[])
        inner.nodes, inner.every = self.nodes, self.every
        inner.write(text, name, depth + 1)
        if not inner.replaced:
            return [raw]
        self.parts, self.replaced = inner.parts, [*self.replaced, *inner.replaced]
        return [f"# {MARK} {name}, included so far, with its changed lines:", *inner.lines]

    def _new(self, bare: str) -> Iterator[str]:
        """The new lines that take the place of an old one, once."""
        values = {key.lower(): value.strip('"') for key, value in PAIR.findall(bare)}
        nodes = set(hosts(values.get("nodename", "")) or ())
        if values.get("name", "").lower() != "gpu":
            return
        for part in list(self.parts):
            if nodes & set(part[0]) or not nodes:
                self.parts.remove(part)
                yield from part[1]

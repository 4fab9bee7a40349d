"""gres.conf: the GPUs of each node in Slurm's numbering, and the new file that `topology compile` writes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from slurmsched.model.gpu_topology import GpuTopology, LinkKind
from slurmsched.plain_text import pluralize
from slurmsched.topology.gpu_links import GpuDevice, Link, class_of_devices, class_of_links, limited_gpus
from slurmsched.topology.slurm_conf import DEEPEST, INCLUDE, PAIR, ConfLine, ConfReader, Include, written_lines
from slurmsched.topology.topology_text import comma_parts, fold_names, fold_numbers, hosts_or_none, numbers_or_none

MARK = "slurmsched:"  # begins every comment that compile writes
NO_NVLINK, UNKNOWN_CELL = "NV0", "-"
_WORD = re.compile(r"(NV|XGMI)(\d{1,3})|PIX|PXB|PHB|NODE|SYS")
_ROW = re.compile(rf"{MARK} GPU(\d{{1,2}}) ([\w -]+) numa (-?\d{{1,4}})")
_HEAD = re.compile(rf"{MARK} wiring of \S+ type (\S+):.*")
_COMPILED = "by slurmsched topology compile"


def wiring_comment(nodes: Sequence[str], wiring: GpuTopology, order: Iterable[int]) -> list[str]:
    """Comment lines with the true links, one for each GPU in the order of the new file. order: the GPU at each
    place."""
    head = f"# {MARK} wiring of {fold_names(nodes) or '*'} type {wiring.gpu_type.replace(' ', '_') or UNKNOWN_CELL}:"
    places = [int(g) for g in order]
    rows = [f"# {MARK} GPU{at} {' '.join(_cell(wiring, g, h) for h in places)} numa {wiring.numa[g]}"
            for at, g in enumerate(places)]  # fmt: skip
    return [f"{head} true links by GPU; the Links below only steer which GPUs Slurm takes", *rows]


def _cell(wiring: GpuTopology, i: int, j: int) -> str:
    kind, lanes = LinkKind(int(wiring.kind[i, j])), int(wiring.lanes[i, j])
    if i == j:
        return "X"
    if kind == LinkKind.UNKNOWN:
        return NO_NVLINK if wiring.bandwidth_gb_per_s[i, j] else UNKNOWN_CELL
    return f"{'NV' if kind == LinkKind.NVLINK else kind.name}{lanes if kind >= LinkKind.XGMI else ''}"


def links_in_comment(line: ConfLine) -> tuple[str, ...]:
    """The lines about true links in the comment before a line; () if `topology compile` did not write it."""
    rows = [text for text in line.comment.split("\n") if _HEAD.fullmatch(text) or _ROW.fullmatch(text)]
    return tuple(rows) or ((_COMPILED,) if _COMPILED in line.comment else ())


def class_of_compiled(name: str, devices: Sequence[GpuDevice], wiring: Sequence[str]) -> GpuTopology:
    """The class by the true links in the comments. The compiled Links of the lines are never used.

    If the comments are damaged or for another number of GPUs, no link is known, with a warning.
    """
    plain = {at: replace(device, links=()) for at, device in enumerate(devices)}
    head = next((match for text in wiring if (match := _HEAD.fullmatch(text))), None)
    rows = [match for text in wiring if (match := _ROW.fullmatch(text))]
    size, _ = limited_gpus(len(devices))
    square = all(len(row[2].split()) == len(rows) and int(row[1]) == at for at, row in enumerate(rows))
    if head is None or not square or len(rows) != size:
        lost = "Links are compiled, and the true links beside them cannot be read: compile again from the true links"
        return class_of_devices(name, plain, (lost,))
    said = {(i, j): link for i, row in enumerate(rows) for j, cell in enumerate(row[2].split())
            if i != j and (link := _link_of_cell(cell))}  # fmt: skip
    types = {device.type for device in devices}
    model = "" if head[1] == UNKNOWN_CELL else head[1]
    return class_of_links(
        name, size, said, gpu_type=model or (types.pop() if len(types) == 1 else ""), warnings=(),
        numa=[int(row[3]) for row in rows], mig=[device.mig for device in devices[:size]],
    )  # fmt: skip


def _link_of_cell(cell: str) -> Link | None:
    match = _WORD.fullmatch(cell)
    if match is None:
        return None
    if match[1] is None:
        return LinkKind[cell], 0
    kind = LinkKind.NVLINK if match[1] == "NV" else LinkKind.XGMI
    return (LinkKind.UNKNOWN, 0) if cell == NO_NVLINK else (kind, int(match[2]))


@dataclass(slots=True)
class NewGresConf:
    """A gres.conf with new lines for the GPUs of some nodes.

    parts: nodes (() = every node) and their new lines.
    named: whether lines with NodeName replace the lines without.
    lines: the new file.
    replaced: file ("" = this one) and number of each old line.
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
        """Add the lines of the old file. The new lines replace those of these GPUs at the place of the first one."""
        held: list[str] = []  # comments, which go with the line that follows
        for number, raw, bare in written_lines(text):
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
        """The replaced lines in words: "lines 2-9", "gpus.conf line 3"."""
        files: dict[str, list[int]] = {}
        for source, number in self.replaced:
            files.setdefault(source, []).append(number)
        places = [f"{name} line{'s' if len(of) > 1 else ''} {fold_numbers(of)}".strip() for name, of in files.items()]
        return ", ".join(places)

    def finish(self) -> list[str]:
        """All lines, with those for nodes that the old file lacks."""
        for _, lines in self.parts:
            self.lines += lines
        return self.lines

    def _kept(self, raw: str, bare: str, where: tuple[str, int], depth: int) -> list[str]:
        """The part of a line that stays: all, none, or the line for its other nodes."""
        if match := INCLUDE.fullmatch(bare):
            return self._included(raw, match[1], depth)
        values = {key.lower(): value.strip('"') for key, value in PAIR.findall(bare)}
        name, nodes = values.get("name", "").lower(), hosts_or_none(values.get("nodename", ""))
        local = name == "" and "autodetect" in values and nodes
        if nodes is None or not (name == "gpu" or local):
            return [raw]
        if not nodes:
            self.replaced += [where] if self.every else []
            return [] if self.every else [raw]
        others = [node for node in nodes if node not in self.nodes]
        if len(others) == len(nodes):
            return [raw]
        self.replaced.append(where)
        return (
            [re.sub(r"(?i)(nodename\s*=\s*)(\"[^\"]*\"|\S+)", rf"\g<1>{fold_names(others)}", bare, count=1)]
            if others
            else []
        )

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
        """The new lines in place of an old one, each once."""
        values = {key.lower(): value.strip('"') for key, value in PAIR.findall(bare)}
        nodes = set(hosts_or_none(values.get("nodename", "")) or ())
        if values.get("name", "").lower() != "gpu":
            return
        for part in list(self.parts):
            if nodes & set(part[0]) or not nodes:
                self.parts.remove(part)
                yield from part[1]


# gres.conf: which GPUs Slurm knows on which nodes, in its numbering.

_KEYS = frozenset({"autodetect", "cores", "cpus", "count", "file", "files", "flags", "link", "links",
                   "multiplefiles", "name", "nodename", "type"})  # fmt: skip
_FILE = ("file", "files")
MOST_DEVICES = 1024  # on one line: more is a typing error


@dataclass(frozen=True, slots=True)
class GresLine:
    """One line of gres.conf.

    nodes: () = every node that reads the file.
    name: "gpu", "shard" ...; "" on a line that only sets AutoDetect.
    devices: one for each index of the line.
    autodetect: "" = not set.
    where: file and line number, for messages.
    wiring: comment lines of `topology compile` before it.
    """

    nodes: tuple[str, ...] = ()
    name: str = ""
    devices: tuple[GpuDevice, ...] = ()
    autodetect: str = ""
    where: str = ""
    wiring: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GresClass:
    """Nodes with the same GPUs.

    nodes: () = every node that reads the file.
    devices: in the order of Slurm's indices; () if slurmd detects them.
    topology: has 0 GPUs if slurmd detects them.
    autodetect: "" = off.
    """

    nodes: tuple[str, ...]
    devices: tuple[GpuDevice, ...]
    topology: GpuTopology
    autodetect: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        finds_links = self.autodetect not in ("", "off") and not any(device.links for device in self.devices)
        return (detected(self.autodetect),) if finds_links else ()

    @property
    def renumbered(self) -> str:
        """A remark if Slurm's index is not the number of the device file, else "".

        Evenly spaced render nodes of AMD are fine, since other cards and partitions have the numbers between."""
        ours = [(i, device) for i, device in enumerate(self.devices) if device.number >= 0]
        steps = {after.number - before.number for (_, before), (_, after) in pairwise(ours)}
        even = all(device.render for _, device in ours) and len(steps) <= 1 and min(steps, default=1) > 0
        others = [] if even else [(i, device) for i, device in ours if device.number != i]
        if not others:
            return ""
        why = (
            "device numbers have a gap" if min(steps, default=1) > 0 else "device files are not in their numbers' order"
        )
        more = f", and {pluralize(len(others) - 1, 'other differs', 'others differ')} too" if len(others) > 1 else ""
        return f"index {others[0][0]} is {others[0][1].files[0]}{more}: {why}"


def detected(how: str) -> str:
    """The remark about nodes whose GPUs only slurmd detects."""
    advice = "import its `nvidia-smi topo -m`, `rocm-smi --showtopo` or slurmd log"
    return f"AutoDetect={how} finds links on the node only; {advice}"


@dataclass(frozen=True, slots=True)
class GresConf:
    """A file with those that it includes. autodetect: the setting for all nodes, "" = none."""

    lines: tuple[GresLine, ...] = ()
    autodetect: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes that the file names, in its order."""
        return tuple(dict.fromkeys(node for line in self.lines for node in line.nodes))

    def devices(self, node: str = "") -> tuple[GpuDevice, ...]:
        """The GPUs of a node in the order of the file, which is that of Slurm's indices. "" = a node without a name in
        it."""
        named = [line for line in self.lines if line.name == "gpu" and (not line.nodes or node in line.nodes)]
        return tuple(device for line in named for device in line.devices)

    def classes(self) -> tuple[GresClass, ...]:
        """The kinds of node, in the order of the file. Nodes without a name in it are one class."""
        groups: dict[tuple[tuple[GpuDevice, ...], str, tuple[str, ...]], list[str]] = {}
        for node, lines in self._lines_by_node().items():
            devices = tuple(device for line in lines if line.name == "gpu" for device in line.devices)
            own = [line.autodetect for line in lines if line.autodetect]
            detected = own[-1] if own else self.autodetect
            wiring = next((line.wiring for line in lines if line.wiring), ())
            if devices or detected not in ("", "off"):
                groups.setdefault((devices, detected, wiring), []).append(node)
        return tuple(self._class(tuple(filter(None, nodes)), *key) for key, nodes in groups.items())

    def _lines_by_node(self) -> dict[str, list[GresLine]]:
        """Node -> its lines; "" is every node without a name in the file, if there are such lines."""
        everywhere = [line for line in self.lines if not line.nodes]
        found: dict[str, list[GresLine]] = {"": everywhere} if any(line.name for line in everywhere) else {}
        for node in self.nodes:
            found[node] = []
        for line in self.lines:
            for node in line.nodes or [node for node in found if node]:
                found[node].append(line)
        return found

    def _class(
        self, nodes: tuple[str, ...], devices: tuple[GpuDevice, ...], detected: str, wiring: tuple[str, ...]
    ) -> GresClass:  # fmt: skip
        name = fold_names(nodes) if nodes else "every node"
        topology = (
            class_of_compiled(name, devices, wiring) if wiring else class_of_devices(name, dict(enumerate(devices)))
        )
        return GresClass(nodes, devices, topology, detected)


def read_gres_conf(text: str, include: Include | None = None) -> GresConf:
    """The file. include: gives the text of a file that an Include line names; None: none can be read.

    A line that cannot be read is left out with a warning. Source: gres.conf manual page, 21.08 to 26.05.
    """
    lines = ConfReader(include)
    read = [found for line in lines.read(text) if (found := _line(line, lines.warnings))]
    default = [line.autodetect for line in read if line.autodetect and not line.nodes and not line.name]
    return GresConf(tuple(read), default[-1] if default else "", tuple(lines.warnings))


def is_gres_line(text: str) -> bool:
    """Whether this is a line of gres.conf: pairs with its keys, or an Include."""
    if re.fullmatch(r"include\s+\S+", text, re.IGNORECASE):
        return True
    keys = [key.lower() for key, _ in PAIR.findall(text)]
    return bool(keys) and not PAIR.sub("", text).strip() and set(keys) <= _KEYS


def _line(line: ConfLine, warnings: list[str]) -> GresLine | None:
    if unknown := sorted(set(line.values) - _KEYS):
        warnings.append(f"{line.where}: unknown key {unknown[0]!r}")
    nodes = hosts_or_none(line.get("nodename"))
    if nodes is None or not set(line.values) & {"name", "autodetect"}:
        what = "NodeName is not a hostlist" if nodes is None else "neither Name nor AutoDetect"
        warnings.append(f"{line.where}: {what}; the line is left out")
        return None
    found = GresLine(
        nodes, line.get("name").lower(), (), line.get("autodetect").lower(), line.where, links_in_comment(line)
    )
    if found.name and found.autodetect and not nodes:  # Slurm: "In-line AutoDetect requires NodeName to take effect"
        warnings.append(f"{line.where}: AutoDetect on a line without NodeName takes no effect")
        found = replace(found, autodetect="")
    bare = line.get("autodetect").lower() in ("", "off")
    listed = bool(line.get("multiplefiles", *_FILE, "count")) or bare
    return replace(found, devices=tuple(_devices(line, warnings)) if found.name == "gpu" and listed else ())


def _devices(line: ConfLine, warnings: list[str]) -> Iterator[GpuDevice]:
    files = hosts_or_none(line.get("multiplefiles", *_FILE))
    if files is None:
        warnings.append(f"{line.where}: File is no list of files; its GPUs are left out")
        return
    device = GpuDevice(
        line.get("type"), (), _numbers(line, ("cores", "cpus"), warnings), _links(line, warnings),
        tuple(flag.lower() for flag in comma_parts(line.get("flags"))),
    )  # fmt: skip
    each = [files] if line.get("multiplefiles") else [(file,) for file in files]
    count = _count(line, warnings)
    if files and count not in (None, len(each)):
        warnings.append(f"{line.where}: Count={count}, but {len(each)} files; the files count")
    if len(each) > 1 and device.links:
        warnings.append(f"{line.where}: Links on a line of {len(each)} GPUs cannot hold for each; taken as unknown")
        device = replace(device, links=())
    for of_one in each or [()] * (1 if count is None else count):
        yield replace(device, files=of_one)


def _count(line: ConfLine, warnings: list[str]) -> int | None:
    """Count; None if the files decide, or if there is one GPU. A text that is no number gives a warning."""
    text = line.get("count")
    match = re.fullmatch(r"(\d{1,4})(K?)", text, re.IGNORECASE)
    count = int(match[1]) << 10 * len(match[2]) if match else MOST_DEVICES + 1
    if text and count > MOST_DEVICES:
        warnings.append(f"{line.where}: Count={text} is no number of GPUs")
        return None if line.get("multiplefiles", *_FILE) else 0
    return count if text else None


def _numbers(line: ConfLine, keys: Sequence[str], warnings: list[str]) -> tuple[int, ...]:
    text = line.get(*keys)
    found = numbers_or_none(text) if text else ()
    if found is None:
        warnings.append(f"{line.where}: {keys[0].title()}={text} is no list of numbers; taken as unknown")
    return found or ()


def _links(line: ConfLine, warnings: list[str]) -> tuple[int, ...]:
    text = line.get("links", "link")
    found = tuple(int(part) for part in text.split(",")) if re.fullmatch(r"(-?\d{1,9},)*-?\d{1,9}", text) else ()
    if text and not found and text != "(null)":
        warnings.append(f"{line.where}: Links={text} is no list of numbers; taken as unknown")
    return found

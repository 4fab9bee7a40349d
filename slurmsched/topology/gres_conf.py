"""gres.conf: which GPUs Slurm knows on which nodes, in its numbering."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from slurmsched.model.topology import GpuTopology
from slurmsched.topology.compiled_file import class_as_told, told_by
from slurmsched.topology.conf_lines import PAIR, ConfLine, Include, Lines
from slurmsched.topology.devices import Device, class_of_devices
from slurmsched.topology.plain import fold, hosts, numbers, parts
from slurmsched.words import some

_KEYS = frozenset({"autodetect", "cores", "cpus", "count", "file", "files", "flags", "link", "links",
                   "multiplefiles", "name", "nodename", "type"})  # fmt: skip
_FILE = ("file", "files")
MOST_DEVICES = 1024  # on one line: more is a typing error


@dataclass(frozen=True, slots=True)
class GresLine:
    """One line. nodes: () = every node that reads the file. devices: one for each index the line gives.

    name: "gpu", "shard" ... or "" on a line that only sets autodetect ("" = not set). wiring: what a comment of
    `topology compile` before it says of the true links.
    """

    nodes: tuple[str, ...] = ()
    name: str = ""
    devices: tuple[Device, ...] = ()
    autodetect: str = ""
    where: str = ""
    wiring: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GresClass:
    """Nodes with the same GPUs. nodes: () = every node that reads the file. autodetect: "" = off.

    Of a node whose GPUs are only detected nothing is known here: no devices, 0 GPUs in its topology. notes: what is
    worth knowing, though nothing is wrong.
    """

    nodes: tuple[str, ...]
    devices: tuple[Device, ...]
    topology: GpuTopology
    autodetect: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        finds_links = self.autodetect not in ("", "off") and not any(device.links for device in self.devices)
        return (detected(self.autodetect),) if finds_links else ()

    @property
    def renumbered(self) -> str:
        """Where Slurm's index is not the number of the device file, in words. Render nodes of AMD that ascend evenly
        are no such case: other cards and partitions of the GPUs have numbers between them."""
        ours = [(i, device) for i, device in enumerate(self.devices) if device.number >= 0]
        steps = {after.number - before.number for (_, before), (_, after) in pairwise(ours)}
        even = all(device.render for _, device in ours) and len(steps) <= 1 and min(steps, default=1) > 0
        others = [] if even else [(i, device) for i, device in ours if device.number != i]
        if not others:
            return ""
        why = (
            "device numbers have a gap" if min(steps, default=1) > 0 else "device files are not in their numbers' order"
        )
        more = f", and {some(len(others) - 1, 'other differs', 'others differ')} too" if len(others) > 1 else ""
        return f"index {others[0][0]} is {others[0][1].files[0]}{more}: {why}"


def detected(how: str) -> str:
    """What is to be told of nodes whose GPUs only slurmd finds."""
    told = "import its `nvidia-smi topo -m`, `rocm-smi --showtopo` or slurmd log"
    return f"AutoDetect={how} finds links on the node only; {told}"


@dataclass(frozen=True, slots=True)
class GresConf:
    """A whole file with those it includes. autodetect: the setting for all nodes, "" = none."""

    lines: tuple[GresLine, ...] = ()
    autodetect: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes that the file names, in its order."""
        return tuple(dict.fromkeys(node for line in self.lines for node in line.nodes))

    def devices(self, node: str = "") -> tuple[Device, ...]:
        """The GPUs of a node in the file's order, which is that of Slurm's indices. "": a node that is not named."""
        named = [line for line in self.lines if line.name == "gpu" and (not line.nodes or node in line.nodes)]
        return tuple(device for line in named for device in line.devices)

    def classes(self) -> tuple[GresClass, ...]:
        """Kinds of node, in the order of the file. Nodes that are not named come as one class without nodes."""
        groups: dict[tuple[tuple[Device, ...], str, tuple[str, ...]], list[str]] = {}
        for node, lines in self._lines_by_node().items():
            devices = tuple(device for line in lines if line.name == "gpu" for device in line.devices)
            own = [line.autodetect for line in lines if line.autodetect]
            detected = own[-1] if own else self.autodetect
            wiring = next((line.wiring for line in lines if line.wiring), ())
            if devices or detected not in ("", "off"):
                groups.setdefault((devices, detected, wiring), []).append(node)
        return tuple(self._class(tuple(filter(None, nodes)), *key) for key, nodes in groups.items())

    def _lines_by_node(self) -> dict[str, list[GresLine]]:
        """Node -> the lines that hold for it; "" stands for every node that is not named, if such lines exist."""
        everywhere = [line for line in self.lines if not line.nodes]
        found: dict[str, list[GresLine]] = {"": everywhere} if any(line.name for line in everywhere) else {}
        for node in self.nodes:
            found[node] = []
        for line in self.lines:
            for node in line.nodes or [node for node in found if node]:
                found[node].append(line)
        return found

    def _class(
        self, nodes: tuple[str, ...], devices: tuple[Device, ...], detected: str, wiring: tuple[str, ...]
    ) -> GresClass:  # fmt: skip
        name = fold(nodes) if nodes else "every node"
        topology = class_as_told(name, devices, wiring) if wiring else class_of_devices(name, dict(enumerate(devices)))
        return GresClass(nodes, devices, topology, detected)


def read_gres_conf(text: str, include: Include | None = None) -> GresConf:
    """The file. include: gives the text of a file that an Include line names; None: none can be read.

    A line that cannot be read is left out with a warning. Source: gres.conf manual page, 21.08 to 26.05.
    """
    lines = Lines(include)
    read = [found for line in lines.read(text) if (found := _line(line, lines.warnings))]
    default = [line.autodetect for line in read if line.autodetect and not line.nodes and not line.name]
    return GresConf(tuple(read), default[-1] if default else "", tuple(lines.warnings))


def is_gres_line(text: str) -> bool:
    """Whether this is a line of gres.conf: pairs of keys that it has, or an Include."""
    if re.fullmatch(r"include\s+\S+", text, re.IGNORECASE):
        return True
    keys = [key.lower() for key, _ in PAIR.findall(text)]
    return bool(keys) and not PAIR.sub("", text).strip() and set(keys) <= _KEYS


def _line(line: ConfLine, warnings: list[str]) -> GresLine | None:
    if unknown := sorted(set(line.values) - _KEYS):
        warnings.append(f"{line.where}: unknown key {unknown[0]!r}")
    nodes = hosts(line.get("nodename"))
    if nodes is None or not set(line.values) & {"name", "autodetect"}:
        what = "NodeName is not a hostlist" if nodes is None else "neither Name nor AutoDetect"
        warnings.append(f"{line.where}: {what}; the line is left out")
        return None
    found = GresLine(nodes, line.get("name").lower(), (), line.get("autodetect").lower(), line.where, told_by(line))
    if found.name and found.autodetect and not nodes:  # Slurm: "In-line AutoDetect requires NodeName to take effect"
        warnings.append(f"{line.where}: AutoDetect on a line without NodeName takes no effect")
        found = replace(found, autodetect="")
    bare = line.get("autodetect").lower() in ("", "off")
    told = bool(line.get("multiplefiles", *_FILE, "count")) or bare
    return replace(found, devices=tuple(_devices(line, warnings)) if found.name == "gpu" and told else ())


def _devices(line: ConfLine, warnings: list[str]) -> Iterator[Device]:
    files = hosts(line.get("multiplefiles", *_FILE))
    if files is None:
        warnings.append(f"{line.where}: File is no list of files; its GPUs are left out")
        return
    device = Device(
        line.get("type"), (), _numbers(line, ("cores", "cpus"), warnings), _links(line, warnings),
        tuple(flag.lower() for flag in parts(line.get("flags"))),
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
    """Count; None where only the files count, or one GPU without any. One that is no number is told."""
    text = line.get("count")
    match = re.fullmatch(r"(\d{1,4})(K?)", text, re.IGNORECASE)
    count = int(match[1]) << 10 * len(match[2]) if match else MOST_DEVICES + 1
    if text and count > MOST_DEVICES:
        warnings.append(f"{line.where}: Count={text} is no number of GPUs")
        return None if line.get("multiplefiles", *_FILE) else 0
    return count if text else None


def _numbers(line: ConfLine, keys: Sequence[str], warnings: list[str]) -> tuple[int, ...]:
    text = line.get(*keys)
    found = numbers(text) if text else ()
    if found is None:
        warnings.append(f"{line.where}: {keys[0].title()}={text} is no list of numbers; taken as unknown")
    return found or ()


def _links(line: ConfLine, warnings: list[str]) -> tuple[int, ...]:
    text = line.get("links", "link")
    found = tuple(int(part) for part in text.split(",")) if re.fullmatch(r"(-?\d{1,9},)*-?\d{1,9}", text) else ()
    if text and not found and text != "(null)":
        warnings.append(f"{line.where}: Links={text} is no list of numbers; taken as unknown")
    return found

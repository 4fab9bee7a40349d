"""NCCL's topology file (`NCCL_TOPO_DUMP_FILE`, `NCCL_TOPO_FILE`): GPUs, NICs and switches as a tree of PCI devices.

<cpu numaid="0"> contains <pci busid= class=>. Those contain further ones, <gpu dev=> and <net name=>. <gpu> contains
<nvlink target= count= tclass=>. RCCL writes <xgmi> in the same way. Source: src/graph/xml.cc and topo.cc of NCCL 2.8 to
2.27.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree.ElementTree import ParseError, XMLPullParser

from slurmsched.model.gpu_topology import GpuTopology, LinkKind
from slurmsched.plain_text import pluralize
from slurmsched.topology.gpu_links import Link, agreed_links, class_of, limited_gpus
from slurmsched.topology.topology_text import clean, fold_names

_SWITCH, _HOST = "0x068000", "0x068001"  # PCI classes of the ends of NVLinks: an NVSwitch, a CPU
_GPUS = "0x03"  # PCI classes of display and 3D controllers
_JOINTS = ("nvlink", "xgmi")


@dataclass(slots=True, eq=False)
class _Part:
    """One element. above: the element that contains it. joints: the NVLink or XGMI elements of a GPU."""

    tag: str
    attributes: Mapping[str, str]
    above: _Part | None
    joints: list[_Part] = field(default_factory=list)

    def up(self) -> Iterator[_Part]:
        """This element and those that contain it, the nearest first."""
        at: _Part | None = self
        while at is not None:
            yield at
            at = at.above


@dataclass(frozen=True, slots=True, eq=False)
class _Gpu:
    """A GPU. pci: its PCI device. number: that of NVML, -1 = the file has none."""

    pci: _Part
    number: int
    joints: Sequence[_Part]

    @property
    def bus(self) -> str:
        return self.pci.attributes.get("busid", "").lower()


def read_nccl_xml(text: str, name: str = "", gpu_type: str = "") -> GpuTopology:
    """The class of node of the file. The number of a GPU is its `dev` or, without one, its place by bus id.

    GPUs with NVLinks to an NVSwitch are linked with each other, with the fewer lanes of the two. Two GPUs under one CPU
    are NODE, since the file does not show host bridges.
    """
    parts, cut = _elements(clean(text))
    gpus, warnings = _numbered(_one_host(_gpus(parts)))
    size, more = limited_gpus(len(gpus))
    gpus = gpus[:size]
    said, ends = _links_of_pairs(gpus)
    kind, lanes, unlike = agreed_links(size, said)
    near = [_nics(gpu, parts) for gpu in gpus]
    numa = [_numa(gpu) for gpu in gpus]
    none = () if gpus else ("no GPU in this topology file of NCCL",)
    return class_of(
        name, kind, lanes, gpu_type=gpu_type, numa=numa, nics=tuple(tuple(nic for nic, _ in row) for row in near),
        nic_kinds=tuple(tuple(link for _, link in row) for row in near),
        warnings=(*cut, *none, *warnings, *more, *ends, *unlike),
    )  # fmt: skip


def _elements(text: str) -> tuple[list[_Part], tuple[str, ...]]:
    """The elements in the order of the file, up to its first error."""
    found: list[_Part] = []
    at: _Part | None = None
    if "<!ENTITY" in text:
        return found, ("it defines entities, as no topology file does; nothing is read",)
    parser: XMLPullParser[Any] = XMLPullParser(("start", "end"))
    try:
        parser.feed(re.sub(r"^\s*<\?xml[^>]*\?>", "", text))
        parser.close()
        broken = ""
    except (ParseError, ValueError) as error:
        broken = str(error)
    try:
        events: Iterator[Any] = parser.read_events()
        for event, element in events:
            if event == "end":
                at = at.above if at is not None else None
                continue
            at = _Part(element.tag, dict(element.attrib), at)
            found.append(at)
            if element.tag in _JOINTS and at.above is not None:
                at.above.joints.append(at)
    except ParseError as error:
        broken = broken or str(error)
    return found, (f"not XML to its end ({broken}): the file is cut or damaged; read up to there",) if broken else ()


def _gpus(parts: Sequence[_Part]) -> list[_Gpu]:
    """<gpu> elements, and PCI devices of a GPU's class without one, as in files written by hand."""
    gpus = {id(part.above): part for part in parts if part.tag == "gpu" and part.above is not None}
    found = []
    for part in parts:
        own = gpus.get(id(part))
        if part.tag == "pci" and (own or part.attributes.get("class", "").startswith(_GPUS)):
            dev = own.attributes.get("dev", "") if own else ""
            found.append(_Gpu(part, int(dev) if dev.isdecimal() and len(dev) < 5 else -1, own.joints if own else ()))
    return found


def _host(gpu: _Gpu) -> str:
    return next((part.attributes["host_hash"] for part in gpu.pci.up() if "host_hash" in part.attributes), "")


def _one_host(gpus: Sequence[_Gpu]) -> tuple[list[_Gpu], tuple[str, ...]]:
    hosts = list(dict.fromkeys(map(_host, gpus)))
    kept = [gpu for gpu in gpus if _host(gpu) == hosts[0]]
    more = (f"{pluralize(len(hosts), 'host')} in one file; the first is read",) if len(hosts) > 1 else ()
    return kept, more


def _numbered(found: tuple[list[_Gpu], tuple[str, ...]]) -> tuple[list[_Gpu], tuple[str, ...]]:
    """The GPUs in order. Numbers other than 0, 1, 2, ... are not used, since a job saw only some of the GPUs then."""
    gpus, warnings = found
    numbers = sorted(gpu.number for gpu in gpus)
    if numbers == list(range(len(gpus))):
        return sorted(gpus, key=lambda gpu: gpu.number), warnings
    partly = any(number >= 0 for number in numbers)
    warning = (f"the GPUs' numbers are {', '.join(map(str, numbers))}: some are missing; numbered by bus id",)
    return sorted(gpus, key=lambda gpu: gpu.bus), (*warnings, *(warning if partly else ()))


def _numa(gpu: _Gpu) -> int:
    numaid = next((part.attributes.get("numaid", "") for part in gpu.pci.up() if part.tag == "cpu"), "")
    return int(numaid) if numaid.isdecimal() and len(numaid) < 5 else -1


def _links_of_pairs(gpus: Sequence[_Gpu]) -> tuple[dict[tuple[int, int], Link], tuple[str, ...]]:
    """The link of each pair of GPUs: by NVLink or XGMI if the file shows it, else by their path in the tree.

    Two GPUs whose NVLinks end outside the file may be linked, so their link is unknown.
    """
    joined, switched, open_ = _joints(gpus)
    said = {}
    for i, gpu in enumerate(gpus):
        for j, to in enumerate(gpus):
            if i != j:
                lanes = min(switched[i], switched[j])
                link = joined.get((i, j)) or joined.get((j, i)) or ((LinkKind.NVLINK, lanes) if lanes else None)
                maybe = i in open_ and j in open_
                said[i, j] = link or (LinkKind.UNKNOWN if maybe else _path_kind(gpu.pci, to.pci), 0)
    names = fold_names(f"GPU{i}" for i in sorted(open_))
    return said, (f"NVLinks of {names} end at no GPU or switch of this file: those pairs are unknown",) if open_ else ()


def _joints(gpus: Sequence[_Gpu]) -> tuple[dict[tuple[int, int], Link], list[int], set[int]]:
    """Pairs with a direct link; lanes of each GPU to an NVSwitch; GPUs with a link that ends outside the file."""
    row = {gpu.bus: i for i, gpu in enumerate(gpus) if gpu.bus}
    joined: dict[tuple[int, int], Link] = {}
    switched, open_ = [0] * len(gpus), set[int]()
    for i, gpu in enumerate(gpus):
        for joint in gpu.joints:
            count, ends = joint.attributes.get("count", ""), joint.attributes.get("tclass", "")
            lanes = int(count) if count.isdecimal() and len(count) < 4 else 0
            other = row.get(joint.attributes.get("target", "").lower())
            if not lanes or ends.startswith(_HOST):
                continue
            if ends.startswith(_SWITCH):
                switched[i] += lanes
            elif other is None or other == i:
                open_.add(i)
            else:
                kind = LinkKind.XGMI if joint.tag == "xgmi" else LinkKind.NVLINK
                joined[i, other] = (kind, lanes + joined.get((i, other), (kind, 0))[1])
    return joined, switched, open_


def _path_kind(a: _Part, b: _Part) -> LinkKind:
    """Where the paths of two PCI devices meet. UNKNOWN if the file is no complete tree."""
    above = {id(part): at for at, part in enumerate(a.up())}
    steps, met = next(((at, part) for at, part in enumerate(b.up()) if id(part) in above), (0, None))
    if met is None:
        return LinkKind.UNKNOWN
    if met.tag == "pci":
        return LinkKind.PIX if max(steps, above[id(met)]) <= 1 else LinkKind.PXB
    if met.tag == "cpu":
        return LinkKind.NODE
    return LinkKind.SYS if met.tag == "system" else LinkKind.UNKNOWN


def _nics(gpu: _Gpu, parts: Sequence[_Part]) -> list[tuple[str, LinkKind]]:
    """NICs behind the same PCIe switches as the GPU, nearest first."""
    nets = [(part, next((up for up in part.up() if up.tag == "pci"), None)) for part in parts if part.tag == "net"]
    paths = [(part.attributes.get("name", ""), _path_kind(gpu.pci, pci)) for part, pci in nets if pci is not None]
    near = [(nic, kind) for nic, kind in dict(paths).items() if nic and kind >= LinkKind.PXB]
    return sorted(near, key=lambda nic: -nic[1])

"""The links of one class of node, and published figures: bandwidth by GPU model, the wiring of machines in wide use."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Any

import numpy as np

from slurmsched.model.columns import Floats, Int8s, frozen
from slurmsched.model.gpu_topology import MAX_GPUS, GpuTopology, Int16s, LinkKind
from slurmsched.model.gres import is_mig
from slurmsched.topology.topology_text import connected_groups, disjoint_groups, fold_names, number_groups

# Published figures.
#
# Bandwidth is the peak of one lane in one direction [GB/s]; of unknown models it is unknown. For PIX it is that of the
# GPU's own x16 slot. Farther paths are shared: each kind counts one step less. That gives their order; it is no
# measurement.

# PCIe x16, one direction, by generation: transfers a second x 16 lanes x 128/130 (gen 6: 242/256). Source: PCI-SIG
# base specifications 3.0 to 6.0.
PCIE = {3: 15.75, 4: 31.5, 5: 63.0, 6: 121.0}

# Share of the slot by kind of path. Source: slurmsched; only the order is known (`nvidia-smi topo -m`, its legend).
PATH_SHARE = {
    LinkKind.PIX: 1.0,
    LinkKind.PXB: 11 / 12,
    LinkKind.PHB: 10 / 12,
    LinkKind.NODE: 9 / 12,
    LinkKind.SYS: 8 / 12,
}


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A family of GPUs.

    pattern: regular expression for its name.
    lane_gb_per_s: one NVLink lane or XGMI link in one direction, 0 = it has none.
    pcie: PCIe generation.
    source: where the figures come from."""

    pattern: str
    lane_gb_per_s: float
    pcie: int
    source: str


# Vendors publish the sum of both directions of all lanes. Here it is halved and divided by the lanes.
MODELS = (
    GpuModel("p100", 20.0, 3, "NVIDIA Tesla P100 whitepaper: NVLink 1, 4 lanes, 160 GB/s"),
    GpuModel("v100s?", 25.0, 3, "NVIDIA Tesla V100 whitepaper: NVLink 2, 6 lanes, 300 GB/s"),
    GpuModel("rtx ?6000 ?ada", 0.0, 4, "NVIDIA RTX 6000 Ada datasheet: PCIe 4 x16, no NVLink"),
    GpuModel(
        "(?:rtx ?[68]000|titan rtx|2080(?: ?ti)?)", 25.0, 3, "NVIDIA Turing whitepaper: NVLink 2, 2 lanes, 100 GB/s"
    ),
    GpuModel("(?:a100|a800)", 25.0, 4, "NVIDIA A100 whitepaper: NVLink 3, 12 lanes, 600 GB/s (A800: 8 lanes)"),
    GpuModel("a30", 25.0, 4, "NVIDIA A30 datasheet: NVLink 3, 4 lanes, 200 GB/s"),
    GpuModel(
        "(?:a40|a4500|a5000|a5500|a6000|3090)", 14.0625, 4, "NVIDIA RTX A6000, A40 datasheets: 4 lanes, 112.5 GB/s"
    ),
    GpuModel("(?:gh200|h[12]00|h[82]00|h20)", 25.0, 5, "NVIDIA H100 whitepaper: NVLink 4, 18 lanes, 900 GB/s"),
    GpuModel("(?:gb[23]00|b[123]00)", 50.0, 5, "NVIDIA Blackwell architecture brief: NVLink 5, 18 lanes, 1.8 TB/s"),
    GpuModel("mi[56]0", 46.0, 4, "AMD Radeon Instinct MI60 datasheet: 2 XGMI links, 184 GB/s"),
    GpuModel("mi100", 46.0, 4, "AMD Instinct MI100 brochure: 3 XGMI links, 276 GB/s"),
    GpuModel("mi2[15]0x?", 50.0, 4, "AMD CDNA 2 whitepaper: 100 GB/s an XGMI link"),
    GpuModel("mi300a", 128.0, 5, "AMD CDNA 3 whitepaper: MI300A, two XGMI links a pair, 256 GB/s"),
    GpuModel("mi3(?:00x?|25x?)", 64.0, 5, "AMD CDNA 3 whitepaper: 128 GB/s an XGMI link"),
    GpuModel("mi35[05]x?", 76.8, 5, "AMD CDNA 4 whitepaper: 153.6 GB/s an XGMI link"),
    GpuModel("(?:k[48]0|p4|p40|t4|titan|1080(?: ?ti)?)", 0.0, 3, "NVIDIA datasheets: PCIe 3 x16"),
    GpuModel("(?:a10|a16|l4|l40s?|40[6-9]0|30[6-8]0)", 0.0, 4, "NVIDIA datasheets: PCIe 4 x16 (L4, A10: PCIe 4)"),
    GpuModel("(?:50[6-9]0|pro 6000)", 0.0, 5, "NVIDIA RTX Blackwell whitepaper: PCIe 5 x16"),
)


_LINES = "nvidia|amd|geforce|quadro|tesla|instinct|rtx|gtx|titan|pro"
_RUN_TOGETHER = re.compile(rf"(?<![a-z0-9])({_LINES})(?=(?:{_LINES}|[a-z]{{0,2}}\d|x|v))")


def model_of(gpu_type: str) -> GpuModel | None:
    """The family of "a100", "rtx3090", "nvidia_a100-sxm4-80gb" or "NVIDIA H100 80GB HBM3"; None if unknown."""
    words = re.sub(r"[^a-z0-9]+", " ", gpu_type.lower())
    for _ in range(2):  # "rtxpro6000" is two of them and a number
        words = _RUN_TOGETHER.sub(r"\1 ", words)
    return next((model for model in MODELS if re.search(rf"(?<![a-z0-9]){model.pattern}(?![a-z0-9])", words)), None)


def is_amd(gpu_type: str) -> bool:
    """Whether the GPU is one of AMD, whose links are XGMI."""
    return (
        re.search(r"(?:^|[^a-z0-9])(?:mi\d{2,3}[ax]?|amd|instinct|gfx\d+\w*)(?:[^a-z0-9]|$)", gpu_type.lower())
        is not None
    )


def bandwidth(kind: Int8s, lanes: Int16s, gpu_type: str) -> Floats:
    """(G, G) float64 [GB/s, one direction], 0 = unknown: by model, link kind and lanes."""
    model = model_of(gpu_type)
    if model is None:
        return np.zeros(kind.shape)
    wired = (kind == LinkKind.NVLINK) | (kind == LinkKind.XGMI)
    share = np.array([PATH_SHARE.get(LinkKind(k), 0.0) for k in range(max(LinkKind) + 1)])[kind]
    return np.where(wired, lanes * model.lane_gb_per_s, share * PCIE[model.pcie])


def with_least_bandwidth(wide: Floats, kind: Int8s, unwired: Iterable[tuple[int, int]], gpu_type: str) -> Floats:
    """As `bandwidth`, but with the least of PCIe for `unwired`: pairs known only to have no NVLink."""
    model, found = model_of(gpu_type), wide.copy()
    for i, j in unwired if model else ():
        if kind[i, j] == LinkKind.UNKNOWN:
            found[i, j] = found[j, i] = min(PATH_SHARE.values()) * PCIE[model.pcie] if model else 0.0
    return found


# GPU topologies of known machines.

GpuPairs = Sequence[tuple[int, int]]
_PCIE = {LinkKind.SYS: 8.0, LinkKind.NODE: 9.0, LinkKind.PHB: 10.0, LinkKind.PXB: 11.0, LinkKind.PIX: 12.0}
_CUBE_DOUBLE: GpuPairs = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))
_CUBE_SINGLE: GpuPairs = ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7))


def machine(
    name: str,
    numa: Sequence[int],
    lanes: Mapping[int, GpuPairs],
    *,
    lane_gb_per_s: float,
    pcie_group: Sequence[int] = (),
) -> GpuTopology:
    """A class from its NVLink pairs by number of lanes. Other GPUs meet in a switch, a NUMA node or beyond.

    numa, pcie_group: for each GPU. lane_gb_per_s: one lane, one direction [GB/s].
    """
    gpus, node, switch = len(numa), np.array(numa), np.array(pcie_group or range(len(numa)))
    kind = np.where(node[:, None] == node, LinkKind.NODE, LinkKind.SYS)
    kind[switch[:, None] == switch] = LinkKind.PIX
    count = np.zeros((gpus, gpus), np.int16)
    for number, pairs in lanes.items():
        for a, b in pairs:
            count[a, b] = count[b, a] = number
    kind[count > 0] = LinkKind.NVLINK
    speed = np.where(count > 0, count * lane_gb_per_s, np.vectorize(lambda k: _PCIE.get(k, 0.0), [float])(kind))
    for matrix in (kind, speed):
        np.fill_diagonal(matrix, 0)
    return GpuTopology.build(name, gpus, kind=kind, lanes=count, bandwidth_gb_per_s=speed, numa=node, pcie_group=switch)


def all_pairs(gpus: Sequence[int]) -> GpuPairs:
    return [(a, b) for i, a in enumerate(gpus) for b in gpus[i + 1 :]]


def machines() -> dict[str, GpuTopology]:
    """Classes by name: mesh, quads, triangles, switch, bridged pairs, plain PCIe."""
    halves, four = (0, 0, 0, 0, 1, 1, 1, 1), (0, 0, 1, 1)
    quads = [*all_pairs(range(4)), *all_pairs(range(4, 8)), (0, 4), (1, 5), (2, 6), (3, 7)]
    triangles = [*all_pairs(range(3)), *all_pairs(range(3, 6))]
    bridges = ((0, 1), (2, 3), (4, 5), (6, 7))
    uneven = {1: ((0, 3), (1, 2), (2, 3)), 2: ((0, 1), (0, 2), (1, 3))}
    pairs = tuple(g // 2 for g in range(16))
    made = (
        machine("dgx-1v", halves, {2: _CUBE_DOUBLE, 1: _CUBE_SINGLE}, lane_gb_per_s=25, pcie_group=pairs[:8]),
        machine("dgx-1p", halves, {1: quads}, lane_gb_per_s=20, pcie_group=pairs[:8]),
        machine("summit", (0, 0, 0, 1, 1, 1), {2: triangles}, lane_gb_per_s=25),
        machine("dgx-a100", (3, 3, 1, 1, 7, 7, 5, 5), {12: all_pairs(range(8))}, lane_gb_per_s=25),
        machine("hgx-a100-4", four, {4: all_pairs(range(4))}, lane_gb_per_s=25),
        machine("bridged-pairs", halves, {4: bridges}, lane_gb_per_s=14),
        machine("one-bridge", four, {12: ((0, 1),)}, lane_gb_per_s=25),
        machine("pairs-across-numa", (0, 1, 2, 3), {12: ((0, 1), (2, 3))}, lane_gb_per_s=25),
        machine("uneven-v100", (0, 0, 0, 0), uneven, lane_gb_per_s=25),
        machine("pcie-two-sockets", halves, {}, lane_gb_per_s=0, pcie_group=pairs[:8]),
        machine("pcie-no-switches", halves, {}, lane_gb_per_s=0),
        machine("pcie-uneven", (0, 0, 0, 0, 1, 1), {}, lane_gb_per_s=0, pcie_group=pairs[:6]),
        machine("dgx-2", (0,) * 8 + (1,) * 8, {6: all_pairs(range(16))}, lane_gb_per_s=25, pcie_group=pairs),
    )
    return {topology.name: topology for topology in made}


# The links of one class of node.

Link = tuple[LinkKind, int]  # kind, lanes
LinksByPair = Mapping[tuple[int, int], Link]  # (row, column) of the GPUs -> what the row says
FABRIC_GPUS = 3  # fewest linked GPUs that form a fabric; two are a bridged pair


def agreed_links(
    gpus: int, said: LinksByPair, weak: Collection[tuple[int, int]] = ()
) -> tuple[Int8s, Int16s, tuple[str, ...]]:
    """(G, G) kinds and lanes, and warnings. A pair whose two rows differ is unknown.

    weak: entries that count only if the other row agrees.
    """
    kind, lanes = np.zeros((gpus, gpus), np.int8), np.zeros((gpus, gpus), np.int16)
    warnings = []
    for i, j in combinations(range(gpus), 2):
        there, back = said.get((i, j)), said.get((j, i))
        if there and back and there != back:
            warnings.append(
                f"GPU{i} and GPU{j}: one row says {link_text(there)}, the other {link_text(back)}; taken as unknown"
            )
            continue
        link = there or back
        alone = there is None or back is None
        if link and not (alone and ((i, j) in weak or (j, i) in weak)):
            kind[i, j] = kind[j, i] = link[0]
            lanes[i, j] = lanes[j, i] = link[1]
    return kind, lanes, tuple(warnings)


def link_text(link: Link) -> str:
    """A link as nvidia-smi writes it: "NV4", "PIX"."""
    return f"NV{link[1]}" if link[0] == LinkKind.NVLINK else link[0].name


def shown_link(node: GpuTopology, link: Link) -> str:
    """As link_text; XGMI over another GPU is in brackets if direct links are known."""
    around = link == (LinkKind.XGMI, 0) and node.lanes.any()
    return f"({link_text(link)})" if around else link_text(link)


def class_of(name: str, kind: Int8s, lanes: Int16s, *, gpu_type: str = "", **columns: Any) -> GpuTopology:
    """The class. Bandwidth, switch groups and GPUs off the fabric are computed if they are not given."""
    columns.setdefault("pcie_group", switch_groups(kind))
    columns.setdefault("on_fabric", ~gpus_off_fabric(kind))
    wide = bandwidth(kind, lanes, gpu_type)
    return GpuTopology.build(
        name, len(kind), kind=kind, lanes=lanes, bandwidth_gb_per_s=wide, gpu_type=gpu_type, **columns
    )


def switch_groups(kind: Int8s, gpus: int | None = None) -> list[int]:
    """For each GPU the number of the PCIe switch that it shares with another GPU; -1 = none is known.

    kind: (D, D) of all devices, the GPUs first; gpus: how many of them are GPUs, default all.
    """
    ends = np.argwhere(np.triu(kind) == LinkKind.PIX).tolist()
    return number_groups(connected_groups(len(kind), ends)[:gpus])


def gpus_off_fabric(kind: Int8s, unwired: Collection[tuple[int, int]] = ()) -> Any:
    """(G,) bool: GPUs that have no NVLink or XGMI although at least three others have. All their links must be known.

    unwired: pairs of UNKNOWN kind that are known to have neither.
    """
    wired = kind >= LinkKind.XGMI
    keys = connected_groups(len(kind), np.argwhere(wired).tolist())
    largest = max((keys.count(key) for key in keys), default=0)
    shown = kind != LinkKind.UNKNOWN
    for i, j in unwired:
        shown[i, j] = shown[j, i] = True
    known = shown.sum(1) == len(kind) - 1
    return ~wired.any(1) & known & (largest >= FABRIC_GPUS)


def links_of(node: GpuTopology) -> Iterator[tuple[int, int, LinkKind, int]]:
    """Each known pair once (i < j), with kind and lanes."""
    for i, j in combinations(range(node.gpus), 2):
        if node.kind[i, j] != LinkKind.UNKNOWN:
            yield i, j, LinkKind(int(node.kind[i, j])), int(node.lanes[i, j])


def limited_gpus(gpus: int) -> tuple[int, tuple[str, ...]]:
    """The number of GPUs, at most 64, and a warning if there are more."""
    if gpus <= MAX_GPUS:
        return gpus, ()
    return MAX_GPUS, (f"{gpus} GPUs in one node; the first {MAX_GPUS} are taken",)


# GPUs as Slurm numbers them.

RENDER = 128


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """One GPU or MIG device, as Slurm numbers them.

    files: its device files; a MIG device has three.
    cores: cores of the node that are close to it, () = unknown.
    links: lanes to each GPU by index, -1 in its own place, () = unknown.
    """

    type: str = ""
    files: tuple[str, ...] = ()
    cores: tuple[int, ...] = ()
    links: tuple[int, ...] = ()
    flags: tuple[str, ...] = ()
    unique_id: str = ""

    @property
    def mig(self) -> bool:
        """Whether this is a MIG device."""
        caps = any("nvidia-cap" in file for file in self.files)
        return caps or is_mig(self.type) or self.unique_id.startswith("MIG-")

    @property
    def number(self) -> int:
        """The number at the end of its only device file, else -1: 3 for "/dev/nvidia3" and "/dev/dri/renderD131".

        Linux numbers render nodes from 128 on."""
        match = re.search(r"\d{1,6}$", self.files[0]) if len(self.files) == 1 else None
        return max(-1, int(match[0]) - (RENDER if self.render else 0)) if match else -1

    @property
    def render(self) -> bool:
        """Whether its only device file is a render node, as AMD's are."""
        return len(self.files) == 1 and re.search(r"renderD\d{1,6}$", self.files[0]) is not None


def class_of_devices(name: str, devices: Mapping[int, GpuDevice], warnings: tuple[str, ...] = ()) -> GpuTopology:
    """The class of these devices by index. Links show NVLink (on AMD: XGMI) and its lanes, and no other links.

    Devices with equal lists of cores share a NUMA number. It counts the lists; it is not the number of the machine.
    """
    size = max(chain((index + 1 for index in devices), (len(device.links) for device in devices.values())), default=0)
    gpus, cut = limited_gpus(size)
    said, broken = _links_of_devices(devices, gpus)
    types = {device.type for device in devices.values()}
    numa = disjoint_groups([devices[i].cores if i in devices else () for i in range(gpus)])
    missing = [f"GPU{i}" for i in range(gpus) if i not in devices]
    lost = (f"no row of {fold_names(missing)}",) if missing else ()
    return class_of_links(
        name, gpus, said, gpu_type=types.pop() if len(types) == 1 else "", numa=numa or [-1] * gpus,
        mig=[i in devices and devices[i].mig for i in range(gpus)], warnings=(*warnings, *cut, *lost, *broken),
    )  # fmt: skip


def class_of_links(
    name: str, gpus: int, said: LinksByPair, *, gpu_type: str, warnings: tuple[str, ...], **columns: Any
) -> GpuTopology:  # fmt: skip
    """The class by the links of its pairs. UNKNOWN means that the pair is known only to have no NVLink."""
    kind, lanes, unlike = agreed_links(gpus, said)
    unwired = [pair for pair, link in said.items() if link[0] == LinkKind.UNKNOWN and not lanes[pair]]
    made = class_of(name, kind, lanes, gpu_type=gpu_type, on_fabric=~gpus_off_fabric(kind, unwired),
                    warnings=(*warnings, *unlike), **columns)  # fmt: skip
    wide = with_least_bandwidth(
        made.bandwidth_gb_per_s, kind, [pair for pair in unwired if pair[::-1] in unwired], gpu_type
    )
    return replace(made, bandwidth_gb_per_s=frozen(wide, float))


def _links_of_devices(
    devices: Mapping[int, GpuDevice], gpus: int
) -> tuple[dict[tuple[int, int], Link], tuple[str, ...]]:
    """What the Links rows say. A row of wrong length, or with its -1 in a wrong place, is ignored with a warning."""
    said: dict[tuple[int, int], Link] = {}
    warnings = []
    for i, device in devices.items():
        if not device.links or i >= gpus:
            continue
        own = [at for at, lanes in enumerate(device.links) if lanes < 0]
        if own != [i] or len(device.links) != gpus:
            text = ",".join(map(str, device.links))
            warnings.append(f"GPU{i}: Links={text} must hold {gpus} numbers with one -1 at place {i}; taken as unknown")
            continue
        kind = LinkKind.XGMI if is_amd(device.type) else LinkKind.NVLINK
        for j, lanes in enumerate(device.links):
            if j != i:
                said[i, j] = (kind, min(lanes, 999)) if lanes else (LinkKind.UNKNOWN, 0)
    return said, tuple(warnings)

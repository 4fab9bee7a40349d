"""The links of one class of node: from what rows say about pairs, or from the devices of Slurm."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Any

import numpy as np

from slurmsched.model.columns import Int8s, frozen
from slurmsched.model.gpu_topology import MAX_GPUS, GpuTopology, Int16s, LinkKind
from slurmsched.model.gres import is_mig
from slurmsched.topology.published_hardware import bandwidth, is_amd, with_least_bandwidth
from slurmsched.topology.topology_text import connected_groups, disjoint_groups, fold_names, number_groups

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

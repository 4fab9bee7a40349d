"""GPUs as Slurm numbers them: device files, cores and links, and the class of node they make up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from slurmsched.model.columns import frozen
from slurmsched.model.gres import is_mig
from slurmsched.model.topology import GpuTopology, LinkKind
from slurmsched.topology.bandwidth import at_least, is_amd
from slurmsched.topology.links import Link, Said, agreed, class_of, fallen, few_enough
from slurmsched.topology.plain import apart, fold

RENDER = 128


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU, or one MIG device. files: its device files; a MIG device has three.

    cores: of the node that are close to it, () = not told. links: lanes to each GPU by index, -1 its own place,
    () = not told.
    """

    type: str = ""
    files: tuple[str, ...] = ()
    cores: tuple[int, ...] = ()
    links: tuple[int, ...] = ()
    flags: tuple[str, ...] = ()
    unique_id: str = ""

    @property
    def mig(self) -> bool:
        """Whether this is a slice of a GPU."""
        caps = any("nvidia-cap" in file for file in self.files)
        return caps or is_mig(self.type) or self.unique_id.startswith("MIG-")

    @property
    def number(self) -> int:
        """The number at the end of its only device file, -1 if there is none: "/dev/nvidia3" -> 3, and so
        "/dev/dri/renderD131", since Linux numbers render nodes from 128 on."""
        match = re.search(r"\d{1,6}$", self.files[0]) if len(self.files) == 1 else None
        return max(-1, int(match[0]) - (RENDER if self.render else 0)) if match else -1

    @property
    def render(self) -> bool:
        """Whether its only device file is a render node, as AMD's are."""
        return len(self.files) == 1 and re.search(r"renderD\d{1,6}$", self.files[0]) is not None


def class_of_devices(name: str, devices: Mapping[int, Device], warnings: tuple[str, ...] = ()) -> GpuTopology:
    """The class of these devices by index. Links tell NVLink (on AMD: XGMI) and its lanes, and of other links nothing.

    Equal lists of cores that do not overlap share a NUMA number; the number is a count of lists, not the machine's.
    """
    size = max(chain((index + 1 for index in devices), (len(device.links) for device in devices.values())), default=0)
    gpus, cut = few_enough(size)
    said, broken = _said(devices, gpus)
    types = {device.type for device in devices.values()}
    numa = apart([devices[i].cores if i in devices else () for i in range(gpus)])
    missing = [f"GPU{i}" for i in range(gpus) if i not in devices]
    lost = (f"no row of {fold(missing)}",) if missing else ()
    return class_of_said(
        name, gpus, said, gpu_type=types.pop() if len(types) == 1 else "", numa=numa or [-1] * gpus,
        mig=[i in devices and devices[i].mig for i in range(gpus)], warnings=(*warnings, *cut, *lost, *broken),
    )  # fmt: skip


def class_of_said(
    name: str, gpus: int, said: Said, *, gpu_type: str, warnings: tuple[str, ...], **columns: Any
) -> GpuTopology:  # fmt: skip
    """The class by what is said of its pairs; UNKNOWN in it says that no NVLink joins the pair, and no more."""
    kind, lanes, unlike = agreed(gpus, said)
    unwired = [pair for pair, link in said.items() if link[0] == LinkKind.UNKNOWN and not lanes[pair]]
    made = class_of(name, kind, lanes, gpu_type=gpu_type, on_fabric=~fallen(kind, unwired),
                    warnings=(*warnings, *unlike), **columns)  # fmt: skip
    wide = at_least(made.bandwidth_gb_per_s, kind, [pair for pair in unwired if pair[::-1] in unwired], gpu_type)
    return replace(made, bandwidth_gb_per_s=frozen(wide, float))


def _said(devices: Mapping[int, Device], gpus: int) -> tuple[dict[tuple[int, int], Link], tuple[str, ...]]:
    """What the Links rows say; a row with its -1 in another place than its own, or of another length, says nothing."""
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

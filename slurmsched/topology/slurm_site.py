"""The nodes of a gres.conf as the picker needs them, and the lines of a compiled one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.columns import Int32s, frozen
from slurmsched.model.topology import GpuTopology
from slurmsched.topology.devices import Device
from slurmsched.topology.gpu_types import TypedNode
from slurmsched.topology.plain import fold, ranges
from slurmsched.topology.reading import NodeClass
from slurmsched.topology.slurm_node import SlurmNode

Shape = tuple[int, int, int]  # sockets, cores of each, threads of each core


def slurm_node(one: NodeClass, shape: Shape) -> SlurmNode:
    """The GPUs of a class of gres.conf as slurmctld has them.

    Raises InputError where the file lists no GPUs, gives several types (which requests tell apart), or MIG devices.
    """
    devices = one.devices
    if not devices:
        raise InputError(f"{one.topology.name}: gres.conf lists no GPU; write the File lines that `slurmd -G` prints")
    if len({device.type for device in devices}) > 1 or any(device.mig for device in devices):
        raise InputError(f"{one.topology.name} has GPUs of several types or MIG devices; each type is picked by itself")
    sockets, cores, threads = shape
    links = [device.links for device in devices]
    return SlurmNode.build([device.cores for device in devices], links, sockets=sockets, cores_per_socket=cores,
                           cpus_per_core=threads)  # fmt: skip


def typed_node(one: NodeClass, counted: Sequence[tuple[str, int]]) -> TypedNode | None:
    """The node of a class of gres.conf in which each GPU has a Type, not all the same; None for any other.

    counted: Types and numbers in Slurm's own order (`sinfo -o %G`). Slurm numbers GPUs by that order, Type by Type: a
    file that lists them otherwise does not tell which index is which GPU (seen on 26.05.5).
    """
    types = tuple(device.type for device in one.devices)
    whole = not any(device.mig for device in one.devices)
    numbered = tuple(name for name, count in counted for _ in range(count))
    return TypedNode(types) if whole and all(types) and len(set(types)) > 1 and types == numbered else None


def wiring_of(one: NodeClass, told: GpuTopology | None) -> GpuTopology:
    """The true links: of `told`, a topology matrix, else of the file's own Links, PCIe being all the rest.

    Raises InputError if `told` has another number of GPUs.
    """
    if told is None:
        return one.topology
    if told.gpus != len(one.devices):
        raise InputError(f"{told.name} has {told.gpus} GPUs, {one.topology.name} of gres.conf {len(one.devices)}")
    return told


def conf_lines(one: NodeClass, node: SlurmNode, order: Int32s | None = None) -> list[str]:
    """Lines of gres.conf: the class's devices in this order with these Links, all else as it is.

    Lines that name their nodes turn AutoDetect off there: with it Slurm ignores each GPU whose Links are not those that
    it finds. Without NodeName that has no effect in Slurm.
    """
    order = frozen(range(node.gpus), np.int32) if order is None else order
    return [_line(one.nodes, one.devices[g], node.links[g][order].tolist() if node.linked else ()) for g in order]


def _line(nodes: Sequence[str], device: Device, links: Sequence[int]) -> str:
    files = {"File": device.files[0]} if len(device.files) == 1 else {"MultipleFiles": ",".join(device.files)}
    near, wired = ranges(device.cores), ",".join(map(str, links))
    values = {"NodeName": fold(nodes), "AutoDetect": "off", "Name": "gpu"} if nodes else {"Name": "gpu"}
    values |= {"Type": device.type, **files,
              "Cores": near, "Links": wired, "Flags": ",".join(device.flags)}  # fmt: skip
    return " ".join(f"{key}={value}" for key, value in values.items() if value)

"""How GPUs are wired: inside a node, and nodes among each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurmsched.model.columns import Bools, Floats, Int32s, Int64s, Labels, frozen

Int8s = NDArray[np.int8]
Int16s = NDArray[np.int16]
UNDERSTOOD = ("tree", "block")  # forms of a fabric of which it is known where Slurm starts a job
MAX_GPUS = 64  # a set of GPUs is the bits of one integer


class LinkKind(IntEnum):
    """What two GPUs talk through, the farthest first. UNKNOWN is no distance: nothing was said."""

    UNKNOWN = 0
    SYS = 1  # the link between sockets (old drivers: SOC)
    NODE = 2  # host bridges of one NUMA node
    PHB = 3  # one host bridge
    PXB = 4  # several PCIe switches
    PIX = 5  # one PCIe switch
    XGMI = 6
    NVLINK = 7


@dataclass(frozen=True, slots=True, eq=False)
class GpuTopology:
    """One class of node: how its G GPUs are linked. Index = what Slurm and the device files number.

    kind: (G, G) int8 LinkKind, symmetric, diagonal UNKNOWN. lanes: (G, G) int16 NVLink lanes (of XGMI: 1 a direct
    link), 0 = none. bandwidth_gb_per_s: (G, G) float64, one direction, 0 = unknown.
    numa, pcie_group: (G,) int32, -1 = unknown; equal numbers share a NUMA node, a PCIe switch.
    on_fabric: (G,) bool, False for a GPU that has fallen off the NVLink or XGMI fabric its peers are on.
    mig: (G,) bool, cut into MIG devices, which no NVLink set can use.
    nics: for each GPU the names of the nearest NICs, () = none is near. warnings: what could not be read.
    nic_kinds: for each GPU what lies between it and each of its nics, where that is told.
    """

    name: str
    kind: Int8s
    lanes: Int16s
    bandwidth_gb_per_s: Floats
    numa: Int32s
    pcie_group: Int32s
    on_fabric: Bools
    mig: Bools
    nics: tuple[tuple[str, ...], ...] = ()
    gpu_type: str = ""
    warnings: tuple[str, ...] = ()
    nic_kinds: tuple[tuple[LinkKind, ...], ...] = ()

    @property
    def gpus(self) -> int:
        return len(self.numa)

    @property
    def known(self) -> bool:
        """Whether anything is known that tells one set of GPUs from another."""
        return bool((self.kind != LinkKind.UNKNOWN).any())

    @classmethod
    def build(cls, name: str, gpus: int, **columns: Any) -> GpuTopology:
        """A class of so many GPUs; what is not given is unknown, and every GPU is on the fabric and whole.

        Raises ValueError for more than 64 GPUs, a wrong shape or an asymmetric matrix.
        """
        if not 0 <= gpus <= MAX_GPUS:
            raise ValueError(f"{name} has {gpus} GPUs, at most {MAX_GPUS} can be placed on")
        shapes: dict[str, tuple[tuple[int, ...], Any, Any]] = {
            "kind": ((gpus, gpus), np.int8, 0), "lanes": ((gpus, gpus), np.int16, 0),
            "bandwidth_gb_per_s": ((gpus, gpus), np.float64, 0.0), "numa": ((gpus,), np.int32, -1),
            "pcie_group": ((gpus,), np.int32, -1), "on_fabric": ((gpus,), np.bool_, True),
            "mig": ((gpus,), np.bool_, False),
        }  # fmt: skip
        made: dict[str, Any] = {}
        for column, (shape, dtype, default) in shapes.items():
            values = frozen(columns.pop(column, np.full(shape, default, dtype)), dtype)
            if values.shape != shape or (values.ndim == 2 and not np.array_equal(values, values.T)):
                raise ValueError(f"{column} of {name} must be {shape} and symmetric, got {values.shape}")
            made[column] = values
        columns.setdefault("nics", ((),) * gpus)
        return cls(name=name, **made, **columns)


@dataclass(frozen=True, slots=True, eq=False)
class Fabric:
    """Cells of nodes: switches of a tree, or blocks and their aggregates, lowest level first.

    form: "tree", "block", "" when the site has none, or another, of which only the cells are known. cell: (C,) names.
    level: (C,) int8, 1 = the cells that hold nodes (level 0 is the node itself).
    parent: (C,) int32 row of the cell above, -1 = none.
    node, node_cell: (M,) names of nodes ascending, and int32 row of the lowest cell each is in.
    block_sizes: nodes that Slurm counts for a block of each level, ascending; () where none are told.
    """

    form: str = ""
    cell: Labels = field(default_factory=lambda: Labels.of(()))
    level: Int8s = field(default_factory=lambda: frozen([], np.int8))
    parent: Int32s = field(default_factory=lambda: frozen([], np.int32))
    node: Labels = field(default_factory=lambda: Labels.of(()))
    node_cell: Int32s = field(default_factory=lambda: frozen([], np.int32))
    block_sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class SiteTopology:
    """Built once, shared by every snapshot. Row i of node_class belongs to row i of snapshot.nodes.

    classes: kinds of node. node_class: (N,) int64 index into classes, -1 = unknown.
    cell: (N,) int64 row of the fabric's cells that holds the node, -1 = none: how near nodes are.
    slurm_fabric, slurm_cell: likewise of what Slurm itself keeps jobs to; the fabric may be another, of a file.
    slurm_known: False where Slurm could not be asked yet whether it keeps jobs to one.
    """

    classes: tuple[GpuTopology, ...] = ()
    node_class: Int64s = field(default_factory=lambda: frozen([], np.int64))
    fabric: Fabric = field(default_factory=Fabric)
    cell: Int64s = field(default_factory=lambda: frozen([], np.int64))
    slurm_fabric: Fabric = field(default_factory=Fabric)
    slurm_cell: Int64s = field(default_factory=lambda: frozen([], np.int64))
    slurm_known: bool = True

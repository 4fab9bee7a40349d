"""How GPUs are wired inside a node, and how nodes are connected."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurmsched.model.columns import Bools, Floats, Int8s, Int32s, Int64s, Labels, frozen

Int16s = NDArray[np.int16]
MODELLED_FABRICS = ("tree", "block")  # forms of a fabric whose rule for starting jobs is modelled
MAX_GPUS = 64  # a set of GPUs is a bit mask in one integer


class LinkKind(IntEnum):
    """The link between two GPUs, the farthest first. UNKNOWN is no distance."""

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
    """One class of node: how its G GPUs are linked. The index is that of Slurm and of the device files.

    kind: (G, G) int8 LinkKind, symmetric, diagonal UNKNOWN.
    lanes: (G, G) int16 NVLink lanes (XGMI: 1 = direct link), 0 = none.
    bandwidth_gb_per_s: (G, G) float64, one direction, 0 = unknown.
    numa, pcie_group: (G,) int32, equal numbers share a NUMA node or PCIe switch, -1 = unknown.
    on_fabric: (G,) bool, False for a GPU without NVLink or XGMI although the others have it.
    mig: (G,) bool, cut into MIG devices.
    nics: for each GPU the names of the nearest NICs, () = none.
    nic_kinds: for each GPU the links to its nics, if known.
    gpu_type: name of the model, "" = unknown.
    warnings: what could not be read.
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
        """Whether any link is known."""
        return bool((self.kind != LinkKind.UNKNOWN).any())

    @classmethod
    def build(cls, name: str, gpus: int, **columns: Any) -> GpuTopology:
        """A class of this many GPUs. What is not given is unknown; GPUs are on the fabric and whole.

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

    form: "tree", "block", "" = none; of other forms only the cells are known.
    cell: (C,) names.
    level: (C,) int8, 1 = cells with nodes (level 0 is the node itself).
    parent: (C,) int32 row of the cell above, -1 = none.
    node, node_cell: (M,) names of nodes, ascending, and int32 row of the lowest cell of each.
    block_sizes: nodes of a block at each level, ascending; () = unknown.
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
    """The topology of a site, shared by all snapshots. Row i belongs to row i of snapshot.nodes.

    classes: kinds of node.
    node_class: (N,) int64 index into classes, -1 = unknown.
    fabric, cell: the fabric, and (N,) int64 row of the cell of each node, -1 = none. They say how near nodes are.
    slurm_fabric, slurm_cell: the same for the fabric that Slurm itself uses, which may be another one.
    slurm_known: False if Slurm has not answered yet.
    """

    classes: tuple[GpuTopology, ...] = ()
    node_class: Int64s = field(default_factory=lambda: frozen([], np.int64))
    fabric: Fabric = field(default_factory=Fabric)
    cell: Int64s = field(default_factory=lambda: frozen([], np.int64))
    slurm_fabric: Fabric = field(default_factory=Fabric)
    slurm_cell: Int64s = field(default_factory=lambda: frozen([], np.int64))
    slurm_known: bool = True


def cells_at_level(fabric: Fabric, cells: Int64s, level: int) -> Int64s:
    """The cell of that level above each cell, or the highest below it. Same shape."""
    found = cells
    for _ in range(level):
        above = fabric.parent[found].astype(np.int64)
        found = np.where((above >= 0) & (fabric.level[above] <= level), above, found)
    return found

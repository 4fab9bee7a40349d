"""The topology of a whole site: class and cell of each node, from files, configuration and Slurm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from slurmsched.model.columns import Int64s, frozen
from slurmsched.model.gpu_topology import Fabric, GpuTopology, SiteTopology
from slurmsched.model.gres import parse_gres
from slurmsched.model.nodes import Nodes
from slurmsched.plain_text import pluralize
from slurmsched.topology.fabrics import NamedFabric
from slurmsched.topology.published_hardware import bandwidth
from slurmsched.topology.topology_files import NodeClass


@dataclass(frozen=True, slots=True)
class TopologyFacts:
    """What files, configuration and Slurm say. If a node has several classes, the first counts.

    classes: of the configuration, then of gres.conf.
    fabric: of a file, or of Slurm.
    slurm_fabric: the fabric that Slurm itself uses.
    slurm_known: whether Slurm answered.
    warnings: what could not be read and is unknown.
    """

    classes: tuple[NodeClass, ...] = ()
    fabric: NamedFabric = field(default_factory=lambda: NamedFabric(Fabric()))
    slurm_fabric: NamedFabric = field(default_factory=lambda: NamedFabric(Fabric()))
    slurm_known: bool = True
    warnings: tuple[str, ...] = ()


def site_topology(nodes: Nodes, sources: TopologyFacts) -> tuple[SiteTopology, tuple[str, ...]]:
    """The tables for these nodes, and warnings. A node with another number of GPUs than its class stays unknown.

    A class without a GPU model takes Slurm's type of its nodes, if they have only one.
    """
    names = tuple(nodes.name)
    rows, warnings = _classes(nodes, names, sources.classes)
    used = sorted(set(rows) - {-1})
    classes = tuple(
        _with_gpu_type(sources.classes[one].topology, nodes, [i for i, row in enumerate(rows) if row == one])
        for one in used
    )
    number = {one: at for at, one in enumerate(used)} | {-1: -1}
    fabric, slurm_fabric = sources.fabric.fabric, sources.slurm_fabric.fabric
    made = SiteTopology(
        classes=classes,
        node_class=frozen([number[row] for row in rows], np.int64),
        fabric=fabric,
        cell=cells_of_nodes(fabric, names),
        slurm_fabric=slurm_fabric,
        slurm_cell=cells_of_nodes(slurm_fabric, names),
        slurm_known=sources.slurm_known,
    )
    return made, tuple(warnings)


def cells_of_nodes(fabric: Fabric, names: Sequence[str]) -> Int64s:
    """Row of the lowest cell that holds each node, -1 = none. (N,) int64."""
    cell = dict(zip(fabric.node, fabric.node_cell.tolist(), strict=True))
    return frozen([cell.get(name, -1) for name in names], np.int64)


def class_rows(names: Sequence[str], classes: Sequence[NodeClass]) -> dict[str, int]:
    """Node -> row of the first class that names it or is for every node."""
    found: dict[str, int] = {}
    for row, one in enumerate(classes):
        for name in one.nodes or names:
            found.setdefault(name, row)
    return found


def _classes(nodes: Nodes, names: Sequence[str], classes: Sequence[NodeClass]) -> tuple[list[int], list[str]]:
    row_of = class_rows(names, classes)
    rows, wrong = [], dict[tuple[int, int], list[str]]()
    for at, name in enumerate(names):
        row, has = row_of.get(name, -1), int(nodes.gpus[at])
        if row >= 0 and not _fits_class(classes[row].topology, has):
            if classes[row].topology.gpus and has:
                wrong.setdefault((row, has), []).append(name)
            row = -1
        rows.append(row)
    return rows, [f"{pluralize(len(of), 'node')} like {of[0]} with {pluralize(has, 'GPU')}, "
                  f"class {classes[row].topology.name} has {classes[row].topology.gpus}: taken as unknown"
                  for (row, has), of in wrong.items()]  # fmt: skip


def _fits_class(node: GpuTopology, gpus: int) -> bool:
    """Whether a node with this number of whole GPUs can be of this class. MIG devices are no whole GPUs."""
    return bool(node.gpus) and int((~node.mig).sum()) == gpus


def _with_gpu_type(node: GpuTopology, nodes: Nodes, rows: Sequence[int]) -> GpuTopology:
    types = {entry.type for row in rows for entry in parse_gres(nodes.gpu_types[row]) if entry.kind == "gpu"}
    gpu_type = next(iter(types)) if len(types) == 1 else ""
    if node.gpu_type or not gpu_type:
        return node
    return replace(
        node, gpu_type=gpu_type, bandwidth_gb_per_s=frozen(bandwidth(node.kind, node.lanes, gpu_type), float)
    )


@dataclass(frozen=True, slots=True)
class TopologyDifference:
    """One difference between files or configuration and Slurm.

    kind: "missing" (not in Slurm), "extra" (only in Slurm), "moved" (another cell) or "gpus" (another number).
    files: the files and configuration.
    slurm: Slurm.
    """

    kind: str
    node: str
    files: str
    slurm: str


def gpu_differences(nodes: Nodes, classes: Sequence[NodeClass]) -> Iterator[TopologyDifference]:
    """Differences in nodes and numbers of GPUs. Classes whose GPUs slurmd detects have no number."""
    has = dict(zip(nodes.name, nodes.gpus.tolist(), strict=True))
    named = class_rows((), classes)
    for name in sorted(set(named) - set(has)):
        yield TopologyDifference("missing", name, f"class {classes[named[name]].topology.name}", "")
    rows = class_rows(tuple(has), classes)
    for name, count in has.items():
        known = classes[rows[name]] if name in rows else None
        if known is None and count:
            yield TopologyDifference("extra", name, "", pluralize(count, "GPU"))
        elif known and known.topology.gpus and not _fits_class(known.topology, count) and (known.nodes or count):
            yield TopologyDifference(
                "gpus", name, pluralize(int((~known.topology.mig).sum()), "GPU"), pluralize(count, "GPU")
            )


def fabric_differences(files: Fabric, slurm: Fabric) -> Iterator[TopologyDifference]:
    """Nodes whose lowest cell in a file differs from Slurm.

    Cells with equal names are the same. A cell whose name Slurm lacks is compared with the cell of most of its nodes.
    """
    ours, theirs = _cells(files), _cells(slurm)
    same = {cell: _counterpart(cell, ours, theirs) for cell in set(ours.values())}
    for node in sorted({*ours, *theirs}):
        if node not in theirs:
            yield TopologyDifference("missing", node, ours[node], "")
        elif node not in ours:
            yield TopologyDifference("extra", node, "", theirs[node])
        elif same[ours[node]] != theirs[node]:
            yield TopologyDifference("moved", node, ours[node], theirs[node])


def _cells(fabric: Fabric) -> dict[str, str]:
    return {node: fabric.cell[cell] for node, cell in zip(fabric.node, fabric.node_cell.tolist(), strict=True)}


def _counterpart(cell: str, ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    if cell in theirs.values():
        return cell
    held = sorted(theirs[node] for node, of in ours.items() if of == cell and node in theirs)
    return max(held, key=held.count, default="")

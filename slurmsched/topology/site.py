"""The topology of a whole site: each node's class and cell, from what files, configuration and Slurm say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from slurmsched.model.columns import Int64s, frozen
from slurmsched.model.gres import parse_gres
from slurmsched.model.nodes import Nodes
from slurmsched.model.topology import Fabric, GpuTopology, SiteTopology
from slurmsched.topology.bandwidth import bandwidth
from slurmsched.topology.cells import NamedFabric
from slurmsched.topology.reading import NodeClass
from slurmsched.words import some


@dataclass(frozen=True, slots=True)
class Sources:
    """What a site's files and configuration say. Of several classes for a node the first counts.

    classes: of the configuration, then of gres.conf. fabric: as Slurm says, or a file. slurm_fabric: what Slurm itself
    keeps jobs to; slurm_known: whether it could be asked. warnings: what could not be read, which is unknown then.
    """

    classes: tuple[NodeClass, ...] = ()
    fabric: NamedFabric = field(default_factory=lambda: NamedFabric(Fabric()))
    slurm_fabric: NamedFabric = field(default_factory=lambda: NamedFabric(Fabric()))
    slurm_known: bool = True
    warnings: tuple[str, ...] = ()


def site_topology(nodes: Nodes, sources: Sources) -> tuple[SiteTopology, tuple[str, ...]]:
    """The tables for these nodes, and warnings. A node whose class has another number of GPUs stays unknown.

    A class of unknown GPU model takes the type that Slurm has for its nodes, if it is one.
    """
    names = tuple(nodes.name)
    rows, warnings = _classes(nodes, names, sources.classes)
    used = sorted(set(rows) - {-1})
    classes = tuple(_typed(sources.classes[one].topology, nodes, [i for i, row in enumerate(rows) if row == one])
                    for one in used)  # fmt: skip
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
    """Node -> row of the first class that names it, or of the first that holds for every node."""
    found: dict[str, int] = {}
    for row, one in enumerate(classes):
        for name in one.nodes or names:
            found.setdefault(name, row)
    return found


def _classes(nodes: Nodes, names: Sequence[str], classes: Sequence[NodeClass]) -> tuple[list[int], list[str]]:
    told = class_rows(names, classes)
    rows, wrong = [], dict[tuple[int, int], list[str]]()
    for at, name in enumerate(names):
        row, has = told.get(name, -1), int(nodes.gpus[at])
        if row >= 0 and not _fits(classes[row].topology, has):
            if classes[row].topology.gpus and has:
                wrong.setdefault((row, has), []).append(name)
            row = -1
        rows.append(row)
    return rows, [f"{some(len(of), 'node')} like {of[0]} with {some(has, 'GPU')}, "
                  f"class {classes[row].topology.name} has {classes[row].topology.gpus}: taken as unknown"
                  for (row, has), of in wrong.items()]  # fmt: skip


def _fits(node: GpuTopology, gpus: int) -> bool:
    """Whether a node with so many whole GPUs can be of this class. MIG devices are not counted as whole GPUs."""
    return bool(node.gpus) and int((~node.mig).sum()) == gpus


def _typed(node: GpuTopology, nodes: Nodes, rows: Sequence[int]) -> GpuTopology:
    types = {entry.type for row in rows for entry in parse_gres(nodes.gpu_types[row]) if entry.kind == "gpu"}
    gpu_type = next(iter(types)) if len(types) == 1 else ""
    if node.gpu_type or not gpu_type:
        return node
    return replace(
        node, gpu_type=gpu_type, bandwidth_gb_per_s=frozen(bandwidth(node.kind, node.lanes, gpu_type), float)
    )


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that files or configuration say otherwise than Slurm. kind: "missing" (Slurm lacks it), "extra"
    (only Slurm has it), "moved" (another cell) or "gpus" (another number)."""

    kind: str
    node: str
    told: str
    slurm: str


def gpu_differences(nodes: Nodes, classes: Sequence[NodeClass]) -> Iterator[Difference]:
    """Nodes by class against Slurm's nodes. A class whose GPUs are only detected says nothing of their number."""
    has = dict(zip(nodes.name, nodes.gpus.tolist(), strict=True))
    named = class_rows((), classes)
    for name in sorted(set(named) - set(has)):
        yield Difference("missing", name, f"class {classes[named[name]].topology.name}", "")
    rows = class_rows(tuple(has), classes)
    for name, count in has.items():
        told = classes[rows[name]] if name in rows else None
        if told is None and count:
            yield Difference("extra", name, "", some(count, "GPU"))
        elif told and told.topology.gpus and not _fits(told.topology, count) and (told.nodes or count):
            yield Difference("gpus", name, some(int((~told.topology.mig).sum()), "GPU"), some(count, "GPU"))


def fabric_differences(told: Fabric, slurm: Fabric) -> Iterator[Difference]:
    """Nodes whose lowest cell in a file is not theirs in Slurm.

    Cells are the same if their names are; a cell of a name that Slurm does not know is that of most of its nodes.
    """
    ours, theirs = _cells(told), _cells(slurm)
    same = {cell: _counterpart(cell, ours, theirs) for cell in set(ours.values())}
    for node in sorted({*ours, *theirs}):
        if node not in theirs:
            yield Difference("missing", node, ours[node], "")
        elif node not in ours:
            yield Difference("extra", node, "", theirs[node])
        elif same[ours[node]] != theirs[node]:
            yield Difference("moved", node, ours[node], theirs[node])


def _cells(fabric: Fabric) -> dict[str, str]:
    return {node: fabric.cell[cell] for node, cell in zip(fabric.node, fabric.node_cell.tolist(), strict=True)}


def _counterpart(cell: str, ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    if cell in theirs.values():
        return cell
    held = sorted(theirs[node] for node, of in ours.items() if of == cell and node in theirs)
    return max(held, key=held.count, default="")

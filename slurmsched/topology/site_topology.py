"""The topology of a whole site: class and cell of each node, and how they are shown (JSON, tables, SVG)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

import numpy as np

from slurmsched.model.columns import Int64s, frozen
from slurmsched.model.gpu_topology import Fabric, GpuTopology, LinkKind, SiteTopology
from slurmsched.model.gres import parse_gres
from slurmsched.model.nodes import Nodes
from slurmsched.plain_text import pluralize
from slurmsched.topology.fabrics import NamedFabric, nodes_under
from slurmsched.topology.gpu_links import bandwidth, links_of, shown_link
from slurmsched.topology.topology_files import NodeClass, TopologyFile
from slurmsched.topology.topology_text import fold_names


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


# A topology as plain values for JSON, as text tables, and as an SVG picture.


def topology_file_record(reading: TopologyFile) -> dict[str, Any]:
    """Kind, warnings and notes of a file, and its GPUs, classes of nodes or fabrics.

    If the file has one class of node, the values of class_record are beside its kind.
    """
    found: dict[str, Any] = {"kind": reading.kind or "unknown"}
    if len(reading.classes) == 1:
        found |= class_record(reading.classes[0])
    else:
        found |= {"gpus": None, "links": [], "numa": [], "pcie_groups": [], "nics": []}
    if len(reading.classes) > 1:
        found["classes"] = [class_record(one) for one in reading.classes]
    if reading.fabrics:
        found["fabrics"] = [fabric_record(one) for one in reading.fabrics]
    if reading.gpus:
        found["gpus_by_node"] = dict(reading.gpus)
    if reading.nic_names:
        found["nic_names"] = dict(reading.nic_names)
    return found | {"warnings": list(reading.warnings), "notes": list(reading.notes)}


def class_record(one: NodeClass) -> dict[str, Any]:
    """As topology_record, with the nodes and the device files by Slurm's index."""
    found = topology_record(one.topology)
    if one.nodes:
        found["nodes"] = fold_names(one.nodes)
    if one.autodetect:
        found["autodetect"] = one.autodetect
    if one.devices:
        found["devices"] = [list(device.files) for device in one.devices]
    return found


def topology_record(node: GpuTopology) -> dict[str, Any]:
    """The class as plain values.

    links: [i, j, kind, lanes] of each known pair. bandwidths: [i, j, GB/s one way], if the model is known.
    numa: null = unknown. pcie_groups: lists of GPUs. nics: by GPU, name -> kind, nearest first."""
    switches = node.pcie_group.tolist()
    kinds = node.nic_kinds or tuple(() for _ in node.nics)
    return {
        "name": node.name,
        "gpus": node.gpus,
        "gpu_type": node.gpu_type,
        "links": [[i, j, kind.name, lanes] for i, j, kind, lanes in links_of(node)],
        "bandwidths": [[i, j, float(node.bandwidth_gb_per_s[i, j])] for i, j, _, _ in links_of(node)
                       if node.bandwidth_gb_per_s[i, j]],
        "numa": [None if number < 0 else number for number in node.numa.tolist()],
        "pcie_groups": [[i for i, of in enumerate(switches) if of == group] for group in sorted(set(switches) - {-1})],
        "nics": [{nic: kind.name for nic, kind in zip(*of_gpu, strict=False)} for of_gpu in
                 zip(node.nics, kinds, strict=True)],
        "off_fabric": [i for i, on in enumerate(node.on_fabric.tolist()) if not on],
        "mig": [i for i, cut in enumerate(node.mig.tolist()) if cut],
    }  # fmt: skip


def fabric_record(one: NamedFabric) -> dict[str, Any]:
    """The cells, lowest level first, each with its level, the cell above it and the nodes under it."""
    fabric = one.fabric
    under = nodes_under(fabric)
    names = list(fabric.cell)
    cells = [
        {
            "name": name,
            "level": int(level),
            "parent": names[parent] if parent >= 0 else None,
            "nodes": fold_names(under[name]),
        }
        for name, level, parent in zip(names, fabric.level.tolist(), fabric.parent.tolist(), strict=True)
    ]
    found: dict[str, Any] = {"name": one.name, "kind": one.kind, "default": one.default, "cells": cells}
    more: Mapping[str, Any] = {"block_sizes": list(fabric.block_sizes), "domains": dict(one.domains),
                               "leaves": {leaf: fold_names(nodes) for leaf, nodes in one.leaves.items()}}  # fmt: skip
    return found | {key: value for key, value in more.items() if value}


# A class of node for people.

SIZE, RING, DOT = 460, 170, 22  # pixels: the picture, the circle of GPUs, one GPU
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#eeca3b", "#9d755d")
STROKES = {LinkKind.NVLINK: "#2a7f2a", LinkKind.XGMI: "#a02020", LinkKind.PIX: "#777777", LinkKind.PXB: "#999999"}


def link_matrix(node: GpuTopology) -> tuple[list[str], list[list[str]]]:
    """Column names and rows as nvidia-smi prints them. "-" is unknown. Columns without any known value are left out."""
    more = [
        ("NUMA", [_number_or_dash(number) for number in node.numa.tolist()]),
        ("switch", [_number_or_dash(number) for number in node.pcie_group.tolist()]),
        ("NICs", [", ".join(names) for names in node.nics]),
        ("", ["MIG" if cut else "off the fabric" if not on else ""
              for cut, on in zip(node.mig.tolist(), node.on_fabric.tolist(), strict=True)]),
    ]  # fmt: skip
    shown = [(name, cells) for name, cells in more if any(cell not in ("", "-") for cell in cells)]
    rows = [
        [f"GPU{i}", *(_cell(node, i, j) for j in range(node.gpus)), *(cells[i] for _, cells in shown)]
        for i in range(node.gpus)
    ]
    return ["", *(f"GPU{i}" for i in range(node.gpus)), *(name for name, _ in shown)], rows


def _cell(node: GpuTopology, i: int, j: int) -> str:
    if i == j:
        return "X"
    kind, lanes = LinkKind(int(node.kind[i, j])), int(node.lanes[i, j])
    return "-" if kind == LinkKind.UNKNOWN else shown_link(node, (kind, lanes))


def _number_or_dash(number: int) -> str:
    return "-" if number < 0 else str(number)


def link_groups(node: GpuTopology) -> Iterator[str]:
    """Lines with the GPUs of each NUMA node and switch, then with the pairs of each kind of NVLink or XGMI."""
    for title, column in (("NUMA", node.numa.tolist()), ("switch", node.pcie_group.tolist())):
        for number in sorted(set(column) - {-1}):
            yield f"{title} {number}: " + " ".join(f"GPU{i}" for i, of in enumerate(column) if of == number)
    wired: dict[tuple[LinkKind, int], list[tuple[int, int]]] = {}
    for i, j, kind, lanes in links_of(node):
        if kind >= LinkKind.XGMI:
            wired.setdefault((kind, lanes), []).append((i, j))
    for link, pairs in sorted(wired.items(), reverse=True):
        whole = len(pairs) * 2 == node.gpus * (node.gpus - 1) and node.gpus > 2
        wide = float(node.bandwidth_gb_per_s[pairs[0]])
        rate = f" ({wide:g} GB/s each way)" if wide else ""
        yield f"{shown_link(node, link)}{rate}: " + ("every pair" if whole else " ".join(f"{i}-{j}" for i, j in pairs))


def topology_svg(node: GpuTopology) -> str:
    """The GPUs on a circle, coloured by NUMA node. Lines are NVLink or XGMI, wider for more lanes; dots are
    switches."""
    places = [_point_on_circle(i, node.gpus) for i in range(node.gpus)]
    lines = [
        _link_line(places[i], places[j], kind, lanes, shown_link(node, (kind, lanes)))
        for i, j, kind, lanes in links_of(node)
        if kind in STROKES
    ]
    dots = [part for i, place in enumerate(places) for part in _dot(node, i, place)]
    title = f'<text x="{SIZE / 2}" y="22" text-anchor="middle" font-weight="bold">{escape(node.name)}</text>'
    size = f'width="{SIZE}" height="{SIZE}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">'
    return "\n".join([head, f'<rect {size} fill="white"/>', title, *lines, *dots, "</svg>"]) + "\n"


def _point_on_circle(i: int, gpus: int) -> tuple[float, float]:
    angle = 2 * math.pi * i / max(gpus, 1) - math.pi / 2
    return SIZE / 2 + RING * math.cos(angle), SIZE / 2 + 12 + RING * math.sin(angle)


def _link_line(a: tuple[float, float], b: tuple[float, float], kind: LinkKind, lanes: int, name: str) -> str:
    width = min(1 + lanes, 8) if kind >= LinkKind.XGMI else 1
    dots = "" if kind >= LinkKind.XGMI else ' stroke-dasharray="3 4"'
    return (f'<line x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}" stroke="{STROKES[kind]}" '
            f'stroke-width="{width}" stroke-opacity="0.7"{dots}><title>{name}</title></line>')  # fmt: skip


def _dot(node: GpuTopology, i: int, place: tuple[float, float]) -> tuple[str, str]:
    numa, (x, y) = int(node.numa[i]), place
    fill = "#bbbbbb" if numa < 0 else COLOURS[sorted(set(node.numa.tolist()) - {-1}).index(numa) % len(COLOURS)]
    edge = "#cc0000" if node.mig[i] or not node.on_fabric[i] else "#222222"
    tip = f"GPU{i}, NUMA {_number_or_dash(numa)}" + (
        ", MIG" if node.mig[i] else "" if node.on_fabric[i] else ", off the fabric"
    )
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{DOT}" fill="{fill}" stroke="{edge}"><title>{tip}</title></circle>',
        f'<text x="{x:.1f}" y="{y + 5:.1f}" text-anchor="middle" fill="white">{i}</text>',
    )

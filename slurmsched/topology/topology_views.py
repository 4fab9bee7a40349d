"""A topology as plain values for JSON, as text tables, and as an SVG picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from slurmsched.model.gpu_topology import GpuTopology, LinkKind
from slurmsched.topology.fabrics import NamedFabric, nodes_under
from slurmsched.topology.gpu_links import links_of, shown_link
from slurmsched.topology.topology_files import NodeClass, TopologyFile
from slurmsched.topology.topology_text import fold_names


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

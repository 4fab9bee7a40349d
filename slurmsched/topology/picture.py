"""A class of node for people: matrix, groups and links as text, or as an SVG picture."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from slurmsched.model.topology import GpuTopology, LinkKind
from slurmsched.topology.links import links_of, shown

SIZE, RING, DOT = 460, 170, 22  # pixels: the picture, the circle of GPUs, one GPU
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#eeca3b", "#9d755d")
STROKES = {LinkKind.NVLINK: "#2a7f2a", LinkKind.XGMI: "#a02020", LinkKind.PIX: "#777777", LinkKind.PXB: "#999999"}


def matrix(node: GpuTopology) -> tuple[list[str], list[list[str]]]:
    """Column names and rows, as nvidia-smi prints them; "-" is unknown, what is not known of any GPU has no column."""
    more = [
        ("NUMA", [_known(number) for number in node.numa.tolist()]),
        ("switch", [_known(number) for number in node.pcie_group.tolist()]),
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
    return "-" if kind == LinkKind.UNKNOWN else shown(node, (kind, lanes))


def _known(number: int) -> str:
    return "-" if number < 0 else str(number)


def groups(node: GpuTopology) -> Iterator[str]:
    """Lines: the GPUs of each NUMA node and switch, then the pairs of each kind of wired link."""
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
        yield f"{shown(node, link)}{rate}: " + ("every pair" if whole else " ".join(f"{i}-{j}" for i, j in pairs))


def svg(node: GpuTopology) -> str:
    """The GPUs on a circle, coloured by NUMA node; wired links as lines, the wider the more lanes; switches dotted."""
    places = [_place(i, node.gpus) for i in range(node.gpus)]
    lines = [
        _line(places[i], places[j], kind, lanes, shown(node, (kind, lanes)))
        for i, j, kind, lanes in links_of(node)
        if kind in STROKES
    ]
    dots = [part for i, place in enumerate(places) for part in _dot(node, i, place)]
    title = f'<text x="{SIZE / 2}" y="22" text-anchor="middle" font-weight="bold">{escape(node.name)}</text>'
    size = f'width="{SIZE}" height="{SIZE}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">'
    return "\n".join([head, f'<rect {size} fill="white"/>', title, *lines, *dots, "</svg>"]) + "\n"


def _place(i: int, gpus: int) -> tuple[float, float]:
    angle = 2 * math.pi * i / max(gpus, 1) - math.pi / 2
    return SIZE / 2 + RING * math.cos(angle), SIZE / 2 + 12 + RING * math.sin(angle)


def _line(a: tuple[float, float], b: tuple[float, float], kind: LinkKind, lanes: int, name: str) -> str:
    width = min(1 + lanes, 8) if kind >= LinkKind.XGMI else 1
    dots = "" if kind >= LinkKind.XGMI else ' stroke-dasharray="3 4"'
    return (f'<line x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}" stroke="{STROKES[kind]}" '
            f'stroke-width="{width}" stroke-opacity="0.7"{dots}><title>{name}</title></line>')  # fmt: skip


def _dot(node: GpuTopology, i: int, place: tuple[float, float]) -> tuple[str, str]:
    numa, (x, y) = int(node.numa[i]), place
    fill = "#bbbbbb" if numa < 0 else COLOURS[sorted(set(node.numa.tolist()) - {-1}).index(numa) % len(COLOURS)]
    edge = "#cc0000" if node.mig[i] or not node.on_fabric[i] else "#222222"
    tip = f"GPU{i}, NUMA {_known(numa)}" + (", MIG" if node.mig[i] else "" if node.on_fabric[i] else ", off the fabric")
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{DOT}" fill="{fill}" stroke="{edge}"><title>{tip}</title></circle>',
        f'<text x="{x:.1f}" y="{y + 5:.1f}" text-anchor="middle" fill="white">{i}</text>',
    )

"""Cells of a fabric, from switches or blocks with their nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from slurmsched.model.columns import Labels, frozen
from slurmsched.model.gpu_topology import Fabric
from slurmsched.plain_text import pluralize
from slurmsched.topology.topology_text import fold_names


@dataclass(frozen=True, slots=True)
class FabricCell:
    """A switch or block: its name, and the nodes or cells that it contains directly."""

    name: str
    nodes: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NamedFabric:
    """One topology of a site.

    kind: "tree", "block", "flat", "ring", "torus3d" or "" = none found.
    name: "" if the file has no names.
    default: whether it is the cluster's default.
    domains: cell -> text of a comment "cell=domain" above it, such as an NVLink domain.
    leaves: switch -> its nodes, if a cell may be several switches.
    warnings: what is damaged or left out.
    notes: other remarks.
    """

    fabric: Fabric
    kind: str = ""
    name: str = ""
    default: bool = True
    domains: Mapping[str, str] = field(default_factory=dict)
    leaves: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def fabric_of(
    form: str, cells: Sequence[FabricCell], block_sizes: Sequence[int] = ()
) -> tuple[Fabric, tuple[str, ...]]:
    """The fabric, and warnings about cells that are missing, contained twice, or contain themselves.

    A node in several cells belongs to the first one that contains it directly.
    """
    by_name: dict[str, FabricCell] = {}
    warnings: list[str] = []
    for cell in cells:
        if cell.name in by_name:
            warnings.append(f"{cell.name} is given twice; the first counts")
        else:
            by_name[cell.name] = cell
    above = _parents(by_name, warnings)
    level = _levels(by_name, above)
    order = sorted(by_name, key=lambda name: level[name])  # stable: the file's order within a level
    row = {name: at for at, name in enumerate(order)}
    home = _homes([by_name[name] for name in order], warnings)
    nodes = sorted(home)
    fabric = Fabric(
        form=form if order else "",
        cell=Labels.of(order),
        level=frozen([min(level[name], 127) for name in order], np.int8),
        parent=frozen([row.get(above.get(name, ""), -1) for name in order], np.int32),
        node=Labels.of(nodes),
        node_cell=frozen([row[home[name]] for name in nodes], np.int32),
        block_sizes=tuple(sorted(set(block_sizes))),
    )
    return fabric, tuple(warnings)


def nodes_under(fabric: Fabric) -> dict[str, frozenset[str]]:
    """Cell -> every node in it or below it."""
    held: list[set[str]] = [set() for _ in range(len(fabric.cell))]
    for node, cell in zip(fabric.node, fabric.node_cell.tolist(), strict=True):
        while cell >= 0:
            held[cell].add(node)
            cell = int(fabric.parent[cell])
    return {name: frozenset(nodes) for name, nodes in zip(fabric.cell, held, strict=True)}


def _parents(by_name: Mapping[str, FabricCell], warnings: list[str]) -> dict[str, str]:
    """Cell -> the cell above it: the first one that names it and is not below it."""
    above: dict[str, str] = {}
    for cell in by_name.values():
        for child in cell.children:
            if child not in by_name:
                warnings.append(f"{cell.name} holds {child}, which is nowhere given")
            elif child in above:
                warnings.append(f"{child} is held by {above[child]} and {cell.name}; the first counts")
            elif child in _upwards(cell.name, above):
                warnings.append(f"{cell.name} and {child} hold each other; the second time is left out")
            else:
                above[child] = cell.name
    return above


def _upwards(name: str, above: Mapping[str, str]) -> list[str]:
    chain = [name]
    while chain[-1] in above:
        chain.append(above[chain[-1]])
    return chain


def _levels(by_name: Mapping[str, FabricCell], above: Mapping[str, str]) -> dict[str, int]:
    """The level of each cell: 1 without cells below, else one more than the highest of them."""
    level = dict.fromkeys(by_name, 1)
    for name in by_name:
        for height, over in enumerate(_upwards(name, above), 1):
            level[over] = max(level[over], height)
    return level


def _homes(cells: Sequence[FabricCell], warnings: list[str]) -> dict[str, str]:
    home: dict[str, str] = {}
    twice: dict[tuple[str, str], int] = {}
    for cell in cells:
        for node in cell.nodes:
            if home.setdefault(node, cell.name) != cell.name:
                pair = (home[node], cell.name)
                twice[pair] = twice.get(pair, 0) + 1
    warnings += [
        f"{pluralize(count, 'node is', 'nodes are')} in {a} and in {b}; the first counts"
        for (a, b), count in twice.items()
    ]
    return home


# Blocks and their aggregates.

MOST_BLOCK_LEVELS = 24


def block_cells(blocks: Sequence[FabricCell], aggregates: Sequence[tuple[str, ...]]) -> list[FabricCell]:
    """The blocks, then their aggregates. aggregates: names of the blocks in each, in any order."""
    known = {block.name for block in blocks}
    sets = [tuple(name for name in group if name in known) for group in sorted(aggregates, key=len)]
    cells, top = list(blocks), {block.name: block.name for block in blocks}
    for group in sets:
        children = tuple(dict.fromkeys(top[name] for name in group))
        if len(children) > 1:
            name = fold_names(group)
            cells.append(FabricCell(name, children=children))
            top.update({block: name for block, over in top.items() if over in children})
    return cells


def aggregates(blocks: Sequence[str], sizes: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The blocks of each aggregate, and warnings.

    Slurm joins neighbouring blocks by powers of two, in the order of the file. Blocks that remain at the end join one
    level higher.

    sizes: nodes of a block at each level, ascending. The first is one block; all others are a power of two times it.
    Source: topology.conf manual page, BlockSizes; seen in `scontrol show topology` of 24.11 and 26.05.
    """
    found: list[tuple[str, ...]] = []
    warnings = []
    for size in sizes[1:MOST_BLOCK_LEVELS]:
        factor = size // sizes[0] if sizes[0] else 0
        if factor < 2 or factor & (factor - 1) or factor * sizes[0] != size:
            warnings.append(f"BlockSizes: {size} is not {sizes[0]} times a power of two; left out")
            continue
        groups = [tuple(blocks[at : at + factor]) for at in range(0, len(blocks), factor)]
        found += [group for group in groups if len(group) > 1 and group not in found]
    return found, tuple(warnings)

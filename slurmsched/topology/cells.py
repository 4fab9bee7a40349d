"""From switches or blocks with their nodes to the cells of a fabric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from slurmsched.model.columns import Labels, frozen
from slurmsched.model.topology import Fabric
from slurmsched.words import some


@dataclass(frozen=True, slots=True)
class Cell:
    """A switch or block as its source names it: what it holds itself, nodes or other cells."""

    name: str
    nodes: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NamedFabric:
    """One topology of a site. kind: "tree", "block", "flat", "ring", "torus3d" or "" = none found.

    name: "" where files have no names. domains: cell -> what a comment "cell=domain" above it says, such as its NVLink
    domain. leaves: switch -> its nodes, where a cell may be several. notes: what is worth knowing, though nothing is
    wrong.
    """

    fabric: Fabric
    kind: str = ""
    name: str = ""
    default: bool = True
    domains: Mapping[str, str] = field(default_factory=dict)
    leaves: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def fabric_of(form: str, cells: Sequence[Cell], block_sizes: Sequence[int] = ()) -> tuple[Fabric, tuple[str, ...]]:
    """The fabric, and warnings: what is not there, is held twice, or holds itself is left out.

    A node held by several cells belongs to the first of them that holds it directly.
    """
    by_name: dict[str, Cell] = {}
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


def _parents(by_name: Mapping[str, Cell], warnings: list[str]) -> dict[str, str]:
    """Cell -> the cell above it. The first that names it; never one that is below it."""
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


def _levels(by_name: Mapping[str, Cell], above: Mapping[str, str]) -> dict[str, int]:
    """1 for a cell without cells below, else one more than the highest of those."""
    level = dict.fromkeys(by_name, 1)
    for name in by_name:
        for height, over in enumerate(_upwards(name, above), 1):
            level[over] = max(level[over], height)
    return level


def _homes(cells: Sequence[Cell], warnings: list[str]) -> dict[str, str]:
    home: dict[str, str] = {}
    twice: dict[tuple[str, str], int] = {}
    for cell in cells:
        for node in cell.nodes:
            if home.setdefault(node, cell.name) != cell.name:
                pair = (home[node], cell.name)
                twice[pair] = twice.get(pair, 0) + 1
    warnings += [
        f"{some(count, 'node is', 'nodes are')} in {a} and in {b}; the first counts" for (a, b), count in twice.items()
    ]
    return home

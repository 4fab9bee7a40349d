"""Blocks and their aggregates: Slurm joins neighbouring blocks by powers of two."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slurmsched.model.columns import Int64s
from slurmsched.model.topology import Fabric
from slurmsched.topology.cells import Cell
from slurmsched.topology.plain import fold

MOST_LEVELS = 24


def block_cells(blocks: Sequence[Cell], aggregates: Sequence[tuple[str, ...]]) -> list[Cell]:
    """The blocks, then their aggregates. aggregates: names of the blocks in each, in any order."""
    known = {block.name for block in blocks}
    sets = [tuple(name for name in group if name in known) for group in sorted(aggregates, key=len)]
    cells, top = list(blocks), {block.name: block.name for block in blocks}
    for group in sets:
        children = tuple(dict.fromkeys(top[name] for name in group))
        if len(children) > 1:
            name = fold(group)
            cells.append(Cell(name, children=children))
            top.update({block: name for block, over in top.items() if over in children})
    return cells


def aggregates(blocks: Sequence[str], sizes: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The blocks that each aggregate holds, and warnings.

    sizes: nodes of a block at each level, ascending; the first is that of one block, every other a power of two
    times it. Blocks are joined in the order they are given; what is left over at the end joins one level higher.
    Source: topology.conf manual page, BlockSizes; seen in `scontrol show topology` of 24.11 and 26.05.
    """
    found: list[tuple[str, ...]] = []
    warnings = []
    for size in sizes[1:MOST_LEVELS]:
        factor = size // sizes[0] if sizes[0] else 0
        if factor < 2 or factor & (factor - 1) or factor * sizes[0] != size:
            warnings.append(f"BlockSizes: {size} is not {sizes[0]} times a power of two; left out")
            continue
        groups = [tuple(blocks[at : at + factor]) for at in range(0, len(blocks), factor)]
        found += [group for group in groups if len(group) > 1 and group not in found]
    return found, tuple(warnings)


def at_level(fabric: Fabric, cells: Int64s, level: int) -> Int64s:
    """The cell of that level above each cell, or the highest below it. Same shape."""
    found = cells
    for _ in range(level):
        above = fabric.parent[found].astype(np.int64)
        found = np.where((above >= 0) & (fabric.level[above] <= level), above, found)
    return found

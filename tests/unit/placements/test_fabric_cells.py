"""Cells of a fabric as ranges of nodes."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from slurmsched.model import Labels, frozen
from slurmsched.model.gpu_topology import Fabric, SiteTopology
from slurmsched.placements.fabric_cells import FabricCells, cells_of, fewest_cells


def members(cells: FabricCells) -> list[tuple[int, list[int]]]:
    """Level and nodes of each cell."""
    return [
        (level, sorted(cells.order[low:high].tolist()))
        for level, low, high in zip(cells.level.tolist(), cells.low.tolist(), cells.high.tolist(), strict=True)
    ]


def site(parent: list[int], level: list[int], cell: list[int]) -> SiteTopology:
    labels = Labels.of([f"c{i}" for i in range(len(parent))])
    fabric = Fabric("tree", labels, frozen(level, np.int8), frozen(parent, np.int32))
    return SiteTopology((), frozen([-1] * len(cell), np.int64), fabric, frozen(cell, np.int64))


def test_cells__are_ranges_lowest_level_first_and_the_cluster_last() -> None:
    """Two spines (rows 0, 1) over three leaves whose nodes are mixed up; node 5 is in no leaf."""
    topology = site([-1, -1, 0, 1, 0], [2, 2, 1, 1, 1], [4, 3, 2, 4, 3, -1])
    cells = cells_of(topology, 6)
    expected = [(1, [2]), (1, [1, 4]), (1, [0, 3]), (2, [0, 2, 3]), (2, [1, 4]), (3, [0, 1, 2, 3, 4, 5])]
    assert members(cells) == expected
    assert cells.lowest.tolist() == [2, 1, 0, 2, 1, -1]
    assert cells.row.tolist() == [2, 3, 4, 0, 1, -1]


def test_cells__without_a_fabric_are_the_cluster() -> None:
    """One cell with every node, also for a topology of another number of nodes."""
    assert members(cells_of(SiteTopology(), 3)) == [(1, [0, 1, 2])]
    assert members(cells_of(site([-1], [1], [0, 0]), 3)) == [(1, []), (2, [0, 1, 2])]


def test_cells__of_a_switch_without_nodes_are_empty() -> None:
    """Leaf 1 has none."""
    assert members(cells_of(site([-1, -1], [1, 1], [0, 0]), 2)) == [(1, [0, 1]), (1, []), (2, [0, 1])]


LEAVES = site([-1, 0, 0, 0], [2, 1, 1, 1], [1, 1, 1, 2, 2, 3, 3, 3, -1])


@pytest.mark.parametrize(
    ("room", "nodes", "expected"),
    [
        ([4] * 9, 3, [0, 1, 2]),  # of two leaves with three the first
        ([4] * 9, 1, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ([4] * 9, 5, [0, 1, 2, 3, 4]),  # the second need not hold three
        ([4] * 9, 8, [0, 1, 2, 3, 4, 5, 6, 7]),
        ([4] * 9, 9, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ([4, 1, 1, 4, 4, 0, 0, 4, 4], 3, [0, 3, 4]),  # nodes with too few GPUs do not count
        ([0] * 9, 2, []),
    ],
)
def test_fewest_cells__hold_a_gang(room, nodes, expected) -> None:
    """Nodes of the fewest leaves, of equal ones the first; a node outside the fabric is a leaf by itself."""
    cells = cells_of(LEAVES, 9)
    found = fewest_cells(cells, np.array(room, np.int64), len(cells.low) - 1, 2, nodes)
    assert np.flatnonzero(found).tolist() == expected
    assert (found[expected] == np.array(room)[expected]).all()


def test_fewest_cells__hold_the_rest_too() -> None:
    """As few cells as any choice of them, by trying all, on 300 clusters drawn by chance."""
    draw = np.random.default_rng(5)
    for _ in range(300):
        home = draw.integers(0, 4, 9)
        cells, room = cells_of(site([-1] * 4, [1] * 4, home.tolist()), 9), draw.choice([0, 2, 4], 9)
        full, nodes = room >= 4, int(draw.integers(2, 5))
        holding = [
            among
            for count in range(1, 5)
            for among in map(list, combinations(range(4), count))
            if (here := np.isin(home, among))[full].sum() >= nodes and (here & (room >= 2)).sum() > nodes
        ]
        near = fewest_cells(cells, room, len(cells.low) - 1, 4, nodes, 2)
        if holding and (near > 0).sum() > nodes:
            assert len(set(home[near > 0])) == len(holding[0])
        elif holding:  # the rest goes to one more
            assert len(set(home[near > 0])) == len(holding[0]) - 1


def test_fewest_cells__where_no_node_is_in_one() -> None:
    """All of the room: there is nothing to choose by."""
    cells = cells_of(SiteTopology(), 4)
    assert fewest_cells(cells, np.full(4, 8), 0, 2, 3).tolist() == [8] * 4

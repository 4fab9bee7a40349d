"""Whether a gang lies on the fabric as its user asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurmsched.model import Fabric, SiteTopology, Snapshot, frozen
from slurmsched.model.columns import Int64s
from slurmsched.resources.topology_limits import topology_request, unmet_topology_requests
from slurmsched.testing import snapshot
from slurmsched.topology.fabric_files import read_topology

# Six blocks of four nodes: b1 and b2 make an aggregate of eight, so do b3 and b4; b5 and b6.
BLOCKS = "\n".join(f"BlockName=b{b} Nodes=n[{4 * b - 3}-{4 * b}]" for b in range(1, 7)) + "\nBlockSizes=4,8\n"
TREE = "SwitchName=top Switches=a,b,c\nSwitchName=a Nodes=n[1-4]\nSwitchName=b Nodes=n[5-8]\nSwitchName=c Nodes=n9\n"


def gang(text: str = BLOCKS, **asks: int) -> Snapshot:
    """One gang on 24 nodes, n1 to n24, whose fabric a file tells."""
    nodes = [{"name": f"n{i}", "gpus": 8} for i in range(1, 25)]
    fabric, cell = placed(text)
    topology = SiteTopology(fabric=fabric, cell=cell, node_class=frozen([-1] * 24, np.int64))
    return snapshot([{"job_id": 7, "gpus": 1, **asks}], nodes, topology=topology)


def placed(text: str) -> tuple[Fabric, Int64s]:
    """The fabric, and the cell of each row of the nodes of `gang`."""
    fabric = read_topology(text).fabric
    home = dict(zip(fabric.node, fabric.node_cell.tolist(), strict=True))
    return fabric, frozen([home.get(name, -1) for name in sorted(f"n{i}" for i in range(1, 25))], np.int64)


def on(at: Snapshot, *nodes: int) -> list[tuple[float, str]]:
    row = {name: i for i, name in enumerate(at.nodes.name)}
    return list(unmet_topology_requests(at, 0, np.array([row[f"n{node}"] for node in nodes], np.int64)))


@pytest.mark.parametrize(
    ("size", "nodes", "kept"),
    [
        (2, (1, 2, 5, 6), None),  # each pair within a block
        (2, (1, 5, 9, 13), 0.0),  # four blocks, one node in each
        (2, (1, 2, 5, 9), 0.5),
        (4, (1, 2, 3, 4, 9, 10, 11, 12), None),
        (4, (1, 2, 3, 5), 0.0),
        (8, (1, 2, 3, 4, 5, 6, 7, 8), None),  # longer than a block: within one aggregate
        (8, (1, 2, 3, 4, 9, 10, 11, 12), 0.0),
        (1, (1, 5, 9), None),
        (0, (1, 5), None),
        (16, (1, 5), None),  # more nodes than it has: Slurm takes no such job
    ],
)
def test_broken__segments_lie_each_within_a_block_that_can_hold_them(size, nodes, kept):
    """A segment of more nodes than a block has lies within an aggregate of blocks."""
    assert [share for share, _ in on(gang(segment_nodes=size), *nodes)] == ([] if kept is None else [kept])


def test_broken__a_block_of_more_nodes_than_slurm_counts():
    """Six nodes of which BlockSizes counts four: Slurm looks for a segment of six in an aggregate."""
    spare = "BlockName=b1 Nodes=n[1-6]\nBlockName=b2 Nodes=n[7-12]\nBlockSizes=4,8\n"
    assert on(gang(spare, segment_nodes=6), 1, 2, 3, 7, 8, 9) == []
    assert [share for share, _ in on(gang(spare, segment_nodes=4), 1, 2, 3, 7)] == [0.0]


def test_broken__no_block_is_told_that_could_hold_such_a_segment():
    """A file of the fabric that knows no aggregates says nothing against a segment of eight."""
    flat = BLOCKS.replace("BlockSizes=4,8", "BlockSizes=4")
    assert on(gang(flat, segment_nodes=8), *range(1, 9)) == []


def test_broken__switches_count_leaves_of_a_tree():
    """Two leaves are more than one; two under one parent switch are two still."""
    assert on(gang(TREE, switches=1), 1, 4) == []
    assert [share for share, _ in on(gang(TREE, switches=2), 1, 5, 9)] == [2 / 3]
    assert on(gang(TREE, segment_nodes=2), 1, 5) == []


def test_broken__by_the_fabric_that_slurm_has():
    """The file of the fabric has blocks, Slurm two switches: --segment is none of Slurm's, and --switches counts its
    switches; a node on none of them is not judged."""
    two = "SwitchName=top Switches=a,b\nSwitchName=a Nodes=n[1-12]\nSwitchName=b Nodes=n[13-23]\n"
    for asks, nodes, kept in (
        ({"segment_nodes": 2}, (1, 5), []), ({"switches": 1}, (1, 5), []), ({"switches": 1}, (1, 13), [0.5]),
        ({"switches": 1}, (1, 24), []),
    ):  # fmt: skip
        at = gang(BLOCKS, **asks)
        fabric, cell = placed(two)
        known = replace(at, topology=replace(at.topology, slurm_fabric=fabric, slurm_cell=cell))
        assert [share for share, _ in on(known, *nodes)] == kept
    flat = gang(BLOCKS, segment_nodes=2)
    assert [share for share, _ in on(flat, 1, 5)] == [0.0]
    assert list(on(replace(flat, topology=replace(flat.topology, slurm_known=False)), 1, 5)) == []


@pytest.mark.parametrize(
    ("columns", "word"),
    [({"nodes": 2}, ""), ({"nodes": 1, "switches": 1}, ""), ({"nodes": 2, "switches": 1}, "switches"),
     ({"nodes": 2, "segment_nodes": 2}, "a segment")],
)  # fmt: skip
def test_asked__only_gangs_ask_anything_of_the_fabric(columns, word):
    """One node is on one switch and in one block."""
    assert bool(topology_request(gang(**columns), 0)) == bool(word)
    assert word in topology_request(gang(**columns), 0)

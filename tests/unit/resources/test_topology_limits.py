"""Where Slurm starts a gang at all: under one switch, in no more blocks than it needs."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmsched.model import Fabric, SiteTopology, Snapshot, frozen
from slurmsched.model.columns import Int64s
from slurmsched.model.nodes import Partitions
from slurmsched.resources.topology_limits import (
    first_nodes_for_one_job,
    most_nodes_of_one_job,
    node_sets_for_one_job,
    nodes_for_one_job,
    starts_on,
    topology_for_job,
    topology_request,
    unknown_topology_rule,
    unmet_topology_requests,
)
from slurmsched.testing import snapshot
from slurmsched.topology.fabric_files import read_topology
from slurmsched.topology.site_topology import cells_of_nodes

EIGHT = "".join(f"BlockName=b{at} Nodes=n{at},n{at + 1}\n" for at in range(0, 16, 2))
TREE = "SwitchName=t Switches=a,b\nSwitchName=a Nodes=n[0-1]\nSwitchName=b Nodes=n[2-3]\nSwitchName=c Nodes=n[4-14]\n"
SIZES = ("BlockSizes=2", "BlockSizes=2,4", "BlockSizes=2,4,8", "BlockSizes=2,8", "BlockSizes=2,16", "")


def site(text: str, file: str = "") -> SiteTopology:
    """Sixteen nodes n0, n1, ... of a Slurm that has this topology. file: what topology.fabric names, "" = nothing."""
    names = [f"n{row}" for row in range(16)]
    slurm, fabric = read_topology(text).fabric, read_topology(file or text).fabric
    return SiteTopology(
        fabric=fabric, cell=cells_of_nodes(fabric, names), slurm_fabric=slurm, slurm_cell=cells_of_nodes(slurm, names)
    )


@pytest.mark.parametrize(
    ("sizes", "nodes", "expected"),
    [
        ("2,4", (0, 1), True),
        ("2,4", (1, 2), False),  # what fits into a block lies in one, though an aggregate holds both
        ("2,4", (0, 1, 2), True),
        ("2,4", (0, 2, 4), False),
        ("2,4", (2, 3, 4), False),  # neighbours of two aggregates
        ("2,4,8", (0, 2, 4, 6, 7), True),  # more blocks than it needs, but no more aggregates of four
        ("2,8", (0, 2, 4, 6, 7), False),  # where these are not told of the blocks count
        ("2,8", (0, 1, 4, 5, 6), True),
        ("2,4", (0, 1, 2, 3, 8), True),  # more than the largest: over as few of those as hold it
        ("2,4", (0, 1, 2, 4, 8), False),
        ("2", (0, 2, 4), False),
        ("2", (0, 1, 14), True),
    ],
)
def test_starts_on__needs_one_block_of_the_right_size(sizes, nodes, expected):
    """As seen on 26.05.5; each of these is one of the kinds that tests/live/test_gang_fabrics.py draws."""
    assert starts_on(site(EIGHT + f"BlockSizes={sizes}\n"), np.array(nodes)) is expected


def test_reachable__sizes_that_are_not_those_of_the_blocks():
    """A job of five fits into the block of six, and into blocks of which Slurm counts four nodes each."""
    at = site("BlockName=a Nodes=n[0-5]\nBlockName=b Nodes=n[6-7]\nBlockName=c Nodes=n[8-11]\nBlockSizes=4,8\n")
    lists = ([0, 1, 2, 3, 4], [0, 1, 2, 6, 7], [4, 5, 8, 9, 10], [6, 7, 8])
    assert [starts_on(at, np.array(each)) for each in lists] == [True, True, False, False]


def test_reachable__a_tree_without_a_root_and_nodes_on_no_switch():
    """Any nodes under one top switch."""
    lists = ([0, 2], [0, 1, 2, 3], [4, 9], [1, 4], [4, 15], [15])
    assert [starts_on(site(TREE), np.array(each)) for each in lists] == [True, True, True, False, False, True]


@pytest.mark.parametrize("text", [EIGHT + "BlockSizes=2\n", TREE, ""])
def test_reachable__anywhere_where_slurm_keeps_to_no_such_fabric(text):
    """What only a file tells binds nobody."""
    at = site("", file=text)
    assert starts_on(at, np.array([0, 5, 9]))
    room = np.arange(16) % 2 == 0
    assert nodes_for_one_job(at, room, 3).tolist() == room.tolist()
    assert not nodes_for_one_job(at, room, 9).any()


@pytest.mark.parametrize("file", [EIGHT + "BlockSizes=2,16\n", "BlockName=all Nodes=n[0-15]\nBlockSizes=16\n", TREE])
def test_reachable__by_slurms_own_blocks_whatever_a_file_tells(file):
    """Coarser blocks, or other ones: nodes of two blocks of Slurm's are no place for a gang of two."""
    own, at = site(EIGHT + "BlockSizes=2\n"), site(EIGHT + "BlockSizes=2\n", file=file)
    rows, room = np.array([0, 2, 5, 4, 9]), np.isin(np.arange(16), [0, 2, 5, 4, 9])
    assert (starts_on(at, np.array([0, 2])), starts_on(at, np.array([4, 5]))) == (False, True)
    assert first_nodes_for_one_job(at, rows, 2).tolist() == [5, 4]
    for count in (2, 3):
        assert nodes_for_one_job(at, room, count).tolist() == nodes_for_one_job(own, room, count).tolist()
    assert most_nodes_of_one_job(at, room) == most_nodes_of_one_job(own, room)


@pytest.mark.parametrize("text", ["", TREE])
def test_reachable__nowhere_for_several_nodes_while_slurm_has_not_told(text):
    """Single nodes are reached whatever it will tell; a file does not stand in."""
    at = replace(site("", file=text), slurm_known=False)
    room = np.ones(16, np.bool_)
    assert [starts_on(at, np.array(nodes)) for nodes in ([3], [0, 1])] == [True, False]
    assert (nodes_for_one_job(at, room, 1).all(), nodes_for_one_job(at, room, 2).any()) == (True, False)
    assert (len(first_nodes_for_one_job(at, np.arange(4), 2)), most_nodes_of_one_job(at, room)) == (0, 1)


@given(st.sampled_from([*(EIGHT + sizes for sizes in SIZES), TREE]), st.sets(st.integers(0, 15)), st.integers(2, 5))
def test_within_reach__any_so_many_of_them_and_some_wherever_there_are(text, nodes, count):
    """Against every set of the nodes with room."""
    at, room = site(text), np.isin(np.arange(16), list(nodes))
    found = np.flatnonzero(nodes_for_one_job(at, room, count)).tolist()
    good = [each for each in combinations(sorted(nodes), count) if starts_on(at, np.array(each))]
    assert bool(found) == bool(good)
    assert set(combinations(found, count)) <= set(good)
    assert len(found) in (0, *range(count, 17))


@given(st.sampled_from([*(EIGHT + sizes for sizes in SIZES), TREE]), st.sets(st.integers(0, 15)))
def test_most_together__is_the_largest_job_there(text, nodes):
    """Against every size; where Slurm keeps to no fabric, all."""
    at, room = site(text), np.isin(np.arange(16), list(nodes))
    sizes = [count for count in range(1, 17) if nodes_for_one_job(at, room, count).any()]
    assert most_nodes_of_one_job(at, room) == max(sizes, default=0)
    assert most_nodes_of_one_job(site("", file=text), room) == len(nodes)


@given(st.sampled_from([*(EIGHT + sizes for sizes in SIZES), TREE, ""]), st.permutations(range(16)), st.integers(1, 6))
def test_places__hold_every_set_on_which_slurm_starts_a_job(text, order, count):
    """And no other; none is left out where blocks can be chosen in few ways, as here for a job of up to four nodes."""
    at, rows = site(text), np.array(order[:9])
    found = [set(each.tolist()) for each in node_sets_for_one_job(at, rows, count)]
    assert all(starts_on(at, np.array(each)) for one in found for each in combinations(one, count))
    good = [set(each) for each in combinations(rows.tolist(), count) if starts_on(at, np.array(each))]
    if count < 5:
        assert all(any(each <= one for one in found) for each in good)
    assert bool(found) == bool(good)


@given(st.sampled_from([*(EIGHT + sizes for sizes in SIZES), TREE]), st.permutations(range(16)), st.integers(1, 5))
def test_shortest_head__no_shorter_one_does(text, order, count):
    """The first head of the order that holds such a set, and of it what any so many of may be taken of."""
    at, rows = site(text), np.array(order[:12])
    heads = [head for head in range(count, 13)
             if any(starts_on(at, np.array(each)) for each in combinations(order[:head], count))]  # fmt: skip
    found = first_nodes_for_one_job(at, rows, count).tolist()
    assert bool(found) == bool(heads)
    if found:
        assert found == [row for row in order[: heads[0]] if row in found]
        assert all(starts_on(at, np.array(each)) for each in combinations(found, count))


RING = SiteTopology(slurm_fabric=read_topology("RingName=r0 Nodes=n[0-15] RingSize=16\n").fabric)


def test_reach__a_fabric_of_a_rule_that_is_not_known():
    """No nodes for a gang; a job of one node is as anywhere."""
    rows, room = np.arange(16), np.ones(16, np.bool_)
    assert not starts_on(RING, rows[:2])
    assert starts_on(RING, rows[:1])
    assert (nodes_for_one_job(RING, room, 2).sum(), nodes_for_one_job(RING, room, 1).sum()) == (0, 16)
    assert (list(node_sets_for_one_job(RING, rows, 2)), len(first_nodes_for_one_job(RING, rows, 2))) == ([], 0)
    assert most_nodes_of_one_job(RING, room) == 1


def test_binding__partitions_with_a_topology_of_their_own():
    """Where one of a job's partitions has one, it is not known where Slurm starts its gangs."""
    partitions = Partitions.build(2, {"name": ["a", "b"], "topology": ["", "blocks"]})
    rows = [{"job_id": i, "partition": names, "nodes": 2, "gpus": 2} for i, names in ((1, "a"), (2, "b"), (3, "a,b"))]
    made = replace(snapshot(rows, "2x4"), partitions=partitions)
    told = [unknown_topology_rule(topology_for_job(made, row), 2) for row in range(3)]
    own = "Slurm keeps jobs to a topology of its partition (blocks), whose rule is not known"
    assert told == ["", own, own]


# Six blocks of four nodes: b1 and b2 make an aggregate of eight, so do b3 and b4; b5 and b6.
BLOCKS = "\n".join(f"BlockName=b{b} Nodes=n[{4 * b - 3}-{4 * b}]" for b in range(1, 7)) + "\nBlockSizes=4,8\n"
LEAVES = "SwitchName=top Switches=a,b,c\nSwitchName=a Nodes=n[1-4]\nSwitchName=b Nodes=n[5-8]\nSwitchName=c Nodes=n9\n"


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
    assert on(gang(LEAVES, switches=1), 1, 4) == []
    assert [share for share, _ in on(gang(LEAVES, switches=2), 1, 5, 9)] == [2 / 3]
    assert on(gang(LEAVES, segment_nodes=2), 1, 5) == []


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

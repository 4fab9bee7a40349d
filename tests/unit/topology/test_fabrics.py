"""Fabrics: trees, blocks, topology.yaml and InfiniBand, and how they differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmsched.topology.fabric_files import node_name, read_ibnetdiscover, read_topology, read_topology_yaml
from slurmsched.topology.fabrics import NamedFabric, aggregates, nodes_under
from slurmsched.topology.site_topology import TopologyDifference, fabric_differences
from slurmsched.topology.topology_files import read_topology_text
from slurmsched.topology.topology_text import fold_names

RECORDED = Path(__file__).parent / "recorded"
TREE = """
SwitchName=root Switches=grp[10,11]
SwitchName=grp10 Switches=leaf[1-2]
SwitchName=grp11 Switches=leaf[3-4]
SwitchName=leaf1 Nodes=n[1-4],p[1-4]
SwitchName=leaf2 Nodes=p[5-14]
SwitchName=leaf3 Nodes=p[15-20]
SwitchName=leaf4 Nodes=p[21-30]
"""
BLOCKS = "BlockName=b1 Nodes=n[1-4]\n" + "".join(
    f"BlockName=b{i} Nodes=p[{4 * i - 7}-{4 * i - 4}]\n" for i in range(2, 7)
)


def cells(one: NamedFabric) -> dict[str, tuple[int, str, str]]:
    """Cell -> level, the cell above, nodes."""
    names, under = list(one.fabric.cell), nodes_under(one.fabric)
    return {name: (level, names[above] if above >= 0 else "", fold_names(under[name])) for name, level, above in
            zip(names, one.fabric.level.tolist(), one.fabric.parent.tolist(), strict=True)}  # fmt: skip


@pytest.mark.parametrize("version", ["24.11.5", "26.05.5"])
@pytest.mark.parametrize(("file", "text"), [("tree", TREE), ("block", BLOCKS + "BlockSizes=4,8,16,32\n")])
def test_read_topology__the_file_gives_what_slurm_makes_of_it(version, file, text):
    """Cells, levels and nodes of the file are those that `scontrol show topology` prints for it."""
    said = read_topology_text((RECORDED / f"{version}-{file}.txt").read_text())
    assert said.kind == "scontrol"
    assert cells(read_topology(text)) == cells(said.fabrics[0])
    assert said.warnings == ()


def test_read_topology__block_levels_of_23_11():
    """BlockLevels counts powers of two."""
    old, new = (read_topology(BLOCKS + line) for line in ("BlockLevels=1,2\n", "BlockSizes=4,8,16\n"))
    assert cells(new) == cells(old)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "neither switches nor blocks"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "a is given twice"),
        ("SwitchName=a Switches=b", "a holds b, which is nowhere given"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "hold each other"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[1-2]", "1 node is in a and in b"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Switches=a\nSwitchName=c Switches=a", "a is held by b and c"),
        ("SwitchName=a Nodes=n1\nBlockName=b Nodes=n2", "the blocks are left out"),
        ("SwitchName=a Nodes=n[1-", "is not a hostlist"),
        (BLOCKS + "BlockSizes=4,12", "12 is not 4 times a power of two"),
        (BLOCKS + "BlockSizes=many", "BlockSizes=many is no list"),
    ],
)
def test_read_topology__says_what_is_wrong(text, words):
    """What cannot be is left out and named."""
    assert any(words in warning for warning in read_topology(text).warnings)


def test_aggregates__powers_of_two_and_what_is_left_over():
    """Six blocks in pairs, fours and all; a pair left over at one level joins the next."""
    found, warnings = aggregates(["a", "b", "c", "d", "e", "f"], (4, 8, 16, 32, 64))
    assert [("a", "b"), ("c", "d"), ("e", "f"), ("a", "b", "c", "d"), tuple("abcdef")] == found
    assert warnings == ()


YAML = "- topology: one\n  cluster_default: true\n  tree:\n    switches:\n      - switch: s1\n        nodes: n[1-2]\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (YAML + "- topology: two\n  tree: [\n", "not YAML at line"),
        (YAML.replace("true", "false"), "0 topologies have cluster_default"),
        ("just: this", "a list of entries"),
        ("- topology: x\n  cluster_default: true\n  hypercube: {}\n", "none of tree, block"),
        ("- topology: x\n  cluster_default: true\n  tree: {}\n", "none of tree, block"),
        ("- topology: x\n  cluster_default: true\n  block: {blocks: 3}\n", "a block without members"),
        (YAML.replace("n[1-2]", "n[1-"), "is not a hostlist"),
    ],
)
def test_read_topology_yaml__says_what_is_wrong(text, words):
    """A damaged file is read up to where it stops being YAML; nothing is guessed."""
    found, warnings = read_topology_yaml(text)
    assert any(words in warning for one in (warnings, *(one.warnings for one in found)) for warning in one)


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("node001 mlx5_5", "node001"), ("node006 HCA-6", "node006"), ("'gpu-3 mlx5_0'", "gpu-3"),
        ("n1.site hfi1_0", "n1"), ("dgx-07", "dgx-07"), ("n1.site.org", "n1"), ("MT25408", ""),
        ("Mellanox Technologies Aggregation Node", ""), ("MT4129 ConnectX7   Mellanox Technologies", ""),
        ("MT4129 ConnectX7", ""), ("Quantum Mellanox", ""), ("", ""),
    ],
)  # fmt: skip
def test_node_name__of_adapters(text, node):
    """The first word before an adapter's name; chips and switches' own adapters are no nodes."""
    assert node == node_name(text)


def test_read_ibnetdiscover__chips_of_one_chassis_keep_apart():
    """Two switches of one name are told apart by their chip."""
    text = "".join(
        f'Switch 36 "S-{i}"\t# "MF0;big:CS7500/L{i}/U1" enhanced port 0\n[1]\t"H-{i}0"[1]({i}0)\t# "n{i} mlx5_0"\n\n'
        for i in (1, 2)
    )
    assert read_ibnetdiscover(text).leaves == {"big/L1/U1": ("n1",), "big/L2/U1": ("n2",)}


def leaf(guid: str, name: str, *ends: str) -> str:
    """A leaf switch with adapters at its ports: "GUID host adapter"."""
    ports = "".join(f'[{at}]\t"H-{end.split()[0]}"[1]({end.split()[0]})\t# "{end.partition(" ")[2]}" lid 1 4xNDR\n'
                    for at, end in enumerate(ends, 1))  # fmt: skip
    head = f'Switch\t41 "S-{guid}"\t\t# "MF0;{name}:M/U1" enhanced port 0 lid 3 lmc 0\n'
    return f'{head}{ports}[40]\t"S-f0"[1]\t\t# "MF0;spine:M/U1"\n\n'


RACKS = leaf("1", "left", "a1 a1 mlx5_0", "a2 a2 mlx5_0", "51 store1 mlx5_0") + leaf(
    "2", "right", "b1 b1 mlx5_0", "b2 b2 mlx5_0", "52 store1 mlx5_1"
)
RAILS = leaf("1", "r0", "a1 a1 mlx5_0", "a2 a2 mlx5_0", "51 store1 mlx5_0") + leaf(
    "2", "r1", "b1 a1 mlx5_1", "b2 a2 mlx5_1"
)


def cells_under(text: str, cluster: tuple[str, ...] = ()) -> dict[str, str]:
    return {name: fold_names(nodes) for name, nodes in nodes_under(read_ibnetdiscover(text, cluster).fabric).items()}


def test_read_ibnetdiscover__a_host_of_two_racks_joins_them_only_if_it_is_a_node_of_slurm():
    """A file server on both leaves is no reason to take two racks for one; a node of the cluster is."""
    racks = {"left": "a[1-2]", "right": "b[1-2]", "spine": "a[1-2],b[1-2]"}
    found = read_ibnetdiscover(RACKS)
    assert cells_under(RACKS) == racks
    assert found.warnings[0].startswith("store1: on switches that share few nodes")
    named = read_ibnetdiscover(RACKS, ("a1", "a2", "b1", "b2"))
    assert cells_under(RACKS, ("a1", "a2", "b1", "b2")) == racks
    assert (named.warnings, "store1: no nodes of Slurm, left out" in named.notes) == ((), True)
    assert cells_under(RACKS, ("a1", "a2", "b1", "b2", "store1"))["left,right"] == "a[1-2],b[1-2],store1"


def test_read_ibnetdiscover__rails_are_one_cell():
    """Leaves of which each holds most of the other's nodes, whoever else is on one of them."""
    assert cells_under(RAILS) == {"r[0-1]": "a[1-2],store1", "spine": "a[1-2],store1"}
    assert cells_under(RAILS, ("a1", "a2")) == {"r[0-1]": "a[1-2]", "spine": "a[1-2]"}


@pytest.mark.parametrize("system", ["", 'sysimgguid=0x{0}\ncaguid=0x{0}\nCa\t1 "H-{0}"\t\t# "{1} mlx5_0"\n\n'])
@pytest.mark.parametrize(("name", "told"), [("localhost", False), ("localhost.localdomain", False), ("node1", True)])
def test_read_ibnetdiscover__one_name_of_two_hosts_is_neither(name, told, system):
    """Hosts that were installed alike, or have no name yet, join nothing."""
    text = leaf("1", "left", "a1 a1 mlx5_0", f"c1 {name} mlx5_0") + leaf(
        "2", "right", "b1 b1 mlx5_0", f"c2 {name} mlx5_0"
    )
    text += "".join(system.format(guid, name) for guid in ("c1", "c2"))
    assert cells_under(text) == {"left": "a1", "right": "b1", "spine": "a1,b1"}
    words = ["node1: several hosts have this name, left out"] if told else []
    assert words == list(read_ibnetdiscover(text).warnings)


def test_read_ibnetdiscover__one_host_of_two_adapters_is_one():
    """Each card of a node has a GUID of its own."""
    cards = "".join(
        f'sysimgguid=0x{guid}\nCa\t1 "H-{guid}"\t# "a1 mlx5_{at}"\n\n' for at, guid in enumerate(("a1", "b1"))
    )
    assert cells_under(RAILS + cards, ("a1", "a2"))["r[0-1]"] == "a[1-2]"


def test_read_topology__ring_and_torus_of_26_05():
    """As scontrol prints them: one cell each, of a form of its own."""
    found = read_topology("RingName=r0 Nodes=n[1-8] RingSize=8\nRingName=r1 Nodes=n[9-16] RingSize=8\n")
    assert (found.kind, found.fabric.form, list(found.fabric.cell), found.warnings) == (
        "ring",
        "ring",
        ["r0", "r1"],
        (),
    )
    torus = read_topology("TorusName=t0 Dims=4x4x2 Nodes=n[1-32]\n")
    assert (torus.kind, torus.fabric.form, len(torus.fabric.node)) == ("torus3d", "torus3d", 32)


def test_read_ibnetdiscover__a_cut_answer_says_so():
    """A line of a port that ends too early is a warning; a switch without a part of its own a note."""
    text = (
        'Switch\t41 "S-0a"\t\t# "MF0;leaf01:M/U1" enhanced port 0 lid 3 lmc 0\n'
        '[1]\t"H-01"[1](01) \t\t# "node01 mlx5_0" lid 12 4xHDR\n[40]\t"S-0c"[1]\t\t# "MF0;spine:M/U1" lid 1 4xHDR\n'
    )
    whole, cut = read_ibnetdiscover(text), read_ibnetdiscover(text + '[2]\t"H-02"[1')
    assert (whole.warnings, len(cut.warnings)) == ((), 1)
    assert cut.warnings[0].startswith("1 line of ports cannot be read")
    assert whole.notes == cut.notes == ("no part of its own for spine: what else hangs there is not known",)
    router = 'Rt\t2 "R-05"\t\t# "router"\n[1](05) \t"S-0c"[39]\t\t# lid 50\n'
    assert read_ibnetdiscover(f'{text}[3]\t"R-05"[1](05)\n\n{router}').warnings == ()


def test_fabric_differences__missing_extra_moved():
    """Against Slurm: a node it lacks, one only it has, one in another cell."""
    now = read_topology(
        TREE.replace("p[5-14]", "p[6-14]").replace("p[1-4]", "p[1-5]").replace("p[21-30]", "p[21-29],q1")
    )
    assert [
        TopologyDifference("missing", "p30", "leaf4", ""),
        TopologyDifference("moved", "p5", "leaf2", "leaf1"),
        TopologyDifference("extra", "q1", "", "leaf4"),
    ] == list(fabric_differences(read_topology(TREE).fabric, now.fabric))
    assert list(fabric_differences(now.fabric, now.fabric)) == []


def test_fabric_differences__other_names_for_the_same_cells():
    """A fabric found by InfiniBand has names of its own: a cell is the one that holds most of its nodes."""
    renamed = read_topology(TREE.replace("leaf", "sw"))
    assert list(fabric_differences(renamed.fabric, read_topology(TREE).fabric)) == []

"""Nodes of a replay and their wiring, from words and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmsched.errors import ConfigError, InputError
from slurmsched.sim.cluster_layout import ClusterLayout, NodeSpec
from slurmsched.sim.ideal.cluster_hardware import ClusterHardware

NODES = ClusterLayout.of_gpus([8, 8, 4], ["v100", "v100", ""]).nodes
FILE = """
[topology]
fabric = "topology.conf"
[[topology.classes]]
name = "old"
nodes = "node[1-2]"
file = "dgx-1v"
[[topology.classes]]
name = "small"
nodes = "node3"
file = "topo.txt"
"""
TOPO = """\tGPU0\tGPU1\tGPU2\tGPU3
GPU0\t X \tNV2\tSYS\tSYS
GPU1\tNV2\t X \tSYS\tSYS
GPU2\tSYS\tSYS\t X \tNV2
GPU3\tSYS\tSYS\tNV2\t X
"""
SWITCHES = "SwitchName=leaf1 Nodes=node[1-2]\nSwitchName=leaf2 Nodes=node3\nSwitchName=top Switches=leaf[1-2]\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    for name, text in (("site.toml", FILE), ("topo.txt", TOPO), ("topology.conf", SWITCHES)):
        (tmp_path / name).write_text(text)
    return tmp_path / "site.toml"


def test_hardware__nodes_as_listed() -> None:
    """With names and types; nothing is known of their wiring."""
    made = ClusterHardware.of(NODES)
    assert list(made.nodes.name) == ["node1", "node2", "node3"]
    assert list(made.nodes.gpu_types) == ["gpu:v100:8", "gpu:v100:8", "gpu:4"]
    assert made.topology.classes == ()


def test_hardware__nodes_by_name_without_those_that_have_no_gpu() -> None:
    """Rows of a table of nodes ascend by name, however a file lists them."""
    made = ClusterHardware.of([NodeSpec("z", 2, 8), NodeSpec("cpu", 0, 64), NodeSpec("a", 4, 8)]).nodes
    assert list(zip(made.name, made.gpus.tolist(), strict=True)) == [("a", 4), ("z", 2)]


def test_hardware__of_a_machine() -> None:
    """Every node is one."""
    made = ClusterHardware.of(ClusterLayout.of_gpus([8] * 3).nodes, "dgx-1v").topology
    assert ([one.name for one in made.classes], made.node_class.tolist()) == (["dgx-1v"], [0, 0, 0])


def test_hardware__of_a_file(file: Path) -> None:
    """As the configuration has it; a class may be a known machine, and files lie beside it."""
    made = ClusterHardware.of(NODES, str(file)).topology
    assert ([one.name for one in made.classes], made.node_class.tolist()) == (["old", "small"], [0, 0, 1])
    assert [made.fabric.cell[cell] for cell in made.cell.tolist()] == ["leaf1", "leaf1", "leaf2"]


def test_hardware__refuses_a_name_of_nothing() -> None:
    """The machines there are are named."""
    with pytest.raises(ConfigError, match=r"topology: 'dgx-9' is no TOML file and no machine known by name \(dgx-1v, "):
        ClusterHardware.of(NODES, "dgx-9")


def test_hardware__refuses_a_machine_of_another_size() -> None:
    """The nodes that differ are named."""
    with pytest.raises(ConfigError, match="1 node like node3 with 4 GPUs, class dgx-1v has 8"):
        ClusterHardware.of(NODES, "dgx-1v")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("topo.txt", "gone.txt", "gone.txt: cannot be read"),
        ("topology.conf", "gone.conf", "gone.conf: cannot be read"),
        ('nodes = "node3"', 'nodes = "node3["', "is no hostlist"),
        ('nodes = "node[1-2]"', 'nodes = ""', "is no hostlist"),
        ("name =", "nome =", "topology.classes"),
    ],
)
def test_hardware__refuses_a_file_that_does_not_hold(file: Path, old: str, new: str, message: str) -> None:
    """What is wrong is named, and nothing is taken as unknown."""
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises((ConfigError, InputError), match=message):
        ClusterHardware.of(NODES, str(file))


def test_hardware__refuses_nodes_of_too_many_gpus() -> None:
    """The GPUs of a node are the bits of one number."""
    with pytest.raises(ConfigError, match="at most 63 a node, not 64"):
        ClusterHardware.of(ClusterLayout.of_gpus([64]).nodes)

"""Files of the known kinds that are written another way: key order, lists, aliases, includes, other encodings."""

from __future__ import annotations

import orjson
import pytest

from slurmsched.model import LinkKind
from slurmsched.slurm.wiring import read_file
from slurmsched.topology.links import links_of
from slurmsched.topology.reading import read_any, recognised

TREE = """\
- cluster_default: true
  topology: main
  tree:
    switches:
      - switch: root
        children: [s1, "s2"]
      - {nodes: [n1, "n[2-3]"], switch: s1}
      - switch: s2
        nodes: n[4-5]
"""
BLOCKS = (
    '[{"topology": "main", "cluster_default": true, "block": {"block_sizes": [2], '
    '"blocks": [{"block": "b1", "nodes": "n[1-2]"}]}}]'
)
# Each line holds nine of the one before: looked into, the last one would be 9**9 words.
BOMB = "- topology: main\n  cluster_default: true\n  a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"  a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
)


def fabric(text: str) -> dict[str, str]:
    """Node -> its lowest cell."""
    (found,) = read_any(text).fabrics
    cells = found.fabric
    return {node: cells.cell[cell] for node, cell in zip(cells.node, cells.node_cell.tolist(), strict=True)}


def test_topology_yaml__keys_in_any_order_and_names_as_lists():
    """YAML has no order of keys; names may be a list, of hostlists too."""
    assert fabric(TREE) == {"n1": "s1", "n2": "s1", "n3": "s1", "n4": "s2", "n5": "s2"}


def test_topology_yaml__as_json():
    """JSON is YAML."""
    assert recognised(BLOCKS) == "topology.yaml"
    assert fabric(BLOCKS) == {"n1": "b1", "n2": "b1"}


def test_topology_yaml__aliases_that_grow_are_not_looked_into():
    """A warning of one line, at once."""
    found = read_any(f"{BOMB}  tree:\n    switches:\n      - switch: s1\n        nodes: *a8\n")
    assert any("a value is not a hostlist" in warning for warning in found.warnings)
    assert max(map(len, found.warnings)) < 200


@pytest.mark.parametrize(
    ("line", "gpus"),
    [
        ("Type=a100 Name=gpu File=/dev/nvidia[0-3] Cores=0-15", 4),
        ("NodeName=n[1-2] Type=a100 Name=gpu File=/dev/nvidia[0-3] CPUs=0,2,4", 4),
        ("File=/dev/nvidia0,/dev/nvidia1 Name=gpu", 2),
        ("NodeName=n1 AutoDetect=nvml Name=gpu", 0),
        ("NodeName=n1 AutoDetect=nvml Name=gpu Count=4", 4),
        ("NodeName=n1 AutoDetect=off Name=gpu File=/dev/nvidia[0-1]", 2),
        ("Name=gpu Count=4", 4),
    ],
)
def test_gres_conf__keys_in_any_order(line, gpus):
    """The line tells its kind wherever Name stands; what is only detected has no number."""
    found = read_any(line)
    assert found.kind == "gres.conf"
    assert [one.topology.gpus for one in found.classes] == [gpus]


def test_gres_conf__render_nodes_have_numbers_from_128_on():
    """AMD's device files: no gap is told where there is none."""
    whole, gap = "Name=gpu File=/dev/dri/renderD[128-129]", "Name=gpu File=/dev/dri/renderD[128,130]"
    assert read_any(whole).notes == ()
    assert read_any(gap).notes == ("every node: index 1 is /dev/dri/renderD130: device numbers have a gap",)


PAIRS = {(0, 1): ("15", "1", "XGMI"), (0, 2): ("72", "3", "PCIE"), (1, 2): ("30", "1", "XGMI")}
ROCM = {
    "card0": {"Device Name": "AMD Instinct", "(Topology) Numa Node": "0", "(Topology) Numa Affinity": "0"},
    "card1": {"(Topology) Numa Node": 0, "(Topology) Numa Affinity": 0},
    "card2": {"(Topology) Numa Node": "1", "(Topology) Numa Affinity": "1"},
    "system": {
        f"(Topology) {what} between DRM devices {i} and {j}": cell
        for (i, j), cells in PAIRS.items()
        for what, cell in zip(("Weight", "Hops", "Link type"), cells, strict=True)
    },
}


@pytest.mark.parametrize("indent", [0, orjson.OPT_INDENT_2])
def test_rocm_smi__as_json(indent):
    """`--showtopo --json`: each pair once, NUMA nodes by card, numbers as texts or not."""
    found = read_any(orjson.dumps(ROCM, option=indent).decode())
    assert found.kind == "rocm-smi"
    (one,) = found.classes
    assert list(links_of(one.topology)) == [
        (0, 1, LinkKind.XGMI, 1), (0, 2, LinkKind.SYS, 0), (1, 2, LinkKind.XGMI, 0)
    ]  # fmt: skip
    assert (one.topology.numa.tolist(), found.warnings) == ([0, 0, 1], ())


def test_rocm_smi__as_json_of_one_kind():
    """`--showtopotype --json`: nothing tells which XGMI links are direct, nor the NUMA nodes."""
    only = {"system": {key: cell for key, cell in ROCM["system"].items() if "Link type" in key}}
    found = read_any(orjson.dumps(only).decode())
    (one,) = found.classes
    assert found.kind == "rocm-smi"
    assert {link[2:] for link in links_of(one.topology)} == {(LinkKind.XGMI, 0)}


def test_slurm_conf__a_part_with_nodes_only():
    """What a site includes; gres.conf lines name nodes and CPUs too."""
    assert read_any("NodeName=n[1-2] CPUs=64 Gres=gpu:a100:8 State=UNKNOWN\n").gpus == {"n1": 8, "n2": 8}
    assert recognised("NodeName=n1 Name=gpu File=/dev/nvidia0 CPUs=0-3\n") == "gres.conf"


def test_read_file__includes_with_wildcards(tmp_path):
    """By name; one that is not there is told."""
    (tmp_path / "gres.d").mkdir()
    for node in ("b", "a"):
        text = f"NodeName={node} Name=gpu File=/dev/nvidia[0-1] Type={node}\n"
        (tmp_path / "gres.d" / f"{node}.conf").write_text(text)
    (tmp_path / "gres.conf").write_text("Include gres.d/*.conf\nInclude other/*.conf\n")
    found = read_file(tmp_path / "gres.conf", "gres.conf")
    assert [one.nodes for one in found.classes] == [("a",), ("b",)]
    assert found.warnings == ("other/*.conf is included, but cannot be read from here",)


def test_read_file__as_powershell_writes_it(tmp_path):
    """UTF-16."""
    path = tmp_path / "topo.txt"
    path.write_text("\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n", encoding="utf-16")
    assert read_file(path).classes[0].topology.gpus == 2

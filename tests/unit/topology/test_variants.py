"""Files of the known kinds that are written another way: key order, lists, aliases, includes, other encodings."""

from __future__ import annotations

import orjson
import pytest

from slurmsched.model import LinkKind
from slurmsched.slurm.topology_sources import read_file
from slurmsched.topology.gpu_links import links_of
from slurmsched.topology.topology_files import kind_of_text, read_topology_text

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
    (found,) = read_topology_text(text).fabrics
    cells = found.fabric
    return {node: cells.cell[cell] for node, cell in zip(cells.node, cells.node_cell.tolist(), strict=True)}


def test_topology_yaml__keys_in_any_order_and_names_as_lists():
    """YAML has no order of keys; names may be a list, of hostlists too."""
    assert fabric(TREE) == {"n1": "s1", "n2": "s1", "n3": "s1", "n4": "s2", "n5": "s2"}


def test_topology_yaml__as_json():
    """JSON is YAML."""
    assert kind_of_text(BLOCKS) == "topology.yaml"
    assert fabric(BLOCKS) == {"n1": "b1", "n2": "b1"}


def test_topology_yaml__aliases_that_grow_are_not_looked_into():
    """A warning of one line, at once."""
    found = read_topology_text(f"{BOMB}  tree:\n    switches:\n      - switch: s1\n        nodes: *a8\n")
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
    found = read_topology_text(line)
    assert found.kind == "gres.conf"
    assert [one.topology.gpus for one in found.classes] == [gpus]


def test_gres_conf__render_nodes_have_numbers_from_128_on():
    """AMD's device files: a gap is told where their numbers do not ascend evenly."""
    line = "Name=gpu File=/dev/dri/renderD[{}]"
    for even in ("128-129", "128,130", "129-136", "128,136,144,152"):
        assert read_topology_text(line.format(even)).notes == (), even
    gap = read_topology_text(line.format("128,136,152")).notes
    assert gap == ("every node: index 1 is /dev/dri/renderD136, and 1 other differs too: device numbers have a gap",)
    turned = "\n".join(line.format(number) for number in (129, 128))
    assert "not in their numbers' order" in read_topology_text(turned).notes[0]


def test_gres_conf__one_note_a_file_tells_of_gaps():
    """However many GPUs and kinds of node have one."""
    one, other = "Name=gpu File=/dev/nvidia[0,2-7]", "Name=gpu File=/dev/nvidia[0,2]"
    assert read_topology_text(f"NodeName=a {one}\nNodeName=b {other}\n").notes == (
        "a: index 1 is /dev/nvidia2, and 5 others differ too: device numbers have a gap (so on 1 more kind of node)",
    )
    assert read_topology_text(other).notes == ("every node: index 1 is /dev/nvidia2: device numbers have a gap",)


@pytest.mark.parametrize("label", ["gpu", "Gpu"])
def test_nvidia_smi__labels_in_any_case(label):
    """The same matrix, on a host whose name looks like a label too."""
    text = ("root@gpu0:~# nvidia-smi topo -m\n\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\n"
            "GPU0\t X \tNV12\tPIX\t0-15\t0\nGPU1\tNV12\t X \tSYS\t16-31\t1\nNIC0\tPIX\tSYS\t X \n")  # fmt: skip
    (expected,), (found,) = read_topology_text(text).classes, read_topology_text(text.replace("GPU", label)).classes
    assert (found.topology.gpus, found.topology.warnings) == (2, ())
    for name in ("kind", "lanes", "numa"):
        assert getattr(found.topology, name).tolist() == getattr(expected.topology, name).tolist(), name
    assert found.topology.nics == expected.topology.nics


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
    found = read_topology_text(orjson.dumps(ROCM, option=indent).decode())
    assert found.kind == "rocm-smi"
    (one,) = found.classes
    assert list(links_of(one.topology)) == [
        (0, 1, LinkKind.XGMI, 1), (0, 2, LinkKind.SYS, 0), (1, 2, LinkKind.XGMI, 0)
    ]  # fmt: skip
    assert (one.topology.numa.tolist(), found.warnings) == ([0, 0, 1], ())


def test_rocm_smi__as_json_of_one_kind():
    """`--showtopotype --json`: nothing tells which XGMI links are direct, nor the NUMA nodes."""
    only = {"system": {key: cell for key, cell in ROCM["system"].items() if "Link type" in key}}
    found = read_topology_text(orjson.dumps(only).decode())
    (one,) = found.classes
    assert found.kind == "rocm-smi"
    assert {link[2:] for link in links_of(one.topology)} == {(LinkKind.XGMI, 0)}


def test_slurm_conf__a_part_with_nodes_only():
    """What a site includes; gres.conf lines name nodes and CPUs too."""
    assert read_topology_text("NodeName=n[1-2] CPUs=64 Gres=gpu:a100:8 State=UNKNOWN\n").gpus == {"n1": 8, "n2": 8}
    assert kind_of_text("NodeName=n1 Name=gpu File=/dev/nvidia0 CPUs=0-3\n") == "gres.conf"


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


AMD_SMI = """ACCESS TABLE:
             0000:05:00.0 0000:26:00.0 0000:46:00.0
0000:05:00.0 ENABLED      ENABLED      ENABLED
WEIGHT TABLE:
             0000:05:00.0 0000:26:00.0 0000:46:00.0
0000:05:00.0 0            15           40
0000:26:00.0 15           0            72
0000:46:00.0 40           72           0
HOPS TABLE:
             0000:05:00.0 0000:26:00.0 0000:46:00.0
0000:05:00.0 0            1            2
0000:26:00.0 1            0            3
0000:46:00.0 2            3            0
LINK TYPE TABLE:
             0000:05:00.0 0000:26:00.0 0000:46:00.0
0000:05:00.0 SELF         XGMI         PCIE
0000:26:00.0 XGMI         SELF         PCIE
0000:46:00.0 PCIE         PCIE         SELF
NUMA BW TABLE:
             0000:05:00.0 0000:26:00.0 0000:46:00.0
0000:05:00.0 N/A          50000-50000  N/A

Legend:
  SELF = Current GPU
"""


def test_amd_smi__topology_is_read_as_rocm_smis_tables():
    """GPUs are numbered in the order of its columns."""
    found = read_topology_text(AMD_SMI)
    assert (found.kind, found.warnings) == ("rocm-smi", ())
    assert list(links_of(found.classes[0].topology)) == [
        (0, 1, LinkKind.XGMI, 1), (0, 2, LinkKind.NODE, 0), (1, 2, LinkKind.SYS, 0),
    ]  # fmt: skip


def test_amd_smi__cut_in_its_last_table():
    """The row that is cut says nothing, the others still do."""
    found = read_topology_text(AMD_SMI[: AMD_SMI.index("PCIE         SELF\nNUMA")])
    assert found.warnings == ("table of type: rows cut, damaged or missing: GPU2",)
    assert len(list(links_of(found.classes[0].topology))) == 3


NVLINKS = """\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV18\tPIX\t0-47\t0
GPU1\tNV18\t X \tSYS\t48-95\t1
NIC0\tPIX\tSYS\t X \t\t

Legend:

  X    = Self

NIC Legend:

  NIC0: mlx5_bond_0
"""


def test_nvidia_smi__legend_of_nics_behind_srun_l():
    """Each line begins with the task's number; what the second task said is left out."""
    lines = [f"{task}: {line}" for line in NVLINKS.splitlines() for task in (0, 1)]
    found = read_topology_text("\n".join(lines))
    assert (found.nic_names, found.warnings) == ({"NIC0": "mlx5_bond_0"}, ())


@pytest.mark.parametrize("junk", ["\0", "\x07", "\x0f", "\x7f"])
def test_nvidia_smi__control_characters_are_no_part_of_a_label(junk):
    """A row keeps its name whatever a terminal or a bad disk put in front of it."""
    found = read_topology_text(NVLINKS.replace("GPU1\tNV18", f"{junk}GPU1\tNV18"))
    assert found.warnings == ()
    assert found.classes[0].topology.nics == (("NIC0",), ())


def test_nvidia_smi__a_gpu_whose_row_lost_its_name_is_told():
    """The row counts as that of some other device; the GPU is not lost without a word."""
    found = read_topology_text(NVLINKS.replace("GPU1\tNV18", "PU1\tNV18"))
    assert found.warnings == ("the head names GPU1, no row does: the file is damaged",)


def test_nvidia_smi__a_label_that_is_no_gpu_is_no_nic_by_nvlink():
    """NICs hang on PCIe; a damaged label must not become one that is nearer than all."""
    found = read_topology_text(NVLINKS.replace("GPU1", "GPX1").replace("SYS", "NV18"))
    assert found.classes[0].topology.nics == (("NIC0",),)


@pytest.mark.parametrize(
    ("count", "gpus", "told"), [("2", 2, 0), ("1K", 64, 1), ("1k", 64, 1), ("4M", 0, 1), ("x", 0, 1)]
)
def test_gres_conf__count_with_a_suffix(count, gpus, told):
    """K is 1024 in Slurm; what is no number of GPUs gives none, with a warning."""
    found = read_topology_text(f"Name=gpu Type=h100 Count={count}\n")
    assert (sum(one.topology.gpus for one in found.classes), len(found.warnings)) == (gpus, told)


def test_gres_conf__autodetect_alone_says_what_to_import():
    """The most common file of all tells nothing of GPUs; not an empty answer without a word."""
    (note,) = read_topology_text("AutoDetect=nvml\n").notes
    assert note.startswith("AutoDetect=nvml finds links on the node only")
    assert read_topology_text("AutoDetect=off\n").notes == ()


def test_topology_conf__nodes_of_a_switch_that_has_switches():
    """Nodes that none of its switches holds are told; those that scontrol repeats there are no fault."""
    text = "SwitchName=top Switches=a Nodes={}\nSwitchName=a Nodes=n[1-2]\n"
    assert read_topology_text(text.format("n[2-4]")).warnings == (
        "line 1: n[3-4] of top are under none of its switches; left out",
    )
    assert read_topology_text(text.format("n[1-2]")).warnings == ()
    assert read_topology_text("SwitchName=a Level=0 Nodes=n1 Switches=(null)\n").warnings == ()
    empty = "SwitchName=a Level=0 Nodes=n1 Switches=(null)\nSwitchName=top Level=1 Nodes=(null) Switches=a\n"
    assert read_topology_text(empty).warnings == ()


GB200 = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV18\tNV18\tNV18\tNODE\tSYS\t0-71\t0,2-17\t\tN/A
GPU1\tNV18\t X \tNV18\tNV18\tNODE\tSYS\t0-71\t0,2-17\t\tN/A
GPU2\tNV18\tNV18\t X \tNV18\tSYS\tNODE\t72-143\t1,18-33\t\tN/A
GPU3\tNV18\tNV18\tNV18\t X \tSYS\tNODE\t72-143\t1,18-33\t\tN/A
NIC0\tNODE\tNODE\tSYS\tSYS\t X \tSYS\t\t\t\t
NIC1\tSYS\tSYS\tNODE\tNODE\tSYS\t X \t\t\t\t

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
"""


@pytest.mark.parametrize("change", [str, str.expandtabs, lambda text: "\x1b[4m" + text.replace("ID\n", "ID\x1b[0m\n")])
def test_nvidia_smi__numa_nodes_beside_memory_nodes_and_gpu_numa_ids(change):
    """A GPU of Grace is near several NUMA nodes, of which all but the first are GPU memory: GPUs of one list share a
    number. Written with tabs, with blanks, and with the header underlined as on a terminal."""
    found = read_topology_text(change(GB200))
    (one,) = found.classes
    assert (one.topology.gpus, one.topology.numa.tolist(), found.warnings) == (4, [0, 0, 1, 1], ())
    assert {lanes for _, _, kind, lanes in links_of(one.topology) if kind == LinkKind.NVLINK} == {18}
    assert len(list(links_of(one.topology))) == 6


def test_nvidia_smi__one_gpu_and_its_memory_node():
    """GH200: no links, and the GPU's own memory node is not its CPU's."""
    text = (
        "\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tSYS\t0-71\t0\t\t1\nNIC0\tSYS\t X \t\t\t\n"
    )
    (one,) = read_topology_text(text).classes
    assert (one.topology.gpus, one.topology.numa.tolist()) == (1, [0])


B200 = """\
GPU Topology:
        GPU0    GPU1    NIC9    NIC10   NIC11NIC12    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV18    NODE    NODE    PIX  NODE     0-15    0               N/A
GPU1    NV18     X      NODE    PIX     NODE NODE     0-15    0               N/A
NIC9    NODE    NODE     X      NODE    NODE NODE
NIC10   NODE    PIX     NODE     X      NODE NODE
NIC11   PIX     NODE    NODE    NODE     X   NODE
NIC12   NODE    NODE    NODE    NODE    NODE  X
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_nvidia_smi__labels_of_two_figures_run_together(end):
    """NICs from the tenth on leave no blank between two labels of the header; each GPU keeps its own."""
    found = read_topology_text(B200.replace("\n", end))
    (one,) = found.classes
    assert (found.warnings, one.topology.numa.tolist()) == ((), [0, 0])
    assert [nics[0] for nics in one.topology.nics] == ["NIC11", "NIC10"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_gres_conf__continued_lines_and_devices_of_several_files(end):
    """A line that goes on after a backslash, a comment behind it; a MIG device is one GPU of three files."""
    text = (
        "NodeName=d[01-02] Name=gpu Type=h100 File=/dev/nvidia[0-3] \\\n  Cores=0-55  # near\n"
        "NodeName=d[01-02] Name=gpu Type=h100 File=/dev/nvidia[4-7] Cores=56-111 Flags=nvidia_gpu_env\n"
        "NodeName=m1 Name=gpu Type=1g MultipleFiles=/dev/nvidia-caps/nvidia-cap21,"
        "/dev/nvidia-caps/nvidia-cap22,/dev/nvidia0\n"
    )
    found = read_topology_text(text.replace("\n", end))
    assert ([one.topology.gpus for one in found.classes], found.warnings) == ([8, 1], ())
    assert found.classes[0].topology.numa.tolist() == [0] * 4 + [1] * 4
    assert len(found.classes[1].devices[0].files) == 3


def test_topology_yaml__three_topologies():
    """A tree, blocks whose sizes are a list in lines, and a flat one; the default is the one that says so."""
    text = (
        f"---\n{TREE}- topology: gb\n  cluster_default: false\n  block:\n    block_sizes:\n      - 4\n      - 16\n"
        "    blocks:\n      - block: b1\n        nodes: n[1-4]\n- topology: rest\n  flat: true\n"
    )
    found = read_topology_text(text)
    assert [(one.kind, one.name, one.fabric.block_sizes) for one in found.fabrics] == [
        ("tree", "main", ()), ("block", "gb", (4, 16)), ("flat", "rest", ())]  # fmt: skip
    assert ([one.default for one in found.fabrics], found.warnings) == ([True, False, False], ())

"""The topology of a site: rows of nodes to classes and cells."""

from __future__ import annotations

from slurmsched.model import Nodes
from slurmsched.topology.fabric_files import read_topology
from slurmsched.topology.gres_conf import read_gres_conf
from slurmsched.topology.nvidia_smi import read_topo
from slurmsched.topology.site_topology import (
    TopologyDifference,
    TopologyFacts,
    gpu_differences,
    link_groups,
    link_matrix,
    site_topology,
    topology_file_record,
    topology_svg,
)
from slurmsched.topology.topology_files import NodeClass, read_topology_text

PAIR = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\t0-7\t0\nGPU1\tNV4\t X \t8-15\t1\n"
GRES = "NodeName=n[3-4] Name=gpu Type=a40 File=/dev/nvidia[0-3]\nNodeName=gone Name=gpu Count=1\n"


def nodes() -> Nodes:
    """n1, n2: 2 GPUs; n3: 4; n4: 3 of 4; n5: 8 that no file knows; n6: none."""
    gpus = [2, 2, 4, 3, 8, 0]
    types = [f"gpu:a6000:{count}" if count == 2 else f"gpu:{count}" if count else "" for count in gpus]
    return Nodes.build(6, {"name": [f"n{i}" for i in range(1, 7)], "gpus": gpus, "gpu_types": types})


def classes() -> tuple[NodeClass, ...]:
    gres = read_topology_text(GRES, "gres.conf")
    return (NodeClass(read_topo(PAIR, "pair"), ("n1", "n2", "n9")), *gres.classes)


def test_site_topology__each_node_its_class_and_cell():
    """By name; another number of GPUs, and a node nobody tells of, stay unknown; the type is Slurm's."""
    fabric = read_topology("SwitchName=a Nodes=n[1-3]\nSwitchName=b Nodes=n[4-5]\nSwitchName=c Switches=a,b")
    site, warnings = site_topology(nodes(), TopologyFacts(classes(), fabric))
    assert site.node_class.tolist() == [0, 0, 1, -1, -1, -1]
    assert site.cell.tolist() == [0, 0, 0, 1, 1, -1]
    assert [one.name for one in site.classes] == ["pair", "n[3-4]"]
    assert (site.classes[0].gpu_type, site.classes[0].bandwidth_gb_per_s[0, 1]) == ("a6000", 56.25)
    assert warnings == ("1 node like n4 with 3 GPUs, class n[3-4] has 4: taken as unknown",)


def test_site_topology__nothing_known():
    """No sources: every node is of no class and in no cell."""
    site, warnings = site_topology(nodes(), TopologyFacts())
    assert (site.classes, site.node_class.tolist(), site.cell.tolist(), warnings) == ((), [-1] * 6, [-1] * 6, ())


def test_site_topology__the_first_class_counts_and_one_without_nodes_is_for_the_rest():
    """Lines of gres.conf without NodeName hold for every node with so many GPUs."""
    rest = read_topology_text("Name=gpu File=/dev/nvidia[0-7]", "gres.conf").classes
    site, _ = site_topology(nodes(), TopologyFacts((*classes(), *rest)))
    assert site.node_class.tolist() == [0, 0, 1, -1, 2, -1]


def test_gpu_differences__missing_extra_and_counts():
    """A node that Slurm does not have, one that no file tells of, one with fewer GPUs."""
    assert [
        TopologyDifference("missing", "gone", "class gone", ""),
        TopologyDifference("missing", "n9", "class pair", ""),
        TopologyDifference("gpus", "n4", "4 GPUs", "3 GPUs"),
        TopologyDifference("extra", "n5", "", "8 GPUs"),
    ] == list(gpu_differences(nodes(), classes()))


def test_record__the_plain_values():
    """Links as [i, j, kind, lanes], unknown NUMA nodes as null, NICs by GPU."""
    found = topology_file_record(
        read_topology_text("\tGPU0\tGPU1\tNIC0\nGPU0\tX\tPIX\tPIX\nGPU1\tPIX\tX\tPIX\nNIC0\tPIX\tPIX\tX\n")
    )
    assert found["links"] == [[0, 1, "PIX", 0]]
    assert (
        found["kind"], found["gpus"], found["numa"], found["pcie_groups"],
    ) == ("nvidia-smi", 2, [None, None], [[0, 1]])  # fmt: skip
    assert found["nics"] == [{"NIC0": "PIX"}, {"NIC0": "PIX"}]
    many = topology_file_record(read_topology_text(GRES))
    assert (many["gpus"], [one["nodes"] for one in many["classes"]]) == (None, ["n[3-4]", "gone"])
    assert many["classes"][0]["devices"] == [["/dev/nvidia0"], ["/dev/nvidia1"], ["/dev/nvidia2"], ["/dev/nvidia3"]]


def test_picture__matrix_groups_and_svg():
    """What is not known of any GPU has no column; the picture has a dot a GPU and a line a wired link."""
    node = read_topo(PAIR, "<pair>", "a6000")
    assert link_matrix(node) == (["", "GPU0", "GPU1", "NUMA"], [["GPU0", "X", "NV4", "0"], ["GPU1", "NV4", "X", "1"]])
    assert list(link_groups(node)) == ["NUMA 0: GPU0", "NUMA 1: GPU1", "NV4 (56.25 GB/s each way): 0-1"]
    drawn = topology_svg(node)
    assert (drawn.count("<circle"), drawn.count("<line"), "&lt;pair&gt;" in drawn) == (2, 1, True)


def test_picture__xgmi_over_another_gpu_in_brackets():
    """Of a chain of three, by weight; without weights none is known to be direct, and all are called the same."""

    def table(title: str, *cells: str) -> str:
        rows = (" ".join(cells[3 * at : 3 * at + 3]) for at in range(3))
        return f"=== {title} between two GPUs ===\n GPU0 GPU1 GPU2\n" + "".join(
            f"GPU{at} {row}\n" for at, row in enumerate(rows))  # fmt: skip

    kinds = table("Link Type", "0", "XGMI", "XGMI", "XGMI", "0", "XGMI", "XGMI", "XGMI", "0")
    node = (
        read_topology_text(table("Weight", "0", "15", "30", "15", "0", "15", "30", "15", "0") + kinds)
        .classes[0]
        .topology
    )
    assert link_matrix(node)[1][0] == ["GPU0", "X", "XGMI", "(XGMI)"]
    assert list(link_groups(node)) == ["XGMI: 0-1 1-2", "(XGMI): 0-2"]
    assert topology_svg(node).count("<title>(XGMI)</title>") == 1
    assert list(link_groups(read_topology_text(kinds).classes[0].topology)) == ["XGMI: every pair"]


def test_picture__no_gpu_at_all():
    """An empty class draws an empty picture."""
    node = read_gres_conf("NodeName=a AutoDetect=nvml").classes()[0].topology
    assert link_matrix(node) == ([""], [])
    assert topology_svg(node).endswith("</svg>\n")

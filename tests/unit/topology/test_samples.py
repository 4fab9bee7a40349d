"""Every public sample gives the reading that a person gives it."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from slurmsched.model import GpuTopology, LinkKind
from slurmsched.topology.fabrics import nodes_under
from slurmsched.topology.gpu_links import links_of
from slurmsched.topology.topology_files import TopologyFile, read_topology_text
from slurmsched.topology.topology_text import fold_names
from tests.unit.topology import expected

SAMPLES = Path(__file__).parent / "samples"
LISTED = (LinkKind.NVLINK, LinkKind.XGMI, LinkKind.PIX)
SHORT = {LinkKind.NVLINK: "NV"}


def reading(file: str) -> TopologyFile:
    return read_topology_text((SAMPLES / file).read_text())


def listed(node: GpuTopology, kinds: set[str]) -> dict[str, set[tuple[int, int]]]:
    """Pairs by link, of wired links and of the kinds that are asked for."""
    found: dict[str, set[tuple[int, int]]] = {}
    for i, j, kind, lanes in links_of(node):
        if kind in LISTED or kind.name in kinds:
            found.setdefault(f"{SHORT.get(kind, kind.name)}{lanes or ''}", set()).add((i, j))
    return found


def pairs(text: str, gpus: int) -> set[tuple[int, int]]:
    if text == "all":
        return set(combinations(range(gpus), 2))
    return {(int(i), int(j)) for i, _, j in (pair.partition("-") for pair in text.split())}


def nics(text: str, gpus: int) -> list[list[str]]:
    found: list[list[str]] = [[] for _ in range(gpus)]
    for part in filter(None, text.split("; ")):
        gpu, *names = part.split()
        found[int(gpu)] = names
    return found


@pytest.mark.parametrize("file", expected.WIRED)
def test_read_any__a_node_as_a_person_reads_it(file):
    """GPUs, links and lanes, NUMA nodes, nearest NICs; a warning for what is missing, and only for that."""
    gpus, links, numa, near, warnings = expected.WIRED[file]
    (found,) = reading(file).classes
    node = found.topology
    assert gpus == node.gpus
    assert {link: pairs(text, gpus) for link, text in links.items()} == listed(node, set(links))
    assert (numa or [-1] * gpus) == node.numa.tolist()
    told = [[f"{nic}:{kind.name}" for nic, kind in zip(*of_gpu, strict=True)] for of_gpu in
            zip(node.nics, node.nic_kinds or ((),) * gpus, strict=True)]  # fmt: skip
    assert nics(near, gpus) == told
    assert len(warnings) == len(node.warnings)
    assert all(words in text for words, text in zip(warnings, node.warnings, strict=True))
    assert node.on_fabric.all()


@pytest.mark.parametrize("file", expected.SWITCHES)
def test_read_any__switch_groups(file):
    """GPUs that share one PCIe switch, by links between them or by a NIC on the same switch."""
    assert expected.SWITCHES[file] == reading(file).classes[0].topology.pcie_group.tolist()


@pytest.mark.parametrize("file", expected.DEVICES)
def test_read_any__gres_conf_by_class_of_node(file):
    """Nodes with equal GPUs are one class; device numbers may have gaps; detected GPUs are not known here."""
    found = reading(file)
    assert expected.DEVICES[file] == {
        one.topology.name: [device.number for device in one.devices] for one in found.classes
    }
    assert found.warnings == ()


@pytest.mark.parametrize("file", expected.FABRICS)
def test_read_any__reads_cells_with_their_nodes(file):
    """Cells with their level and the nodes under them."""
    kind, cells, count, nodes = expected.FABRICS[file]
    (found,) = reading(file).fabrics
    under = nodes_under(found.fabric)
    levels = dict(zip(found.fabric.cell, found.fabric.level.tolist(), strict=True))
    assert (kind, count, nodes) == (found.kind, len(found.fabric.cell), len(found.fabric.node))
    assert cells == {cell: (levels[cell], fold_names(under[cell])) for cell in cells}
    assert found.warnings == ()


def test_read_any__topology_yaml_has_six():
    """Kinds tree, block, flat in two spellings, ring and torus3d; one is the cluster's default."""
    found = reading("062-topology-multi.yaml")
    kinds = ["tree", "block", "flat", "flat", "ring", "torus3d"]
    assert kinds == [one.kind for one in found.fabrics]
    assert [one.name for one in found.fabrics if one.default] == ["topo1"]
    assert [len(one.fabric.cell) for one in found.fabrics] == [3, 5, 0, 0, 2, 1]
    assert found.warnings == ()


def test_read_any__mig_devices_are_apart():
    """`nvidia-smi -L` beside the matrix tells the model, and which GPUs MIG cuts up."""
    (found,) = reading("032-h100-mig-ansi-escapes.txt").classes
    assert (found.topology.mig.tolist(), found.topology.gpu_type) == ([True], "NVIDIA H100 80GB HBM3")
    (logged,) = reading("067-slurmd-log-links-mig.txt").classes
    assert logged.topology.mig.tolist() == [False, False, False, True, True, True, False]


def test_read_any__legends_and_domains():
    """The NIC legend gives device names; a comment above a block its NVLink domain; rails their leaf switches."""
    assert reading("033-x2-4nic-roce-names.txt").nic_names["NIC2"] == "rocep137s0f0"
    assert reading("063-topology-block-rack-comments.conf").fabrics[0].domains["rack21"] == "nvl-2-1"
    leaves = reading("070-ibnetdiscover-3leaf-snippet.txt").fabrics[0].leaves
    assert leaves["leaf02"] == leaves["leaf03"] == ("node006", "node007", "node008", "node009")


def test_read_any__slurm_conf_that_does_not_account_for_gpus():
    """GPUs of each node, and a note that sacct cannot see them."""
    found = reading("068-slurm-conf-gpu-8way.conf")
    assert found.gpus == {"gpu-01": 8, "gpu-02": 8}
    assert "AccountingStorageTRES lacks gres/gpu" in found.notes[0]


def test_samples__each_has_a_reading():
    """No sample is left out of these tests."""
    known = {
        *expected.WIRED,
        *expected.DEVICES,
        *expected.FABRICS,
        "062-topology-multi.yaml",
        "068-slurm-conf-gpu-8way.conf",
    }
    assert known == {path.name for path in SAMPLES.iterdir() if path.suffix in (".txt", ".conf", ".yaml")}

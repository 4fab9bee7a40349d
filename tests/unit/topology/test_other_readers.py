"""rocm-smi, slurmd's log and slurm.conf: what the samples do not show."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmsched.model import LinkKind
from slurmsched.topology.gpu_links import links_of
from slurmsched.topology.rocm_smi import read_showtopo
from slurmsched.topology.slurm_conf import read_slurm_conf
from slurmsched.topology.slurmd_log import read_slurmd_log

RECORDED = Path(__file__).parent / "recorded"


def table(title: str, rows: list[str]) -> str:
    head = "      " + " ".join(f"GPU{i}" for i in range(len(rows)))
    return "\n".join([f"==== {title} ====", head, *(f"GPU{i} {row}" for i, row in enumerate(rows)), ""])


TYPES = table("Link Type between two GPUs", ["0 XGMI XGMI", "XGMI 0 XGMI", "XGMI XGMI 0"])


def test_read_showtopo__weight_tells_direct_links_from_two_in_a_row():
    """Hops say 1 for both; a weight of 30 is two links over another GPU: XGMI without lanes of its own."""
    weights = table("Weight between two GPUs", ["0 15 30", "15 0 15", "30 15 0"])
    node = read_showtopo(
        weights + table("Hops between two GPUs", ["0 1 1", "1 0 1", "1 1 0"]) + TYPES, gpu_type="mi250"
    )
    assert list(links_of(node)) == [(0, 1, LinkKind.XGMI, 1), (0, 2, LinkKind.XGMI, 0), (1, 2, LinkKind.XGMI, 1)]
    assert (node.bandwidth_gb_per_s[0, 1], node.bandwidth_gb_per_s[0, 2]) == (50.0, 0.0)
    assert node.on_fabric.all()


def test_read_showtopo__pcie_by_numa_node_where_hops_are_missing():
    """One NUMA node is NODE, two are SYS, an unknown one (-1) is unknown."""
    numa = "".join(f"GPU[{i}]\t\t: (Topology) Numa Node: {node}\n" for i, node in enumerate((0, 0, 1, -1)))
    rows = ["0 PCIE PCIE PCIE", "PCIE 0 PCIE PCIE", "PCIE PCIE 0 PCIE", "PCIE PCIE PCIE 0"]
    node = read_showtopo(table("Link Type between two GPUs", rows) + "==== Numa Nodes ====\n" + numa)
    assert {(i, j): kind.name for i, j, kind, _ in links_of(node)} == {(0, 1): "NODE", (0, 2): "SYS", (1, 2): "SYS"}
    assert node.numa.tolist() == [0, 0, 1, -1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no table of link types"),
        (TYPES.replace("GPU2 XGMI XGMI 0", "GPU2 XGMI"), "damaged or missing: GPU2"),
        ("==== Link Type between two GPUs ====\n==== End ====", "cannot be read"),
    ],
)
def test_read_showtopo__says_what_is_missing(text, words):
    """A table that is cut or absent is told."""
    assert words in " ".join(read_showtopo(text).warnings)


@pytest.mark.parametrize("version", ["24.11.5", "26.05.5"])
def test_read_slurmd_log__slurmd_g(version):
    """`slurmd -G` of the lab's nodes: the Links and Cores of its gres.conf."""
    node = read_slurmd_log((RECORDED / f"{version}-slurmd.txt").read_text())
    assert (node.gpus, node.gpu_type, node.numa.tolist()) == (8, "a100", [0, 0, 0, 0, 1, 1, 1, 1])
    assert {(0, 1), (2, 3), (4, 5), (6, 7)} == {(i, j) for i, j, _, lanes in links_of(node) if lanes == 4}
    assert node.warnings == ()


def test_read_slurmd_log__a_restart_tells_all_again():
    """A device that is told twice counts once, as told last."""
    text = (RECORDED / "26.05.5-slurmd.txt").read_text()
    assert read_slurmd_log(text + text).gpus == 8
    plain = "[2024-01-01T00:00:00] GRES[gpu] Type:a100 Count:2 Cores(8):(null) Links:(null) File:/dev/nvidia[0-1]\n"
    assert read_slurmd_log(plain * 3).gpus == 2


def test_read_slurmd_log__nothing_about_gpus():
    """Another log says so."""
    assert read_slurmd_log("slurmd: launch task").warnings == ("no line of slurmd about GPUs found",)


def test_read_slurm_conf__defaults_and_accounting():
    """NodeName=DEFAULT holds for the nodes behind it; gres/gpu in AccountingStorageTRES needs no note."""
    text = "AccountingStorageTRES=gres/gpu,gres/gpu:a100\nTopologyPlugin=topology/block\n" \
           "NodeName=DEFAULT Gres=gpu:a100:8\nNodeName=n[1-2]\nNodeName=c1 Gres=\nNodeName=x Gres=((\n"  # fmt: skip
    found = read_slurm_conf(text)
    assert (found.gpus, found.topology, found.notes) == ({"n1": 8, "n2": 8}, "block", ())
    assert "line 6" in found.warnings[0]


LINE = "{}GRES[gpu] Type:a100 Count:1 Cores(64):0-31  Links:{} Flags:HAS_FILE,HAS_TYPE File:{} UniqueId:(null)\n"
STAMP = "[2026-01-01T00:00:00] debug:      "


def gpus_of(text: str) -> int:
    return read_slurmd_log(text).gpus


@pytest.mark.parametrize(
    "word",
    [
        "error: Discarding the following config-only GPU due to lack of File specification:",
        "WARNING: The following autodetected GPUs are being ignored:",
        "error: This GPU specified in [slurm|gres].conf has mismatching Cores or Links from the device found on the "
        "system. Ignoring it.",
    ],
)
def test_read_slurmd_log__gpus_that_slurmd_does_not_use(word):
    """What it lists under such a word is no GPU of the node, and is told."""
    used = "".join(LINE.format(STAMP, "(null)", f"/dev/nvidia{i}") for i in range(2))
    head = "[2026-01-01T00:00:00] debug:  Including the following GPU matched between system and configuration:\n"
    dropped = f"[2026-01-01T00:00:00] {word}\n" + "".join(
        LINE.format(STAMP, "(null)", f"/dev/nvidia{i}") for i in (6, 7)
    )
    for text in (dropped + head + used, head + used + dropped):
        assert gpus_of(text) == 2
        assert "slurmd did not use 2 GPUs that it lists" in read_slurmd_log(text).warnings[0]


def test_read_slurmd_log__gpus_without_a_file_beside_some_with_one():
    """slurmd never uses a GPU without a device file where it has others; a log of files only is as before."""
    bare = LINE.format(STAMP, "(null)", "(null)")
    whole = LINE.format(STAMP, "(null)", "/dev/nvidia0")
    assert (gpus_of(whole + bare), gpus_of(bare + bare), gpus_of(whole)) == (1, 2, 1)


def test_read_slurmd_log__its_last_word_counts():
    """The lines "Gres Name=gpu" are what slurmd uses in the end, whatever the debug lines before them list."""
    last = "slurmd: Gres Name=gpu Type=a100 Count=1 Index={0} ID=7696487 File=/dev/nvidia{0} Links=(null)\n"
    before = "".join(LINE.format(STAMP, "(null)", f"/dev/nvidia{i}") for i in range(8))
    assert gpus_of(before + last.format(0) + last.format(1)) == 2

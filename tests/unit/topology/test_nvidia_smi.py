"""`nvidia-smi topo -m`: what the samples do not show."""

from __future__ import annotations

import pytest

from slurmsched.model import LinkKind
from slurmsched.topology.gpu_links import links_of
from slurmsched.topology.nvidia_smi import nic_names, read_topo


def square(cells: list[str], tail: str = "0-7\t0") -> str:
    """A matrix of tabs from its rows' cells, given as words."""
    head = "\t" + "\t".join(f"GPU{i}" for i in range(len(cells))) + "\tCPU Affinity\tNUMA Affinity\n"
    return head + "".join(f"GPU{i}\t" + "\t".join(row.split()) + f"\t{tail}\n" for i, row in enumerate(cells))


def test_read_topo__a_gpu_off_the_fabric():
    """A GPU without NVLink among three that are all joined has fallen off; bandwidth follows the model."""
    node = read_topo(
        square(["X NV18 NV18 SYS", "NV18 X NV18 SYS", "NV18 NV18 X SYS", "SYS SYS SYS X"]), gpu_type="h100"
    )
    assert node.on_fabric.tolist() == [True, True, True, False]
    assert (node.bandwidth_gb_per_s[0, 1], node.bandwidth_gb_per_s[0, 3]) == (450.0, 42.0)


def test_read_topo__a_bridged_pair_is_no_fabric():
    """Beside one bridged pair the other GPUs have not fallen off anything."""
    node = read_topo(square(["X NV4 SYS SYS", "NV4 X SYS SYS", "SYS SYS X SYS", "SYS SYS SYS X"]))
    assert node.on_fabric.all()
    assert node.bandwidth_gb_per_s.max() == 0  # no model is named


def test_read_topo__rows_that_contradict_each_other():
    """A pair that its rows name differently is unknown, and told."""
    node = read_topo(square(["X NV4", "NV2 X"]))
    assert node.kind[0, 1] == LinkKind.UNKNOWN
    assert node.warnings == ("GPU0 and GPU1: one row says NV4, the other NV2; taken as unknown",)


def test_read_topo__columns_that_do_not_fit_the_rows():
    """A full row with its X in the wrong place: only what both rows name alike is taken."""
    shifted = read_topo(square(["X NV1 SYS", "NV1 X SYS", "NV2 X NV1"]))
    assert {(0, 1)} == {(i, j) for i, j, _, _ in links_of(shifted)}
    assert "only links that both rows name alike" in shifted.warnings[-1]


def test_read_topo__a_terminal_that_breaks_lines():
    """The rest of a broken row is joined to it."""
    text = square(["X NV1 NV2 SYS", "NV1 X SYS NV2", "NV2 SYS X NV1", "SYS NV2 NV1 X"])
    wrapped = "\n".join(line.replace("\tSYS\t0-7", "\nSYS\t0-7") for line in text.split("\n"))
    assert list(links_of(read_topo(text))) == list(links_of(read_topo(wrapped)))


def test_read_topo__an_empty_cell_is_unknown():
    """With tabs a cell without text keeps its place."""
    node = read_topo(square(["X NV1 NV1", "NV1 X NV2", "NV1 NV2 X"]).replace("X\tNV1\tNV1", "X\t\tNV1"))
    assert list(links_of(node)) == [(0, 1, LinkKind.NVLINK, 1), (0, 2, LinkKind.NVLINK, 1), (1, 2, LinkKind.NVLINK, 2)]


def test_read_topo__the_list_alone():
    """`nvidia-smi -L` without a matrix tells how many GPUs there are, their model, and MIG."""
    node = read_topo(
        "GPU 0: NVIDIA A100 (UUID: GPU-0)\nGPU 1: NVIDIA A100 (UUID: GPU-1)\n  MIG 1g.5gb  Device  0: (UUID: M)"
    )
    assert (node.gpus, node.gpu_type, node.mig.tolist()) == (2, "NVIDIA A100", [False, True])
    assert node.warnings


@pytest.mark.parametrize("text", ["", "nothing here", "Legend:\n\n  X = Self\n"])
def test_read_topo__nothing_to_read(text):
    """No GPU, and a warning."""
    node = read_topo(text)
    assert (node.gpus, node.warnings) == (0, ("no matrix of `nvidia-smi topo -m` found",))


def test_read_topo__two_matrices():
    """The second of two machines in one file is left out, and told."""
    one = square(["X NV4", "NV4 X"])
    node = read_topo(one + "\n" + square(["X SYS", "SYS X"]))
    assert list(links_of(node)) == [(0, 1, LinkKind.NVLINK, 4)]
    assert node.warnings == ("more rows of the same names, or a second table, left out",)


def test_read_topo__a_cut_table_takes_no_rows_of_the_next():
    """Of two machines in one file the first is cut: what it lacks is unknown, though the other has such rows."""
    cut = "\n".join(square(["X NV4 SYS", "NV4 X SYS", "SYS SYS X"]).splitlines()[:2])
    node = read_topo(cut + "\n" + square(["X NV8 NV8", "NV8 X NV8", "NV8 NV8 X"]))
    assert {link[3] for link in links_of(node)} <= {4, 0}
    assert any("second table" in warning for warning in node.warnings)


def test_read_topo__p2p_tables_tell_no_links():
    """`nvidia-smi topo -p2p` looks alike; that two GPUs may talk does not say over what."""
    node = read_topo("\tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n\nLegend:\n\n  OK   = Status Ok\n")
    assert list(links_of(node)) == []
    assert node.warnings[0].startswith("a table of `nvidia-smi topo -p2p`")


def test_read_topo__a_link_that_is_not_known_leaves_the_others():
    """A cell of a kind without a meaning here is an unknown link, not a damaged row."""
    node = read_topo(square(["X NV4 C2C", "NV4 X SYS", "C2C SYS X"]))
    assert list(links_of(node)) == [(0, 1, LinkKind.NVLINK, 4), (1, 2, LinkKind.SYS, 0)]


def test_read_topo__more_gpus_than_can_be_placed_on():
    """A damaged label such as GPU900 makes no huge table."""
    assert read_topo("\tGPU0\tGPU900\nGPU0\tX\tNV1\nGPU900\tNV1\tX\n").gpus == 64


def test_nic_names__legend():
    """Labels of the legend, indented or not."""
    assert nic_names("NIC Legend:\n\n  NIC0: mlx5_0\nNIC1: rocep1\n") == {"NIC0": "mlx5_0", "NIC1": "rocep1"}


# As of an H20 with 36 NICs (a public report): two cells of the NICs have no blank between them.
def test_read_topo__cells_that_run_together():
    """They are as many cells; the NICs keep their columns."""
    head = "\tGPU0\tGPU1\tNIC0\tNIC1\tNIC2\tNIC3\tCPU Affinity\tNUMA Affinity\n"
    node = read_topo(head + "GPU0\tX\tNV18\tPIX\tNODENODE\tSYS\t0-7\t0\nGPU1\tNV18X\tNODE\tPIXPIX\tSYS\t0-7\t0\n")
    assert list(links_of(node)) == [(0, 1, LinkKind.NVLINK, 18)]
    assert node.nics == (("NIC0",), ("NIC1", "NIC2"))


FOUR = ["X NV1 NV2 SYS", "NV1 X SYS NV2", "NV2 SYS X NV1", "SYS NV2 NV1 X"]
LINKS = list(links_of(read_topo(square(FOUR))))


def beside(cells: list[str], right: str, *, head: bool = True) -> str:
    """The four GPUs' rows with other cells right of theirs."""
    rows = square([f"{row} {right}" for row in cells]).splitlines(keepends=True)[1:]
    first = "\t" + "\t".join(f"GPU{i}" for i in range(4)) + "\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\n"
    return "".join([first] * head + rows)


@pytest.mark.parametrize("right", ["PIX", "PIX SYS SYS", "PIX ??", "NODE\x07NODE NODE", "junk", ""])
def test_read_topo__the_gpus_whatever_stands_right_of_them(right):
    """Cells of NICs that are too few, too many or no cells take no link between GPUs away; a warning tells."""
    node = read_topo(beside(FOUR, right))
    assert list(links_of(node)) == LINKS
    assert node.warnings


@pytest.mark.parametrize("right", ["", "PIX SYS", "PIX SYS NODENODE SYS"])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2)])
def test_read_topo__rows_of_gpus_without_a_header(right, order):
    """As `grep ^GPU` leaves them: a row's own X tells which column is its GPU's, in whatever order the rows come."""
    rows = beside(FOUR, right, head=False).splitlines(keepends=True)
    node = read_topo("".join(rows[at] for at in order))
    assert list(links_of(node)) == LINKS
    assert (["no header" in warning for warning in node.warnings] == [True]) == bool(right)


def test_read_topo__rows_without_a_header_that_are_cut():
    """A column of NVLinks that is no row's own is a GPU that the file lacks."""
    node = read_topo("".join(beside(FOUR, "PIX SYS", head=False).splitlines(keepends=True)[:3]))
    assert {(i, j) for i, j, _, _ in links_of(node)} <= {(i, j) for i, j, _, _ in LINKS}
    assert any("the file is cut" in warning for warning in node.warnings)

"""NCCL's topology files: links, paths, NICs and numbers of GPUs; and files that are of no kind."""

from __future__ import annotations

import pytest

from slurmsched.model import LinkKind
from slurmsched.topology.gpu_links import links_of
from slurmsched.topology.nccl_xml import read_nccl_xml
from slurmsched.topology.topology_files import checked_kind, kind_of_text, read_topology_text

SWITCH = "".join(f'<nvlink target="0000:{bus}:00.0" count="6" tclass="0x068000"/>' for bus in ("c4", "c5"))


def gpu(bus: str, dev: str = "", inside: str = "") -> str:
    """A GPU on its PCI device; without `dev` as files written by hand have it."""
    own = f'<gpu dev="{dev}" sm="80" rank="{dev}" gdr="1">{inside}</gpu>' if dev else ""
    return f'<pci busid="{bus}" class="0x030200" link_speed="16 GT/s" link_width="16">{own}</pci>'


def switch(bus: str, *inside: str) -> str:
    return f'<pci busid="{bus}" class="0x060400" link_speed="16 GT/s" link_width="16">{"".join(inside)}</pci>'


def nic(bus: str, name: str) -> str:
    return f'<pci busid="{bus}" class="0x020700"><nic><net name="{name}" dev="0" speed="200000" port="1"/></nic></pci>'


def system(*cpus: str, host: str = "") -> str:
    more = f' host_hash="{host}"' if host else ""
    inside = "".join(f'<cpu{more} numaid="{at}" arch="x86_64">{cpu}</cpu>' for at, cpu in enumerate(cpus))
    return f'<system version="1">{inside}</system>'


def kinds(text: str) -> dict[tuple[int, int], str]:
    return {(i, j): f"{kind.name}{lanes or ''}" for i, j, kind, lanes in links_of(read_nccl_xml(text))}


def test_read_nccl_xml__paths_of_the_tree():
    """One switch between two GPUs is PIX, several are PXB, one CPU NODE, two CPUs SYS; NICs by switches."""
    first = switch("0:1.0", switch("0:2.0", gpu("0:3.0", "0"), gpu("0:4.0", "1"), nic("0:5.0", "mlx5_0")),
                   switch("0:6.0", gpu("0:7.0", "2")), nic("0:8.0", "mlx5_1"))  # fmt: skip
    text = system(first + gpu("0:9.0", "3"), gpu("0:a.0", "4"))
    assert kinds(text) == {
        (0, 1): "PIX", (0, 2): "PXB", (0, 3): "NODE", (0, 4): "SYS", (1, 2): "PXB", (1, 3): "NODE", (1, 4): "SYS",
        (2, 3): "NODE", (2, 4): "SYS", (3, 4): "SYS",
    }  # fmt: skip
    node = read_nccl_xml(text)
    assert (node.nics[0], node.nics[2], node.nics[4]) == (("mlx5_0", "mlx5_1"), ("mlx5_0", "mlx5_1"), ())
    assert (node.nic_kinds[0], node.numa.tolist()) == ((LinkKind.PIX, LinkKind.PXB), [0, 0, 0, 0, 1])


def test_read_nccl_xml__nvlinks_to_gpus_and_to_switches():
    """Lanes to another GPU add up; those to NVSwitches join every pair; those to a CPU none."""
    meet = ('<nvlink target="0:2.0" count="1" tclass="0x030200"/><nvlink target="0:2.0" count="3" tclass="0x030200"/>'
            '<nvlink target="0:f.0" count="3" tclass="0x068001"/>')  # fmt: skip
    assert kinds(system(gpu("0:1.0", "0", meet) + gpu("0:2.0", "1") + gpu("0:3.0", "2"))) == {
        (0, 1): "NVLINK4", (0, 2): "NODE", (1, 2): "NODE",
    }  # fmt: skip
    assert kinds(system(gpu("0:1.0", "0", SWITCH), gpu("0:2.0", "1", SWITCH))) == {(0, 1): "NVLINK12"}
    xgmi = '<xgmi target="0:2.0" count="1" tclass="0x038000"/>'
    assert kinds(system(gpu("0:1.0", "0", xgmi) + gpu("0:2.0", "1"))) == {(0, 1): "XGMI1"}


def test_read_nccl_xml__links_whose_other_end_is_not_told():
    """A virtual machine's file has NVLinks that end where they begin: which pairs they join is not known."""
    own = [gpu(f"000{i}:00:00.0", str(i), f'<nvlink target="000{i}:00:00.0" count="12" tclass="0x030200"/>')
           for i in range(3)]  # fmt: skip
    node = read_nccl_xml(system(*own, gpu("0004:00:00.0", "3")))
    assert {(i, j): kind for i, j, kind, _ in links_of(node)} == dict.fromkeys(((0, 3), (1, 3), (2, 3)), LinkKind.SYS)
    assert "those pairs are unknown" in node.warnings[0]
    # It tells their number and NUMA nodes.
    assert checked_kind(read_topology_text(system(*own)), system(*own)).kind == "nccl"


@pytest.mark.parametrize(
    ("text", "gpus", "words"),
    [
        (system(gpu("0:2.0") + gpu("0:1.0")), 2, ""),
        (system(gpu("0:1.0", "4") + gpu("0:2.0", "6")), 2, "numbered by bus id"),
        (system(gpu("0:1.0", "0")).replace("</system>", "") + gpu("0:2.0", "1")[:30], 1, "cut or damaged"),
        (system(gpu("0:1.0", "0"), host="0x1").replace("</system>", system(gpu("0:1.0", "0"), host="0x2")[20:]), 1,
         "2 hosts in one file"),
        (system(nic("0:1.0", "mlx5_0")), 0, "no GPU"),
    ],
)  # fmt: skip
def test_read_nccl_xml__what_is_missing_is_told(text, gpus, words):
    """Files by hand have no numbers; of a job that saw some GPUs they have gaps; cut files give what is whole."""
    node = read_nccl_xml(text)
    assert gpus == node.gpus
    assert words in " ".join(node.warnings)
    assert bool(words) == bool(node.warnings)


def test_read_nccl_xml__entities_are_refused():
    """They grow without end."""
    assert read_nccl_xml('<!DOCTYPE a [<!ENTITY b "c">]><system version="1"/>').gpus == 0


@pytest.mark.parametrize(
    "text",
    [
        '<?xml version="1.0"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0">\n'
        '<object type="Machine" os_index="0" name="gpu">\n<info name="Backend" value="Linux"/>\n</topology>\n',
        '<topology>\n  <object type="PCIDev" Name=gpu File=/dev/nvidia0>\n</topology>\n',
        '<nvidia_smi_log>\n<gpu id="00000000:07:00.0"><product_name>A100</product_name></gpu>\n</nvidia_smi_log>',
        '[topology]\nfabric = ""\n\n[[topology.classes]]\nname = "dgx1"\nnodes = "dgx[01-20]"\nfile = "dgx1.txt"\n',
        'name = "dgx1"\nsockets = 2\ngpus = 8\n',
        'NAME="Debian GNU/Linux"\nVERSION_ID="13"\nID=debian\n',
        "Put a line with Name=gpu and File=/dev/nvidia0 into gres.conf,\nthen restart slurmd on that node.\n",
        "The nodes are n1 and n2.\nName = Alice\nDear all,\nplease look.\n",
        '{"name": "gpu", "count": 4}\n',
    ],
)  # fmt: skip
def test_recognised__files_of_other_programs(text):
    """XML of hwloc and nvidia-smi, TOML, os-release and prose are none of the kinds, though they hold words of them."""
    assert kind_of_text(text) == ""
    assert read_topology_text(text).kind == ""


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (system(gpu("0:1.0", "0")), "nccl"),
        ("AutoDetect=nvml\n", "gres.conf"),
        ("# GPUs\nNodeName=n[1-2] Name=gpu \\\n  File=/dev/nvidia[0-3]\nName=shard Count=8\n", "gres.conf"),
        ("include more.conf\nName=gpu File=/dev/nvidia0\n", "gres.conf"),
        ("Name=bandwidth Type=lustre Count=4G Flags=CountOnly\n", "gres.conf"),
    ],
)
def test_recognised__still_knows_its_own(text, kind):
    """Comments, continued lines, includes and other GRES are no other program's."""
    assert kind_of_text(text) == kind


@pytest.mark.parametrize("text", [system(), "\tGPU0\tGPU1\n", "GRES[gpu] were found\n"])
def test_of_kind__a_file_of_which_nothing_is_left(text):
    """A matrix, tree or log that gives no GPU is no reading."""
    assert checked_kind(read_topology_text(text), text).kind == ""

"""gres.conf as sites write it."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmsched.model import LinkKind
from slurmsched.topology.gpu_links import links_of
from slurmsched.topology.gres_conf import read_gres_conf

LAB = (Path(__file__).parents[2] / "lab" / "templates" / "gres.conf").read_text()


def test_read_gres_conf__links_and_cores():
    """Links become lanes, equal Cores a NUMA number, the type the bandwidth."""
    (found,) = read_gres_conf(LAB).classes()
    node = found.topology
    assert (found.nodes, node.gpus, node.gpu_type) == (("n1", "n2", "n3", "n4"), 8, "a100")
    assert node.numa.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    links = {(i, j): lanes for i, j, kind, lanes in links_of(node) if kind == LinkKind.NVLINK}
    assert (len(links), links[0, 1], links[0, 2]) == (12, 4, 2)
    assert (node.bandwidth_gb_per_s[4, 5], node.bandwidth_gb_per_s[0, 4]) == (100.0, 21.0)
    assert found.notes == node.warnings == ()


def test_read_gres_conf__includes_comments_and_continued_lines():
    """Included files are read in place; a line may go on behind a backslash; keys in any letters."""
    files = {"gpus.conf": "NAME=gpu TYPE=a100 \\\n  file=/dev/nvidia[0-1] # two\n"}
    conf = read_gres_conf("# all\nInclude gpus.conf\n", files.get)
    assert [device.files for device in conf.devices()] == [("/dev/nvidia0",), ("/dev/nvidia1",)]
    assert conf.lines[0].where == "gpus.conf line 1"
    assert read_gres_conf("Include gpus.conf").warnings == ("gpus.conf is included, but cannot be read from here",)


@pytest.mark.parametrize(
    ("text", "files", "cores"),
    [
        ("Name=gpu File=/dev/x[0-1] Cores=0-1\\\n,4\n", 2, (0, 1, 4)),  # nothing comes in place of the backslash
        ("Name=gpu \\  \n File=/dev/x[0-1]\n", 2, ()),  # blanks behind it
        ("Name=gpu \\ # first\n File=/dev/x[0-1]\n", 2, ()),  # a comment behind it
        ("# File=/dev/x[0-7] \\\nName=gpu File=/dev/x[0-1]\n", 2, ()),  # a comment swallows no line
        ("Name=gpu File=/dev/x[0-1] \\\\\nName=gpu File=/dev/x2\n", 3, ()),  # two are none
        ("Name=gpu File=/dev/x0 \\", 1, ()),  # the last line
        ("Name=gpu Files=/dev/x[0-1] CPUs=3\n", 2, (3,)),
    ],
)
def test_read_gres_conf__lines_go_on_as_slurm_joins_them(text, files, cores):
    """Comments go first, then blanks, then one backslash of an odd number. `Files` and `CPUs` are other names."""
    devices = read_gres_conf(text).devices()
    assert (len(devices), devices[0].cores) == (files, cores)


def test_read_gres_conf__link_is_another_name_of_links():
    """As Slurm reads it."""
    conf = read_gres_conf("Name=gpu File=/dev/x0 Link=-1,4\nName=gpu File=/dev/x1 Links=4,-1\n")
    assert ([device.links for device in conf.devices()], conf.warnings) == ([(-1, 4), (4, -1)], ())


def test_read_gres_conf__files_that_include_each_other():
    """The chain ends, with a warning."""
    assert "is included, but cannot be read" in read_gres_conf("Include a", lambda _: "Include a").warnings[0]


def test_read_gres_conf__order_of_files_is_kept():
    """Slurm's index is the place in the file, whatever the device's number."""
    conf = read_gres_conf("Name=gpu File=/dev/nvidia3\nName=gpu File=/dev/nvidia[0-1]")
    assert [device.number for device in conf.devices()] == [3, 0, 1]
    assert conf.classes()[0].renumbered == (
        "index 0 is /dev/nvidia3, and 2 others differ too: device files are not in their numbers' order"
    )


def test_read_gres_conf__autodetect_by_node():
    """A node's own setting wins over the file's; `off` with device files is a plain list."""
    conf = read_gres_conf(
        "AutoDetect=nvml\nNodeName=a AutoDetect=off Name=gpu File=/dev/x0\nNodeName=b Name=gpu Count=2"
    )
    assert {one.topology.name: one.autodetect for one in conf.classes()} == {"a": "off", "b": "nvml"}
    assert conf.autodetect == "nvml"
    assert [one.topology.gpus for one in conf.classes()] == [1, 2]


def test_read_gres_conf__mig_devices_and_other_gres():
    """MultipleFiles is one MIG device; shards are no GPUs."""
    text = "Name=gpu Type=a100_1g.5gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap21\nName=shard Count=8"
    (found,) = read_gres_conf(text).classes()
    assert (found.topology.gpus, found.topology.mig.tolist()) == (1, [True])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Name=gpu Links=0,-1 File=/dev/a0\nName=gpu Links=-1,0 File=/dev/a1", "one -1 at place 0"),
        ("Name=gpu Links=-1,4,4 File=/dev/a0\nName=gpu Links=4,-1,4 File=/dev/a1", "no row of GPU2"),
        ("Name=gpu Links=-1,4 File=/dev/a0\nName=gpu Links=2,-1 File=/dev/a1", "one row says NV4, the other NV2"),
        ("Name=gpu Links=-1,x File=/dev/a0", "Links=-1,x is no list of numbers"),
        ("Name=gpu Links=-1,4 File=/dev/a[0-1]", "Links on a line of 2 GPUs"),
        ("Name=gpu File=/dev/a[0-", "File is no list of files"),
        ("Name=gpu Count=9 File=/dev/a[0-1]", "Count=9, but 2 files"),
        ("Name=gpu Count=many", "Count=many is no number"),
        ("Name=gpu Cores=zero File=/dev/a0", "Cores=zero is no list of numbers"),
        ("Name=gpu Fiel=/dev/a0", "unknown key 'fiel'"),
        ("NodeName=n[1- Name=gpu Count=1", "NodeName is not a hostlist"),
        ("File=/dev/a0", "neither Name nor AutoDetect"),
        ("what is this", "not Key=Value pairs"),
    ],
)
def test_read_gres_conf__says_what_is_wrong(text, words):
    """A line that cannot be read is named, and invents nothing."""
    conf = read_gres_conf(text)
    told = [*conf.warnings, *(text for one in conf.classes() for text in one.topology.warnings)]
    assert any(words in text for text in told), told
    assert all(lanes in (0, 4) for one in conf.classes() for _, _, _, lanes in links_of(one.topology))
    assert "twice" not in str(told)


def test_read_gres_conf__a_bad_count_is_told_once():
    """The files count, as they do without any."""
    conf = read_gres_conf("Name=gpu Count=many File=/dev/a[0-3]")
    assert (conf.warnings, len(conf.devices())) == (("line 1: Count=many is no number of GPUs",), 4)


def test_read_gres_conf__a_gpu_that_all_rows_leave_out_is_off_the_fabric():
    """Zeros tell that there is no NVLink, though not what there is."""
    rows = ["-1,4,4,0", "4,-1,4,0", "4,4,-1,0", "0,0,0,-1"]
    conf = read_gres_conf("\n".join(f"Name=gpu File=/dev/nvidia{i} Links={row}" for i, row in enumerate(rows)))
    assert conf.classes()[0].topology.on_fabric.tolist() == [True, True, True, False]

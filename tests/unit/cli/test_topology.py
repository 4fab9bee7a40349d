"""`slurmsched topology`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[1] / "topology" / "samples"


def test_import__json_of_several_files(run):
    """One record a file, with the keys the manual names."""
    files = [str(SAMPLES / name) for name in ("013-a6000x8-bridge-pairs.txt", "061-topology-block.conf")]
    said = run("topology", "import", *files, "--json", "--strict")
    wired, fabric = json.loads(said.out)
    assert (said.code, said.err) == (0, "")
    assert {"kind", "gpus", "links", "numa", "pcie_groups", "nics", "warnings"} <= set(wired) & set(fabric)
    assert [link for link in wired["links"] if link[3] and link[1] < 4] == [[0, 1, "NVLINK", 4], [2, 3, "NVLINK", 4]]
    assert (len(fabric["fabrics"][0]["cells"]), fabric["fabrics"][0]["block_sizes"]) == (15, [4, 8, 16, 32, 64])


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--strict",), 2)])
def test_import__a_damaged_file(run, options, code):
    """What can be read is printed, the rest told on stderr; --strict ends with 2."""
    said = run("topology", "import", str(SAMPLES / "034-a800x8-nic-interleaved-cut.txt"), *options)
    assert code == said.code
    assert "NV8: every pair" in said.out
    assert "left out: GPU7" in said.err


def test_import__no_known_kind(run, tmp_path):
    """Text of another kind ends with 2, and so does a kind that is none, or a file that is not there."""
    (tmp_path / "x").write_text("hello\n")
    said = run("topology", "import", str(tmp_path / "x"))
    assert (said.code, "none of the kinds" in said.err) == (2, True)
    assert run("topology", "import", str(tmp_path / "x"), "--kind", "nosuch").code == 2
    assert run("topology", "import", str(tmp_path / "nosuch")).code == 2


@pytest.mark.parametrize(
    "kind", ["gres.conf", "topology.conf", "topology.yaml", "ibnetdiscover", "scontrol", "rocm-smi"]
)
def test_import__nothing_can_be_read_as_the_kind_named(run, kind):
    """Refused, with what its content tells; a damaged file of the kind is not."""
    said = run("topology", "import", str(SAMPLES / "002-dgx1-v100.txt"), "--kind", kind)
    assert (said.code, said.out.splitlines()[0].endswith("of no known kind")) == (2, True)
    assert f"nothing in it can be read as {kind}; its content is that of nvidia-smi" in said.err
    assert (
        run("topology", "import", str(SAMPLES / "034-a800x8-nic-interleaved-cut.txt"), "--kind", "nvidia-smi").code == 0
    )


def test_import__a_file_of_the_kind_that_names_no_gpu(run, tmp_path):
    """Gres of other names, GPUs that slurmd finds, a fabric without switches: read, though there is little in them."""
    for kind, text in (("gres.conf", "Name=shard Count=4\n"), ("gres.conf", "AutoDetect=nvml\n"),
                       ("topology.yaml", "- topology: t\n  cluster_default: true\n  flat: true\n")):  # fmt: skip
        (tmp_path / "x").write_text(text)
        assert run("topology", "import", str(tmp_path / "x"), "--kind", kind).code == 0


def test_topology_show__draws_the_class_of_a_file(run, tmp_path):
    """Matrix, groups and picture of a file's only class; of several the one of a node."""
    drawn = tmp_path / "a.svg"
    said = run("topology", "show", "--file", str(SAMPLES / "028-pcie-x6-uneven-split.txt"), "--svg", str(drawn))
    assert said.code == 0
    assert "switch 2: GPU4 GPU5" in said.out
    assert drawn.read_text().count("<circle") == 6
    gres = str(SAMPLES / "066-gres-nodename-ranges.conf")
    assert "tux3: 3 GPUs" in run("topology", "show", "tux3", "--file", gres).out
    assert "tux[0-2,4-15]" in run("topology", "show", "--file", gres).out
    unknown = run("topology", "show", "nosuch", "--file", gres)
    assert (unknown.code, "the GPUs of node nosuch are unknown" in unknown.err) == (2, True)


def test_show__what_cannot_be_read_or_written(run, tmp_path):
    """A file of no known kind, a folder that is not there: what is wrong, and no traceback."""
    (tmp_path / "x").write_text("hello\n")
    unread = run("topology", "show", "--file", str(tmp_path / "x"))
    assert (unread.code, "none of the kinds" in unread.err) == (2, True)
    sample = str(SAMPLES / "028-pcie-x6-uneven-split.txt")
    unwritten = run("topology", "show", "--file", sample, "--svg", str(tmp_path / "no" / "a.svg"))
    assert (unwritten.code, "a.svg: cannot be written" in unwritten.err) == (2, True)


@pytest.mark.parametrize(
    ("text", "words"), [("hello\n", "none of the kinds"), ("SwitchName=a Nodes=n1\n", "no links of GPUs")]
)
def test_check__links_from_a_file_without_links(run, tmp_path, text, words):
    """The file is named, with what it is not."""
    (tmp_path / "x").write_text(text)
    gres = str(SAMPLES / "066-gres-nodename-ranges.conf")
    said = run(
        "topology", "check", "--slurm=26.05", "--hardware=2x8x1", "--gres-conf", gres, "--links", str(tmp_path / "x")
    )
    assert (said.code, words in said.err, "/x" in said.err) == (2, True, True)


def test_show__a_node_of_the_site(run, monkeypatch):
    """With a Slurm: the classes of its nodes, and where a node is in the fabric."""
    from slurmsched.slurm import topology_sources
    from slurmsched.topology.fabric_files import read_topology
    from slurmsched.topology.topology_files import read_topology_text

    classes = read_topology_text((SAMPLES / "066-gres-nodename-ranges.conf").read_text()).classes
    fabric = read_topology("SwitchName=a Nodes=tux[0-15]\nSwitchName=b Switches=a")
    monkeypatch.setattr(topology_sources, "known_classes", lambda *_: (classes, fabric, ("gres.conf: odd",)))
    said = run("topology", "show", "tux3")
    assert "in a, in b" in said.out
    assert "slurmsched: gres.conf: odd" in said.err
    assert json.loads(run("topology", "show", "tux3", "--json").out)["gpus"] == 3
    assert len(json.loads(run("topology", "show", "--json").out)["classes"]) == 2


def test_diff__differs_ends_with_3(run, monkeypatch):
    """Nodes of one difference are one row; no difference ends with 0."""
    from slurmsched.slurm import topology_sources
    from slurmsched.topology.site_topology import TopologyDifference

    found = tuple(TopologyDifference("moved", f"n{i}", "a", "b") for i in (1, 2, 3))
    monkeypatch.setattr(topology_sources, "differences", lambda *_: (found, ()))
    said = run("topology", "diff")
    assert (said.code, "n[1-3]" in said.out, "3 differences" in said.out) == (10, True, True)
    assert len(json.loads(run("topology", "diff", "--json").out)) == 3
    monkeypatch.setattr(topology_sources, "differences", lambda *_: ((), ()))
    assert run("topology", "diff").code == 0


def test_quality__sums_up_what_jobs_got(run, site):
    """By number of GPUs and by pin: how many got the best; then those that missed it. Older starts are left out."""
    import time

    from slurmsched.config_file import load_config
    from slurmsched.db.ledger_store import open_store
    from slurmsched.model import PlacedJob, Plan, Receipt
    from tests.unit.cli.conftest import make_snapshot

    now_s = time.time()
    placed = (
        PlacedJob(1, 1.0, now_s - 60, "n1", 2, 50.0, 50.0, 1.0, True),
        PlacedJob(2, 1.0, now_s - 50, "n1", 2, 25.0, 50.0, 0.5, False, "n2 had GPUs 0,3"),
        PlacedJob(3, 1.0, now_s - 90_000, "n1", 2, 8.0, 50.0, 0.16, False, "long ago"),
    )
    store = open_store(load_config(site))
    store.append(replace(store.recall(make_snapshot(now_s)), placed=placed), Plan(), Receipt())
    store.close()
    told = json.loads(run("topology", "quality", "--json").out)
    shares = [(row["pinned"], row["jobs"], row["best_share"], row["worst_ratio"]) for row in told["jobs"]]
    assert shares == [(False, 1, 0.0, 0.5), (True, 1, 1.0, 1.0)]
    assert [row["job_id"] for row in told["missed"]] == [2]
    said = run("topology", "quality", "--since", "2d", "--limit", "1").out
    assert "n2 had GPUs 0,3" in said
    assert "... and 1 more (--limit 0 shows all)" in said
    assert run("topology", "quality", "--since", "soon").code == 2

"""The wiring: sources read once, given to every snapshot, the last good kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slurmsched.config import TopologyConfig
from slurmsched.config_file import parse_config
from slurmsched.errors import InputError, SlurmError, SlurmUnreachableError
from slurmsched.model import Nodes, Site
from slurmsched.resources.topology_limits import unknown_topology_rule
from slurmsched.slurm.topology_sources import (
    RELOAD_S,
    SnapshotTopology,
    differences,
    known_classes,
    read_text,
    slurm_fabric,
)
from tests.recorded.playback import Answer
from tests.unit.cli.conftest import make_snapshot

PAIR = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\t0-7\t0\nGPU1\tNV4\t X \t8-15\t1\n"
TREE = "SwitchName=a Level=0 LinkSpeed=1 Nodes=n[1-2]\nSwitchName=b Level=0 LinkSpeed=1 Nodes=n3\n"
NODES = (
    "NodeName=n1 State=IDLE Gres=gpu:a6000:2\nNodeName=n2 State=IDLE Gres=gpu:a6000:2\nNodeName=n4 State=IDLE Gres=\n"
)


class Asked:
    """Commands that answer from texts. fault: of any of them."""

    def __init__(self, conf: Path, plugin: str = "topology/tree") -> None:
        config = f"SLURM_VERSION = 26.05.5\nSLURM_CONF = {conf}\nTopologyPlugin = {plugin}\n"
        self.answers = {"topology": TREE, "node": NODES, "config": config}
        self.asked: list[str] = []
        self.fault: SlurmError | None = None

    def close(self) -> None:
        """Nothing was begun."""

    def run(self, program: str, *arguments: str) -> str:
        if self.fault:
            raise self.fault
        self.asked.append(arguments[-1])
        return self.answers[arguments[-1]]

    def start(self, program: str, *arguments: str) -> Answer:
        return Answer(self.run(program, *arguments))


def settings(folder: Path, text: str = PAIR) -> TopologyConfig:
    """One class, of n1 and n2."""
    (folder / "pair.txt").write_text(text)
    one = {"name": "pair", "nodes": "n[1-2]", "file": folder / "pair.txt", "gpu_type": "a6000"}
    return parse_config({"topology": {"classes": [one]}}).topology


def snapshot(conf: Path, gpus: int = 2):
    site = Site(settings={"SLURM_CONF": str(conf), "TopologyPlugin": "topology/tree"})
    return replace(
        make_snapshot(), nodes=Nodes.build(3, {"name": ["n1", "n2", "n4"], "gpus": [gpus, gpus, 0]}), site=site
    )


def test_wiring__is_built_once_and_shared(tmp_path):
    """The same nodes get the same tables, and Slurm is asked once."""
    commands = Asked(tmp_path / "slurm.conf")
    wiring = SnapshotTopology(settings(tmp_path), commands, lambda: 0.0)
    first, second = wiring(snapshot(tmp_path / "slurm.conf")), wiring(snapshot(tmp_path / "slurm.conf"))
    assert first.topology is second.topology
    assert commands.asked == ["topology"]
    assert (first.topology.node_class.tolist(), first.topology.cell.tolist()) == ([0, 0, -1], [0, 0, -1])
    assert first.warnings == make_snapshot().warnings
    changed = wiring(snapshot(tmp_path / "slurm.conf", gpus=1))
    assert changed.topology.node_class.tolist() == [-1, -1, -1]
    assert "topology: 2 nodes like n1 with 1 GPU" in changed.warnings[-1]


def test_wiring__keeps_the_last_good(tmp_path):
    """A file that is gone, and a Slurm that is away, change nothing but the warnings."""
    commands, now = Asked(tmp_path / "slurm.conf"), [0.0]
    wiring = SnapshotTopology(settings(tmp_path), commands, lambda: now[0])
    first = wiring(snapshot(tmp_path / "slurm.conf"))
    (tmp_path / "pair.txt").unlink()
    commands.fault, now[0] = SlurmUnreachableError("slurmctld is away"), RELOAD_S + 1
    later = wiring(snapshot(tmp_path / "slurm.conf"))
    assert first.topology.node_class.tolist() == later.topology.node_class.tolist()
    assert first.topology.cell.tolist() == later.topology.cell.tolist()
    assert ["pair.txt: cannot be read" in later.warnings[0], "is away" in later.warnings[1]] == [True, True]


@pytest.mark.parametrize("file", ["", "fabric.conf"])
@pytest.mark.parametrize(("plugin", "form"), [("topology/tree", "tree"), ("topology/flat", "")])
def test_wiring__what_slurm_itself_keeps_jobs_to(tmp_path, file, plugin, form):
    """A file may tell of another fabric; Slurm's form is its own, and the last known while it is away."""
    (tmp_path / "fabric.conf").write_text("BlockName=a Nodes=n[1-3]\nBlockSizes=3\n")
    at = snapshot(tmp_path / "slurm.conf")
    at = replace(at, site=replace(at.site, settings={**at.site.settings, "TopologyPlugin": plugin}))
    commands, now = Asked(tmp_path / "slurm.conf"), [0.0]
    wiring = SnapshotTopology(TopologyConfig(fabric=str(tmp_path / file) if file else ""), commands, lambda: now[0])
    found = wiring(at).topology
    assert (found.slurm_fabric.form, found.fabric.form, found.fabric.block_sizes) == (
        form, "block" if file else form, (3,) if file else ())  # fmt: skip
    commands.fault, now[0] = SlurmUnreachableError("slurmctld is away"), RELOAD_S + 1
    assert wiring(at).topology.slurm_fabric.form == form
    assert wiring(at).topology.slurm_known


def test_wiring__asks_again_at_once_while_slurm_has_not_told(tmp_path):
    """No file stands in: nobody is moved for a gang by it. Then its topology is known for an hour."""
    (tmp_path / "fabric.conf").write_text("BlockName=a Nodes=n[1-3]\nBlockSizes=3\n")
    commands, at = Asked(tmp_path / "slurm.conf"), snapshot(tmp_path / "slurm.conf")
    wiring = SnapshotTopology(TopologyConfig(fabric=str(tmp_path / "fabric.conf")), commands, lambda: 0.0)
    commands.fault = SlurmUnreachableError("slurmctld is away")
    first = wiring(at)
    assert (first.topology.slurm_known, first.topology.fabric.form) == (False, "block")
    assert "is away" in first.warnings[-1]
    commands.fault = None
    found = wiring(at).topology
    assert (found.slurm_known, found.slurm_fabric.form, found.slurm_cell.tolist()) == (True, "tree", [0, 0, -1])
    assert (wiring(at).topology is found, commands.asked) == (True, ["topology"])


def test_wiring__gres_conf_beside_slurm_conf(tmp_path):
    """What Slurm itself reads is used where it can be read from here; a class of the configuration comes first."""
    (tmp_path / "gres.conf").write_text("Include more.conf\nNodeName=n[1-2] Name=gpu Count=2\n")
    (tmp_path / "more.conf").write_text("NodeName=n4 Name=gpu Count=1\n")
    found = SnapshotTopology(settings(tmp_path), Asked(tmp_path / "slurm.conf"))(snapshot(tmp_path / "slurm.conf"))
    assert [one.name for one in found.topology.classes] == ["pair"]
    plain = SnapshotTopology(TopologyConfig(), Asked(tmp_path / "slurm.conf"))(snapshot(tmp_path / "slurm.conf"))
    assert [one.name for one in plain.topology.classes] == ["n[1-2]"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"gres_conf": "/nowhere/gres.conf"}, "/nowhere/gres.conf: cannot be read"),
        ({"fabric": "/nowhere/topology.conf"}, "/nowhere/topology.conf: cannot be read"),
        ({"classes": [{"name": "x", "nodes": "n[1-", "file": "/nowhere/x"}]}, "is no hostlist"),
        ({"classes": [{"name": "x", "nodes": "n1", "file": "/nowhere/x"}]}, "/nowhere/x: cannot be read"),
    ],
)
def test_wiring__what_cannot_be_read_is_a_warning(tmp_path, values, words):
    """A cycle goes on without topology; the snapshot says why."""
    tree = parse_config({"topology": values}).topology
    found = SnapshotTopology(tree, Asked(tmp_path / "slurm.conf"))(snapshot(tmp_path / "slurm.conf"))
    assert any(words in text for text in found.warnings)
    assert found.topology.node_class.tolist() == [-1, -1, -1]


@pytest.mark.parametrize(("plugin", "version", "asks"), [("topology/flat", "24.11.5", 0), ("(null)", "24.11.5", 0),
                         ("topology/block", "24.11.5", 1), ("topology/flat", "25.05.1", 1)])  # fmt: skip
def test_slurm_fabric__asks_only_where_there_may_be_one(tmp_path, plugin, version, asks):
    """From 25.05 on topology.yaml may tell of one, and a configless host has no such file."""
    commands = Asked(tmp_path / "slurm.conf")
    site = Site(version=version, settings={"SLURM_CONF": str(tmp_path / "slurm.conf"), "TopologyPlugin": plugin})
    assert 2 * asks == len(slurm_fabric(commands, site).fabric.cell)
    assert asks == len(commands.asked)


@pytest.mark.parametrize(
    ("plugin", "error", "known"),
    [
        ("topology/flat", SlurmError("scontrol: not supported"), True),
        ("topology/flat", SlurmUnreachableError("no answer"), False),
        ("topology/tree", SlurmError("scontrol: not supported"), False),
    ],
)
def test_wiring__a_refusal_tells_of_no_fabric_where_the_plugin_has_none(tmp_path, plugin, error, known):
    """No answer, or a refusal by a plugin that has one, tells nothing."""
    commands = Asked(tmp_path / "slurm.conf")
    commands.fault = error
    at = snapshot(tmp_path / "slurm.conf")
    site = Site(version="25.05.1", settings={**at.site.settings, "TopologyPlugin": plugin})
    assert SnapshotTopology(TopologyConfig(), commands)(replace(at, site=site)).topology.slurm_known == known


def test_differences__of_files_against_slurm(tmp_path):
    """GPU counts by class, and the cells of topology.conf beside slurm.conf."""
    (tmp_path / "topology.conf").write_text("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[2-3]\n")
    commands = Asked(tmp_path / "slurm.conf")
    found, warnings = differences(settings(tmp_path), commands)
    assert [(one.kind, one.node, one.files, one.slurm) for one in found] == [("moved", "n2", "b", "a")]
    assert warnings == ()
    commands.answers["node"] = NODES.replace("gpu:a6000:2", "gpu:a6000:1", 1)
    found, _ = differences(settings(tmp_path), commands)
    assert [(one.kind, one.node) for one in found] == [("gpus", "n1"), ("moved", "n2")]


def test_known_classes__with_the_nodes_that_slurm_has(tmp_path):
    """A class shows the nodes of Slurm that it holds for."""
    classes, fabric, warnings = known_classes(settings(tmp_path), Asked(tmp_path / "slurm.conf"))
    assert [(one.topology.name, one.nodes) for one in classes] == [("pair", ("n1", "n2"))]
    assert (len(fabric.fabric.cell), warnings) == (2, ())


def test_read_text__a_folder_is_no_file(tmp_path):
    """The path and the reason are told."""
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_text(tmp_path)


@pytest.mark.parametrize(
    ("plugin", "version", "text", "form"),
    [
        ("topology/ring", "26.05.5", "RingName=r0 Nodes=n[1-4] RingSize=4\n", "ring"),
        ("topology/flat", "26.05.5", "TorusName=t0 Dims=2x2x1 Nodes=n[1-4]\n", "torus3d"),
        ("topology/flat", "26.05.5", "HyperName=h0 Nodes=n[1-4]\n", "fabric of an unknown kind"),
        ("topology/3d_torus", "23.02.7", "", "3d_torus"),
        ("topology/hypercube", "25.05.1", "", "hypercube"),
        ("topology/default", "24.11.5", "", ""),
        ("topology/flat", "25.11.0", "", ""),
    ],
)
def test_slurm_fabric__of_a_rule_that_is_not_known(tmp_path, plugin, version, text, form):
    """It is no flat network: the snapshot is warned, and no gang gets nodes."""
    commands = Asked(tmp_path / "slurm.conf")
    commands.answers["topology"] = text
    settings = {"SLURM_CONF": str(tmp_path / "slurm.conf"), "TopologyPlugin": plugin}
    made = replace(make_snapshot(), site=Site(version=version, settings=settings))
    found = SnapshotTopology(TopologyConfig(), commands, lambda: 0.0)(made)
    assert form == found.topology.slurm_fabric.form
    assert [f"Slurm has a {form} topology" in text for text in found.warnings if "Slurm's topology" in text][-1:] == [
        True
    ] * bool(form)
    assert unknown_topology_rule(found.topology, 2) == (
        f"Slurm keeps jobs to a {form}, whose rule is not known" if form else ""
    )
    assert unknown_topology_rule(found.topology, 1) == ""

"""Clusters in words and in files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slurmsched.config import Config
from slurmsched.errors import ConfigError, InputError
from slurmsched.model import Nodes, Partitions, Plan, Site
from slurmsched.replay.clusters import cluster_of
from slurmsched.replay.layout import Limits, Node, Partition
from slurmsched.replay.snapshot_file import saved, write_snapshot
from slurmsched.replay.traces import Trace
from slurmsched.testing.builders import snapshot

EXAMPLE = Path(__file__).parents[3] / "site-configs" / "clusters" / "mixed.toml"
BUSY = Trace.of([1, 2], [16, 16], [0, 100], [100, 100])
TOML = """
[[nodes]]
names = "a[1-2]"
gpus = 8
gpu_type = "a100"
cpus = 64
memory_mib = 1000
[[nodes]]
names = "b1"
gpus = 4
[[partitions]]
name = "long"
nodes = "a[1-2]"
[[partitions]]
name = "all"
tier = 2
factor = 5
[[qos]]
name = "normal"
max_gpus_per_user = 8
[slurm]
SchedulerParameters = "bf_window=60,bf_max_job_test=7"
PriorityWeightAge = 100
PriorityMaxAge = "7-0"
[model]
rpc_latency_s = 0.5
"""
CONF = """
ClusterName=ours
SchedulerParameters=bf_window=60
priorityweightage=100  # small letters are the same
PriorityCalcPeriod=2
Include nodes.conf
PartitionName=DEFAULT PriorityTier=3
PartitionName=short Nodes=a[1-2] PriorityJobFactor=4
PartitionName=long Nodes=ALL Default=YES PriorityTier=1
PartitionName=empty Nodes=gone1
"""
NODES = """
NodeName=DEFAULT Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 \\
   RealMemory=512000
NodeName=a[1-2] Gres=gpu:a100:8
NodeName=b1 CPUs=8 Gres=gpu:4
NodeName=gone1 State=FUTURE Gres=gpu:8
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with slurm.conf and what it includes."""
    (tmp_path / "slurm.conf").write_text(CONF)
    (tmp_path / "nodes.conf").write_text(NODES)
    return tmp_path


def test_cluster_of__words_and_trace(tmp_path: Path) -> None:
    """NxG, groups that are only counted, or so many nodes of 8 that the trace keeps 80 % of them busy."""
    path = tmp_path / "site.toml"
    path.write_text("[[nodes]]\ncount = 2\ngpus = 8\n[[nodes]]\ngpus = 4\n")
    found = [cluster_of(text, BUSY).gpus for text in ("3x4", str(path), "auto")]
    assert found == [(4, 4, 4), (8, 8, 4), (8,) * 5]


def test_cluster_of__toml(tmp_path: Path) -> None:
    """Nodes by hostlist, partitions in their order, limits, slurm.conf's values and what that does not tell."""
    path = tmp_path / "site.toml"
    path.write_text(TOML)
    made = cluster_of(str(path), BUSY)
    big = [Node(f"a{n}", 8, 64, 1000.0, "gpu:a100:8") for n in (1, 2)]
    assert made.layout.nodes == (*big, Node("b1", 4, 4))
    assert made.layout.partitions == (Partition("long", ("a1", "a2")), Partition("all", (), 2, 5))
    assert made.layout.qos == (Limits("normal", max_gpus_per_user=8),)
    model = made.slurm_model
    assert (model.bf_window_s, model.bf_max_job_test, model.weight_age, model.max_age_s, model.rpc_latency_s) == (
        3_600.0, 7, 100, 604_800.0, 0.5,
    )  # fmt: skip


def test_cluster_of__shipped_example() -> None:
    """The file that the docs point to: 16 nodes of 8 GPUs and 4 of 4."""
    made = cluster_of(str(EXAMPLE), BUSY)
    assert (sum(made.gpus), [each.name for each in made.layout.partitions]) == (144, ["gpu", "interactive"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[nodes]]\ngpus = 8\nsize = 2\n", r"site\.toml: nodes\.0\.size: is no key"),
        ("[[nodes]]\ngpus = -1\n", r"site\.toml: nodes\.0\.gpus"),
        ("gpus = 8\n", r"site\.toml: nodes: is missing"),
        ("[[nodes]\n", r"site\.toml: is not TOML"),
        ('[[nodes]]\nnames = "a[1-"\ngpus = 8\n', r"site\.toml: nodes\.0\.names"),
        ('[[nodes]]\nnames = "a,a"\ngpus = 8\n', "a is named 2 times"),
        ("[[nodes]]\ngpus = 8\n[model]\nspeed = 3\n", r"model\.speed: is no setting"),
        ('[[nodes]]\ngpus = 8\n[model]\nepilog_s = "x"\n', r"model\.epilog_s: must be a number"),
        ('[[nodes]]\ngpus = 8\n[slurm]\nPriorityMaxAge = "soon"\n', "PriorityMaxAge: is 'soon', not a time"),
        ("[[nodes]]\ngpus = 0\n", "at least one GPU"),
    ],
)
def test_cluster_of__names_file_and_key_of_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    """And what to do about it."""
    path = tmp_path / "site.toml"
    path.write_text(text)
    with pytest.raises((ConfigError, InputError), match=said):
        cluster_of(str(path), BUSY)


@pytest.mark.parametrize("text", ["20x", "0x8", "nowhere.toml", "x"])
def test_cluster_of__refuses_what_is_no_cluster(text: str) -> None:
    """The text is named with the forms there are."""
    with pytest.raises(InputError, match="write NODESxGPUS"):
        cluster_of(text, BUSY)


def test_cluster_of__slurm_conf(site: Path) -> None:
    """Defaults, continued and included lines count; the default partition is first; what is not there is left out."""
    made = cluster_of(str(site / "slurm.conf"), BUSY)
    big = [Node(f"a{n}", 8, 64, 512_000.0, "gpu:a100:8") for n in (1, 2)]
    assert made.layout.nodes == (*big, Node("b1", 4, 8, 512_000.0, "gpu:4"))
    assert made.layout.partitions == (
        Partition("long", ("a1", "a2", "b1"), 1, 1), Partition("short", ("a1", "a2"), 3, 4),
    )  # fmt: skip
    model = made.slurm_model
    assert (model.bf_window_s, model.weight_age, model.calc_period_s, model.base_priority) == (3_600.0, 100, 120.0, 0)
    assert [text.rpartition(": ")[2] for text in made.warnings] == [
        "gone1 left out, State=FUTURE", "partition empty has no nodes here, left out",
    ]  # fmt: skip


def test_cluster_of__saved_snapshot(tmp_path: Path) -> None:
    """Nodes, partitions and settings as the live cycle saw them."""
    nodes = Nodes.build(2, {"name": ["n1", "n2"], "gpus": [8, 4], "cpus": [64, 32], "partitions": ["gpu", "gpu,short"]})
    listed = Partitions.build(2, {"name": ["gpu", "short"], "default": [False, True], "priority_tier": [1, 2]})
    site = Site(settings={"PriorityWeightAge": "70"})
    held = replace(snapshot(jobs=()), nodes=nodes, partitions=listed, site=site)
    path = tmp_path / "saved"
    write_snapshot(path, saved(held, Plan(()), Config()))
    made = cluster_of(str(path), BUSY)
    assert (made.gpus, made.layout.partitions) == (
        (8, 4), (Partition("short", ("n2",), 2), Partition("gpu", ("n1", "n2"))),
    )  # fmt: skip
    assert (made.slurm_model.weight_age, made.cpus_known) == (70, True)


def test_cluster_of__folder_with_limits(site: Path) -> None:
    """qos.txt and assoc.txt as sacctmgr -P prints them: GPUs of their TRES, accounts and not users."""
    (site / "qos.txt").write_text(
        "Name|Priority|GrpTRES|GrpJobs|MaxTRESPU|MaxJobsPU\nnormal|5|cpu=64,gres/gpu=16||gres/gpu=4|3\n"
    )
    (site / "assoc.txt").write_text(
        "Cluster|Account|User|GrpTRES|GrpJobs|MaxJobs\nours|physics||gres/gpu=12|9|\nours|physics|ann|||2\n"
    )
    layout = cluster_of(str(site), BUSY).layout
    assert layout.qos == (Limits("normal", 3, 4, 16, 0, 5),)
    assert layout.accounts == (Limits("physics", group_gpus=12, group_jobs=9),)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("NodeName=c1 Gres=gpu:a:b:c:(", "slurm.conf: line"), ("NodeName=c[1 Gres=gpu:1", "not a hostlist"),
        ("PartitionName=p Nodes=b1 PriorityTier=high", "prioritytier is 'high'"),
        ("PriorityMaxAge=1-2-3", "PriorityMaxAge: is '1-2-3'"),
    ],
)  # fmt: skip
def test_cluster_of__slurm_conf_names_the_line(site: Path, line: str, said: str) -> None:
    """Or the key, of a value that is not Slurm's."""
    with (site / "slurm.conf").open("a") as file:
        file.write(line + "\n")
    with pytest.raises((InputError, ConfigError), match=said):
        cluster_of(str(site), BUSY)


def test_cluster__of_groups_with_types() -> None:
    """Nodes of each group after those of the one before; a group without a type has none."""
    nodes = cluster_of("2x4:v100+1x8", BUSY).layout.nodes
    assert [(node.name, node.gpus, node.gpu_types) for node in nodes] == [
        ("node1", 4, "gpu:v100:4"), ("node2", 4, "gpu:v100:4"), ("node3", 8, ""),
    ]  # fmt: skip

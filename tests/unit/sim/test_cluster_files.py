"""Clusters in words and in files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slurmsched.config import Config
from slurmsched.errors import ConfigError, InputError
from slurmsched.model import Nodes, Partitions, Plan, Site
from slurmsched.model.trace import Trace
from slurmsched.observe.snapshot_file import saved_snapshot, write_snapshot
from slurmsched.sim.cluster_files import cluster_of
from slurmsched.sim.cluster_layout import (
    BARRED,
    PARENT,
    ClusterLayout,
    LimitSpec,
    NodeOutage,
    NodeSpec,
    OutageTimes,
    PartitionSpec,
)
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
    big = [NodeSpec(f"a{n}", 8, 64, 1000.0, "gpu:a100:8") for n in (1, 2)]
    assert made.layout.nodes == (*big, NodeSpec("b1", 4, 4))
    assert made.layout.partitions == (PartitionSpec("long", ("a1", "a2")), PartitionSpec("all", (), 2, 5))
    assert made.layout.qos == (LimitSpec("normal", max_gpus_per_user=8),)
    assert made.warnings == ()
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


@pytest.mark.parametrize("text", ["0x8", "8x0", "2x4:v100+0x4:p100", "1000000x8"])
def test_cluster_of__refuses_no_nodes_or_too_many(text: str) -> None:
    """With the numbers there may be."""
    with pytest.raises(InputError, match="is no cluster: 1 to 999999 nodes of 1 to 9999 GPUs; write NODESxGPUS"):
        cluster_of(text, BUSY)


@pytest.mark.parametrize("text", ["20x", "nowhere.toml", "x"])
def test_cluster_of__refuses_what_is_no_cluster(text: str) -> None:
    """The text is named with the forms there are."""
    with pytest.raises(InputError, match="write NODESxGPUS"):
        cluster_of(text, BUSY)


def test_cluster_of__slurm_conf(site: Path) -> None:
    """Defaults, continued and included lines count; the default partition is first; what is not there is left out."""
    made = cluster_of(str(site / "slurm.conf"), BUSY)
    big = [NodeSpec(f"a{n}", 8, 64, 512_000.0, "gpu:a100:8") for n in (1, 2)]
    assert made.layout.nodes == (*big, NodeSpec("b1", 4, 8, 512_000.0, "gpu:4"))
    assert made.layout.partitions == (
        PartitionSpec("long", ("a1", "a2", "b1"), 1, 1), PartitionSpec("short", ("a1", "a2"), 3, 4),
    )  # fmt: skip
    model = made.slurm_model
    assert (model.bf_window_s, model.weight_age, model.calc_period_s, model.base_priority) == (3_600.0, 100, 120.0, 0)
    assert [text.rpartition(": ")[2] for text in made.warnings] == [
        "gone1 left out, State=FUTURE", "partition empty has no nodes here, left out",
    ]  # fmt: skip


OBEYED = """
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName=a1 Gres=gpu:8 CPUs=64 RealMemory=1000 Weight=20 Feature=a100,ib
NodeName=b1 Gres=gpu:4 CPUs=32 RealMemory=1000 Weight=10 Features=v100
PartitionName=gpu Nodes=ALL OverSubscribe=EXCLUSIVE Default=YES
PartitionName=short Nodes=a1 MaxCPUsPerNode=48 GraceTime=120 LLN=YES
"""


def test_cluster_of__slurm_conf_has_features_weights_and_whole_nodes(tmp_path: Path) -> None:
    """Nodes in the order of the file. Memory does not count where SelectTypeParameters does not name it. Under
    select/linear each partition gives whole nodes."""
    (tmp_path / "slurm.conf").write_text(OBEYED)
    made = cluster_of(str(tmp_path), BUSY)
    seen = [(node.name, node.features, node.weight, node.memory_mib) for node in made.layout.nodes]
    assert seen == [("a1", ("a100", "ib"), 20, 0.0), ("b1", ("v100",), 10, 0.0)]
    seen = [(each.exclusive, each.max_cpus_per_node, each.grace_s, each.least_loaded)
            for each in made.layout.partitions]  # fmt: skip
    assert (seen, made.warnings) == ([(True, 0, 0.0, False), (False, 48, 120.0, True)], ())
    (tmp_path / "slurm.conf").write_text(OBEYED.replace("cons_tres", "linear").replace("CR_Core", "CR_Memory,CR_LLN"))
    made = cluster_of(str(tmp_path), BUSY)
    assert [each.least_loaded for each in made.layout.partitions] == [True, True]
    assert [each.exclusive for each in made.layout.partitions] == [True, True]
    assert [node.memory_mib for node in made.layout.nodes] == [1000.0, 1000.0]


@pytest.mark.parametrize(("line", "told"), [
    ("PreemptType=preempt/qos\nPreemptMode=SUSPEND,GANG", "PreemptMode=SUSPEND,GANG is not modelled: jobs that may "
     "preempt wait too long, jobs that may be preempted too short"),
    ("Licenses=matlab:5\nSchedulerParameters=bf_licenses", "SchedulerParameters=bf_licenses is not modelled: backfill "
     "keeps no licences for a job that waits for some: it may wait too long"),
    ("TopologyPlugin=topology/block", "TopologyPlugin=topology/block is not modelled: jobs of several nodes may be "
                                      "spread over more blocks: they wait too short"),
    ("TopologyPlugin=topology/tree", "TopologyPlugin=topology/tree is not modelled: jobs of several nodes get other "
                                     "nodes, so that single starts differ; those with --switches wait too short"),
    ("SchedulerParameters=bf_window=60,max_rpc_cnt=150", "SchedulerParameters=max_rpc_cnt=150 is not "
     "modelled: a pass takes no time in the model: on a busy slurmctld waits are too short"),
    ("PartitionName=down Nodes=a1 State=DOWN",
     "State of partition down is not modelled: its jobs start as if it were up"),
    ("PartitionName=cpu Nodes=a1 MaxCPUsPerSocket=48\nPartitionName=d Nodes=a1 MaxCPUsPerSocket=4",
     "MaxCPUsPerSocket of partitions cpu, d is not modelled: its jobs may take more CPUs of a node: jobs of other "
     "partitions there wait too long"),
    ("PreemptType=preempt/none\nPriorityWeightAssoc=0\nTopologyPlugin=topology/default", ""),
])  # fmt: skip
def test_cluster_of__warns_once_of_each_setting_that_is_not_modelled(tmp_path: Path, line: str, told: str) -> None:
    """With what it does to the answer; and not of settings that say that there is nothing."""
    (tmp_path / "slurm.conf").write_text(f"{line}\n{OBEYED}")
    conf = tmp_path / "slurm.conf"
    assert cluster_of(str(tmp_path), BUSY).warnings == ((f"{conf}: {told}",) if told else ())


@pytest.mark.parametrize(("text", "have"), [("matlab:5,ansys", {"matlab": 5, "ansys": 1}), ("", {}), ("a|b", None)])
def test_cluster_of__licenses(tmp_path: Path, text: str, have: dict[str, int] | None) -> None:
    """Of slurm.conf and of a cluster file alike."""
    (tmp_path / "slurm.conf").write_text(f"{OBEYED}\nLicenses={text}\n")
    (tmp_path / "own.toml").write_text(f'[[nodes]]\ngpus = 8\n[slurm]\nLicenses = "{text}"\n')
    for name in ("slurm.conf", "own.toml"):
        if have is None:
            with pytest.raises(ConfigError, match="Licenses"):
                cluster_of(str(tmp_path / name), BUSY)
        else:
            assert cluster_of(str(tmp_path / name), BUSY).layout.licenses == have


EVENTS = """Cluster|NodeName|TimeStart|TimeEnd|State
lab||1000|Unknown|
lab|a1|1100|1200|DOWN
lab|b1|900|1050|DRAIN
lab|gone|1000|1100|DOWN
lab|b1|1300|Unknown|DRAIN
lab|a1|100|200|DOWN
"""
KEPT = """Cluster|Name|NodeName|TimeStart|TimeEnd|Flags
lab|upgrade|a1,b1|1400|1500|MAINT,IGNORE_JOBS,SPEC_NODES
lab|class|a1|1400|1500|SPEC_NODES
"""


def test_cluster_of__outages_of_the_history(tmp_path: Path) -> None:
    """Of event.txt and resv.txt, on the trace's clock; those over before it, of other nodes, and reservations for
    users are left out. Without a calendar all are."""
    (tmp_path / "slurm.conf").write_text(OBEYED)
    (tmp_path / "event.txt").write_text(EVENTS)
    (tmp_path / "resv.txt").write_text(KEPT)
    made = cluster_of(str(tmp_path), BUSY)
    closures = made.in_time_of(1000.0).layout.closures
    seen = [(each.nodes, each.from_s, each.until_s, each.planned) for each in closures]
    assert seen == [
        (("a1",), 100.0, 200.0, False), (("b1",), 0.0, 50.0, False), (("b1",), 300.0, float("inf"), False),
        (("a1", "b1"), 400.0, 500.0, True),
    ]  # fmt: skip
    undated = made.in_time_of(float("nan"))
    assert (undated.layout.closures, len(undated.warnings)) == ((), 1 + len(made.warnings))
    (tmp_path / "event.txt").write_text("NodeName|Begin\na1|soon\n")
    with pytest.raises(
        InputError, match=r"event.txt:2: has no TimeStart and TimeEnd .* `SLURM_TIME_FORMAT=%s sacctmgr"
    ):
        cluster_of(str(tmp_path), BUSY)


def test_outages__close_their_nodes_while_they_last() -> None:
    """One of two nodes, one that is planned, and one that ends the jobs of its nodes."""
    layout = ClusterLayout(
        tuple(NodeSpec(name, 8, 8) for name in "ab"),
        closures=(NodeOutage(("a",), 5.0, 9.0), NodeOutage(("b",), 7.0, 8.0, planned=True),
                  NodeOutage((), 20.0, 30.0, down=True)),
    )  # fmt: skip
    times = OutageTimes.of(layout)
    assert [times.open_at(at_s).tolist() for at_s in (4.0, 5.0, 7.0, 9.0, 25.0)] == [
        [True, True], [False, True], [False, False], [True, True], [False, False],
    ]  # fmt: skip
    assert [each.from_s for at_s in (5.0, 20.0) for each in times.failing_at(at_s)] == [20.0]
    assert [times.planned_after(at_s)[1].tolist() for at_s in (0.0, 8.0)] == [[[False, True]], []]


def test_cluster_of__folder_with_the_settings_in_use(site: Path) -> None:
    """config.txt is what slurmctld works by, and has its version: it counts over slurm.conf."""
    told = "Configuration data as of 2026-11-30\nPriorityWeightAge       = 300\nEpilog[0]               = /bin/true\n"
    (site / "config.txt").write_text(f"{told}SLURM_VERSION           = 24.11.5\n")
    made = cluster_of(str(site), BUSY)
    model = made.slurm_model
    assert (model.weight_age, model.bf_window_s, model.has_epilog) == (300, 3_600.0, True)
    assert (model.shortest_run, model.last_of_all) == (True, True)
    (site / "config.txt").write_text(told)
    with pytest.raises(InputError, match=r"config.txt: has no SLURM_VERSION; make it with `scontrol show config`"):
        cluster_of(str(site), BUSY)


def test_cluster_of__saved_snapshot(tmp_path: Path) -> None:
    """Nodes, partitions and settings as the live cycle saw them."""
    nodes = Nodes.build(2, {"name": ["n1", "n2"], "gpus": [8, 4], "cpus": [64, 32], "partitions": ["gpu", "gpu,short"]})
    listed = Partitions.build(2, {"name": ["gpu", "short"], "default": [False, True], "priority_tier": [1, 2]})
    site = Site(settings={"PriorityWeightAge": "70"})
    held = replace(snapshot(jobs=()), nodes=nodes, partitions=listed, site=site)
    path = tmp_path / "saved"
    write_snapshot(path, saved_snapshot(held, Plan(()), Config()))
    made = cluster_of(str(path), BUSY)
    assert (made.gpus, made.layout.partitions) == (
        (8, 4), (PartitionSpec("short", ("n2",), 2), PartitionSpec("gpu", ("n1", "n2"))),
    )  # fmt: skip
    assert (made.slurm_model.weight_age, made.cpus_known) == (70, True)


def test_cluster_of__folder_with_limits(site: Path) -> None:
    """qos.txt, assoc.txt and sshare.txt as Slurm's commands print them: GPUs of their TRES, tree, users, usage."""
    (site / "qos.txt").write_text(
        "Name|Priority|GrpTRES|GrpJobs|MaxTRESPU|MaxJobsPU|MaxWall|MaxTRES|MaxSubmitPU|UsageFactor\n"
        "normal|5|cpu=64,gres/gpu=16||gres/gpu=4|3|1-00:00:00|gres/gpu=8|20|0.500000\n"
    )
    (site / "assoc.txt").write_text(
        "Cluster|Account|User|Partition|Share|GrpTRES|GrpJobs|MaxJobs|GrpSubmit\n"
        "ours|root|||1||||\nours| science|||3||||\nours|  physics|||parent|gres/gpu=12|9||50\n"
        "ours|  physics|ann||2|||2|\nours|  physics|ann|debug|1||||\nours| other|||1||||\nelsewhere|x|||1||||\n"
    )
    (site / "sshare.txt").write_text("Account|User|RawShares|RawUsage\n  physics||parent|90\n   physics|ann|2|70\n")
    layout = cluster_of(str(site), BUSY).layout
    assert layout.qos == (
        LimitSpec("normal", 3, 4, 16, 0, 5, max_wall_s=86_400.0, max_gpus_per_job=8, max_submit_per_user=20,
               usage_factor=0.5),
    )  # fmt: skip
    physics = LimitSpec("physics", group_gpus=12, group_jobs=9, group_submit=50, parent="science", shares=PARENT)
    assert layout.accounts == (
        LimitSpec("root"), LimitSpec("science", parent="root", shares=3), physics,
        LimitSpec("physics", user="ann", shares=2, max_jobs_per_user=2, usage=70.0), LimitSpec("other", parent="root"),
    )  # fmt: skip


def test_cluster_of__folder_tells_limits_on_what_is_used(site: Path) -> None:
    """In minutes and GPU minutes; flags of a QOS; the QOS of a partition, and one that is not there."""
    (site / "qos.txt").write_text(
        "Name|Flags|GrpTRESMins|GrpTRESRunMins|GrpWall|MaxTRESMins\n"
        "part|DenyOnLimit,NoDecay,OverPartQOS|cpu=9,gres/gpu=100|gres/gpu=50|02:00:00|gres/gpu=10\nbarred||gres/gpu=0|||\n"
    )
    (site / "assoc.txt").write_text("Account|User|GrpTRESMins|GrpTRESRunMins|GrpWall|MaxTRESMins\nlab||gres/gpu=7|||\n")
    with (site / "slurm.conf").open("a") as file:
        file.write("PartitionName=wide Nodes=b1 QOS=part\nPartitionName=odd Nodes=b1 QOS=other\n")
        file.write("PartitionName=none Nodes=b1 QOS=N/A\nAccountingStorageEnforce=limits,Safe\n")
    made = cluster_of(str(site), BUSY)
    assert made.layout.qos == (
        LimitSpec("part", group_gpu_s=6_000.0, group_run_gpu_s=3_000.0, group_wall_s=7_200.0, max_gpu_s_per_job=600.0,
               no_decay=True, over_part_qos=True),
        LimitSpec("barred", group_gpu_s=BARRED),
    )  # fmt: skip
    assert made.layout.accounts == (LimitSpec("lab", group_gpu_s=420.0),)
    qos = {each.name: each.qos for each in made.layout.partitions}
    assert (qos["wide"], qos["odd"], qos["none"]) == ("part", "other", "")
    assert made.warnings[-1].endswith("qos.txt: has no QOS other, which a partition names; its limits are left out")
    assert made.slurm_model.safe_limits
    (site / "qos.txt").unlink()
    assert (
        cluster_of(str(site), BUSY)
        .warnings[-1]
        .endswith(
            "qos.txt: is not there; limits of other, part, which partitions name, are left out; make it with "
            "`sacctmgr -P show qos`"
        )
    )


def test_cluster_of__folder_tells_a_limit_of_nothing_from_none(site: Path) -> None:
    """0 bars, an empty field does not limit; limits on GPUs of one type count in GrpTRES, not in MaxTRES."""
    (site / "qos.txt").write_text(
        "Name|GrpTRES|GrpJobs|MaxTRES|MaxWall\nout|cpu=9,gres/gpu=0|0|gres/gpu:a100=8|00:00:00\n"
        "in|gres/gpu:a100=8,gres/gpu=4||cpu=8|\n"
    )
    barred = LimitSpec("out", group_gpus=BARRED, group_jobs=BARRED, max_wall_s=BARRED)
    made = cluster_of(str(site), BUSY)
    assert made.layout.qos == (barred, LimitSpec("in", group_gpus=4, typed_gpus=(("GrpTRES", "a100", 8),)))
    assert (
        made.warnings[-1]
        == f"{site / 'qos.txt'}: 1 limit on GPUs of one type left out, gres/gpu:a100=8 in line 2 first"
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("assoc.txt", "User|Share\nann|1\n", "no heading with Account; make it with `sacctmgr -P show assoc tree"),
        ("assoc.txt", "Account|Share\nphysics|many\n", r"assoc\.txt.*2.*cannot be read.*many"),
        ("qos.txt", "Name|MaxWall\nnormal|ever\n", r"qos\.txt.*2.*MaxWall: is 'ever'"),
        ("qos.txt", "Name|GrpWall\nnormal|ever\n", r"qos\.txt.*2.*GrpWall: is 'ever'"),
        ("sshare.txt", "Account|User|RawUsage\na|b|much\n", r"sshare\.txt.*2.*much"),
    ],
)  # fmt: skip
def test_cluster_of__folder_names_the_line_of_a_limit(site: Path, name: str, text: str, said: str) -> None:
    """That cannot be read, and the command that prints the file."""
    (site / name).write_text(text)
    with pytest.raises(InputError, match=said):
        cluster_of(str(site), BUSY)


def test_cluster_of__slurm_conf_tells_what_partitions_allow(site: Path) -> None:
    """MaxTime, DefaultTime, MinNodes, MaxNodes and what a second costs; UNLIMITED is none; fair share's settings."""
    with (site / "slurm.conf").open("a") as file:
        file.write(
            "PartitionName=wide Nodes=b1 MaxTime=1-12 DefaultTime=30 MinNodes=2 MaxNodes=UNLIMITED "
            'TRESBillingWeights="CPU=1.0,Mem=0.5G,GRES/gpu=8,license/x=1"\n'
            "PriorityWeightFairshare=5000\nPriorityDecayHalfLife=14-0\nPriorityUsageResetPeriod=WEEKLY\n"
            "PriorityFlags=NO_FAIR_TREE,MAX_TRES\nFairShareDampeningFactor=3\n"
        )
    made = cluster_of(str(site), BUSY)
    wide = PartitionSpec("wide", ("b1",), 3, 1, 129_600.0, 1_800.0, 2, 0, (8.0, 1.0, 0.5 / 1024))
    assert made.layout.partitions[-1] == wide
    model = made.slurm_model
    told = (model.weight_fairshare, model.decay_half_life_s, model.usage_reset, model.fair_tree, model.damping)
    assert (*told, model.billing_max) == (5_000, 1_209_600.0, "weekly", False, 3.0, True)


def test_cluster_of__toml_tells_accounts_and_users(tmp_path: Path) -> None:
    """Parents, shares and usage; limits of one job and of jobs submitted; what a partition allows."""
    path = tmp_path / "site.toml"
    path.write_text("""
[[nodes]]
gpus = 8
[[partitions]]
name = "gpu"
max_time_s = 3600
billing = "CPU=1,GRES/gpu=4"
qos = "part"
[[qos]]
name = "part"
no_decay = true
over_part_qos = true
group_gpu_s = 60
group_wall_s = 120
group_run_gpu_s = 180
max_gpu_s_per_job = 240
[[accounts]]
name = "physics"
parent = "science"
shares = "parent"
[[accounts]]
name = "science"
shares = 3
max_submit_per_user = 4
[[accounts]]
name = "physics"
user = "ann"
usage = 70.5
""")
    layout = cluster_of(str(path), BUSY).layout
    assert layout.partitions == (PartitionSpec("gpu", max_time_s=3_600.0, billing=(4.0, 1.0, 0.0), qos="part"),)
    assert layout.qos == (
        LimitSpec("part", group_gpu_s=60.0, group_wall_s=120.0, group_run_gpu_s=180.0, max_gpu_s_per_job=240.0,
               no_decay=True, over_part_qos=True),
    )  # fmt: skip
    assert layout.accounts == (
        LimitSpec("physics", parent="science", shares=PARENT), LimitSpec("science", shares=3, max_submit_per_user=4),
        LimitSpec("physics", user="ann", usage=70.5),
    )  # fmt: skip


def test_cluster_of__leaves_out_specialised_resources(site: Path) -> None:
    """Jobs get neither CoreSpecCount nor MemSpecLimit: two cores are four CPUs here."""
    text = "NodeName=a[1-2] Gres=gpu:a100:8 CoreSpecCount=2 MemSpecLimit=16000\n"
    (site / "nodes.conf").write_text(NODES.replace("NodeName=a[1-2] Gres=gpu:a100:8\n", text))
    nodes = {node.name: node for node in cluster_of(str(site), BUSY).layout.nodes}
    assert (nodes["a1"].cpus, nodes["a1"].memory_mib) == (60, 496_000.0)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("NodeName=c1 Gres=gpu:a:b:c:(", "slurm.conf: line"), ("NodeName=c[1 Gres=gpu:1", "not a hostlist"),
        ("PartitionName=p Nodes=b1 PriorityTier=high", "prioritytier is 'high'"),
        ("PriorityMaxAge=1-2-3", "PriorityMaxAge: is '1-2-3'"),
        ("PartitionName=p Nodes=b1 MaxTime=soon", "'soon', not a time"),
        ("PartitionName=p Nodes=b1 MaxNodes=few", "not a number of nodes"),
        ("PartitionName=p Nodes=b1 TRESBillingWeights=CPU=x", "'x' for CPU, not a weight"),
        ("PriorityUsageResetPeriod=hourly", "must be one of none, now, daily"),
    ],
)  # fmt: skip
def test_cluster_of__slurm_conf_names_the_line(site: Path, line: str, said: str) -> None:
    """Or the key, of a value that is not Slurm's."""
    with (site / "slurm.conf").open("a") as file:
        file.write(line + "\n")
    with pytest.raises((InputError, ConfigError), match=said):
        _ = cluster_of(str(site), BUSY).slurm_model


def test_cluster__of_groups_with_types() -> None:
    """Nodes of each group after those of the one before; a group without a type has none."""
    nodes = cluster_of("2x4:v100+1x8", BUSY).layout.nodes
    assert [(node.name, node.gpus, node.gpu_types) for node in nodes] == [
        ("node1", 4, "gpu:v100:4"), ("node2", 4, "gpu:v100:4"), ("node3", 8, ""),
    ]  # fmt: skip


@pytest.mark.parametrize(("lines", "told"), [
    ("PreemptType=preempt/qos\nPreemptMode=REQUEUE\nPreemptExemptTime=00:10:00", ("qos", "requeue", 600.0)),
    ("PreemptType=preempt/partition_prio\nPreemptMode=CANCEL", ("partition", "cancel", 0.0)),
    ("PreemptType=preempt/partition_prio\nPreemptMode=SUSPEND,GANG", ("none", "off", 0.0)),
    ("PreemptMode=REQUEUE", ("none", "off", 0.0)),
])  # fmt: skip
def test_cluster_of__slurm_conf_says_who_preempts_whom(
    tmp_path: Path, lines: str, told: tuple[str, str, float]
) -> None:
    """Type, mode and exempt time of the cluster; modes of partitions and QOS, and whose jobs those of a QOS preempt."""
    (tmp_path / "slurm.conf").write_text(f"{lines}\n{OBEYED}PartitionName=low Nodes=b1 PreemptMode=CANCEL\n")
    (tmp_path / "qos.txt").write_text("Name|Preempt|PreemptMode\ntop|mid,low|cluster\nlow||requeue\n")
    made = cluster_of(str(tmp_path), BUSY)
    model = made.slurm_model
    assert (model.preempt_type, model.preempt_mode, model.preempt_exempt_s) == told
    assert [each.preempt_mode for each in made.layout.partitions] == ["", "", "cancel"]
    assert [(each.preempts, each.preempt_mode) for each in made.layout.qos] == [(("mid", "low"), ""), ((), "requeue")]

"""scontrol's nodes, partitions and held GPUs, of old and new Slurm."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest

from slurmsched.model import NodeState, node_state
from slurmsched.model.gres import RequestForms, read_request_forms
from slurmsched.model.slurm_text import record_fields, slurm_duration_s, split_records, time_s
from slurmsched.slurm.job_tables import expand_hosts
from slurmsched.slurm.scontrol_tables import _node, build_nodes, parse_nodes, parse_partitions
from tests.recorded.playback import HERE

PUBLIC = HERE / "public"


def test_parse_nodes__reads_odd_indentation():
    """20.11: leading blanks vary, and a node whose Gres is (null) still has the GPUs of its CfgTRES."""
    nodes = parse_nodes((PUBLIC / "scontrol-show-node-20.11-odd-indent.txt").read_text(), [])
    rows = zip(nodes.name, nodes.gpus, nodes.gpus_used, nodes.cpus, nodes.cpus_used, nodes.memory_used_mib, strict=True)
    assert [tuple(row) for row in rows] == [(f"test-node-{i}", 8, 8, 80, 34, 196_976.0) for i in (1, 2, 3)]
    assert list(nodes.gpu_types) == ["gpu:8", "gpu:rtx8000:8", "gpu:v100:8"]
    assert nodes.partitions[0].startswith("cpu_jobs_low,cpu_jobs_low-grace,long")


def node(name: str = "n1", **values: str) -> str:
    plain = {"Gres": "gpu:a100:8", "GresUsed": "gpu:a100:2(IDX:0-1)", "State": "MIXED", "CPUTot": "64"} | values
    return " ".join([f"NodeName={name}", *(f"{key}={value}" for key, value in plain.items())]) + "\n"


def test_parse_nodes__orders_by_name():
    """Rows come in ascending name with their own values."""
    nodes = parse_nodes(node("n2", CPUTot="2") + node("n1", CPUTot="1"), [])
    assert list(zip(nodes.name, nodes.cpus.tolist(), strict=True)) == [("n1", 1), ("n2", 2)]


def test_parse_nodes__keeps_migs_out_of_gpus():
    """MIG devices are in the node's types, not in its GPU counts or mask."""
    text = node(Gres="gpu:a100:4,gpu:1g.5gb:14", GresUsed="gpu:a100:1(IDX:3),gpu:1g.5gb:2(IDX:4-5)")
    nodes = parse_nodes(text, [])
    assert (nodes.gpus[0], nodes.gpus_used[0], nodes.gpu_mask_used[0], nodes.gpu_types[0]) == (
        4, 1, 0b1000, "gpu:1g.5gb:14,gpu:a100:4",
    )  # fmt: skip


def test_parse_nodes__counts_an_unknown_state_as_down():
    """A state of a future Slurm: a warning, and its GPUs are no free ones."""
    warnings: list[str] = []
    nodes = parse_nodes(node(State="DREAMING"), warnings)
    assert (bool(nodes.down[0]), nodes.gpu_totals()["down"]) == (True, 8)
    assert len(warnings) == 1 and "DREAMING" in warnings[0]


def test_parse_nodes__leaves_out_gpus_it_cannot_read():
    """Gres outside the grammar: a warning, no GPUs, the node stays."""
    warnings: list[str] = []
    nodes = parse_nodes(node(Gres="gpu::8", GresUsed=""), warnings)
    assert (len(nodes), int(nodes.gpus[0]), len(warnings)) == (1, 0, 1)


def test_parse_nodes__keeps_reasons_with_keys_in_them():
    """What an administrator writes as reason changes no other column."""
    nodes = parse_nodes(node(State="IDLE+DRAIN", Reason="bad fan [root@now] State=IDLE Gres=gpu:99"), [])
    assert (nodes.reason[0], int(nodes.gpus[0]), bool(nodes.draining[0])) == ("bad fan [root@now]", 8, True)


@pytest.mark.parametrize(
    "file", ["24.11.5/nodes.txt", "26.05.5/nodes.txt", "public/scontrol-show-node-20.11-odd-indent.txt"]
)
def test_parse_nodes__leaves_out_no_field_that_is_read(file):
    """Fields that are not read are left out of a record before it is split; the table is that of whole records."""
    text = (HERE / file).read_text()
    whole = build_nodes((_node(record_fields(record)) for record in split_records(text, "NodeName")), [])
    read = parse_nodes(text, [])
    assert {spec.name: list(getattr(whole, spec.name)) for spec in fields(whole)} == {
        spec.name: list(getattr(read, spec.name)) for spec in fields(read)
    }


def test_parse_partitions__reads_limits():
    """Endless and absent times, tiers, hostlists."""
    closed = "Default=NO DefaultTime=NONE MaxTime=UNLIMITED Nodes=n[1-4] PriorityTier=3 State=DOWN TotalNodes=4"
    empty = "Default=YES DefaultTime=01:00:00 MaxTime=7-00:00:00 Nodes=(null) PriorityTier=1 State=UP TotalNodes=0"
    table = parse_partitions(f"PartitionName=b {closed}\nPartitionName=a {empty}\n", [])
    assert list(table.name) == ["a", "b"]
    assert (table.up.tolist(), table.default.tolist(), table.priority_tier.tolist()) == (
        [True, False],
        [True, False],
        [1, 3],
    )
    assert table.max_time_s.tolist() == [604_800.0, math.inf]
    assert table.default_time_s.tolist() == pytest.approx([3600.0, math.nan], nan_ok=True)
    assert list(table.node_list) == ["", "n[1-4]"]


def test_node_states__of_sinfo_lists():
    """sinfo's hostlists with several prefixes and its joined states (24.x)."""
    lines = (PUBLIC / "sinfo-nodelist-states.txt").read_text().split("\n\n")[0].splitlines()
    states = {
        host: node_state(state)
        for hosts, state, _ in (line.split("|") for line in lines)
        for host in expand_hosts(hosts)
    }
    assert len(states) == 42
    assert (states["gpu-2"], states["gpu-14"], states["gpu-7"], states["c1-28"]) == (
        NodeState.MIXED | NodeState.DRAIN, NodeState.IDLE | NodeState.DRAIN, NodeState.MIXED | NodeState.RESERVED,
        NodeState.IDLE,
    )  # fmt: skip


def job_forms(found: dict[str, str]) -> RequestForms:
    """The request of a `scontrol show job` record."""
    texts = [found.get(f"TresPer{name}", "") for name in ("Job", "Task", "Socket", "Node")]
    tres = found.get("ReqTRES", found.get("TRES", ""))
    return RequestForms(*texts, tres, int(found["NumNodes"].partition("-")[0]), int(found["NumTasks"]))


def test_job_records__of_20_11():
    """Several lines a job, TresPerNode without prefix, StartTime="None" in quotes, reasons with brackets."""
    first, second = map(record_fields, split_records((PUBLIC / "scontrol-show-job-20.11.txt").read_text(), "JobId"))
    assert [read_request_forms(job_forms(found)).text for found in (first, second)] == ["gpu:titanxp:1", "gpu:a100:1"]
    assert (second["Restarts"], second["Reason"]) == (
        "11", "ReqNodeNotAvail,_UnavailableNodes:node8,nodek4,nodep[1-2],nodex3",
    )  # fmt: skip
    assert math.isnan(time_s(second["StartTime"])) and slurm_duration_s(first["TimeLimit"]) == 604_800


def test_job_records__one_line_each():
    """TresPerJob=gres/gpu:4 with ReqTRES gres/gpu=1 counts four; empty values are empty (24.x)."""
    found = [
        record_fields(record)
        for record in split_records((PUBLIC / "scontrol-show-job-oneline-pending-gpu.txt").read_text(), "JobId")
    ]
    assert [read_request_forms(job_forms(job)).gpus for job in found] == [4, 4, 1]
    assert (found[0]["NodeList"], found[0]["Command"], found[0]["SchedNodeList"] != "") == ("", "", True)


def test_parse_partitions__a_topology_of_its_own():
    """Topology= of 25.05 and later; without it the cluster's default."""
    found = parse_partitions(
        "PartitionName=a State=UP Topology=blocks\n\nPartitionName=b State=UP Topology=(null)\n", []
    )
    assert list(found.topology) == ["blocks", ""]


def test_parse_nodes__names_gpus_beyond_a_mask():
    """Of 64 and more the used ones are counted without indices, shared ones too."""
    warnings: list[str] = []
    nodes = parse_nodes(node(Gres="gpu:a100:64", GresUsed="gpu:a100:2(IDX:62-63)"), warnings)
    assert (nodes.gpus_used.tolist(), nodes.gpu_mask_used.tolist()) == ([2], [0])
    assert [warning.partition(": ")[2] for warning in warnings] == [
        "a mask has no GPU of index 63 or higher; all are counted without indices"
    ]
    parts = ",".join(["1/4"] * 64)
    shared = parse_nodes(node(Gres="gpu:a100:64,shard:256", GresUsed=f"gpu:a100:0,shard:64({parts})"), warnings)
    assert (shared.gpus_used.tolist(), shared.gpu_mask_used.tolist()) == ([64], [0])


@pytest.mark.parametrize(
    ("used", "tres", "shards"),
    [
        ("shard:a100:7(4/4,3/4,0/4,0/4)", "", "4/4,3/4,0/4,0/4"),
        ("shard:(null):7(4/4,3/4,0/4,0/4)", "gres/shard=7", "4/4,3/4,0/4,0/4"),
        ("shard:a100:7(4/4,3/4,0/4,0/4)", "gres/shard=8", ""),  # one more is in use, on a GPU that is not shown
        ("shard:a100:7(4/4,2/4,0/4,0/4)", "", ""),
        ("shard:a100:3(-/4,3/4,-/4,0/4)", "gres/shard=3", "0/4,3/4,0/4,0/4"),  # "-": held whole
        ("shard:a100:7(4/4,3/4)", "", ""),
        ("shard:a100:7", "", ""),
        ("mps:50(50/100,-/100,-/100,0/100)", "gres/mps=50", "mps:50/100,0/100,0/100,0/100"),
        ("mps:50(50/100,0/100,0/100,0/100)", "gres/mps=51", ""),
        ("mps:1(1/100,0/100,0/100,0/100),shard:1(1/4,0/4,0/4,0/4)", "", ""),  # of both: which is not known
        ("mps:a100:50(50/100,0/100,0/100,0/100)", "", "mps:50/100,0/100,0/100,0/100"),
    ],
)
def test_parse_nodes__shards_of_each_gpu(used, tres, shards):
    """In use and in all, in the order of the GPUs; "" if not all of them are shown."""
    text = node(Gres="gpu:a100:4,shard:a100:16", GresUsed=f"gpu:a100:0(IDX:N/A),{used}", AllocTRES=tres)
    assert list(parse_nodes(text, []).shards) == [shards]


def test_parse_nodes__shards_beside_whole_gpus():
    """Two GPUs are held whole, which shows as "-"; one has three shards in use, not three GPUs one each."""
    used = "gpu:a100:2(IDX:0,2),shard:a100:3(-/4,3/4,-/4,0/4)"
    nodes = parse_nodes(node(Gres="gpu:a100:4,shard:a100:16", GresUsed=used, AllocTRES="gres/gpu=2,gres/shard=3"), [])
    assert (nodes.gpus_used.tolist(), nodes.gpus_shared.tolist(), nodes.gpu_mask_used.tolist()) == ([3], [1], [0b111])


@pytest.mark.parametrize(
    ("state", "next_state", "use"),
    [
        ("DOWN+DRAIN+REBOOT_ISSUED", "RESUME", "boot"),  # scontrol reboot asap nextstate=resume, under way
        ("DOWN+REBOOT_ISSUED", "RESUME", "boot"),
        ("DOWN+DRAIN+REBOOT_ISSUED", "DOWN", "down"),
        ("DOWN+DRAIN+REBOOT_ISSUED", "", "down"),
        ("MIXED+DRAIN+REBOOT_REQUESTED", "RESUME", "draining"),  # its jobs must end first
        ("IDLE", "", "idle"),
    ],
)
def test_parse_nodes__a_node_that_resumes_after_its_reboot(state, next_state, use):
    """Slurm's backfill plans jobs on a node that reboots with NextState=RESUME, whatever closed it before."""
    more = {"NextState": next_state} if next_state else {}
    nodes = parse_nodes(node(State=state, GresUsed="gpu:a100:0", **more), [])
    assert {name: gpus for name, gpus in nodes.gpu_totals().items() if gpus} == {use: 8, "all": 8}
    assert nodes.closed.tolist() == [use in ("down", "draining")]


def test_parse_nodes__cpus_that_only_gpu_jobs_get():
    """RestrictedCoresPerGPU counts cores; the text says which ones, too."""
    text = node("n1", RestrictedCoresPerGPU="16(0-63)", ThreadsPerCore="2") + node("n2")
    assert parse_nodes(text, []).cpus_per_gpu_kept.tolist() == [32, 0]

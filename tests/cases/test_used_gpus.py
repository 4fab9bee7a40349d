"""A used count that cannot be read never counts as free: the ways in which it can be missing, odd or contradictory."""

from __future__ import annotations

import json

import pytest

from slurmsched.slurm.scontrol_tables import parse_nodes
from tests.cases.conftest import Run
from tests.cases.fake_slurm import FakeSlurm, job, node, record, running

UNREAD = "unread"
BUSY = {"State": "MIXED", "CPUAlloc": "8"}
TRES = "cpu=64,mem=512000M,billing=64"
# GresUsed, AllocTRES and other fields of a node of eight GPUs -> how many are used, or UNREAD.
USED = [
    ("gpu:(null):8(IDX:0-7)", "cpu=8,gres/gpu=8", {"Gres": "gpu:8"}, 8),
    ("gpu:(null):3(IDX:0,2-3)", "", {"Gres": "gpu:8(S:0-1)"}, 3),
    ("gpu:(null):0(IDX:N/A)", "", {"Gres": "gpu:8"}, 0),
    ("gpu:8(IDX:0-7)", "", {"Gres": "gpu:8"}, 8),
    ("gpu:(null):8(IDX:0-7),shard:(null):0(0/4,0/4,0/4,0/4,0/4,0/4,0/4,0/4)", "", {"Gres": "gpu:8,shard:32"}, 8),
    ("gpu:a100:2(IDX:0-1)", "cpu=8,gres/gpu=3,gres/gpu:a100=3", {}, 3),  # the higher count stands
    ("gpu:a100:3(IDX:0-2)", "cpu=8,gres/gpu=2", {}, 3),
    ("gpu:a100:2(IDX:0-3)", "", {}, 4),  # more indices than the count
    ("gpu:a100:9(IDX:0-7)", "", {}, 8),
    ("gpu:a100:4000", "", {}, 8),
    ("gpu:h100:2(IDX:0-1)", "", {}, 2),  # a type that Gres does not have
    ("(null)", "cpu=8,gres/gpu=5", {"CfgTRES": f"{TRES},gres/gpu=8"}, 5),
    ("N/A", "cpu=8", {"CfgTRES": f"{TRES},gres/gpu=8"}, 0),
    ("", "", {"CfgTRES": TRES, "State": "IDLE", "CPUAlloc": "0"}, 0),  # nothing runs on an idle node
    ("", "cpu=8", {"CfgTRES": TRES}, UNREAD),
    ("(null)", "cpu=8", {"CfgTRES": TRES}, UNREAD),
    ("mps:0", "cpu=8", {"CfgTRES": TRES}, UNREAD),
    ("gpu:a100", "", {}, UNREAD),
    ("gpu:a100:eight", "", {}, UNREAD),
    ("gpu:a100:-1", "", {}, UNREAD),
    ("gpu:a100:99999999999", "", {}, UNREAD),
    ("gpu:a100:4294967295", "", {}, UNREAD),
    ("gpu:a100:2(IDX:0-999999999)", "", {}, UNREAD),
    ("gpu:a100:2(IDX:3-0)", "", {}, UNREAD),
    ("gpu:a100:2(IDX:x)", "", {}, UNREAD),
    ("gpu:a100:2(IDX:0-1),???", "", {}, UNREAD),
    ("gpu:a100:2(IDX:0-1", "", {}, UNREAD),
    ("gpu:a100:2(IDX:0-1),gpu", "", {}, UNREAD),
    ("gpu:(nul):8", "", {}, UNREAD),
    ("2", "", {}, UNREAD),
    ("gpu:a100:0(IDX:N/A)", "cpu=8,gres/gpu=?", {}, UNREAD),
    ("gpu:a100:0(IDX:N/A)", "cpu=8,,gres/gpu", {}, UNREAD),
    ("???", "cpu=8,gres/gpu=0", {"CfgTRES": f"{TRES},gres/gpu=8"}, UNREAD),
]  # fmt: skip


def _node(used: str, tres: str, fields: dict[str, str]) -> str:
    return node("n1", **(BUSY | {"GresUsed": used, "AllocTRES": tres} | fields))


@pytest.mark.parametrize(("used", "tres", "fields", "right"), USED)
def test_parse_nodes__counts_gpus_in_use_or_says_that_it_cannot(used, tres, fields, right):
    """No less is used than Slurm says; where that cannot be read all GPUs count as used, and the node is closed."""
    warnings: list[str] = []
    nodes = parse_nodes(_node(used, tres, fields), warnings)
    unread = right == UNREAD
    told = (int(nodes.gpus_used[0]), bool(nodes.gpus_unread[0]), bool(nodes.closed[0]), len(warnings))
    assert told == (8 if unread else right, unread, unread, int(unread))
    assert nodes.gpu_totals()["idle"] == (0 if unread else 8 - right)


SHARES = [
    ("gpu:nvidia:0(IDX:N/A),shard:nvidia:3(1/4,2/4,0/4,0/4)", "gpu:nvidia:4,shard:nvidia:16", 2, 0b11),
    ("gpu:nvidia:1(IDX:3),shard:nvidia:3(1/4,2/4,0/4,0/4)", "gpu:nvidia:4,shard:nvidia:16", 3, 0b1011),
    ("gpu:nvidia:1(IDX:0),shard:nvidia:1(4/4,1/4,0/4,0/4)", "gpu:nvidia:4,shard:nvidia:16", 2, 0b11),
    ("gpu:(null):0(IDX:N/A),shard:(null):3(1/4,2/4,0/4,0/4)", "gpu:4,shard:16", 2, 0b11),
    ("gpu:(null):0(IDX:N/A),mps:(null):300(0/100,100/100,100/100,100/100)", "gpu:4,mps:400", 3, 0b1110),
    ("gpu:0(IDX:N/A),mps:100(100/100,0/100,0/100,0/100),shard:4(0/4,4/4,0/4,0/4)", "gpu:4,mps:400,shard:16", 2, 0b11),
    ("gpu:0,shard:3", "gpu:4,shard:16", 3, 0),  # not told on which: on one each
    ("gpu:0,mps:100", "gpu:4,mps:400", 4, 0),
    ("gpu:0(IDX:N/A),shard:5(1/4,0/4,0/4,0/4)", "gpu:4,shard:16", 4, 0),  # four of them are not told of
    ("gpu:0(IDX:N/A),shard:0(0/4,0/4,0/4,0/4)", "gpu:4,shard:16", 0, 0),
]


@pytest.mark.parametrize(("used", "gres", "right", "mask"), SHARES)
def test_parse_nodes__takes_gpus_with_shards_or_mps_for_used(used, gres, right, mask):
    """A GPU of which shards or MPS are held is no whole one, whether or not Slurm shows which one that is."""
    nodes = parse_nodes(_node(used, "", {"Gres": gres}), [])
    assert (int(nodes.gpus_used[0]), int(nodes.gpu_mask_used[0])) == (right, mask)


def test_parse_nodes__hears_of_shards_by_tres_alone():
    """AllocTRES may name shards where GresUsed does not."""
    nodes = parse_nodes(_node("gpu:0(IDX:N/A)", "cpu=1,gres/shard=2", {"Gres": "gpu:4,shard:16"}), [])
    assert int(nodes.gpus_used[0]) == 2


@pytest.mark.parametrize(("fields", "right"), [
    ({"CPUTot": "64", "CPUEfctv": "60", "CoreSpecCount": "2", "ThreadsPerCore": "2"}, (60, 512000)),
    ({"CPUTot": "64", "CPUEfctv": "", "CoreSpecCount": "2", "ThreadsPerCore": "2"}, (60, 512000)),  # up to 21.08
    ({"CPUTot": "64", "CPUEfctv": "64", "MemSpecLimit": "16000"}, (64, 496000)),
    ({"CPUTot": "N/A", "CPUEfctv": "?", "RealMemory": "x"}, (0, 0)),
    ({"CPUTot": "4", "CPUEfctv": "", "CoreSpecCount": "99", "MemSpecLimit": "999999"}, (0, 0)),
])  # fmt: skip
def test_parse_nodes__leaves_out_specialised_cores_and_memory(fields, right):
    """Jobs get neither: CPUs and memory are those that they can have."""
    nodes = parse_nodes(node("n1", **fields), [])
    assert (int(nodes.cpus[0]), int(nodes.memory_mib[0])) == right


def test_commands__take_a_full_node_without_types_for_full(on: Run):
    """Eight of eight untyped GPUs in use: none is free, and a request for them waits."""
    jobs = [running(at + 1, "n1") for at in range(8)]
    lines = "".join(record(at + 1, Nodes=f"n1 CPU_IDs={at} Mem=1000 GRES=gpu:(null):1(IDX:{at})") for at in range(8))
    slurm = FakeSlurm(_node(*USED[0][:3]), jobs, records=lines)
    assert json.loads(on(slurm, "status", "--json").out)["gpus"]["allocated"] == 8
    assert on(slurm, "fit", "--gpus-per-node=1").code == 10


@pytest.mark.parametrize(("command", "words"), [
    (("status",), "8: 0 idle, 0 allocated, 0 draining, 0 down, 8 cannot be read"),
    (("gpus",), "used GPUs cannot be read"),
    (("fit", "--gpus-per-node=1"), "n1: used GPUs cannot be read"),
    (("explain", "5", "--why-not", "n1"), "how many of its GPUs are in use cannot be read"),
])  # fmt: skip
def test_commands__say_that_gpus_cannot_be_read(on: Run, command, words):
    """No command takes such a node's GPUs for free or for held, and each says why."""
    said = on(FakeSlurm(_node("???", "", {}), [job(5)]), *command)
    assert words in said.out
    if command[0] != "explain":
        assert "node n1: cannot read its GPUs in use" in said.out + said.err


def test_gpus__believes_jobs_where_their_node_says_less(on: Run):
    """A node without GPUs in use on which jobs hold three: three are in use. Jobs on several nodes are told as one."""
    jobs = [running(at + 1, "n1") for at in range(3)]
    both = running(9, "n[1-2]", 4, NumNodes="2")
    slurm = FakeSlurm(_node("gpu:a100:0(IDX:N/A)", "", {}) + node("n2"), [*jobs, both])
    (found,) = json.loads(on(slurm, "gpus", "--json").out)["types"]
    assert (found["free"], found["used"]) == (13, 3)


def test_plan__believes_jobs_by_index(on: Run):
    """The same where each job tells which GPUs it holds: the waiting job for six finds five free."""
    lines = "".join(record(at + 1, Nodes=f"n1 CPU_IDs={at} Mem=1000 GRES=gpu:a100:1(IDX:{at})") for at in range(3))
    jobs = [running(at + 1, "n1") for at in range(3)]
    slurm = FakeSlurm(_node("gpu:a100:0(IDX:N/A)", "", {}), [*jobs, job(8, 6)], records=lines)
    told = json.loads(on(slurm, "explain", "8", "--why-not", "n1", "--json").out)
    assert "5 of its 8 GPUs are free" in json.dumps(told["why_not"])


@pytest.mark.parametrize(("used", "tres", "free"), [
    ("gpu:gtx970:1(IDX:0),gpu:gtx1060:0(IDX:N/A)", "cpu=1,gres/gpu=1", {"gtx970": 0, "gtx1060": 2}),
    ("gpu:gtx970:1(IDX:0),gpu:gtx1060:1(IDX:1)", "cpu=1,gres/gpu=2", {"gtx970": 0, "gtx1060": 1}),
    ("(null)", "cpu=1,gres/gpu=1", {"gtx970": 0, "gtx1060": 1}),  # of which type is not told: it may be of any
    ("gpu:gtx970:0(IDX:N/A),gpu:gtx1060:0(IDX:N/A),shard:gtx1060:1(1/4,0/4)", "", {"gtx970": 0, "gtx1060": 1}),
    ("gpu:gtx970:0(IDX:N/A),gpu:gtx1060:0(IDX:N/A)", "", {"gtx970": 1, "gtx1060": 2}),
])  # fmt: skip
def test_gpus__counts_by_type_what_the_node_says(on: Run, used, tres, free):
    """On a node of several types no GPU is free whose type Slurm says, or does not say, is in use."""
    gres = {"Gres": "gpu:gtx970:1,gpu:gtx1060:2", "CfgTRES": f"{TRES},gres/gpu=3"}
    slurm = FakeSlurm(_node(used, tres, gres), [running(1, "n1")] if tres else [])
    told = json.loads(on(slurm, "gpus", "--json").out)["types"]
    assert {one["name"]: one["free"] for one in told} == free


def test_gpus__counts_mig_devices_that_the_node_says_are_used(on: Run):
    """Of fourteen slices three are in use, whatever jobs are shown."""
    fields = {"Gres": "gpu:a100:1,gpu:1g.5gb:14"}
    slurm = FakeSlurm(_node("gpu:a100:0(IDX:N/A),gpu:1g.5gb:3(IDX:1-3)", "", fields))
    (mig,) = json.loads(on(slurm, "gpus", "--json").out)["mig"]
    assert (mig["devices"], mig["free"]) == (14, 11)

"""Nodes that Slurm has powered down take jobs after a boot: what plan, pins, fit and the figures make of them."""

from __future__ import annotations

import json

import pytest

from slurmsched.model import Plan
from slurmsched.observe.metric_catalog import RULE_NAMES, gauges
from slurmsched.observe.survey.gpu_overview import gpu_map
from slurmsched.observe.top_app import head
from slurmsched.testing import snapshot
from tests.cases.conftest import Run
from tests.cases.fake_slurm import FakeSlurm, job, node, record, running
from tests.unit.observe.web.frame_samples import frame

TAKING = '[policy]\nname = "discretized-las"\n[preemption]\nenabled = true\nquantum_s = 600\n'
FULL = {"State": "MIXED+CLOUD", "CPUAlloc": "8", "GresUsed": "gpu:a100:8(IDX:0-7)", "AllocTRES": "cpu=8,gres/gpu=8"}


def _slurm(state: str, gpus: int = 8, **fields: str) -> FakeSlurm:
    """n1 is full of jobs that may be preempted, n2 is empty and in this state, job 9 wants GPUs."""
    hint = "slurmsched: preempt=yes ckpt=USR1@60"
    jobs = [running(at + 1, "n1", UserName="lo", Comment=hint) for at in range(8)]
    held = "".join(record(at + 1, Nodes=f"n1 CPU_IDs={at} Mem=1000 GRES=gpu:a100:1(IDX:{at})") for at in range(8))
    wants = job(9, gpus, UserName="hi", PriorityLong="2000", Reason="Resources")
    return FakeSlurm(node("n1", **FULL) + node("n2", State=state, **fields), [*jobs, wants], records=held)


@pytest.mark.parametrize(("state", "victims"), [
    ("IDLE+CLOUD", 0), ("IDLE+CLOUD+POWERED_DOWN", 0), ("IDLE+CLOUD+POWERING_UP+NOT_RESPONDING", 0),
    ("IDLE+CLOUD+POWERING_DOWN", 8), ("IDLE+CLOUD+POWER_DOWN", 8), ("IDLE+DRAIN+CLOUD+POWERED_DOWN", 8), ("DOWN", 8),
    ("DOWN+CLOUD+POWERED_DOWN", 8), ("IDLE+REBOOT_ISSUED", 8), ("IDLE+BLOCKED", 8),
])  # fmt: skip
def test_plan__preempts_nobody_where_slurm_would_boot_a_node(on: Run, state, victims):
    """An empty node that is up, off or booting takes the job; one that takes none leaves preemption."""
    told = json.loads(on(_slurm(state), "plan", "--json", toml=TAKING).out)
    stopped = [operation for operation in told["operations"] if operation["job_id"] == 9]
    assert sum(len(operation["victims"]) for operation in stopped) == victims


def test_plan__preempts_nobody_where_a_node_may_be_free(on: Run):
    """Of n2 it cannot be read how many GPUs are in use: the job may start there, so nobody leaves for it."""
    told = json.loads(on(_slurm("IDLE", GresUsed="???"), "plan", "--json", toml=TAKING).out)
    assert [operation for operation in told["operations"] if operation["job_id"] == 9] == []
    assert ("unread", 9) in [(one["rule"], one["job_id"]) for one in told["refused"]]
    assert "unread" in RULE_NAMES


@pytest.mark.parametrize(("options", "code", "words"), [
    (("--gpus-per-node=8",), 0, "starts after a boot on 1 of these nodes"),
    (("--gpus-per-node=8", "-N2"), 10, "waits; 0 of 2 nodes can give 8 GPUs"),
    (("--gpus=16",), 10, "waits"),
    (("--gpus-per-node=1", "-c", "65"), 10, "waits"),
    ((), 0, "after a boot"),
])  # fmt: skip
def test_fit__tells_what_starts_after_a_boot(on: Run, options, code, words):
    """Slurm boots a node where those that are up have no room: that is neither "starts now" nor "waits"."""
    said = on(_slurm("IDLE+CLOUD+POWERED_DOWN"), "fit", *options)
    assert (said.code, words in said.out) == (code, True)


def test_fit__starts_now_where_a_node_that_is_up_has_room(on: Run):
    """Then the answer names no node that would have to boot."""
    slurm = FakeSlurm(node("n1") + node("n2", State="IDLE+CLOUD+POWERED_DOWN"))
    told = json.loads(on(slurm, "fit", "--gpus-per-node=4", "--json").out)["fit"]
    assert (told["starts"], told["boot"], [place["nodes"] for place in told["places"]]) == (True, False, ["n1"])


def test_figures__tell_gpus_that_are_free_after_a_boot(on: Run):
    """status, gpus and the metrics count them apart from idle ones and from those that are down."""
    slurm = _slurm("IDLE+CLOUD+POWERED_DOWN")
    assert "16: 0 idle, 8 free after a boot, 8 allocated, 0 draining, 0 down" in on(slurm, "status").out
    (found,) = json.loads(on(slurm, "gpus", "--json").out)["types"]
    assert [found[key] for key in ("gpus", "free", "boot", "used", "drained", "down")] == [16, 0, 8, 8, 0, 0]


@pytest.mark.parametrize(("state", "words"), [
    ("IDLE+CLOUD+POWERED_DOWN", "room for it on 1 of 2 nodes it may use (1 short of GPUs), on 1 of these after a boot"),
    ("IDLE+CLOUD+POWERING_DOWN", "(1 closed, 1 short of GPUs)"),
    ("IDLE+CLOUD", "By counts there is room for it on 1 of 2 nodes it may use (1 short of GPUs)."),
])  # fmt: skip
def test_explain__counts_nodes_that_boot_apart(on: Run, state, words):
    """Room on a node that is off is room after a boot."""
    told = json.loads(on(_slurm(state), "explain", "9", "--json").out)["explanation"]["because"]
    assert words in told


ROWS = (
    {"name": "n1", "gpus": 8, "gpus_used": 1, "state": "MIXED+POWERING_UP"},
    {"name": "n2", "gpus": 4, "gpus_used": 4, "gpus_unread": True},
    {"name": "n3", "gpus": 2, "state": "IDLE+POWERING_DOWN"},
)


def test_metrics__count_gpus_by_state():
    """One series a state; each GPU is in one of them."""
    told = gauges(snapshot(nodes=ROWS), Plan())["gpus"]
    assert {state: count for (state,), count in told.items()} == {
        "idle": 0, "boot": 7, "allocated": 1, "draining": 2, "down": 0, "unknown": 4,
    }  # fmt: skip


def test_web_and_top__show_them_apart():
    """Types, boxes of GPUs and the meter of `top` tell those that boot and those that cannot be read."""
    made = frame(snapshot(nodes=ROWS))
    (one,) = made.gpus()["types"]
    assert [one[key] for key in ("gpus", "free", "boot", "used", "drained", "down", "unread")] == [14, 0, 7, 1, 2, 0, 4]
    what = {node.name: sorted({gpu.what for gpu in node.gpus}) for node in gpu_map(snapshot(nodes=ROWS))}
    assert what == {"n1": ["boot", "held"], "n2": ["unknown"], "n3": ["closed"]}
    assert "0 idle, 7 after a boot, 4 unknown, 2 draining, 0 down" in head(made, 100).plain

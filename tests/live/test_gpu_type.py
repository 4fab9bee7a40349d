"""A policy that knows how fast jobs are on each GPU type sends them there, on a real Slurm with two types."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from slurmsched.model.hostlists import expand_hostlist
from tests.live.gpu_nodes import GRES_CONF, HALVES, Gpus, restart
from tests.live.lab import Installed, column, run, submit, until

pytestmark = [pytest.mark.live, pytest.mark.newest]
SLURM_CONF = Path("/etc/slurm/slurm.conf")
SPEEDS = "model,batch,gpus,gpu_type,steps_per_s\nfast,0,1,v100,10\nfast,0,1,a100,1\nflat,0,1,v100,1\nflat,0,1,a100,1\n"


@pytest.fixture
def mixed(site: Installed) -> Installed:
    """n3 and n4 have V100, and gavel knows which model gains from them; jobs wait to be placed."""
    conf = SLURM_CONF.read_text()
    (line,) = [text for text in conf.splitlines() if text.startswith("NodeName=n[1-4] ")]
    halves = [line.replace("n[1-4]", f"n[{a}-{b}]").replace("[17001-17004]", f"[1700{a}-1700{b}]")
              for a, b in ((1, 2), (3, 4))]  # fmt: skip
    SLURM_CONF.write_text(conf.replace(line, f"{halves[0]}\n{halves[1]} Gres=gpu:v100:8"))
    gpus = Gpus(HALVES)
    kinds = {"n1": "a100", "n2": "a100", "n3": "v100", "n4": "v100"}
    lines = [gpus.conf(name).replace("Type=a100", f"Type={kind}") for name, kind in kinds.items()]
    GRES_CONF.write_text("".join(lines))
    restart()
    table = site.folder / "speeds.csv"
    table.write_text(SPEEDS)
    site.configure(policy=f'{{ name = "gavel", speeds = "{table}" }}', placement__types="true", placement__wait_s="900")
    return site


def waiting(model: str, *options: str) -> int:
    return submit("alice", 1, "--begin=now+600", f"--comment=slurmsched: dur=1h model={model}", *options)


def test_gavel__sends_each_job_to_its_better_gpu_type(mixed):
    """The model that is ten times as fast on V100 starts there, and one that names its type is left alone. Gandiva-fair
    wants the next one there too."""
    fast, own = waiting("fast"), waiting("fast", "--gpus-per-node=a100:1")
    told = {step["job_id"]: step for step in mixed("plan", "--json").json()["steps"] if step["step"] == "pin"}
    assert list(told) == [fast]
    assert told[fast]["reason"].startswith("the policy wants it on v100")
    mixed.tick()
    until(lambda: column("%N", "RUNNING").get(fast) in ("n3", "n4"), "it runs on a V100")
    assert column("%n")[own] == ""
    table = mixed.folder / "speeds.csv"
    mixed.configure(policy=f'{{ name = "gandiva-fair", speeds = "{table}" }}', placement__types="true")
    ours = waiting("fast")
    told = {step["job_id"]: step for step in mixed("plan", "--json").json()["steps"] if step["step"] == "pin"}
    assert told[ours]["reason"].startswith("the policy wants it on v100")


def progress(job: int, percent: int) -> None:
    run("scontrol", "update", f"jobid={job}", f"comment=slurmsched: mixed=yes progress={percent}/100")


def test_heet__sends_a_gang_to_nodes_of_both_gpu_types(mixed):
    """Of each type one node is taken. A gang of two nodes that was seen to make progress, and may have both types,
    starts on the two others."""
    mixed.configure(policy='{ name = "heet", mixed = true, probes = 1, round_s = 1.0 }', placement__types="true",
                    placement__wait_s="900")  # fmt: skip
    taken = [submit("bob", 8, "--gpus-per-node=v100:8") for _ in range(2)]
    until(lambda: set(taken) <= set(column("%A", "RUNNING")), "all V100 are taken")
    gang = submit("alice", 16, "--requeue", "--comment=slurmsched: mixed=yes progress=0/100")
    until(lambda: column("%N", "RUNNING").get(gang) == "n[1-2]", "the gang runs on the A100")
    mixed.tick()
    progress(gang, 10)
    time.sleep(2)
    mixed.tick()
    run("scontrol", "requeuehold", str(gang))
    until(lambda: gang in column("%A", "PENDING"), "the gang waits")
    other = submit("bob", 8, "--gpus-per-node=a100:8")
    until(lambda: other in column("%A", "RUNNING"), "one node of A100 is taken")
    run("scancel", str(taken[1]))
    until(lambda: taken[1] not in column("%A", "RUNNING", "COMPLETING"), "one node of V100 is free")
    run("scontrol", "update", f"jobid={gang}", "starttime=now+600")
    run("scontrol", "release", str(gang))
    plan = mixed("plan", "--json").json()
    told = {step["job_id"]: step for step in plan["steps"] if step["step"] == "pin"}
    assert gang in told, plan
    assert told[gang]["reason"].startswith("the policy wants it on a100 and v100")
    mixed.tick()
    until(lambda: column("%N", "RUNNING").get(gang, "").startswith("n["), "the gang runs on both")
    free = {"n1", "n2", "n3", "n4"} - {column("%N", "RUNNING")[job] for job in (taken[0], other)}
    assert set(expand_hostlist(column("%N", "RUNNING")[gang])) == free

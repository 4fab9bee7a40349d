"""A policy that knows how fast jobs are on each GPU type sends them there, on a real Slurm with two types."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.gpu_nodes import GRES_CONF, HALVES, Gpus, restart
from tests.live.lab import Installed, column, submit, until

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

"""Gangs placed by their hints on a real Slurm: under one switch, though Slurm alone takes the first nodes it finds."""

from __future__ import annotations

import pytest

from tests.live.lab import Installed, column, run, submit, until

pytestmark = [pytest.mark.live, pytest.mark.newest]
# Told to slurmsched only: this Slurm has a flat topology.
FABRIC = "SwitchName=top Switches=l,r\nSwitchName=l Nodes=n1,n3\nSwitchName=r Nodes=n2,n4\n"
HINTED = ("--comment=slurmsched: topo=switch", "--begin=now+600")


def gang(*options: str) -> int:
    """Two nodes, four GPUs on each."""
    return submit("alice", 16, "--gpus-per-node=4", "--time=60", *options)


def runs_on(job: int) -> str:
    until(lambda: job in column("%N", "RUNNING"), "it runs")
    return column("%N", "RUNNING")[job]


def test_gang__lands_under_one_switch(site: Installed):
    """Slurm alone splits it; ours gets a leaf. Wishes of the user's own stand, and a list that comes too late does
    nothing."""
    (site.folder / "fabric.conf").write_text(FABRIC)
    site.configure(policy='{ name = "fifo" }', placement__pin='"hints"', placement__wait_s="700",
                   topology__fabric=f'"{site.folder}/fabric.conf"')  # fmt: skip
    alone = gang()
    assert runs_on(alone) == "n[1-2]"
    run("scancel", str(alone))
    until(lambda: not column("%A", "RUNNING", "COMPLETING"), "it is gone")
    placed, switches, any_number = gang(*HINTED), gang(*HINTED, "--switches=1"), gang(*HINTED, "--nodes=2-3")
    told = site("plan", "--json").json()
    assert {row["job_id"]: row["rule"] for row in told["refused"]} == {switches: "pin-asks", any_number: "pin-asks"}
    site.tick()
    assert runs_on(placed) == "n[1,3]"
    for late in ("n[2,4]", "n[1-2]", ""):
        assert "Invalid node name" in run("scontrol", "update", f"jobid={placed}", f"nodelist={late}", check=False).err
    run("scontrol", "update", f"jobid={placed}", "nodelist=n[1,3]")
    assert runs_on(placed) == "n[1,3]"

"""What gangs ask of the fabric on a real Slurm: seen where it is broken, and no nodes kept against it."""

from __future__ import annotations

import signal

import pytest

from tests.live.lab import Installed, column, run, submit, until

pytestmark = [pytest.mark.live, pytest.mark.newest]

# Told to slurmsched only: this Slurm has a flat topology, and so takes any two nodes.
FABRICS = {
    "--switches=1@0:30": ("SwitchName=top Switches=l,r\nSwitchName=l Nodes=n[1-2]\nSwitchName=r Nodes=n[3-4]\n",
                          "it asked for at most 1 switch, and is on 2"),
    "--segment=2": ("BlockName=l Nodes=n[1-2]\nBlockName=r Nodes=n[3-4]\nBlockSizes=2\n",
                    "1 of its 1 segment of 2 nodes is not within one block"),
}  # fmt: skip


@pytest.mark.parametrize("asks", FABRICS)
def test_spread__of_a_gang_against_its_wish(site: Installed, asks: str):
    """A gang on both sides is a miss with its reason; for another that waits no nodes are kept, with the same."""
    text, why = FABRICS[asks]
    (site.folder / "fabric.conf").write_text(text)
    site.configure(policy='{ name = "fifo" }', topology__fabric=f'"{site.folder}/fabric.conf"', cycle__interval_s="0.5",
                   gangs__reserve="true", gangs__least_gpus="16")  # fmt: skip
    gang = submit("alice", 16, asks, "-w", "n1,n3", "--hold")
    daemon = site.start("daemon")
    try:
        until(lambda: cycles(site) > 1, "the daemon has seen the cluster without it", pause_s=1)
        run("scontrol", "release", str(gang))
        until(lambda: column("%A", "RUNNING").get(gang), "it runs")
        until(lambda: gang in missed(site), "its start was looked at", pause_s=1)
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.communicate(timeout=60)
    assert missed(site)[gang].startswith(why)
    waits = submit("bob", 16, asks, "-w", "n1,n3")
    until(lambda: column("%r", "PENDING").get(waits) not in (None, "None"), "Slurm has looked at it")
    plan = site("plan", "--json").json()
    assert {row["job_id"]: row["rule"] for row in plan["refused"]} == {waits: "constraint"}
    assert plan["operations"] == []


def cycles(site: Installed) -> int:
    return len(site("status", "--json", check=False).json()["cycles"])


def missed(site: Installed) -> dict[int, str]:
    return {row["job_id"]: row["note"] for row in site("topology", "quality", "--json").json()["missed"]}

"""Gangs on a Slurm that keeps jobs to switches or blocks itself: where it starts them, and the lists they are given."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from slurmsched.model import SiteTopology, frozen
from slurmsched.model.hostlists import expand_hostlist
from slurmsched.resources.topology_limits import starts_on
from slurmsched.topology.fabric_files import read_topology
from tests.live.lab import Installed, column, run, submit, until

pytestmark = pytest.mark.live

TREE = "SwitchName=top Switches=l,r\nSwitchName=l Nodes=n1,n3\nSwitchName=r Nodes=n2,n4\n"
BLOCK = "BlockName=l Nodes=n1,n3\nBlockName=r Nodes=n2,n4\nBlockSizes=2,4\n"
HINTED = ("--comment=slurmsched: topo=switch", "--begin=now+600")
MORE = expand_hostlist("p[1-12]")  # beside n[1-4]
SIXTEEN = (*expand_hostlist("n[1-4]"), *MORE)
EIGHT = "".join(f"BlockName=b{at} Nodes={SIXTEEN[at]},{SIXTEEN[at + 1]}\n" for at in range(0, 16, 2))
FABRICS = {
    "one size": EIGHT + "BlockSizes=2\n",
    "each size": EIGHT + "BlockSizes=2,4,8\n",
    "a size left out": EIGHT + "BlockSizes=2,8\n",
    "full and not": "BlockName=a Nodes=n[1-4],p[1-2]\nBlockName=b Nodes=p[3-4]\nBlockName=c Nodes=p[5-8]\n"
                    "BlockName=d Nodes=p[9-12]\nBlockSizes=4,8\n",
    "two tops": "SwitchName=t Switches=a,b\nSwitchName=u Switches=c\nSwitchName=a Nodes=n[1-2]\n"
                "SwitchName=b Nodes=n[3-4]\nSwitchName=c Nodes=p[1-10]\n",
}  # fmt: skip


def fabric(text: str) -> None:
    """This Slurm has it."""
    Path("/etc/slurm/topology.conf").write_text(text)
    plugin = "topology/block" if "Block" in text else "topology/tree"
    run("labctl", "conf", "TopologyPlugin", plugin)

    def has_it() -> bool:  # right after a reconfigure the process to stop is not the one on record
        run("labctl", "restart", "slurmctld", check=False)
        told = run("scontrol", "show", "config", check=False).out
        return plugin in told.partition("TopologyPlugin")[2].partition("\n")[0]

    until(has_it, f"slurmctld has {plugin}", pause_s=1)
    run("labctl", "wait-ready")


def runs_on(job: int) -> str:
    until(lambda: job in column("%N", "RUNNING"), "it runs")
    return column("%N", "RUNNING")[job]


def gang(nodes: int, *options: str) -> int:
    return submit("alice", 8 * nodes, "--time=60", *options)


@pytest.mark.newest
@pytest.mark.parametrize("text", [TREE, BLOCK], ids=["tree", "block"])
def test_gang__under_one_switch_or_block_where_it_fits_else_over_the_fewest(site: Installed, text: str):
    """Slurm takes the list. A gang that fits into one block waits for one: it gets a list over two only where it needs
    two. (A tree has no such rule.)"""
    fabric(text)
    site.configure(policy='{ name = "fifo" }', placement__pin='"hints"', placement__wait_s="700")
    near = [gang(2, *HINTED), gang(2, *HINTED)]
    site.tick()
    assert [runs_on(job) for job in near] == ["n[1,3]", "n[2,4]"]
    run("scancel", *map(str, near))
    until(lambda: not column("%A", "RUNNING", "COMPLETING"), "they are gone")
    full = submit("bob", 8, "-w", "n3")
    assert runs_on(full) == "n3"
    over = submit("bob", 8, "-w", "n4")
    assert runs_on(over) == "n4"
    apart = gang(2, *HINTED)
    plan = site("plan", "--json").json()
    lists = {step["job_id"]: step["nodes"] for step in plan["steps"] if step["step"] == "pin"}
    assert lists == ({apart: "n[1-2]"} if text == TREE else {})
    run("scancel", str(apart), str(over))
    until(lambda: over not in column("%A", "RUNNING", "COMPLETING"), "it is gone")
    three = gang(3, *HINTED)
    site.tick()
    assert runs_on(three) == "n[1-2,4]"


@pytest.mark.newest
def test_promise__is_of_nodes_on_which_slurm_starts_the_gang(site: Installed):
    """n1 and n2 are free first, of two blocks: it is promised the block that is free first."""
    fabric(BLOCK)
    site.configure(policy='{ name = "fifo" }', gangs__reserve="true", gangs__least_gpus="16")
    ends = {"n1": 10, "n2": 20, "n3": 30, "n4": 40}
    held = [submit("bob", 8, "-w", node, f"--time={minutes}") for node, minutes in ends.items()]
    until(lambda: set(held) <= column("%A", "RUNNING").keys(), "they run")
    waits = gang(2)
    until(lambda: column("%r", "PENDING").get(waits) not in (None, "None"), "Slurm has looked at it")
    plan = site("plan", "--json").json()
    assert [(operation["job_id"], operation["nodes"]) for operation in plan["operations"]] == [(waits, "n[1,3]")]


@pytest.fixture
def sixteen(fresh: None) -> Iterator[tuple[str, ...]]:
    """The names of sixteen nodes that run jobs."""
    for name, old, new in (("gres.conf", "NodeName=n[1-4]", "NodeName=n[1-4],p[1-12]"),
                           ("slurm.conf", "Nodes=n[1-4] Default=YES", "Nodes=n[1-4],p[1-12] Default=YES")):  # fmt: skip
        path = Path("/etc/slurm", name)
        path.write_text(path.read_text().replace(old, new))
    yield SIXTEEN
    for node in MORE:
        run("sh", "-c", f"kill $(cat /run/slurm/slurmd-{node}.pid)", check=False)
    run("scontrol", "update", "nodename=p[1-12]", "state=down", "reason=phantom")


def topology(text: str, names: tuple[str, ...]) -> SiteTopology:
    read = read_topology(text).fabric
    home = dict(zip(read.node, read.node_cell.tolist(), strict=True))
    cell = frozen([home.get(name, -1) for name in names], np.int64)
    return SiteTopology(fabric=read, cell=cell, slurm_fabric=read, slurm_cell=cell)


def drawn(at: SiteTopology, seed: int, count: int = 60) -> Iterator[list[int]]:
    """Rows of nodes for gangs of two to ten, most of them in few blocks."""
    chance, places = random.Random(seed), sorted(set(at.cell.tolist()))
    for _ in range(count):
        some = chance.sample(places, min(len(places), chance.randint(1, 4)))
        among = [row for row, cell in enumerate(at.cell.tolist()) if cell in some]
        among = among if len(among) > 1 else list(range(len(at.cell)))
        yield sorted(chance.sample(among, chance.randint(2, min(10, len(among)))))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "each size" else pytest.mark.newest) for name in FABRICS]
)
def test_reachable__is_where_slurm_starts_a_gang_with_a_node_list(sixteen: tuple[str, ...], name: str):
    """Every list that it takes is one that Slurm starts, every other one waits for ever."""
    fabric(FABRICS[name])
    for node in MORE:
        Path("/var/spool/slurmd", node).mkdir(exist_ok=True)
        run("slurmd", "-N", node)
    until(lambda: run("sinfo", "-h", "-p", "gpu", "-o", "%t").out.split() == ["idle"], "all are idle", pause_s=1)
    at = topology(FABRICS[name], sixteen)
    asked = {}
    for rows in drawn(at, seed=len(name)):
        nodes, names = str(len(rows)), ",".join(sixteen[row] for row in rows)
        answer = run("sbatch", "--parsable", "--hold", "--output=/dev/null", "--mem=1G", "-N", nodes, "-n", nodes,
                     f"--nodelist={names}", "--wrap=sleep 600", user="alice")  # fmt: skip
        asked[int(answer.out)] = rows
    may = {job for job, rows in asked.items() if starts_on(at, np.array(rows))}
    assert 5 < len(may) < len(asked) - 5
    run("scontrol", "release", ",".join(map(str, may)))
    until(lambda: may == column("%A", "RUNNING").keys(), "all that may run do")
    run("scontrol", "release", ",".join(map(str, asked.keys() - may)))
    seen = passes()
    until(lambda: passes() > seen + 2, "Slurm has looked at the others", pause_s=1)
    assert set(column("%A", "RUNNING")) == may


def passes() -> int:
    """How often backfill has gone over the queue."""
    told = run("sdiag").out.partition("Backfilling stats")[2]
    return next(int(line.split()[-1]) for line in told.splitlines() if "Total cycles:" in line)

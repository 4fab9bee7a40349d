"""Who leaves which nodes for a gang, beside every set of jobs that could."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slurmsched.model import SiteTopology
from slurmsched.planning.operations.victims import PreemptableJobs, VictimSearch
from slurmsched.resources.allocated import AllocatedGpus
from slurmsched.resources.free import FreeResources, JobRequirements
from slurmsched.resources.topology_limits import starts_on
from slurmsched.testing import snapshot
from slurmsched.topology.fabric_files import read_topology
from slurmsched.topology.site_topology import cells_of_nodes

NODES = 5
BLOCKS = "BlockName=a Nodes=n[1-2]\nBlockName=b Nodes=n[3-4]\nBlockName=c Nodes=n5\n"
TREE = "SwitchName=a Nodes=n[1-3]\nSwitchName=b Nodes=n[4-5]\n"
FABRICS = ("", TREE, *(f"{BLOCKS}BlockSizes={sizes}\n" for sizes in ("2", "2,4", "1")))


@st.composite
def cases(draw: st.DrawFn) -> VictimSearch:
    """Running jobs of one GPU a CPU on up to four nodes of eight, and a waiting one of several nodes, more urgent."""
    free, held, lost = [8] * NODES, list[dict[str, int]](), list[float]()
    for _ in range(draw(st.integers(1, 7))):
        on = draw(st.sets(st.integers(0, NODES - 1), min_size=1, max_size=4))
        gpus = draw(st.integers(1, 8))
        if all(free[node] >= gpus for node in on):
            held.append({f"n{node + 1}": gpus for node in on})
            lost.append(float(draw(st.integers(1, 20))))
            for node in on:
                free[node] -= gpus
    jobs = [{"job_id": i, "state": "RUNNING", "gpus": sum(on.values()), "cpus": sum(on.values()), "nodes": len(on)}
            for i, on in enumerate(held, start=1)]  # fmt: skip
    nodes, gpus = draw(st.integers(1, NODES)), draw(st.integers(1, 8))
    fabric = read_topology(draw(st.sampled_from(FABRICS))).fabric
    cell = cells_of_nodes(fabric, [f"n{i + 1}" for i in range(NODES)])
    jobs.append({"job_id": 99, "gpus": nodes * gpus, "cpus": nodes * gpus, "nodes": nodes})
    rows = [{"job_id": i, "node": node, "gpus": n} for i, on in enumerate(held, start=1) for node, n in on.items()]
    used = [8 - each for each in free]
    at = snapshot(jobs, [{"name": f"n{i + 1}", "gpus": 8, "cpus": 8, "cpus_used": used[i]}
                         for i in range(NODES)], allocations=rows,
                  topology=SiteTopology(slurm_fabric=fabric, slurm_cell=cell))  # fmt: skip
    row = len(held)
    place = (np.arange(row + 1) + 1) % (row + 1)
    running = PreemptableJobs(np.arange(row + 1) < row, np.array([*lost, 0.0]), place, AllocatedGpus.of(at))
    return VictimSearch(at, row, JobRequirements.of(at, row), running, FreeResources.of(at))


def cleared(case: VictimSearch, rows: tuple[int, ...]) -> bool:
    """Whether Slurm starts the job on nodes that have its share free when these have left."""
    free = [node for node in range(NODES) if max(case.lack(node, rows)) <= 1e-6]
    sets = (np.array(nodes) for nodes in combinations(free, case.need.nodes))
    return any(starts_on(case.snapshot.topology, nodes) for nodes in sets)


@given(case=cases())
def test_cheapest__beside_every_set_of_jobs(case: VictimSearch) -> None:
    """Found if any set makes room; nobody of it could stay; for one node none loses less, for several none at all
    where every job has one node."""
    every = range(case.row)
    sets = [rows for size in range(len(every) + 1) for rows in combinations(every, size)]
    enough = (list(rows) for rows in sets if cleared(case, rows))
    best = min(map(case.running.price, enough), default=None)
    found = case.cheapest(np.arange(NODES))
    assert (found is None) == (best is None)
    if found is None or best is None:
        return
    nodes, leave = found
    assert len(set(nodes)) == case.need.nodes
    assert starts_on(case.snapshot.topology, np.array(nodes))
    for without in [None, *leave]:
        rest = [row for row in leave if row != without]
        assert all(max(case.lack(node, rest)) <= 1e-6 for node in nodes) == (without is None)
    lost = case.running.price(leave)[0]
    assert lost >= best[0]
    if case.need.nodes == 1 or max((len(held) for held in map(case.running.allocated.nodes, every)), default=0) <= 1:
        assert lost == best[0]

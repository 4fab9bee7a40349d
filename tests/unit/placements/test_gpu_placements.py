"""Placements that choose GPU sets: what all share, and what is special to each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slurmsched import registry
from slurmsched.errors import ConfigError
from slurmsched.model import Assignments, Labels, Ranking, Snapshot, frozen
from slurmsched.model.gpu_topology import Fabric, GpuTopology, SiteTopology
from slurmsched.placements.baselines import AnyFit, BestFit, Spread
from slurmsched.placements.cells import CellPlacement
from slurmsched.placements.ffdl import Ffdl
from slurmsched.placements.linked import Linked
from slurmsched.placements.mapa import Mapa
from slurmsched.placements.sched2 import Sched2
from slurmsched.placements.topology_aware import TopologyAware
from slurmsched.policies.fifo import Fifo
from slurmsched.protocols import Placement
from slurmsched.sim.ideal.ideal_planner import DirectPlanner
from slurmsched.testing import check_placement, snapshot
from slurmsched.topology.gpu_links import machines

MESH, PAIRS = machines()["dgx-1v"], machines()["bridged-pairs"]
SHARES = {"team0": {"node": 3}, "team1": {"node": 2, "socket": 2}}
NAMES = ("linked", "best-fit", "spread", "random", "topology-aware", "mapa", "cells", "ffdl", "sched2")


def asks(job_id: int, gpus: int, **others: Any) -> dict[str, Any]:
    return {"job_id": job_id, "gpus": gpus, "gpu_request": "gpu"} | others


def holds(job_id: int, node: str, mask: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A running job and its allocation."""
    gpus = mask.bit_count()
    return (
        asks(job_id, gpus, state="RUNNING"),
        {"job_id": job_id, "node": node, "gpus": gpus, "gpu_mask": mask},
    )


def site(
    jobs: list[Any], size: str = "2x8", topology: GpuTopology | None = MESH, fabric: Any = None, **others: Any
) -> Snapshot:
    """Nodes of one class. jobs: of `asks`, or pairs of `holds`. fabric: (Fabric, cell of each node)."""
    rows = [job[0] if isinstance(job, tuple) else job for job in jobs]
    held = [job[1] for job in jobs if isinstance(job, tuple)]
    count = int(size.split("x")[0]) if isinstance(size, str) else len(size)
    classes = () if topology is None else (topology,)
    known = frozen([0 if topology else -1] * count, np.int64)
    wired = SiteTopology(classes, known, *(fabric or ()))
    return snapshot(rows, size, allocations=held, topology=wired, **others)


def placed(placement: Placement, taken: Snapshot) -> dict[int, dict[str, int]]:
    """Job -> node -> mask, with jobs ranked by their id."""
    made: Assignments = placement.place(taken, Ranking(np.arange(len(taken.jobs))))
    rows = zip(made.rows.tolist(), made.first.tolist(), made.count.tolist(), strict=True)
    return {
        int(taken.jobs.job_id[row]): {
            taken.nodes.name[made.node[k]]: int(made.gpu_mask[k]) for k in range(first, first + count)
        }
        for row, first, count in rows
    }  # fmt: skip


def leaves(count: int, size: int, above: bool = False) -> tuple[Fabric, Any]:
    """A tree of so many leaf switches with so many nodes each, and two spines over halves of them if `above`."""
    cells = [f"leaf{i}" for i in range(count)] + (["spine0", "spine1"] if above else [])
    parent = [count + (i >= count / 2) if above else -1 for i in range(count)] + ([-1, -1] if above else [])
    level = [1] * count + ([2, 2] if above else [])
    fabric = Fabric("tree", Labels.of(cells), frozen(level, np.int8), frozen(parent, np.int32))
    return fabric, frozen(np.repeat(np.arange(count), size), np.int64)


@pytest.mark.parametrize("name", NAMES)
def test_placements__conform(name: str) -> None:
    """Whole gangs, no GPU twice, masks that agree, blind to row order."""
    check_placement(registry.make_plugin("placements", name, key="placement"))


@pytest.mark.parametrize(
    "placement",
    [Linked("sum"), Mapa("greedy"), Ffdl("spread"), TopologyAware(least_utility=0.5), CellPlacement(SHARES),
     Sched2(insensitive=("gpu",))],
    ids=repr,
)  # fmt: skip
def test_placements__conform_with_parameters(placement: Placement) -> None:
    """The same with other parameters."""
    check_placement(placement)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("linked", {"objective": "speed"}), ("mapa", {"scoring": "best"}), ("ffdl", {"form": "heap"}),
        ("ffdl", {"samples": 0}), ("ffdl", {"bias": -1.0}), ("topology-aware", {"weights": (1.0, 0.0, 1.0)}),
        ("topology-aware", {"least_utility": 1.5}), ("cells", {"virtual_clusters": {"a": {"shelf": 1}}}),
        ("cells", {"virtual_clusters": {"a": {"node": -1}}}), ("cells", {"virtual_clusters": {"a": {"cell0": 1}}}),
    ],
)  # fmt: skip
def test_placements__refuse_bad_parameters(name: str, parameters: dict[str, Any]) -> None:
    """The message names the parameter."""
    with pytest.raises(ConfigError, match=next(iter(parameters))):
        registry.make_plugin("placements", name, parameters, key="placement")


@pytest.mark.parametrize(
    "placement", [Linked(), BestFit(), Spread(), AnyFit(), Mapa(), TopologyAware(), Ffdl(), Sched2()]
)
def test_placements__name_the_node_that_is_too_large(placement: Placement) -> None:
    """A pile of 100 GPUs is for `count`."""
    with pytest.raises(ConfigError, match="n1 has 100; choose `count`"):
        placement.place(snapshot([asks(1, 1)], "1x100"), Ranking(np.arange(1)))


def test_walk__takes_idle_gpus_before_held_ones_and_displaces_the_least_urgent() -> None:
    """Job 2 fits beside job 3 and 4; job 1 needs a whole node and takes that of job 4, not of job 3."""
    jobs = [asks(1, 8), asks(2, 2), holds(3, "n1", 0b1), holds(4, "n2", 0b10)]
    assert placed(Linked(), site(jobs)) == {1: {"n2": 255}, 2: {"n1": 0b1100}, 3: {"n1": 1}}


def test_walk__counts_cpus_and_memory_with_the_gpus() -> None:
    """n1 has 4 GPUs but CPUs for 2: a job of 3 goes elsewhere though n1 would be fuller, and one of 2 fits."""
    nodes = [{"name": f"n{i}", "gpus": 4, "gpu_types": "gpu:v100:4", "cpus": 16, "memory_mib": 1e3} for i in (1, 2)]
    nodes[0] |= {"cpus_used": 8}
    jobs = [asks(1, 3, cpus=12), asks(2, 2, cpus=8), asks(3, 1, memory_mib=2e3)]
    given = snapshot(jobs, nodes)
    assert placed(BestFit(), given) == {1: {"n2": 0b111}, 2: {"n1": 0b11}}


def test_walk__gives_back_the_cpus_of_a_displaced_job() -> None:
    """All CPUs of the node are job 2's: with its GPU it gives them to job 1, and keeps neither."""
    nodes = [{"name": "n1", "gpus": 4, "gpu_types": "gpu:v100:4", "cpus": 16, "cpus_used": 16}]
    run, held = holds(2, "n1", 0b1)
    given = snapshot([asks(1, 1, cpus=4), run | {"cpus": 16}], nodes, allocations=[held])
    assert placed(BestFit(), given) == {1: {"n1": 0b1}}


def test_linked__takes_the_rest_of_a_gang_from_the_same_leaves() -> None:
    """Leaves of three, three and two nodes: 44 GPUs are five nodes and a half, on the first two."""
    tree = Fabric("tree", Labels.of(["a", "b", "c"]), frozen([1] * 3, np.int8), frozen([-1] * 3, np.int32))
    wired = site([asks(1, 44, nodes=6)], "8x8", fabric=(tree, frozen([0, 0, 0, 1, 1, 1, 2, 2], np.int64)))
    assert sorted(placed(Linked(), wired)[1]) == ["n1", "n2", "n3", "n4", "n5", "n6"]


def test_walk__gives_no_masks_where_slurm_shows_counts_only() -> None:
    """n1: 3 of 8 GPUs are held, nobody knows which: the count is right, the mask 0. An idle node is no riddle."""
    taken = snapshot(
        [asks(1, 4), asks(2, 8)],
        [{"name": f"n{i}", "gpus": 8, "gpu_types": "gpu:v100:8", "gpus_used": 3 * (i == 1)} for i in (1, 2)],
        topology=SiteTopology((MESH,), frozen([0, 0], np.int64)),
    )
    made = BestFit().place(taken, Ranking(np.arange(2)))
    assert (made.node.tolist(), made.gpus.tolist(), made.gpu_mask.tolist()) == ([0, 1], [4, 8], [0, 255])


def test_walk__counts_where_indices_have_gaps() -> None:
    """GPU 2 of 0 to 3 is out of service and no class says so: index 3 in use shows that the lowest three are not it."""
    nodes = [{"name": "n1", "gpus": 3, "gpu_types": "gpu:v100:3"}]
    run, held = holds(1, "n1", 0b1000)
    given = snapshot([run, asks(2, 2), asks(3, 1)], nodes, allocations=[held])
    made = BestFit().place(given, Ranking(np.arange(3)))
    assert (made.rows.tolist(), made.gpus.tolist(), made.gpu_mask.tolist()) == ([0, 1], [1, 2], [0, 0])
    gap = GpuTopology.build("gap", 4, kind=1 - np.eye(4, dtype=np.int64), mig=np.arange(4) == 2)
    wired = SiteTopology((gap,), frozen([0], np.int64))
    known = snapshot([run, asks(2, 2)], nodes, allocations=[held], topology=wired)
    assert placed(BestFit(), known) == {1: {"n1": 0b1000}, 2: {"n1": 0b11}}


def test_walk__leaves_out_mig_devices_and_doubtful_classes() -> None:
    """GPU 0 is cut into MIG devices: 7 whole GPUs are there. A class of another size than the node is not believed."""
    mig = GpuTopology.build("mig", 8, kind=MESH.kind, bandwidth_gb_per_s=MESH.bandwidth_gb_per_s, mig=np.arange(8) == 0)
    assert placed(Linked(), site([asks(1, 7)], "1x7", mig)) == {1: {"n1": 0b1111_1110}}
    assert placed(Linked(), site([asks(1, 2)], "1x4", MESH)) == {1: {"n1": 0b11}}


def test_planner__keeps_the_masks_of_what_it_does_not_block() -> None:
    """The head that does not fit blocks what is behind it; the masks of the others stay theirs."""
    given = site([holds(1, "n1", 0b110), asks(2, 8), asks(3, 1)], "1x8")
    target = DirectPlanner(Fifo(), Linked(), "block").plan(given).target
    assert target is not None
    assert (target.rows.tolist(), target.gpu_mask.tolist()) == ([0], [0b110])


def test_linked__gives_the_best_pair_that_is_free() -> None:
    """The double link 2-3 is gone on n1; n2 is idle, but a double link is also left on n1, which is fuller."""
    given = site([holds(1, "n1", 0b1100), asks(2, 2)])
    pair = [g for g in range(8) if placed(Linked(), given)[2]["n1"] >> g & 1]
    assert int(MESH.lanes[tuple(pair)]) == 2


def test_linked__goes_to_the_idle_node_for_a_better_link() -> None:
    """On n1 only GPUs 0 and 6 are free, across sockets and without NVLink."""
    given = site([holds(1, "n1", 0b1011_1110), asks(2, 2)])
    assert {"n2"} == set(placed(Linked(), given)[2])


def test_linked__single_gpus_fill_nodes_and_leaves_in_use() -> None:
    """n1 (leaf0) is in use: single jobs fill it up, then its leaf mate n2, while leaf1 stays whole."""
    given = site([holds(1, "n1", 0b1), *(asks(j, 1) for j in range(2, 11))], "4x8", fabric=leaves(2, 2))
    got = placed(Linked(), given)
    assert [next(iter(got[j])) for j in range(1, 11)] == 8 * ["n1"] + 2 * ["n2"]


def test_linked__a_single_gpu_harms_what_stays_free_least() -> None:
    """On bridged pairs with one bridge already broken, the lone GPU 1 goes first."""
    given = site([holds(1, "n1", 0b1), asks(2, 1)], "1x8", PAIRS)
    assert placed(Linked(), given)[2] == {"n1": 0b10}


def test_linked__a_gang_goes_to_the_tightest_cell() -> None:
    """Two whole nodes: leaf1 has just two left, leaf0 three, so leaf1; four nodes fit under a spine only."""
    fabric = leaves(4, 3, above=True)
    given = site([holds(1, "n04", 1), asks(2, 16, nodes=2), asks(3, 32, nodes=4)], "12x8", fabric=fabric)
    got = placed(Linked(), given)
    assert {"n05", "n06"} == set(got[2])
    assert set(got[3]) <= {f"n{i:02}" for i in range(7, 13)}
    assert len(got[3]) == 4


def test_linked__gangs_are_all_or_nothing_over_the_whole_cluster() -> None:
    """Without a cell that holds it the gang spans cells; one GPU too many and nothing is given."""
    fabric = leaves(2, 1)
    assert placed(Linked(), site([asks(1, 16, nodes=2)], fabric=fabric))[1] == {"n1": 255, "n2": 255}
    assert placed(Linked(), site([asks(1, 17, nodes=3)], fabric=fabric)) == {}


def test_linked__keeps_to_gpu_types() -> None:
    """A typed request goes where the type is, though the other node has faster links; an untyped one to those."""
    nodes = [{"name": f"n{i}", "gpus": 8, "gpu_types": f"gpu:{kind}:8"} for i, kind in ((1, "v100"), (2, "a6000"))]
    jobs = [asks(1, 2, gpu_request="gpu:v100:2"), asks(2, 2)]
    wired = SiteTopology((MESH, PAIRS), frozen([0, 1], np.int64))
    assert placed(Linked(), snapshot(jobs, nodes, topology=wired)) == {1: {"n1": 0b1100}, 2: {"n2": 0b11}}


def test_linked__takes_a_grown_set_on_nodes_of_more_than_sixteen_gpus() -> None:
    """24 GPUs in islands of 6: a gang of 6 is one island."""
    island = np.arange(24) // 6
    kind = np.where(island[:, None] == island, 7, 1) * (1 - np.eye(24, dtype=np.int64))
    large = GpuTopology.build("large", 24, kind=kind, bandwidth_gb_per_s=kind * 10.0, numa=island)
    given = site([holds(1, "n1", 0b1), asks(2, 6)], "1x24", large)
    assert placed(Linked(), given)[2]["n1"] == 0b111111 << 6


def test_linked__without_wiring_is_best_fit() -> None:
    """Nothing known: the fullest node, the lowest GPUs."""
    given = site([holds(1, "n2", 0b1), asks(2, 2), asks(3, 8)], topology=None)
    assert placed(BestFit(), given) == placed(Linked(), given)


def test_baselines__differ_as_they_say() -> None:
    """Best fit goes beside job 1, spread away from it."""
    given = site([holds(1, "n1", 0b1), asks(2, 1)])
    assert (placed(BestFit(), given)[2], placed(Spread(), given)[2]) == ({"n1": 0b10}, {"n2": 0b1})


def test_random__is_drawn_by_seed_and_job() -> None:
    """The same seed, the same GPUs; over seeds, every node and many sets."""
    jobs = [asks(1, 2)]
    drawn = [placed(AnyFit(), site(jobs, seed=seed))[1] for seed in range(40)]
    assert placed(AnyFit(), site(jobs, seed=7))[1] == drawn[7]
    assert {"n1", "n2"} == {next(iter(one)) for one in drawn}
    assert len({mask for one in drawn for mask in one.values()}) > 10


def test_ffdl__packs_or_spreads_a_gang() -> None:
    """Two nodes with 4 GPUs each: the two in use when packing, the two idle ones when spreading."""
    jobs = [holds(1, "n1", 0b1), holds(2, "n2", 0b1), asks(3, 8, nodes=2)]
    assert {"n1", "n2"} == set(placed(Ffdl(), site(jobs, "4x8"))[3])
    assert {"n3", "n4"} == set(placed(Ffdl("spread"), site(jobs, "4x8"))[3])


def test_sched2__sensitive_jobs_wait_for_near_gpus_and_others_take_fragments() -> None:
    """Job 3 says topo=any and is gathered from both rests; job 4 of the same size wants one node and waits."""
    comment = "slurmsched: topo=any"
    jobs = [holds(1, "n1", 0b1111), holds(2, "n2", 0b1111), asks(3, 5, comment=comment), asks(4, 5)]
    got = placed(Sched2(), site(jobs))
    assert got[3] == {"n1": 0b11110000, "n2": 0b10000}
    assert 4 not in got
    assert len(placed(Sched2(insensitive=("gpu",)), site(jobs[:2] + jobs[3:]))[4]) == 2

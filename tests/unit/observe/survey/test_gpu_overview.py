"""`gpus`: sums, linked sets, stranded GPUs."""

from __future__ import annotations

import pytest

from slurmsched.observe.survey.gpu_overview import GpuFilter, gpu_map, gpu_overview, state_words, stranded_gpus
from slurmsched.resources.gpu_sets import best_set, largest_linked, ring_link
from slurmsched.resources.node_gpus import COUNTS_ONLY, NO_WIRING, node_gpus
from tests.unit.observe.survey.survey_site import MESH, PAIRS, node, site

BUSY = (node("n1", mask=0b0001_0011), node("n2", state="IDLE+DRAIN", reason="fan"), node("n3", state="DOWN"))


def test_overview__every_gpu_is_counted_once():
    """Free, used, drained and down add up, by type, partition and cell alike; a cell holds what is below it."""
    found = gpu_overview(site(BUSY))
    for one in (*found.types, *found.partitions, *found.fabric):
        assert one.free + one.used + one.drained + one.down == one.gpus
    assert [(one.name, one.gpus, one.free) for one in found.fabric] == [("spine", 24, 5), ("leaf", 16, 5)]
    assert [(one.name, one.used, one.drained, one.down) for one in found.types] == [("v100", 3, 8, 8)]


def test_overview__linked_sets_are_those_of_open_nodes():
    """Of the mesh 2,3,5,6,7 one ring links all; drained and down nodes offer none."""
    found = gpu_overview(site(BUSY))
    assert found.types[0].sets == {5: 1}
    assert [(line.nodes, line.free, line.linked) for line in found.nodes] == [("n1", 5, 5), ("n2", 0, 0), ("n3", 0, 0)]
    assert found.nodes[0].free_gpus == (2, 3, 5, 6, 7)
    assert found.nodes[1].reason == "fan"


@pytest.mark.parametrize(("row", "wired", "why"), [
    (node("n1", gpus_used=2), True, COUNTS_ONLY), (node("n1", mask=0b11), False, NO_WIRING)])  # fmt: skip
def test_parts__what_is_not_known_is_said(row, wired, why):
    """Counts without indices, or no wiring: no linked set is invented."""
    (part,) = node_gpus(site([row], wired=wired))
    assert (part.free, part.linked, part.why) == (6, None, why)


def test_parts__types_of_one_node_apart_and_mig_by_itself():
    """Each type has its own count by what jobs hold of it; MIG devices are not GPUs."""
    mixed = node("n1", gpus=6, gpu_types="gpu:a100:2,gpu:v100:4,gpu:a100_1g.5gb:7")
    held = [{"job_id": 1, "node": "n1", "gpu_type": "v100", "gpus": 3},
            {"job_id": 1, "node": "n1", "gpu_type": "a100_1g.5gb", "gpus": 2}]  # fmt: skip
    found = gpu_overview(site([mixed], [{"state": "R"}], allocations=held))
    assert [(one.name, one.gpus, one.free) for one in found.types] == [("a100", 2, 2), ("v100", 4, 1)]
    assert [(name, one.devices, one.free) for name, one in found.mig] == [("n1", 7, 5)]


def test_stranded__free_gpus_beside_taken_cpus_or_memory():
    """Cause, and the jobs that hold it, the largest first; with one CPU and 1 MiB left nothing is stranded."""
    runs = {"state": "R", "memory_mib": 1e3}
    jobs = [runs | {"job_id": 7, "user": "ann", "node_list": "n1", "cpus": 60, "gpus": 0},
            runs | {"job_id": 8, "user": "bob", "node_list": "n[1-2]", "nodes": 2, "cpus": 8, "gpus": 2}]  # fmt: skip
    rows = [node("n1", mask=1, cpus_used=64), node("n2", mask=1, cpus_used=4, memory_used_mib=512_000.0),
            node("n3", mask=1, cpus_used=63, memory_used_mib=511_999.0)]  # fmt: skip
    found = stranded_gpus(site(rows, jobs))
    assert [(one.node, one.gpus, one.cause) for one in found] == [("n1", 7, "CPUs"), ("n2", 7, "memory")]
    assert [[(job.job_id, job.cpus) for job in one.holders] for one in found] == [[(7, 60.0), (8, 4.0)], [(8, 4.0)]]
    assert stranded_gpus(site(rows[1:2], settings={"SelectTypeParameters": "CR_CORE"})) == ()
    assert [one.free - one.stranded for one in gpu_overview(site(rows)).types] == [7]
    assert gpu_overview(site(rows)).types[0].sets == {2: 1}


def test_overview__filters():
    """By node, type and partition; what is left out is in no sum."""
    whole = site(BUSY)
    assert gpu_overview(whole, GpuFilter(nodes=frozenset({"n1", "n2"}))).types[0].gpus == 16
    assert gpu_overview(whole, GpuFilter(gpu_type="a100")).types == ()
    assert gpu_overview(whole, GpuFilter(partition="other")).nodes == ()


def test_sets__links_of_a_set():
    """The mesh has rings of double and of single links; of bridged pairs no three are linked; one GPU has no link."""
    assert [ring_link(MESH, mask).gb_per_s for mask in (0b1001, 0b0011)] == [50.0, 25.0]
    assert [largest_linked(PAIRS, mask) for mask in (0xFF, 0b0101, 0b1, 0)] == [2, 1, 1, 0]
    assert (best_set(PAIRS, 0b1101, 2), ring_link(PAIRS, 1)) == (0b1100, None)


def test_state_words__as_slurm_writes_them():
    """Base state and flags."""
    states = site(BUSY).nodes.state.tolist()
    assert list(map(state_words, states)) == ["mixed", "idle+drain", "down"]


def test_overview__nodes_are_in_the_order_that_people_count():
    """n2 before n10, though Slurm sorts their names by letter; so are partitions."""
    nodes = [node(name, partitions=f"p{name[1:]}", mask=at) for at, name in enumerate(("n1", "n10", "n2"))]
    look = gpu_overview(site(nodes))
    assert [one.nodes for one in look.nodes] == ["n1", "n2", "n10"]
    assert [one.name for one in look.partitions] == ["p1", "p2", "p10"]
    assert [one.name for one in gpu_map(site(nodes))] == ["n1", "n2", "n10"]

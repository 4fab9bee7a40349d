"""`fit`: what starts now, where, and what near it would."""

from __future__ import annotations

import pytest

from slurmsched.errors import InputError
from slurmsched.observe.survey.fit import by_partition, first_start, fit, largest_requests
from slurmsched.observe.survey.sbatch_request import (
    WHOLE_MEMORY,
    SbatchRequest,
    named_hosts,
    node_needs,
    partition_defaults,
)
from slurmsched.testing.builders import snapshot
from tests.unit.observe.survey.survey_site import node, site
from tests.unit.planning.node_lists.node_list_cases import on_fabric

CPU_MEMORY = "DefMemPerCPU=1000"
NODES = (node("n1", mask=0b0001_0011, cpus_used=6, memory_used_mib=6e3),
         node("n2", mask=0b1, cpus_used=1, memory_used_mib=512_000.0), node("n3", features="big"))  # fmt: skip
SITE = site(NODES, defaults=CPU_MEMORY)


def test_fit__where_it_starts_and_what_it_would_get():
    """Nodes that can take it, with the best free set and that of an empty node; the rest with the reason."""
    found = fit(SITE, SbatchRequest(gpus_per_node=4))
    assert (found.starts, found.needs, found.lacking) == (True, 1, {"memory is held": "n2"})
    assert [(one.nodes, one.best.gpus, one.best.gb_per_s, one.ideal.gb_per_s) for one in found.places] == [
        ("n1", (2, 3, 6, 7), 25.0, 25.0), ("n3", (0, 1, 2, 3), 9.0, 9.0)]  # fmt: skip


def test_fit__slurm_s_choice_by_the_picker():
    """The mask that the picker tells is shown with its link; one that it cannot tell is not."""
    told = {"n1": 0b1100, "n3": -1}
    found = fit(SITE, SbatchRequest(gpus_per_node=2), lambda name, free, gpus: told[name])
    assert [one.picked.gpus if one.picked else None for one in found.places] == [(2, 3), None]
    assert found.places[0].picked.gb_per_s == 50.0


@pytest.mark.parametrize(("request_", "why"), [
    (SbatchRequest(gpus_per_node=8, nodes=2), "1 of 2 nodes can give 8 GPUs"),
    (SbatchRequest(gpus_per_node=6, node_list=("n1",)), "0 of 1 node can give 6 GPUs"),
    (SbatchRequest(gpus=14), "13 of 14 GPUs can be given"),
    (SbatchRequest(gpus=9, nodes=1), "8 of 9 GPUs can be given on 1 node"),
    (SbatchRequest(gpus_per_node=1, cpus_per_gpu=65), "0 of 1 node can give 1 GPU"),
    (SbatchRequest(gpus_per_node=8, memory_per_gpu_mib=100_000), "0 of 1 node can give 8 GPUs"),
    (SbatchRequest(gpus_per_node=1, constraint="big&fast"), "0 of 1 node can give 1 GPU"),
    (SbatchRequest(gpus_per_node=1, exclusive=True, excluded=("n3",)), "0 of 1 node can give 1 GPU"),
    (SbatchRequest(gpus_per_node=1, time_s=1e6), "partition gpu has MaxTime=48 h, the job asks for 277.778 h"),
    (SbatchRequest(gpus_per_node=1, gpu_type="a100"), "no node of gpu has such GPUs"),
])  # fmt: skip
def test_fit__why_it_waits(request_, why):
    """GPUs, CPUs, memory, features, other jobs, limits: the first that keeps it."""
    found = fit(SITE, request_)
    assert (found.starts, found.why, found.places) == (False, why, ())


def test_fit__a_list_of_more_nodes_than_asked_for():
    """Slurm takes so many of them; without a number it takes all."""
    both = ("n1", "n3")
    assert [fit(SITE, SbatchRequest(nodes=nodes, gpus_per_node=2, node_list=both)).needs for nodes in (0, 1, 2)] == [
        2,
        1,
        2,
    ]


def test_fit__on_nodes_on_which_slurm_starts_it():
    """Two halves of two blocks are none for a gang that fits into one; what the largest request is goes by that."""
    blocks = "BlockName=a Nodes=n[1-2]\nBlockName=b Nodes=n[3-4]\nBlockSizes=2\n"
    nodes = [node(f"n{at}", mask=0xFF if at in (2, 3) else 0, cpus_used=8) for at in range(1, 5)]
    flat = site(nodes, defaults=CPU_MEMORY)
    kept = on_fabric(flat, blocks)
    assert fit(flat, SbatchRequest(nodes=2, gpus_per_node=8)).starts
    found = fit(kept, SbatchRequest(nodes=2, gpus_per_node=8))
    assert (found.starts, found.why.split(", but ")[0], found.nearest[0].change) == (
        False, "2 nodes have room", "--nodes=1")  # fmt: skip
    assert [largest_requests(at, SbatchRequest())[0].shapes[8] for at in (flat, kept)] == [2, 1]


def test_fit__a_list_of_nodes_needs_each():
    """A name that is given twice counts once, as in Slurm."""
    full = site((NODES[0], node("n2", mask=0xFF)), defaults=CPU_MEMORY)
    found = fit(full, SbatchRequest(gpus=2, node_list=named_hosts("--nodelist", "n1,n2")))
    assert (found.starts, found.why) == (False, "1 of 2 nodes can give GPUs")
    assert fit(full, SbatchRequest(gpus=2, node_list=named_hosts("--nodelist", "n1,n1"))).starts
    assert fit(full, SbatchRequest(gpus=2, excluded=("n1",))).lacking["excluded"] == "n1"
    with pytest.raises(InputError, match="names no node"):
        named_hosts("--nodelist", ",")


def test_fit__nearest_that_starts():
    """Fewer GPUs, more nodes, fewer nodes: each is said to start, and does."""
    found = fit(SITE, SbatchRequest(gpus_per_node=8, nodes=2))
    assert [one.change for one in found.nearest] == ["--nodes=2 --gpus-per-node=5", "--nodes=1"]
    assert fit(SITE, SbatchRequest(gpus_per_node=5, nodes=2)).starts
    spread = fit(site((NODES[0], node("n2")), defaults=CPU_MEMORY), SbatchRequest(gpus_per_node=8, excluded=("n2",)))
    assert [one.change for one in spread.nearest] == ["--gpus-per-node=5", "no --nodelist, --exclude"]


def test_fit__another_partition_that_may_not_let_it_in():
    """What decides and was not looked at is told with the change."""
    nodes = [node("n1", mask=0xFF, cpus_used=8), node("n2", partitions="vip"), node("n3", partitions="all")]
    rows = [{"name": "gpu", "default": True}, {"name": "vip", "allow_accounts": "vip", "allow_groups": "vips"},
            {"name": "all"}]  # fmt: skip
    at = snapshot([], nodes, partitions=[row | {"defaults": CPU_MEMORY} for row in rows], now_s=0.0)
    told = {one.change: one.meaning for one in fit(at, SbatchRequest(gpus_per_node=1, account="plebs")).nearest}
    assert told["--partition=all"] == "another partition"
    vip = told["--partition=vip"]
    assert "if Slurm lets it in" in vip and "AllowAccounts" in vip and "AllowGroups" in vip


def test_fit__a_reservation_keeps_nodes_from_jobs_that_reach_into_it():
    """One that begins in 30 minutes stops a job of an hour, not one of ten minutes."""
    from slurmsched.model import Reservations

    kept = Reservations.build(1, {"name": ["x"], "node_list": ["n[1-3]"], "start_s": [1800.0], "end_s": [9e9]})
    held = site(NODES, defaults=CPU_MEMORY, reservations=kept)
    assert [fit(held, SbatchRequest(gpus_per_node=1, time_s=time_s)).starts for time_s in (None, 600.0)] == [
        False,
        True,
    ]


def test_needs__defaults_of_partition_and_site():
    """The partition's come first; with nothing set or --mem=0 a job gets all memory; an option beats each."""
    plain, ours = site(NODES), site(NODES, defaults="DefMemPerGPU=100,DefCpuPerGPU=4", settings={"DefMemPerNode": "7"})
    assert node_needs(plain, SbatchRequest(partition="gpu")).memory_for(2) == WHOLE_MEMORY
    assert node_needs(site(NODES, settings={"DefMemPerNode": "7"}), SbatchRequest(partition="gpu")).memory_for(2) == 7.0
    both = node_needs(ours, SbatchRequest(partition="gpu"))
    assert (both.cpus_for(2), both.memory_for(2)) == (8, 200.0)
    assert node_needs(ours, SbatchRequest(partition="gpu", cpus_per_gpu=1, memory_mib=0)).memory_for(2) == WHOLE_MEMORY
    assert partition_defaults(plain, "gpu").memory_mib is None


def test_fit__no_memory_setting_needs_an_empty_node():
    """Where a job gets the whole node's memory, a node of which any is held waits."""
    found = fit(site(NODES), SbatchRequest(gpus_per_node=1))
    assert [(one.nodes) for one in found.places] == ["n3"]


def test_fit__names_that_are_not_there():
    """A partition that is none, no default."""
    for request_ in (SbatchRequest(gpus=1, partition="nosuch"),):
        with pytest.raises(InputError):
            fit(SITE, request_)
    with pytest.raises(InputError):
        fit(snapshot(partitions=[{"name": "gpu"}]), SbatchRequest(gpus=1))


def test_largest__by_type():
    """Most on one node, most linked, and how many nodes can give how many."""
    (one,) = largest_requests(SITE, SbatchRequest())
    assert (one.gpu_type, one.one_node, one.linked, one.shapes) == ("v100", 8, 5, {8: 1, 4: 2, 2: 2, 1: 2})


def test_by_partition__as_slurm_tries_them():
    """By tier, then as listed, each once; of none the default; the first that starts is told, else the first."""
    partitions = [
        {"name": "gpu", "default": True},
        {"name": "short", "max_time_s": 60.0},
        {"name": "top", "priority_tier": 5},
    ]
    row = node("n1", partitions="gpu,short")
    at = site([row], defaults=CPU_MEMORY, partitions=partitions)
    listed = by_partition(at, SbatchRequest(gpus=1, time_s=3600.0, partition="short,gpu,top,short"))
    assert [one.partition for one in listed] == ["top", "short", "gpu"]
    assert [one.partition for one in by_partition(at, SbatchRequest(gpus=1))] == ["gpu"]
    answers = [fit(at, one) for one in listed]
    assert [answer.starts for answer in answers] == [False, False, True]
    assert (first_start(answers), first_start(answers[:2])) == (2, 0)
    with pytest.raises(InputError, match="nosuch"):
        by_partition(at, SbatchRequest(gpus=1, partition="gpu,nosuch"))

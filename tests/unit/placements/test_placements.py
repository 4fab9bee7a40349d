"""Which jobs a placement serves, and where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slurmsched import registry
from slurmsched.errors import ConfigError
from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.placements.consolidated import Consolidated
from slurmsched.placements.count import Count
from slurmsched.protocols import Placement
from slurmsched.testing import snapshot

UNTYPED = {"gpu_request": "gpu"}


def placed(placement: Placement, taken: Snapshot) -> dict[int, dict[str, int]]:
    """Job -> node -> GPUs, with jobs ranked by their id."""
    made: Assignments = placement.place(taken, Ranking(np.arange(len(taken.jobs))))
    rows = zip(made.rows.tolist(), made.first.tolist(), made.count.tolist(), strict=True)
    return {
        int(taken.jobs.job_id[row]): {
            taken.nodes.name[made.node[k]]: int(made.gpus[k]) for k in range(first, first + count)
        }
        for row, first, count in rows
    }  # fmt: skip


def asks(job_id: int, gpus: int, **others: Any) -> dict[str, Any]:
    return {"job_id": job_id, "gpus": gpus, "priority": 5, "eligible_s": 0.0} | UNTYPED | others


def runs(job_id: int, gpus: int, **others: Any) -> dict[str, Any]:
    return asks(job_id, gpus, state="RUNNING", **others)


def held(job_id: int, node: str, gpus: int) -> dict[str, Any]:
    return {"job_id": job_id, "node": node, "gpus": gpus}


def test_consolidated__fills_the_fullest_node_that_fits() -> None:
    """Best fit: 2 GPUs go beside the 5 held ones, 4 to the empty node."""
    taken = snapshot([runs(1, 5), asks(2, 2), asks(3, 4)], "2x8", allocations=[held(1, "n1", 5)])
    assert placed(Consolidated(), taken) == {1: {"n1": 5}, 2: {"n1": 2}, 3: {"n2": 4}}


def test_consolidated__or_the_first_that_fits() -> None:
    """First fit: 2 GPUs go to the empty node before; under EASY too. Who must stop still counts for more."""
    first = Consolidated(node_choice="first")
    taken = snapshot([runs(1, 5), asks(2, 2, time_limit_s=9.0)], "2x8", allocations=[held(1, "n2", 5)])
    assert placed(first, taken) == {1: {"n2": 5}, 2: {"n1": 2}}
    assert first.backfill(taken, Ranking(np.arange(2))).node.tolist() == [1, 0]
    full = snapshot([asks(1, 4), runs(2, 8)], "2x8", allocations=[held(2, "n1", 8)])
    assert placed(first, full) == {1: {"n2": 4}, 2: {"n1": 8}}
    with pytest.raises(ConfigError, match="fullest or first"):
        Consolidated(node_choice="last")


EVERY = ("consolidated", "best-fit", "linked", "spread", "topology-aware", "mapa", "ffdl", "sched2", "random", "cells",
         "harmony")  # fmt: skip


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    ("gpus", "nodes", "size", "given"),
    [(12, 1, "2x8", [8, 4]), (12, 2, "2x8", [6, 6]), (20, 3, "3x8", [8, 8, 4]), (9, 3, "3x8", [3, 3, 3]),
     (12, 2, [8, 4], [8, 4])],
)  # fmt: skip
def test_placements__share_a_gang_out(name: str, gpus: int, nodes: int, size: Any, given: list[int]) -> None:
    """Equally over as many nodes as it asks for, where that comes out and so many nodes can hold it; else whole nodes
    and a rest."""
    sizes = size if isinstance(size, str) else [
        {"name": f"n{i}", "gpus": each, "gpu_types": f"gpu:v100:{each}"} for i, each in enumerate(size)
    ]  # fmt: skip
    made = placed(
        registry.make_plugin("placements", name, key="placement"), snapshot([asks(1, gpus, nodes=nodes)], sizes)
    )
    assert sorted(made[1].values(), reverse=True) == given


def test_consolidated__backfills_a_gang_as_it_places_it() -> None:
    """Equal parts on two nodes of 8 GPUs, whole nodes and a rest on one of 8 and one of 4."""
    for sizes, given in ((8, 8), [6, 6]), ((8, 4), [8, 4]):
        nodes = [{"name": f"n{i}", "gpus": gpus, "gpu_types": f"gpu:v100:{gpus}"} for i, gpus in enumerate(sizes)]
        taken = snapshot([asks(1, 12, nodes=2, time_limit_s=9.0)], nodes)
        assert Consolidated().backfill(taken, Ranking(np.arange(1))).gpus.tolist() == given


def test_consolidated__is_all_or_nothing() -> None:
    """6 GPUs do not fit on the 5 left of any node; the 3-GPU job behind it goes on."""
    rows = [runs(1, 3), runs(2, 3), asks(3, 6), asks(4, 3)]
    taken = snapshot(rows, "2x8", allocations=[held(1, "n1", 3), held(2, "n2", 3)])
    assert placed(Consolidated(), taken) == {1: {"n1": 3}, 2: {"n2": 3}, 4: {"n1": 3}}


def test_consolidated__displaces_the_least_urgent() -> None:
    """The waiting job 1 takes the node of job 3, not of job 2, though both would free enough."""
    rows = [asks(1, 8), runs(2, 8), runs(3, 8)]
    taken = snapshot(rows, "2x8", allocations=[held(2, "n1", 8), held(3, "n2", 8)])
    assert placed(Consolidated(), taken) == {1: {"n2": 8}, 2: {"n1": 8}}


def test_consolidated__takes_idle_gpus_before_held_ones() -> None:
    """n1 would be the tighter fit but is held."""
    taken = snapshot([asks(1, 4), runs(2, 4)], [*_nodes(4, 8)], allocations=[held(2, "n1", 4)])
    assert placed(Consolidated(), taken) == {1: {"n2": 4}, 2: {"n1": 4}}


@pytest.mark.parametrize(
    "others",
    [
        {"priority": 0}, {"eligible_s": 99.0}, {"dependency": "afterok:1"}, {"reservation": "maint"},
        {"partition": "cpu"}, {"gpu_request": "gpu:h100:1"},
    ],
)  # fmt: skip
def test_consolidated__leaves_out_jobs_that_cannot_start(others: dict[str, Any]) -> None:
    """Held, delayed, dependent, in a reservation, of another partition or GPU type."""
    assert placed(Consolidated(), snapshot([asks(1, 1, **others)], "1x8", now_s=5.0)) == {}


def test_consolidated__matches_gpu_types() -> None:
    """A typed request goes to nodes that have the type."""
    nodes = [row | {"gpu_types": f"gpu:{kind}:8"} for row, kind in zip(_nodes(8, 8), ("v100", "a100"), strict=True)]
    taken = snapshot([asks(1, 1, gpu_request="gpu:a100:1"), asks(2, 1, gpu_request="gpu:v100:1")], nodes)
    assert placed(Consolidated(), taken) == {1: {"n2": 1}, 2: {"n1": 1}}


def test_consolidated__gives_nothing_of_closed_nodes_or_partitions() -> None:
    """A draining node keeps its running job and takes no other; a partition that is down starts nothing."""
    nodes = [row | {"state": state} for row, state in zip(_nodes(8, 8), ("MIXED+DRAIN", "DOWN"), strict=True)]
    taken = snapshot([runs(1, 2), asks(2, 1)], nodes, allocations=[held(1, "n1", 2)])
    assert placed(Consolidated(), taken) == {1: {"n1": 2}}
    down = snapshot([asks(1, 1)], "1x8", partitions=[{"name": "gpu", "up": False}])
    assert placed(Consolidated(), down) == {}


def test_consolidated__counts_gpus_of_completing_jobs_as_coming_back() -> None:
    """They will be free in seconds: nobody else is displaced for job 2. GPUs of unseen jobs are not to give."""
    rows = [asks(2, 4), runs(3, 4), asks(1, 4, state="PENDING,COMPLETING")]
    taken = snapshot(rows, "1x8", allocations=[held(1, "n1", 4), held(3, "n1", 4)])
    assert placed(Consolidated(), taken) == {2: {"n1": 4}, 3: {"n1": 4}}
    unseen = snapshot([asks(1, 4)], [_nodes(8)[0] | {"gpus_used": 6}])
    assert placed(Consolidated(), unseen) == {}


def test_count__ignores_node_borders() -> None:
    """6 GPUs of two nodes with 5 free each: as one pile they fit."""
    rows = [runs(1, 3), runs(2, 3), asks(3, 6)]
    taken = snapshot(rows, "2x8", allocations=[held(1, "n1", 3), held(2, "n2", 3)])
    assert placed(Count(), taken) == {1: {"n1": 3}, 2: {"n1": 3}, 3: {"n1": 6}}


@pytest.mark.parametrize("placement", [Consolidated(), Count()])
def test_placement__accepts_an_empty_cluster(placement: Placement) -> None:
    """No node, no job: nothing is assigned."""
    assert placed(placement, snapshot([], [])) == {}
    assert placed(placement, snapshot([asks(1, 1)], [])) == {}


def test_registry__finds_our_placements() -> None:
    """By name, as in the configuration."""
    assert [registry.make_plugin("placements", name) for name in ("consolidated", "count")] == [Consolidated(), Count()]


def _nodes(*gpus: int) -> list[dict[str, Any]]:
    """Nodes n1, n2 ... of untyped GPUs in the partition "gpu"."""
    return [
        {"name": f"n{i}", "partitions": "gpu", "gpus": count, "gpu_types": f"gpu:{count}"}
        for i, count in enumerate(gpus, start=1)
    ]

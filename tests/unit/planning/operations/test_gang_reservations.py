"""Nodes kept for a gang: which, from when on, and how the gang reservation moves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurmsched.config import GangsConfig, OperationsConfig
from slurmsched.estimators.requested_time import Hint
from slurmsched.model import (
    NodeState,
    NodeWait,
    Operation,
    OperationStage,
    Purpose,
    Ranking,
    Reservations,
    Site,
    Snapshot,
)
from slurmsched.planning.operations.gang_reservations import GangReservations, end_times
from slurmsched.planning.proposals import StartedOperations
from slurmsched.testing import fleet, snapshot
from tests.unit.planning.node_lists.node_list_cases import on_fabric

NOW_S = 100_000.0
SITE = Site(settings={"KillWait": "30 sec"})
GANGS = GangsConfig(reserve=True)
DOWN, IDLE = int(NodeState.DOWN), int(NodeState.IDLE)


def run(job_id: int, end_s: float, gpus: int = 8, **columns: Any) -> dict[str, Any]:
    return {"job_id": job_id, "gpus": gpus, "cpus": gpus, "state": "RUNNING", "start_s": NOW_S - 3_600,
            "end_s": NOW_S + end_s, "time_limit_s": 3_600 + end_s, **columns}  # fmt: skip


def gang(job_id: int = 90, nodes: int = 2, **columns: Any) -> dict[str, Any]:
    return {"job_id": job_id, "gpus": 8 * nodes, "cpus": 8 * nodes, "nodes": nodes, "user": "bob",
            "time_limit_s": 3_600.0, **columns}  # fmt: skip


def cluster(jobs: list[dict[str, Any]], held: dict[int, str], nodes: Any = "4x8", **more: Any) -> Snapshot:
    """held: job id -> its only node; a job holds there what it asks for, CPUs as well."""
    gpus, cpus = ({job["job_id"]: job[name] for job in jobs} for name in ("gpus", "cpus"))
    rows = [{"job_id": job, "node": node, "gpus": gpus[job]} for job, node in held.items()]
    machines = fleet(nodes) if isinstance(nodes, str) else nodes
    used = [sum(cpus[job] for job, node in held.items() if node == name) for name in machines.name]
    return snapshot(jobs, machines.with_columns(cpus_used=used), now_s=NOW_S, allocations=rows,
                    **{"site": SITE, **more})  # fmt: skip


def reserving(at: Snapshot, gangs: GangsConfig = GANGS) -> GangReservations:
    return GangReservations.of(at, gangs, OperationsConfig(), Hint())


def begun(at: Snapshot, gangs: GangsConfig = GANGS) -> StartedOperations:
    """With the waiting jobs in ascending id."""
    return reserving(at, gangs).begin(Ranking(np.arange(len(at.jobs))), at.jobs.pending)


def full(*ends_s: float) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """A job on each node n1, n2, ..., which ends then."""
    return [run(i, end_s) for i, end_s in enumerate(ends_s, 1)], {i: f"n{i}" for i in range(1, len(ends_s) + 1)}


def test_begin__earliest_start_then_the_nodes_that_are_idle_least():
    """Two of four nodes: the start is when the second one is free; that node, and the other one it has."""
    jobs, held = full(400, 100, 900, 300)
    (operation,) = begun(cluster([*jobs, gang()], held)).operations
    assert (operation.purpose, operation.nodes, operation.promised_s, operation.opens_s) == (
        Purpose.RESERVE, "n[2,4]", NOW_S + 330, NOW_S + 300
    )  # fmt: skip
    assert operation.waits == (NodeWait("n2", 2, NOW_S + 130), NodeWait("n4", 4, NOW_S + 330))


def test_begin__keeps_what_comes_free_last_of_what_is_in_time():
    """Three nodes are free by then: the one that would stand idle longest is left to others."""
    jobs, held = full(100, 300, 300, 900)
    (operation,) = begun(cluster([*jobs, gang()], held)).operations
    assert operation.nodes == "n[2-3]"


BLOCKS = "BlockName=a Nodes=n[1-2]\nBlockName=b Nodes=n[3-4]\nBlockSizes=2\n"


def test_begin__on_nodes_where_slurm_starts_it():
    """A gang that fits into a block starts in one alone: later, or though others are free now."""
    jobs, held = full(100, 900, 200, 300)
    assert [operation.nodes for operation in begun(cluster([*jobs, gang()], held)).operations] == ["n[1,3]"]
    (operation,) = begun(on_fabric(cluster([*jobs, gang()], held), BLOCKS)).operations
    assert (operation.nodes, operation.promised_s) == ("n[3-4]", NOW_S + 330)
    jobs, held = [run(2, 900), run(4, 300)], {2: "n2", 4: "n4"}
    assert begun(cluster([*jobs, gang()], held)).operations == ()
    assert [operation.nodes for operation in begun(on_fabric(cluster([*jobs, gang()], held), BLOCKS)).operations] == [
        "n[3-4]"
    ]
    far = on_fabric(cluster([*jobs, gang(nodes=3)], held), BLOCKS)
    assert [operation.nodes for operation in begun(far).operations] == ["n[1,3-4]"]  # over both, as it needs two


def test_renewed__stays_where_it_is_as_good():
    """In its block, though the other one is ready as early."""
    jobs, held = full(300, 300, 300, 300)
    at = on_fabric(cluster([*jobs, gang()], held), BLOCKS)
    (operation,) = begun(at).operations
    assert operation.nodes == "n[1-2]"
    for nodes in ("n[1-2]", "n[3-4]"):
        assert reserving(replace(at, now_s=NOW_S + 10)).renewed(replace(operation, nodes=nodes)).nodes == nodes


def test_begin__a_node_waits_for_the_last_job_that_it_needs_gone():
    """Six of its eight GPUs are enough: the two-GPU job may stay."""
    jobs = [run(1, 500, 2), run(2, 100, 4), run(3, 200, 2)]
    (operation,) = begun(cluster([*jobs, gang(nodes=1, gpus=6, cpus=6)], {1: "n1", 2: "n1", 3: "n1"}, "1x8"),
                   GangsConfig(reserve=True, least_gpus=6)).operations  # fmt: skip
    assert operation.waits == (NodeWait("n1", 3, NOW_S + 230),)


def test_begin__nothing_for_a_gang_that_starts_without_or_is_none():
    """What fits now is Slurm's to start; a job below least_gpus is no gang."""
    jobs, held = full(100, 200)
    assert begun(cluster([*jobs, gang()], held)).operations == ()
    assert begun(cluster([*jobs, gang(nodes=1)], held, "2x8"), GangsConfig(reserve=True, least_gpus=9)).operations == ()


def test_begin__one_promise_a_partition():
    """The most urgent gang has it; open ones count; a gang of another partition has one of its own."""
    jobs, held = full(100, 200, 300, 400)
    nodes = fleet("4x8").with_columns(partitions=["gpu", "gpu", "gpu,big", "big"])
    both = [*jobs, gang(90), gang(91), gang(92, nodes=1, partition="big")]
    up = [{"name": name} for name in ("gpu", "big")]
    found = begun(cluster(both, held, nodes, partitions=up)).operations
    assert [(operation.job_id, operation.nodes) for operation in found] == [(90, "n[1-2]"), (92, "n3")]
    again = cluster(both, held, nodes, partitions=up, operations=found)
    assert begun(again).operations == ()
    more = begun(again, GangsConfig(reserve=True, promises_per_partition=2)).operations
    assert more == ()  # n3 is promised, so that gpu has too few nodes left


@pytest.mark.parametrize(
    ("asks", "gangs", "rule"),
    [({"features_asked": "[a|b]"}, GANGS, "constraint"), ({"nodes": 5, "gpus": 40}, GANGS, "ends"),
     ({}, GangsConfig(reserve=True, farthest_s=100), "far")],
)  # fmt: skip
def test_begin__says_why_there_is_none(asks, gangs, rule):
    """Nothing is kept on a guess, for ever, or too long."""
    jobs, held = full(400, 500, 600, 700)
    found = begun(cluster([*jobs, gang(**asks)], held), gangs)
    assert (found.operations, [refusal.rule for refusal in found.refused]) == ((), [rule])


def test_begin__job_without_an_end_is_not_waited_for():
    """No time limit: its node is never promised."""
    jobs, held = full(400, 500, 600, 700)
    jobs[0]["end_s"] = np.nan
    (operation,) = begun(cluster([*jobs, gang()], held)).operations
    assert operation.nodes == "n[2-3]"


def test_begin__other_reservations_are_left_alone():
    """Slurm lets none overlap: a node with a maintenance before the gang would be done is not promised."""
    jobs, held = full(100, 200, 300, 400)
    kept = Reservations.build(
        1, {"name": ["maint"], "node_list": ["n1"], "start_s": [NOW_S + 3_000], "end_s": [NOW_S + 9e3]}
    )
    (operation,) = begun(cluster([*jobs, gang()], held, reservations=kept)).operations
    assert operation.nodes == "n[2-3]"
    later = kept.with_columns(start_s=[NOW_S + 9_000], end_s=[NOW_S + 9_900])
    (operation,) = begun(cluster([*jobs, gang()], held, reservations=later)).operations
    assert operation.nodes == "n[1-2]"


def test_begin__nodes_free_before_a_maintenance_only_are_not_free_for_a_longer_gang():
    """Slurm would not start it there: others are kept for it."""
    jobs, held = [run(3, 100), run(4, 200)], {3: "n3", 4: "n4"}
    soon = Reservations.build(
        1, {"name": ["maint"], "node_list": ["n[1-2]"], "start_s": [NOW_S + 60], "end_s": [NOW_S + 9e3]}
    )
    (operation,) = begun(cluster([*jobs, gang()], held, reservations=soon)).operations
    assert operation.nodes == "n[3-4]"
    assert begun(cluster([*jobs, gang(time_limit_s=30.0)], held, reservations=soon)).operations == ()


def test_begin__exclusive_gang_needs_whole_nodes():
    """Two GPUs a node would do, but nobody else may be there, without GPUs either."""
    jobs = [run(1, 300, 2), run(2, 200, 0, cpus=4, node_list="n2")]
    asks = gang(gpus=8, cpus=8, exclusive=True)
    (operation,) = begun(cluster([*jobs, asks], {1: "n1", 2: "n2"}, "2x8")).operations
    assert operation.waits == (NodeWait("n1", 1, NOW_S + 330), NodeWait("n2", 2, NOW_S + 230))
    assert begun(cluster([*jobs, {**asks, "exclusive": False}], {1: "n1", 2: "n2"}, "2x8")).operations == ()


@pytest.mark.parametrize(
    ("hint", "expected_s"),
    [("slurmsched: dur=80m", 3_630), ("slurmsched: dur=50m", 930), ("slurmsched: dur=20m", 5_030), ("", 5_030)],
)  # fmt: skip
def test_end_times__estimates_with_their_error_up_to_the_limit(hint, expected_s):
    """Half as long again as estimated; of a job that has outlived that only the limit is known."""
    at = cluster([run(1, 5_000, comment=hint)], {1: "n1"})
    assert end_times(at, GangsConfig(ends="estimate"), Hint())[0] == NOW_S + expected_s
    assert end_times(at, GangsConfig(), Hint())[0] == NOW_S + 5_030


def test_end_times__over_time_counts():
    """Where jobs may exceed their limit they are taken to."""
    site = Site(settings={"KillWait": "5 sec", "OverTimeLimit": "2 min"})
    at = cluster([run(1, 100), run(2, -50)], {1: "n1", 2: "n2"}, site=site)
    assert end_times(at, GangsConfig(), Hint()).tolist() == [NOW_S + 225, NOW_S + 75]


def test_end_times__job_that_should_have_ended_ends_now():
    """Slurm looks at limits every half minute only."""
    assert end_times(cluster([run(1, -10)], {1: "n1"}), GangsConfig(), Hint()).tolist() == [NOW_S + 30]


def promised(*ends_s: float, **changes: Any) -> tuple[Snapshot, Operation]:
    """A cluster with nodes busy that long, and the gang reservation that stands there."""
    jobs, held = full(*ends_s)
    at = cluster([*jobs, gang()], held)
    (operation,) = begun(at).operations
    return at, replace(operation, stage=OperationStage.PROMISED, **changes)


def renewed(at: Snapshot, operation: Operation) -> Operation:
    return reserving(replace(at, operations=(operation,))).renewed(operation)


def test_renewed__moves_to_nodes_that_are_free_earlier():
    """A job ended early: the gang gets that node, and the earlier start."""
    _, operation = promised(400, 800, 900, 1_000)
    jobs, held = full(400, 800, 100, 1_000)
    now = renewed(cluster([*jobs, gang()], held), operation)
    assert (now.nodes, now.promised_s) == ("n[1,3]", NOW_S + 430)


def test_renewed__opens_at_once_when_its_nodes_are_free():
    """Nothing is left to wait for."""
    _, operation = promised(400, 800, 900, 1_000)
    jobs, _ = full(900, 1_000)
    now = renewed(cluster([*jobs, gang()], {1: "n3", 2: "n4"}), operation)
    assert (now.nodes, now.promised_s, now.opens_s) == ("n[1-2]", NOW_S, NOW_S)
    assert [wait.job_id for wait in now.waits] == [0, 0]


def test_renewed__stays_for_a_small_gain():
    """Each move costs slurmctld a backfill pass."""
    at, operation = promised(400, 800, 900, 1_000)
    jobs, held = full(400, 770, 900, 1_000)
    now = renewed(cluster([*jobs, gang()], held), operation)
    assert (now.nodes, now.promised_s) == (operation.nodes, operation.promised_s)
    assert renewed(at, operation) == operation


def test_renewed__leaves_a_node_that_went_down():
    """Later, but on nodes that are there."""
    at, operation = promised(400, 800, 900, 1_000)
    down = at.nodes.with_columns(state=[DOWN, IDLE, IDLE, IDLE])
    now = renewed(replace(at, nodes=down), operation)
    assert (now.nodes, now.promised_s) == ("n[2-3]", NOW_S + 930)


def test_renewed__given_up_when_nothing_can_be_kept():
    """Its node is gone, and no other one can be had."""
    at, operation = promised(400, 800, 900, 1_000)
    down = at.nodes.with_columns(state=[DOWN, IDLE, DOWN, DOWN])
    now = renewed(replace(at, nodes=down), operation)
    assert (now.stage, "cannot be kept" in now.note) == (OperationStage.REVERSING, True)


def test_renewed__nodes_stay_once_the_reservation_has_begun():
    """Slurm moves none that has; what its last node waits for is still told."""
    _, operation = promised(400, 800, 900, 1_000, opens_s=NOW_S - 10, promised_s=NOW_S + 20)
    jobs, held = full(400, 800, 5, 6)
    now = renewed(cluster([*jobs, gang()], held), operation)
    assert (now.nodes, now.opens_s, now.promised_s) == (operation.nodes, operation.opens_s, NOW_S + 830)


def test_begin__gang_of_several_partitions_gets_nodes_of_all_of_them():
    """It would not start on some of one and some of another."""
    jobs, held = full(100, 200, 300, 400)
    nodes = fleet("4x8").with_columns(partitions=["gpu", "gpu,big", "big", "gpu,big"])
    up = [{"name": name} for name in ("gpu", "big")]
    (operation,) = begun(cluster([*jobs, gang(partition="gpu,big")], held, nodes, partitions=up)).operations
    assert operation.nodes == "n[2,4]"


@pytest.mark.parametrize("asks", [{}, {"switches": 1}, {"segment_nodes": 2}])
def test_begin__a_gang_with_wishes_of_the_fabric_that_fits_takes_what_is_free(asks):
    """n3 and n4 are about to be its own: they are not promised to a less urgent gang, and nothing is told of it."""
    jobs, held = full(100, 100)
    found = begun(cluster([*jobs, gang(90, **asks), gang(91, nodes=3)], held))
    assert (found.operations, [(refusal.job_id, refusal.rule) for refusal in found.refused]) == ((), [(91, "ends")])


@pytest.mark.parametrize("asks", [{"switches": 1}, {"segment_nodes": 2}])
def test_begin__what_a_gang_asks_of_the_fabric_is_slurms_to_see_to(asks):
    """Nodes of ours might not serve it: none are kept, with a reason; an open gang reservation is given up."""
    jobs, held = full(100, 100, 900, 900)
    found = begun(cluster([*jobs, gang(**asks)], held))
    assert (found.operations, [refusal.rule for refusal in found.refused]) == ((), ["constraint"])
    (operation,) = begun(cluster([*jobs, gang()], held)).operations
    later = reserving(cluster([*jobs, gang(**asks)], held, operations=(operation,))).renewed(operation)
    assert later.stage == OperationStage.REVERSING

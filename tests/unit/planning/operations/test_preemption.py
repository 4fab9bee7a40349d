"""Whose GPUs a more urgent job gets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from slurmsched.config import OperationsConfig, PreemptionConfig, ScopeConfig
from slurmsched.model import (
    JobState,
    Nodes,
    NodeState,
    Operation,
    OperationStage,
    Purpose,
    Ranking,
    Reservations,
    Rights,
    Site,
    Snapshot,
    Step,
    Victim,
)
from slurmsched.planning.operations import victims
from slurmsched.planning.operations.operation_steps import advance
from slurmsched.planning.operations.preemption import begin_preemptions, cannot_start
from slurmsched.planning.operations.victims import VICTIM_RULES, preemption_case, victim_verdicts
from slurmsched.planning.planner import Planner
from slurmsched.planning.proposals import StartedOperations
from slurmsched.resources.allocated import AllocatedGpus
from slurmsched.resources.free import FreeResources
from slurmsched.resources.placeable_gpus import placeable_gpu_counts
from slurmsched.resources.startable_jobs import job_standing, requested_gpus
from slurmsched.testing import fleet, snapshot
from tests.unit.planning.node_lists.node_list_cases import on_fabric

NOW_S = 100_000.0
LIMITS = PreemptionConfig(enabled=True)
SCOPE = ScopeConfig(partitions=("*",))
BLOCKS = "BlockName=a Nodes=n[1-2]\nBlockName=b Nodes=n[3-4]\nBlockSizes=2\n"
WILLING = "slurmsched: preempt=yes ckpt=USR2@120"


def run(job_id: int, gpus: int = 8, **columns: Any) -> dict[str, Any]:
    """A job that has run for ten hours and lets itself be preempted."""
    long_ago = {"submit_s": NOW_S - 40_000, "start_s": NOW_S - 36_000, "run_s": 36_000.0, "executed_s": 36_000.0}
    kind = {"state": "RUNNING", "requeueable": True, "comment": WILLING, "end_s": NOW_S + 50_000, "cpus": gpus}
    return {"job_id": job_id, "gpus": gpus, **long_ago, **kind, **columns}


def wait(job_id: int, gpus: int = 8, **columns: Any) -> dict[str, Any]:
    return {"job_id": job_id, "gpus": gpus, "submit_s": NOW_S - 600, "user": "alice", "time_limit_s": 3_600.0,
            "cpus": gpus, **columns}  # fmt: skip


def cluster(
    jobs: list[dict[str, Any]], held: dict[int, dict[str, int]], nodes: Nodes | str = "4x8", **more: Any
) -> Snapshot:
    """held: job id -> GPUs by node."""
    rows = [{"job_id": job, "node": node, "gpus": gpus} for job, on in held.items() for node, gpus in on.items()]
    return snapshot(jobs, nodes, now_s=NOW_S, allocations=rows, **more)


def begun(
    at: Snapshot, urgent: list[int], limits: PreemptionConfig = LIMITS, lease_s: float = 0.0
) -> StartedOperations:
    """Operations when these jobs are the most urgent, in this order, and the others follow, the lowest id last."""
    ids = at.jobs.job_id.tolist()
    order = [ids.index(job) for job in [*urgent, *(job for job in reversed(ids) if job not in urgent)]]
    return begin_preemptions(at, Ranking(np.array(order)), at.jobs.pending, limits, SCOPE, lease_s)


def moves(found: StartedOperations) -> list[tuple[int, str, list[int]]]:
    return [
        (operation.job_id, operation.nodes, [victim.job_id for victim in operation.victims])
        for operation in found.operations
    ]


def full(count: int = 4, **columns: Any) -> tuple[list[dict[str, Any]], dict[int, dict[str, int]]]:
    """One 8-GPU job on each of the nodes n1, n2, ..."""
    return [run(i, **columns) for i in range(1, count + 1)], {i: {f"n{i}": 8} for i in range(1, count + 1)}


def test_begin__takes_the_cheapest_victim_on_exact_nodes():
    """Work since the last start counts for those that cannot save it; one victim is enough for one node."""
    jobs, held = full()
    jobs[2]["comment"] += " restart=10s"
    found = begun(cluster([*jobs, wait(9)], held), [9])
    assert moves(found) == [(9, "n3", [3])]
    (victim,) = found.operations[0].victims
    assert (victim.signal, victim.grace_s, victim.lost_gpu_s) == ("USR2", 120.0, 80.0)


def test_begin__never_more_victims_than_needed():
    """Two of four 2-GPU jobs leave for a 4-GPU job, those that lose least."""
    jobs = [run(i, 2, comment=f"{WILLING} restart={60 * i}s") for i in (1, 2, 3, 4)]
    found = begun(cluster([*jobs, wait(9, 4)], {i: {"n1": 2} for i in (1, 2, 3, 4)}, "1x8"), [9])
    assert moves(found) == [(9, "n1", [1, 2])]


@pytest.mark.parametrize(("order", "leaves"), [([9, 1, 2, 3, 4], [4]), ([9, 4, 2, 1, 3], [3])])
def test_begin__who_is_last_by_the_policy_leaves_where_all_lose_as_much(order, leaves):
    """Under least attained service: who has had most."""
    jobs, held = full()
    assert [moved for _, _, moved in moves(begun(cluster([*jobs, wait(9)], held), order))] == [leaves]


def test_begin__of_equal_sets_the_one_without_the_more_urgent_jobs_leaves():
    """Four 2-GPU jobs of a node that lose as much, four GPUs to be given."""
    jobs, held = [run(i, 2) for i in (1, 2, 3, 4)], {i: {"n1": 2} for i in (1, 2, 3, 4)}
    found = begun(cluster([*jobs, wait(9, 4)], held, "1x8"), [9, 3, 1, 4, 2])
    assert moves(found) == [(9, "n1", [2, 4])]


def test_begin__gang_gets_all_its_nodes_or_none():
    """A gang of two nodes takes two jobs; one that could only get one node takes nobody."""
    jobs, held = full()
    assert moves(begun(cluster([*jobs, wait(9, 16, nodes=2)], held), [9])) == [(9, "n[1-2]", [1, 2])]
    for job in jobs[1:]:
        job["comment"] = "slurmsched: preempt=no"
    found = begun(cluster([*jobs, wait(9, 16, nodes=2)], held), [9])
    assert (moves(found), [refusal.rule for refusal in found.refused]) == ([], ["victims"])


def test_begin__a_gang_takes_nodes_on_which_slurm_starts_it():
    """One that fits into a block: the cheaper jobs are in two, and what is free is too."""
    jobs, held = full()
    for job, run_s in zip(jobs, (9_000.0, 36_000.0, 10_000.0, 12_000.0), strict=True):
        job |= {"comment": "slurmsched: preempt=yes", "run_s": run_s}
    limits = PreemptionConfig(enabled=True, without_checkpoint=True, least_factor=0.0)
    at = cluster([*jobs, wait(9, 16, nodes=2)], held)
    assert moves(begun(at, [9], limits)) == [(9, "n[1,3]", [1, 3])]
    assert moves(begun(on_fabric(at, BLOCKS), [9], limits)) == [(9, "n[3-4]", [3, 4])]
    some = cluster([jobs[1], jobs[3], wait(9, 16, nodes=2)], {2: held[2], 4: held[4]})
    assert moves(begun(some, [9], limits)) == []
    assert moves(begun(on_fabric(some, BLOCKS), [9], limits)) == [(9, "n[3-4]", [4])]


@pytest.mark.parametrize(("dear_s", "block"), [(80_000.0, "n[1-2]"), (200_000.0, "n[3-4]")])
def test_begin__a_gang_clears_the_block_that_loses_least_all_together(dear_s, block):
    """Not the one whose dearest node is cheapest."""
    jobs, held = full()
    for job, run_s in zip(jobs, (9_000.0, dear_s, 60_000.0, 60_000.0), strict=True):
        job |= {"comment": "slurmsched: preempt=yes", "run_s": run_s}
    at = on_fabric(cluster([*jobs, wait(9, 16, nodes=2)], held), BLOCKS)
    limits = PreemptionConfig(enabled=True, without_checkpoint=True, least_factor=0.0)
    assert [nodes for _, nodes, _ in moves(begun(at, [9], limits))] == [block]


def test_begin__nobody_leaves_for_a_gang_while_slurm_has_not_told_its_topology():
    """Nor is it taken to start on what is free. A job of one node starts anywhere."""
    jobs, held = full()
    at = cluster([*jobs, wait(8), wait(9, 16, nodes=2)], held)
    found = begun(replace(at, topology=replace(at.topology, slurm_known=False)), [9, 8])
    assert moves(found) == [(8, "n1", [1])]
    assert [(each.job_id, each.rule) for each in found.refused] == [(9, "constraint")]
    assert "not read yet" in found.refused[0].reason


def test_begin__a_gang_takes_nodes_by_slurms_blocks_not_by_a_files():
    """The file's one block holds all four nodes; Slurm starts two in a block of its own."""
    jobs, held = full()
    for job, run_s in zip(jobs, (3_000.0, 9_000.0, 3_000.0, 3_600.0), strict=True):
        job |= {"comment": "slurmsched: preempt=yes", "run_s": run_s}
    at = on_fabric(cluster([*jobs, wait(9, 16, nodes=2)], held), BLOCKS)
    file = on_fabric(at, "BlockName=rack Nodes=n[1-4]\nBlockSizes=4\n").topology
    both = replace(at.topology, fabric=file.fabric, cell=file.cell)
    limits = PreemptionConfig(enabled=True, without_checkpoint=True, least_factor=0.0)
    assert moves(begun(replace(at, topology=both), [9], limits)) == [(9, "n[3-4]", [3, 4])]


def test_begin__job_that_fits_into_what_is_free_takes_nobody():
    """And what it will take counts as gone for the next one."""
    jobs, held = full(3)
    found = begun(cluster([*jobs, wait(8), wait(9)], held), [8, 9])
    assert moves(found) == [(9, "n1", [1])]


LIMITS_TOLD = ("QOSMaxJobsPerUserLimit", "AssocGrpGRES", "MaxGRESPerAccount", "QOSMaxGRESPerUser", "PartitionTimeLimit",
               "Licenses", "InvalidQOS", "QOSGrpGRESMinutes", "AssocMaxJobsLimit", "BurstBufferResources",
               "JobArrayTaskLimit")  # fmt: skip


@pytest.mark.parametrize("reason", LIMITS_TOLD)
def test_begin__nobody_leaves_for_a_job_that_waits_for_a_limit(reason):
    """On free GPUs it would not start either: they would stand idle, and the work of who left be lost."""
    jobs, held = full()
    found = begun(cluster([*jobs, wait(9, reason=reason)], held), [9])
    assert (found.operations, [(each.job_id, each.rule) for each in found.refused]) == ((), [(9, "limit")])
    assert reason in found.refused[0].reason


@pytest.mark.parametrize("reason", ["", "None", "Priority", "Resources", "ReqNodeNotAvail, UnavailableNodes:n7"])
def test_begin__other_reasons_to_wait_are_for_want_of_gpus(reason):
    """Slurm tells Priority of all behind the first, and nothing before its first look."""
    jobs, held = full()
    assert len(begun(cluster([*jobs, wait(9, reason=reason)], held), [9]).operations) == 1


def test_begin__what_is_completing_counts_as_free():
    """Nobody need leave for a job that gets the nodes of one that is leaving already."""
    jobs, held = full()
    jobs[0]["state"] = "PENDING,COMPLETING"
    assert moves(begun(cluster([*jobs, wait(9)], held), [9])) == []


@pytest.mark.parametrize(
    ("asks", "rule"),
    [
        ({"features_asked": "h100"}, "nodes"), ({"features_asked": "[a|b]"}, "nodes"), ({"cpus": 65}, "nodes"),
            ({"features_asked": "[a*2&b*3]"}, "constraint"), ({"features_asked": "!a"}, "constraint"),
        ({"nodes_asked": "n9"}, "nodes"), ({"nodes_excluded": "n[1-4]"}, "nodes"),
        ({"gpu_request": "gpu:h100:8"}, "nodes"),
    ],
)  # fmt: skip
def test_begin__no_victim_for_what_no_node_can_serve(asks, rule):
    """A constraint that no victim's node meets: nobody loses anything, and one reason is given."""
    jobs, held = full()
    found = begun(cluster([*jobs, wait(9, **asks)], held), [9])
    assert (moves(found), [refusal.rule for refusal in found.refused]) == ([], [rule])


def test_begin__mig_devices_are_no_whole_gpus():
    """A job that holds such alone is no victim, and gives no GPU back when it completes."""
    rows = [{"job_id": 1, "node": "n1", "gpus": 2, "gpu_type": "1g.5gb"}, {"job_id": 2, "node": "n1", "gpus": 6}]
    at = snapshot([run(1, 0, mig_devices=2), run(2, 6), wait(9, 8)], "1x8", allocations=rows, now_s=NOW_S)
    assert AllocatedGpus.of(at).count.tolist() == [0, 1, 0]
    assert VICTIM_RULES[victim_verdicts(preemption_case(at, LIMITS, SCOPE))[0]].name == "no-gpu"
    leaving = replace(at, jobs=at.jobs.with_columns(state=[int(JobState.COMPLETING)] * 2 + [int(JobState.PENDING)]))
    assert FreeResources.of(leaving).gpus.tolist() == [8]
    assert (placeable_gpu_counts(at).tolist(), requested_gpus(at, job_standing(at)).tolist()) == ([8], [0, 6, 8])


def test_begin__only_nodes_that_meet_the_constraint_are_cleared():
    """Eleven one-node jobs, one of them on the only node with the feature: that one leaves."""
    jobs, held = full(11)
    names = {i: f"n{i:02}" for i in range(1, 12)}
    nodes = fleet("11x8").with_columns(features=["fast" if i == 6 else "slow" for i in range(11)])
    held = {i: {names[i]: 8} for i in held}
    found = begun(cluster([*jobs, wait(20, features_asked="fast")], held, nodes), [20])
    assert moves(found) == [(20, "n07", [7])]


def test_begin__nobody_loses_gpus_to_a_less_urgent_job():
    """The order of the policy holds for running jobs too."""
    jobs, held = full()
    assert moves(begun(cluster([*jobs, wait(9)], held), [1, 2, 3, 4, 9])) == []


def test_begin__open_operations_count_against_the_caps():
    """A job with an operation under way gets no second one; nor do more operations begin than may be open."""
    jobs, held = full()
    at = cluster([*jobs, wait(8), wait(9)], held)
    first = begun(at, [8, 9], PreemptionConfig(enabled=True, most_in_progress=1))
    assert moves(first) == [(8, "n1", [1])]
    later = cluster([*jobs, wait(8), wait(9)], held, operations=first.operations)
    assert moves(begun(later, [8, 9], PreemptionConfig(enabled=True, most_in_progress=2))) == [(9, "n2", [2])]
    assert moves(begun(later, [8, 9], PreemptionConfig(enabled=True, most_in_progress=2, most_per_user=1))) == []


def test_begin__promises_under_way_do_not_count_as_preemptions():
    """Each has its own cap; the nodes of a gang reservation are nobody else's."""
    jobs, held = full()
    kept = Operation("7-1", Purpose.RESERVE, 7, 0.0, "alice", "n1", 60.0, NOW_S - 60)
    at = cluster([*jobs, wait(9)], held, operations=(kept,))
    assert moves(begun(at, [9], PreemptionConfig(enabled=True, most_in_progress=1, most_per_user=1))) == [
        (9, "n2", [2])
    ]


def test_begin__no_two_jobs_take_gpus_of_each_other_in_turn():
    """Within the lease the job that gave its GPUs takes none of the one that got them; of another it may."""
    jobs, held = full(2)
    back = Operation(
        "1-1",
        Purpose.PREEMPT,
        1,
        0.0,
        "eve",
        "n1",
        60.0,
        NOW_S - 600,
        (Victim(9, 0.0, 0, 8),),
        stage=OperationStage.CLOSED,
    )
    at = cluster([*jobs, wait(9)], held, "2x8", past_operations=(back,))
    assert moves(begun(at, [9], lease_s=1_800)) == [(9, "n2", [2])]
    assert moves(begun(at, [9], lease_s=300)) == [(9, "n1", [1])]


def test_begin__nodes_of_other_reservations_are_left_alone():
    """Slurm lets no two overlap: nobody leaves a node that a maintenance has before the job is done."""
    jobs, held = full(2)
    soon = Reservations.build(
        1, {"name": ["maint"], "node_list": ["n1"], "start_s": [NOW_S + 60], "end_s": [NOW_S + 9e3]}
    )
    assert moves(begun(cluster([*jobs, wait(9)], held, "2x8", reservations=soon), [9])) == [(9, "n2", [2])]


@pytest.mark.parametrize(("limit_s", "found"), [(3_600.0, [(9, "n1", [1])]), (30.0, [])])
def test_begin__what_is_free_before_a_maintenance_only_is_not_free_for_a_longer_job(limit_s, found):
    """Slurm starts no job there that would not end in time: it would wait until the maintenance is over."""
    jobs, held = full(1)
    soon = Reservations.build(
        1, {"name": ["maint"], "node_list": ["n2"], "start_s": [NOW_S + 60], "end_s": [NOW_S + 9e3]}
    )
    at = cluster([*jobs, wait(9, time_limit_s=limit_s)], held, "2x8", reservations=soon)
    assert moves(begun(at, [9])) == found


@pytest.mark.parametrize(("gpus", "found"), [(6, []), (7, [(9, "n1", [1])])])
def test_begin__what_a_reservation_of_a_part_of_a_node_leaves_is_free(gpus, found):
    """Slurm starts the job beside it; nobody leaves, and nobody is moved off a node that it has a part of."""
    jobs, held = full(1)
    columns = {"start_s": [NOW_S - 60], "end_s": [NOW_S + 9e3], "cores": ["n2=2"], "tres": ["cpu=2,gres/gpu=2"]}
    part = Reservations.build(1, {"name": ["part"], "node_list": ["n2"], **columns})
    at = cluster([*jobs, wait(9, gpus, cpus=1)], held, "2x8", reservations=part)
    assert moves(begun(at, [9])) == found


@pytest.mark.parametrize(
    ("partition", "asks", "found"),
    [
        ({"max_nodes": 1.0}, {"nodes": 2, "gpus": 16}, "nodes"),
        ({"max_cpus_per_node": 4.0}, {}, "nodes"),
        ({"max_time_s": 60.0}, {}, "nodes"),
        ({"up": False, "state": "DOWN"}, {}, "nodes"),
        ({"exclusive": "user"}, {}, "nodes"),
        ({"max_cpus_per_socket": 8.0}, {}, "constraint"),
        ({"allow_accounts": "others"}, {"account": "phys"}, "constraint"),
        ({"state": "DRAIN"}, {}, [1]),
        ({"exclusive": "node"}, {"gpus": 1, "cpus": 1}, [1]),
    ],
)  # fmt: skip
def test_begin__nobody_leaves_for_a_job_that_the_partition_does_not_start(partition, asks, found):
    """By its limits, or by some that were not looked at. One that gives whole nodes needs all of one."""
    jobs, held = full(2, user="bob")
    jobs = [jobs[0] | {"node_list": "n1"}, jobs[1] | {"comment": "", "node_list": "n2"}]
    where = [{"name": "gpu", "default": True} | partition]
    told = begun(cluster([*jobs, wait(9, **asks)], held, "2x8", partitions=where), [9])
    rules = [refusal.rule for refusal in told.refused]
    assert (moves(told), rules) == ([], [found]) if isinstance(found, str) else ([(9, "n1", found)], [])


def test_begin__cpus_that_jobs_share_by_force_need_not_be_free():
    """OverSubscribe=FORCE: GPUs alone are what is short."""
    nodes = [{"name": "n1", "gpus": 8, "cpus": 8, "cpus_used": 8}]
    jobs, held = [run(1, 4, cpus=8)], {1: {"n1": 4}}
    for how, found in (("NO", [(9, "n1", [1])]), ("FORCE:4", []), ("FORCE:1", [(9, "n1", [1])])):
        where = [{"name": "gpu", "over_subscribe": how}]
        assert moves(begun(cluster([*jobs, wait(9, 4)], held, nodes, partitions=where), [9])) == found


def test_begin__nobody_leaves_for_a_gang_with_wishes_of_the_fabric():
    """Its --switches or --segment is Slurm's to see to: the nodes chosen here might not serve it."""
    jobs, held = full(2)
    for asks in ({"switches": 1}, {"segment_nodes": 2}):
        found = begun(cluster([*jobs, wait(9, 16, nodes=2, **asks)], held, "2x8"), [9])
        assert (moves(found), [refusal.rule for refusal in found.refused]) == ([], ["constraint"])


@pytest.mark.parametrize("asks", [{}, {"switches": 1}, {"segment_nodes": 2}])
def test_begin__a_gang_with_wishes_of_the_fabric_that_fits_takes_what_is_free(asks):
    """n1 and n2 are about to be its own: nobody clears n3 for a less urgent gang that needs all three."""
    jobs = [run(1), wait(8, 16, nodes=2, **asks), wait(9, 24, nodes=3)]
    found = begun(cluster(jobs, {1: {"n3": 8}}, "3x8"), [8, 9])
    assert (moves(found), [(refusal.job_id, refusal.rule) for refusal in found.refused]) == ([], [(9, "victims")])


def test_begin__exclusive_job_clears_whole_nodes():
    """It asks for two GPUs; nobody may be left on its node."""
    jobs = [run(i, 2, comment=f"{WILLING} restart={60 * i}s") for i in (1, 2)]
    asks = wait(9, 2, exclusive=True)
    nodes = fleet("1x8").with_columns(cpus_used=[4])
    assert moves(begun(cluster([*jobs, asks], {1: {"n1": 2}, 2: {"n1": 2}}, nodes), [9])) == [(9, "n1", [1, 2])]


@pytest.mark.parametrize(
    ("columns", "rule"),
    [
        ({}, ""), ({"state": "PENDING"}, "not-running"), ({"gpus": 0}, "scope"), ({"batch": False}, "batch"),
        ({"cron": True}, "cron"), ({"het_job_id": 1}, "het"), ({"requeueable": False}, "no-requeue"),
        ({"array_job_id": 1}, "array"), ({"array_job_id": 4}, ""),
        ({"comment": ""}, "unwilling"), ({"comment": "slurmsched: preempt=no"}, "unwilling"),
        ({"comment": "slurmsched: preempt=yes"}, "checkpoint"), ({"run_s": 600.0}, "quantum"),
        ({"restarts": 3}, "times"), ({"end_s": NOW_S + 200}, "ends"),
        ({"comment": f"{WILLING} dur=36200s"}, "ends"), ({"comment": f"{WILLING} dur=36300s"}, ""),
        ({"comment": f"{WILLING} dur=10h"}, ""),
        ({"comment": "slurmsched: preempt=yes ckpt=USR2@60000"}, ""),
        ({"comment": f"{WILLING} dur=36200s", "executed_s": 0.0}, ""),
        ({"comment": f"{WILLING} restart=12h"}, "factor"),
    ],
)  # fmt: skip
def test_victim_rules__one_reason_a_job(columns, rule):
    """Who may not lose its GPUs is told why, by the first rule that holds."""
    at = cluster([run(1, **columns)], {1: {"n1": 8}})
    verdict = int(victim_verdicts(preemption_case(at, LIMITS, SCOPE))[0])
    assert (VICTIM_RULES[verdict].name if verdict >= 0 else "") == rule


def test_victim_rules__the_site_may_name_who_needs_no_hint():
    """A job in a named QOS may be preempted without saying so; preempt=no still counts."""
    limits = PreemptionConfig(enabled=True, qos=("scavenger",), without_checkpoint=True)
    jobs = [
        run(1, qos="scavenger", comment=""),
        run(2, qos="scavenger", comment="slurmsched: preempt=no"),
        run(3, comment=""),
    ]
    at = cluster(jobs, {i: {f"n{i}": 8} for i in (1, 2, 3)})
    assert (victim_verdicts(preemption_case(at, limits, SCOPE)) < 0).tolist() == [True, False, False]


def test_victims_on__no_set_is_tried_where_all_are_too_few(monkeypatch):
    """One on the node is unwilling; the others have 127 sets."""
    jobs = [run(job, 1, comment=WILLING if job > 1 else "") for job in range(1, 9)]
    at = cluster([*jobs, wait(9)], {job: {"n1": 1} for job in range(1, 9)}, "1x8")
    tried: list[list[int]] = []
    monkeypatch.setattr(victims, "_victim_sets", lambda rows, way: tried.append(rows) or iter(()))
    assert (begun(at, [9]).operations, tried) == ((), [])


def test_sets__many_victims_are_tried_from_the_cheapest():
    """Beyond ten jobs on a node not every set is tried."""
    rows, lost = list(range(12)), np.arange(12, 0, -1).astype(float)
    running = victims.PreemptableJobs(np.ones(12, np.bool_), lost, np.arange(12), AllocatedGpus.of(cluster([], {})))
    assert list(victims._victim_sets(rows, running))[:2] == [[11], [10, 11]]


@pytest.mark.parametrize(
    ("columns", "cost_s", "source"),
    [
        ({}, 120.0, "preemption.restart_cost_s"),
        ({"moved_cost_s": 500.0, "moves_seen": 3}, 500.0, "the median of 3 moves of its user's jobs of its name"),
        ({"comment": f"{WILLING} restart=7s", "moved_cost_s": 500.0, "moves_seen": 3}, 7.0, "its hint"),
    ],
)
def test_begin__restart_costs_by_hint_then_by_what_was_seen_then_by_default(columns, cost_s, source):
    """The victim's loss is reckoned by it, and the operation tells by which."""
    running, held = full(1, **columns)
    (operation,) = begun(cluster([*running, wait(9)], held, "1x8"), [9]).operations
    assert [(victim.lost_gpu_s, victim.cost_by) for victim in operation.victims] == [(8 * cost_s, source)]


def test_begin__who_was_seen_to_restart_fast_leaves_first():
    """Of two that differ in nothing else."""
    running, held = full(2)
    running[1] |= {"moved_cost_s": 30.0, "moves_seen": 3}
    assert moves(begun(cluster([*running, wait(9)], held, "2x8"), [9])) == [(9, "n2", [2])]


def test_begin__what_a_victim_leaves_over_is_not_taken_of_another():
    """Two jobs of half a node, every node full with one job: one leaves, and the other gets the rest of its node, in
    the cycle in which the first operation begins and in those in which it is under way."""
    jobs, held = full()
    jobs += [wait(8, 4), wait(9, 4)]
    first = begun(cluster(jobs, held), [8, 9])
    assert moves(first) == [(8, "n1", [1])]
    for stage in (OperationStage.BEGUN, OperationStage.WARNED, OperationStage.REQUEUED):
        operations = tuple(replace(operation, stage=stage) for operation in first.operations)
        assert moves(begun(cluster(jobs, held, operations=operations), [8, 9])) == []
    ending = tuple(replace(operation, stage=OperationStage.REVERSING) for operation in first.operations)
    assert moves(begun(cluster(jobs, held, operations=ending), [8, 9])) == [(9, "n2", [2])]


def test_begin__what_is_free_for_an_operation_under_way_is_nobody_elses():
    """Its victim has left, its job does not run yet: the next one does not wait for that node."""
    jobs, held = full()
    first = begun(cluster([*jobs, wait(8), wait(9)], held), [8, 9], PreemptionConfig(enabled=True, most_in_progress=1))
    del held[1]
    left = cluster([*jobs[1:], wait(1), wait(8), wait(9)], held, operations=first.operations)
    assert moves(begun(left, [8, 9, 1])) == [(9, "n2", [2])]


def test_begin__a_job_on_several_nodes_counts_once():
    """The gang's nodes are those whose jobs lose least together: one job of two nodes loses less than two others,
    though one of these alone would lose less."""
    jobs = [run(1, 16, nodes=2, comment=f"{WILLING} restart=100s"), run(2, comment=f"{WILLING} restart=120s"),
            run(3, comment=f"{WILLING} restart=190s")]  # fmt: skip
    held = {1: {"n1": 8, "n2": 8}, 2: {"n3": 8}, 3: {"n4": 8}}
    (operation,) = begun(cluster([*jobs, wait(9, 16, nodes=2)], held), [9]).operations
    assert (operation.nodes, [victim.job_id for victim in operation.victims]) == ("n[1-2]", [1])


def test_begin__nobody_leaves_a_node_that_another_clears():
    """A gang of two nodes: who makes room on the one by leaving the other too is enough."""
    jobs = [run(1, 4, cpus=4, comment=f"{WILLING} restart=1s"), run(2, 12, nodes=2)]
    held = {1: {"n1": 4}, 2: {"n1": 4, "n2": 8}}
    at = cluster([*jobs, wait(9, 8, nodes=2)], held, "2x8")
    (operation,) = begun(at, [9]).operations
    assert (operation.nodes, [victim.job_id for victim in operation.victims]) == ("n[1-2]", [2])


def test_begin__a_job_with_two_types_of_gpus_on_a_node_counts_once():
    """Slurm tells of it in two rows; its CPUs count whole, and its GPUs once: for more of them the other leaves too."""
    jobs = [run(1, 4, cpus=4, comment=f"{WILLING} restart=1s"), run(2, 4, cpus=4)]
    rows = [{"job_id": 1, "node": "n1", "gpu_type": kind, "gpus": 2} for kind in ("a100", "h100")]
    rows.append({"job_id": 2, "node": "n1", "gpus": 4})
    nodes = [{"name": "n1", "partitions": "gpu", "gpus": 8, "cpus": 8, "cpus_used": 8}]
    for asks, leave in ((4, [1]), (6, [1, 2])):
        at = snapshot([*jobs, wait(9, asks)], nodes, now_s=NOW_S, allocations=rows)
        assert moves(begun(at, [9])) == [(9, "n1", leave)]


def mixed(jobs: list[dict[str, Any]], held: dict[int, dict[str, tuple[str, int]]], **more: Any) -> Snapshot:
    """Two nodes of four A100 and four V100 each. held: job id -> type and GPUs by node."""
    rows = [{"job_id": job, "node": node, "gpu_type": name, "gpus": gpus}
            for job, on in held.items() for node, (name, gpus) in on.items()]  # fmt: skip
    both = [{"name": name, "gpus": 8, "gpu_types": "gpu:a100:4,gpu:v100:4", "cpus": 64} for name in ("n1", "n2")]
    return snapshot(jobs, both, now_s=NOW_S, allocations=rows, **more)


FOUR = {1: {"n1": ("a100", 4)}, 2: {"n1": ("v100", 4)}, 3: {"n2": ("a100", 4)}, 4: {"n2": ("v100", 4)}}


def typed(gpu_type: str = "v100", gpus: int = 4, **columns: Any) -> dict[str, Any]:
    return wait(9, gpus, gpu_request=f"gpu:{gpu_type}:{gpus}", **columns)


@pytest.mark.parametrize(("request_", "leaves"), [("a100", 1), ("v100", 2)])
def test_begin__where_nodes_have_several_types_those_leave_who_hold_the_one_asked_for(request_, leaves):
    """Whoever holds the other type would free nothing, though it loses less."""
    jobs = [run(i, 4, comment=f"{WILLING} restart={60 * i}s") for i in (2, 1, 3, 4)]
    jobs[leaves % 2]["comment"] = f"{WILLING} restart=10s"  # who holds the other type
    found = begun(mixed([*sorted(jobs, key=lambda job: job["job_id"]), typed(request_)], FOUR), [9])
    assert moves(found) == [(9, "n1", [leaves])]


def test_begin__a_job_by_type_that_finds_it_free_on_a_node_of_several_moves_nobody():
    """Four V100 are free on one; too few are left when one before it takes two, by type or any, and then one leaves."""
    held = {key: FOUR[key] for key in (1, 2, 3)}
    jobs = [run(i, 4) for i in (1, 2, 3)]
    assert moves(begun(mixed([*jobs, typed()], held), [9])) == []
    for request in ("gpu:v100:2", "gpu:2"):
        first = wait(8, 2, gpu_request=request)
        assert moves(begun(mixed([*jobs, first, typed()], held), [8, 9])) == [(9, "n1", [2])]


def test_begin__a_gang_by_type_on_nodes_of_several_types():
    """Four of a type of each node."""
    at = mixed([*(run(i, 4) for i in (1, 2, 3, 4)), typed(gpus=8, nodes=2)], FOUR)
    assert moves(begun(at, [9])) == [(9, "n[1-2]", [2, 4])]


@pytest.mark.parametrize(
    "other",
    [{"gpu_request": "gpu:a100:2,gpu:v100:2"}, {"exclusive": True}, {"gpu_request": "gpu:v100:5", "gpus": 5},
     {"gpu_request": "gpu:h100:4"}],
    ids=["two types", "whole node", "too many", "another type"],
)  # fmt: skip
def test_begin__nobody_leaves_nodes_of_several_types_for(other):
    """Several types at once or whole nodes are not reckoned by type; more than there are, or others, never fit."""
    found = begun(mixed([*(run(i, 4) for i in (1, 2, 3, 4)), typed() | other], FOUR), [9])
    assert (moves(found), [refusal.rule for refusal in found.refused]) == ([], ["nodes"])


def test_begin__nobody_leaves_a_node_of_several_types_of_which_not_all_is_seen():
    """A job that is not said to hold a type, or GPUs that a job holds which is not seen."""
    jobs = [*(run(i, 4) for i in (1, 2, 3, 4)), typed()]
    vague = FOUR | {1: {"n1": ("", 4)}}
    assert moves(begun(mixed(jobs, vague), [9])) == [(9, "n2", [4])]
    jobs[3]["comment"] += " restart=10s"
    at = mixed([job for job in jobs if job["job_id"] != 3], {key: FOUR[key] for key in (1, 2, 4)})
    unseen = replace(at, nodes=at.nodes.with_columns(gpus_used=np.array([8, 8])))
    assert moves(begun(unseen, [9])) == [(9, "n1", [2])]


def test_begin__tells_nodes_whose_free_types_are_not_known_from_nodes_that_are_too_few():
    """Both nodes hold a job of which no type is shown, or one before it takes GPUs of any type there: they would do."""
    jobs, unknown = [run(i, 4) for i in (1, 2, 3, 4)], "on nodes with several GPU types it is unknown which are free"
    vague = FOUR | {1: {"n1": ("", 4)}, 3: {"n2": ("", 4)}}
    for other, words in (({}, unknown), ({"gpus": 8, "nodes": 2}, unknown), ({"gpus": 12, "nodes": 3}, "even if empty"),
                         ({"gpu_request": "gpu:v100:5", "gpus": 5}, "even if empty"),
                         ({"gpu_request": "gpu:h100:4"}, "even if empty")):  # fmt: skip
        found = begun(mixed([*jobs, typed() | other], vague), [9])
        assert (moves(found), [refusal.rule for refusal in found.refused]) == ([], ["nodes"])
        assert words in found.refused[0].reason, other
    first = [wait(8, 4, nodes=2, gpu_request="gpu:2")]
    some = {1: FOUR[1], 3: FOUR[3]}
    found = begun(mixed([run(1, 4), run(3, 4), *first, typed()], some), [8, 9])
    assert unknown in found.refused[0].reason


def test_begin__what_completes_or_is_moved_already_is_counted_by_type():
    """Four V100 are coming free on n2; the other type's would not help. An operation on its way takes them for its
    own."""
    jobs = [*(run(i, 4) for i in (1, 2, 3)), run(4, 4, state="RUNNING,COMPLETING")]
    assert moves(begun(mixed([*jobs, typed()], FOUR), [9])) == []
    jobs = [*(run(i, 4) for i in (1, 2, 4)), run(3, 4, state="RUNNING,COMPLETING")]
    at = mixed([*sorted(jobs, key=lambda job: job["job_id"]), typed()], FOUR)
    assert moves(begun(at, [9])) == [(9, "n1", [2])]
    victim = Victim(4, NOW_S - 40_000, 0, 4)
    operation = Operation("8-1", Purpose.PREEMPT, 8, NOW_S - 600, "alice", "n2", 3_600.0, NOW_S, (victim,))
    first = wait(8, 2, gpu_request="gpu:v100:2")
    at = mixed([*(run(i, 4) for i in (1, 2, 3, 4)), first, typed()], FOUR, operations=(operation,))
    assert moves(begun(at, [9], PreemptionConfig(enabled=True, most_in_progress=4))) == [(9, "n1", [2])]


HERE = "slurmsched-9-100000"
UNSURE = "it is not known whether its job could start: not looked at: "
# What becomes of job 9, a gang that gets n1, where job 1 runs, and n2, which is free; and why it gets nothing then.
CHANGES = [
    ({}, ""),
    ({"comment": "anything", "priority": 7}, ""),
    ({"time_limit_s": 60.0}, ""),
    ({"eligible_s": NOW_S + 600, "submit_s": NOW_S + 600}, "its job left the queue"),
    ({"dependency": "afterok:1"}, "its job waits for other jobs (afterok:1)"),
    ({"nodes": 3, "gpus": 24}, "its job asks for 3 nodes, 2 were chosen"),
    ({"nodes": 1, "gpus": 8}, "its job asks for 1 node, 2 were chosen"),
    ({"gpus": 32}, "its job cannot run on node n1"),
    ({"cpus": 999}, "its job cannot run on node n1"),
    ({"memory_mib": 9e9}, "its job cannot run on node n1"),
    ({"nodes_asked": "n[3-4]"}, "its job cannot run on node n1"),
    ({"nodes_asked": "n1"}, f"{UNSURE}it names some of its nodes and leaves others free"),
    ({"nodes_excluded": "n2"}, "its job cannot run on node n2"),
    ({"features_asked": "nvlink"}, "its job cannot run on node n1"),
    ({"features_asked": "[a*1&b*1]"}, f"{UNSURE}its constraint '[a*1&b*1]' (how many nodes have a feature)"),
    ({"gpu_request": "gpu:h100:8"}, "its job cannot run on node n1"),
    ({"partition": "night"}, "its job cannot run on node n1"),
    ({"priority": 0}, "its job is held"),
    ({"reservation": "maintenance"}, "its reservation was taken away by somebody else"),
    ({"time_limit_s": 7_200.0}, "its job may run longer than its nodes are kept"),
    ({"switches": 1}, "it asks for switches, which Slurm alone sees to"),
    ({"reason": "QOSMaxJobsPerUserLimit"}, "its job waits for something else than GPUs (QOSMaxJobsPerUserLimit)"),
    ({"state": "CANCELLED"}, "its job left the queue"),
    ({"submit_s": NOW_S - 60}, "its job left the queue"),
]


def gang(
    stage: OperationStage,
    extra: list[dict[str, Any]] = [],  # noqa: B006
    on: dict[int, dict[str, int]] = {},  # noqa: B006
    machines: Any = "4x8",
    **changes: Any,
) -> tuple[Operation, Snapshot]:
    """An operation for job 9 in the grace of job 1, or when that was told to go; others: `extra`, and what they
    hold."""
    operation = Operation("9-100000", Purpose.PREEMPT, 9, NOW_S - 600, "alice", "n[1-2]", 3_600.0, NOW_S - 10,
              (Victim(1, NOW_S - 40_000, 0, 8, "USR2", 120.0),), stage=stage, stage_s=NOW_S - 10)  # fmt: skip
    jobs = [run(1), wait(9, **{"gpus": 16, "nodes": 2, "cpus": 16, "reservation": HERE} | changes), *extra]
    kept = Reservations.build(1, {"name": [HERE], "node_list": ["n[1-2]"], "end_s": [NOW_S + 9_000],
                                  "start_s": [NOW_S - 9]})  # fmt: skip
    return operation, cluster(jobs, {1: {"n1": 8}} | on, machines, operations=(operation,), reservations=kept)


@pytest.mark.parametrize("stage", [OperationStage.WARNED, OperationStage.REQUEUED])
@pytest.mark.parametrize(("changes", "why"), CHANGES)
def test_unable__is_judged_in_the_grace_and_after_it(changes, why, stage):
    """A job that could not start on its nodes any more takes nobody's GPUs: all is given back at once, with the reason;
    nothing happens to one that could."""
    operation, at = gang(stage, **changes)
    move = advance(operation, at, OperationsConfig())
    assert (move.operation.stage, move.operation.note) == ((OperationStage.REVERSING if why else stage), why)
    kinds = {step.kind for step in move.steps}
    assert "signal" not in kinds
    assert ("requeue" in kinds) == (stage == OperationStage.REQUEUED and not why)
    assert ("unreserve" in kinds) == bool(why)


@pytest.mark.parametrize(
    ("stage", "later_s", "submitted_s", "late"),
    [
        (OperationStage.WARNED, 100.0, -600.0, ""),  # its victim has 110 s more
        (OperationStage.WARNED, 3_710.0, -600.0, "3600 s"),
        (OperationStage.REQUEUED, 2.0, -600.0, ""),
        (OperationStage.REQUEUED, 3.0, -600.0, "3 s"),
        (OperationStage.REQUEUED, 60.0, 60.0, ""),  # the clock was set back by so much
        (OperationStage.REQUEUED, 61.0, 61.0, "61 s"),
        (OperationStage.WARNED, 170.0, 170.0, ""),
        (OperationStage.WARNED, 3_710.0, 3_710.0, "3600 s"),
    ],
)
def test_unable__a_job_that_may_start_only_later(stage, later_s, submitted_s, late):
    """Its nodes wait for it no longer than its victims have; for a short while where a clock was set back."""
    times = {"eligible_s": NOW_S + later_s, "submit_s": NOW_S + submitted_s}
    operation, at = gang(stage, reason="BeginTime", **times)
    operation = replace(operation, submit_s=NOW_S + submitted_s)
    assert cannot_start(operation, replace(at, operations=(operation,))) == (
        f"its job may not start until {late} later" if late else ""
    )
    ours_is_behind = submitted_s > 0  # Slurm does not say that the job's time has not come
    _, at = gang(stage, reason="Resources", **times)
    assert bool(cannot_start(operation, replace(at, operations=(operation,)))) == bool(late and not ours_is_behind)


@pytest.mark.parametrize("stage", [OperationStage.WARNED, OperationStage.REQUEUED])
def test_unable__another_job_took_a_free_node_of_the_gang(stage):
    """Some GPUs, or all, or its CPUs alone; the victim is spared. What is on other nodes does not matter."""
    taken = "others hold what its job needs of node n2"
    assert cannot_start(*gang(stage, [run(2, 4)], {2: {"n2": 4}})) == taken
    assert cannot_start(*gang(stage, [run(2)], {2: {"n2": 8}})) == taken
    busy = fleet("4x8").with_columns(cpus=[64] * 4, cpus_used=[0, 64, 0, 0])
    assert cannot_start(*gang(stage, [run(2, 0, node_list="n2")], machines=busy)) == taken
    assert cannot_start(*gang(stage, [run(2)], {2: {"n3": 8}})) == ""


def test_unable__who_left_by_itself_and_whose_gpus_another_took():
    """The victim's own GPUs count only while it has them."""
    operation, at = gang(OperationStage.WARNED, [run(2)], {1: {}, 2: {"n1": 8}}, nodes_asked="n[1-2]")
    at = replace(at, jobs=at.jobs.with_columns(state=[at.jobs.state[0] * 0 + 8, *at.jobs.state[1:]]))
    assert cannot_start(operation, at) == "others hold what its job needs of node n1"


def test_unable__gpus_that_slurm_still_shows_as_used_for_a_moment_are_no_reason():
    """The victim was requeued and is not seen to hold anything, or the job itself has started meanwhile."""
    operation, at = gang(OperationStage.REQUEUED, on={1: {}})
    gone = at.jobs.with_columns(state=[int(JobState.PENDING | JobState.COMPLETING), *at.jobs.state[1:]],
                                restarts=[1, *at.jobs.restarts[1:]])  # fmt: skip
    busy = at.nodes.with_columns(gpus_used=[8, 8, 0, 0])
    assert cannot_start(operation, replace(at, jobs=gone, nodes=busy)) == ""


@pytest.mark.parametrize(
    ("stage", "why"), [(OperationStage.WARNED, ""), (OperationStage.REQUEUED, "node n2 takes no new job")]
)
def test_unable__a_node_that_closes(stage, why):
    """In the grace it may open again; later it is waited for no longer."""
    operation, at = gang(stage)
    shut = at.nodes.with_columns(state=[1, int(NodeState.IDLE | NodeState.DRAIN), 1, 1])
    assert cannot_start(operation, replace(at, nodes=shut)).startswith(why)
    assert bool(cannot_start(operation, replace(at, nodes=shut))) == bool(why)


def test_unable__another_reservation_begins_before_its_job_would_end():
    """Slurm would not start it."""
    operation, at = gang(OperationStage.WARNED)
    both = Reservations.build(2, {"name": [HERE, "maint"], "node_list": ["n[1-2]", "n2"], "end_s": [NOW_S + 9_000] * 2,
                                  "start_s": [NOW_S - 9, NOW_S + 60]})  # fmt: skip
    assert (
        cannot_start(operation, replace(at, reservations=both))
        == "another reservation holds its nodes before its job would end"
    )


def test_unable__counts_on_what_other_preemptions_free():
    """A victim of another operation holds GPUs of this one's node: it leaves too."""
    operation, at = gang(
        OperationStage.WARNED, [run(2, 16), wait(8, 8, reservation="slurmsched-8-1")], {2: {"n2": 8, "n3": 8}}
    )
    other = Operation("8-1", Purpose.PREEMPT, 8, NOW_S - 600, "alice", "n3", 3_600.0, NOW_S - 10,
                (Victim(2, NOW_S - 40_000, 0, 16),), stage=OperationStage.WARNED, stage_s=NOW_S - 10)  # fmt: skip
    assert cannot_start(operation, at) == "others hold what its job needs of node n2"
    assert cannot_start(operation, replace(at, operations=(operation, other))) == ""


@pytest.mark.parametrize(("start_s", "moved"), [(20.0, -30.0), (3_600.0, -30.0), (-29.5, None)])
def test_advance__a_reservation_that_should_have_begun_begins(start_s, moved):
    """Clocks were set back by seconds or by an hour: it is moved to a moment ago, once."""
    operation, at = gang(OperationStage.WARNED)
    kept = at.reservations.with_columns(start_s=[NOW_S + start_s], to_come=[True])
    steps = advance(operation, replace(at, reservations=kept), OperationsConfig()).steps
    assert [(step.kind, step.start_s - NOW_S, step.nodes) for step in steps] == (
        [("move", moved, "n[1-2]")] if moved else []
    )


@dataclass(frozen=True)
class ById:
    """The latest first."""

    def rank(self, snapshot: Snapshot) -> Ranking:
        return Ranking(np.argsort(-snapshot.jobs.job_id))


@pytest.mark.parametrize(
    ("changes", "scope", "why"),
    [
        ({}, ("*",), ""),
        ({"nice": 50, "base_nice": 50}, ("*",), "its user's nice puts its job behind other jobs"),
        ({}, ("night",), "its job is not in scope any more"),
    ],
)
def test_planner__an_operation_whose_job_would_get_none_now_is_taken_back(changes, scope, why):
    """Its user puts it behind others in the grace, or its partition leaves the scope."""
    operation, at = gang(OperationStage.WARNED, **changes)
    at = replace(at, site=Site(rights=Rights.OPERATOR))
    plan = Planner(ById(), scope=ScopeConfig(partitions=scope), preemption=LIMITS).plan(at)
    assert [(each.id, each.ending, each.note) for each in plan.operations] == [(operation.id, bool(why), why)]
    assert [step.kind for step in plan.actions if isinstance(step, Step)] == (["join", "unreserve"] if why else [])

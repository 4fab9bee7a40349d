"""Which nodes a job may have, and the first reason why not the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurmsched.model.job_details import JobDetails
from slurmsched.model.operations import Operation, Purpose, Reservations
from slurmsched.observe.explain.node_obstacles import room_on_nodes, why_not
from slurmsched.observe.survey.fit import fit, largest_requests
from slurmsched.observe.survey.sbatch_request import SbatchRequest
from slurmsched.resources import allocated as allocated_module
from slurmsched.resources import eligibility as eligibility_module
from slurmsched.resources.eligibility import Exclusion, allowed_nodes, eligibility, node_pools
from slurmsched.resources.free import free_for
from slurmsched.resources.job_request import JobRequest, request_of
from slurmsched.resources.reservation_limits import UnknownEligibility
from slurmsched.slurm.scontrol_tables import parse_partitions, parse_reservations
from slurmsched.testing.builders import snapshot

ROOMY = {"gpus": 8, "gpu_types": "gpu:a100:8", "cpus": 64, "memory_mib": 512_000.0}
NODES = [ROOMY | {"name": name} for name in ("n1", "n2", "n3")]
NOW_S = 1_000_000.0


def site(jobs=({},), partition=None, nodes=NODES, **others):
    own = [{"name": "gpu", "default": True, "defaults": "DefMemPerCPU=1000"} | (partition or {})]
    return snapshot(list(jobs), nodes, partitions=own, now_s=NOW_S, **others)


def bars(at, row=0):
    return [Exclusion(bar).name for bar in eligibility(at, request_of(at, row)).exclusion]


def reservations(*lines: str) -> Reservations:
    return parse_reservations("\n".join(f"ReservationName={line}" for line in lines))


def record(name: str, rest: str, start_s: float = NOW_S - 60, end_s: float = NOW_S + 3600) -> str:
    return f"{name} StartTime={start_s:.0f} EndTime={end_s:.0f} Duration=01:00:00 {rest} State=ACTIVE"


@pytest.mark.parametrize(
    ("asks", "expected"),
    [
        ({}, ["NONE"] * 3),
        ({"partition": "other"}, ["PARTITION"] * 3),
        ({"nodes_excluded": "n[1-2]"}, ["EXCLUDED", "EXCLUDED", "NONE"]),
        ({"nodes_asked": "n2"}, ["NOT_ASKED", "NONE", "NOT_ASKED"]),
        ({"features_asked": "big"}, ["CONSTRAINT"] * 3),
        ({"gpu_request": "gpu:h100:1"}, ["GPU_TYPE"] * 3),
        ({"gpus": 9}, ["SIZE"] * 3),
        ({"cpus": 65}, ["SIZE"] * 3),
        ({"memory_mib": 512_001.0}, ["SIZE"] * 3),
        ({"gpu_request": "gpu:a100:9", "gpus": 9, "gpus_by": "node"}, ["SIZE"] * 3),
        ({"gpus": 18, "nodes": 2, "gpus_by": "node"}, ["SIZE"] * 3),
        ({"gpus": 9, "gpus_by": "job"}, ["NONE"] * 3),  # --gpus=9 may lie on several nodes
    ],
)  # fmt: skip
def test_eligibility__first_reason(asks, expected):
    """By what the job says of nodes, then by their size."""
    assert bars(site([asks])) == expected


@pytest.mark.parametrize(
    ("partition", "asks", "why"),
    [
        ({"max_nodes": 1.0}, {"nodes": 2}, "MaxNodes=1"),
        ({"min_nodes": 3}, {"nodes": 2}, "MinNodes=3"),
        ({"max_cpus_per_node": 16.0}, {"cpus": 17}, "MaxCPUsPerNode=16"),
        ({"max_cpus_per_node": 16.0}, {"cpus": 34, "nodes": 2}, "MaxCPUsPerNode=16"),
        ({"max_memory_mib": 1000.0}, {"memory_mib": 1001.0}, "MaxMemPerNode=1000"),
        ({"max_time_s": 3600.0}, {"time_limit_s": 3601.0}, "MaxTime=1 h"),
        ({"max_time_s": 3600.0}, {"lifted_limits": 6}, "MaxTime=1 h"),  # no limit of its own; its QOS lifts others
        ({"up": False, "state": "DOWN"}, {}, "is DOWN"),
        ({"up": False, "state": "INACTIVE"}, {}, "is INACTIVE"),
        ({"needs_reservation": True}, {}, "name a reservation"),
        ({"allow_qos": "high,low"}, {"qos": "normal"}, "QOS normal"),
        ({"deny_qos": "Normal"}, {"qos": "normal"}, "QOS normal"),
        ({"deny_accounts": "phys,bio"}, {"account": "bio"}, "account bio"),
    ],
)  # fmt: skip
def test_eligibility__limits_of_the_partition(partition, asks, why):
    """Slurm starts no such job there, whoever leaves; explain and the planner say the same."""
    at = site([asks], partition)
    found = eligibility(at, request_of(at, 0))
    assert (bars(at), why in found.refusals["gpu"], found.doubts) == (["PARTITION_LIMIT"] * 3, True, ())
    assert why in why_not(at, 0, "n1", JobDetails()) and why in room_on_nodes(at, 0, JobDetails())
    assert not allowed_nodes(at, 0).any()


@pytest.mark.parametrize(
    ("partition", "asks"),
    [
        ({"max_nodes": 2.0, "min_nodes": 2}, {"nodes": 2}),
        ({"max_cpus_per_node": 16.0}, {"cpus": 16}),
        ({"max_cpus_per_node": 16.0}, {"cpus": 32, "nodes": 2}),
        ({"max_time_s": 3600.0}, {"time_limit_s": 3600.0}),
        ({"max_time_s": 3600.0}, {"lifted_limits": 1}),  # its QOS lifts it
        ({"max_nodes": 1.0}, {"nodes": 2, "lifted_limits": 2}),
        ({"min_nodes": 3}, {"nodes": 2, "lifted_limits": 4}),
        ({"state": "DRAIN"}, {}),  # takes no new jobs, starts those it has
        ({"allow_qos": "High"}, {"qos": "high"}),
        ({"allow_qos": "high", "deny_qos": "high"}, {"qos": "high"}),  # Slurm heeds deny lists only without allow lists
        ({"allow_accounts": "phys"}, {"account": "Phys"}),
        ({"needs_reservation": True}, {"reservation": "mine"}),
        ({"over_subscribe": "FORCE:4"}, {}),
        ({"allow_groups": "staff"}, {}),
    ],
)  # fmt: skip
def test_eligibility__within_the_limits(partition, asks):
    """At a limit is within it."""
    at = site([asks], partition)
    assert (bars(at), eligibility(at, request_of(at, 0)).doubts, allowed_nodes(at, 0).tolist()) == (
        ["NONE"] * 3,
        (),
        [True] * 3,
    )


@pytest.mark.parametrize(
    ("partition", "asks", "named"),
    [
        ({"max_cpus_per_socket": 8.0}, {}, "MaxCPUsPerSocket=8"),
        ({"min_nodes": 2}, {}, "MinNodes=2"),  # -N1 never starts there, no -N does
        ({"allow_accounts": "phys"}, {"account": "optics"}, "AllowAccounts"),  # accounts below one listed are let in
        ({"allow_qos": "high"}, {}, "AllowQos"),
        ({"exclusive": "topo"}, {}, "TOPO"),
        ({}, {"features_asked": "a*2&b*1"}, "'a*2&b*1'"),
        ({}, {"features_asked": "!a"}, "'!a'"),
        ({}, {"nodes": 2, "nodes_asked": "n1"}, "names some of its nodes"),
        ({}, {"nodes_asked": "n[1-"}, "list of nodes"),
        ({}, {"nodes_asked": "n[1-65537]"}, "more than 65536 names"),
        ({}, {"nodes_excluded": "n[2-99999]"}, "more than 65536 names"),
        ({}, {"gpus_by": "job", "gpus": 2, "nodes": 2, "gpu_request": "gpu:a100:1,gpu:h100:1"}, "GPU types"),
    ],
)  # fmt: skip
def test_eligibility__what_decides_and_was_not_looked_at(partition, asks, named):
    """It is named in the answer of explain, and nobody leaves for such a job."""
    at = site([asks], partition)
    found = eligibility(at, request_of(at, 0))
    assert (found.mask.any(), found.sure.any(), named in found.doubts[0]) == (True, False, True)
    told = why_not(at, 0, "n1", JobDetails())
    assert "Not looked at" in told and named in told
    with pytest.raises(UnknownEligibility, match="not looked at"):
        allowed_nodes(at, 0)


def test_eligibility__a_job_of_several_partitions():
    """One that lets it in is enough, on its own nodes; what is not known of another bars nothing there."""
    nodes = [ROOMY | {"name": "n1", "partitions": "a"}, ROOMY | {"name": "n2", "partitions": "a,b"},
             ROOMY | {"name": "n3", "partitions": "c"}]  # fmt: skip
    partitions = [{"name": "a", "max_time_s": 60.0}, {"name": "b"}, {"name": "c", "max_cpus_per_socket": 4.0}]
    at = snapshot([{"partition": "a,b,c"}], nodes, partitions=partitions)
    found = eligibility(at, request_of(at, 0))
    assert (bars(at), found.sure.tolist()) == (["PARTITION_LIMIT", "NONE", "NONE"], [False, True, False])
    assert allowed_nodes(at, 0).tolist() == [False, True, False]


def test_eligibility__gpus_of_several_types():
    """A job that asks by node has nodes that have all types; one by job any of them."""
    kinds = {"n1": "gpu:a100:8", "n2": "gpu:h100:8", "n3": "gpu:a100:4,gpu:h100:4", "n4": "gpu:l4:8"}
    nodes = [ROOMY | {"name": name, "gpu_types": kind} for name, kind in kinds.items()]
    asks = {"gpus": 2, "gpu_request": "gpu:a100:1,gpu:h100:1"}
    masks = {
        by: eligibility(
            site([asks | {"gpus_by": by}], nodes=nodes), request_of(site([asks | {"gpus_by": by}], nodes=nodes), 0)
        ).mask.tolist()
        for by in ("", "node", "job")
    }
    assert masks == {"": [0, 0, 1, 0], "node": [0, 0, 1, 0], "job": [1, 1, 1, 0]}
    five = asks | {"gpus": 6, "gpu_request": "gpu:a100:5,gpu:h100:1", "gpus_by": "node"}
    assert bars(site([five], nodes=nodes))[2] == "SIZE"


def test_eligibility__by_what_gpus_are_counted():
    """GPUs by task or job of two nodes need not be as many on each; the record tells whether -N1 was given."""
    small = [ROOMY | {"name": "n1"}, ROOMY | {"name": "n2", "gpus": 2, "gpu_types": "gpu:a100:2"}]
    asks = {"gpus": 8, "nodes": 2, "gpu_request": "gpu:8"}
    found = {by: bars(site([asks | {"gpus_by": by}], nodes=small))[1] for by in ("node", "job", "task", "socket")}
    assert found == {"node": "SIZE", "job": "NONE", "task": "NONE", "socket": "NONE"}
    one = site([{"gpus": 4, "gpus_by": "job"}], nodes=small)
    fixed = eligibility(one, request_of(one, 0, {"NumNodes": "1-1", "TresPerJob": "gres/gpu:4"}))
    assert (bars(one)[1], Exclusion(fixed.exclusion[1]).name) == ("NONE", "SIZE")


@pytest.mark.parametrize(
    ("asks", "empty", "one_gpu_held"),
    [
        ({"gpus": 1, "cpus": 16}, "NONE", "NONE"),
        ({"gpus": 1, "cpus": 17}, "SIZE", "SIZE"),  # the other 48 CPUs are kept for three GPUs
        ({"gpus": 3, "cpus": 48}, "NONE", "NONE"),
        ({"gpus": 4, "cpus": 64}, "NONE", "GPUS"),
        ({"gpus": 2, "cpus": 20}, "NONE", "CPUS"),  # the job on the held GPU has 30 CPUs
    ],
)
def test_free__cpus_that_only_jobs_on_other_gpus_get(asks, empty, one_gpu_held):
    """RestrictedCoresPerGPU: each free GPU that the job does not use keeps its CPUs for others."""
    node = ROOMY | {"name": "n1", "gpus": 4, "gpu_types": "gpu:a100:4", "cpus": 64, "cpus_per_gpu_kept": 16}
    held = {"gpus_used": 1, "cpus_used": 16 if asks["cpus"] != 20 else 30}
    for used, expected in (({}, empty), (held, one_gpu_held)):
        at = site(nodes=[node | {"gpus_used": 0, "cpus_used": 0} | used])
        found = free_for(at, replace(request_of(at, 0), **asks))
        assert [Exclusion(why).name for why in found.exclusion] == [expected]


def test_eligibility__reservations():
    """Of whole nodes, of parts of them, of others; one's own, by name or as an operation, and one that draws its users
    in."""
    table = reservations(
        record("whole", "Nodes=n1 CoreCnt=64 Flags=SPEC_NODES TRES=cpu=64 Users=bob"),
        record("part", "Nodes=n2 CoreCnt=60 Flags= NodeName=n2 CoreIDs=0-59 TRES=cpu=60,gres/gpu=6 Users=bob"),
        record("later", "Nodes=n3 Flags=MAINT,SPEC_NODES TRES=cpu=64 Users=root", NOW_S + 600, NOW_S + 900),
        record("over", "Nodes=n3 Flags= TRES=cpu=64 Users=root", NOW_S - 900, NOW_S - 600),
    )  # fmt: skip
    small = {"cpus": 4, "time_limit_s": 500.0, "gpus": 2, "user": "alice"}
    cases = [
        (small, ["RESERVED", "NONE", "NONE"]),
        (small | {"time_limit_s": 700.0}, ["RESERVED", "NONE", "RESERVED"]),
        (small | {"gpus": 3}, ["RESERVED", "RESERVED", "NONE"]),
        (small | {"cpus": 5}, ["RESERVED", "RESERVED", "NONE"]),
        (small | {"reservation": "whole"}, ["NONE", "OWN_RESERVATION", "OWN_RESERVATION"]),
    ]
    for asks, expected in cases:
        assert bars(site([asks], reservations=table)) == expected, asks
    assert "2026" not in why_not(site([small], reservations=table), 0, "n1", JobDetails(reservations=table))
    drawn = reservations(record("mag", "Nodes=n1 Flags=MAGNETIC TRES=cpu=64 Users=alice"),
                         record("not", "Nodes=n2 Flags=MAGNETIC TRES=cpu=64 Users=-alice"),
                         record("flex", "Nodes=n3 Flags=FLEX TRES=cpu=64 Users=alice"))  # fmt: skip
    assert bars(site([small], reservations=drawn)) == ["NONE", "RESERVED", "RESERVED"]
    assert bars(site([small | {"reservation": "flex"}], reservations=drawn)) == ["NONE", "RESERVED", "NONE"]


def test_eligibility__a_reserved_node_of_a_reservation_not_read():
    """Slurm's flag alone bars it; a reservation that was read says for whom."""
    nodes = [ROOMY | {"name": "n1", "state": "IDLE+RESERVED"}]
    assert bars(site(nodes=nodes)) == ["RESERVED"]
    table = reservations(record("mine", "Nodes=n1 Flags=SPEC_NODES TRES=cpu=64 Users=alice"))
    assert bars(site([{"reservation": "mine"}], nodes=nodes, reservations=table)) == ["NONE"]


def test_eligibility__users_that_share_no_nodes():
    """ExclusiveUser of the job's partition, or of the one that another user's job runs in."""
    runs = {"job_id": 9, "state": "RUNNING", "user": "bob", "node_list": "n1"}
    asks = {"job_id": 1, "user": "alice"}
    assert bars(site([asks, runs], {"exclusive": "user"})) == ["USER", "NONE", "NONE"]
    assert bars(site([asks, runs | {"user": "alice"}], {"exclusive": "user"})) == ["NONE"] * 3
    other = [{"name": "gpu"}, {"name": "own", "exclusive": "user"}]
    at = snapshot([asks, runs | {"partition": "own"}], NODES, partitions=other)
    assert bars(at) == ["USER", "NONE", "NONE"]


@pytest.mark.parametrize("partition", [{"exclusive": "user"}, {"max_cpus_per_node": 16.0}])
def test_eligibility__a_running_job_whose_nodes_cannot_be_read(partition):
    """It may be anywhere: the answer is not sure, but for the partitions and users that it does not matter to."""
    runs = {"job_id": 9, "state": "RUNNING", "user": "bob", "node_list": "n[1-", "partition": "gpu"}
    found = eligibility(
        site([{"job_id": 1, "user": "alice"}, runs], partition),
        request_of(site([{"job_id": 1, "user": "alice"}, runs], partition), 0),
    )
    assert not found.sure.any() and "cannot be read" in found.doubts[0]
    assert eligibility(
        site([{"job_id": 1, "user": "alice"}, runs]), request_of(site([{"job_id": 1, "user": "alice"}, runs]), 0)
    ).sure.all()
    other = eligibility(
        site([{"job_id": 1, "user": "bob"}, runs | {"partition": "other"}], partition),
        request_of(site([{"job_id": 1, "user": "bob"}, runs | {"partition": "other"}], partition), 0),
    )
    assert other.sure.all()


def test_eligibility__cpus_of_many_partitions_in_one_pass(monkeypatch):
    """However many partitions have MaxCPUsPerNode, the lists of nodes are expanded once a snapshot."""
    names = [f"p{at}" for at in range(7)]
    runs = [{"job_id": 90 + at, "state": "RUNNING", "node_list": "n[1-2]", "cpus": 24, "partition": name}
            for at, name in enumerate(names)]  # fmt: skip
    asks = [{"job_id": 1 + at, "partition": name, "cpus": 11} for at, name in enumerate(names)]
    nodes = [one | {"partitions": ",".join(names)} for one in NODES]
    at = snapshot([*asks, *runs], nodes, partitions=[{"name": name, "max_cpus_per_node": 16.0} for name in names])
    asked = list[str]()
    expand = allocated_module.expand_or_none
    monkeypatch.setattr(
        allocated_module, "expand_or_none", lambda text, *most: asked.append(text) or expand(text, *most)
    )
    for cpus in (11, 10):
        for row in range(7):
            found = eligibility(at, replace(request_of(at, row), cpus=cpus), sized=True)
            assert [Exclusion(bar).name for bar in found.exclusion] == ["PARTITION_CPUS", "PARTITION_CPUS", "NONE"]
    assert asked.count("n[1-2]") == len(runs)


def test_eligibility__answers_take_little_memory():
    """However many different requests there are, a bounded number of answers is kept, in narrow columns."""
    at = site([{"job_id": 1 + row, "time_limit_s": 60.0 + row} for row in range(600)])
    first = eligibility(at, request_of(at, 0))
    assert eligibility(at, request_of(at, 0)) is first
    found = [eligibility(at, request_of(at, row)) for row in range(600)]
    assert eligibility(at, request_of(at, 599)) is found[-1] and eligibility(at, request_of(at, 0)) is not first
    assert (first.exclusion.itemsize, first.reserved_by.itemsize) == (1, 4)
    assert first.kept_gpus is found[-1].kept_gpus


def test_eligibility__a_maintenance_lets_its_own_jobs_in():
    """The state closes a node for all but the jobs of the reservation; any other closing state closes it for them."""
    table = reservations(record("maint", "Nodes=n[1-2] Flags=MAINT,SPEC_NODES TRES=cpu=128 Users=alice"))
    states = {"n1": "IDLE+MAINTENANCE", "n2": "IDLE+DRAIN+MAINTENANCE", "n3": "IDLE+MAINTENANCE"}
    nodes = [ROOMY | {"name": name, "state": state} for name, state in states.items()]
    mine = site([{"reservation": "maint", "user": "alice"}], nodes=nodes, reservations=table)
    assert bars(mine) == ["NONE", "CLOSED", "OWN_RESERVATION"]
    assert bars(site([{}], nodes=nodes, reservations=table)) == ["CLOSED"] * 3


def usable(at, row):
    pool, table = node_pools(at)
    return table[pool[row]].tolist()


def test_pools__a_job_of_a_reservation_speaks_for_no_other():
    """Others have no node that a reservation keeps from them. Nor does the one that slurmsched keeps nodes for, in a
    partition of reservations alone."""
    table = reservations(record("maint", "Nodes=n1 Flags=SPEC_NODES TRES=cpu=64 Users=alice"))
    jobs = [{"job_id": 1, "state": "RUNNING", "reservation": "maint", "node_list": "n1"}, {"job_id": 2}]
    at = site(jobs, reservations=table)
    assert (usable(at, 0), usable(at, 1)) == ([True, False, False], [False, True, True])
    operation = Operation("1-9", Purpose.PREEMPT, 1, NOW_S, "bob", "n1", 60.0, NOW_S)
    kept = replace(site([{"job_id": 1}, {"job_id": 2}], {"needs_reservation": True}), operations=(operation,))
    assert (usable(kept, 0), usable(kept, 1)) == ([True] * 3, [False] * 3)


def test_pools__the_nodes_that_jobs_name():
    """As eligibility tells of each, whatever the first of the class asks for."""
    asks = [{"nodes": 2, "nodes_asked": "n[1-2]"}, {"nodes": 4, "nodes_asked": "n[1-2]"}, {"nodes": 2},
            {"nodes": 2, "nodes_excluded": "n[2-3],n9"}, {"nodes": 2, "nodes_excluded": "n[2-"},
            {"nodes": 2, "nodes_asked": "n[2-"},
            {"nodes": 1, "nodes_asked": "n[1-2]", "nodes_excluded": "n1"}]  # fmt: skip
    at = site([{"job_id": 1 + row, "gpus": 8, "gpu_request": "gpu:8"} | ask for row, ask in enumerate(asks)])
    for row in range(len(asks)):
        alone = eligibility(at, request_of(at, row), sized=False)
        assert usable(at, row) == alone.open.tolist(), asks[row]
    assert (usable(at, 0), usable(at, 1)) == ([True, True, False], [True] * 3)


def test_pools__min_nodes_of_jobs_of_one_node():
    """MinNodes may give a job that shows one node more, and refuses one of two: neither speaks for the other."""
    for many in ((1, 2), (2, 1)):
        asks = [{"job_id": 1 + row, "gpus": 8, "gpu_request": "gpu:8", "nodes": n} for row, n in enumerate(many)]
        at = site(asks, {"min_nodes": 3})
        assert {n: usable(at, row) for row, n in enumerate(many)} == {1: [True] * 3, 2: [False] * 3}


@pytest.mark.parametrize("limit", [{"max_memory_mib": 100.0}, {"max_cpus_per_node": 4.0}])
def test_pools__limits_by_node_of_jobs_of_one_node(limit):
    """GPUs by job of one node may be spread, so its share of a node is not certain; that of two nodes is."""
    sizes = ((1, 200.0, 8), (2, 400.0, 16))
    for order in (sizes, sizes[::-1]):
        asks = [
            {
                "job_id": row,
                "gpus": 2,
                "gpu_request": "gpu:2",
                "gpus_by": "job",
                "nodes": n,
                "memory_mib": mib,
                "cpus": cpus,
            }
            for row, (n, mib, cpus) in enumerate(order, 1)
        ]
        at = site(asks, limit)
        for row in range(2):
            assert usable(at, row) == eligibility(at, request_of(at, row), sized=False).open.tolist()
        assert len({tuple(usable(at, row)) for row in range(2)}) == 2


def test_hostlists__may_name_nodes_of_a_cloud_that_slurm_hides():
    """Powered-down nodes of a cloud are not shown: a list of 500 with three nodes in sight is no fault."""
    kept = reservations(record("cloud", "Nodes=cloud[1-500] Flags=SPEC_NODES TRES=cpu=64 Users=bob"))
    found = eligibility(
        site([{"nodes_excluded": "cloud[1-500]"}], reservations=kept),
        request_of(site([{"nodes_excluded": "cloud[1-500]"}], reservations=kept), 0),
    )
    assert (found.mask.all(), found.sure.all()) == (True, True)


def test_pools__lists_of_nodes_are_no_classes(monkeypatch):
    """Jobs that differ in the nodes they name alone are judged once."""
    judged = list[int]()
    judge = eligibility_module._eligibility
    monkeypatch.setattr(eligibility_module, "_eligibility", lambda *args: judged.append(1) or judge(*args))
    node_pools(site([{"job_id": 1 + row, "nodes_excluded": f"n{row}"} for row in range(50)]))
    assert len(judged) == 1


def test_fit__the_partitions_limits():
    """A request beyond a limit waits and is told which; what was not looked at is named; the largest heeds them."""
    at = site([], {"max_nodes": 1.0, "max_cpus_per_node": 16.0, "max_cpus_per_socket": 8.0, "allow_accounts": "phys"})
    two = fit(at, SbatchRequest(gpus_per_node=8, nodes=2))
    assert (two.starts, "MaxNodes=1" in two.why, two.nearest[0].change) == (False, True, "--nodes=1")
    assert "MaxCPUsPerNode=16" in fit(at, SbatchRequest(gpus_per_node=1, cpus_per_task=32)).why
    one = fit(at, SbatchRequest(gpus_per_node=1, cpus_per_task=16))
    assert one.starts and [word for word in ("MaxCPUsPerSocket", "AllowAccounts") if word in " ".join(one.unseen)]
    assert largest_requests(at, SbatchRequest())[0].shapes[8] == 1


def test_fit__cpus_that_jobs_of_the_partition_hold():
    """MaxCPUsPerNode is of all jobs of the partition together, those of others do not count."""
    runs = {"state": "RUNNING", "cpus": 12, "node_list": "n1", "gpus": 0}
    nodes = [ROOMY | {"name": "n1", "cpus_used": 12}]
    at = site([runs], {"max_cpus_per_node": 16.0}, nodes)
    assert fit(at, SbatchRequest(gpus_per_node=1, cpus_per_task=4)).starts
    assert not fit(at, SbatchRequest(gpus_per_node=1, cpus_per_task=5)).starts
    other = replace(at, jobs=at.jobs.with_columns(partition=["other"]))
    assert fit(other, SbatchRequest(gpus_per_node=1, cpus_per_task=5)).starts


def test_eligibility__cpus_that_jobs_share_by_force():
    """OverSubscribe=FORCE: held CPUs keep nobody off, and the answers say that CPUs were not looked at."""
    nodes = [ROOMY | {"name": "n1", "cpus_used": 64}]
    for how, free in (("FORCE:4", True), ("FORCE:1", False), ("YES:4", False), ("NO", False)):
        at = site([{"cpus": 4}], {"over_subscribe": how}, nodes)
        told, answer = why_not(at, 0, "n1", JobDetails()), fit(at, SbatchRequest(gpus_per_node=1, cpus_per_task=4))
        assert ("CPUs are free" not in told, answer.starts) == (free, free), how
        assert ("OverSubscribe" in told, "OverSubscribe" in " ".join(answer.unseen)) == (free, free), how


def test_fit__a_constraint_that_is_not_judged_is_named():
    """It starts by counts, and the answer says what was not looked at."""
    found = fit(site([]), SbatchRequest(gpus_per_node=1, constraint="rack1*2&rack2*1"))
    assert "'rack1*2&rack2*1'" in found.unseen[0]


def test_parse_partitions__limits_of_both_forms():
    """From 26.05 on Exclusive is a field of its own; before it was OverSubscribe=EXCLUSIVE and ExclusiveUser."""
    lines = (
        "PartitionName=a AllowGroups=ALL AllowAccounts=phys DenyQos=high AllocNodes=ALL ExclusiveUser=YES "
        "MaxNodes=1.50K MaxTime=01:00:00 MinNodes=2 MaxCPUsPerNode=16 MaxCPUsPerSocket=8 RootOnly=YES ReqResv=YES "
        "OverSubscribe=FORCE:4 State=DRAIN MaxMemPerNode=4000",
        "PartitionName=b AllowGroups=staff AllowAccounts=ALL AllowQos=normal AllocNodes=n1 Exclusive=NODE "
        "MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 MaxCPUsPerNode=UNLIMITED ReqResv=NO OverSubscribe=NO "
        "State=INACTIVE MaxMemPerCPU=2000",
        "PartitionName=c OverSubscribe=EXCLUSIVE State=UP MaxMemPerNode=UNLIMITED",
    )  # fmt: skip
    table = parse_partitions("\n".join(lines), [])
    assert table.exclusive.names == ("node", "user") and list(table.exclusive) == ["user", "node", "node"]
    assert (table.up.tolist(), list(table.state)) == ([True, False, True], ["DRAIN", "INACTIVE", "UP"])
    assert table.max_nodes.tolist() == [1536.0, np.inf, np.inf] and table.min_nodes.tolist() == [2, 0, 0]
    assert (table.max_cpus_per_node[0], table.max_cpus_per_socket[0], table.max_memory_mib.tolist()) == (
        16, 8, [4000.0, np.inf, np.inf])  # fmt: skip
    assert (table.max_memory_per_cpu_mib[1], list(table.allow_accounts), list(table.deny_qos)) == (
        2000, ["phys", "", ""], ["high", "", ""])  # fmt: skip
    assert (list(table.allow_groups), list(table.alloc_nodes)) == (["", "staff", ""], ["", "n1", ""])
    assert (table.root_only.tolist(), table.needs_reservation.tolist()) == ([True, False, False],) * 2


def test_parse_reservations__of_parts_of_nodes():
    """`scontrol show reservation` of 26.05.5 prints the cores of each node, on one line and on several."""
    one = "g2 StartTime=1 EndTime=9 Nodes=n[3-4] CoreCnt=3 Flags=SPEC_NODES   NodeName=n3 CoreIDs=0   NodeName=n4 " \
          "CoreIDs=0-1 TRES=cpu=3,gres/gpu=4 AllowedPartitions=(null) QOS=(null) Users=alice Accounts=-bio"  # fmt: skip
    for text in (one, one.replace("   NodeName", "\n     NodeName").replace(" TRES", "\n   TRES")):
        table = reservations(text)
        assert (table.cores[0], table.tres[0], table.users[0], table.accounts[0], table.qos[0], table.node_list[0]) == (
            "n3=1,n4=2", "cpu=3,gres/gpu=4", "alice", "-bio", "", "n[3-4]")  # fmt: skip


def test_eligibility__one_answer_a_request():
    """Jobs that ask alike share one answer."""
    at = site([{"job_id": 1}, {"job_id": 2}])
    assert eligibility(at, request_of(at, 0)) is eligibility(at, request_of(at, 1))
    assert eligibility(at, JobRequest(("gpu",))).mask.all()

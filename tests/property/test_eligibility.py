"""Planner, placements, explain, fit and gpus say alike which nodes a job may have, on any site."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.explain.facts import Facts
from slurmsched.explain.obstacles import Asks, Kind
from slurmsched.explain.why_not import why_not
from slurmsched.model import Snapshot
from slurmsched.model.acts import Reservations
from slurmsched.placements.candidates import pools
from slurmsched.planning.bounds import UnknownForm, allowed_nodes
from slurmsched.resources.eligibility import Bar, eligible_nodes
from slurmsched.survey.fit import fit
from slurmsched.survey.request import Request
from slurmsched.survey.room import rooms, with_partition
from slurmsched.survey.stock import OPEN, parts
from slurmsched.testing import snapshot

NOW_S = 1_000_000.0
NAMES = ("n1", "n2", "n3", "n4")
HAS = ("gpu:a100:8", "gpu:h100:8", "gpu:a100:4,gpu:h100:4", "gpu:8", "gpu:a100:2")
ASKS = ("gpu:{n}", "gpu:a100:{n}", "gpu:h100:{n}", "gpu:a100:{n},gpu:h100:{n}")
FEATURES = ("", "ib", "rack1", "rack1,ib", "rack2")
CONSTRAINTS = (
    "",
    "ib",
    "rack1&ib",
    "rack1|rack2",
    "(rack1|rack2)&ib",
    "[rack1|rack2]",
    "[ib*1&rack2*1]",
    "ib*2",
    "!ib",
)
LIMITS = {
    "max_nodes": (np.inf, 1.0, 2.0), "min_nodes": (0, 0, 2), "max_time_s": (np.inf, 3_600.0), "state": ("UP", "DRAIN"),
    "max_cpus_per_node": (np.inf, np.inf, 8.0), "max_memory_mib": (np.inf, 4_000.0), "exclusive": ("", "node", "user"),
    "max_cpus_per_socket": (np.inf, np.inf, 8.0), "allow_qos": ("", "", "high"), "deny_accounts": ("", "", "phys"),
    "allow_accounts": ("", "", "phys,bio"), "over_subscribe": ("NO", "NO", "FORCE:2"),
    "needs_reservation": (False, False, False, True),
}  # fmt: skip


def one(draw: st.DrawFn, *values: Any) -> Any:
    return draw(st.sampled_from(values))


def node(draw: st.DrawFn, name: str) -> dict[str, Any]:
    has = one(draw, *HAS)
    return {
        "name": name, "gpu_types": has, "gpus": sum(int(part.split(":")[-1]) for part in has.split(",")),
        "cpus": one(draw, 16, 64), "memory_mib": 512_000.0, "features": one(draw, *FEATURES),
        "partitions": one(draw, "gpu", "gpu,big", "big"), "state": one(draw, "IDLE", "IDLE", "DOWN", "MIXED+DRAIN"),
    }  # fmt: skip


@st.composite
def sites(draw: st.DrawFn) -> Snapshot:
    """Four nodes in up to two partitions with limits, a reservation, jobs that run, and one that waits (the first)."""
    partitions = [
        {"name": name, "default": name == "gpu", "defaults": "DefMemPerCPU=1000"}
        | {key: one(draw, *values) for key, values in LIMITS.items()}
        for name in ("big", "gpu")
    ]
    many, each, request = draw(st.integers(1, 3)), draw(st.integers(1, 4)), one(draw, *ASKS)
    asks: dict[str, Any] = {
        "job_id": 1, "gpus": each * many * (1 + ("," in request)), "nodes": many,
        "features_asked": one(draw, *CONSTRAINTS), "gpus_by": one(draw, "node", "job", "task", "socket", ""),
        "gpu_request": request.format(n=each * many),
        "cpus": draw(st.integers(1, 12)) * many, "memory_mib": 1_000.0 * many * one(draw, 1, 8),
        "nodes_asked": one(draw, "", "", "n[1-3]"), "nodes_excluded": one(draw, "", "n1"), "user": "alice",
        "partition": one(draw, "gpu", "big", "big,gpu"), "account": one(draw, "phys", "bio"),
        "qos": one(draw, "normal", "high"), "time_limit_s": one(draw, 600.0, 7_200.0), "array_tasks": one(draw, 1, 5),
        "reservation": one(draw, "", "", "mine"), "exclusive": draw(st.booleans()),
    }  # fmt: skip
    runs = [
        {"job_id": 2 + at, "state": "RUNNING", "user": one(draw, "alice", "bob"), "node_list": one(draw, *NAMES),
         "gpus": 1, "cpus": draw(st.integers(1, 8)), "partition": one(draw, "gpu", "big")}
        for at in range(draw(st.integers(0, 2)))
    ]  # fmt: skip
    kept = Reservations.build(2, {
        "name": ["mine", "other"], "node_list": ["n[2-3]", one(draw, "n1", "n[3-4]")], "users": ["alice", "bob"],
        "start_s": [NOW_S - 60, NOW_S + 900], "end_s": [NOW_S + 3e4] * 2,
        "flags": ["", one(draw, "", "MAINT", "MAGNETIC")], "cores": ["", one(draw, "", "n1=4", "n3=8,n4=8")],
        "tres": ["", one(draw, "cpu=16", "cpu=16,gres/gpu=4")],
    })  # fmt: skip
    nodes = [node(draw, name) for name in NAMES]
    return snapshot([asks, *runs], nodes, partitions=partitions, now_s=NOW_S, reservations=kept)


@given(at=sites())
@settings(deadline=None, max_examples=100)
def test_eligibility__one_answer_for_all(at: Snapshot) -> None:
    """One mask: explain's, the planner's where all was looked at, the placements' but for sizes and reservations."""
    found = eligible_nodes(at, 0)
    facts = Facts(reservations=at.reservations)
    asks = Asks.of(at, 0, facts)
    obstacles = [asks.obstacle(n) for n in range(len(NAMES))]
    taken = (Kind.GPUS, Kind.CPUS, Kind.MEMORY, Kind.WHOLE)
    may = [one is None or (one.kind in taken and found.bar[n] == Bar.NONE) for n, one in enumerate(obstacles)]
    assert may == found.mask.tolist()
    assert [one is not None and one.kind is Kind.NEVER for one in obstacles] == (~found.ever).tolist()
    pool, usable = pools(at)
    assert not (found.open & ~usable[pool[0]]).any()
    for n, name in enumerate(NAMES):  # never "nothing keeps it off" where something was not looked at
        assert why_not(at, 0, name, facts) != "" or (found.mask[n] and not found.unseen)
    try:
        allowed = allowed_nodes(at, 0)
    except UnknownForm:
        assert found.doubts and not found.sure.any()
        return
    several = at.nodes.gpu_types.map(lambda has: "," in has, np.bool_)
    typed = ":" in at.jobs.gpu_request[0].partition(":")[2]
    listed = set(at.jobs.partition[0].split(","))
    in_all = at.nodes.partitions.map(lambda serves: listed <= set(serves.split(",")), np.bool_)
    expected = found.open & found.sure & ~(several & typed) & (in_all | (at.jobs.nodes[0] < 2))
    assert allowed.tolist() == expected.tolist()


@given(at=sites(), gpus=st.integers(1, 4), nodes=st.integers(1, 3), gpu_type=st.sampled_from(("", "a100", "h100")))
@settings(deadline=None, max_examples=100)
def test_eligibility__fit_and_gpus_as_for_a_job(at: Snapshot, gpus: int, nodes: int, gpu_type: str) -> None:
    """A request is told what the same job is told: a node that fit gives GPUs of is one that the job may have, is open
    for gpus, and what was not looked at is named by both."""
    constraint, partition = at.jobs.features_asked[0], at.jobs.partition[0].split(",")[0]
    request = Request(nodes=nodes, gpus_per_node=gpus, gpu_type=gpu_type, partition=partition, constraint=constraint,
                      time_s=600.0, memory_mib=1_000.0, exclusive=bool(at.jobs.exclusive[0]))  # fmt: skip
    text = f"gpu:{gpu_type}:{gpus * nodes}" if gpu_type else f"gpu:{gpus * nodes}"
    same: dict[str, Any] = {
        "job_id": 1, "gpus": gpus * nodes, "nodes": nodes, "gpus_by": "node", "gpu_request": text, "cpus": nodes,
        "memory_mib": 1_000.0 * nodes, "features_asked": constraint, "partition": partition, "time_limit_s": 600.0,
        "exclusive": request.exclusive,
    }  # fmt: skip
    site = snapshot([same], at.nodes, partitions=[], now_s=NOW_S)
    site = Snapshot(NOW_S, site.jobs, at.nodes, at.partitions, at.allocations, reservations=at.reservations)
    filled = with_partition(site, request)
    found, answer = eligible_nodes(site, 0), fit(site, request)
    given = {room.part.node for room in rooms(site, filled) if room.gpus >= gpus}
    at_row = list(site.partitions.name).index(partition)
    barred = bool(found.limits) or site.partitions.state[at_row] == "DRAIN"  # it takes no new job
    if nodes >= site.partitions.min_nodes[at_row]:  # of a job that shows one node it is not known whether it said -N1
        assert barred == answer.why.startswith(f"partition {partition} ")
    if not answer.why.startswith("partition "):  # else it tells what there would be, were it let in
        assert given <= set(np.flatnonzero(found.mask).tolist())
    assert given <= {part.node for part in parts(site) if part.standing == OPEN}
    assert {doubt for doubt in found.doubts if "constraint" in doubt} <= set(answer.unseen)

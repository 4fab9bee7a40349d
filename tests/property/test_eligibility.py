"""Planner, placements, explain, fit and gpus say alike which nodes a job may have, on any site."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.model import Labels, NodeState, Partitions, Ranking, Snapshot
from slurmsched.model.gpu_masks import bit_counts
from slurmsched.model.job_details import JobDetails
from slurmsched.model.operations import Reservations
from slurmsched.model.trace import Trace
from slurmsched.observe.explain.node_obstacles import NodeCheck, why_not
from slurmsched.observe.survey.fit import fit, node_rooms, with_partition
from slurmsched.observe.survey.sbatch_request import SbatchRequest
from slurmsched.placements.baselines import BestFit
from slurmsched.placements.consolidated import Consolidated
from slurmsched.placements.linked import Linked
from slurmsched.resources.allocated import AllocatedGpus
from slurmsched.resources.by_type import has_several_types, surely_free, whole_types
from slurmsched.resources.eligibility import Exclusion, allowed_nodes, eligibility, node_pools
from slurmsched.resources.free import FreeResources, JobRequirements, free_for, nodes_beside_reservations
from slurmsched.resources.job_request import request_of
from slurmsched.resources.node_gpus import BOOT, OPEN, node_gpus
from slurmsched.resources.placeable_gpus import PlaceableGpus, placeable_gpu_counts
from slurmsched.resources.reservation_limits import UnknownEligibility
from slurmsched.sim.cluster_layout import ClusterLayout, NodeSpec, PartitionSpec
from slurmsched.sim.slurmctld.job_demands import SubmittedRequests
from slurmsched.sim.slurmctld.simulated_slurmctld import SimulatedSlurmctld
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings
from slurmsched.testing import builders, snapshot

NOW_S = 1_000_000.0
NAMES = ("n1", "n2", "n3", "n4")
HAS = ("gpu:a100:8", "gpu:h100:8", "gpu:a100:4,gpu:h100:4", "gpu:8", "gpu:a100:2", "gpu:1g.5gb:7,gpu:a100:4")
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


def node(draw: st.DrawFn, name: str, plain: bool) -> dict[str, Any]:
    """A node, of which somebody whom Slurm does not show may hold a GPU, or shards of one."""
    has = one(draw, *HAS)
    return {
        "name": name, "gpu_types": has, "gpus": sum(whole_types(has).values()),
        "cpus": one(draw, 16, 24) if plain else one(draw, 8, 16, 64), "memory_mib": one(draw, 512_000.0, 16_000.0),
        "features": one(draw, *FEATURES),
        "partitions": "gpu,big" if plain else one(draw, "gpu", "gpu,big", "big"), "gpus_used": one(draw, 0, 0, 0, 1),
        "cpus_per_gpu_kept": one(draw, 0, 2) if plain else 0,
        "state": "IDLE" if plain else one(draw, "IDLE", "IDLE", "DOWN", "MIXED+DRAIN", "IDLE+POWERED_DOWN"),
    }  # fmt: skip


def held(draw: st.DrawFn, job_id: int, nodes: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A job that runs on one node, and the GPUs that it holds there; of some it is not shown of which type they are."""
    at = one(draw, *nodes)
    types = whole_types(at["gpu_types"])
    name = one(draw, *types, *[""] * (len(types) > 1))
    free = min(types.get(name, 8), at["gpus"] - at["gpus_used"] - at.get("held", 0))
    gpus, cpus, memory_mib = (
        draw(st.integers(0, max(0, min(free, 3)))),
        draw(st.integers(1, 8)),
        one(draw, 0.0, 8_000.0),
    )
    at["held"] = at.get("held", 0) + gpus
    at["cpus_used"] = at.get("cpus_used", 0) + cpus
    at["memory_used_mib"] = at.get("memory_used_mib", 0.0) + memory_mib
    job = {"job_id": job_id, "state": "RUNNING", "user": one(draw, "alice", "bob"), "node_list": at["name"],
           "gpus": gpus, "cpus": cpus, "memory_mib": memory_mib, "partition": one(draw, "gpu", "big"),
           "end_s": NOW_S + 600.0}  # fmt: skip
    return job, {"job_id": job_id, "node": at["name"], "gpu_type": name, "gpus": gpus}


@st.composite
def sites(draw: st.DrawFn) -> Snapshot:
    """Four nodes in up to two partitions with limits, reservations, jobs that run, and one that waits (the first).

    Every other site is plain: nothing but what others hold keeps the job from most nodes.
    """
    plain = draw(st.booleans())

    def some(*values: Any) -> Any:
        return values[0] if plain else one(draw, *values)

    partitions = [
        {"name": name, "default": name == "gpu", "defaults": "DefMemPerCPU=1000"}
        | {key: some(*values) for key, values in LIMITS.items()}
        for name in ("big", "gpu")
    ]
    many, each, request = draw(st.integers(1, 3)), draw(st.integers(1, 4)), one(draw, *ASKS)
    asks: dict[str, Any] = {
        "job_id": 1, "gpus": each * many * (1 + ("," in request)), "nodes": many,
        "features_asked": some(*CONSTRAINTS), "gpus_by": some("node", "job", "task", "socket", ""),
        "gpu_request": request.format(n=each * many),
        "cpus": draw(st.integers(1, 12)) * many, "memory_mib": 1_000.0 * many * one(draw, 1, 8),
        "nodes_asked": some("", "", "n[1-3]"), "nodes_excluded": some("", "n1"), "user": "alice",
        "partition": one(draw, "gpu", "big", "big,gpu"), "account": one(draw, "phys", "bio"),
        "qos": one(draw, "normal", "high"), "time_limit_s": one(draw, 600.0, 7_200.0), "array_tasks": one(draw, 1, 5),
        "reservation": some("", "", "mine"), "exclusive": some(False, True),
    }  # fmt: skip
    nodes = [node(draw, name, plain) for name in NAMES]
    runs = [held(draw, 2 + at, nodes) for at in range(draw(st.integers(0, 3)))]
    for each_node in nodes:
        each_node.pop("held", None)
    where, cores = one(draw, ("n1", ""), ("n1", "n1=4"), ("n[3-4]", ""), ("n[3-4]", "n3=8,n4=8"))
    kept = Reservations.build(2, {
        "name": ["mine", "other"], "node_list": ["n[2-3]", where], "users": ["alice", "bob"],
        "start_s": [NOW_S - 60, NOW_S + 900], "end_s": [NOW_S + 3e4] * 2,
        "flags": ["", one(draw, "", "MAINT", "MAGNETIC")], "cores": ["", cores],
        "tres": ["", one(draw, "cpu=16", "cpu=16,gres/gpu=4")],
    })  # fmt: skip
    allocations = [allocation for _, allocation in runs if allocation["gpus"]]
    return snapshot([asks, *(job for job, _ in runs)], nodes, partitions=partitions, now_s=NOW_S, reservations=kept,
                    allocations=allocations)  # fmt: skip


WORDS = ("features_asked", "gpus_by", "reservation", "nodes_asked", "nodes_excluded", "gpu_request", "partition")
HELD = (Exclusion.NOT_EMPTY, Exclusion.GPUS, Exclusion.CPUS, Exclusion.MEMORY)


@given(at=sites())
@settings(deadline=None, max_examples=120)
def test_eligibility__one_answer_for_all(at: Snapshot) -> None:
    """One mask: explain's, the planner's where all was looked at, and the placements', which leave sizes out."""
    found, facts = eligibility(at, request_of(at, 0)), JobDetails(reservations=at.reservations)
    check = NodeCheck.of(at, 0, facts)
    assert check.excluded_by(Exclusion.NONE, *HELD).tolist() == found.mask.tolist()
    pool, usable = node_pools(at)
    of_any_size = eligibility(at, found.request, sized=False)
    whole = (of_any_size.kept_gpus == 0) & (of_any_size.kept_cpus == 0)
    assert usable[pool[0]].tolist() == (of_any_size.mask & whole).tolist()
    for n, name in enumerate(NAMES):  # never "nothing keeps it off" where something was not looked at
        assert why_not(at, 0, name, facts) != "" or (found.mask[n] and not found.unseen)
    try:
        allowed = allowed_nodes(at, 0)
    except UnknownEligibility:
        assert found.doubts and not found.sure.any()
        return
    typed = ":" in at.jobs.gpu_request[0].partition(":")[2]
    listed = set(at.jobs.partition[0].split(","))
    in_all = at.nodes.partitions.map(lambda serves: listed <= set(serves.split(",")), np.bool_)
    several = has_several_types(at.nodes.gpu_types)
    expected = found.open & found.sure & ~(several & typed) & (in_all | (at.jobs.nodes[0] < 2))
    assert allowed.tolist() == expected.tolist()


@given(at=sites(), said=st.sets(st.sampled_from(WORDS)), site=st.sets(st.sampled_from(("partitions", "reservations"))))
@settings(deadline=None, max_examples=120)
def test_node_pools__short_way_of_plain_clusters_agrees(at: Snapshot, said: set[str], site: set[str]) -> None:
    """Nodes of every job are those of its own answer, whichever of its words and of the site's limits are left out."""
    jobs = at.jobs.with_columns(**{name: Labels.constant("", len(at.jobs)) for name in WORDS if name not in said})
    if "gpu_request" not in said:
        jobs = jobs.with_columns(gpu_request=[f"gpu:{gpus}" for gpus in jobs.gpus.tolist()])
    if "partition" not in said:
        jobs = jobs.with_columns(partition=Labels.constant("big,gpu", len(jobs)))
    at = replace(at, jobs=jobs)
    if "partitions" not in site:
        at = replace(at, partitions=Partitions.build(2, {"name": ["big", "gpu"]}))
    if "reservations" not in site:
        at = replace(at, reservations=Reservations.build(0, {}))
    pool, usable = node_pools(at)
    for row in range(len(at.jobs)):
        found = eligibility(at, request_of(at, row), sized=False)
        whole = (found.kept_gpus == 0) & (found.kept_cpus == 0)
        assert usable[pool[row]].tolist() == (found.mask & whole).tolist()


@given(at=sites())
@settings(deadline=None, max_examples=120)
def test_free__planner_and_explain_find_the_same_room(at: Snapshot) -> None:
    """Of a job of so many nodes with an equal share on each, the planner starts it where explain says it has room."""
    jobs = at.jobs.with_columns(gpus_by=Labels.of(["node"] * len(at.jobs)))
    at = replace(at, jobs=jobs)
    request = request_of(at, 0)
    free, need, stock = free_for(at, request), JobRequirements.of(at, 0), FreeResources.now(at)
    try:
        allowed = allowed_nodes(at, 0, stock.types.able(need.gpu_type, need.gpus))
    except UnknownEligibility:
        return
    beside, seen = nodes_beside_reservations(at, 0, stock.seen_by(need))
    planner = allowed & beside & ~at.nodes.is_state(NodeState.RESERVED) & seen.fits(need)
    sure = allowed & (need.gpu_type != "" or not request.types)
    assert (planner & sure).tolist() == (free.mask & sure).tolist()


@given(at=sites(), gpus=st.integers(1, 4), nodes=st.integers(1, 3), cpus=st.integers(1, 12),
       gpu_type=st.sampled_from(("", "a100", "h100")))  # fmt: skip
@settings(deadline=None, max_examples=120)
def test_eligibility__fit_and_gpus_as_for_a_job(at: Snapshot, gpus: int, nodes: int, cpus: int, gpu_type: str) -> None:
    """A request is told what the same job is told: fit gives GPUs of just the nodes on which the job has room, all of
    them open for gpus, and what was not looked at is named by both."""
    constraint, partition = at.jobs.features_asked[0], at.jobs.partition[0].split(",")[0]
    request = SbatchRequest(nodes=nodes, gpus_per_node=gpus, gpu_type=gpu_type, partition=partition,
                            constraint=constraint, time_s=600.0, memory_mib=1_000.0, cpus_per_task=cpus,
                            exclusive=bool(at.jobs.exclusive[0]))  # fmt: skip
    text = f"gpu:{gpu_type}:{gpus * nodes}" if gpu_type else f"gpu:{gpus * nodes}"
    same: dict[str, Any] = {
        "job_id": 1, "gpus": gpus * nodes, "nodes": nodes, "gpus_by": "node", "gpu_request": text, "cpus": cpus * nodes,
        "memory_mib": 1_000.0 * nodes, "features_asked": constraint, "partition": partition, "time_limit_s": 600.0,
        "exclusive": request.exclusive,
    }  # fmt: skip
    runs = [row for row in range(len(at.jobs)) if row]
    site = replace(at, jobs=builders.jobs([same]).followed_by(at.jobs.take(np.array(runs, np.int64))))
    filled = with_partition(site, request)
    job, answer = free_for(site, request_of(site, 0)), fit(site, request)
    found = job.eligibility
    given = {room.node for room in node_rooms(site, filled) if room.gpus >= gpus}
    at_row = list(site.partitions.name).index(partition)
    barred = bool(found.refusals) or site.partitions.state[at_row] == "DRAIN"  # it takes no new job
    if nodes >= site.partitions.min_nodes[at_row]:  # of a job that shows one node it is not known whether it said -N1
        assert barred == answer.why.startswith(f"partition {partition} ")
    if not answer.why.startswith("partition "):  # else it tells what there would be, were it let in
        able = set(np.flatnonzero(job.mask).tolist())
        every_cpu = set(np.flatnonzero(site.nodes.cpus_per_gpu_kept == 0).tolist())
        assert (given & every_cpu, able <= given) == (able & every_cpu, True)
    available = (OPEN, BOOT)
    assert given <= {part.node for part in node_gpus(site) if part.standing in available}
    assert {doubt for doubt in found.doubts if "constraint" in doubt} <= set(answer.unseen)


@given(at=sites())
@settings(deadline=None, max_examples=120)
def test_free__every_count_of_free_gpus_is_the_same(at: Snapshot) -> None:
    """gpus by type and node, what the planner may give away, what a placement may place, and what a job is told."""
    nodes, free = at.nodes, FreeResources.now(at)
    parts = list(node_gpus(at))
    for name in ("a100", "h100"):
        counted = np.zeros(len(nodes), np.int64)
        for part in parts:
            counted[part.node] += part.unheld if part.gpu_type == name else 0
        serves = nodes.gpu_types.map(lambda text, name=name: name in whole_types(text), np.bool_)
        here = serves & ~nodes.down
        assert counted[here].tolist() == surely_free(at, name)[here].tolist()
        assert counted[here].tolist() == np.clip(free.types.within(free.gpus, name), 0, None)[here].tolist()
    taken = ~nodes.closed
    placed = np.bincount(AllocatedGpus.of(at).node, AllocatedGpus.of(at).gpus, len(nodes)).astype(np.int64)
    assert (placeable_gpu_counts(at) - placed)[taken].tolist() == free.gpus[taken].tolist()
    masks = bit_counts(PlaceableGpus.of(at).capacity)
    assert masks.tolist() == placeable_gpu_counts(at).tolist()
    untyped = free_for(at, replace(request_of(at, 0), types=(), reservations=()))
    assert untyped.gpus.tolist() == np.clip(free.gpus - untyped.eligibility.kept_gpus, 0, None).tolist()


@given(at=sites(), placement=st.sampled_from((Consolidated(), Linked(), BestFit())))
@settings(deadline=None, max_examples=120)
def test_placements__start_a_job_where_it_has_room(at: Snapshot, placement: Any) -> None:
    """A job of one node starts just where there is room for it. Left out is what a placement does not look at: which
    types are free on a node of several, whole nodes, CPUs and memory of nodes that are shared."""
    jobs, rows, waits = at.jobs, len(at.jobs), at.jobs.pending
    columns: dict[str, Any] = {
        "nodes": np.ones(rows, np.int32), "cpus": np.where(waits, 0, jobs.cpus), "gpus": np.where(waits, 2, jobs.gpus),
        "memory_mib": np.where(waits, 0.0, jobs.memory_mib), "exclusive": np.zeros(rows, np.bool_),
        "gpu_request": ["gpu:2"] * rows, "gpus_by": ["node"] * rows, "reservation": [""] * rows,
    }  # fmt: skip
    nodes = at.nodes.with_columns(
        cpus_per_gpu_kept=np.zeros(len(at.nodes), np.int32),
        cpus_used=np.minimum(at.nodes.cpus_used, at.nodes.cpus),  # no node has lent more than it has
        memory_used_mib=np.minimum(at.nodes.memory_used_mib, at.nodes.memory_mib),
    )
    at = replace(at, jobs=jobs.with_columns(**columns), nodes=nodes)
    found = free_for(at, replace(request_of(at, 0), whole=False), sized=False)
    whole = (found.eligibility.kept_gpus == 0) & (found.eligibility.kept_cpus == 0)
    target = placement.place(at, Ranking(np.append(np.flatnonzero(~at.jobs.pending), 0)))
    place = np.flatnonzero(target.rows == 0)
    assert bool(len(place)) == bool((found.mask & whole).any())
    if len(place):
        assert (found.mask & whole)[target.node[target.first[place[0]]]]


@given(seed=st.integers(0, 10_000))
@settings(deadline=None, max_examples=50)
def test_replay__starts_jobs_on_the_nodes_that_they_may_have(seed: int) -> None:
    """The model of slurmctld and a snapshot of it agree about partitions, GPU types and sizes."""
    chance = np.random.default_rng(seed)
    types = ("gpu:a100:4", "gpu:h100:8", "gpu:8")
    nodes = []
    for name in NAMES:
        has = types[chance.integers(len(types))]
        gpus = int(has.rsplit(":", 1)[1])
        nodes.append(
            NodeSpec(name, gpus, gpus * 4, float(chance.choice([0, 64_000])), has if has.count(":") == 2 else "")
        )
    layout = ClusterLayout(tuple(nodes), (PartitionSpec("all"), PartitionSpec("some", ("n1", "n3"))))
    jobs = 6
    sizes, partition = chance.integers(1, 5, jobs), chance.choice(["all", "some"], jobs).tolist()
    trace = Trace.of(job_id=np.arange(1, jobs + 1), submit_s=np.zeros(jobs), duration_s=np.full(jobs, 60.0), gpus=sizes)
    there = {spec.name: {kind for one_node in nodes if not spec.nodes or one_node.name in spec.nodes
                         for kind in (*one_node.types, "")} for spec in layout.partitions}  # fmt: skip
    asked = [sorted(there[name])[chance.integers(len(there[name]))] for name in partition]
    requests = SubmittedRequests.of_trace(trace, layout)
    requests = replace(requests, partition=Labels.of(partition), gpu_type=Labels.of(asked))
    cluster = SimulatedSlurmctld(trace, layout, SlurmctldSettings(), requests=requests)
    at, demand = cluster.read(), cluster.demand
    for row in range(len(at.jobs)):
        found = eligibility(at, request_of(at, row))
        have = np.stack([layout.column(name) for name in ("gpus", "cpus", "memory_mib")])
        have[2] = np.where(have[2] > 0, have[2], np.iinfo(np.int64).max)
        fits = (have >= demand.need[row][:, None]).all(axis=0)
        assert found.ever.tolist() == (demand.usable[demand.pool[row]] & fits).tolist()

"""A replay on the ideal cluster, set up from words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slurmsched import registry
from slurmsched.errors import ConfigError
from slurmsched.model.trace import Trace
from slurmsched.placements.count import Count
from slurmsched.protocols import CpuMemoryPhysics, Physics, is_preemptive, knows_gpu_parts
from slurmsched.sim.cluster_description import ClusterDescription
from slurmsched.sim.experiments.profiling_stage import profiled
from slurmsched.sim.experiments.published_quirks import gpu_parts_cluster, ideal_cluster, physics_cluster
from slurmsched.sim.experiments.published_settings import PublishedSettings
from slurmsched.sim.experiments.released_policies import make_policy
from slurmsched.sim.experiments.replay_request import (
    RECORDED_PHYSICS,
    SAMPLES,
    ReplayRequest,
    make_placement,
    parse_backfill,
    parse_policy,
    read_history,
)
from slurmsched.sim.experiments.replay_result import COMPILE_FROM_JOBS, PreparedReplay, ReplayResult
from slurmsched.sim.ideal.ideal_planner import DirectPlanner
from slurmsched.sim.replay_stores import CarryStore, learns_from_ended_jobs


# Over 30 lines: what the plug-ins are decides step by step which cluster is made.
def ideal_setup(trace: Trace, described: ClusterDescription, request: ReplayRequest) -> PreparedReplay:
    """Raises ConfigError or InputError for words that name nothing, and for a job that can never start."""
    _refuse_of_slurm(request)
    word, name, parameters, filling = request.discipline
    if word == "slurm":
        raise ConfigError("slurm alone has no policy to enact; use fifo or easy, or --model slurm", key="policy")
    policy, placement = make_policy(name, parameters), make_placement(request)
    chosen = parse_backfill(request.backfill) or filling or ("skip" if is_preemptive(policy) else "block")
    physics: Physics = registry.make_plugin("physics", *parse_policy(request.physics, "physics"), key="physics")
    settings = _settings(request, physics)
    model = PublishedSettings.of(settings)
    config = {"model": "ideal", "nodes": list(described.gpus), "policy": name, "parameters": parameters,
              "placement": request.placement, "backfill": chosen, **settings,
              "history": request.history or SAMPLES}  # fmt: skip
    each_order = bool(model.event_cost_s or model.costs_known) or not isinstance(placement, Count)
    planner = DirectPlanner(policy, placement, chosen, each_order, counted=isinstance(placement, Count))
    # a settled order takes a few cycles
    compiled = len(trace) >= COMPILE_FROM_JOBS and not planner.settled
    stage = profiled(trace, model) if model.profile_gpus else None
    rest = stage.rest if stage else trace
    if request.topology or request.physics != RECORDED_PHYSICS:
        if isinstance(placement, Count):
            raise ConfigError('placement "count" chooses no nodes; physics and topology need one that does',
                              key="placement")  # fmt: skip
        replayed = _with_physics(rest, described, request, physics, model, config)
    elif knows_gpu_parts(placement):
        replayed = ReplayResult(gpu_parts_cluster(trace, described, model, seed=request.seed), config)
    else:
        nodes = (sum(described.gpus),) if isinstance(placement, Count) else described.gpus
        replayed = ReplayResult(ideal_cluster(rest, nodes, model, seed=request.seed), config)
    replayed.stage = stage
    store = learns_from_ended_jobs(
        CarryStore(read_history(request.history)), (policy, placement), replayed.cluster, request.past
    )
    return PreparedReplay(replayed, planner, store, compiled)


def _refuse_of_slurm(request: ReplayRequest) -> None:
    """Raises ConfigError for what only the model of slurmctld has."""
    if request.preempt is not None:
        raise ConfigError("the ideal cluster preempts by itself, at once; use --model slurm", key="preempt")
    if request.age_cap_s:
        raise ConfigError("is of the daemon's planner; use --model slurm", key="age_cap_s")
    if request.tiers:
        raise ConfigError("the ideal cluster has no fair share, QOS or priorities; use --model slurm", key="tiers")


def _with_physics(
    trace: Trace,
    described: ClusterDescription,
    request: ReplayRequest,
    physics: Physics,
    model: PublishedSettings,
    config: dict[str, Any],
) -> ReplayResult:
    """With single GPUs and speeds."""
    from slurmsched.sim.ideal.cluster_hardware import ClusterHardware  # late: reading of topology files

    counts = isinstance(physics, CpuMemoryPhysics)
    nodes = described.layout.nodes if counts else [replace(node, memory_mib=0) for node in described.layout.nodes]
    hardware = ClusterHardware.of(nodes, request.topology, cpus_known=counts and described.cpus_known)
    config |= {"nodes": hardware.nodes.gpus.tolist(), "gpu_types": list(hardware.nodes.gpu_types),
               "physics": request.physics, "topology": request.topology}  # fmt: skip
    return ReplayResult(physics_cluster(trace, hardware, physics, model, seed=request.seed), config)


def _settings(request: ReplayRequest, physics: Physics) -> dict[str, Any]:
    """The fields of PublishedSettings that are asked for. Raises ConfigError for a cost that is told twice."""
    settings = {"round_s": request.round_s, "restart_cost_s": request.restart_cost_s, **request.settings}
    for name in ("restart_cost_s", "resize_cost_s"):
        cost_s = getattr(physics, name)
        if cost_s and settings.get(name, 0.0) not in (0.0, cost_s):
            raise ConfigError(f"is {cost_s} by the physics and {settings[name]} beside it; give one", key=name)
        settings |= {name: cost_s} if cost_s else {}
    return settings

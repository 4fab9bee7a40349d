"""A replay on the ideal cluster, set up from words."""

from __future__ import annotations

from typing import Any

from slurmsched import registry
from slurmsched.errors import ConfigError
from slurmsched.placements.count import Count
from slurmsched.planning.direct import DirectPlanner
from slurmsched.protocols import Physics
from slurmsched.replay.carry_store import CarryStore
from slurmsched.replay.clusters import Described
from slurmsched.replay.ideal_model import IdealModel
from slurmsched.replay.ideal_physics import PhysicsCluster
from slurmsched.replay.ideal_quirks import ideal_cluster, slowed
from slurmsched.replay.learning_store import learning
from slurmsched.replay.profiling import profiled
from slurmsched.replay.replayed import COMPILE_FROM_JOBS, Replayed, SetUp
from slurmsched.replay.request import RECORDED, SAMPLES, Request, filling_of, history_of, parse_policy, placement_of
from slurmsched.replay.traces import Trace


def ideal_setup(trace: Trace, described: Described, request: Request) -> SetUp:
    """Raises ConfigError or InputError for words that name nothing, and for a job that can never start."""
    if request.preempt is not None:
        raise ConfigError("the ideal cluster preempts by itself, at once; use --model slurm", key="preempt")
    word, name, parameters, filling = request.discipline
    if word == "slurm":
        raise ConfigError("slurm alone has no policy to enact; use fifo or easy, or --model slurm", key="policy")
    policy, placement = registry.make("policies", name, parameters), placement_of(request)
    chosen = filling_of(request.backfill) or filling or ("skip" if getattr(policy, "preemptive", False) else "block")
    physics: Physics = registry.make("physics", *parse_policy(request.physics, "physics"), key="physics")
    settings = _settings(request, physics)
    model = IdealModel.of(settings)
    config = {"model": "ideal", "nodes": list(described.gpus), "policy": name, "parameters": parameters,
              "placement": request.placement, "backfill": chosen, **settings,
              "history": request.history or SAMPLES}  # fmt: skip
    each_order = bool(model.event_cost_s or model.costs_known) or not isinstance(placement, Count)
    planner = DirectPlanner(policy, placement, chosen, each_order)
    # a settled order takes a few cycles
    compiled = len(trace) >= COMPILE_FROM_JOBS and not planner.settled
    stage = profiled(trace, model) if model.profile_gpus else None
    rest = stage.rest if stage else trace
    if request.topology or request.physics != RECORDED:
        if isinstance(placement, Count):
            raise ConfigError("count does not tell who is where, which physics and topology need; choose another",
                              key="placement")  # fmt: skip
        replayed = _with_physics(rest, described, request, physics, model, config)
    else:
        nodes = (sum(described.gpus),) if isinstance(placement, Count) else described.gpus
        replayed = Replayed(ideal_cluster(rest, nodes, model, seed=request.seed, compiled=compiled), config)
    replayed.stage = stage
    store = learning(CarryStore(history_of(request.history)), (policy, placement), replayed.cluster, request.past)
    return SetUp(replayed, planner, store, compiled)


def _with_physics(
    trace: Trace, described: Described, request: Request, physics: Physics, model: IdealModel, config: dict[str, Any]
) -> Replayed:
    """With single GPUs and speeds."""
    from slurmsched.replay.hardware import Hardware  # late: reading of topology files

    hardware = Hardware.of(described.layout.nodes, request.topology)
    config |= {"nodes": hardware.nodes.gpus.tolist(), "gpu_types": list(hardware.nodes.gpu_types),
               "physics": request.physics, "topology": request.topology}  # fmt: skip
    return Replayed(PhysicsCluster(slowed(trace, model), hardware, physics, model, seed=request.seed), config)


def _settings(request: Request, physics: Physics) -> dict[str, Any]:
    """The fields of IdealModel that are asked for. Raises ConfigError for a cost that is told twice."""
    settings = {"round_s": request.round_s, "restart_cost_s": request.restart_cost_s, **request.settings}
    for name in ("restart_cost_s", "resize_cost_s"):
        cost_s = getattr(physics, name)
        if cost_s and settings.get(name, 0.0) not in (0.0, cost_s):
            raise ConfigError(f"is {cost_s} by the physics and {settings[name]} beside it; give one", key=name)
        settings |= {name: cost_s} if cost_s else {}
    return settings

"""One replay: prepared from a request, and run."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from slurmsched import registry
from slurmsched.errors import ConfigError
from slurmsched.kernels import _jit
from slurmsched.model.trace import Trace, trace_digest
from slurmsched.placements.count import Count
from slurmsched.protocols import CpuMemoryPhysics, Physics, is_preemptive, knows_gpu_parts
from slurmsched.sim.cluster_files import cluster_of
from slurmsched.sim.cluster_layout import ClusterDescription
from slurmsched.sim.event_loop import replay, replay_events, replay_following
from slurmsched.sim.experiments.published_quirks import gpu_parts_cluster, ideal_cluster, physics_cluster
from slurmsched.sim.experiments.published_settings import PublishedSettings, profiled
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
from slurmsched.sim.experiments.replay_result import COMPILE_FROM_JOBS, SLURM_INTERVAL_S, PreparedReplay, ReplayResult
from slurmsched.sim.ideal.ideal_cluster import IdealCluster
from slurmsched.sim.ideal.ideal_planner import DirectPlanner
from slurmsched.sim.ideal.overtaking import waits_for_room
from slurmsched.sim.replay_stores import CarryStore, learns_from_ended_jobs


@dataclass(slots=True, eq=False)
class ReplaySession:
    """A replay made ready: `run` plays it; after an interruption `replayed` holds what is there so far."""

    trace: Trace
    request: ReplayRequest
    described: ClusterDescription = field(init=False)
    _made: PreparedReplay = field(init=False)

    def __post_init__(self) -> None:
        """Raises ConfigError or InputError for words that name nothing, and for a job that can never start."""
        self.trace, self.described = on_its_cluster(self.trace, self.request)
        digest = trace_digest(self.trace)
        if self.request.moldable:
            from slurmsched.sim.moldable_starts import with_run_times  # late, with pydantic

            self.trace = with_run_times(self.trace, self.request.hints)
        self._made = self._set_up()
        self.replayed.trace_digest = digest

    @property
    def replayed(self) -> ReplayResult:
        """What came of it so far."""
        return self._made.replayed

    def run(self, on_progress: Callable[[int], None] | None = None) -> ReplayResult:
        """Replay to the end. KeyboardInterrupt goes through.

        on_progress: called now and then with the number of jobs that ended.
        """
        replayed = self.replayed
        if self._made.compiled:
            _jit.load()
        began = time.perf_counter()
        staged = int(replayed.stage.done.sum()) if replayed.stage else 0
        tell = None if on_progress is None else _every_so_often(lambda ended: on_progress(staged + ended))
        try:
            replayed.cycles = play_events(self._made, tell)
            replayed.complete = True
        finally:
            replayed.wall_s = time.perf_counter() - began
        return replayed

    def _set_up(self) -> PreparedReplay:
        if self.request.model == "ideal":
            return ideal_setup(self.trace, self.described, self.request)
        from slurmsched.sim.experiments.slurmctld_setup import (
            slurm_setup,  # late, with pydantic: the ideal cluster does without
        )

        return slurm_setup(self.trace, self.described, self.request)


def on_its_cluster(trace: Trace, request: ReplayRequest) -> tuple[Trace, ClusterDescription]:
    """The jobs that the cluster of a request may hold, and the cluster; its warnings say what is left out of both.

    Raises ConfigError or InputError for words that name no cluster.
    """
    described = cluster_of(request.cluster, trace)
    if request.model != "slurm":
        return trace, described
    from slurmsched.sim.experiments.slurmctld_setup import fitted_trace

    described = described.in_time_of(math.nan if request.origin_s is None else request.origin_s)
    trace, warnings = fitted_trace(trace, described)
    return trace, replace(described, warnings=(*described.warnings, *warnings))


def play_events(made: PreparedReplay, tell: Callable[[Any], None] | None) -> int:
    """Replay to the end. Returns the number of cycles. tell: called at every event, with the cluster."""
    cluster, planner, store = made.replayed.cluster, made.planner, made.store
    if not isinstance(cluster, IdealCluster):
        times: dict[str, Any] = {"interval_s": SLURM_INTERVAL_S, "stands_until": made.stands_until}
        return replay(cluster, planner, store, **times, on_progress=tell)
    assert planner is not None
    model = cluster.model
    if isinstance(model, PublishedSettings) and model.rounds_follow:
        times = {"round_s": model.round_s, "hold_s": model.hold_s}
        return replay_following(cluster, planner, store, **times, on_progress=tell)
    if model.round_s:
        return replay(cluster, planner, store, interval_s=model.round_s, on_progress=tell)
    return replay_events(cluster, planner, store, on_progress=tell)


def _every_so_often(on_progress: Callable[[int], None], events: int = 256) -> Callable[[Any], None]:
    """Tells at every that many events only: a progress bar costs more than a cycle."""
    count = itertools.count()

    def tell(cluster: Any) -> None:
        if next(count) % events == 0 or cluster.finished:
            on_progress(cluster.ended)

    return tell


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
              "history": request.history or SAMPLES, **({"moldable": True} if request.moldable else {})}  # fmt: skip
    counted = isinstance(placement, Count)
    moves = bool(request.topology or request.physics != RECORDED_PHYSICS) or not waits_for_room(placement)
    each_order = bool(model.event_cost_s or model.costs_known) or (moves and not counted)
    planner = DirectPlanner(policy, placement, chosen, each_order, counted=counted, moldable=request.moldable)
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

"""One replay from words: trace, cluster, discipline, model; and what came of it."""

from __future__ import annotations

import gzip
import itertools
import math
import re
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np

from slurmsched import __version__, registry
from slurmsched.errors import ConfigError, InputError
from slurmsched.kernels import _jit
from slurmsched.model.columns import Floats, Labels
from slurmsched.placements.count import Count
from slurmsched.planning.direct import FILLINGS, DirectPlanner, Filling
from slurmsched.protocols import Physics, Placement, Planner, Policy, Store
from slurmsched.replay.adapting import UNFAIR, AdaptingCluster
from slurmsched.replay.carry_store import CarryStore
from slurmsched.replay.clusters import Described, cluster_of
from slurmsched.replay.deadlines import met
from slurmsched.replay.embedded import EmbeddedCluster
from slurmsched.replay.engine import replay, replay_events, replay_following
from slurmsched.replay.ideal import IdealCluster
from slurmsched.replay.ideal_model import IdealModel
from slurmsched.replay.ideal_physics import PhysicsCluster
from slurmsched.replay.ideal_quirks import ideal_cluster, slowed
from slurmsched.replay.learning_store import LearningStore
from slurmsched.replay.metrics import Outcomes, Ran
from slurmsched.replay.profiling import Profiled, profiled
from slurmsched.replay.requests import Requests
from slurmsched.replay.slurm_model import checked
from slurmsched.replay.trace_files import load as load_trace
from slurmsched.replay.traces import Trace, trace_digest

SAMPLES = "tiresias_samples.csv.gz"
SLURM_INTERVAL_S = 60.0
RECORDED = "recorded"  # the physics without any
COMPILE_FROM_JOBS = 1_000  # below, loading the compiler takes longer than it saves
# name on the command line -> policy, its parameters, who gets GPUs that the first waiting job cannot use
DISCIPLINES: Mapping[str, tuple[str, Mapping[str, Any], Filling | None]] = {
    "easy": ("fifo", {}, "easy"),
    "conservative": ("fifo", {}, "conservative"),
    "fjf": ("fifo", {}, "skip"),
    "gittins": ("gittins", {"index": "released"}, None),
}


@dataclass(frozen=True, slots=True)
class Request:
    """What to replay, in words. cluster: as clusters.cluster_of takes it. policy, placement, physics:
    NAME[:PARAMETER=VALUE,...]. topology: how GPUs are wired, see hardware.topology_of; "" = unknown.

    backfill: "" = as the policy's name says. history: a CSV column of GPU s that completed jobs needed; "" = the
    samples of the Tiresias release. round_s, restart_cost_s: of the ideal model [s]. settings: any other field of
    IdealModel or SlurmModel, by name. requeue: of the slurm model, a preemptive policy may requeue; else nice only.
    parameters: of the policy, over those of its text. preempt: of the slurm model, the sections `preemption`, `acts`
    and `gangs` of a configuration, by which the daemon's own preemption works; None: it does not, and a policy that
    preempts does so by requeue alone (bare_requeue). hints: comment of every job (docs/hints.md).
    """

    cluster: str = "auto"
    policy: str = "fifo"
    model: Literal["ideal", "slurm"] = "ideal"
    placement: str = "count"
    backfill: str = ""
    history: str = ""
    past: str = ""
    round_s: float = 0.0
    restart_cost_s: float = 0.0
    requeue: bool = True
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    physics: str = RECORDED
    topology: str = ""
    preempt: Mapping[str, Any] | None = None
    hints: str = ""


@dataclass(slots=True, eq=False)
class Replayed:
    """A replay, whole or cut short. stage: what jobs did before they came to the cluster, None if nothing. figures: the
    JSON of the command."""

    cluster: IdealCluster | EmbeddedCluster
    config: dict[str, Any]
    stage: Profiled | None = None
    wall_s: float = 0.0
    cycles: int = 0
    complete: bool = False
    trace_digest: str = ""

    @property
    def trace(self) -> Trace:
        """Whose jobs it replays."""
        return self.stage.trace if self.stage else self.cluster.trace

    @property
    def outcomes(self) -> Outcomes:
        """Of the jobs that ended."""
        if not isinstance(self.cluster, IdealCluster):
            return ended(self.cluster)
        return self.stage.outcomes(self.cluster.outcomes()) if self.stage else self.cluster.outcomes()

    @property
    def runs(self) -> Ran:
        """Every run that ended."""
        if isinstance(self.cluster, IdealCluster):
            of_cluster = self.cluster.runs.of(self.cluster.job_id, self.cluster.gpus)
            return self.stage.runs(of_cluster) if self.stage else of_cluster
        return self.cluster.job.runs.of(self.cluster.trace.job_id, self.cluster.trace.gpus)

    @property
    def refused(self) -> dict[str, int]:
        """Jobs that slurmctld's model did not let in, by the limit that they exceed; they count in no figure."""
        return {} if isinstance(self.cluster, IdealCluster) else self.cluster.refused

    @property
    def figures(self) -> dict[str, Any]:
        done = self.outcomes
        spread = np.percentile(done.jct_s, (50, 95, 99)) if len(done.job_id) else np.full(3, math.nan)
        mean = (float(values.mean()) if len(values) else math.nan for values in (done.jct_s, done.delay_s))
        names = ("p50_jct_s", "p95_jct_s", "p99_jct_s")
        made = {"jobs": len(done.job_id), "avg_jct_s": next(mean)} | dict(zip(names, spread.tolist(), strict=True))
        made |= {"avg_wait_s": next(mean), "makespan_s": done.makespan_s, "preemptions": int(done.preemptions.sum())}
        made |= {"lost_gpu_h": done.lost_gpu_s / 3_600, "gpu_utilisation": done.utilisation}
        made |= {"wall_s": self.wall_s, "version": __version__}
        if isinstance(self.cluster, PhysicsCluster):
            made["mean_slowdown"] = float(done.slowdown.mean()) if len(done.job_id) else math.nan
        made |= met(done, self.trace) | (self.stage.figures if self.stage else {})
        if isinstance(self.cluster, AdaptingCluster):
            rho = self.cluster.rho()
            made |= {"worst_rho": float(rho.max(initial=0.0)), "unfair_pct": 100 * float((rho > UNFAIR).mean())}
        made |= {"refused": sum(self.refused.values())} if self.refused else {}
        made |= {"trace_digest": self.trace_digest, "seed": self.cluster.seed, "config": self.config}
        return made if self.complete else made | {"complete": False, "jobs_of_trace": len(self.trace)}


def ended(cluster: EmbeddedCluster) -> Outcomes:
    """What became of the jobs of an embedded cluster that ended so far."""
    done = Outcomes.of(cluster)
    kept = np.isfinite(done.end_s)
    names = [name for name in Outcomes.__slots__ if name != "cluster_gpus"]
    return replace(done, **{name: getattr(done, name)[kept] for name in names})


@dataclass(slots=True, eq=False)
class Session:
    """A replay made ready: `run` plays it; after an interruption `replayed` holds what is there so far."""

    trace: Trace
    request: Request
    described: Described = field(init=False)
    replayed: Replayed = field(init=False)
    _planner: Planner | None = field(init=False, default=None)
    _plugins: tuple[Any, ...] = field(init=False, default=())  # policy and placement of the planner

    def __post_init__(self) -> None:
        """Raises ConfigError or InputError for words that name nothing, and for a job that can never start."""
        self.described = cluster_of(self.request.cluster, self.trace)
        name, parameters = parse_policy(self.request.policy)
        policy, preset, filling = DISCIPLINES.get(name, (name, {}, None))
        made = {} if name == "slurm" else {"parameters": {**preset, **parameters, **self.request.parameters}}
        self.replayed = self._ideal(policy, filling, made) if self.request.model == "ideal" else self._slurm(name, made)
        self.replayed.trace_digest = trace_digest(self.trace)

    def run(self, on_progress: Callable[[int], None] | None = None) -> Replayed:
        """Play to the end. on_progress: told now and then how many jobs ended. KeyboardInterrupt goes through."""
        if self._compiled:
            _jit.load()
        began = time.perf_counter()
        staged = int(self.replayed.stage.done.sum()) if self.replayed.stage else 0
        tell = None if on_progress is None else _now_and_then(lambda ended: on_progress(staged + ended))
        try:
            self.replayed.cycles = self._play(tell)
            self.replayed.complete = True
        finally:
            self.replayed.wall_s = time.perf_counter() - began
        return self.replayed

    @property
    def _compiled(self) -> bool:
        """Whether loading the compiler pays: not for few jobs, nor for a settled order, which takes a few cycles."""
        settled = isinstance(self._planner, DirectPlanner) and self._planner.settled
        return len(self.trace) >= COMPILE_FROM_JOBS and not settled

    def _play(self, tell: Callable[[Any], None] | None) -> int:
        cluster, request = self.replayed.cluster, self.request
        if isinstance(cluster, EmbeddedCluster):
            from slurmsched.replay.memory_store import MemoryStore

            store = self._learning(MemoryStore())
            return replay(cluster, self._planner, store, interval_s=SLURM_INTERVAL_S, on_progress=tell)
        assert self._planner is not None
        store = self._learning(CarryStore(history_of(request.history)))
        model = cluster.model
        if model.rounds_follow:
            times = {"round_s": model.round_s, "hold_s": model.hold_s}
            return replay_following(cluster, self._planner, store, **times, on_progress=tell)
        if model.round_s:
            return replay(cluster, self._planner, store, interval_s=model.round_s, on_progress=tell)
        return replay_events(cluster, self._planner, store, on_progress=tell)

    def _learning(self, store: Store) -> Store:
        """The store that also keeps the past, where policy or placement learns from it."""
        if not any(registry.learns(plugin) for plugin in self._plugins):
            return store
        before = load_trace(Path(self.request.past)).trace if self.request.past else None
        return LearningStore(store, self.replayed.cluster, before)

    def _ideal(self, policy_name: str, filling: Filling | None, made: dict[str, Any]) -> Replayed:
        request = self.request
        if request.preempt is not None:
            raise ConfigError("the ideal cluster preempts by itself, at once; use --model slurm", key="preempt")
        if policy_name == "slurm":
            raise ConfigError("slurm alone has no policy to enact; use fifo or easy, or --model slurm", key="policy")
        policy = registry.make("policies", policy_name, made["parameters"])
        placement = _placement(request)
        chosen = _filling(request.backfill) or filling or ("skip" if getattr(policy, "preemptive", False) else "block")
        physics = registry.make("physics", *parse_policy(request.physics, "physics"), key="physics")
        settings, gpus = _settings(request, physics), self.described.gpus
        config = {"model": "ideal", "nodes": list(gpus), "policy": policy_name, **made,
                  "placement": request.placement, "backfill": chosen, **settings,
                  "history": request.history or SAMPLES}  # fmt: skip
        model = IdealModel.of(settings)
        stage = profiled(self.trace, model) if model.profile_gpus else None
        trace = stage.rest if stage else self.trace
        each_order = bool(model.event_cost_s or model.costs_known) or not isinstance(placement, Count)
        self._planner = DirectPlanner(policy, placement, chosen, each_order)
        self._plugins = (policy, placement)
        if request.topology or request.physics != RECORDED:
            return replace(self._with_physics(trace, placement, physics, model, config), stage=stage)
        nodes = (sum(gpus),) if isinstance(placement, Count) else gpus
        cluster = ideal_cluster(trace, nodes, model, seed=request.seed, compiled=self._compiled)
        return Replayed(cluster, config, stage)

    def _with_physics(
        self, trace: Trace, placement: Placement, physics: Physics, model: IdealModel, config: dict[str, Any]
    ) -> Replayed:
        from slurmsched.replay.hardware import Hardware  # late: reading of topology files

        request = self.request
        if isinstance(placement, Count):
            raise ConfigError("count does not tell who is where, which physics and topology need; choose another",
                              key="placement")  # fmt: skip
        hardware = Hardware.of(self.described.layout.nodes, request.topology)
        config |= {"nodes": hardware.nodes.gpus.tolist(), "gpu_types": list(hardware.nodes.gpu_types),
                   "physics": request.physics, "topology": request.topology}  # fmt: skip
        return Replayed(PhysicsCluster(slowed(trace, model), hardware, physics, model, seed=request.seed), config)

    def _slurm(self, name: str, made: dict[str, Any]) -> Replayed:
        request, described = self.request, self.described
        if {request.backfill, name} & {"skip", "fjf", "conservative"}:
            raise ConfigError("slurmctld has no such backfill; use --model ideal", key="backfill")
        if request.topology or request.physics != RECORDED:
            raise ConfigError("only --model ideal has physics and topology", key="physics")
        told = self._steering(name, made)
        chosen = request.backfill or ("easy" if name == "easy" else "")
        settings = checked(request.settings) | ({"backfill": chosen} if chosen else {})
        model = replace(described.slurm_model, **{**told.pop("model", {}), **described.model, **settings})
        config = {"model": "slurm", "nodes": list(described.gpus), "policy": name, **made, "backfill": model.backfill,
                  "placement": request.placement, "requeue": request.requeue, "interval_s": SLURM_INTERVAL_S,
                  "slurm": {**described.settings, **described.model, **settings}, **told}  # fmt: skip
        requests = Requests.of_trace(self.trace, described.layout, cpus_known=described.cpus_known)
        if request.hints:
            requests = requests.with_columns(comment=Labels.constant(request.hints, len(requests)))
        cluster = EmbeddedCluster(self.trace, described.layout, model, seed=request.seed, requests=requests)
        return Replayed(cluster, config)

    def _steering(self, name: str, made: dict[str, Any]) -> dict[str, Any]:
        """Set the planner, if one steers Slurm. What the JSON tells of that, and `model`: what it sets of the model."""
        from slurmsched.config import Scope  # late, with pydantic: the ideal cluster does without
        from slurmsched.planning.planner import Planner
        from slurmsched.replay.bare_requeue import BareRequeue

        request = self.request
        ordered = bool(made) and name != "easy"
        policy = registry.make("policies", name, made["parameters"]) if ordered else None
        if request.preempt is not None:
            return self._preempting(policy, name, request.preempt)
        if policy is not None:
            placement = _placement(request)
            planner = Planner(policy, name, Scope(partitions=("*",)))
            preempts = request.requeue and getattr(policy, "preemptive", False)
            self._planner = BareRequeue(planner, placement) if preempts else planner
            self._plugins = (policy, placement)
        return {}

    def _preempting(self, policy: Policy | None, name: str, preempt: Mapping[str, Any]) -> dict[str, Any]:
        from slurmsched.replay.preempting import SECTIONS, Preempting

        if policy is None:
            raise ConfigError(f"{name} ranks no jobs, so that nobody can lose GPUs to another one", key="preempt")
        sections = Preempting.of(preempt)
        self._planner, self._plugins = sections.planner(policy, name), (policy,)
        told = {section: getattr(sections, section).model_dump() for section in SECTIONS}
        return told | {"hints": self.request.hints, "model": sections.model}


def _now_and_then(on_progress: Callable[[int], None], events: int = 256) -> Callable[[Any], None]:
    """Tells at every so many events only: a progress bar costs more than a cycle."""
    count = itertools.count()

    def tell(cluster: Any) -> None:
        if next(count) % events == 0 or cluster.finished:
            on_progress(cluster.ended)

    return tell


def _placement(request: Request) -> Placement:
    made: Placement = registry.make("placements", *parse_policy(request.placement, "placement"), key="placement")
    return made


def _settings(request: Request, physics: Physics) -> dict[str, Any]:
    """The fields of IdealModel that are asked for. Raises ConfigError for a cost that is told twice."""
    settings = {"round_s": request.round_s, "restart_cost_s": request.restart_cost_s, **request.settings}
    for name in ("restart_cost_s", "resize_cost_s"):
        cost_s = getattr(physics, name)
        if cost_s and settings.get(name, 0.0) not in (0.0, cost_s):
            raise ConfigError(f"is {cost_s} by the physics and {settings[name]} beside it; give one", key=name)
        settings |= {name: cost_s} if cost_s else {}
    return settings


def parse_policy(text: str, key: str = "policy") -> tuple[str, dict[str, Any]]:
    """Name and parameters of NAME[:PARAMETER=VALUE,...]; values as in the configuration file, lists in brackets.

    key: what it is, for errors. Raises ConfigError for a part that is not PARAMETER=VALUE.
    """
    name, *parts = re.split(r"[:,](?![^\[]*\])", text)
    parameters: dict[str, Any] = {}
    for part in parts:
        parameter, equals, value = part.partition("=")
        if not equals or not parameter:
            raise ConfigError(f"{part!r} is not PARAMETER=VALUE, for example {name}:PARAMETER=VALUE", key=key)
        parameters[parameter.strip()] = value_of(value)
    return name, parameters


def value_of(text: str) -> Any:
    """The value that a text stands for in a configuration file: a number, a list in brackets, ...; else the text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def history_of(path: str) -> Floats:
    """Service that completed jobs needed [GPU s], from a CSV file with one column and a heading; "" = our samples."""
    source = files("slurmsched.replay") / "traces" / SAMPLES if not path else Path(path)
    try:
        raw = source.read_bytes()
        lines = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode().split()
        return np.array(lines[1:], np.float64)
    except (OSError, ValueError) as error:
        raise InputError(f"is no column of numbers: {error}", source=str(source)) from error


def _filling(backfill: str) -> Filling | None:
    """The filling that --backfill names."""
    if backfill in ("", "none"):
        return "block" if backfill else None
    found: Filling | None = next((name for name in FILLINGS if name == backfill != "block"), None)
    if found is None:
        raise ConfigError(f"must be none, easy, conservative or skip, got {backfill!r}", key="backfill")
    return found

"""A replay on the model of slurmctld, set up from words."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from slurmsched import registry
from slurmsched.config import Scope
from slurmsched.errors import ConfigError
from slurmsched.model.columns import Labels
from slurmsched.planning.planner import Planner as DaemonPlanner
from slurmsched.protocols import Planner
from slurmsched.replay.bare_requeue import BareRequeue
from slurmsched.replay.clusters import Described
from slurmsched.replay.embedded import EmbeddedCluster
from slurmsched.replay.learning_store import learning
from slurmsched.replay.memory_store import MemoryStore
from slurmsched.replay.preempting import SECTIONS, Preempting
from slurmsched.replay.replayed import COMPILE_FROM_JOBS, SLURM_INTERVAL_S, Replayed, SetUp
from slurmsched.replay.request import RECORDED, Request, placement_of
from slurmsched.replay.requests import Requests
from slurmsched.replay.slurm_model import checked
from slurmsched.replay.traces import Trace

BARE = ("slurm", "easy")  # policies that are Slurm alone


@dataclass(frozen=True, slots=True)
class Steering:
    """Who steers Slurm. planner: None if nobody does. plugins: policy and placement. told: what the JSON tells of
    it. model: fields of SlurmModel that it sets."""

    planner: Planner | None = None
    plugins: tuple[Any, ...] = ()
    told: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)


def slurm_setup(trace: Trace, described: Described, request: Request) -> SetUp:
    """Raises ConfigError or InputError for words that name nothing or mean nothing here."""
    word, _, parameters, _ = request.discipline
    _refuse_what_only_ideal_has(request, word)
    if word in BARE and parameters:
        raise ConfigError(f"{word} is Slurm alone and has no parameter {min(parameters)!r}", key="policy")
    steering = _steering(request)
    chosen = request.backfill or ("easy" if word == "easy" else "")
    settings = checked(request.settings) | ({"backfill": chosen} if chosen else {})
    model = replace(described.slurm_model, **{**steering.model, **described.model, **settings})
    config = {"model": "slurm", "nodes": list(described.gpus), "policy": word,
              **({} if word == "slurm" else {"parameters": parameters}), "backfill": model.backfill,
              "placement": request.placement, "requeue": request.requeue, "interval_s": SLURM_INTERVAL_S,
              "slurm": {**described.settings, **described.model, **settings}, **steering.told}  # fmt: skip
    requests = Requests.of_trace(trace, described.layout, cpus_known=described.cpus_known)
    if request.hints:
        requests = requests.with_columns(comment=Labels.constant(request.hints, len(requests)))
    cluster = EmbeddedCluster(trace, described.layout, model, seed=request.seed, requests=requests)
    store = learning(MemoryStore(), steering.plugins, cluster, request.past)
    return SetUp(Replayed(cluster, config), steering.planner, store, compiled=len(trace) >= COMPILE_FROM_JOBS)


def _refuse_what_only_ideal_has(request: Request, word: str) -> None:
    if {request.backfill, word} & {"skip", "fjf", "conservative"}:
        raise ConfigError("slurmctld has no such backfill; use --model ideal", key="backfill")
    if request.topology or request.physics != RECORDED:
        raise ConfigError("only --model ideal has physics and topology", key="physics")
    if request.history:
        raise ConfigError("only --model ideal is told a history; here policies learn as jobs end", key="history")
    if request.round_s:
        raise ConfigError("only --model ideal decides in rounds; here a cycle runs every minute", key="round_s")
    if request.restart_cost_s:
        raise ConfigError("is of the ideal cluster; here it is --setting restart_cost_s=SECONDS", key="restart_cost_s")


def _steering(request: Request) -> Steering:
    word, name, parameters, _ = request.discipline
    policy = None if word in BARE else registry.make("policies", name, parameters)
    if request.preempt is not None:
        if policy is None:
            raise ConfigError(f"{word} ranks no jobs, so that nobody can lose GPUs to another one", key="preempt")
        sections = Preempting.of(request.preempt)
        told = {section: getattr(sections, section).model_dump() for section in SECTIONS} | {"hints": request.hints}
        return Steering(sections.planner(policy, word), (policy,), told, sections.model)
    if policy is None:
        return Steering()
    placement = placement_of(request)
    planner = DaemonPlanner(policy, word, Scope(partitions=("*",)))
    preempts = request.requeue and getattr(policy, "preemptive", False)
    return Steering(BareRequeue(planner, placement) if preempts else planner, (policy, placement))

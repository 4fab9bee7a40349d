"""A replay on the model of slurmctld: the planner that steers it, its preemption, and the jobs the cluster can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from slurmsched.config import (
    GangsConfig,
    JobReportsConfig,
    LeverConfig,
    OperationsConfig,
    PreemptionConfig,
    ScopeConfig,
    StarvationConfig,
)
from slurmsched.config_file import parse_config
from slurmsched.errors import ConfigError, InputError
from slurmsched.model import Plan, Ranking, Requeue, Snapshot
from slurmsched.model.columns import Bools, Int64s, Labels
from slurmsched.model.hints import parse_hints
from slurmsched.model.slurm_text import license_counts
from slurmsched.model.trace import Trace
from slurmsched.plain_text import pluralize
from slurmsched.planning import job_scope
from slurmsched.planning.planner import Planner
from slurmsched.planning.planner import Planner as DaemonPlanner
from slurmsched.protocols import ChangingPolicy, DecidingPlanner, Placement, Policy, is_preemptive
from slurmsched.resources.allocated import AllocatedGpus, holding
from slurmsched.sim.cluster_layout import DEFAULT_PARTITION, ClusterDescription, ClusterLayout
from slurmsched.sim.experiments.released_policies import make_policy
from slurmsched.sim.experiments.replay_request import RECORDED_PHYSICS, UNRANKED_POLICIES, ReplayRequest, make_placement
from slurmsched.sim.experiments.replay_result import COMPILE_FROM_JOBS, SLURM_INTERVAL_S, PreparedReplay, ReplayResult
from slurmsched.sim.moldable_starts import EVERY_PARTITION, MOLDABLE, ExpectedStartPlanner
from slurmsched.sim.replay_stores import MemoryStore, learns_from_ended_jobs
from slurmsched.sim.slurmctld.job_demands import SubmittedRequests
from slurmsched.sim.slurmctld.simulated_slurmctld import SimulatedSlurmctld
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings, checked
from slurmsched.tier_spec import Tier, read_tiers

# The preemption of the daemon, from its sections of the configuration.

SECTIONS = ("preemption", "operations", "gangs")


@dataclass(frozen=True, slots=True)
class PreemptionSections:
    """The sections by which jobs lose their GPUs, which is always enabled, and gangs are promised some."""

    preemption: PreemptionConfig
    operations: OperationsConfig
    gangs: GangsConfig

    @classmethod
    def of(cls, sections: Mapping[str, Any]) -> PreemptionSections:
        """From the sections of these names, each with its defaults. Raises ConfigError naming a wrong key."""
        if unknown := sorted(sections.keys() - set(SECTIONS)):
            raise ConfigError(f"has no part in preemption; there are {', '.join(SECTIONS)}", key=unknown[0])
        tree = {**sections, "preemption": {**sections.get("preemption", {}), "enabled": True}}
        made = parse_config(tree)
        return cls(made.preemption, made.operations, made.gangs)

    def planner(self, policy: Policy, name: str) -> Planner:
        """The daemon's planner, for every job of the trace."""
        return Planner(
            policy,
            name,
            ScopeConfig(partitions=("*",)),
            preemption=self.preemption,
            gangs=self.gangs,
            operations_config=self.operations,
        )

    @property
    def model(self) -> dict[str, Any]:
        """Fields of SlurmctldSettings: the site's restart cost; only what a signal saved survives a requeue."""
        return {"restart_cost_s": self.preemption.restart_cost_s, "checkpoint_s": math.inf}


LEAST_RUN_S = 300.0


@dataclass(frozen=True, slots=True)
class RequeuePlanner:
    """A planner that also requeues running jobs for more urgent ones, as simulators of papers let a policy preempt.

    Every job may lose its GPUs. That costs Slurm's delays and the restart, nothing else. Only the order of the queue
    keeps the nodes for the job that they are meant for. So this shows what a policy could gain if all jobs can be
    moved. The daemon never works like this: it needs a hint, sends signals and reserves
    (planning.operations.preemption).

    planner: orders the waiting jobs.
    placement: says who would hold which GPUs.
    least_run_s: a job runs at least this long before it is requeued [s]. A requeue costs Slurm's kill wait and a
        restart.
    """

    planner: Planner
    placement: Placement
    least_run_s: float = LEAST_RUN_S

    def plan(self, snapshot: Snapshot) -> Plan:
        """The planner's plan, and the requeues behind it: the freed GPUs go to whom they are meant for."""
        plan = self.planner.plan(snapshot)
        assert plan.ranking is not None
        movable = plan.managed | (snapshot.jobs.running & job_scope.scoped(snapshot.jobs, self.planner.scope))
        return replace(plan, actions=(*plan.actions, *self.requeues(snapshot, plan.ranking, movable)))

    def requeues(self, snapshot: Snapshot, ranking: Ranking, movable: Bools) -> tuple[Requeue, ...]:
        """One Requeue for each running job whose GPUs a more urgent eligible job gets, least urgent first.

        movable: (N,) bool, jobs that slurmsched may take part in ordering (pending) or requeue (running) at all.
        Jobs that may not be requeued keep their GPUs, whatever their rank. A job is never requeued for nothing:
        the gang that displaces it fits whole.
        """
        jobs = snapshot.jobs
        reclaimable = self.reclaimable(snapshot) & movable
        order = _running_first(ranking.order, holding(jobs) & ~reclaimable, movable & (jobs.pending | reclaimable))
        assigned = self.placement.place(snapshot, Ranking(order))
        if not jobs.pending[assigned.rows].any():
            return ()
        served = np.zeros(len(jobs), np.bool_)
        served[assigned.rows] = True
        victims = [row for row in order[::-1].tolist() if reclaimable[row] and not served[row]]
        places = {row: place for place, row in enumerate(order.tolist())}
        return tuple(
            Requeue(
                int(jobs.job_id[row]),
                float(jobs.submit_s[row]),
                f"more urgent jobs get its GPUs; rank {places[row] + 1}",
            )
            for row in victims
        )

    def reclaimable(self, snapshot: Snapshot) -> Bools:
        """Running jobs that had their least run and that neither Slurm nor `preempt=no` keeps. (N,) bool.

        Of a job whose GPUs Slurm does not place nobody can tell what a requeue would free: it stays.
        """
        jobs, placed = snapshot.jobs, AllocatedGpus.of(snapshot).count > 0
        plain = jobs.batch & jobs.requeueable & ~jobs.cron & (jobs.het_job_id == 0)
        plain &= jobs.comment.map(lambda comment: parse_hints(comment).preempt is not False, np.bool_)
        return jobs.running & holding(jobs) & plain & placed & (jobs.gpus > 0) & (jobs.run_s >= self.least_run_s)


@dataclass(frozen=True, slots=True)
class QuietTimes:
    """Until when a plan that does nothing is followed by equal ones while nothing happens.

    The ages that Slurm's priority counts change by themselves, and the order of a ChangingPolicy: what that says of its
    next change holds for the jobs that would start, not for the whole order. For a while after the last event it also
    changes who may be requeued, and which ended jobs are shown. A job that waits alone has no order, but a
    ChangingPolicy may requeue others for it at any time. Source: slurmsched.
    """

    policy: Policy
    requeues: bool
    model: SlurmctldSettings

    def until(self, snapshot: Snapshot, plan: Plan) -> float:
        """When another plan may differ [s]; minus infinity if at any time."""
        ranking, now_s = plan.ranking, snapshot.now_s
        does = plan.actions or plan.deferred or plan.operations or plan.overrides
        if does or ranking is None or ranking.carry or not self._settled(snapshot):
            return -math.inf
        pending = snapshot.jobs.pending
        if isinstance(self.policy, ChangingPolicy) and (self.requeues or pending.sum() > 1):
            return -math.inf
        if pending.sum() < 2:
            return math.inf
        young = (now_s - snapshot.jobs.eligible_s < self.model.max_age_s)[pending].any()
        return now_s - now_s % self.model.calc_period_s + self.model.calc_period_s if young else math.inf

    def _settled(self, snapshot: Snapshot) -> bool:
        """Whether no job has started or ended of late."""
        jobs = snapshot.jobs
        return not (jobs.finished | (jobs.running & (jobs.run_s < LEAST_RUN_S))).any()


def _running_first(order: Int64s, firm: Bools, ranked: Bools) -> Int64s:
    """Rows that keep their GPUs, then the ranked ones in their order."""
    return np.concatenate([order[firm[order]], order[ranked[order]]])


# A replay on the model of slurmctld.


@dataclass(frozen=True, slots=True)
class PlannerWithStore:
    """Who steers Slurm.

    planner: None if nobody does.
    plugins: policy and placement.
    config: what the JSON says of it.
    model: fields of SlurmctldSettings that it sets.
    orders: its plan needs the policy's order alone.
    requeues: it requeues running jobs.
    """

    planner: DecidingPlanner | None = None
    plugins: tuple[Any, ...] = ()
    config: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    orders: bool = False
    requeues: bool = False


def slurm_setup(trace: Trace, described: ClusterDescription, request: ReplayRequest) -> PreparedReplay:
    """Raises ConfigError or InputError for words that name nothing or mean nothing here."""
    word, _, parameters, _ = request.discipline
    _refuse_what_only_ideal_has(request, word)
    if word in UNRANKED_POLICIES and parameters:
        raise ConfigError(f"{word} is Slurm alone and has no parameter {min(parameters)!r}", key="policy")
    steering = _steering(request)
    chosen = request.backfill or ("easy" if word == "easy" else "")
    settings = checked(request.settings) | ({"backfill": chosen} if chosen else {})
    model = replace(described.slurm_model, **{**steering.model, **described.model, **settings})
    config = {"model": "slurm", "nodes": list(described.gpus), "policy": word,
              **({} if word == "slurm" else {"parameters": parameters}), "backfill": model.backfill,
              "placement": request.placement, "requeue": request.requeue, "interval_s": SLURM_INTERVAL_S,
              "slurm": {**described.settings, **described.model, **settings}, **steering.config}  # fmt: skip
    requests = SubmittedRequests.of_trace(trace, described.layout, cpus_known=described.cpus_known)
    if request.hints and not request.moldable:  # else the trace has them, with run times
        requests = requests.with_columns(comment=Labels.constant(request.hints, len(requests)))
    cluster = SimulatedSlurmctld(trace, described.layout, model, seed=request.seed, requests=requests)
    store = learns_from_ended_jobs(MemoryStore(), steering.plugins, cluster, request.past)
    quiet = steering.orders and model.calc_period_s > 0
    planner = steering.planner
    if planner is not None and (request.moldable or model.resizes):
        planner = ExpectedStartPlanner(planner, described.cpus_known)
    return PreparedReplay(
        ReplayResult(cluster, config), planner, store, compiled=len(trace) >= COMPILE_FROM_JOBS,
        stands_until=QuietTimes(steering.plugins[0], steering.requeues, model).until if quiet else None,
    )  # fmt: skip


def _refuse_what_only_ideal_has(request: ReplayRequest, word: str) -> None:
    if {request.backfill, word} & {"skip", "fjf", "conservative"}:
        raise ConfigError("slurmctld has no such backfill; use --model ideal", key="backfill")
    if request.topology or request.physics != RECORDED_PHYSICS:
        raise ConfigError("only --model ideal has physics and topology", key="physics")
    if request.history:
        raise ConfigError("--history works only with --model ideal", key="history")
    if request.round_s:
        raise ConfigError("only --model ideal decides in rounds; here a cycle runs every minute", key="round_s")
    if request.restart_cost_s:
        raise ConfigError("is of the ideal cluster; here it is --setting restart_cost_s=SECONDS", key="restart_cost_s")


def _tiers(request: ReplayRequest) -> tuple[Tier, ...]:
    """The tiers of the request. Raises ConfigError."""
    try:
        return read_tiers(request.tiers)
    except ValueError as error:
        raise ConfigError(str(error), key="tiers") from None


def _steering(request: ReplayRequest) -> PlannerWithStore:
    word, name, parameters, _ = request.discipline
    policy = None if word in UNRANKED_POLICIES else make_policy(name, parameters)
    tiers, starvation = _tiers(request), StarvationConfig(age_cap_s=request.age_cap_s)
    resizes = bool(request.settings.get("resizes"))
    lever = MOLDABLE if request.moldable else LeverConfig(size=resizes)
    reports = JobReportsConfig(sizes=resizes)
    if request.preempt is not None:
        if policy is None:
            raise ConfigError(f"{word} ranks no jobs, so it preempts none", key="preempt")
        sections = PreemptionSections.of(request.preempt)
        config: dict[str, Any] = {section: getattr(sections, section).model_dump() for section in SECTIONS}
        planner = replace(sections.planner(policy, word), tiers=tiers, starvation=starvation, lever=lever,
                          reports=reports)  # fmt: skip
        return PlannerWithStore(planner, (policy,), config | {"hints": request.hints}, sections.model)
    if policy is None:
        return PlannerWithStore()  # Slurm's own priority has the tiers in it
    placement = make_placement(request)
    planner = DaemonPlanner(policy, word, EVERY_PARTITION, lever, tiers=tiers, starvation=starvation, reports=reports)
    preempts = request.requeue and is_preemptive(policy)
    config = {"tiers": list(request.tiers)} if tiers else {}
    config |= {"age_cap_s": request.age_cap_s} if request.age_cap_s else {}
    config |= {"moldable": True} if request.moldable else {}
    steered = RequeuePlanner(planner, placement) if preempts else planner
    orders = not (tiers or request.age_cap_s or request.moldable or resizes)
    return PlannerWithStore(steered, (policy, placement), config, orders=orders, requeues=preempts)


# Jobs that the cluster can hold.

NAMES_SHOWN = 3


def fitted_trace(trace: Trace, described: ClusterDescription) -> tuple[Trace, tuple[str, ...]]:
    """The jobs that the cluster may hold, and what was left out, as text.

    Left out are jobs that do not count and that have no partition here or, where the CPUs are not known, no GPUs; and
    constraints that no node of the cluster satisfies.
    """
    trace, dropped = _without_strangers(trace, described)
    trace, ignored = _without_unknown_features(trace, described.layout)
    return trace, (*dropped, *ignored, *_strange_licenses(trace, described.layout))


def _strange_licenses(trace: Trace, layout: ClusterLayout) -> list[str]:
    """What to tell of licences that the cluster lacks."""
    missing = {text: sorted(license_counts(text).keys() - layout.licenses.keys()) for text in trace.licenses.names}
    jobs = int(trace.licenses.isin([text for text, names in missing.items() if names]).sum())
    shown = ", ".join(list(dict.fromkeys(name for names in missing.values() for name in names))[:NAMES_SHOWN])
    return [
        f"the cluster has no licences {shown}: those of {pluralize(jobs, 'job')} do not count; they may start too early"
    ] if jobs else []  # fmt: skip


def _without_strangers(trace: Trace, described: ClusterDescription) -> tuple[Trace, list[str]]:
    warnings = list[str]()
    strange = ~trace.counted & (trace.gpus == 0) & (not described.cpus_known)
    if strange.any():
        jobs = pluralize(int(strange.sum()), "job")
        warnings.append(f"the cluster has no CPUs given: {jobs} without GPUs left out")
    missing = _missing_partitions(trace, described.layout)
    elsewhere = ~trace.counted & ~strange & trace.partition.isin(missing)
    if elsewhere.any():
        shown = ", ".join(missing[:NAMES_SHOWN])
        jobs = pluralize(int(elsewhere.sum()), "job that does not count", "jobs that do not count")
        lacking = f"no partition {shown} in this cluster: {jobs} left out"
        warnings.append(f"{lacking}; --map {missing[0]}=NAME renames it")
    dropped = strange | elsewhere
    return (trace.take(~dropped) if dropped.any() else trace), warnings


def _missing_partitions(trace: Trace, layout: ClusterLayout) -> list[str]:
    """Partitions of jobs that do not count which the cluster lacks; none where it has no partitions of its own."""
    known = {partition.name for partition in layout.partitions} | {""}
    if layout.partitions[0].name == DEFAULT_PARTITION and len(layout.partitions) == 1:
        return []
    names = trace.partition.take(~trace.counted).names
    return [name for name in names if name.partition(",")[0] not in known]


def _without_unknown_features(trace: Trace, layout: ClusterLayout) -> tuple[Trace, list[str]]:
    rows = _unsatisfied(trace, layout)
    if not rows.any():
        return trace, []
    kept = Labels.of(["" if gone else text for text, gone in zip(trace.constraint, rows.tolist(), strict=True)])
    shown = ", ".join(trace.constraint.take(rows).names[:NAMES_SHOWN])
    warning = (f"no node here has the features {shown}: the constraints of {pluralize(int(rows.sum()), 'job')} do not "
               "count; they may start on other nodes, too early")  # fmt: skip
    return trace.with_columns(constraint=kept), [warning]


def _unsatisfied(trace: Trace, layout: ClusterLayout) -> Bools:
    """Jobs whose constraint no node of their partition satisfies. (J,)."""
    wanted, parts = trace.constraint, trace.partition
    if not wanted.any_text:
        return np.zeros(len(trace), np.bool_)
    masks = {partition.name: layout.mask(partition.nodes) for partition in layout.partitions}
    pairs, place = np.unique(np.stack([wanted.codes, parts.codes]), axis=1, return_inverse=True)
    unmet = [not _satisfied(layout, wanted.names[text], masks.get(parts.names[part].partition(",")[0]))
             for text, part in pairs.T.tolist()]  # fmt: skip
    return np.array(unmet, np.bool_)[place.reshape(-1)]


def _satisfied(layout: ClusterLayout, text: str, members: Bools | None) -> bool:
    """Whether a node has the features. members: the nodes that count, None = all."""
    try:
        found = layout.with_features(text)
    except InputError:
        return False
    return bool((found if members is None else found & members).any())

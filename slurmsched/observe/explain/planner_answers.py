"""What the planner says of a job: the terms of its run time, what it keeps of its speed beside others, and whether it
may be preempted."""

from __future__ import annotations

from math import isfinite

from slurmsched.config import PreemptionConfig, ScopeConfig
from slurmsched.estimators.group_speeds import MOST_JOBS, SOURCES, GroupSpeeds
from slurmsched.estimators.throughput_table import kind_of_job
from slurmsched.model.hints import parse_hints
from slurmsched.model.operations import OperationStage
from slurmsched.model.plan import Plan
from slurmsched.model.snapshot import Snapshot
from slurmsched.observe.explain.wording import sbatch_time
from slurmsched.plain_text import pluralize
from slurmsched.planning.job_overrides import SHARD_FIELDS, SIZE_FIELDS, JobOverrides, by_job
from slurmsched.planning.operations.victims import (
    VICTIM_RULES,
    preemption_case,
    restart_cost_source,
    restart_costs_s,
    victim_verdicts,
)
from slurmsched.protocols import ExplainingEstimator
from slurmsched.resources.allocated import holding
from slurmsched.resources.node_gpus import jobs_beside, jobs_to_join

DAYS = ("Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday")


def run_time_terms(planner: object, snapshot: Snapshot, row: int) -> tuple[str, ...]:
    """One line for the whole, then one for each factor, the greatest first; () where the planner cannot tell, or its
    policy's estimator has learnt nothing yet."""
    terms = planner.terms(snapshot) if isinstance(planner, ExplainingEstimator) else None
    if terms is None:
        return ()
    total_s = float(terms.usual_s * terms.factor[row].prod())
    pairs = list(zip(terms.names, terms.value[row].tolist(), terms.factor[row].tolist(), strict=True))
    pairs.sort(key=lambda each: -max(each[2], 1.0 / each[2]))
    first = f"run time {_time(total_s)}: the usual {_time(terms.usual_s)}, times the factors below"
    return (first, *(f"x {factor:.2f} for {_named(name, value)}" for name, value, factor in pairs))


def _named(name: str, value: float) -> str:
    """A factor's name with what the job has there."""
    if not isfinite(value):
        return f"{name}: none is known"
    if name.startswith("mean"):
        return f"{name}: {_time(value)}"
    if name == "weekday":
        return f"{name}: {DAYS[int(value) % 7]}, UTC"
    return f"{name}: {value:g}" + (" h, UTC" if name == "hour" else "")


def _time(time_s: float) -> str:
    """A duration; below a minute in seconds."""
    return f"{time_s:.0f} s" if time_s < 60 else sbatch_time(time_s)


# The size of an elastic job.


def size_outlook(snapshot: Snapshot, plan: Plan | None, row: int) -> str:
    """The size or part of a GPU that a job has by slurmsched, or why it gets none; "" if nothing is on record."""
    jobs, job_id = snapshot.jobs, int(snapshot.jobs.job_id[row])
    for record in by_job(snapshot.overrides, (*SIZE_FIELDS, *SHARD_FIELDS)):
        size = record.request
        if record.job_id == job_id and size.open and not record.abandoned:
            return _sent_words(record, int(jobs.gpus[row]))
        if record.job_id == job_id and record.abandoned and jobs.pending[row]:
            return f"it keeps what it asks for: {record.note}"
    refused = () if plan is None else (one for one in plan.refused if one.job_id == job_id)
    mine = (one for one in refused if one.rule.startswith(("size-", "share-")))
    return next((f"it keeps what it asks for: {one.reason}" for one in mine), "")


def _sent_words(record: JobOverrides, gpus: int) -> str:
    own = f"its own request is {record.request.base}"
    if not record.of_shards:
        return f"{pluralize(gpus, 'GPU')} by the policy; {own}"
    where = f" on {record.nodes.sent}" if record.nodes.open else ""
    return f"a part of a GPU, {record.request.sent}{where}: {record.note}; {own}"


# Interference.


def interference_outlook(snapshot: Snapshot, row: int, speeds: GroupSpeeds) -> str:
    """What a job keeps of its speed beside those on the GPU that it shares or is to share, and how that is known.

    "" where there are none, or Slurm does not show them.
    """
    others = jobs_beside(snapshot, row) or jobs_to_join(snapshot, row)
    if not others:
        return ""
    kinds, ids = [kind_of_job(snapshot.jobs, each) for each in (row, *others)], snapshot.jobs.job_id
    if len(kinds) > MOST_JOBS:
        return f"beside {pluralize(len(others), 'job')}: what they keep of their speeds is not known"
    kept, source = speeds.kept_by(kinds, 0, 1)
    theirs = (f"job {ids[each]} {speeds.kept_by(kinds, place, 1)[0]:.2f}" for place, each in enumerate(others, 1))
    names = " and ".join(f"job {ids[each]}" for each in others)
    return f"beside {names}: {kept:.2f} of its speed, {SOURCES[source]}; of theirs {', '.join(theirs)}"


# Whether a running job may be asked to make way for another one, and what its restart counts as.


def preemption_outlook(snapshot: Snapshot, row: int, config: PreemptionConfig, scope: ScopeConfig) -> str:
    """In words; "" for a job that holds no GPUs, and where preemption is off."""
    if not config.enabled or not holding(snapshot.jobs)[row]:
        return ""
    case = preemption_case(snapshot, config, scope)
    rule = int(victim_verdicts(case)[row])
    may = "it may be asked to make way" if rule < 0 else f"it keeps its GPUs: {VICTIM_RULES[rule].text(config)}"
    may = _leaving(snapshot, row) or may
    cost_s = restart_costs_s(snapshot.jobs, config.restart_cost_s)[row]
    counts = f"a restart counts as {cost_s:.0f} s, by {restart_cost_source(snapshot.jobs, row)}"
    loses_all = config.without_checkpoint and parse_hints(snapshot.jobs.comment[row]).ckpt is None
    return f"{may}; {counts}" + ", and all it has done, as it has no ckpt hint" * loses_all


def _leaving(snapshot: Snapshot, row: int) -> str:
    """That this run of the job is to leave its GPUs, and for which job; "" if it is not, or not any more."""
    run = int(snapshot.jobs.job_id[row]), int(snapshot.jobs.restarts[row])
    for operation in snapshot.operations:
        over = operation.stage in (OperationStage.CLEANING, OperationStage.REVERSING, OperationStage.CLOSED)
        if not over and any((victim.job_id, victim.restarts) == run for victim in operation.victims):
            return f"it is being asked to make way for job {operation.job_id}"
    return ""

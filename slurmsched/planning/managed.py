"""Which jobs slurmsched may move, and the one reason why not for each other one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slurmsched.config import Scope
from slurmsched.model import Jobs, JobState, Snapshot
from slurmsched.model.columns import Bools
from slurmsched.model.plan import Refusal
from slurmsched.planning.levers import LEVERS


@dataclass(frozen=True, slots=True)
class JobRule:
    """One reason to leave a job alone. in_scope: whether people are told of each such job. lever: "" = any."""

    name: str
    reason: str
    catches: Callable[[Jobs, Scope], Bools]
    in_scope: bool = True
    lever: str = ""


def _other_partition(jobs: Jobs, scope: Scope) -> Bools:
    if "*" in scope.partitions:
        return np.zeros(len(jobs), np.bool_)
    known = frozenset(scope.partitions)
    return jobs.partition.map(lambda listed: not known.issuperset(listed.split(",")), np.bool_)


def _outside(column: str, setting: str) -> Callable[[Jobs, Scope], Bools]:
    def catches(jobs: Jobs, scope: Scope) -> Bools:
        named = getattr(scope, setting)
        return ~getattr(jobs, column).isin(named) if named else np.zeros(len(jobs), np.bool_)

    return catches


def _no_gpu(jobs: Jobs, scope: Scope) -> Bools:
    return (jobs.gpus + jobs.mig_devices + jobs.shards == 0) & scope.gpu_jobs_only


def _revoked(jobs: Jobs, _: Scope) -> Bools:
    return jobs.is_state(JobState.REVOKED)


def _hidden(jobs: Jobs, _: Scope) -> Bools:
    return LEVERS["site_factor"].hidden(jobs)


def _het_component(jobs: Jobs, _: Scope) -> Bools:
    return (jobs.het_job_id > 0) & (jobs.het_offset > 0)


def _array_task(jobs: Jobs, _: Scope) -> Bools:
    return follows_array(jobs)


def _several_types(jobs: Jobs, _: Scope) -> Bools:
    return ~jobs.gpu_request.map(lambda text: text.startswith("gpu:") and "," not in text, np.bool_)


# The first rule that catches a job is its reason.
JOB_RULES = (
    JobRule("not-pending", "it is not pending", lambda jobs, _: ~jobs.pending, in_scope=False),
    JobRule("partition", "not all its partitions are in scope.partitions", _other_partition, in_scope=False),
    JobRule("account", "its account is not in scope.accounts", _outside("account", "accounts"), in_scope=False),
    JobRule("qos", "its QOS is not in scope.qos", _outside("qos", "qos"), in_scope=False),
    JobRule("no-gpu", "it asks for no GPU", _no_gpu, in_scope=False),
    JobRule("cron", "Slurm refuses every change of a scrontab job", lambda jobs, _: jobs.cron),
    JobRule("held", "it is held; it gets its place when it is released", lambda jobs, _: jobs.held),
    JobRule("revoked", "it belongs to another cluster of the federation", _revoked),
    JobRule("pinned", "an operator set its priority, so no lever acts on it", lambda jobs, _: jobs.pinned),
    JobRule("backoff", "its nice or site factor was changed behind our back lately", lambda jobs, _: jobs.backoff),
    JobRule("hidden", "Slurm shows no site factor of a job that is not eligible yet", _hidden, lever="site_factor"),
    JobRule("het", "a het component follows its leader", _het_component, in_scope=False),
    JobRule("array", "an array task follows its array", _array_task, in_scope=False),
    JobRule("basic", "priority/basic orders jobs, and no lever can", lambda jobs, _: np.zeros(len(jobs), np.bool_)),
)  # fmt: skip
BASIC_RULE = len(JOB_RULES) - 1  # at a site where it holds, of every job that no other rule catches

# As JOB_RULES, of giving a job a node list. What its own request bars is told from it (planning/pin_walk.py).
PIN_RULES = (
    JobRule("pin-array", "Slurm takes no node list of an array back", lambda jobs, _: jobs.array_job_id > 0),
    JobRule("pin-het", "the components of a het job are placed together", lambda jobs, _: jobs.het_job_id > 0),
    JobRule("pin-own", "its user named its nodes", lambda jobs, _: ~jobs.nodes_asked.isin([""])),
)  # fmt: skip

# As JOB_RULES, of another number of GPUs.
SIZE_RULES = (
    JobRule("size-array", "the request of an array is that of all its tasks", lambda jobs, _: jobs.array_job_id > 0),
    JobRule("size-het", "the components of a het job keep their sizes", lambda jobs, _: jobs.het_job_id > 0),
    JobRule("size-several", "only a job of one node changes its size", lambda jobs, _: jobs.nodes != 1),
    JobRule("size-types", "it asks for GPUs of several types, or for parts of one", _several_types),
)  # fmt: skip

# As JOB_RULES, of giving a job an earliest start.
START_RULES = (
    JobRule("start-array", "the start of an array is that of all its tasks", lambda jobs, _: jobs.array_job_id > 0),
    JobRule("start-het", "the components of a het job start together", lambda jobs, _: jobs.het_job_id > 0),
)


_SCOPE = frozenset({"partition", "account", "qos", "no-gpu"})  # the rules that tell who is out of scope


def scoped(jobs: Jobs, scope: Scope) -> Bools:
    """Whether partition, account, QOS and GPUs of each job are in scope, whatever its state. (N,) bool."""
    return ~np.any([rule.catches(jobs, scope) for rule in JOB_RULES if rule.name in _SCOPE], axis=0)


def out_of_scope(jobs: Jobs, scope: Scope, lever: str) -> Bools:
    """Jobs that nothing but the scope keeps from the lever: one that has a value of ours may get its own back. (N,)."""
    others = [rule for rule in JOB_RULES if rule.name not in _SCOPE and rule.lever in ("", lever)]
    return ~scoped(jobs, scope) & ~np.any([rule.catches(jobs, scope) for rule in others], axis=0)


def follows_array(jobs: Jobs) -> Bools:
    """Pending tasks whose array still has its own pending record: writing that one writes them too. (N,) bool."""
    meta = jobs.pending & (jobs.array_job_id == jobs.job_id) & (jobs.job_id > 0)
    return (jobs.array_job_id > 0) & ~meta & np.isin(jobs.array_job_id, jobs.job_id[meta])


def verdicts(snapshot: Snapshot, scope: Scope, lever: str) -> NDArray[np.int8]:
    """The rule that leaves each job alone: index into JOB_RULES, -1 for one that the lever may move. (N,) int8."""
    verdict = _first(JOB_RULES, snapshot.jobs, scope, lever)
    if not snapshot.site.multifactor:
        verdict[verdict < 0] = BASIC_RULE
    return verdict


def pin_verdicts(jobs: Jobs, scope: Scope) -> NDArray[np.int8]:
    """The rule that keeps each job from a node list of ours: index into PIN_RULES, -1 for none. (N,) int8."""
    return _first(PIN_RULES, jobs, scope, "")


def size_verdicts(jobs: Jobs, scope: Scope) -> NDArray[np.int8]:
    """The rule that keeps each job at its number of GPUs: index into SIZE_RULES, -1 for none. (N,) int8."""
    return _first(SIZE_RULES, jobs, scope, "")


def start_verdicts(jobs: Jobs, scope: Scope) -> NDArray[np.int8]:
    """The rule that keeps each job from an earliest start of ours: index into START_RULES, -1 for none. (N,) int8."""
    return _first(START_RULES, jobs, scope, "")


def _first(rules: Sequence[JobRule], jobs: Jobs, scope: Scope, lever: str) -> NDArray[np.int8]:
    verdict = np.full(len(jobs), -1, np.int8)
    for index, rule in enumerate(rules):
        if rule.lever in ("", lever):
            verdict[(verdict < 0) & rule.catches(jobs, scope)] = index
    return verdict


def refusals(
    snapshot: Snapshot, verdict: NDArray[np.int8], rules: Sequence[JobRule] = JOB_RULES
) -> tuple[Refusal, ...]:
    """One refusal for every job in scope that is left alone."""
    told = np.array([rule.in_scope for rule in rules] + [False])
    rows = np.flatnonzero(told[verdict])
    pairs = zip(snapshot.jobs.job_id[rows].tolist(), verdict[rows].tolist(), strict=True)
    return tuple(Refusal(job_id, rules[index].name, rules[index].reason) for job_id, index in pairs)

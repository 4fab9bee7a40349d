"""Which jobs slurmsched may change, and for each other job the one reason why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from slurmsched.config import ScopeConfig
from slurmsched.model import Jobs, JobState, Ranking, Rights, SetNice, SetSiteFactor, Snapshot
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.hints import parse_hints
from slurmsched.model.plan import Action, Refusal, SetPriority
from slurmsched.planning.priorities.priority_fields import PRIORITY_FIELDS, PriorityField
from slurmsched.planning.proposals import Budget, Lever, Proposal

if TYPE_CHECKING:
    from slurmsched.planning.planner import Planner


@dataclass(frozen=True, slots=True)
class JobRule:
    """One reason not to change a job. in_scope: whether `plan` lists each such job. lever: "" = any."""

    name: str
    reason: str
    catches: Callable[[Jobs, ScopeConfig], Bools]
    in_scope: bool = True
    lever: str = ""


def _other_partition(jobs: Jobs, scope: ScopeConfig) -> Bools:
    if "*" in scope.partitions:
        return np.zeros(len(jobs), np.bool_)
    known = frozenset(scope.partitions)
    return jobs.partition.map(lambda listed: not known.issuperset(listed.split(",")), np.bool_)


def _outside(column: str, setting: str) -> Callable[[Jobs, ScopeConfig], Bools]:
    def catches(jobs: Jobs, scope: ScopeConfig) -> Bools:
        named = getattr(scope, setting)
        return ~getattr(jobs, column).isin(named) if named else np.zeros(len(jobs), np.bool_)

    return catches


def _no_gpu(jobs: Jobs, scope: ScopeConfig) -> Bools:
    return (jobs.gpus + jobs.mig_devices + jobs.shards == 0) & scope.gpu_jobs_only


def _revoked(jobs: Jobs, _: ScopeConfig) -> Bools:
    return jobs.is_state(JobState.REVOKED)


def _is_hidden(jobs: Jobs, _: ScopeConfig) -> Bools:
    return PRIORITY_FIELDS["site_factor"].hidden(jobs)


def _het_component(jobs: Jobs, _: ScopeConfig) -> Bools:
    return (jobs.het_job_id > 0) & (jobs.het_offset > 0)


def _array_task(jobs: Jobs, _: ScopeConfig) -> Bools:
    return follows_array(jobs)


def _odd_array(jobs: Jobs, _: ScopeConfig) -> Bools:
    """Tasks that have a record of their own, and arrays whose size is a number of nodes or tasks: scontrol refuses."""
    parts = (jobs.nodes > 1) | jobs.gpus_by.isin(["task"])
    return (jobs.array_job_id > 0) & (~jobs.pending | (jobs.array_job_id != jobs.job_id) | parts)


def _uneven(jobs: Jobs, _: ScopeConfig) -> Bools:
    """Jobs whose nodes, or tasks, cannot each keep what they have when their number changes."""
    parts = np.where(jobs.gpus_by.isin(["task"]), jobs.tasks, jobs.nodes)
    counts = (jobs.gpus, jobs.tasks, jobs.cpus)
    even = (parts > 0) & (jobs.tasks > 0) & np.all([count % np.maximum(parts, 1) == 0 for count in counts], axis=0)
    return ((jobs.nodes > 1) | jobs.gpus_by.isin(["task"])) & ~even


def size_units(jobs: Jobs) -> Int64s:
    """GPUs by which a job grows and shrinks: those of a node where it asks by node for several, or of a task; else 1.

    (N,) int64."""
    parts = np.where(jobs.gpus_by.isin(["task"]), jobs.tasks, np.where(jobs.nodes > 1, jobs.nodes, jobs.gpus))
    return np.maximum(jobs.gpus // np.maximum(parts, 1), 1).astype(np.int64)


def policy_gpus(ranking: Ranking, jobs: Jobs) -> Int64s:
    """GPUs that the policy gives each job, 0 = none, or it says nothing. (N,) int64, a copy."""
    gpus = None if ranking.changes is None else ranking.changes.gpus
    return np.zeros(len(jobs), np.int64) if gpus is None else np.array(gpus, np.int64)


def _several_types(jobs: Jobs, _: ScopeConfig) -> Bools:
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
    JobRule(
        "fixed-priority", "an operator set its priority, so no lever acts on it", lambda jobs, _: jobs.fixed_priority
    ),
    JobRule("backoff", "somebody else changed its nice or site factor lately", lambda jobs, _: jobs.backoff),
    JobRule("hidden", "Slurm shows no site factor of a job that is not eligible yet", _is_hidden, lever="site_factor"),
    JobRule("het", "a het component follows its leader", _het_component, in_scope=False),
    JobRule("array", "an array task follows its array", _array_task, in_scope=False),
    JobRule("basic", "priority/basic orders jobs, and no lever can", lambda jobs, _: np.zeros(len(jobs), np.bool_)),
)  # fmt: skip
BASIC_RULE = len(JOB_RULES) - 1  # at a site where it holds, of every job that no other rule catches

# As JOB_RULES, of giving a job a node list. Its own request may bar it too (planning/node_lists/gpu_picks.py).
NODE_LIST_RULES = (
    JobRule("pin-array", "Slurm takes no node list of an array back", lambda jobs, _: jobs.array_job_id > 0),
    JobRule("pin-het", "the components of a het job are placed together", lambda jobs, _: jobs.het_job_id > 0),
    JobRule("pin-own", "its user named its nodes", lambda jobs, _: ~jobs.nodes_asked.isin([""])),
)  # fmt: skip

# As JOB_RULES, of another number of GPUs.
SIZE_RULES = (
    JobRule("size-array", "only an array as a whole changes its size, and only on one node", _odd_array),
    JobRule("size-het", "the components of a het job keep their sizes", lambda jobs, _: jobs.het_job_id > 0),
    JobRule("size-several", "it takes several nodes, and does not ask for its GPUs by node",
            lambda jobs, _: (jobs.nodes > 1) & ~jobs.gpus_by.isin(["node"])),
    JobRule("size-socket", "it asks for its GPUs by socket", lambda jobs, _: jobs.gpus_by.isin(["socket"])),
    JobRule("size-uneven", "its GPUs, tasks and CPUs are not spread evenly over its nodes or tasks", _uneven),
    JobRule("size-types", "it asks for GPUs of several types, or for parts of one", _several_types),
)  # fmt: skip

# As JOB_RULES, of giving a job an earliest start.
START_RULES = (
    JobRule("start-array", "the start of an array is that of all its tasks", lambda jobs, _: jobs.array_job_id > 0),
    JobRule("start-het", "the components of a het job start together", lambda jobs, _: jobs.het_job_id > 0),
)


_SCOPE = frozenset({"partition", "account", "qos", "no-gpu"})  # the rules that tell who is out of scope


def scoped(jobs: Jobs, scope: ScopeConfig) -> Bools:
    """Whether partition, account, QOS and GPUs of each job are in scope, whatever its state. (N,) bool."""
    return ~np.any([rule.catches(jobs, scope) for rule in JOB_RULES if rule.name in _SCOPE], axis=0)


def out_of_scope(jobs: Jobs, scope: ScopeConfig, lever: str) -> Bools:
    """Jobs that nothing but the scope keeps from the lever: one that has a value of ours may get its own back. (N,)."""
    others = [rule for rule in JOB_RULES if rule.name not in _SCOPE and rule.lever in ("", lever)]
    return ~scoped(jobs, scope) & ~np.any([rule.catches(jobs, scope) for rule in others], axis=0)


def has_id_of_array(jobs: Jobs) -> Bools:
    """Arrays, and the task of each that starts last. Slurm signals and requeues all tasks by this id. (N,) bool."""
    return (jobs.array_job_id > 0) & (jobs.array_job_id == jobs.job_id)


def follows_array(jobs: Jobs) -> Bools:
    """Pending tasks whose array still has its own pending record: writing that one writes them too. (N,) bool."""
    meta = jobs.pending & (jobs.array_job_id == jobs.job_id) & (jobs.job_id > 0)
    return (jobs.array_job_id > 0) & ~meta & np.isin(jobs.array_job_id, jobs.job_id[meta])


def verdicts(snapshot: Snapshot, scope: ScopeConfig, lever: str) -> NDArray[np.int8]:
    """The rule that leaves each job alone: index into JOB_RULES, -1 for one that the lever may move. (N,) int8."""
    verdict = _first_verdict(JOB_RULES, snapshot.jobs, scope, lever)
    if not snapshot.site.multifactor:
        verdict[verdict < 0] = BASIC_RULE
    return verdict


def node_list_verdicts(jobs: Jobs, scope: ScopeConfig) -> NDArray[np.int8]:
    """The rule that keeps each job from a node list of ours: index into NODE_LIST_RULES, -1 for none. (N,) int8."""
    return _first_verdict(NODE_LIST_RULES, jobs, scope, "")


def size_verdicts(jobs: Jobs, scope: ScopeConfig) -> NDArray[np.int8]:
    """The rule that keeps each job at its number of GPUs: index into SIZE_RULES, -1 for none. (N,) int8."""
    return _first_verdict(SIZE_RULES, jobs, scope, "")


def size_request_refusal(jobs: Jobs, row: int, gpus: int, scope: ScopeConfig) -> str:
    """Why a running job may not be asked to run on this number of GPUs; "" if it may."""
    rule = int(size_verdicts(jobs, scope)[row])
    if rule >= 0:
        return f"cannot change its size: {SIZE_RULES[rule].reason}"
    if not (jobs.batch[row] and jobs.requeueable[row]):
        return "cannot change its size: it is no batch job that Slurm may requeue"
    hints = parse_hints(jobs.comment[row])
    if (hints.min_gpus or gpus + 1) <= gpus <= (hints.max_gpus or 0):
        return ""
    allowed = f"{hints.min_gpus or '?'} to {hints.max_gpus or '?'}"
    return f"cannot run on {gpus} GPUs: its hints min_gpus and max_gpus allow {allowed}"


def signal_refusal(jobs: Jobs, row: int, scope: ScopeConfig) -> str:
    """Why a running job may not be signalled for a checkpoint; "" if it may."""
    if not scoped(jobs, scope)[row]:
        return "gets no signal: it is not in scope"
    if has_id_of_array(jobs)[row]:
        return "gets no signal: Slurm takes its id for its whole array, so that all tasks would be signalled"
    return ""


def start_verdicts(jobs: Jobs, scope: ScopeConfig) -> NDArray[np.int8]:
    """The rule that keeps each job from an earliest start of ours: index into START_RULES, -1 for none. (N,) int8."""
    return _first_verdict(START_RULES, jobs, scope, "")


def _first_verdict(rules: Sequence[JobRule], jobs: Jobs, scope: ScopeConfig, lever: str) -> NDArray[np.int8]:
    verdict = np.full(len(jobs), -1, np.int8)
    for index, rule in enumerate(rules):
        if rule.lever in ("", lever):
            verdict[(verdict < 0) & rule.catches(jobs, scope)] = index
    return verdict


def refusals(
    snapshot: Snapshot, verdict: NDArray[np.int8], rules: Sequence[JobRule] = JOB_RULES
) -> tuple[Refusal, ...]:
    """One refusal for every job in scope that is left alone."""
    in_scope = np.array([rule.in_scope for rule in rules] + [False])
    rows = np.flatnonzero(in_scope[verdict])
    pairs = zip(snapshot.jobs.job_id[rows].tolist(), verdict[rows].tolist(), strict=True)
    return tuple(Refusal(job_id, rules[index].name, rules[index].reason) for job_id, index in pairs)


# Settings of a site with which a plan does not work.

ON_BASIC = ("Slurm orders jobs by PriorityType=priority/basic, which no nice or site factor can steer: nothing is "
            "written. Set PriorityType=priority/multifactor in slurm.conf")  # fmt: skip


def site_notes(snapshot: Snapshot, scope: ScopeConfig) -> tuple[str, ...]:
    """What keeps the plan from working at this site, as text."""
    site, found = snapshot.site, []
    if site.rights < Rights.OPERATOR:
        who = site.user or "this user"
        found.append(
            f"{who} has no Operator right in Slurm, which negative nice and SiteFactor need: nothing can be written"
        )
    if not site.multifactor:
        found.append(ON_BASIC)
    if not scope.partitions:
        found.append('scope.partitions is empty: no job is managed; name partitions, or "*" for all')
    if unknown := unknown_partitions(snapshot, scope):
        note = f"scope.partitions names partitions that Slurm does not have: {', '.join(unknown)}"
        found.append(f"{note}; until it does, no job that left the scope gets its own value back")
    return tuple(found)


def unknown_partitions(snapshot: Snapshot, scope: ScopeConfig) -> list[str]:
    """Names in scope.partitions that Slurm does not know; none where it told of no partition at all."""
    return sorted({*scope.partitions} - {"*", *snapshot.partitions.name}) if len(snapshot.partitions) else []


# Jobs that left the scope.

OWN = "its own again: it is not in scope any more"


@dataclass(frozen=True, slots=True)
class OutOfScopeLever(Lever):
    """Gives the nice or site factor back to jobs that are not in scope any more."""

    scope: ScopeConfig
    kind: str

    @classmethod
    def of(cls, planner: Planner) -> OutOfScopeLever:
        return cls(planner.scope, planner.lever.kind)

    def propose(self, snapshot: Snapshot, ranking: Ranking, budget: Budget) -> Proposal:
        out = out_of_scope(snapshot.jobs, self.scope, self.kind)
        writes = values_out_of_scope(snapshot, self.scope, PRIORITY_FIELDS[self.kind], out)
        sent, later = writes[: max(budget.writes, 0)], writes[max(budget.writes, 0) :]
        return Proposal(sent, postponed=tuple(action.job_id for action in later))


def values_out_of_scope(
    snapshot: Snapshot, scope: ScopeConfig, lever: PriorityField, out: Bools
) -> tuple[SetNice | SetSiteFactor, ...]:  # fmt: skip
    """Writes that give waiting jobs out of scope their base back, in order of their ids. out: as out_of_scope gives it.

    A job leaves the scope when its user moves it to another partition, account or QOS, or an admin shortens a list.
    Only values on record as ours count: what somebody else set stays. Tasks and components follow their leader. While
    the scope names a partition that Slurm does not have, nothing is restored, since the name may be a typing error.
    """
    if unknown_partitions(snapshot, scope):
        return ()
    jobs = snapshot.jobs
    own = lever.value(jobs, np.zeros(len(jobs), np.int64))
    rows = np.flatnonzero(jobs.written & out & (lever.now(jobs) != own)).tolist()
    return tuple(lever.action(jobs, row, int(own[row]), OWN) for row in rows)


def with_returned(snapshot: Snapshot, wanted: Int64s, back: Sequence[Action]) -> Int64s:
    """The wanted values with those that go back. (N,) int64."""
    values = wanted.copy()
    given = {action.job_id: action.new for action in back if isinstance(action, SetPriority)}
    values[np.searchsorted(snapshot.jobs.job_id, list(given))] = list(given.values())
    return values

"""The gate: the rules that refuse an action when it is planned or right before it is sent, and their input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import isfinite, nan

import numpy as np
from numpy.typing import NDArray

from slurmsched.config import OperationsConfig, PreemptionConfig, ScopeConfig
from slurmsched.errors import UnreadableError
from slurmsched.model import Operation, Refusal, Rights, Site, Snapshot
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.durations import HOUR_S
from slurmsched.model.gpu_selection import counted, size_text
from slurmsched.model.gres import normal_form, parse_gres
from slurmsched.model.hints import Hints, parse_hints
from slurmsched.model.hostlists import same_hosts
from slurmsched.model.operations import RESERVATION_PREFIX
from slurmsched.model.overrides import SAME_S
from slurmsched.model.plan import (
    Action,
    AskSize,
    DeleteReservation,
    JoinReservation,
    MoveReservation,
    Requeue,
    Reserve,
    SetAdminComment,
    SetCpus,
    SetField,
    SetGpuRequest,
    SetMemory,
    SetNice,
    SetNodeList,
    SetPriority,
    SetShards,
    SetSize,
    SetStart,
    ShrinkJob,
    Signal,
    Step,
)
from slurmsched.model.slurm_text import whole_number
from slurmsched.model.states import FINISHED, HOLDS_NODES, JobState
from slurmsched.plain_text import pluralize
from slurmsched.planning import job_scope
from slurmsched.planning.operations import victims
from slurmsched.planning.priorities.priority_fields import MOST_PRIORITY


@dataclass(frozen=True, slots=True)
class CurrentJob:
    """A job as the last look shows it.

    submit_s: when it was submitted, or requeued [Unix s].
    state: Slurm's state and flags.
    nice: its nice value.
    site_factor: None where sprio does not show the job (held, or not yet eligible).
    reservation: that it runs in or asks for; "" = none.
    exclusive: whether it asks for whole nodes; read only where nodes are about to be reserved.
    nodes: names that it asks for; "" = any.
    gpus: that it asks for by node, in normal form.
    bars: what it asks for that a value of ours could break; read only where one is given.
    eligible_s: when it may start [Unix s], NaN = not known.
    admin_comment: read only where one is to be written; None = not known.
    comment: its user's, read only where nodes are to be taken from it; None = not known.
    fields: other values that levers write, by squeue's name.
    """

    submit_s: float
    state: JobState
    nice: int
    site_factor: int | None = None
    reservation: str = ""
    exclusive: bool = False
    nodes: str = ""
    gpus: str = ""
    bars: tuple[str, ...] = ()
    eligible_s: float = nan
    admin_comment: str | None = None
    comment: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def pending(self) -> bool:
        """Waiting, and not still completing an earlier run."""
        return bool(self.state & JobState.PENDING) and not self.state & JobState.COMPLETING


@dataclass(frozen=True, slots=True)
class GateContext:
    """The input of the rules. Each rule uses only the fields of its time.

    When the plan is made:
    snapshot, scope, preemption, operations_config: the state and the configuration.
    verdict: (N,) int8, the rule of job_scope that excludes each job, -1 = none.
    operations: those of the plan, by id.
    begun: operations that the plan lets begin so far.
    out_of_scope: (N,) bool, of job_scope.out_of_scope.

    When the plan is applied:
    site: as Slurm shows it now.
    stopped, busy: why nothing may be sent, as text; "" = it may.

    When an action is sent:
    seen: jobs as they are now, by id.
    broken: answers to the steps that were refused, by the id of their operation.
    cannot_start: why the job of an operation cannot start on its nodes, by the operation's id; "" = it can.
    """

    snapshot: Snapshot | None = None
    scope: ScopeConfig = field(default_factory=ScopeConfig)
    preemption: PreemptionConfig = field(default_factory=PreemptionConfig)
    operations_config: OperationsConfig = field(default_factory=OperationsConfig)
    verdict: NDArray[np.int8] | None = None
    operations: Mapping[str, Operation] = field(default_factory=dict)
    begun: tuple[Operation, ...] = ()
    out_of_scope: Bools | None = None
    site: Site | None = None
    stopped: str = ""
    busy: str = ""
    seen: Mapping[int, CurrentJob] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)
    cannot_start: Mapping[str, str] = field(default_factory=dict)


def row_of(action: Action, snapshot: Snapshot) -> int:
    """Row of the action's job, -1 if it is not in the snapshot."""
    return snapshot.jobs.row_of(action.job_id)


# Rules for actions that are about to be sent.

CHANGED = "changed since the snapshot"
ASKS = f"{CHANGED}: it asks for"
DOUBTFUL = "something unknown: its record is ambiguous or forged"
UNREAD_COMMENT = "its AdminComment could not be read"
FOREIGN_COMMENT = f"{CHANGED}: the text of another user"
FOREIGN_FIELD = f"{CHANGED}: its"  # and the name of the option, and what it is


def earlier_step(action: Action | None, context: GateContext) -> str:
    """The steps of an operation are sent in their order, and none after one that was refused."""
    reason = context.broken.get(action.operation, "") if isinstance(action, Step) else ""
    return f"an earlier step of its operation was refused: {reason}" if reason else ""


def job_left_queue(action: Action | None, context: GateContext) -> str:
    """ "" while the job is in the queue. A reservation is deleted in any case."""
    if action is None or isinstance(action, DeleteReservation) or action.job_id in context.seen:
        return ""
    return f"{CHANGED}: it left the queue"


def submit_time_unknown(action: Action | None, _: GateContext) -> str:
    """ "" if the submit time is known. Without it a job cannot be distinguished from a later one with the same id."""
    if action is None or isinstance(action, DeleteReservation) or isfinite(action.submit_s):
        return ""
    return "its submit time is unknown, so a reused id could not be detected"


def run_changed(action: Action | None, context: GateContext) -> str:
    """ "" if the submit time is the same within a second. Of a job that is to give nodes back the restarts, too."""
    same = (seen := _current(action, context)) is None or action is None or abs(seen.submit_s - action.submit_s) < 1
    if seen is not None and isinstance(action, ShrinkJob) and action.restarts >= 0:
        same &= seen.fields.get("RestartCnt", "") == str(action.restarts)
    return "" if same else f"{CHANGED}: it was requeued, or its id is used again"


def state_changed(action: Action | None, context: GateContext) -> str:
    """Steps that take something from a job need it running, those that give it something need it waiting: a reservation
    set on a running job kills it at its end, a requeue of an ended one runs it again. A value that gives the base back
    may go to a job that has started meanwhile: it does no harm there, and a requeue keeps it."""
    if (seen := _current(action, context)) is None or (isinstance(action, JoinReservation) and not action.name):
        return ""
    if isinstance(action, ShrinkJob):
        fits = bool(seen.state & JobState.RUNNING) and not seen.state & JobState.COMPLETING
    elif isinstance(action, Requeue | Signal) or (isinstance(action, AskSize) and action.gpus):
        fits = bool(seen.state & HOLDS_NODES)
    elif isinstance(action, SetAdminComment | AskSize) or (
        isinstance(action, SetPriority) and action.new == action.base
    ):
        fits = not seen.state & FINISHED
    else:
        fits = seen.pending
    return "" if fits else f"{CHANGED}: it is {_state_words(seen.state)}"


def value_changed(action: Action | None, context: GateContext) -> str:
    """ "" if the nice, site factor or field still has the value that the action replaces."""
    if (seen := _current(action, context)) is None or not isinstance(action, SetPriority | SetField):
        return ""
    if isinstance(action, SetGpuRequest):
        return ""  # a rule of its own
    if isinstance(action, SetField):
        others = _changed_options(action, seen)
        stays = (
            isinstance(action, SetCpus) and action.restores and len(others) < len(action.columns)
        )  # see without_changed_options
        option, value = next(iter(others.items()), ("", ""))
        return f"{FOREIGN_FIELD} {option} is {value or 'empty'}" if others and not stays else ""
    now = seen.nice if isinstance(action, SetNice) else seen.site_factor
    return "" if now is None or now == action.old else f"{CHANGED}: its {action.kind} is {now}, not {action.old}"


def without_changed_options(action: Action, context: GateContext) -> Action:
    """The action; one that gives CPUs back without the options that somebody else changed, each of which stays."""
    if not isinstance(action, SetCpus) or not action.restores or (seen := _current(action, context)) is None:
        return action
    return replace(action, omitted=tuple(_changed_options(action, seen)))


def _changed_options(action: SetField, seen: CurrentJob) -> dict[str, str]:
    """Options that have not the value that the action replaces, and the value they have."""
    names = (action.option, *action.alike)
    now = {name: seen.fields.get(column, "") for name, column in zip(names, action.columns, strict=False)}
    return {name: value for name, value in now.items() if not action.has_old(value)}


def node_list_changed(action: Action | None, context: GateContext) -> str:
    """ "" if the node list is still the one that the action replaces."""
    if (
        (seen := _current(action, context)) is None
        or not isinstance(action, SetNodeList)
        or same_hosts(seen.nodes, action.old)
    ):
        return ""
    return f"{CHANGED}: its node list is {seen.nodes or 'empty'}"


def comment_changed(action: Action | None, context: GateContext) -> str:
    """ "" if its AdminComment is empty or one of ours."""
    if (seen := _current(action, context)) is None or not isinstance(action, SetAdminComment):
        return ""
    if seen.admin_comment is None:
        return UNREAD_COMMENT
    return "" if seen.admin_comment in ("", *action.texts) else f"{FOREIGN_COMMENT} is in its AdminComment"


def start_changed(action: Action | None, context: GateContext) -> str:
    """ "" if the earliest start differs by at most SAME_S from the one that the action replaces."""
    if (seen := _current(action, context)) is None or not isinstance(action, SetStart) or not isfinite(action.old):
        return ""
    same = abs(seen.eligible_s - action.old) <= SAME_S
    return "" if same else f"{CHANGED}: its earliest start is another one"


def request_changed(action: Action | None, context: GateContext) -> str:
    """ "" if the GPUs of the request are as planned, and only SetSize changes their number. Of a job that is to give
    nodes back: if it has as many as planned."""
    if (seen := _current(action, context)) is not None and isinstance(action, ShrinkJob):
        nodes = seen.fields.get("NumNodes", "")
        return "" if nodes == str(action.old) else f"{CHANGED}: it has {nodes or 'an unknown number of'} nodes"
    if (seen := _current(action, context)) is None or not isinstance(action, SetGpuRequest):
        return ""
    if isinstance(action, SetSize):
        return _other_size_now(action, seen)
    if seen.gpus != action.old:
        return f"{CHANGED}: it asks for {seen.gpus or 'no GPUs by node'}"
    if isinstance(action, SetShards):
        return ""  # see part_not_allowed
    gets = counted(action.new)
    other = next((count for count in (counted(action.base), counted(action.old)) if count != gets), gets)
    return "" if other == gets else f"it would get {pluralize(gets, 'GPU')} instead of {other}"


def _other_size_now(action: SetSize, seen: CurrentJob) -> str:
    """ "" if the job asks for what the action replaces, in the same way, and for as many nodes, tasks and CPUs where
    these change."""
    nodes, tasks, cpus = (whole_number(seen.fields.get(name, ""), 1) for name in ("NumNodes", "NumTasks", "NumCPUs"))
    if cpus < tasks:
        return f"{CHANGED}: Slurm shows the nodes that it leaves"  # seen on 26.05.5 after a node failed
    tres = dict(part.partition("=")[::2] for part in seen.fields.get("tres-alloc", "").split(","))
    if tres.get("node", str(nodes)) != str(nodes):  # on 26.05.5 after a requeue and a restart of slurmctld
        return f"{CHANGED}: Slurm shows the nodes of its last run"
    texts = {
        "node": seen.gpus,
        "job": seen.fields.get("tres-per-job", ""),
        "task": seen.fields.get("tres-per-task", ""),
    }
    parts = {"node": nodes, "job": 1, "task": tasks}
    asked = {by: size_text(request, by, nodes) for by, text in texts.items() if (request := _request(text, parts[by]))}
    if asked != {action.by: action.old}:
        return f"{CHANGED}: it asks for {' and '.join(filter(None, texts.values())) or 'no GPUs'}"
    same = not action.scales or (nodes, tasks, cpus) == (action.nodes, action.tasks, action.cpus)
    return "" if same else f"{CHANGED}: it asks for {pluralize(tasks, 'task')} and {pluralize(cpus, 'CPU')}"


def _request(text: str, parts: int) -> str:
    """The GRES of that many nodes or tasks in normal form, of all kinds; the text itself if it cannot be read."""
    try:
        entries = [replace(entry, count=entry.count * parts) for entry in parse_gres(text)]
    except UnreadableError:
        return text
    return normal_form(entries, sorted({entry.kind for entry in entries} - {"cpu"}))


def requirements_changed(action: Action | None, context: GateContext) -> str:
    """Slurm's list of jobs does not show all that a job asks for: it may have changed since it was read."""
    if (
        not isinstance(action, SetNodeList | SetGpuRequest | SetCpus | SetMemory)
        or (seen := _current(action, context)) is None
    ):
        return ""
    return "" if action.restores or not seen.bars else f"{ASKS} {' and '.join(seen.bars)}"


def reservation_changed(action: Action | None, context: GateContext) -> str:
    """Only a job without a reservation joins one, and only the name of its own operation is removed."""
    if (seen := _current(action, context)) is None or not isinstance(action, JoinReservation):
        return ""
    fits = not seen.reservation if action.name else seen.reservation == RESERVATION_PREFIX + action.operation
    return "" if fits else f"{CHANGED}: its reservation is {seen.reservation or 'none'}"


def exclusive_changed(action: Action | None, context: GateContext) -> str:
    """ "" unless the job now needs whole nodes and the planned reservation has parts of nodes."""
    if (
        (seen := _current(action, context)) is None
        or not isinstance(action, Reserve)
        or action.whole
        or not seen.exclusive
    ):
        return ""
    return f"{CHANGED}: it asks for whole nodes (--exclusive)"


def beneficiary_cannot_start(action: Action | None, context: GateContext) -> str:
    """ "" if the job could start on the GPUs. No job is preempted for one that could not."""
    return context.cannot_start.get(action.operation, "") if isinstance(action, Requeue | Signal) else ""


def _current(action: Action | None, context: GateContext) -> CurrentJob | None:
    """The action's job; None where that does not matter: a reservation is deleted whatever became of its job."""
    return None if action is None or isinstance(action, DeleteReservation) else context.seen.get(action.job_id)


def _state_words(state: JobState) -> str:
    return "+".join(flag.name or "" for flag in JobState if flag & state)


# Rules for actions that are being planned.


def not_managed(action: Action | None, context: GateContext) -> str:
    """A lever changes only managed jobs. Steps of operations need the job in scope, whatever its priority is now."""
    if (
        context.snapshot is None
        or action is None
        or _gives_back(action)
        or (row := row_of(action, context.snapshot)) < 0
    ):
        return ""
    if isinstance(action, SetPriority):
        left_scope = (
            context.out_of_scope is not None and context.out_of_scope[row] and context.snapshot.jobs.written[row]
        )
        if left_scope and action.new == action.base:
            return ""  # a job that left the scope gets its own back
        if action.new == action.old:
            return ""  # an array task keeps what it has, behind the write of its array
        index = -1 if context.verdict is None else int(context.verdict[row])
        rule = job_scope.JOB_RULES[index] if index >= 0 else None
        return rule.reason if rule and rule.name != "array" else ""  # a task gets what its managed array has
    in_scope = job_scope.scoped(context.snapshot.jobs.take(np.array([row])), context.scope)[0]
    return "" if in_scope or not (isinstance(action, Step) and action.operation) else "it is not in scope"


def not_preemptible(action: Action | None, context: GateContext) -> str:
    """A hard reason against preempting a job also counts during its grace."""
    if context.snapshot is None or not isinstance(action, Requeue | Signal) or not action.operation:
        return ""
    if (row := row_of(action, context.snapshot)) < 0:
        return ""
    one = replace(context.snapshot, jobs=context.snapshot.jobs.take(np.array([row])))
    return victims.hard_reason(victims.preemption_case(one, context.preemption, context.scope))


def out_of_bounds(action: Action | None, _: GateContext) -> str:
    """Limits of Slurm that need no snapshot: priority, nodes and times of a reservation.

    scontrol ignores a priority out of range and reports success. What undo sends was planned by no policy, so this rule
    is asked again before an action is sent.
    """
    if isinstance(action, SetPriority) and abs(action.new) > MOST_PRIORITY:
        return f"{action.kind} {action.new} is beyond {MOST_PRIORITY}, the most that Slurm takes"
    if isinstance(action, Reserve) and not action.nodes:
        return "it names no nodes"
    if isinstance(action, Reserve | MoveReservation) and not (
        isfinite(action.end_s) and not action.end_s <= action.start_s
    ):
        return "its reservation would end before it begins"
    return ""


def size_outside_hints(action: Action | None, context: GateContext) -> str:
    """A size of ours stays between what the job's hints name as its least and most."""
    if context.snapshot is None or not isinstance(action, SetSize | AskSize | ShrinkJob) or _gives_back(action):
        return ""
    if (row := row_of(action, context.snapshot)) < 0:
        return ""
    hints = parse_hints(context.snapshot.jobs.comment[row])
    if isinstance(action, ShrinkJob):
        return "" if _may_shrink(hints, action) else NO_SHRINK_HINT
    gpus = action.gpus if isinstance(action, AskSize) else counted(action.new)
    within = hints.min_gpus is not None and hints.max_gpus is not None and hints.min_gpus <= gpus <= hints.max_gpus
    return "" if within else f"{pluralize(gpus, 'GPU is', 'GPUs are')} not between its hints min_gpus and max_gpus"


NO_SHRINK_HINT = "its hints do not let it lose these nodes"


def _may_shrink(hints: Hints, action: ShrinkJob) -> bool:
    least = hints.min_gpus
    return bool(hints.shrink) and least is not None and least <= action.gpus and action.nodes < action.old


def shrink_disallowed(action: Action | None, context: GateContext) -> str:
    """Nodes do not come back to a running job: its user must still agree when they are taken."""
    if not isinstance(action, ShrinkJob) or (seen := _current(action, context)) is None:
        return ""
    if seen.comment is None:
        return "its comment could not be read"
    return "" if _may_shrink(parse_hints(seen.comment), action) else f"{CHANGED}: {NO_SHRINK_HINT}"


def cpus_outside_hints(action: Action | None, context: GateContext) -> str:
    """A number of CPUs of ours is at least what the job's hint min_cpus names, or at most what max_cpus names."""
    if context.snapshot is None or not isinstance(action, SetCpus) or action.restores:
        return ""
    if (row := row_of(action, context.snapshot)) < 0:
        return ""
    hints = parse_hints(context.snapshot.jobs.comment[row])
    least, most = (action.base if bound is None else bound for bound in (hints.min_cpus, hints.max_cpus))
    words = (
        f"{pluralize(action.new, 'CPU is', 'CPUs are')} not what its hints min_cpus and max_cpus allow beside its own"
    )
    return "" if min(least, action.base) <= action.new <= max(most, action.base) else words


def memory_outside_hints(action: Action | None, context: GateContext) -> str:
    """Memory of ours is at least what the job's hint min_mem names, and less than its user's."""
    if context.snapshot is None or not isinstance(action, SetMemory) or action.restores:
        return ""
    if (row := row_of(action, context.snapshot)) < 0:
        return ""
    least = parse_hints(context.snapshot.jobs.comment[row]).min_mem
    within = least is not None and least * MIB_OF_GIB <= action.new < action.base
    return "" if within else f"{action.new} MiB are not between its hint min_mem and its own"


MIB_OF_GIB = 1024
NO_SHARE_HINT = "its hints share and gpu_part, or its measured use, do not let it have that part of a GPU"


def part_not_allowed(action: Action | None, context: GateContext) -> str:
    """A part of a GPU is for a job of one GPU whose user lets it share. It is as large as the hint gpu_part names, else
    as jobs like it needed."""
    if context.snapshot is None or not isinstance(action, SetShards) or action.restores:
        return ""
    if (row := row_of(action, context.snapshot)) < 0:
        return ""
    if not action.base.startswith("gpu") or counted(action.base) != 1:
        return f"its own request is {action.base or 'not known'}, not one GPU"
    jobs = context.snapshot.jobs
    measured = float(np.nan_to_num(jobs.measured_part[row]))
    return "" if _may_share(parse_hints(jobs.comment[row]), action, measured) else NO_SHARE_HINT


def _may_share(hints: Hints, action: SetShards, measured: float) -> bool:
    part, size = measured if hints.gpu_part is None else hints.gpu_part, action.shards_per_gpu
    if not hints.share or not part:
        return False
    return int(shards_of_part(part, size)) <= counted(action.new) <= size


def shards_of_part(part: float, size: Int64s | int) -> Int64s:
    """The fewest shards that make up this part of each GPU. size: shards of a GPU. The shape of size."""
    fewest = np.ceil(np.asarray(part * size) - 1e-9)  # 0.07 of 100 shards are 7, not 8
    return np.maximum(fewest, 1).astype(np.int64)


def part_disallowed_now(action: Action | None, context: GateContext) -> str:
    """A job of a part of a GPU is not kept apart from the others there: its user must still agree when it is sent."""
    if not isinstance(action, SetShards) or action.restores or (seen := _current(action, context)) is None:
        return ""
    if seen.comment is None:
        return "its comment could not be read"
    may = _may_share(parse_hints(seen.comment), action, action.measured_part)
    return "" if may else f"{CHANGED}: {NO_SHARE_HINT}"


def _begins(action: Action | None, context: GateContext) -> Operation | None:
    """The operation that this action begins, if it does."""
    if (
        context.snapshot is None
        or not isinstance(action, Reserve)
        or action.operation in {operation.id for operation in context.snapshot.operations}
    ):
        return None
    return context.operations.get(action.operation)


def _lately(operation: Operation, context: GateContext) -> list[Operation]:
    """Operations begun in the hour before this one."""
    assert context.snapshot is not None
    known = (*context.snapshot.past_operations, *context.snapshot.operations, *context.begun)
    return [each for each in known if each.begun_s > operation.begun_s - HOUR_S]


def cycle_limit(action: Action | None, context: GateContext) -> str:
    """ "" while fewer than operations.per_cycle operations begin in this cycle."""
    most = context.operations_config.per_cycle
    full = _begins(action, context) is not None and len(context.begun) >= most
    return (
        f"{pluralize(most, 'operation begins', 'operations begin')} in this cycle already (operations.per_cycle)"
        if full
        else ""
    )


def hour_limit(action: Action | None, context: GateContext) -> str:
    """ "" while fewer than operations.per_hour operations began in the last hour."""
    operation, most = _begins(action, context), context.operations_config.per_hour
    full = operation is not None and len(_lately(operation, context)) >= most
    return (
        f"{pluralize(most, 'operation was', 'operations were')} begun in the last hour (operations.per_hour)"
        if full
        else ""
    )


def user_limit(action: Action | None, context: GateContext) -> str:
    """The same for the operations of one user, see operations.per_user_per_hour."""
    operation, most = _begins(action, context), context.operations_config.per_user_per_hour
    if operation is None or sum(each.user == operation.user for each in _lately(operation, context)) < most:
        return ""
    begun = pluralize(most, "operation was", "operations were")
    return f"{begun} begun for {operation.user} in the last hour (operations.per_user_per_hour)"


def lease_limit(action: Action | None, context: GateContext) -> str:
    """Refuses to take GPUs from a job that got them from the beneficiary within operations.lease_s."""
    if (
        context.snapshot is None
        or not isinstance(action, Requeue | Signal)
        or (operation := context.operations.get(action.operation)) is None
    ):
        return ""
    if action.job_id not in victims.protected_by_lease(
        context.snapshot, operation.job_id, context.operations_config.lease_s
    ):
        return ""
    lease_s = context.operations_config.lease_s
    return f"it got GPUs of job {operation.job_id} less than {lease_s:g} s ago (operations.lease_s)"


def _gives_back(action: Action) -> bool:
    """Whether the action ends an operation or restores a job's own value. Such actions may always pass."""
    if isinstance(action, SetField):
        return action.restores
    if isinstance(action, AskSize):
        return not action.gpus
    return action.kind in ("delay", "unreserve") or (isinstance(action, JoinReservation) and not action.name)


# The gate.


class GateTime(StrEnum):
    """When a rule is asked."""

    PLAN = "plan"
    APPLY = "apply"  # before anything is sent, and between chunks; no action yet
    SEND = "send"  # right before the action is sent


@dataclass(frozen=True, slots=True)
class GateRule:
    """One reason to refuse an action. says: the reason in words, "" = it may pass. about: what it guards."""

    name: str
    when: GateTime
    about: str
    says: Callable[[Action | None, GateContext], str]


def refusal(action: Action | None, context: GateContext, when: GateTime) -> Refusal | None:
    """Why an action must not be planned or sent; None if it may be. action: None at APPLY, when all are meant."""
    for rule in RULES:
        if rule.when == when and (reason := rule.says(action, context)):
            return Refusal(action.job_id if action else 0, rule.name, reason)
    return None


def first_refusal(actions: Iterable[Action], context: GateContext, when: GateTime) -> Refusal | None:
    """The refusal of the first of these that may not pass; None if all may."""
    return next((found for action in actions if (found := refusal(action, context, when))), None)


def _rights(_: Action | None, context: GateContext) -> str:
    site = context.site
    if site is None or site.rights >= Rights.OPERATOR:
        return ""
    return f"{site.user} is {site.rights.name.capitalize()} (slurmdbd away?), writing needs Operator"


RULES = (
    GateRule("rights", GateTime.APPLY, "writing needs the Operator right", _rights),
    GateRule("stop-file", GateTime.APPLY, "the administrator's stop file", lambda _, context: context.stopped),
    GateRule("load", GateTime.APPLY, "slurmctld's load, and how fast it answers", lambda _, context: context.busy),
    GateRule("managed", GateTime.PLAN, "the job is in scope, and its priority is ours to move", not_managed),
    GateRule("victim", GateTime.PLAN, "the job can be requeued, and its user and the site allow it", not_preemptible),
    GateRule("bounds", GateTime.PLAN, "values that Slurm takes", out_of_bounds),
    GateRule("size", GateTime.PLAN, "a size between the job's hints", size_outside_hints),
    GateRule("cpus", GateTime.PLAN, "no fewer and no more CPUs than the job's hints", cpus_outside_hints),
    GateRule("memory", GateTime.PLAN, "no less memory than the job's hint", memory_outside_hints),
    GateRule("share", GateTime.PLAN, "a part of a GPU as the job's hints allow", part_not_allowed),
    GateRule("per-cycle", GateTime.PLAN, "operations begun in a cycle", cycle_limit),
    GateRule("per-hour", GateTime.PLAN, "operations begun in an hour", hour_limit),
    GateRule("per-user-per-hour", GateTime.PLAN, "operations begun in an hour for one user", user_limit),
    GateRule("lease", GateTime.PLAN, "no two jobs take GPUs of each other in turn", lease_limit),
    GateRule("earlier-step", GateTime.SEND, "no earlier step of its operation was refused", earlier_step),
    GateRule("gone", GateTime.SEND, "the job is in the queue", job_left_queue),
    GateRule("submit-time", GateTime.SEND, "its submit time is known, so no reused id passes", submit_time_unknown),
    GateRule("other-run", GateTime.SEND, "it is the same run", run_changed),
    GateRule("state", GateTime.SEND, "it waits, or runs, as the action needs", state_changed),
    GateRule("value", GateTime.SEND, "no other user changed the value", value_changed),
    GateRule("node-list", GateTime.SEND, "no other user changed its node list", node_list_changed),
    GateRule("admin-comment", GateTime.SEND, "no other user wrote its AdminComment", comment_changed),
    GateRule("start", GateTime.SEND, "no other user changed its earliest start", start_changed),
    GateRule("request", GateTime.SEND, "its request is unchanged, and so is its number of GPUs", request_changed),
    GateRule("size", GateTime.SEND, "the hints still let it lose nodes", shrink_disallowed),
    GateRule("share", GateTime.SEND, "the hints still let it share a GPU", part_disallowed_now),
    GateRule(
        "asks", GateTime.SEND, "it asks for nothing that a list, request or number of ours breaks", requirements_changed
    ),
    GateRule("reservation", GateTime.SEND, "no other user gave it a reservation", reservation_changed),
    GateRule("exclusive", GateTime.SEND, "it asks for no more of its nodes", exclusive_changed),
    GateRule("bounds", GateTime.SEND, "values that Slurm takes", out_of_bounds),
    GateRule("beneficiary", GateTime.SEND, "the job that is to get the GPUs can start", beneficiary_cannot_start),
)

"""What each blocker means for one job, with the values at hand, and what would change it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import isfinite

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model import Snapshot
from slurmsched.model.reasons import CODES, Blocker, LimitValue
from slurmsched.model.states import JobState
from slurmsched.observe.explain import blocked_nodes
from slurmsched.observe.explain.blocked_nodes import BlockedJob, SentenceAndChanges
from slurmsched.observe.explain.node_obstacles import NodeCheck
from slurmsched.observe.explain.wording import local_time, more_of_state, printable, sbatch_time, sentence_of_state
from slurmsched.observe.survey.fit import Fit, by_partition, fit
from slurmsched.observe.survey.sbatch_request import SbatchRequest, submitted_request
from slurmsched.plain_text import pluralize
from slurmsched.resources.allocated import nodes_serving
from slurmsched.resources.job_request import JobRequest, request_of
from slurmsched.resources.partition_limits import BrokenLimit, broken_limits
from slurmsched.resources.topology_limits import too_far_apart


def explain_blocker(case: BlockedJob) -> SentenceAndChanges:
    """The sentence on the blocker, and what would change it; () where only time does."""
    tell = _TELLS.get(case.reason.blocker)
    if tell:
        return tell(case)
    because, *changes = _PLAIN[case.reason.blocker]
    more = f" ({printable(case.reason.more)})" if case.reason.more else ""
    return because.format(code=printable(case.reason.code)) + more, tuple(
        line.format(job=case.job_id) for line in changes
    )


_PLAIN: dict[Blocker, tuple[str, ...]] = {
    Blocker.DEPENDENCY_NEVER: ("The job it depends on ended in another way than it asks for: it will never start.",
                               "drop the dependency: scontrol update jobid={job} dependency=", "scancel {job}"),
    Blocker.HELD_BY_ADMIN: ("An administrator holds it; its owner cannot release it.", "ask the administrators"),
    Blocker.HELD_AFTER_FAILURE: ("It could not be started or ended badly, and Slurm holds it: {code}.",
                                 "look at the cause, then: scontrol release {job}"),
    Blocker.NOT_ALLOWED: ("Its account or QOS may not be used for it: {code}.",
                          "another account, QOS or partition: scontrol update jobid={job} account=NAME qos=NAME "
                          "partition=NAME"),
    Blocker.DATA: ("It waits for its burst buffer: {code}.",),
    Blocker.POWER: ("It waits for power or for nodes that may be switched on: {code}.",),
    Blocker.LAUNCHING: ("It is being started, or cleaned up after: {code}.",),
    Blocker.FEDERATION: ("Another cluster of the federation looks at it.",),
    Blocker.UNKNOWN: ("Slurm says {code}, which this release of slurmsched does not know.",),
}  # fmt: skip


def _others_first(case: BlockedJob) -> SentenceAndChanges:
    return _competitors(case) or "Others in its partition go first.", ()


def _resources(case: BlockedJob) -> SentenceAndChanges:
    competitors = _competitors(case)
    return "The nodes, GPUs, CPUs or memory it asks for are not free yet." + f" {competitors}" * bool(competitors), ()


def _constraints(case: BlockedJob) -> SentenceAndChanges:
    code, row = case.reason.code, case.row
    release = (f"once it can be met: scontrol release {case.job_id}",) * bool(case.snapshot.jobs.held[row])
    if code == "DeadLine":
        return "It cannot end before its --deadline any more.", (
            f"if it may end later: scontrol update jobid={case.job_id} deadline=TIME",
        )
    if CODES.get(code.lower(), ("", None))[1] is Blocker.CONSTRAINTS:
        return f"No node can ever meet what it asks for: {printable(code)}.", release
    check = NodeCheck.of(case.snapshot, row, case.details)
    if int(check.found.ever.sum()) >= check.nodes and not check.near_enough(check.found.ever):
        return f"Of the nodes that could serve it, {too_far_apart(check.nodes)}.", release
    return f"It needs {pluralize(check.nodes, 'node')}, and fewer can ever serve it.", release


def _not_tried(case: BlockedJob) -> SentenceAndChanges:
    if case.reason.code == "Priority":
        return ("No job before it competes for its nodes, and they have room for it. Slurm starts it at the next look "
                "of its backfill, unless Slurm holds it for a reason that it does not report."), ()  # fmt: skip
    return "Slurm has not looked at it yet.", ()


def _competitors(case: BlockedJob) -> str:
    """That Slurm ranks others before it; "" if there is none of them."""
    jobs, rows = case.snapshot.jobs, list(case.competitors)
    if not rows:
        return ""
    gpus = pluralize(int((jobs.gpus[rows] * np.maximum(jobs.array_tasks[rows], 1)).sum()), "GPU")
    if len(rows) == 1:
        return f"Slurm ranks 1 job before it that competes for its nodes and may start. It asks for {gpus}."
    return f"Slurm ranks {len(rows):,} jobs before it that compete for its nodes and may start. They ask for {gpus}."


_WAITING = (Blocker.PRIORITY, Blocker.RESOURCES, Blocker.NODES, Blocker.PARTITION_CLOSED)


def nearby_requests(case: BlockedJob) -> SentenceAndChanges:
    """What `fit` says of this very job: requests near it that have room now; "" and () where it tells nothing."""
    row = case.row
    request = submitted_request(case.snapshot, row, case.details.record)
    if request is None or case.snapshot.jobs.het_job_id[row]:  # components start together
        return "", ()
    snapshot = _unreserved(case)
    try:
        answers = [fit(snapshot, one) for one in by_partition(snapshot, request)]
        changes = dict(_request_changes(case, snapshot, request, answers))
    except InputError:
        return "", ()
    if any(answer.starts for answer in answers):
        return "", ()
    if not changes and case.reason.blocker in _WAITING:
        return " No single change of its request would start it now (slurmsched fit).", ()
    return "", tuple(f"{_command(case, change)}: {meaning}; there is room for that now"
                     for change, meaning in changes.items())  # fmt: skip


def _request_changes(
    case: BlockedJob, snapshot: Snapshot, request: SbatchRequest, answers: list[Fit]
) -> Iterator[tuple[str, str]]:
    """Changes of the request with their meaning."""
    if case.reason.blocker not in (Blocker.RESERVATION, Blocker.MAINTENANCE):  # else it is said already
        yield from _earlier(snapshot, request)
    own = {f"--partition={answer.partition}" for answer in answers} | {"--time=1:00:00"}
    for answer in answers:
        yield from ((one.change, one.meaning) for one in answer.nearest if one.change not in own)


def _earlier(snapshot: Snapshot, request: SbatchRequest) -> Iterator[tuple[str, str]]:
    """The longest time limit that ends before a reservation begins, where that helps."""
    now_s, table = snapshot.now_s, snapshot.reservations
    late = {int(start_s - now_s) // 60 * 60.0 for start_s in table.start_s.tolist() if start_s >= now_s + 60}
    for limit_s in sorted((limit_s for limit_s in late if limit_s < (request.time_s or 0.0)), reverse=True):
        shorter = replace(request, time_s=limit_s)
        if any(fit(snapshot, one).starts for one in by_partition(snapshot, shorter)):
            yield f"--time={sbatch_time(limit_s)}", "it ends before a reservation begins"
            break


def _unreserved(case: BlockedJob) -> Snapshot:
    """The snapshot with the reservations of others alone."""
    table, request = case.details.reservations, request_of(case.snapshot, case.row)
    own = table.name.isin((*request.reservations, *request.own))
    return replace(case.snapshot, reservations=table.take(~own))


_UPDATES = {"--partition": "partition", "--time": "timelimit", "--nodes": "numnodes"}
_CLEARED = {"no --constraint": "features=", "no --nodelist, --exclude": "nodelist= excnodelist="}


def _command(case: BlockedJob, change: str) -> str:
    """As Slurm takes it for a job that waits; else as sbatch takes it."""
    option, _, value = change.partition("=")
    words = _CLEARED.get(change) or (f"{_UPDATES[option]}={value}" if option in _UPDATES and " " not in value else "")
    return f"scontrol update jobid={case.job_id} {words}" if words else f"submit it again with {change}"


def _limit(case: BlockedJob) -> SentenceAndChanges:
    code, limit = case.reason.code, case.reason.limit
    values = [value for value in case.limits if value.blocks] or list(case.limits)
    if not values:
        return f"A limit is reached: {code}; its value could not be read.", ()
    limits = "; ".join(map(_value_in_words, values))
    per_job = limit is not None and limit.per in ("job", "node")
    change = "ask for less: waiting does not help" if per_job else "it goes on when jobs that count there end"
    return f"A limit is reached, {code}: {limits}.", (change, "or another account or QOS, where you have one")


_NAMED = 3  # jobs it depends on, with their state
_UNITS = {"wall": " minutes", "mem": " MiB"}


def _value_in_words(value: LimitValue) -> str:
    what, unit = value.what, _UNITS.get(value.what, "")
    used = "" if value.used is None else f", {value.used:g}{unit} in use"
    needs = "" if value.needs is None else f", the job needs {value.needs:g}{unit}"
    most = (
        f"{value.value:g}{unit} of {what}" if unit else f"{value.value:g} {what.removesuffix('s' * (value.value == 1))}"
    )
    return f"{printable(value.owner)} may have {most} ({value.field}{used}{needs})"


def _dependency(case: BlockedJob) -> SentenceAndChanges:
    dependency = printable(case.snapshot.jobs.dependency[case.row])
    states = "".join(_job_in_words(case, number) for number in re.findall(r"(?<=[:,])(\d+)", f":{dependency}")[:_NAMED])
    return f"It waits for other jobs: {dependency or 'Slurm does not show which'}.{states}", (
        f"drop the dependency: scontrol update jobid={case.job_id} dependency=",)  # fmt: skip


def _job_in_words(case: BlockedJob, number: str) -> str:
    """A job it depends on, with its place in the queue."""
    jobs = case.snapshot.jobs
    row = jobs.row_of(int(number))
    if row < 0:
        return ""
    state = (JobState(int(jobs.state[row])).name or "?").replace("|", "+")
    return f" Job {number} of {printable(jobs.user[row])} is {state}."


def _running(case: BlockedJob) -> SentenceAndChanges:
    jobs, row = case.snapshot.jobs, case.row
    start_s, end_s, nodes = float(jobs.start_s[row]), float(jobs.end_s[row]), jobs.node_list[row]
    sentence = f"It runs on {printable(nodes)}" if nodes else "It runs"
    sentence += f" since {local_time(start_s)}" if isfinite(start_s) else ""
    sentence += f", until {local_time(end_s)} at the latest." if isfinite(end_s) else "."
    return sentence + more_of_state(int(jobs.state[row])), ()


def _held(case: BlockedJob) -> SentenceAndChanges:
    requeued = int(case.snapshot.jobs.state[case.row]) & int(JobState.REQUEUE_HOLD)
    sentence = "It was requeued and is held; its owner may release it." if requeued else "Its owner holds it."
    return sentence, (f"scontrol release {case.job_id}",)


def _by_state(case: BlockedJob) -> SentenceAndChanges:
    jobs, row = case.snapshot.jobs, case.row
    return sentence_of_state(int(jobs.state[row]), printable(jobs.node_list[row]), printable(jobs.state_text[row])), ()


def _begin(case: BlockedJob) -> SentenceAndChanges:
    eligible_s = float(case.snapshot.jobs.eligible_s[case.row])
    when = f" at {local_time(eligible_s)}" if isfinite(eligible_s) else ", at a time that Slurm does not show"
    change = f"scontrol update jobid={case.job_id} starttime=now"
    if case.reason.blocker is Blocker.REQUEUED:
        return f"slurmsched took its GPUs back for another job; Slurm lets it start again{when}.", (change,)
    mine = (record for record in case.snapshot.overrides if record.key == (case.job_id, "start_time"))
    if any(record.open and record.meant(eligible_s) for record in mine):
        return f"The policy starts it later{when}: slurmsched has set its earliest start (lever.start).", (change,)
    again = (
        " It was requeued: Slurm itself delays the next start then." if case.snapshot.jobs.restarts[case.row] else ""
    )
    return f"It may not start before its begin time{when}.{again}", (change,)


def _array(case: BlockedJob) -> SentenceAndChanges:
    most = case.details.record.get("ArrayTaskThrottle", "")
    tasks = pluralize(int(most), "task") if most.isdecimal() else "so many tasks as its array allows"
    array = int(case.snapshot.jobs.array_job_id[case.row]) or case.job_id
    change = f"scontrol update jobid={array} arraytaskthrottle=N"
    return f"Its array lets {tasks} run at a time (the % of --array).", (change,)


def _partition(case: BlockedJob) -> SentenceAndChanges:
    """Which limits of which partition its request breaks, and what would be within them."""
    table, check = case.snapshot.partitions, NodeCheck.of(case.snapshot, case.row, case.details)
    request = replace(check.request, fixed=True)
    broken = [limit for at, name in enumerate(table.name) if name in request.partitions
              for limit in broken_limits(table, at, request)]  # fmt: skip
    causes = [limit.text for limit in broken] or list(check.found.refusals.values()) or _too_few_nodes(case, request)
    changes = [_within_limit(limit) for limit in broken if limit.key in _WITHIN]
    if not causes:
        keys = ("MaxTime", "MinNodes", "MaxNodes", "MaxCPUsPerNode", "MaxMemPerNode", "MaxMemPerCPU", "QoS")
        causes = [f"{name} has " + ", ".join(f"{key}={printable(fields[key])}" for key in keys if key in fields)
                for name, fields in case.details.partitions.items()]  # fmt: skip
    limits = "; ".join(causes) or "the limits could not be read"
    said_so = CODES.get(case.reason.code.lower(), ("", None))[1] is Blocker.PARTITION_LIMIT
    code = f" ({case.reason.code})" * said_so
    return f"Its request is outside what its partition allows{code}: {limits}.", tuple(
        f"scontrol update jobid={case.job_id} {change}" for change in dict.fromkeys(changes))  # fmt: skip


_WITHIN = {
    "MaxTime": "timelimit", "MaxMemPerNode": "minmemorynode", "MinNodes": "numnodes", "MaxNodes": "numnodes",
}  # fmt: skip


def _within_limit(limit: BrokenLimit) -> str:
    """What to set for a request within this limit, as scontrol takes it."""
    value = sbatch_time(limit.limit) if limit.key == "MaxTime" else f"{limit.limit:.0f}"
    return f"{_WITHIN[limit.key]}={value}"


def _too_few_nodes(case: BlockedJob, request: JobRequest) -> list[str]:
    """Partitions that have fewer nodes than the job asks for."""
    serves = case.snapshot.nodes.partitions
    there = {name: int(nodes_serving(serves, name).sum()) for name in request.partitions}
    return [f"partition {name} has {pluralize(nodes, 'node')}, the job asks for {request.nodes}"
            for name, nodes in there.items() if 0 < nodes < request.nodes]  # fmt: skip


def _closed(case: BlockedJob) -> SentenceAndChanges:
    table, listed = case.snapshot.partitions, case.snapshot.jobs.partition[case.row].split(",")
    causes = [
        f"{name} is {printable(state)}" for name, state in zip(table.name, table.state, strict=True) if name in listed
    ]
    where = ", ".join(causes) or printable(case.snapshot.jobs.partition[case.row])
    return f"Its partition starts no jobs now: {where}.", ()


def _licenses(case: BlockedJob) -> SentenceAndChanges:
    asked = case.details.record.get("Licenses", "")
    wanted = {part.partition(":")[0].partition("@")[0] for part in asked.replace("|", ",").split(",")}
    counts = [f"{pool.name}: {pool.used} of {pool.total} in use" for pool in case.details.pools if pool.name in wanted]
    return f"It waits for licences {printable(asked)}: {'; '.join(counts) or 'their use could not be read'}.", ()


_TELLS: dict[Blocker, Callable[[BlockedJob], SentenceAndChanges]] = {
    Blocker.LIMIT: _limit,
    Blocker.DEPENDENCY: _dependency,
    Blocker.BEGIN_TIME: _begin,
    Blocker.REQUEUED: _begin,
    Blocker.NODES: blocked_nodes.closed_by_reservation,
    Blocker.MAINTENANCE: blocked_nodes.maintenance,
    Blocker.RESERVATION: blocked_nodes.own_reservation,
    Blocker.RESERVATION_GONE: blocked_nodes.reservation_gone,
    Blocker.RUNNING: _running,
    Blocker.HELD_BY_USER: _held,
    Blocker.ENDED: _by_state,
    Blocker.STARTING: _by_state,
    Blocker.SUSPENDED: _by_state,
    Blocker.COMPLETING: _by_state,
    Blocker.STATE_UNKNOWN: _by_state,
    Blocker.ARRAY_LIMIT: _array,
    Blocker.PARTITION_LIMIT: _partition,
    Blocker.PARTITION_CLOSED: _closed,
    Blocker.LICENSES: _licenses,
    Blocker.PRIORITY: _others_first,
    Blocker.RESOURCES: _resources,
    Blocker.NOT_TRIED: _not_tried,
    Blocker.CONSTRAINTS: _constraints,
}

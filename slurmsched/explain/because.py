"""What each blocker means for one job, with the values at hand, and what would change it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf, isfinite

import numpy as np

from slurmsched.errors import InputError
from slurmsched.explain import on_nodes
from slurmsched.explain.case import Case, Said
from slurmsched.explain.obstacles import Asks, own_reservations, whole
from slurmsched.explain.states import more_of_state, sentence_of_state
from slurmsched.explain.text import clock, minutes, shown
from slurmsched.model import Snapshot
from slurmsched.model.durations import duration_s
from slurmsched.model.limits import LimitValue
from slurmsched.model.reasons import CODES, Blocker
from slurmsched.model.states import JobState
from slurmsched.survey.fit import Fit, by_partition, fit
from slurmsched.survey.request import Request, as_submitted
from slurmsched.words import some


def said(case: Case) -> Said:
    """The sentence on the blocker, and what would change it; () where only time does."""
    tell = _TELLS.get(case.reason.blocker)
    if tell:
        return tell(case)
    because, *changes = _PLAIN[case.reason.blocker]
    more = f" ({shown(case.reason.more)})" if case.reason.more else ""
    return because.format(code=shown(case.reason.code)) + more, tuple(line.format(job=case.job_id) for line in changes)


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


def _others_first(case: Case) -> Said:
    return _rivals(case) or "Others in its partition go first.", ()


def _resources(case: Case) -> Said:
    rivals = _rivals(case)
    return "The nodes, GPUs, CPUs or memory it asks for are not free yet." + f" {rivals}" * bool(rivals), ()


def _constraints(case: Case) -> Said:
    code, row = case.reason.code, case.row
    release = (f"once it can be met: scontrol release {case.job_id}",) * bool(case.snapshot.jobs.held[row])
    if code == "DeadLine":
        return "It cannot end before its --deadline any more.", (
            f"if it may end later: scontrol update jobid={case.job_id} deadline=TIME",
        )
    if CODES.get(code.lower(), ("", None))[1] is Blocker.CONSTRAINTS:
        return f"No node can ever meet what it asks for: {shown(code)}.", release
    many = max(1, int(case.snapshot.jobs.nodes[row]))
    return f"It needs {some(many, 'node')}, and fewer can ever serve it.", release


def _not_tried(case: Case) -> Said:
    if case.reason.code == "Priority":
        return ("No job before it competes for its nodes, and they have room for it. Slurm starts it at the next look "
                "of its backfill, unless something keeps it that is not told."), ()  # fmt: skip
    return "Slurm has not looked at it yet.", ()


def _rivals(case: Case) -> str:
    """That Slurm ranks others before it; "" if there is none of them."""
    jobs, rows = case.snapshot.jobs, list(case.rivals)
    if not rows:
        return ""
    gpus = some(int((jobs.gpus[rows] * np.maximum(jobs.array_tasks[rows], 1)).sum()), "GPU")
    if len(rows) == 1:
        return f"Slurm ranks 1 job before it that competes for its nodes and may start. It asks for {gpus}."
    return f"Slurm ranks {len(rows):,} jobs before it that compete for its nodes and may start. They ask for {gpus}."


_WAITING = (Blocker.PRIORITY, Blocker.RESOURCES, Blocker.NODES, Blocker.PARTITION_CLOSED)


def advice(case: Case) -> Said:
    """What `fit` says of this very job: requests near it that have room now; "" and () where it tells nothing."""
    row = case.row
    request = as_submitted(case.snapshot, row, case.facts.record, whole(case.snapshot, row, case.facts))
    if request is None or case.snapshot.jobs.het_job_id[row]:  # components start together
        return "", ()
    snapshot = _unreserved(case)
    try:
        answers = [fit(snapshot, one) for one in by_partition(snapshot, request)]
        changes = dict(_near(case, snapshot, request, answers))
    except InputError:
        return "", ()
    if any(answer.starts for answer in answers):
        return "", ()
    if not changes and case.reason.blocker in _WAITING:
        return " No single change of its request would start it now (slurmsched fit).", ()
    return "", tuple(f"{_command(case, change)}: {meaning}; there is room for that now"
                     for change, meaning in changes.items())  # fmt: skip


def _near(case: Case, snapshot: Snapshot, request: Request, answers: list[Fit]) -> Iterator[tuple[str, str]]:
    """Changes of the request with their meaning."""
    if case.reason.blocker not in (Blocker.RESERVATION, Blocker.MAINTENANCE):  # else it is said already
        yield from _earlier(snapshot, request)
    own = {f"--partition={answer.partition}" for answer in answers} | {"--time=1:00:00"}
    for answer in answers:
        yield from ((one.change, one.meaning) for one in answer.nearest if one.change not in own)


def _earlier(snapshot: Snapshot, request: Request) -> Iterator[tuple[str, str]]:
    """The longest time limit that ends before a reservation begins, where that helps."""
    now_s, table = snapshot.now_s, snapshot.reservations
    late = {int(start_s - now_s) // 60 * 60.0 for start_s in table.start_s.tolist() if start_s >= now_s + 60}
    for limit_s in sorted((limit_s for limit_s in late if limit_s < (request.time_s or 0.0)), reverse=True):
        shorter = replace(request, time_s=limit_s)
        if any(fit(snapshot, one).starts for one in by_partition(snapshot, shorter)):
            yield f"--time={minutes(limit_s)}", "it ends before a reservation begins"
            break


def _unreserved(case: Case) -> Snapshot:
    """The snapshot with the reservations of others alone."""
    table, own = case.facts.reservations, own_reservations(case.snapshot, case.row)
    return replace(case.snapshot, reservations=table.take(~table.name.isin(own)))


_UPDATES = {"--partition": "partition", "--time": "timelimit", "--nodes": "numnodes"}
_CLEARED = {"no --constraint": "features=", "no --nodelist, --exclude": "nodelist= excnodelist="}


def _command(case: Case, change: str) -> str:
    """As Slurm takes it for a job that waits; else as sbatch takes it."""
    option, _, value = change.partition("=")
    words = _CLEARED.get(change) or (f"{_UPDATES[option]}={value}" if option in _UPDATES and " " not in value else "")
    return f"scontrol update jobid={case.job_id} {words}" if words else f"submit it again with {change}"


def _limit(case: Case) -> Said:
    code, limit = case.reason.code, case.reason.limit
    values = [value for value in case.limits if value.blocks] or list(case.limits)
    if not values:
        return f"A limit is reached: {code}; its value could not be read.", ()
    told = "; ".join(map(_value, values))
    per_job = limit is not None and limit.per in ("job", "node")
    change = "ask for less: waiting does not help" if per_job else "it goes on when jobs that count there end"
    return f"A limit is reached, {code}: {told}.", (change, "or another account or QOS, where you have one")


_NAMED = 3  # jobs it depends on, with their state
_UNITS = {"wall": " minutes", "mem": " MiB"}


def _value(value: LimitValue) -> str:
    what, unit = value.what, _UNITS.get(value.what, "")
    used = "" if value.used is None else f", {value.used:g}{unit} in use"
    needs = "" if value.needs is None else f", the job needs {value.needs:g}{unit}"
    most = (
        f"{value.value:g}{unit} of {what}" if unit else f"{value.value:g} {what.removesuffix('s' * (value.value == 1))}"
    )
    return f"{shown(value.owner)} may have {most} ({value.field}{used}{needs})"


def _dependency(case: Case) -> Said:
    told = shown(case.snapshot.jobs.dependency[case.row])
    states = "".join(_named(case, number) for number in re.findall(r"(?<=[:,])(\d+)", f":{told}")[:_NAMED])
    return f"It waits for other jobs: {told or 'not told which'}.{states}", (
        f"drop the dependency: scontrol update jobid={case.job_id} dependency=",)  # fmt: skip


def _named(case: Case, number: str) -> str:
    """Of a job it depends on, where it is in the queue."""
    jobs = case.snapshot.jobs
    row = jobs.row_of(int(number))
    if row < 0:
        return ""
    state = (JobState(int(jobs.state[row])).name or "?").replace("|", "+")
    return f" Job {number} of {shown(jobs.user[row])} is {state}."


def _running(case: Case) -> Said:
    jobs, row = case.snapshot.jobs, case.row
    start_s, end_s, nodes = float(jobs.start_s[row]), float(jobs.end_s[row]), jobs.node_list[row]
    told = f"It runs on {shown(nodes)}" if nodes else "It runs"
    told += f" since {clock(start_s)}" if isfinite(start_s) else ""
    told += f", until {clock(end_s)} at the latest." if isfinite(end_s) else "."
    return told + more_of_state(int(jobs.state[row])), ()


def _held(case: Case) -> Said:
    requeued = int(case.snapshot.jobs.state[case.row]) & int(JobState.REQUEUE_HOLD)
    told = "It was requeued and is held; its owner may release it." if requeued else "Its owner holds it."
    return told, (f"scontrol release {case.job_id}",)


def _by_state(case: Case) -> Said:
    jobs, row = case.snapshot.jobs, case.row
    return sentence_of_state(int(jobs.state[row]), shown(jobs.node_list[row]), shown(jobs.state_text[row])), ()


def _begin(case: Case) -> Said:
    eligible_s = float(case.snapshot.jobs.eligible_s[case.row])
    when = f" at {clock(eligible_s)}" if isfinite(eligible_s) else ", which is not told"
    change = f"scontrol update jobid={case.job_id} starttime=now"
    if case.reason.blocker is Blocker.REQUEUED:
        return f"slurmsched took its GPUs back for another job; Slurm lets it start again{when}.", (change,)
    mine = (record for record in case.snapshot.deferrals if record.job_id == case.job_id)
    if any(record.open and record.meant(eligible_s) for record in mine):
        return f"The policy wants it to start later{when}, and slurmsched told Slurm so (lever.start).", (change,)
    again = (
        " It was requeued: Slurm itself delays the next start then." if case.snapshot.jobs.restarts[case.row] else ""
    )
    return f"It may not start before its begin time{when}.{again}", (change,)


def _array(case: Case) -> Said:
    most = case.facts.record.get("ArrayTaskThrottle", "")
    told = some(int(most), "task") if most.isdecimal() else "so many tasks as its array allows"
    array = int(case.snapshot.jobs.array_job_id[case.row]) or case.job_id
    change = f"scontrol update jobid={array} arraytaskthrottle=N"
    return f"Its array lets {told} run at a time (the % of --array).", (change,)


def _partition(case: Case) -> Said:
    """Which limits of which partition its request breaks, and what would be within them."""
    jobs, row = case.snapshot.jobs, case.row
    limit_s, many = float(jobs.time_limit_s[row]), int(jobs.nodes[row])
    told, changes = [], list[str]()
    for name, fields in case.facts.partitions.items():
        longest = fields.get("MaxTime", "")
        if limit_s > _seconds(longest):
            told.append(f"{minutes(limit_s)} is above MaxTime={shown(longest)} of {name}")
            changes.append(f"timelimit={shown(longest)}")
        most_mib = fields.get("MaxMemPerNode", "")
        if most_mib.isdecimal() and float(jobs.memory_mib[row]) / max(many, 1) > float(most_mib):
            told.append(f"{float(jobs.memory_mib[row]) / max(many, 1):.0f} MiB of memory on each node are above "
                        f"MaxMemPerNode={most_mib} of {name}")  # fmt: skip
            changes.append(f"minmemorynode={most_mib}")
        for key in ("MinNodes", "MaxNodes", "TotalNodes"):
            value = fields.get(key, "")
            if value.isdecimal() and (many < int(value) if key == "MinNodes" else many > int(value)):
                told.append(f"{some(many, 'node')} {'is' if many == 1 else 'are'} "
                            f"{'below' if key == 'MinNodes' else 'above'} {key}={value} of {name}")  # fmt: skip
                changes.append(f"numnodes={value}")
    if not told:
        told = list(Asks.of(case.snapshot, row, case.facts).found.limits.values())
    if not told:
        keys = ("MaxTime", "MinNodes", "MaxNodes", "MaxCPUsPerNode", "MaxMemPerNode", "MaxMemPerCPU", "QoS")
        told = [f"{name} has " + ", ".join(f"{key}={shown(fields[key])}" for key in keys if key in fields)
                for name, fields in case.facts.partitions.items()]  # fmt: skip
    limits = "; ".join(told) or "the limits could not be read"
    said_so = CODES.get(case.reason.code.lower(), ("", None))[1] is Blocker.PARTITION_LIMIT
    code = f" ({case.reason.code})" * said_so
    return f"Its request is outside what its partition allows{code}: {limits}.", tuple(
        f"scontrol update jobid={case.job_id} {change}" for change in dict.fromkeys(changes))  # fmt: skip


def _seconds(limit: str) -> float:
    """Of a MaxTime; endless where it sets none."""
    try:
        return duration_s(limit)
    except ValueError:
        return inf


def _closed(case: Case) -> Said:
    told = [f"{name} is {shown(fields.get('State', '?'))}" for name, fields in case.facts.partitions.items()]
    where = ", ".join(told) or shown(case.snapshot.jobs.partition[case.row])
    return f"Its partition starts no jobs now: {where}.", ()


def _licenses(case: Case) -> Said:
    asked = case.facts.record.get("Licenses", "")
    wanted = {part.partition(":")[0].partition("@")[0] for part in asked.replace("|", ",").split(",")}
    told = [f"{pool.name}: {pool.used} of {pool.total} in use" for pool in case.facts.pools if pool.name in wanted]
    return f"It waits for licences {shown(asked)}: {'; '.join(told) or 'their use could not be read'}.", ()


_TELLS: dict[Blocker, Callable[[Case], Said]] = {
    Blocker.LIMIT: _limit, Blocker.DEPENDENCY: _dependency, Blocker.BEGIN_TIME: _begin, Blocker.REQUEUED: _begin,
    Blocker.NODES: on_nodes.nodes, Blocker.MAINTENANCE: on_nodes.maintenance, Blocker.RESERVATION: on_nodes.reservation,
    Blocker.RESERVATION_GONE: on_nodes.gone, Blocker.RUNNING: _running, Blocker.HELD_BY_USER: _held,
    Blocker.ENDED: _by_state, Blocker.STARTING: _by_state, Blocker.SUSPENDED: _by_state, Blocker.COMPLETING: _by_state,
    Blocker.STATE_UNKNOWN: _by_state,
    Blocker.ARRAY_LIMIT: _array, Blocker.PARTITION_LIMIT: _partition, Blocker.PARTITION_CLOSED: _closed,
    Blocker.LICENSES: _licenses, Blocker.PRIORITY: _others_first, Blocker.RESOURCES: _resources,
    Blocker.NOT_TRIED: _not_tried, Blocker.CONSTRAINTS: _constraints,
}  # fmt: skip

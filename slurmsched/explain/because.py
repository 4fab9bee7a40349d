"""What each blocker means for one job, with the values at hand, and what would change it."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from slurmsched.explain import on_nodes
from slurmsched.explain.case import SMALLER, Case, Said
from slurmsched.explain.text import clock, minutes, shown
from slurmsched.model.limits import LimitValue
from slurmsched.model.reasons import Blocker
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
    Blocker.PRIORITY: ("Others in its partition go first.", "fewer GPUs or a shorter time limit may start earlier: "
                       "slurmsched fit"),
    Blocker.RESOURCES: ("It is next, and the nodes, GPUs, CPUs or memory it asks for are not free yet.",
                        SMALLER),
    Blocker.DEPENDENCY_NEVER: ("The job it depends on ended in another way than it asks for: it will never start.",
                               "drop the dependency: scontrol update jobid={job} dependency=", "scancel {job}"),
    Blocker.HELD_BY_USER: ("Its owner holds it.", "scontrol release {job}"),
    Blocker.HELD_BY_ADMIN: ("An administrator holds it; its owner cannot release it.", "ask the administrators"),
    Blocker.HELD_AFTER_FAILURE: ("It could not be started or ended badly, and Slurm holds it: {code}.",
                                 "look at the cause, then: scontrol release {job}"),
    Blocker.NOT_ALLOWED: ("Its account or QOS may not be used for it: {code}.",
                          "another account, QOS or partition: scontrol update jobid={job} account=NAME qos=NAME "
                          "partition=NAME"),
    Blocker.CONSTRAINTS: ("No node can ever meet what it asks for: {code}.", "change its constraint or nodes"),
    Blocker.DATA: ("It waits for its burst buffer: {code}.",),
    Blocker.POWER: ("It waits for power or for nodes that may be switched on: {code}.",),
    Blocker.LAUNCHING: ("It is being started, or cleaned up after: {code}.",),
    Blocker.FEDERATION: ("Another cluster of the federation looks at it.",),
    Blocker.NOT_TRIED: ("Slurm has not looked at it yet.",),
    Blocker.ENDED: ("It has ended.",),
    Blocker.UNKNOWN: ("Slurm says {code}, which this release of slurmsched does not know.",),
}  # fmt: skip


def _limit(case: Case) -> Said:
    code, limit = case.reason.code, case.reason.limit
    values = [value for value in case.limits if value.blocks] or list(case.limits)
    if not values:
        return f"A limit is reached: {code}; its value could not be read.", ()
    told = "; ".join(map(_value, values))
    per_job = limit is not None and limit.per in ("job", "node")
    change = "ask for less: waiting does not help" if per_job else "it goes on when jobs that count there end"
    return f"A limit is reached, {code}: {told}.", (change, "or another account or QOS, where you have one")


def _value(value: LimitValue) -> str:
    used = "" if value.used is None else f", {value.used:g} in use"
    needs = "" if value.needs is None else f", the job needs {value.needs:g}"
    return f"{shown(value.owner)} may have {value.value:g} {value.what} ({value.field}{used}{needs})"


def _dependency(case: Case) -> Said:
    told = shown(case.snapshot.jobs.dependency[case.row])
    return f"It waits for other jobs: {told or 'not told which'}.", (
        f"drop the dependency: scontrol update jobid={case.job_id} dependency=",)  # fmt: skip


def _running(case: Case) -> Said:
    jobs, row = case.snapshot.jobs, case.row
    start_s, end_s, nodes = float(jobs.start_s[row]), float(jobs.end_s[row]), jobs.node_list[row]
    told = f"It runs on {shown(nodes)}" if nodes else "It runs"
    told += f" since {clock(start_s)}" if isfinite(start_s) else ""
    return told + (f", until {clock(end_s)} at the latest." if isfinite(end_s) else "."), ()


def _begin(case: Case) -> Said:
    eligible_s = float(case.snapshot.jobs.eligible_s[case.row])
    when = f" at {clock(eligible_s)}" if isfinite(eligible_s) else ", which is not told"
    change = f"scontrol update jobid={case.job_id} starttime=now"
    if case.reason.blocker is Blocker.REQUEUED:
        return f"slurmsched took its GPUs back for another job; Slurm lets it start again{when}.", (change,)
    mine = (record for record in case.snapshot.deferrals if record.job_id == case.job_id)
    if any(record.open and record.meant(eligible_s) for record in mine):
        return f"The policy wants it to start later{when}, and slurmsched told Slurm so (lever.start).", (change,)
    return f"It may not start before its begin time{when}.", (change,)


def _array(case: Case) -> Said:
    most = case.facts.record.get("ArrayTaskThrottle", "")
    told = some(int(most), "task") if most.isdigit() else "so many tasks as its array allows"
    array = int(case.snapshot.jobs.array_job_id[case.row]) or case.job_id
    change = f"scontrol update jobid={array} arraytaskthrottle=N"
    return f"Its array lets {told} run at a time (the % of --array).", (change,)


_PARTITION_KEYS = {"PartitionTimeLimit": ("MaxTime",), "PartitionNodeLimit": ("MinNodes", "MaxNodes", "TotalNodes"),
                   "MaxMemPerLimit": ("MaxMemPerNode", "MaxMemPerCPU")}  # fmt: skip


def _partition(case: Case) -> Said:
    jobs, row = case.snapshot.jobs, case.row
    keys = _PARTITION_KEYS.get(case.reason.code, ("MaxTime", "MaxNodes", "AllowAccounts", "AllowQos"))
    told = [
        f"{name}: " + ", ".join(f"{key}={shown(fields[key])}" for key in keys if key in fields)
        for name, fields in case.facts.partitions.items()
    ]
    asks = f"it asks for {some(int(jobs.nodes[row]), 'node')} and {minutes(float(jobs.time_limit_s[row]))}"
    limits = "; ".join(told) or "the limits could not be read"
    return f"Its request is outside what its partition allows ({case.reason.code}): {asks}; {limits}.", (
        f"scontrol update jobid={case.job_id} timelimit=TIME, or numnodes=N, or partition=NAME",)  # fmt: skip


def _closed(case: Case) -> Said:
    told = [f"{name} is {shown(fields.get('State', '?'))}" for name, fields in case.facts.partitions.items()]
    where = ", ".join(told) or shown(case.snapshot.jobs.partition[case.row])
    return f"Its partition starts no jobs now: {where}.", (
        f"another partition: scontrol update jobid={case.job_id} partition=NAME",)  # fmt: skip


def _licenses(case: Case) -> Said:
    asked = case.facts.record.get("Licenses", "")
    wanted = {part.partition(":")[0].partition("@")[0] for part in asked.replace("|", ",").split(",")}
    told = [f"{pool.name}: {pool.used} of {pool.total} in use" for pool in case.facts.pools if pool.name in wanted]
    return f"It waits for licences {shown(asked)}: {'; '.join(told) or 'their use could not be read'}.", ()


_TELLS: dict[Blocker, Callable[[Case], Said]] = {
    Blocker.LIMIT: _limit, Blocker.DEPENDENCY: _dependency, Blocker.BEGIN_TIME: _begin, Blocker.REQUEUED: _begin,
    Blocker.NODES: on_nodes.nodes, Blocker.MAINTENANCE: on_nodes.maintenance, Blocker.RESERVATION: on_nodes.reservation,
    Blocker.RESERVATION_GONE: on_nodes.gone, Blocker.RUNNING: _running,
    Blocker.ARRAY_LIMIT: _array, Blocker.PARTITION_LIMIT: _partition, Blocker.PARTITION_CLOSED: _closed,
    Blocker.LICENSES: _licenses,
}  # fmt: skip

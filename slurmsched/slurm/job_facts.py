"""Asks Slurm what explains one job, beside the snapshot. Each request may fail; then what it would tell is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from slurmsched.errors import InputError, SlurmError, UnreadableError
from slurmsched.explain.facts import Facts, Pool
from slurmsched.model.acts import Reservations
from slurmsched.model.limits import parents
from slurmsched.model.reasons import Blocker, read_reason
from slurmsched.model.snapshot import Snapshot
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.reservations import read_reservations
from slurmsched.slurm.text import fields, has_task, plain, records, time_s

T = TypeVar("T")
_NO_RESERVATIONS = Reservations.build(0, {})


def find_row(commands: Commands, snapshot: Snapshot, name: str) -> int:
    """Row of a job: "7", a task "7_3", a component "7+1". Of an array or het job the record that waits, else the first.

    Raises InputError where there is none.
    """
    jobs = snapshot.jobs
    whole = int(name) if name.isdecimal() else _record_id(commands, name)
    if whole > 0 and (row := jobs.row_of(whole)) >= 0:
        return row
    parts = ((jobs.array_job_id == whole) | (jobs.het_job_id == whole)) & (whole > 0)
    rows = np.flatnonzero(parts & jobs.pending) if (parts & jobs.pending).any() else np.flatnonzero(parts)
    if len(rows):
        return int(rows[0])
    raise InputError(
        f"Slurm has no job {name} in its queue: it ended a while ago (`sacct -j {name}`), was never there, "
        "or is hidden from you"
    )


def _record_id(commands: Commands, name: str) -> int:
    """Job id of the record that stands for a task or component; 0 where Slurm does not know it."""
    leader, mark, number = name.partition("_") if "_" in name else name.partition("+")
    if not (leader.isdecimal() and number.isdecimal()):
        raise InputError(f"{name!r} is no job id; write one such as 7, 7_3 for an array task or 7+1 for a component")
    try:
        text = commands.run("scontrol", "-o", "show", "job", name)
    except SlurmError:
        return 0
    for record in records(text, "JobId"):
        told = fields(record.partition(" JobName=")[0])  # what follows its name its owner wrote
        whose, part = ("ArrayJobId", "ArrayTaskId") if mark == "_" else ("HetJobId", "HetJobOffset")
        if told.get(whose) == leader and has_task(told.get(part, ""), int(number)):
            return int(told["JobId"])
    return 0


def read_facts(
    commands: Commands, snapshot: Snapshot, row: int, *, no_limits: str = "", reservations: Reservations | None = None
) -> Facts:
    """What Slurm tells of the job; only what its reason needs is asked.

    no_limits: why limits of accounts and QOS are not asked, "" = they are. reservations: as known, None = asked too.
    """
    jobs, unread = snapshot.jobs, list[str]()

    def attempt(what: str, ask: Callable[[], T], otherwise: T) -> T:
        try:
            return ask()
        except (SlurmError, UnreadableError, ValueError) as error:
            unread.append(f"{what}: {error}")
            return otherwise

    reason = read_reason(jobs.reason[row])
    nothing: Mapping[str, str] = {}
    none: Mapping[str, Mapping[str, str]] = {}
    record = attempt("the job's record", lambda: _record(commands, snapshot, row), nothing)
    partitions = attempt("its partition", lambda: _partitions(commands, jobs.partition[row]), none)
    limits, pools = "", tuple[Pool, ...]()
    if reason.limit is not None and no_limits:
        unread.append(f"limits of accounts and QOS: {no_limits}")
    elif reason.limit is not None:
        limits = attempt("limits of accounts and QOS", lambda: _limits(commands, snapshot, row, partitions), "")
    if reason.blocker is Blocker.LICENSES:
        pools = attempt("licences", lambda: _pools(commands), ())
    if reservations is None:
        reservations = attempt("reservations", lambda: read_reservations(commands), _NO_RESERVATIONS)
    return Facts(
        record=record, partitions=partitions, pools=pools, limits=limits, reservations=reservations,
        start_s=attempt("Slurm's own expectation", lambda: time_s(record.get("StartTime", "")), float("nan")),
        unread=tuple(unread),
    )  # fmt: skip


def _record(commands: Commands, snapshot: Snapshot, row: int) -> Mapping[str, str]:
    """Fields after the job's name, which its owner chose and which may look like any of them."""
    jobs = snapshot.jobs
    text = commands.run("scontrol", "-o", "show", "job", str(int(jobs.job_id[row])))
    head, named, rest = text.partition(f"JobName={jobs.name[row]} ")
    if not named:
        raise UnreadableError("scontrol shows it under another name", text=head[:80])
    return fields(rest)


def _partitions(commands: Commands, listed: str) -> Mapping[str, Mapping[str, str]]:
    """Fields of each, hidden ones too. Slurm sends all partitions, however few are asked for: one request does."""
    names = [name for name in listed.split(",") if name]
    text = commands.run("scontrol", "-ao", "show", "partition") if names else ""
    shown = {one.get("PartitionName", ""): one for one in map(fields, records(text, "PartitionName"))}
    if missing := [name for name in names if name not in shown]:
        raise UnreadableError("scontrol does not show it", text=",".join(missing))
    return {name: shown[name] for name in names}


def _limits(commands: Commands, snapshot: Snapshot, row: int, partitions: Mapping[str, Mapping[str, str]]) -> str:
    """assoc_mgr of the job's user, its account and those above, its QOS and its partitions'."""
    jobs = snapshot.jobs
    qos = {jobs.qos[row], *(plain(fields.get("QoS", "")) for fields in partitions.values())} - {""}

    def ask(accounts: tuple[str, ...]) -> str:
        return commands.run(
            "scontrol", "-o", "show", "assoc_mgr", f"users={jobs.user[row]}", f"accounts={','.join(accounts)}",
            f"qos={','.join(sorted(qos))}", "flags=assoc,qos",
        )  # fmt: skip

    text = ask((jobs.account[row],))
    above = tuple(sorted({*parents(text), jobs.account[row]}))
    return ask(above) if len(above) > 1 else text


def _pools(commands: Commands) -> tuple[Pool, ...]:
    found = (fields(record) for record in records(commands.run("scontrol", "-o", "show", "licenses"), "LicenseName"))
    return tuple(Pool(one["LicenseName"], int(one.get("Total", 0)), int(one.get("Used", 0))) for one in found)

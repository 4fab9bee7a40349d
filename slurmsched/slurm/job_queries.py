"""Asks Slurm for what explains one job: for `explain`, and for web pages within limits. Failures are named."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import nan
from typing import TypeVar

import numpy as np

from slurmsched.config import SlurmConfig
from slurmsched.errors import InputError, SlurmError, SlurmUnreachableError, UnreadableError
from slurmsched.model import NodeState
from slurmsched.model.job_details import JobDetails, LicensePool, PlannedStart, ShareAndUse
from slurmsched.model.operations import Reservations
from slurmsched.model.reasons import Blocker, parents, read_reason
from slurmsched.model.slurm_text import (
    has_task,
    is_signed_number,
    record_fields,
    split_records,
    text_or_empty,
    time_s,
    whole_number,
)
from slurmsched.model.snapshot import NO_RESERVATIONS, Snapshot
from slurmsched.plain_text import pluralize
from slurmsched.slurm.commands import Attempts, Commands
from slurmsched.slurm.scontrol_tables import SHOW_PARTITIONS, SHOW_RESERVATIONS, read_reservations
from slurmsched.slurm.squeue import fresh_mark

T = TypeVar("T")
SHOW_JOB = ("scontrol", "-o", "show", "job")


def find_row(commands: Commands, snapshot: Snapshot, name: str) -> int:
    """Row of a job "7", an array task "7_3" or a het component "7+1".

    For an array or het job: its pending record, else its first one. Raises InputError if there is none.
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
    """Job id of the record of an array task or het component; 0 if Slurm has none."""
    leader, mark, number = name.partition("_") if "_" in name else name.partition("+")
    if not (leader.isdecimal() and number.isdecimal()):
        raise InputError(f"{name!r} is no job id; write 7, 7_3 for an array task or 7+1 for a het component")
    try:
        text = commands.run(*SHOW_JOB, name)
    except SlurmError:
        return 0
    for record in split_records(text, "JobId"):
        shown = record_fields(record.partition(" JobName=")[0])  # the owner chose the name; it may look like any field
        whose, part = ("ArrayJobId", "ArrayTaskId") if mark == "_" else ("HetJobId", "HetJobOffset")
        if shown.get(whose) == leader and has_task(shown.get(part, ""), int(number)):
            return int(shown["JobId"])
    return 0


def begin_details(commands: Commands, name: str) -> None:
    """Ask now what read_details asks whatever the queue shows, so that Slurm answers both at once.

    name: as in find_row. Raises SlurmUnreachableError.
    """
    for question in (SHOW_PARTITIONS, SHOW_RESERVATIONS, *(((*SHOW_JOB, str(int(name))),) if name.isdecimal() else ())):
        commands.begin(*question)


# Over 30 lines: one question to Slurm after the other, each only if the reason needs it.
def read_details(
    commands: Commands, snapshot: Snapshot, row: int, *, no_limits: str = "", reservations: Reservations | None = None
) -> JobDetails:
    """What Slurm shows of the job. Only what its reason needs is asked for.

    no_limits: why limits of accounts and QOS are not asked for, "" = they are.
    reservations: those that are known, None = ask.
    """
    jobs, attempt = snapshot.jobs, Attempts()
    reason = read_reason(jobs.reason[row])
    nothing: Mapping[str, str] = {}
    none: Mapping[str, Mapping[str, str]] = {}
    record = attempt("the job's record", lambda: _record(commands, snapshot, row), nothing)
    partitions = attempt("its partition", lambda: _partitions(commands, jobs.partition[row]), none)
    limits, pools = "", tuple[LicensePool, ...]()
    if reason.limit is not None and no_limits:
        attempt.unread.append(f"limits of accounts and QOS: {no_limits}")
    elif reason.limit is not None:
        limits = attempt("limits of accounts and QOS", lambda: _limits(commands, snapshot, row, partitions), "")
    if reason.blocker is Blocker.LICENSES:
        pools = attempt("licences", lambda: _pools(commands), ())
    if reservations is None:
        reservations = attempt("reservations", lambda: read_reservations(commands), NO_RESERVATIONS)
    return JobDetails(
        record=record, partitions=partitions, pools=pools, limits=limits, reservations=reservations,
        start_s=attempt("Slurm's own expectation", lambda: time_s(record.get("StartTime", "")), float("nan")),
        unread=tuple(attempt.unread),
    )  # fmt: skip


def _record(commands: Commands, snapshot: Snapshot, row: int) -> Mapping[str, str]:
    """Fields of the job's record after its name. The owner chose the name; it may look like any field."""
    jobs = snapshot.jobs
    text = commands.run(*SHOW_JOB, str(int(jobs.job_id[row])))
    head, named, rest = text.partition(f"JobName={jobs.name[row]} ")
    if not named:
        raise UnreadableError("scontrol shows it under another name", text=head[:80])
    return record_fields(rest)


def _partitions(commands: Commands, listed: str) -> Mapping[str, Mapping[str, str]]:
    """Fields of each partition, hidden ones too. Slurm always sends all of them, so one request is enough."""
    names = [name for name in listed.split(",") if name]
    text = commands.run(*SHOW_PARTITIONS) if names else ""
    shown = {one.get("PartitionName", ""): one for one in map(record_fields, split_records(text, "PartitionName"))}
    if missing := [name for name in names if name not in shown]:
        raise UnreadableError("scontrol does not show it", text=",".join(missing))
    return {name: shown[name] for name in names}


def _limits(commands: Commands, snapshot: Snapshot, row: int, partitions: Mapping[str, Mapping[str, str]]) -> str:
    """assoc_mgr of the job's user, its account and the accounts above, its QOS and those of its partitions."""
    jobs = snapshot.jobs
    qos = {jobs.qos[row], *(text_or_empty(fields.get("QoS", "")) for fields in partitions.values())} - {""}

    def ask(accounts: tuple[str, ...]) -> str:
        return commands.run(
            "scontrol", "-o", "show", "assoc_mgr", f"users={jobs.user[row]}", f"accounts={','.join(accounts)}",
            f"qos={','.join(sorted(qos))}", "flags=assoc,qos",
        )  # fmt: skip

    text = ask((jobs.account[row],))
    above = tuple(sorted({*parents(text), jobs.account[row]}))
    return ask(above) if len(above) > 1 else text


def _pools(commands: Commands) -> tuple[LicensePool, ...]:
    found = (
        record_fields(record)
        for record in split_records(commands.run("scontrol", "-o", "show", "licenses"), "LicenseName")
    )
    return tuple(LicensePool(one["LicenseName"], int(one.get("Total", 0)), int(one.get("Used", 0))) for one in found)


# Questions of the web pages.

PATIENCE_S = 2.0  # for one answer
PAGE_BUDGET_S = 5.0  # for all answers of one page; the ledger is read too before the server closes the connection
SAME_FOR_ALL_JOBS = ("partition", "licenses")  # the output of `scontrol show` for these is the same for every job
HIDDEN = "PrivateData hides them from users here; `slurmsched explain JOB` shows what you may see"
NO_ANSWER_BEFORE = "not asked: Slurm did not answer an earlier question since this cycle"
SLOW_BEFORE = "not asked: earlier answers took too long"
# Keys of a partition with hidden accounts and QOS.
HIDDEN_PARTITION_KEYS = (
    "AllowAccounts",
    "AllowQos",
    "DenyAccounts",
    "DenyQos",
)


@dataclass(frozen=True, slots=True)
class BoundedCommands(Commands):
    """Commands that stop running after one of them got no answer.

    late: set after a command without an answer.
    answers: those that are the same for every job.
    keeping: guards them.
    until_s: no command is started after this time [s of the monotonic clock].
    """

    late: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    answers: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    keeping: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    until_s: float = math.inf

    def run(self, program: str, *arguments: str, stdin: str = "") -> str:
        """As Commands.run. Raises SlurmUnreachableError at once after an unanswered command."""
        if arguments[-1] not in SAME_FOR_ALL_JOBS:
            return self._run(program, *arguments, stdin=stdin)
        with self.keeping:
            if arguments[-1] not in self.answers:
                self.answers[arguments[-1]] = self._run(program, *arguments, stdin=stdin)
            return self.answers[arguments[-1]]

    def _run(self, program: str, *arguments: str, stdin: str) -> str:
        if self.late.is_set():
            raise SlurmUnreachableError(NO_ANSWER_BEFORE)
        remaining_s = self.until_s - time.monotonic()
        if remaining_s <= 0:
            raise SlurmUnreachableError(SLOW_BEFORE)
        try:
            asking = replace(self, timeout_s=min(self.timeout_s, remaining_s))
            return Commands.run(asking, program, *arguments, stdin=stdin)
        except SlurmUnreachableError:
            self.late.set()
            raise


class PageQueries:
    """Answers about jobs of one snapshot, for several threads. most: number of jobs to ask about."""

    def __init__(self, settings: SlurmConfig, snapshot: Snapshot, most: int) -> None:
        patience_s = min(settings.timeout_s, PATIENCE_S)
        self._commands = BoundedCommands(settings.bin_dir, settings.conf, patience_s)
        self._snapshot, self._most, self._remaining = snapshot, most, most
        self._lock = threading.Lock()

    def __call__(self, row: int) -> JobDetails:
        """What Slurm shows of the job in this row, with the reservations of the snapshot."""
        answers = self._snapshot.reservations
        if not self._taken():
            most = pluralize(self._most, "job")
            limit = f"Slurm was asked about {most} for pages since this cycle, which is the limit"
            return JobDetails(reservations=answers, unread=(f"{limit}; use `slurmsched explain JOB`",))
        no_limits = HIDDEN if self._hides("accounts", "usage", "users") else ""
        asking = replace(self._commands, until_s=time.monotonic() + PAGE_BUDGET_S)
        return self._seen(read_details(asking, self._snapshot, row, no_limits=no_limits, reservations=answers))

    def _seen(self, details: JobDetails) -> JobDetails:
        """The facts without what Slurm hides from users."""
        if self._hides("partitions"):
            return replace(details, partitions={}, unread=(*details.unread, f"its partition: {HIDDEN}"))
        if not self._hides("accounts", "usage", "users"):
            return details
        seen = {name: {key: value for key, value in fields.items() if key not in HIDDEN_PARTITION_KEYS}
                for name, fields in details.partitions.items()}  # fmt: skip
        return replace(details, partitions=seen)

    def _hides(self, *kinds: str) -> bool:
        """Whether Slurm shows users only their own of these. Who reads a page is unknown."""
        return self._snapshot.site.hides(*kinds)

    def _taken(self) -> bool:
        with self._lock:
            self._remaining -= 1
            return self._remaining >= 0


# Where a job stands by Slurm's own account: shares and use, the parts of its priority, nodes planned for others.


# Parts of a priority: what sprio calls them, and the letter by which it prints their points.
PARTS = {"age": "A", "assoc": "B", "fairshare": "F", "jobsize": "J", "partition": "P", "qos": "Q", "tres": "T",
         "site": "S", "nice": "N"}  # fmt: skip


def read_standing(commands: Commands, snapshot: Snapshot, row: int, details: JobDetails) -> JobDetails:
    """The facts with these of a waiting job, at up to three requests. What cannot be read is named in `unread`."""
    if not snapshot.jobs.pending[row]:
        return details
    attempt, job = Attempts(), int(snapshot.jobs.job_id[row])
    owner = snapshot.jobs.account[row], snapshot.jobs.user[row]
    return replace(
        details,
        shares=attempt("shares", lambda: read_shares(commands, *owner), ())
        if snapshot.site.accounts_in_slurmdbd
        else (),
        priority_parts=attempt("the parts of its priority", lambda: read_priority_parts(commands, job), {}),
        planned=attempt("nodes that Slurm has planned", lambda: read_planned(commands), None)
        if _has_planned(snapshot, row)
        else (),
        unread=(*details.unread, *attempt.unread),
    )


def begin_standing(commands: Commands, snapshot: Snapshot, row: int) -> None:
    """Ask now what read_standing will ask, while other work is done. Raises SlurmUnreachableError."""
    jobs = snapshot.jobs
    if not jobs.pending[row]:
        return
    commands.begin(*_priority_question(int(jobs.job_id[row])))
    if snapshot.site.accounts_in_slurmdbd:
        commands.begin(*_share_question(jobs.account[row], jobs.user[row]))


def _has_planned(snapshot: Snapshot, row: int) -> bool:
    """Whether a node in one of the job's partitions is planned for a job."""
    nodes, asked = snapshot.nodes, set(snapshot.jobs.partition[row].split(","))
    rows = np.flatnonzero(nodes.is_state(NodeState.PLANNED)).tolist()
    return any(not asked.isdisjoint(nodes.partitions[at].split(",")) for at in rows)


def read_shares(commands: Commands, account: str, user: str) -> tuple[ShareAndUse, ...]:
    """The account's, then the user's in it; without those that Slurm hides. Raises SlurmError."""
    text = commands.run(*_share_question(account, user))
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
    mine = [row for row in rows if len(row) == 5 and row[0] == account and row[1] in ("", user)]
    return tuple(ShareAndUse(row[0], row[1], *map(_part, row[2:])) for row in sorted(mine, key=lambda row: row[1]))


def _share_question(account: str, user: str) -> tuple[str, ...]:
    columns = "Account,User,NormShares,EffectvUsage,FairShare"
    return "sshare", "-n", "-P", "-u", user, "-A", account, "-o", columns


def _part(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return nan


def read_priority_parts(commands: Commands, job_id: int) -> dict[str, int]:
    """Points of each part; of a job in several partitions those of the partition for which they are most.

    {} for a job that sprio does not show: held, or not yet eligible. Raises SlurmError.
    """
    lines = commands.run(*_priority_question(job_id)).splitlines()
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    known = [dict(zip(("priority", *PARTS), map(_points, row[1:]), strict=True)) for row in rows
             if len(row) == len(PARTS) + 2 and whole_number(row[0]) == job_id]  # fmt: skip
    return max(known, key=lambda parts: parts["priority"], default={})


def _priority_question(job_id: int) -> tuple[str, ...]:
    form = "%i|%Y|" + "|".join(f"%{letter}" for letter in PARTS.values())
    return "sprio", "-h", "-j", str(job_id), "-o", form


def _points(text: str) -> int:
    """Points as sprio prints them; those of TRES are "cpu=10,gres/gpu=20" or "". Raises UnreadableError."""
    points = [part.rpartition("=")[2] for part in text.split(",") if part]
    if not all(map(is_signed_number, points)):
        raise UnreadableError("sprio printed no number of points", text=text[:80])
    return sum(map(int, points))


def read_planned(commands: Commands) -> tuple[PlannedStart, ...]:
    """All waiting jobs for which backfill has planned nodes, as far as Slurm shows them. Raises SlurmError."""
    mark = fresh_mark()
    columns = f"JobID:0|,StartTime:0|,SchedNodes:0|,UserName:0{mark}"
    found = (
        row.strip("\n").split("|", 3)
        for row in commands.run("squeue", "-h", "-a", "-t", "PD", "-O", columns).split(mark)
    )
    rows = [row for row in found if len(row) == 4 and text_or_empty(row[2]) and whole_number(row[0])]
    return tuple(PlannedStart(whole_number(job), user, nodes, time_s(start)) for job, start, nodes, user in rows)

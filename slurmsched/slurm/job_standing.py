"""Where a job stands by Slurm's own account: shares and use, the parts of its priority, nodes planned for others."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import numpy as np

from slurmsched.errors import UnreadableError
from slurmsched.model import NodeState
from slurmsched.model.job_details import JobDetails, PlannedStart, ShareAndUse
from slurmsched.model.slurm_text import is_signed_number, text_or_empty, time_s, whole_number
from slurmsched.model.snapshot import Snapshot
from slurmsched.slurm.commands import Attempts, Commands
from slurmsched.slurm.squeue import fresh_mark

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


def _has_planned(snapshot: Snapshot, row: int) -> bool:
    """Whether a node in one of the job's partitions is planned for a job."""
    nodes, asked = snapshot.nodes, set(snapshot.jobs.partition[row].split(","))
    rows = np.flatnonzero(nodes.is_state(NodeState.PLANNED)).tolist()
    return any(not asked.isdisjoint(nodes.partitions[at].split(",")) for at in rows)


def read_shares(commands: Commands, account: str, user: str) -> tuple[ShareAndUse, ...]:
    """The account's, then the user's in it; without those that Slurm hides. Raises SlurmError."""
    columns = "Account,User,NormShares,EffectvUsage,FairShare"
    text = commands.run("sshare", "-n", "-P", "-u", user, "-A", account, "-o", columns)
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
    mine = [row for row in rows if len(row) == 5 and row[0] == account and row[1] in ("", user)]
    return tuple(ShareAndUse(row[0], row[1], *map(_part, row[2:])) for row in sorted(mine, key=lambda row: row[1]))


def _part(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return nan


def read_priority_parts(commands: Commands, job_id: int) -> dict[str, int]:
    """Points of each part; of a job in several partitions those of the partition for which they are most.

    {} for a job that sprio does not show: held, or not yet eligible. Raises SlurmError.
    """
    form = "%i|%Y|" + "|".join(f"%{letter}" for letter in PARTS.values())
    lines = commands.run("sprio", "-h", "-j", str(job_id), "-o", form).splitlines()
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    known = [dict(zip(("priority", *PARTS), map(_points, row[1:]), strict=True)) for row in rows
             if len(row) == len(PARTS) + 2 and whole_number(row[0]) == job_id]  # fmt: skip
    return max(known, key=lambda parts: parts["priority"], default={})


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

"""The site's own history from accounting, a span of time a call, read only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from slurmsched.errors import SlurmError, UnreadableError
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.text import time_s

DISABLED = "accounting storage is disabled"  # what sacct says then
DELIMITER = "\x1f"  # no job name holds it
WANTED = (
    "JobID", "JobIDRaw", "User", "Account", "Partition", "QOS", "State", "Submit", "Start", "End", "ElapsedRaw",
    "Suspended", "TimelimitRaw", "NNodes", "AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES", "JobName", "SubmitLine",
)  # fmt: skip


def fields(commands: Commands) -> tuple[str, ...]:
    """Of the fields wanted, those that this sacct knows (AllocGRES went in 21.08, SubmitLine came in 21.08)."""
    known = {name.lower() for name in _asked(commands, "--helpformat").split()}
    found = tuple(name for name in WANTED if name.lower() in known)
    if "State" not in found:
        raise SlurmError("sacct --helpformat lists no field State; is this Slurm's sacct?")
    return found


def ended_runs(commands: Commands, names: Sequence[str], start_s: float, end_s: float) -> list[str]:
    """Rows of all runs that ended within [start_s, end_s), earlier runs of requeued jobs too; steps left out.

    A run ends once, so that spans side by side give each run once. Rows whose end cannot be read are kept, to be
    counted by whoever reads them; further lines of a text that holds line breaks go with their row. Raises
    SlurmUnreachableError when slurmdbd is away, SlurmError for what sacct complains of, and where Slurm keeps no
    history.
    """
    answer = _asked(
        commands,
        "--allocations", "--duplicates", "--allusers", "--parsable2", "--noheader", "--noconvert",
        f"--delimiter={DELIMITER}", f"--starttime={_clock(start_s)}", f"--endtime={_clock(end_s)}",
        f"--format={','.join(names)}",
    )  # fmt: skip
    end_at = list(names).index("End")
    rows, within = list[str](), True
    for line in filter(str.strip, answer.split("\n")):
        if line.count(DELIMITER) >= end_at:  # else it goes on with a text that holds line breaks
            within = _within(line, end_at, start_s, end_s)
        if within:
            rows.append(line)
    return rows


def _asked(commands: Commands, *options: str) -> str:
    """What sacct answers; of some versions every call fails where there is no slurmdbd."""
    try:
        return commands.run("sacct", *options)
    except SlurmError as error:
        if DISABLED not in str(error):
            raise
        kept = "only with slurmdbd (AccountingStorageType=accounting_storage/slurmdbd)"
        raise SlurmError(f"this Slurm has no history to read, which it keeps {kept}: {error}") from error


def _clock(unix_s: float) -> str:
    """A time as sacct reads it; Commands runs everything in UTC."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _within(line: str, end_at: int, start_s: float, end_s: float) -> bool:
    try:
        ended_s = time_s(line.split(DELIMITER)[end_at])
    except UnreadableError:
        return True
    return not math.isnan(ended_s) and start_s <= ended_s < end_s

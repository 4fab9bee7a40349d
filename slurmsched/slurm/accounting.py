"""What Slurm's accounting has: earlier runs of jobs, ended runs of the site, typical run times, shares of accounts.

A requeue closes a record, and only `sacct -D` shows it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import isfinite

from slurmsched.errors import SlurmError, UnreadableError
from slurmsched.logs import get_logger
from slurmsched.model.gres import GpuRequest, device_shards, parse_gres
from slurmsched.model.nodes import Nodes
from slurmsched.model.slurm_text import MOST_COUNT, slurm_duration_s, time_s, whole_number
from slurmsched.model.snapshot import Site, Snapshot
from slurmsched.plain_text import pluralize
from slurmsched.slurm.commands import Commands, argument_batches

log = get_logger()

JOBS_PER_CALL = 500  # job ids in one call, so that command line and answer stay small
_FIELDS = ("JobIDRaw", "Submit", "Start", "End", "Suspended", "State", "AllocTRES")
_ARGUMENTS = (
    *("--allocations", "--duplicates", "--allusers", "--parsable2", "--noconvert", "--starttime=1970-01-02"),
    f"--format={','.join(_FIELDS)}",
)


@dataclass(frozen=True, slots=True)
class AccountedRun:
    """One run of a job in accounting. Times are Unix seconds.

    submit_s: of this run; a requeue gives the next run a later one.
    start_s: NaN if it never started.
    end_s: NaN while it runs.
    gpus: whole GPUs held, see with_parts.
    shards: held, or MPS.
    state: as sacct prints it, without "by UID".
    restart: number of runs of the job before this one.
    """

    job_id: int
    submit_s: float
    start_s: float
    end_s: float
    suspended_s: float
    gpus: float
    state: str
    restart: int
    shards: int = 0


def earlier_runs(commands: Commands, job_ids: Sequence[int]) -> list[AccountedRun]:
    """All runs of these jobs in accounting, by job and submit time. The current run is among them.

    Job ids are reused after MaxJobId; submit times distinguish such jobs. The log counts unreadable rows. Raises
    SlurmUnreachableError if slurmdbd is down.
    """
    runs, warnings = list[AccountedRun](), list[str]()
    for i in range(0, len(job_ids), JOBS_PER_CALL):
        chosen = frozenset(job_ids[i : i + JOBS_PER_CALL])
        answer = commands.run("sacct", *_ARGUMENTS, f"--jobs={','.join(map(str, sorted(chosen)))}")
        # The id of an array gives its tasks too.
        runs += [run for run in parse_runs(answer, warnings) if run.job_id in chosen]
    for warning in warnings:
        log.warning("sacct.unread", message=warning)
    return sorted(runs, key=lambda run: (run.job_id, run.submit_s, run.restart))


def parse_runs(text: str, warnings: list[str]) -> list[AccountedRun]:
    """Runs in the output of `sacct -P`, whose header must name at least the fields above.

    Steps are skipped. Rows with an unreadable number or time are skipped and counted in a warning. A JobName may
    contain "|" if it is the last field. Raises UnreadableError.
    """
    lines = iter(text.splitlines())
    header = next(lines, "").split("|")
    missing = [name for name in _FIELDS if name not in header]
    if missing:
        raise UnreadableError(f"sacct printed no {', '.join(missing)}", text="|".join(header))
    runs, unread = list[AccountedRun](), list[str]()
    for run in sorted(
        _runs(lines, header, unread), key=lambda run: (run.job_id, run.submit_s if run.submit_s > 0 else 0.0)
    ):
        again = runs and runs[-1].job_id == run.job_id
        runs.append(replace(run, restart=runs[-1].restart + 1 if again else 0))
    if unread:
        warnings.append(f"{pluralize(len(unread), 'row')} of sacct cannot be read; the first: {unread[0][:100]!r}")
    return runs


def _runs(lines: Iterator[str], header: Sequence[str], unread: list[str]) -> Iterator[AccountedRun]:
    """unread: gets the lines that cannot be read."""
    for line in lines:
        values = line.split("|", len(header) - 1)
        if len(values) < len(header):
            raise UnreadableError(f"sacct printed {len(values)} fields, not {len(header)}", text=line)
        row = dict(zip(header, values, strict=False))
        if "." in row["JobIDRaw"]:  # a step
            continue
        try:
            yield _run(row)
        except UnreadableError:
            unread.append(line)


def _run(row: dict[str, str]) -> AccountedRun:
    if not (job_id := whole_number(row["JobIDRaw"])):
        raise UnreadableError("not a job id", text=row["JobIDRaw"])
    suspended, held = slurm_duration_s(row["Suspended"]), GpuRequest.of(parse_gres(row["AllocTRES"]))
    return AccountedRun(
        job_id=job_id,
        submit_s=time_s(row["Submit"]),
        start_s=time_s(row["Start"]),
        end_s=time_s(row["End"]),
        suspended_s=suspended if isfinite(suspended) else 0.0,
        gpus=held.gpus,
        state=row["State"].partition(" by ")[0],
        restart=0,
        shards=held.shards,
    )


def with_parts(runs: Sequence[AccountedRun], nodes: Nodes) -> list[AccountedRun]:
    """The runs; those with shards alone have the part of a GPU that these are, if all GPUs have as many shards."""
    sizes = {size for text in nodes.shards.names for _, size in device_shards(text)}
    size = sizes.pop() if len(sizes) == 1 else 0
    parts = (run.shards / size if size and not run.gpus else 0.0 for run in runs)
    return [replace(run, gpus=min(part, 1.0)) if part else run for run, part in zip(runs, parts, strict=True)]


# Ended runs of the whole site.

NO_ACCOUNTING = "accounting storage is disabled"  # the message of sacct
DELIMITER = "\x1f"  # no job name contains it
HISTORY_FIELDS = (
    "JobID", "JobIDRaw", "User", "Account", "Partition", "QOS", "State", "Submit", "Eligible", "Start", "End",
    "ElapsedRaw", "Suspended", "TimelimitRaw", "NNodes", "NodeList", "AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES",
    "Constraints", "JobName", "SubmitLine",
)  # fmt: skip


def known_fields(commands: Commands) -> tuple[str, ...]:
    """The fields of WANTED that this sacct has. AllocGRES was removed in 21.08; SubmitLine was added in 21.08."""
    known = {name.lower() for name in _asked(commands, "--helpformat").split()}
    found = tuple(name for name in HISTORY_FIELDS if name.lower() in known)
    if "State" not in found:
        raise SlurmError("sacct --helpformat lists no field State; is this Slurm's sacct?")
    return found


def ended_runs(commands: Commands, names: Sequence[str], start_s: float, end_s: float) -> list[str]:
    """Rows of all runs that ended within [start_s, end_s), without steps.

    Earlier runs of requeued jobs are among them. Adjacent spans give each run once. Rows whose end cannot be read are
    kept, so that the caller can count them. A text with line breaks makes several lines; they stay with their row.

    Raises SlurmUnreachableError if slurmdbd is down, SlurmError for other errors and if Slurm keeps no history.
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
    """The output of sacct. Without slurmdbd every call fails in some versions."""
    try:
        return commands.run("sacct", *options)
    except SlurmError as error:
        if NO_ACCOUNTING not in str(error):
            raise
        needs = "it needs slurmdbd (AccountingStorageType=accounting_storage/slurmdbd)"
        raise SlurmError(f"this Slurm keeps no history; {needs}: {error}") from error


def _clock(unix_s: float) -> str:
    """A time in the form that sacct reads. Commands runs everything in UTC."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _within(line: str, end_at: int, start_s: float, end_s: float) -> bool:
    try:
        ended_s = time_s(line.split(DELIMITER)[end_at])
    except UnreadableError:
        return True
    return not math.isnan(ended_s) and start_s <= ended_s < end_s


# Typical run times of users' jobs, from accounting.

DAYS = 30
TypicalRunTimes = Mapping[tuple[str, str], tuple[float, ...]]  # user, partition -> run times, ascending [s]


def read_typical_run_times(commands: Commands, users: Collection[str], warnings: list[str]) -> TypicalRunTimes:
    """Run times of GPU jobs of these users that completed in the last 30 days.

    Raises SlurmError if there is no accounting or it does not answer.
    """
    answers = (commands.run(
        "sacct", "--allocations", "--noheader", "--parsable2", f"--user={listed}", "--state=COMPLETED",
        f"--starttime=now-{DAYS}days", "--endtime=now", "--format=User,Partition,ElapsedRaw,AllocTRES",
    ) for listed in argument_batches(sorted(users)))  # fmt: skip
    return parse_typical_run_times("\n".join(answers), warnings)


def parse_typical_run_times(text: str, warnings: list[str]) -> TypicalRunTimes:
    """The run times of jobs with GPUs. Unreadable rows are counted in a warning."""
    found: dict[tuple[str, str], list[float]] = {}
    unread = 0
    for line in filter(str.strip, text.splitlines()):
        row = line.split("|", 3)
        if len(row) != 4 or (seconds := whole_number(row[2], -1, MOST_COUNT)) < 0:
            unread += 1
        elif "gres/gpu" in row[3]:
            found.setdefault((row[0], row[1]), []).append(float(seconds))
    if unread:
        warnings.append(f"run times of users: {pluralize(unread, 'row')} of sacct cannot be read")
    return {key: tuple(sorted(times)) for key, times in found.items()}


# Shares of accounts.

SHARES_RELOAD_S = 3600.0
SHARES_RETRY_S = 600.0  # after no answer
ROOT_ACCOUNT = "root"
_SHARES_COMMAND = ("sacctmgr", "-nP", "show", "assoc", "format=cluster,account,parentname,user,share")


class AccountShares:
    """Adds the shares of accounts to snapshots.

    They are read at the first snapshot and again every hour, or ten minutes after slurmdbd did not answer. Until then
    the last ones stay, with a warning. Without slurmdbd there are none.

    Only slurmdbd is asked. No rights are needed, but PrivateData=accounts hides other users' accounts.
    """

    def __init__(self, commands: Commands, clock: Callable[[], float] = time.monotonic) -> None:
        self._commands, self._clock = commands, clock
        self._read_s = float("-inf")
        self._shares: Mapping[str, float] = {}
        self._warnings: tuple[str, ...] = ()

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the shares of its accounts."""
        if self._clock() - self._read_s > SHARES_RELOAD_S:
            self._read(snapshot.site)
            self._read_s = self._clock() - (SHARES_RELOAD_S - SHARES_RETRY_S if self._warnings else 0.0)
        return replace(snapshot, shares=self._shares, warnings=(*snapshot.warnings, *self._warnings))

    def _read(self, site: Site) -> None:
        if not site.accounts_in_slurmdbd:
            return
        try:
            self._shares, self._warnings = parse_shares(self._commands.run(*_SHARES_COMMAND), site.cluster), ()
        except SlurmError as error:
            self._warnings = (f"shares of accounts: {error}",)


def parse_shares(text: str, cluster: str) -> dict[str, float]:
    """Shares by account, from rows of cluster, account, parent, user and share.

    A top account has its shares as they are. The accounts below another one divide its shares in proportion to theirs.
    "parent" in place of a number counts as 1. Rows of users, of other clusters and of another form are left out.
    """
    rows = [line.split("|") for line in text.splitlines()]
    mine = [
        row
        for row in rows
        if len(row) == 5 and row[0].lower() == cluster.lower() and not row[3] and row[1] != ROOT_ACCOUNT
    ]
    raw = {account: float(whole_number(share, 1)) for _, account, _, _, share in mine}
    parents = {account: parent for _, account, parent, _, _ in mine}
    totals: dict[str, float] = {}
    for account, parent in parents.items():
        totals[parent] = totals.get(parent, 0.0) + raw[account]

    def whole(account: str, above: frozenset[str]) -> float:
        parent = parents[account]
        if parent not in raw or parent in above:
            return raw[account]
        return whole(parent, above | {account}) * raw[account] / (totals[parent] or 1.0)

    return {account: whole(account, frozenset()) for account in sorted(raw)}

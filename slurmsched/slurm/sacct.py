"""Earlier runs of jobs from Slurm's accounting: a requeue closes a record, and only sacct -D shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite

from slurmsched.errors import UnreadableError
from slurmsched.logs import get_logger
from slurmsched.model.gres import count_gpus, parse_gres
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.text import duration_s, time_s, whole
from slurmsched.words import some

log = get_logger()

CHUNK = 500  # job ids a call: keeps the command line and slurmdbd's answer small
_FIELDS = ("JobIDRaw", "Submit", "Start", "End", "Suspended", "State", "AllocTRES")
_ARGUMENTS = (
    *("--allocations", "--duplicates", "--allusers", "--parsable2", "--noconvert", "--starttime=1970-01-02"),
    f"--format={','.join(_FIELDS)}",
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job, as accounting keeps it.

    submit_s: of this run; a requeue gives the next run a later one. start_s: NaN if it never started.
    end_s: NaN while it runs. gpus: whole GPUs held. state: as sacct prints it, without "by UID".
    restart: how many runs of the job came before it.
    """

    job_id: int
    submit_s: float
    start_s: float
    end_s: float
    suspended_s: float
    gpus: int
    state: str
    restart: int


def earlier_runs(commands: Commands, job_ids: Sequence[int]) -> list[Run]:
    """All runs that accounting has of these jobs, by job and submit time, the present one too.

    Ids come back after MaxJobId: runs of another job are told by their submit times. Rows that cannot be read are
    counted in the log. Raises SlurmUnreachableError when slurmdbd is away.
    """
    runs, warnings = list[Run](), list[str]()
    for i in range(0, len(job_ids), CHUNK):
        chosen = frozenset(job_ids[i : i + CHUNK])
        answer = commands.run("sacct", *_ARGUMENTS, f"--jobs={','.join(map(str, sorted(chosen)))}")
        runs += [
            run for run in parse_runs(answer, warnings) if run.job_id in chosen
        ]  # an array's id brings its tasks too
    for warning in warnings:
        log.warning("sacct.unread", told=warning)
    return sorted(runs, key=lambda run: (run.job_id, run.submit_s, run.restart))


def parse_runs(text: str, warnings: list[str]) -> list[Run]:
    """Runs of `sacct -P` text with a header line that names at least the fields asked above.

    Steps are skipped. So are rows with a number or time that is none, which are counted in a warning. A JobName may
    hold "|" if it is the last field. Raises UnreadableError.
    """
    lines = iter(text.splitlines())
    header = next(lines, "").split("|")
    missing = [name for name in _FIELDS if name not in header]
    if missing:
        raise UnreadableError(f"sacct printed no {', '.join(missing)}", text="|".join(header))
    runs, unread = list[Run](), list[str]()
    for run in sorted(
        _runs(lines, header, unread), key=lambda run: (run.job_id, run.submit_s if run.submit_s > 0 else 0.0)
    ):
        again = runs and runs[-1].job_id == run.job_id
        runs.append(replace(run, restart=runs[-1].restart + 1 if again else 0))
    if unread:
        warnings.append(f"{some(len(unread), 'row')} of sacct cannot be read; the first: {unread[0][:100]!r}")
    return runs


def _runs(lines: Iterator[str], header: Sequence[str], unread: list[str]) -> Iterator[Run]:
    """unread: given the lines that are left out."""
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


def _run(row: dict[str, str]) -> Run:
    if not (job_id := whole(row["JobIDRaw"])):
        raise UnreadableError("not a job id", text=row["JobIDRaw"])
    suspended = duration_s(row["Suspended"])
    return Run(
        job_id=job_id,
        submit_s=time_s(row["Submit"]),
        start_s=time_s(row["Start"]),
        end_s=time_s(row["End"]),
        suspended_s=suspended if isfinite(suspended) else 0.0,
        gpus=count_gpus(parse_gres(row["AllocTRES"])),
        state=row["State"].partition(" by ")[0],
        restart=0,
    )

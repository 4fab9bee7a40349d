"""`usage`: how much jobs use the GPUs that they hold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import completers, framework
from slurmsched.cli.framework import JobId, Output, read_config
from slurmsched.cli.listing import JOB_COLUMNS, Choice, Column, JobFilter, Listing, filtered, listed
from slurmsched.plain_text import pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmsched.config import Config
    from slurmsched.model.gpu_use import GpuJob, GpuUseSum, MeasuredUse

GROUPS = ("user", "account", "partition", "qos", "type")
MOST_ENDED = 100_000  # jobs that one call looks at


def _percent(value: Any) -> str:
    return "?" if value is None else f"{100 * value:.0f} %"


def _hours(value: Any) -> str:
    return "?" if value is None else f"{value:,.1f}"


LISTING = Listing(
    (
        *JOB_COLUMNS,
        Column("type", "gpu_type", "type", text=lambda value: value or "-"),
        Column("gpus", "gpus", "GPUs", "b", number=True),
        Column("used", "used", "used", number=True, text=lambda value: "?" if value is None else str(value)),
        Column("use", "use", "use", number=True, text=_percent),
        Column("memory", "memory_mib", "GPU GiB", number=True,
               text=lambda value: "?" if value is None else f"{value / 1024:.1f}"),
        Column("hours", "gpu_h", "GPU h", number=True, text=_hours),
        Column("unused", "unused_gpu_h", "unused", number=True, text=_hours),
    ),
    ("jobid", "user", "account", "type", "gpus", "used", "use", "memory", "hours", "unused"),
)  # fmt: skip


@framework.examples(
    ("slurmsched usage --me", "Your running jobs: GPUs held, GPUs used."),
    ("slurmsched usage --since 7d --group-by user", "The last week by user, most unused GPU hours first."),
    ("slurmsched usage -j 4711", "One job."),
    ("slurmsched usage --profiles", "Throughput, use and memory of models, by size and type."),
)
@framework.command("usage")
@filtered("user", "account", "partition", "qos")
@click.option("-j", "--job", type=JobId(), metavar="ID", shell_complete=completers.squeue("A"),
              help="Only this job, or this array.")  # fmt: skip
@click.option("--since", metavar="DURATION", default="", help="Also jobs that ended since then, such as 7d; by sacct.")
@click.option("--group-by", "by", type=click.Choice(GROUPS), help="Sums over jobs in place of jobs.")
@click.option("--profiles", is_flag=True, help="Show throughput, use and memory of models, as measured so far.")
@listed(LISTING)
def command(
    out: Output, keeps: JobFilter, job: int | None, since: str, by: str | None, profiles: bool, choice: Choice
) -> None:
    """Show how much jobs use the GPUs that they hold.

    "used" counts GPUs that computed at least 1 % of the time. "use" is the mean share of the time over all GPUs.
    "unused" is the GPU hours that were held and not used. The source is set in [measured_use].

    Needs no more rights than squeue and sacct. Reads only.
    """
    from slurmsched.model.gpu_use import gpu_use_row, gpu_use_sums, sum_records
    from slurmsched.observe.gpu_use_sources import read_gpu_use
    from slurmsched.slurm.reader import open_commands

    config = read_config()
    if profiles:
        _show_profiles(out, config.measured_use.profiles)
        return
    jobs = [one for one in _jobs(config, since) if job in (None, one.job_id, one.array_job_id) and keeps(one)]
    if job is not None and not jobs:
        _absent(job, since)
    use = read_gpu_use(config.measured_use, open_commands(config.slurm), {one.job_id: one.gpus for one in jobs},
                       [one.job_id for one in jobs if one.running])  # fmt: skip
    rows = [gpu_use_row(one, use.by_job.get(one.job_id)) for one in jobs]
    rows.sort(key=lambda row: -(row.unused_gpu_h or 0.0))
    measured = sum(row.use is not None for row in rows)
    if out.as_json:
        value = {"source": use.source, "window_s": use.window_s, "jobs": rows, "measured": measured,
                 "not_asked": use.not_asked}  # fmt: skip
        out.json(value | {"by": sum_records(gpu_use_sums(jobs, use, by), by)} if by else value, schema="usage")
        return
    if by:
        _print_sums(out, by, gpu_use_sums(jobs, use, by))
    elif rows or choice.plain:
        LISTING.show(out, LISTING.ordered(rows, choice.sort), choice)
    _note(out, use, len(rows), measured, plain=choice.plain)


def _show_profiles(out: Output, path: str) -> None:
    """The profiles of the daemon's file. Raises ConfigError where none is kept, InputError for a bad file."""
    from pathlib import Path

    from slurmsched.errors import ConfigError
    from slurmsched.observe.gpu_profiles import profile_rows, read_profiles

    if not path:
        raise ConfigError("is empty: name a file in which the daemon keeps profiles", key="measured_use.profiles")
    rows = profile_rows(read_profiles(Path(path)))
    if out.as_json:
        out.json({"profiles": rows}, schema="profiles")
        return
    if not rows:
        out.line(f"no profiles yet: the daemon writes {path} every 5 minutes")
        return
    head = ("model", "batch>", "GPUs>", "type", "beside", "samples/s>", "use>", "GPU GiB>", "hours>", "jobs>")
    out.table(head, [
        (row.model, row.batch or "-", row.gpus, row.gpu_type or "-", row.beside or "-", _hours(row.samples_per_s),
         _percent(row.use), "?" if row.memory_mib is None else f"{row.memory_mib / 1024:.1f}", _hours(row.hours),
         row.jobs)
        for row in rows
    ])  # fmt: skip


def _jobs(config: Config, since: str) -> list[GpuJob]:
    from slurmsched.model.durations import duration_s
    from slurmsched.slurm.gpu_accounting import ended_gpu_jobs, running_gpu_jobs
    from slurmsched.slurm.reader import open_commands, read_cluster_once

    try:
        since_s = duration_s(since) if since else 0.0
    except ValueError as error:
        raise click.BadParameter(f"{since!r} {error}", param_hint="--since") from error
    ended = ended_gpu_jobs(open_commands(config.slurm), since_s) if since_s else []
    return running_gpu_jobs(read_cluster_once(config, waiting=False)) + ended[-MOST_ENDED:]


def _absent(job: int, since: str) -> None:
    from slurmsched.errors import InputError

    more = "" if since else "; add --since 7d for jobs that have ended"
    raise InputError(f"no running job {job} holds GPUs{more}")


def _print_sums(out: Output, by: str, sums: Sequence[GpuUseSum]) -> None:
    rows = [(one.name, one.jobs, one.gpus, _percent(one.use), _hours(one.gpu_h), _hours(one.unused_gpu_h))
            for one in sums]  # fmt: skip
    if rows:
        out.table((by, "jobs>", "GPUs>", "use>", "GPU h>", "unused>"), rows)


def _note(out: Output, use: MeasuredUse, jobs: int, measured: int, *, plain: bool) -> None:
    """How many jobs were measured, by what; nothing where the list alone is wanted."""
    from slurmsched.slurm.gpu_accounting import NONE

    if plain:
        return
    window = "" if math.isnan(use.window_s) else f", over the last {use.window_s / 60:.0f} min"
    out.line(f"measured: {measured} of {pluralize(jobs, 'job')}, by {use.source}{window}")
    if use.not_asked:
        out.line(f"note: {pluralize(use.not_asked, 'running job')} not measured: no answer of sstat", "warning")
    if jobs and not measured and use.source == "Slurm's accounting":
        out.line(f"note: {NONE}", "warning")

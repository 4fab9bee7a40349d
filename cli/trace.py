"""`trace`: convert, describe, anonymise, generate and pull job traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from slurmsched.cli import output
from slurmsched.cli.groups import Group
from slurmsched.cli.output import Output, complain, refuse_folder
from slurmsched.cli.replay import INTERRUPTED
from slurmsched.cli.trace_files import FILE, apart, read, reading, show, warn, written


@click.group("trace", cls=Group)
def command() -> None:
    """Job traces: a dozen public kinds, sacct's among them, in one form."""


@output.with_command(command, "convert")
@click.argument("source", type=FILE)
@click.argument("target", type=FILE)
@reading
def convert(out: Output, source: Path, target: Path, kind: str, pairs: tuple[str, ...], strict: bool) -> None:
    """Write SOURCE, of any kind, as TARGET: .parquet, or plain CSV (.csv, .csv.gz)."""
    from slurmsched.replay.trace_files import check_ending, save

    check_ending(target)
    apart(source, target)
    recorded = read(source, kind, pairs, strict)
    save(target, recorded)
    written(out, target, recorded)


@output.with_command(command, "describe")
@click.argument("source", type=FILE)
@reading
@click.option("--gpus", type=click.IntRange(min=0), default=0, help="GPUs of the cluster, for its utilisation.")
@click.option("--utc-offset", type=click.FloatRange(-24, 24), metavar="HOURS", help="The site's clock less UTC.")
@click.option("--beside", metavar="NAME", help="Set published figures beside: philly, helios-venus, pollux, ...")
@click.option("--page", type=FILE, help="Write tables and plots as an HTML page.")
def describe(
    out: Output, source: Path, kind: str, pairs: tuple[str, ...], strict: bool, gpus: int, utc_offset: float | None,
    beside: str | None, page: Path | None,
) -> None:  # fmt: skip
    """Sizes, run times, waits, outcomes, users and hours of a trace, as the trace papers show them."""
    from dataclasses import replace

    from slurmsched.replay import published
    from slurmsched.replay.describe import describe, figures
    from slurmsched.replay.traces import trace_digest

    refuse_folder(page)
    recorded = read(source, kind, pairs, strict)
    if utc_offset is not None:
        recorded = replace(recorded, utc_offset_s=3_600 * utc_offset)
    sections = describe(recorded, gpus)
    if beside:
        sections.append(published.beside(beside, figures(recorded)))
    if page:
        from slurmsched.replay.page import write_whole
        from slurmsched.replay.trace_page import trace_page

        write_whole(page, trace_page(source.name, recorded, sections))
    if out.as_json:
        told = {"trace_digest": trace_digest(recorded.trace), "warnings": recorded.warnings}
        out.json({section.name: section.records() for section in sections} | told)
        return
    for section in sections:
        show(out, section)
    if page:
        out.line(f"Page: {page.resolve()}")


@output.with_command(command, "anonymise")
@click.argument("source", type=FILE)
@click.argument("target", type=FILE)
@reading
@click.option("--key-file", type=FILE, help="Made if it is not there; the same key gives the same names again.")
@click.option("--models", is_flag=True, help="Hide the models' names too.")
@click.option("--no-calendar", is_flag=True, help="Leave out hour and weekday, which are kept else.")
@click.option("--shift", "shift_s", type=float, default=0.0, metavar="SECONDS", help="Move the calendar by so much.")
def anonymise(
    out: Output, source: Path, target: Path, kind: str, pairs: tuple[str, ...], strict: bool, key_file: Path | None,
    models: bool, no_calendar: bool, shift_s: float,
) -> None:  # fmt: skip
    """Write SOURCE as TARGET without names: users, accounts and job names as keyed hashes, ids renumbered.

    Dates move by whole weeks into January 1970. Sizes, times, GPU types and states stay: a rare size may still tell
    who it was.
    """
    from slurmsched.replay.anonymise import Anonymiser, new_key, read_key
    from slurmsched.replay.trace_files import check_ending, save

    check_ending(target)
    apart(source, target)
    recorded = read(source, kind, pairs, strict)
    key = read_key(key_file) if key_file else new_key()
    anonymiser = Anonymiser(key, models=models, calendar=not no_calendar, shift_s=shift_s)
    save(target, anonymiser.apply(recorded))
    written(out, target, recorded)


@output.with_command(command, "generate")
@click.argument("target", type=FILE)
@click.option("--jobs", type=click.IntRange(min=1), default=10_000, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--like", type=FILE, help="Fit everything below to this trace instead.")
@click.option("--jobs-per-day", type=float, default=500.0, show_default=True)
@click.option("--arrivals", type=click.Choice(["poisson", "diurnal"]), default="poisson", show_default=True)
@click.option("--durations", type=click.Choice(["lognormal", "weibull"]), default="lognormal", show_default=True)
@click.option("--scale", default="30m", show_default=True, help="Median of the lognormal, scale of the Weibull.")
@click.option("--shape", type=float, default=1.8, show_default=True, help="Sigma of the log; shape of the Weibull.")
@click.option("--sizes", default="1=70,2=10,4=8,8=10,16=2", show_default=True, help="GPUs=weight, ...")
@click.option("--users", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--limits", is_flag=True, help="Make up time limits as users set them.")
def generate(out: Output, target: Path, jobs: int, seed: int, like: Path | None, limits: bool, **laws: Any) -> None:
    """Write a made-up trace as TARGET, by laws given here or fitted to a trace."""
    from slurmsched.replay.generate import fitted, parametric
    from slurmsched.replay.generate import generate as made
    from slurmsched.replay.trace_files import check_ending, save

    check_ending(target)
    refuse_folder(target)
    workload = fitted(read(like, "", (), False)) if like else parametric(**laws)
    recorded = made(workload, jobs, seed, limits=limits)
    save(target, recorded)
    written(out, target, recorded)


@output.with_command(command, "pull")
@click.argument("target", type=FILE)
@click.option("--since", type=click.DateTime(["%Y-%m-%d"]), help="First day, UTC; default: 30 days before --until.")
@click.option("--until", type=click.DateTime(["%Y-%m-%d"]), help="The day after the last, UTC; default: today.")
@click.option("--pause", "pause_s", type=click.FloatRange(min=0), default=1.0, show_default=True, metavar="SECONDS",
              help="Shortest wait between two calls of sacct.")  # fmt: skip
@click.option("--strict", is_flag=True, help="Stop at the first row that cannot be read.")
def pull(out: Output, target: Path, since: Any, until: Any, pause_s: float, strict: bool) -> int:
    """Write the site's own history, from accounting, as TARGET.

    Only reads: one call of sacct a day of history, with pauses. Days already pulled are kept in the folder
    TARGET.days, so that a pull that was interrupted, or one of next month, goes on from there. Needs the right to
    see the jobs of all users (Operator, or no PrivateData).
    """
    from datetime import UTC, datetime, timedelta

    from rich.console import Console
    from rich.progress import track

    from slurmsched.cli.settings import config
    from slurmsched.replay.pull import Pull
    from slurmsched.replay.trace_files import check_ending, save
    from slurmsched.slurm.reader import open_commands

    check_ending(target)
    refuse_folder(target)
    last = until.date() if until else datetime.now(UTC).date()
    first = since.date() if since else last - timedelta(days=30)
    folder = target.with_name(f"{target.name}.days")
    job = Pull(open_commands(config().slurm), folder, first, last, pause_s)
    try:
        for _ in track(job.run(), "days", total=len(job.days), console=Console(stderr=True)):
            pass
    except KeyboardInterrupt:
        complain("interrupted; the same command asks only for the days that are missing")
        return INTERRUPTED
    recorded = job.trace(strict=strict)
    save(target, recorded)
    warn(recorded)
    written(out, target, recorded)
    return 0

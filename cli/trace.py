"""`trace`: convert, describe, anonymise, generate and pull job traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from slurmsched.cli import framework
from slurmsched.cli.framework import FILE, CommandGroup, Output, complain, refuse_folder
from slurmsched.cli.replay import INTERRUPTED
from slurmsched.cli.replay_options import (
    print_section,
    print_written_trace,
    read_trace,
    refuse_same_file,
    trace_options,
    warn_of_trace,
)


@click.group("trace", cls=CommandGroup)
def command() -> None:
    """Convert, describe, anonymise, generate and pull job traces."""


@framework.examples(("slurmsched trace convert jobs.swf jobs.csv", "An SWF trace as CSV."))
@framework.with_command(command, "convert")
@click.argument("source", type=FILE)
@click.argument("target", type=FILE)
@trace_options
def convert(out: Output, source: Path, target: Path, kind: str, pairs: tuple[str, ...], strict: bool) -> None:
    """Convert the trace SOURCE to TARGET.

    TARGET is a .parquet file, or plain CSV (.csv, .csv.gz).
    """
    from slurmsched.sim.traces.trace_io import check_ending, save_trace

    check_ending(target)
    refuse_same_file(source, target)
    recorded = read_trace(source, kind, pairs, strict)
    save_trace(target, recorded)
    print_written_trace(out, target, recorded)


@framework.examples(("slurmsched trace describe jobs.csv --page jobs.html", "A page about a trace."))
@framework.with_command(command, "describe")
@click.argument("source", type=FILE)
@trace_options
@click.option(
    "--cluster-gpus", "gpus", type=click.IntRange(min=0), default=0, help="GPUs of the cluster, for its utilisation."
)
@click.option("--utc-offset", type=click.FloatRange(-24, 24), metavar="HOURS", help="Local time minus UTC.")
@click.option("--beside", metavar="NAME", help="Compare with published figures: philly, helios-venus, pollux, ...")
@click.option("--page", type=FILE, help="Write tables and plots to this HTML page.")
def describe(
    out: Output, source: Path, kind: str, pairs: tuple[str, ...], strict: bool, gpus: int, utc_offset: float | None,
    beside: str | None, page: Path | None,
) -> None:  # fmt: skip
    """Describe a trace as trace papers do.

    Shows sizes, run times, waits, outcomes, users and hours.
    """
    from dataclasses import replace

    from slurmsched.model.trace import trace_digest
    from slurmsched.sim.traces import trace_statistics
    from slurmsched.sim.traces.trace_statistics import describe_trace, trace_figures

    refuse_folder(page)
    recorded = read_trace(source, kind, pairs, strict)
    if utc_offset is not None:
        recorded = replace(recorded, utc_offset_s=3_600 * utc_offset)
    sections = describe_trace(recorded, gpus)
    if beside:
        sections.append(trace_statistics.beside_published(beside, trace_figures(recorded)))
    if page:
        from slurmsched.observe.html_page import write_html
        from slurmsched.sim.traces.trace_page import trace_page

        write_html(page, trace_page(source.name, recorded, sections))
    if out.as_json:
        details = {"trace_digest": trace_digest(recorded.trace), "warnings": recorded.warnings}
        out.json({section.name: section.records() for section in sections} | details)
        return
    for section in sections:
        print_section(out, section)
    if page:
        out.line(f"Page: {page.resolve()}")


@framework.examples(("slurmsched trace anonymise jobs.csv public.csv --key-file key", "A trace without names."))
@framework.with_command(command, "anonymise")
@click.argument("source", type=FILE)
@click.argument("target", type=FILE)
@trace_options
@click.option("--key-file", type=FILE, help="File of the key; created if missing. The same key gives the same names.")
@click.option("--models", is_flag=True, help="Also hide the names of models.")
@click.option("--no-calendar", is_flag=True, help="Do not keep hour and weekday.")
@click.option("--shift", "shift_s", type=float, default=0.0, metavar="SECONDS", help="Shift of the calendar.")
def anonymise(
    out: Output, source: Path, target: Path, kind: str, pairs: tuple[str, ...], strict: bool, key_file: Path | None,
    models: bool, no_calendar: bool, shift_s: float,
) -> None:  # fmt: skip
    """Write SOURCE to TARGET without names.

    Users, accounts and job names become keyed hashes; job ids are renumbered. Dates are moved by whole weeks into
    January 1970. Sizes, times, GPU types and states are kept: a rare size may still identify a user.
    """
    from slurmsched.observe.anonymiser import TraceAnonymiser, new_key, read_key
    from slurmsched.sim.traces.trace_io import check_ending, save_trace

    check_ending(target)
    refuse_same_file(source, target)
    recorded = read_trace(source, kind, pairs, strict)
    key = read_key(key_file) if key_file else new_key()
    anonymiser = TraceAnonymiser(key, models=models, calendar=not no_calendar, shift_s=shift_s)
    save_trace(target, anonymiser.apply(recorded))
    print_written_trace(out, target, recorded)


@framework.examples(("slurmsched trace generate made.csv --jobs 1000", "A trace of 1000 jobs."))
@framework.with_command(command, "generate")
@click.argument("target", type=FILE)
@click.option("--jobs", type=click.IntRange(min=1), default=10_000, show_default=True, help="Number of jobs.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all random numbers.")
@click.option("--like", type=FILE, help="Fit the distributions to this trace, in place of the options below.")
@click.option("--jobs-per-day", type=float, default=500.0, show_default=True, help="Mean number of jobs per day.")
@click.option(
    "--arrivals",
    type=click.Choice(["poisson", "diurnal"]),
    default="poisson",
    show_default=True,
    help="Distribution of submissions.",
)
@click.option(
    "--durations",
    type=click.Choice(["lognormal", "weibull"]),
    default="lognormal",
    show_default=True,
    help="Distribution of run times.",
)
@click.option(
    "--scale", default="30m", show_default=True, help="Median of the lognormal or scale of the Weibull distribution."
)
@click.option(
    "--shape",
    type=float,
    default=1.8,
    show_default=True,
    help="Sigma of the lognormal or shape of the Weibull distribution.",
)
@click.option(
    "--sizes",
    default="1=70,2=10,4=8,8=10,16=2",
    show_default=True,
    help="Job sizes and their weights: GPUs=WEIGHT, ...",
)
@click.option("--users", type=click.IntRange(min=1), default=20, show_default=True, help="Number of users.")
@click.option("--time-limits", "limits", is_flag=True, help="Also generate time limits as users set them.")
def generate(out: Output, target: Path, jobs: int, seed: int, like: Path | None, limits: bool, **laws: Any) -> None:
    """Write a synthetic trace to TARGET.

    Its distributions are given by options or fitted to a trace.
    """
    from slurmsched.sim.traces.trace_generator import fitted_workload, parametric_workload
    from slurmsched.sim.traces.trace_generator import generate_trace as made
    from slurmsched.sim.traces.trace_io import check_ending, save_trace

    check_ending(target)
    refuse_folder(target)
    workload = fitted_workload(read_trace(like, "", (), False)) if like else parametric_workload(**laws)
    recorded = made(workload, jobs, seed, limits=limits)
    save_trace(target, recorded)
    print_written_trace(out, target, recorded)


@framework.examples(("slurmsched trace pull site.csv --since 2026-01-01", "The site's own history."))
@framework.with_command(command, "pull")
@click.argument("target", type=FILE)
@click.option("--since", type=click.DateTime(["%Y-%m-%d"]), help="First day, UTC. Default: 30 days before --until.")
@click.option("--until", type=click.DateTime(["%Y-%m-%d"]), help="Day after the last, UTC. Default: today.")
@click.option("--pause", "pause_s", type=click.FloatRange(min=0), default=1.0, show_default=True, metavar="SECONDS",
              help="Shortest pause between two calls of sacct.")  # fmt: skip
@click.option("--strict", is_flag=True, help="Stop at the first row that cannot be read.")
def pull(out: Output, target: Path, since: Any, until: Any, pause_s: float, strict: bool) -> int:
    """Write the site's own history from accounting to TARGET.

    Calls sacct once per day of history, with pauses. Days that were read are kept in the folder TARGET.days, so that
    an interrupted pull or next month's pull continues from there. Needs the right to see the jobs of all users
    (Operator, or no PrivateData). Reads only.
    """
    from datetime import UTC, datetime, timedelta

    from rich.console import Console
    from rich.progress import track

    from slurmsched.cli.framework import read_config
    from slurmsched.sim.traces.trace_io import check_ending, save_trace
    from slurmsched.slurm.accounting_archive import AccountingArchive
    from slurmsched.slurm.reader import open_commands

    check_ending(target)
    refuse_folder(target)
    last = until.date() if until else datetime.now(UTC).date()
    first = since.date() if since else last - timedelta(days=30)
    folder = target.with_name(f"{target.name}.days")
    job = AccountingArchive(open_commands(read_config(plugins=False).slurm), folder, first, last, pause_s)
    try:
        for _ in track(job.run(), "days", total=len(job.days), console=Console(stderr=True)):
            pass
    except KeyboardInterrupt:
        complain("interrupted; run the same command again to read the missing days")
        return INTERRUPTED
    recorded = job.trace(strict=strict)
    save_trace(target, recorded)
    warn_of_trace(recorded)
    print_written_trace(out, target, recorded)
    return 0

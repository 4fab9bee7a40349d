"""`compare`: traces under several policies, side by side."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from slurmsched.cli import completers, framework
from slurmsched.cli.framework import FILE, Output, command_line, refuse_folder
from slurmsched.cli.replay_options import (
    JobSelection,
    check_jobs_out,
    job_row_options,
    preemption_options,
    preemption_sections,
    print_back_test,
    print_job,
    read_trace,
    replay_options,
    selection_options,
    trace_options,
    warn_of_parts,
)
from slurmsched.plain_text import pluralize

if TYPE_CHECKING:
    from slurmsched.model.trace import RecordedTrace
    from slurmsched.sim.experiments.comparison import ComparisonCase, PlayedCase, PolicyComparison
    from slurmsched.sim.experiments.replay_request import ReplayRequest

INTERRUPTED = 130


@framework.examples(
    (
        "slurmsched compare trace.csv --policy fifo --policy srsf --page compare.html",
        "FIFO and SRSF, with a page of plots.",
    )
)
@framework.command("compare")
@click.argument("traces", type=FILE, nargs=-1, required=True, metavar="TRACE...")
@trace_options
@selection_options
@replay_options
@click.option(
    "--policy",
    "policies",
    multiple=True,
    required=True,
    metavar="NAME[:PARAMETER=VALUE,...]",
    shell_complete=completers.plugins("policies"),
    help="As in replay; give it once per policy. The others are compared with the first.",
)
@preemption_options
@click.option(
    "--workers",
    "jobs",
    type=click.IntRange(min=1),
    default=None,
    metavar="N",
    help="Worker processes. Default: one per core.",
)
@click.option(
    "--tenants",
    "by",
    type=click.Choice(["auto", "user", "account"]),
    default="auto",
    show_default=True,
    help="Tenants for fairness. auto: users, or accounts if the trace has no users.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    metavar="N",
    help="Number of users to list that gain most, and that lose most.",
)
@click.option("--page", "page", type=FILE, help="Write tables and plots to this HTML page.")
@job_row_options
@click.option("--back-test/--no-back-test", default=True, show_default=True,
              help="slurm: replay Slurm alone too, and compare it with the recorded starts.")  # fmt: skip
def command(
    out: Output, traces: tuple[Path, ...], kind: str, pairs: tuple[str, ...], strict: bool, policies: tuple[str, ...],
    model: Literal["ideal", "slurm"] | None, backfill: str | None, seed: int, jobs: int | None, by: str, top: int,
    page: Path | None, jobs_out: Path | None, job_id: int | None, back_test: bool, preempt: bool, hints: str,
    **words: Any,
) -> int:  # fmt: skip
    """Replay each TRACE with every --policy and compare the results.

    TRACE is a file of any kind in docs/traces.md, such as sacct's output, CSV or SWF. After Ctrl-C the figures cover
    the jobs that have ended. With --preempt each policy that ranks jobs is replayed twice: without and with the
    daemon's own preemption. With --moldable likewise: without and with sizes chosen at the start.
    """
    from slurmsched.logs import configure
    from slurmsched.sim.experiments.comparison import checked_cases, comparisons, with_moldable_starts
    from slurmsched.sim.experiments.comparison import with_daemon_preemption as beside
    from slurmsched.sim.experiments.replay_request import ReplayRequest
    from slurmsched.sim.experiments.replay_result import joined, places_of, write_job_rows

    configure("warning")
    refuse_folder(page)
    check_jobs_out(jobs_out)
    chosen, taking = JobSelection.taken(words), preemption_sections(preempt, hints, words)
    asked = [read_trace(trace, kind, pairs, strict) for trace in traces]
    model = model or chosen.model_for(asked)
    recorded = [chosen.jobs_of(each, model, seed) for each in asked]
    for trace, each in zip(traces, recorded, strict=True):
        if job_id is not None:
            places_of(each.trace.job_id.tolist(), job_id, str(trace))
    requests = [
        ReplayRequest(model=model, policy=name, backfill=backfill or "", seed=seed, hints=hints, **words)
        for name in policies
    ]
    requests = with_moldable_starts(requests) if words["moldable"] else requests
    requests = requests if taking is None else beside(requests, taking, hints)
    names = [str(trace) for trace in traces]
    every = checked_cases(names, recorded, requests, by, back_test=back_test)
    for trace, each in zip(traces, asked, strict=True):
        warn_of_parts(trace, each, requests[0])
    recorded = [_with_warnings(each, requests[0]) for each in recorded]
    for each in recorded:
        chosen.warn_of_limits(each)
    played = _played(recorded, every, jobs or len(os.sched_getaffinity(0)))
    whole = len(played) == len(every) and all(each.complete for each in played)
    compared = comparisons(names, recorded, played, by, top)
    _show(out, compared, seed, page, job_id, whole=whole)
    if jobs_out is not None and compared:
        write_job_rows(jobs_out, joined([each.job_rows for each in compared]))
    if not whole:
        click.echo("slurmsched: interrupted; the figures cover only the jobs that have ended", err=True)
    return 0 if whole else INTERRUPTED


def _with_warnings(recorded: RecordedTrace, request: ReplayRequest) -> RecordedTrace:
    """The trace with the warnings of its cluster, which are also printed."""
    from slurmsched.sim.experiments.replay_session import on_its_cluster

    found = on_its_cluster(recorded.trace, replace(request, origin_s=recorded.clock_s))[1].warnings
    for warning in found:
        click.echo(f"slurmsched: {warning}", err=True)
    return replace(recorded, warnings=(*recorded.warnings, *found))


def _played(recorded: Sequence[RecordedTrace], cases: Sequence[ComparisonCase], workers: int) -> list[PlayedCase]:
    """What came of the cases, with a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from slurmsched.sim.experiments.worker_processes import play_cases

    traces = [each.trace for each in recorded]
    bars = (TextColumn("jobs"), BarColumn(), MofNCompleteColumn(), TextColumn("ETA"), TimeRemainingColumn())
    with Progress(*bars, console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=sum(len(traces[case.trace]) for case in cases))
        return play_cases(traces, cases, workers, lambda ended: progress.update(bar, completed=ended))


def _show(
    out: Output, compared: Sequence[PolicyComparison], seed: int, page: Path | None, job_id: int | None, *, whole: bool
) -> None:
    from slurmsched.sim.experiments.comparison import comparison_report
    from slurmsched.sim.experiments.comparison_conclusion import conclusions
    from slurmsched.sim.experiments.replay_result import of_job

    if page is not None and compared:
        from slurmsched.observe.html_page import write_html
        from slurmsched.sim.experiments.comparison_page import comparison_html

        write_html(page, comparison_html(compared, seed, command_line(), complete=whole))
    jobs = [] if job_id is None else [of_job(each.job_rows, job_id, each.source) for each in compared]
    if out.as_json:
        more = {"page": str(page.resolve()) if page else None} | (
            {"job": [row for rows in jobs for row in rows]} if jobs else {}
        )
        made = comparison_report(compared, seed, command_line(), complete=whole)
        for trace, each in zip(made["traces"], compared, strict=True):
            trace["conclusion"] = conclusions(each)
        out.json(made | more)
        return
    for each in compared:
        _table(out, each)
    for each, rows in zip(compared, jobs, strict=False):
        print_job(out, rows, each.recorded)
    if page is not None and compared:
        out.line(f"Page: {page.resolve()}")


def _table(out: Output, each: PolicyComparison) -> None:
    """The figures of one trace, then who gains and loses by each policy but the first."""
    from slurmsched.sim.experiments.comparison import CHANGE_COLUMNS, change_rows, comparison_rows, unit_of_runs
    from slurmsched.sim.experiments.comparison_conclusion import conclusions
    from slurmsched.sim.experiments.replay_result import assumptions_text

    titles, unit = [run["policy"] for run in each.runs], unit_of_runs(each.runs)
    gpus = pluralize(each.played[0].outcomes.cluster_gpus, "GPU")
    out.line(f"{each.source}: {pluralize(len(each.trace), 'job')} on {gpus}")
    if each.back_test is not None:
        print_back_test(out, each.back_test.figures())
    out.line(assumptions_text(each.assumptions))
    out.table(("", *(f"{title}>" for title in titles)), comparison_rows(each.runs))
    out.line()
    for text in conclusions(each):
        out.line(text)
    out.line()
    for run in each.runs[1:]:
        changed = change_rows([*run["gain"], *reversed(run["lose"])], unit)
        if changed:
            out.line(f"{run['policy']} against {titles[0]}: {run['gaining']} gain, {run['losing']} lose")
            columns = [f"{name.format(unit=unit.name)}>" for name in CHANGE_COLUMNS]
            out.table((each.tenants.of, *columns), changed)
            out.line()

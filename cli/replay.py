"""`replay`: a trace on a simulated slurmctld, and what it would have come to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from slurmsched.cli import completers, framework
from slurmsched.cli.framework import FILE, Output
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
    from slurmsched.sim.experiments.replay_result import ReplayResult
    from slurmsched.sim.experiments.replay_session import ReplaySession

INTERRUPTED = 130
SHOWN = (
    ("jobs", "jobs", "d"), ("avg_jct_s", "JCT mean [s]", ".1f"), ("p50_jct_s", "JCT p50 [s]", ".1f"),
    ("p95_jct_s", "JCT p95 [s]", ".1f"), ("p99_jct_s", "JCT p99 [s]", ".1f"),
    ("avg_wait_s", "queueing delay mean [s]", ".1f"), ("makespan_s", "makespan [s]", ".0f"),
    ("preemptions", "preemptions", "d"), ("lost_gpu_h", "work lost [GPU h]", "z.1f"),
    ("gpu_utilisation", "GPU utilisation", ".4f"), ("mean_slowdown", "slowdown mean", ".4f"),
    ("resizes", "changes of size", "d"),
    ("deadlines_met", "deadlines met", ".4f"), ("refused", "jobs not admitted", "d"),
    ("wall_s", "took [s]", ".2f"),
)  # fmt: skip


@framework.examples(
    ("slurmsched replay trace.csv --policy las --cluster 20x8", "LAS on 20 nodes of 8 GPUs."),
    ("slurmsched replay trace.csv --model slurm --policy srsf", "SRSF in the model of slurmctld."),
)
@framework.command("replay")
@click.argument("trace", type=FILE)
@trace_options
@selection_options
@replay_options
@click.option("--policy", default="fifo", show_default=True, metavar="NAME[:PARAMETER=VALUE,...]",
                 shell_complete=completers.plugins("policies"),
              help="Any policy of `slurmsched policy list`; easy: fifo with EASY backfill; fjf: fifo, first fit; "
"with --model slurm also slurm: Slurm alone.")  # fmt: skip
@click.option("--back-test/--no-back-test", default=True, show_default=True,
              help="slurm: replay Slurm alone too, and compare it with the recorded starts.")  # fmt: skip
@job_row_options
@preemption_options
def command(
    out: Output, trace: Path, kind: str, pairs: tuple[str, ...], strict: bool, model: Literal["ideal", "slurm"] | None,
    backfill: str | None, seed: int, preempt: bool, hints: str, back_test: bool,
    jobs_out: Path | None, job_id: int | None, **words: Any,
) -> int:  # fmt: skip
    """Replay TRACE on a simulated cluster.

    Runs the daemon's own cycle. TRACE is a file of any kind in docs/traces.md, such as sacct's output, CSV or SWF.
    After Ctrl-C the figures cover the jobs that have ended.
    """
    from slurmsched.logs import configure
    from slurmsched.sim.experiments.comparison import policy_title, tested_replay
    from slurmsched.sim.experiments.replay_request import ReplayRequest
    from slurmsched.sim.experiments.replay_result import job_rows, of_job, places_of, write_job_rows
    from slurmsched.sim.experiments.replay_session import ReplaySession

    configure("warning")
    check_jobs_out(jobs_out)
    chosen, taking = JobSelection.taken(words), preemption_sections(preempt, hints, words)
    asked = read_trace(trace, kind, pairs, strict)
    model = model or chosen.model_for([asked])
    recorded = chosen.jobs_of(asked, model, seed)
    if job_id is not None:
        places_of(recorded.trace.job_id.tolist(), job_id, str(trace))  # better now than after the work
    request = ReplayRequest(model=model, backfill=backfill or "", seed=seed, preempt=taking, hints=hints,
                            origin_s=recorded.clock_s, **words)  # fmt: skip
    session = ReplaySession(recorded.trace, request)
    warn_of_parts(trace, asked, request)
    chosen.warn_of_limits(recorded)
    for warning in session.described.warnings:
        click.echo(f"slurmsched: {warning}", err=True)
    whole = _played(session)
    for reason, jobs in session.replayed.refused.items():
        click.echo(f"slurmsched: {pluralize(jobs, 'job')} not admitted, left out of all figures: {reason}", err=True)
    found = tested_replay(recorded, session, _played) if whole and back_test else None
    made = session.replayed
    rows = job_rows(str(trace), recorded, [(policy_title(request), made.all_outcomes, list(made.node_lists))])
    job = None if job_id is None else of_job(rows, job_id, str(trace))
    _show(out, made, recorded, None if found is None else found.figures(), job)
    if jobs_out is not None:
        write_job_rows(jobs_out, rows)
    if not whole:
        click.echo("slurmsched: interrupted; the figures cover only the jobs that have ended", err=True)
    return 0 if whole else INTERRUPTED


def _played(session: ReplaySession) -> bool:
    """Whether it came to its end; with a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bars = (TextColumn("jobs"), BarColumn(), MofNCompleteColumn(), TextColumn("ETA"), TimeRemainingColumn())
    try:
        with Progress(*bars, console=Console(stderr=True)) as progress:
            bar = progress.add_task("", total=len(session.trace))
            session.run(lambda ended: progress.update(bar, completed=ended))
    except KeyboardInterrupt:
        return False
    return True


def _show(
    out: Output, replayed: ReplayResult, recorded: RecordedTrace, back_test: dict[str, Any] | None,
    job: list[dict[str, Any]] | None,
) -> None:  # fmt: skip
    """job: the rows of one job."""
    from slurmsched.sim.experiments.replay_result import assumptions_text

    figures = replayed.figures
    assumed = {**figures["assumptions"], "trace": list(recorded.assumed)}
    if out.as_json:
        more = {} if job is None else {"job": job}
        out.json(figures | {"assumptions": assumed, "back_test": back_test} | more)
        return
    if back_test is not None:
        print_back_test(out, back_test)
    out.line(assumptions_text(assumed))
    out.table(("", "value>"), [(title, format(figures[key], form)) for key, title, form in SHOWN if key in figures])
    if job is not None:
        out.line()
        print_job(out, job, recorded)

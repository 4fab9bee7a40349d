"""`replay`: a trace on an embedded cluster, and what it would have come to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output
from slurmsched.cli.replay_options import preempting, replaying, sections
from slurmsched.cli.trace_files import FILE, read_whole, reading
from slurmsched.words import some

if TYPE_CHECKING:
    from slurmsched.replay.replayed import Replayed
    from slurmsched.replay.run import Session

INTERRUPTED = 130
SHOWN = (
    ("jobs", "jobs", "d"), ("avg_jct_s", "JCT mean [s]", ".1f"), ("p50_jct_s", "JCT p50 [s]", ".1f"),
    ("p95_jct_s", "JCT p95 [s]", ".1f"), ("p99_jct_s", "JCT p99 [s]", ".1f"),
    ("avg_wait_s", "queueing delay mean [s]", ".1f"), ("makespan_s", "makespan [s]", ".0f"),
    ("preemptions", "preemptions", "d"), ("lost_gpu_h", "work lost [GPU h]", ".1f"),
    ("gpu_utilisation", "GPU utilisation", ".4f"), ("mean_slowdown", "slowdown mean", ".4f"),
    ("deadlines_met", "deadlines met", ".4f"), ("refused", "jobs not let in", "d"),
    ("wall_s", "took [s]", ".2f"),
)  # fmt: skip


@output.command("replay")
@click.argument("trace", type=FILE)
@reading
@replaying
@click.option("--policy", default="fifo", show_default=True, metavar="NAME[:PARAMETER=VALUE,...]",
              help="Any policy (slurmsched policy list), fifo, easy = fifo with EASY backfill, fjf = fifo, first fit; "
                   "with --model slurm also slurm = Slurm alone.")  # fmt: skip
@preempting
def command(
    out: Output, trace: Path, kind: str, pairs: tuple[str, ...], strict: bool, model: Literal["ideal", "slurm"],
    backfill: str | None, seed: int, preempt: bool, hints: str, **words: Any,
) -> int:  # fmt: skip
    """Replay TRACE with the daemon's own cycle on a cluster that is only simulated.

    TRACE: a file of any kind that docs/traces.md lists (sacct's output, CSV, SWF, ...). After Ctrl-C the figures are
    of the jobs that ended until then.
    """
    from slurmsched.logs import configure
    from slurmsched.replay.request import Request
    from slurmsched.replay.run import Session

    configure("warning")
    taking = sections(preempt, hints)
    request = Request(model=model, backfill=backfill or "", seed=seed, preempt=taking, hints=hints, **words)
    session = Session(read_whole(trace, kind, pairs, strict).trace, request)
    for warning in session.described.warnings:
        click.echo(f"slurmsched: {warning}", err=True)
    whole = _played(session)
    for reason, jobs in session.replayed.refused.items():
        click.echo(f"slurmsched: {some(jobs, 'job')} not let in, left out of all figures: {reason}", err=True)
    _show(out, session.replayed)
    if not whole:
        click.echo("slurmsched: interrupted; the figures are of the jobs that ended", err=True)
    return 0 if whole else INTERRUPTED


def _played(session: Session) -> bool:
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


def _show(out: Output, replayed: Replayed) -> None:
    figures = replayed.figures
    if out.as_json:
        out.json(figures)
        return
    out.table(("", "value>"), [(title, format(figures[key], form)) for key, title, form in SHOWN if key in figures])

"""`replay`: a trace on an embedded cluster, and what it would have come to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output

if TYPE_CHECKING:
    from slurmsched.replay.run import Replayed, Session

INTERRUPTED = 130
SHOWN = (
    ("jobs", "jobs", "d"), ("avg_jct_s", "JCT mean [s]", ".1f"), ("p50_jct_s", "JCT p50 [s]", ".1f"),
    ("p95_jct_s", "JCT p95 [s]", ".1f"), ("p99_jct_s", "JCT p99 [s]", ".1f"),
    ("avg_wait_s", "queueing delay mean [s]", ".1f"), ("makespan_s", "makespan [s]", ".0f"),
    ("preemptions", "preemptions", "d"), ("gpu_utilisation", "GPU utilisation", ".4f"), ("wall_s", "took [s]", ".2f"),
)  # fmt: skip


@output.command("replay")
@click.argument("trace", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--cluster", default="auto", show_default=True, metavar="NxG|FILE|auto",
              help="20x8 is 20 nodes of 8 GPUs; FILE holds [[nodes]] tables with count and gpus (TOML); auto: nodes of "
                   "8 GPUs, 80 % of them busy while jobs come.")  # fmt: skip
@click.option("--policy", default="fifo", show_default=True, metavar="NAME[:PARAMETER=VALUE,...]",
              help="Any policy (slurmsched policy list), fifo, easy = fifo with EASY backfill, fjf = fifo, first fit; "
                   "with --model slurm also slurm = Slurm alone.")  # fmt: skip
@click.option("--model", type=click.Choice(["ideal", "slurm"]), default="ideal", show_default=True,
              help="ideal: the plan is enacted at every event, at no cost; slurm: as slurmctld would.")  # fmt: skip
@click.option("--placement", default="count", show_default=True, metavar="NAME",
              help="count: nodes do not matter; consolidated: a gang on the fewest nodes.")  # fmt: skip
@click.option("--backfill", type=click.Choice(["none", "easy", "conservative", "skip"]), default=None,
              help="Who gets GPUs that the first waiting job cannot use: nobody, jobs that do not delay it, jobs "
                   "that delay none before them, any that fits. Default: as the policy's name says.")  # fmt: skip
@click.option("--round", "round_s", type=click.FloatRange(min=0), default=0.0, metavar="SECONDS",
              help="ideal: decide at multiples of it; 0: whenever something happens.")  # fmt: skip
@click.option("--restart-cost", "restart_cost_s", type=click.FloatRange(min=0), default=0.0, metavar="SECONDS",
              help="ideal: run time without progress after a preemption.")  # fmt: skip
@click.option("--setting", "settings", multiple=True, metavar="NAME=VALUE",
              callback=lambda _context, _option, pairs: _settings(pairs),
              help="ideal: any other setting of the cluster (docs/replay.md), such as node_gpus=8.")  # fmt: skip
@click.option("--history", default="", metavar="FILE",
              help="GPU seconds that completed jobs needed, a CSV column; for gittins; or Tiresias's.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of everything that is left to chance.")
def command(
    out: Output, trace: Path, model: Literal["ideal", "slurm"], backfill: str | None, seed: int, **words: Any
) -> int:
    """Replay TRACE with the daemon's own cycle on a cluster that is only simulated.

    TRACE: CSV with the columns job_id, num_gpus, submit_s and duration_s, or its gzip. After Ctrl-C the figures are of
    the jobs that ended until then.
    """
    from slurmsched.logs import configure
    from slurmsched.replay.run import Request, Session
    from slurmsched.replay.traces import read_trace

    configure("warning")
    request = Request(model=model, backfill=backfill or "", seed=seed, **words)
    session = Session(read_trace(trace), request)
    whole = _played(session)
    _show(out, session.replayed)
    if not whole:
        click.echo("slurmsched: interrupted; the figures are of the jobs that ended", err=True)
    return 0 if whole else INTERRUPTED


def _settings(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Settings by name. Raises UsageError for a text that is not NAME=VALUE."""
    from slurmsched.replay.run import value_of

    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"--setting {pair!r} is not NAME=VALUE")
        found[name.replace("-", "_")] = value_of(value)
    return found


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
    out.table(("", "value>"), [(title, format(figures[key], form)) for key, title, form in SHOWN])

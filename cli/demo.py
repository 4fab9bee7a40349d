"""`demo`: a real trace on a simulated slurmctld, under Slurm alone and under slurmsched."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurmsched import __version__
from slurmsched.cli import framework
from slurmsched.cli.framework import Output, refuse_folder

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from slurmsched.sim.experiments.demo_runs import Demo, DemoRun


@framework.examples(("slurmsched demo --page demo.html", "Four schedulers on a real trace."))
@framework.command("demo")
@click.option(
    "--first", "jobs", type=click.IntRange(min=1), metavar="N", help="Replay only the first N jobs. Default: all."
)
@click.option("--page", "path", type=click.Path(dir_okay=False, path_type=Path), default=Path("demo.html"),
              show_default=True, help="Write the page with the plots to this file.")  # fmt: skip
def command(out: Output, jobs: int | None, path: Path) -> None:
    """Replay a real GPU trace with four schedulers.

    Prints a table and writes a page with plots. Needs no Slurm; takes about a minute.
    """
    from slurmsched.logs import configure
    from slurmsched.model.trace import trace_digest
    from slurmsched.sim.experiments.demo_runs import Demo, demo_table, write_demo_page
    from slurmsched.sim.traces.trace_io import sample_trace

    refuse_folder(path)
    configure("warning")
    trace = sample_trace()
    demo = Demo(trace.first(jobs or len(trace)))
    runs = _replayed(demo)
    write_demo_page(path, demo, runs)
    if out.as_json:
        out.json({"jobs": len(demo.trace), "nodes": list(demo.nodes), "interval_s": demo.interval_s,
                  "version": __version__, "trace_digest": trace_digest(demo.trace), "seed": 0,
                  "runs": [run.figures for run in runs], "page": str(path.resolve())})  # fmt: skip
        return
    columns, rows = demo_table(runs)
    out.table([columns[0], *(f"{name}>" for name in columns[1:])], rows)
    out.line()
    out.line(f"Plots: {path.resolve()}")


def _replayed(demo: Demo) -> list[DemoRun]:
    """Every contender's run, with one progress bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    from slurmsched.sim.experiments.demo_runs import demo_policies

    bars = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    runs: list[DemoRun] = []
    with Progress(*bars, console=Console(stderr=True)) as progress:
        every = demo_policies()
        bar = progress.add_task("", total=len(every) * len(demo.trace))
        for contender in every:
            progress.update(bar, description=contender.title)
            tell = functools.partial(_advance, progress, bar, len(runs) * len(demo.trace))
            runs.append(demo.run(contender, tell))
    return runs


def _advance(progress: Progress, bar: TaskID, before: int, ended: int) -> None:
    progress.update(bar, completed=before + ended)

"""`demo`: a real trace on an embedded cluster, under Slurm alone and under slurmsched."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurmsched import __version__
from slurmsched.cli import output
from slurmsched.cli.output import Output, refuse_folder

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from slurmsched.replay.demo import Demo, Run


@output.command("demo")
@click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="Replay the N jobs submitted first; default: all."
)
@click.option("--out", "path", type=click.Path(dir_okay=False, path_type=Path), default=Path("demo.html"),
              show_default=True, help="Where the page with the plots goes.")  # fmt: skip
def command(out: Output, jobs: int | None, path: Path) -> None:
    """Replay a real GPU trace under four schedulers. Needs no Slurm; takes about a minute.

    Ends in one table and a page with the plots.
    """
    from slurmsched.logs import configure
    from slurmsched.replay.demo import Demo, table
    from slurmsched.replay.page import write_page
    from slurmsched.replay.traces import sample_trace, trace_digest

    refuse_folder(path)
    configure("warning")
    trace = sample_trace()
    demo = Demo(trace.first(jobs or len(trace)))
    runs = _replayed(demo)
    write_page(path, demo, runs)
    if out.as_json:
        out.json({"jobs": len(demo.trace), "nodes": list(demo.nodes), "interval_s": demo.interval_s,
                  "version": __version__, "trace_digest": trace_digest(demo.trace), "seed": 0,
                  "runs": [run.figures for run in runs], "page": str(path.resolve())})  # fmt: skip
        return
    columns, rows = table(runs)
    out.table([columns[0], *(f"{name}>" for name in columns[1:])], rows)
    out.line()
    out.line(f"Plots: {path.resolve()}")


def _replayed(demo: Demo) -> list[Run]:
    """Every contender's run, with one progress bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    from slurmsched.replay.demo import contenders

    bars = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    runs: list[Run] = []
    with Progress(*bars, console=Console(stderr=True)) as progress:
        every = contenders()
        bar = progress.add_task("", total=len(every) * len(demo.trace))
        for contender in every:
            progress.update(bar, description=contender.title)
            tell = functools.partial(_advance, progress, bar, len(runs) * len(demo.trace))
            runs.append(demo.run(contender, tell))
    return runs


def _advance(progress: Progress, bar: TaskID, before: int, ended: int) -> None:
    progress.update(bar, completed=before + ended)

"""`sweep`: a trace under every point of a grid of policies, parameters, clusters and seeds."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output
from slurmsched.cli.replay import INTERRUPTED, SHOWN
from slurmsched.errors import WorkersLostError
from slurmsched.terminal import harmless
from slurmsched.words import some

if TYPE_CHECKING:
    from slurmsched.replay.attempts import Opened
    from slurmsched.replay.sweep import Sweep
    from slurmsched.replay.workers import Workers

FAILED = 2
FILE = click.Path(dir_okay=False, path_type=Path)
SLURM_JOBS = 4
SOMETIMES = ("mean_slowdown", "deadlines_met", "refused")  # shown where they are known
FIGURES = [row for row in SHOWN if row[0] not in ("jobs", "wall_s")]


@output.command("sweep")
@click.argument("traces", nargs=-1, metavar="[TRACE]...")
@click.option("--grid", type=FILE, help="TOML: an axis = a value or a list of values; [[policy]] tables.")
@click.option("--set", "pairs", multiple=True, metavar="AXIS=VALUE",
              help="One value of an axis (cluster, policy, model, placement, topology, physics, backfill, history, "
                   "round_s, restart_cost_s, seed, trace) or of policy.PARAMETER; give it again for more.")  # fmt: skip
@click.option("--results", type=FILE, default=Path("sweep.jsonl"), show_default=True,
              help="Finished points, added one by one; what is there is not played again.")  # fmt: skip
@click.option("--by", default="avg_jct_s", show_default=True, metavar="FIGURE", help="What is best.")
@click.option("--top", type=click.IntRange(min=0), default=20, show_default=True, help="Rows shown; 0: all.")
@click.option("--workers", type=click.IntRange(min=1), default=None,
              help=f"Processes here, default: one a core; with --dask: jobs, default {SLURM_JOBS}.")  # fmt: skip
@click.option("--dask", type=click.Choice(["slurm"]), help="Play in Slurm jobs, submitted by dask-jobqueue.")
@click.option("--scheduler", metavar="ADDRESS", help="Play on the workers of this Dask scheduler.")
def command(
    out: Output, traces: tuple[str, ...], grid: Path | None, pairs: tuple[str, ...], results: Path, by: str, top: int,
    workers: int | None, dask: str | None, scheduler: str | None,
) -> int:  # fmt: skip
    """Replay every TRACE at every point of a grid, and rank the points.

    After Ctrl-C or a power failure the same command plays only what is missing. A point that fails is listed, and
    does not stop the others.
    """
    from slurmsched.config import read_toml
    from slurmsched.replay.best import ranked
    from slurmsched.replay.grid import points_of
    from slurmsched.replay.results import open_results
    from slurmsched.replay.sweep import Sweep, read_traces
    from slurmsched.replay.traces import read_trace

    if dask and scheduler:
        raise click.UsageError("--dask starts a scheduler of its own: leave out --scheduler")
    ranked((), by)
    points = points_of(read_toml(grid) if grid else {}, pairs, traces, source=str(grid or "--set"))
    known = read_traces(points, lambda name: read_trace(Path(name)))
    with open_results(results) as file:
        sweep = Sweep(points, known, file)
        found = len(sweep.rows)
        whole, lost = _played(sweep, lambda most: _workers(len(sweep.todo), workers, dask, scheduler, results, most))
        told = _told(sweep, found) | {"results": str(results.resolve()), "by": by}
        _show(out, told, ranked(sweep.rows, by), top)
    if lost:
        raise lost
    if not whole:
        click.echo("slurmsched: interrupted; the same command plays what is missing", err=True)
        return INTERRUPTED
    return FAILED if sweep.failures else 0


def _told(sweep: Sweep, found: int) -> dict[str, Any]:
    """How many points there are, were found on file, were played now, and are missing; those that failed, and why."""
    failed = [{**point.words, "error": error} for point, error in sweep.failures]
    missing = sum(map(len, sweep.todo.values()))
    return {"points": len(sweep.points), "found": found, "played": len(sweep.rows) - found, "missing": missing,
            "failed": failed}  # fmt: skip


def _workers(
    todo: int, count: int | None, dask: str | None, scheduler: str | None, results: Path, most: int
) -> AbstractContextManager[Workers]:
    """Who plays: by default a process a core. most: processes of this machine, 0 = any number."""
    from slurmsched.replay import dask_workers
    from slurmsched.replay.workers import cores, processes

    if scheduler:
        return dask_workers.scheduler(scheduler, _tell)
    if dask:
        folder = results.resolve().with_name(f"{results.name}.workers")
        return dask_workers.slurm_jobs(min(count or SLURM_JOBS, todo), folder, _tell)
    return processes(min(count or cores(), todo, most or todo))


def _played(sweep: Sweep, opened: Opened) -> tuple[bool, WorkersLostError | None]:
    """Whether nobody interrupted it, and why workers were lost for good; with a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from slurmsched.replay.attempts import play_through

    bars = (TextColumn("points"), BarColumn(), MofNCompleteColumn(), TextColumn("ETA"), TimeRemainingColumn())
    try:
        with Progress(*bars, console=Console(stderr=True), disable=not sweep.todo) as progress:
            bar = progress.add_task("", total=len(sweep.todo))
            play_through(sweep, opened, lambda: progress.advance(bar), _tell)
    except KeyboardInterrupt:
        return False, None
    except WorkersLostError as lost:
        return True, lost
    return True, None


def _tell(line: str) -> None:
    """A line of its own on stderr; the progress bar makes room for it."""
    click.echo(harmless(f"slurmsched: {line}"), err=True)


def _show(out: Output, told: dict[str, Any], best: list[dict[str, Any]], top: int) -> None:
    if out.as_json:
        out.json(told | {"best": best[:top] if top else best})
        return
    if best:
        _table(out, best, top)
    for line in _failures(told["failed"]):
        out.line(line, "failed")
    done = told["found"] + told["played"]
    out.line(f"{done} of {some(told['points'], 'point')} in {told['results']}, {told['played']} of them played now")


def _failures(failed: list[dict[str, Any]]) -> list[str]:
    """A line for each error: how many points, what it is, and the first of them."""
    found: dict[str, list[dict[str, Any]]] = {}
    for point in failed:
        found.setdefault(point["error"], []).append(_flat(point))
    return [
        f"failed: {some(len(points), 'point')}: {error}; the first: "
        + ", ".join(f"{name} {value}" for name, value in points[0].items() if value not in ("", 0.0))
        for error, points in found.items()
    ]


def _table(out: Output, best: list[dict[str, Any]], top: int) -> None:
    """The best rows: axes that differ from row to row, figures, and a star where no other point is better in both."""
    axes = [name for name in _flat(best[0]) if len({str(_flat(row).get(name)) for row in best}) > 1 or name == "policy"]
    parameters = dict.fromkeys(name for row in best for name in _flat(row) if name.startswith("policy."))
    axes += [name for name in parameters if name not in axes]
    figures = [row for row in FIGURES if row[0] not in SOMETIMES or any(each[row[0]] == each[row[0]] for each in best)]
    titles = [f"{title}>" for _, title, _ in figures]
    rows = [[*(_flat(row).get(name, "") for name in axes), *(_figure(row[key], form) for key, _, form in figures),
             "*" if row["pareto"] else ""] for row in (best[:top] if top else best)]  # fmt: skip
    out.table([*axes, *titles, "Pareto"], rows)
    if top < len(best) and top:
        out.line(f"... and {len(best) - top} more (--top 0 shows all)")
    out.line("*: none of the same trace and cluster has both a lower mean JCT and no more preemptions")


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Axis -> value, the policy's parameters as axes."""
    from slurmsched.replay.best import WORDS

    own = {f"policy.{name}": value for name, value in row["parameters"].items()}
    return {name: row[name] for name in WORDS if name != "parameters"} | own


def _figure(value: float, form: str) -> str:
    return format(round(value) if form == "d" and value == value else value, form if value == value else "")

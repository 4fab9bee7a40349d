"""`sweep`: a trace under every point of a grid of policies, parameters, clusters and seeds."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import framework
from slurmsched.cli.framework import FILE, Output
from slurmsched.cli.replay import INTERRUPTED, SHOWN
from slurmsched.errors import WorkersLostError
from slurmsched.plain_text import escape_terminal, pluralize

if TYPE_CHECKING:
    from slurmsched.sim.experiments.parameter_sweep import Opened, ParameterSweep
    from slurmsched.sim.experiments.worker_processes import SweepWorkers

FAILED = 2
SLURM_JOBS = 4
SOMETIMES = ("mean_slowdown", "deadlines_met", "refused", "resizes")  # shown where they are known
FIGURES = [row for row in SHOWN if row[0] not in ("jobs", "wall_s")]


@framework.examples(
    ("slurmsched sweep trace.csv --axis policy=las --axis cluster=10x8 --axis cluster=20x8", "LAS on two clusters.")
)
@framework.command("sweep")
@click.argument("traces", nargs=-1, metavar="[TRACE]...")
@click.option("--grid", type=FILE, help="TOML file: AXIS = value or list of values, and [[policy]] tables.")
@click.option(
    "--axis",
    "pairs",
    multiple=True,
    metavar="AXIS=VALUE",
    help="A value of an axis (cluster, policy, model, placement, topology, physics, backfill, history, "
    "round_s, restart_cost_s, seed, trace) or of policy.PARAMETER; may be repeated.",
)
@click.option(
    "--results",
    type=FILE,
    default=Path("sweep.jsonl"),
    show_default=True,
    help="File of finished points; a point in it is not replayed again.",
)
@click.option("--by", default="avg_jct_s", show_default=True, metavar="FIGURE", help="Figure to rank by.")
@click.option(
    "--limit", "top", type=click.IntRange(min=0), default=20, show_default=True, help="Most rows to show; 0: all."
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=None,
    help=f"Worker processes. Default: one per core; with --dask: {SLURM_JOBS} jobs.",
)
@click.option("--back-test/--no-back-test", "with_back_test", default=True, show_default=True,
              help="slurm: replay Slurm alone too, and compare it with the recorded starts.")  # fmt: skip
@click.option("--dask", type=click.Choice(["slurm"]), help="Replay in Slurm jobs, submitted by dask-jobqueue.")
@click.option("--scheduler", metavar="ADDRESS", help="Replay on the workers of this Dask scheduler.")
def command(
    out: Output, traces: tuple[str, ...], grid: Path | None, pairs: tuple[str, ...], results: Path, by: str, top: int,
    workers: int | None, with_back_test: bool, dask: str | None, scheduler: str | None,
) -> int:  # fmt: skip
    """Replay each TRACE at all points of a grid and rank them.

    After Ctrl-C or a power failure, the same command replays only the missing points. A point that fails is listed
    and does not stop the others.
    """
    from slurmsched.config_file import read_toml
    from slurmsched.sim.experiments.parameter_grid import ranked_points
    from slurmsched.sim.experiments.parameter_sweep import ParameterSweep, open_results, planned_sweep
    from slurmsched.sim.traces.trace_io import load_trace

    if dask and scheduler:
        raise click.UsageError("--dask starts its own scheduler and cannot be combined with --scheduler")
    ranked_points((), by)
    tree = read_toml(grid) if grid else {}
    planned = planned_sweep(tree, pairs, traces, lambda name: load_trace(Path(name), strict=True),
                            source=str(grid or "--axis"), with_back_test=with_back_test)  # fmt: skip
    for warning in planned.warnings:
        _tell(warning)
    with open_results(results) as file:
        known = {name: each.trace for name, each in planned.recorded.items()}
        sweep = ParameterSweep(planned.points, known, file, planned.beside)
        found = len(sweep.rows)
        whole, lost = _played(sweep, lambda most: _workers(len(sweep.todo), workers, dask, scheduler, results, most))
        lines = [sweep.trace_figures(name, each) for name, each in planned.recorded.items()]
        summary = sweep.figures(found) | {"results": str(results.resolve()), "by": by, "traces": lines}
        _show(out, summary, ranked_points(sweep.rows, by), top)
    if lost:
        raise lost
    if not whole:
        click.echo("slurmsched: interrupted; the same command replays the missing points", err=True)
        return INTERRUPTED
    return FAILED if sweep.failures else 0


def _workers(
    todo: int, count: int | None, dask: str | None, scheduler: str | None, results: Path, most: int
) -> AbstractContextManager[SweepWorkers]:
    """Who plays: by default a process a core. most: processes of this machine, 0 = any number."""
    from slurmsched.sim.experiments import dask_workers
    from slurmsched.sim.experiments.worker_processes import local_processes, usable_cores

    if scheduler:
        return dask_workers.scheduler(scheduler, _tell)
    if dask:
        folder = results.resolve().with_name(f"{results.name}.workers")
        return dask_workers.slurm_jobs(min(count or SLURM_JOBS, todo), folder, _tell)
    return local_processes(min(count or usable_cores(), todo, most or todo))


def _played(sweep: ParameterSweep, opened: Opened) -> tuple[bool, WorkersLostError | None]:
    """Whether nobody interrupted it, and why workers were lost for good; with a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from slurmsched.sim.experiments.parameter_sweep import play_despite_losses

    bars = (TextColumn("points"), BarColumn(), MofNCompleteColumn(), TextColumn("ETA"), TimeRemainingColumn())
    try:
        with Progress(*bars, console=Console(stderr=True), disable=not sweep.todo) as progress:
            bar = progress.add_task("", total=len(sweep.todo))
            play_despite_losses(sweep, opened, lambda: progress.advance(bar), _tell)
    except KeyboardInterrupt:
        return False, None
    except WorkersLostError as lost:
        return True, lost
    return True, None


def _tell(line: str) -> None:
    """A line of its own on stderr; the progress bar makes room for it."""
    click.echo(escape_terminal(f"slurmsched: {line}"), err=True)


def _show(out: Output, summary: dict[str, Any], best: list[dict[str, Any]], top: int) -> None:
    if out.as_json:
        out.json(summary | {"best": best[:top] if top else best})
        return
    for trace in summary["traces"]:
        _lead(out, trace)
    if best:
        _table(out, best, top)
    for line in _failures(summary["failed"]):
        out.line(line, "failed")
    done = summary["found"] + summary["played"]
    out.line(
        f"{done} of {pluralize(summary['points'], 'point')} in {summary['results']}, {summary['played']} played now"
    )


def _lead(out: Output, trace: dict[str, Any]) -> None:
    """How far to trust the figures of a trace, and what they rest on."""
    from slurmsched.cli.replay_options import print_back_test
    from slurmsched.sim.experiments.replay_result import assumptions_text

    for test in trace["back_test"]:
        out.line(f"{trace['file']} on {test['cluster']}")
        print_back_test(out, test)
    for assumed in trace["assumptions"]:
        out.line(f"{trace['file']}: {assumptions_text(assumed)}")


def _failures(failed: list[dict[str, Any]]) -> list[str]:
    """A line for each error: how many points, what it is, and the first of them."""
    found: dict[str, list[dict[str, Any]]] = {}
    for point in failed:
        found.setdefault(point["error"], []).append(_flat(point))
    return [
        f"failed: {pluralize(len(points), 'point')}: {error}; the first: "
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
        out.line(f"... and {len(best) - top} more (--limit 0 shows all)")
    out.line("*: none of the same trace and cluster has both a lower mean JCT and no more preemptions")


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Axis -> value, the policy's parameters as axes."""
    from slurmsched.sim.experiments.parameter_grid import FIGURE_TITLES

    own = {f"policy.{name}": value for name, value in row["parameters"].items()}
    return {name: row[name] for name in FIGURE_TITLES if name != "parameters"} | own


def _figure(value: float, form: str) -> str:
    return format(round(value) if form == "d" and value == value else value, form if value == value else "")

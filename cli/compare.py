"""`compare`: traces under several policies, side by side."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output, refuse_folder
from slurmsched.cli.replay_options import preempting, replaying, sections
from slurmsched.cli.trace_files import FILE, read_whole, reading
from slurmsched.words import some

if TYPE_CHECKING:
    from slurmsched.replay.compare import Case, Comparison, Played
    from slurmsched.replay.trace_files import Recorded

INTERRUPTED = 130


@output.command("compare")
@click.argument("traces", type=FILE, nargs=-1, required=True, metavar="TRACE...")
@reading
@replaying
@click.option("--policy", "policies", multiple=True, required=True, metavar="NAME[:PARAMETER=VALUE,...]",
              help="As of replay; once for each that is to be compared. The first is what the others are measured "
                   "against.")  # fmt: skip
@preempting
@click.option("--jobs", type=click.IntRange(min=1), default=None, metavar="N",
              help="Processes at once. Default: one for each core.")  # fmt: skip
@click.option("--by", type=click.Choice(["auto", "user", "account"]), default="auto", show_default=True,
              help="Whom fairness is about. auto: users, or accounts where the trace tells no users.")  # fmt: skip
@click.option("--top", type=click.IntRange(min=1), default=5, show_default=True, metavar="N",
              help="Users to name that gain most, and that lose most.")  # fmt: skip
@click.option("-o", "--out", "page", type=FILE, help="Write tables and plots as an HTML page.")
def command(
    out: Output, traces: tuple[Path, ...], kind: str, pairs: tuple[str, ...], strict: bool, policies: tuple[str, ...],
    model: Literal["ideal", "slurm"], backfill: str | None, seed: int, jobs: int | None, by: str, top: int,
    page: Path | None, preempt: bool, hints: str, **words: Any,
) -> int:  # fmt: skip
    """Replay each TRACE under every --policy and set the results side by side.

    TRACE: a file of any kind that docs/traces.md lists (sacct's output, CSV, SWF, ...). After Ctrl-C the figures are
    of the jobs that ended until then. With --preempt each policy that ranks jobs is replayed twice, as it is and with
    the daemon's own preemption.
    """
    from slurmsched.logs import configure
    from slurmsched.replay.compare import cases, check
    from slurmsched.replay.compare import preempting as beside
    from slurmsched.replay.request import Request

    configure("warning")
    refuse_folder(page)
    requests = [Request(model=model, policy=name, backfill=backfill or "", seed=seed, **words) for name in policies]
    if (taking := sections(preempt, hints)) is not None:
        requests = beside(requests, taking, hints)
    every = cases(len(traces), requests)
    recorded = [read_whole(trace, kind, pairs, strict) for trace in traces]
    for trace, each in zip(traces, recorded, strict=True):
        check(each, str(trace), requests, by)
    played = _played(recorded, every, jobs or len(os.sched_getaffinity(0)))
    whole = len(played) == len(every) and all(each.complete for each in played)
    _show(out, _compared(traces, recorded, played, by, top), seed, page, whole=whole)
    if not whole:
        click.echo("slurmsched: interrupted; the figures are of the jobs that ended", err=True)
    return 0 if whole else INTERRUPTED


def _played(recorded: Sequence[Recorded], cases: Sequence[Case], workers: int) -> list[Played]:
    """What came of the cases, with a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from slurmsched.replay.parallel import play_all

    traces = [each.trace for each in recorded]
    bars = (TextColumn("jobs"), BarColumn(), MofNCompleteColumn(), TextColumn("ETA"), TimeRemainingColumn())
    with Progress(*bars, console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=sum(len(traces[case.trace]) for case in cases))
        return play_all(traces, cases, workers, lambda ended: progress.update(bar, completed=ended))


def _compared(
    traces: Sequence[Path], recorded: Sequence[Recorded], played: Sequence[Played], by: str, top: int
) -> list[Comparison]:
    """One comparison a trace of which anything was played."""
    from slurmsched.replay.compare import Comparison

    made = []
    for place, (trace, each) in enumerate(zip(traces, recorded, strict=True)):
        if mine := [case for case in played if case.case.trace == place]:
            made.append(Comparison(str(trace), each, mine, by, top))
    return made


def _show(out: Output, compared: Sequence[Comparison], seed: int, page: Path | None, *, whole: bool) -> None:
    from slurmsched.replay.compare import report

    if page is not None and compared:
        from slurmsched.replay.compare_page import compare_page
        from slurmsched.replay.page import write_whole

        write_whole(page, compare_page(compared, seed, complete=whole))
    if out.as_json:
        out.json(report(compared, seed, complete=whole) | {"page": str(page.resolve()) if page else None})
        return
    for each in compared:
        _table(out, each)
    if page is not None and compared:
        out.line(f"Page: {page.resolve()}")


def _table(out: Output, each: Comparison) -> None:
    """The figures of one trace, then who gains and loses by each policy but the first."""
    from slurmsched.replay.compare_table import CHANGE_COLUMNS, change_rows, rows, unit_of

    titles, unit = [run["policy"] for run in each.runs], unit_of(each.runs)
    out.line(f"{each.source}: {some(len(each.trace), 'job')} on {some(each.played[0].outcomes.cluster_gpus, 'GPU')}")
    out.table(("", *(f"{title}>" for title in titles)), rows(each.runs))
    out.line()
    for run in each.runs[1:]:
        changed = change_rows([*run["gain"], *reversed(run["lose"])], unit)
        if changed:
            out.line(f"{run['policy']} against {titles[0]}: {run['gaining']} gain, {run['losing']} lose")
            columns = [f"{name.format(unit=unit.name)}>" for name in CHANGE_COLUMNS]
            out.table((each.tenants.of, *columns), changed)
            out.line()

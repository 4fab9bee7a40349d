"""The page of a comparison: tables to sort and plots, in one HTML file that asks the network for nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from slurmsched import __version__
from slurmsched.replay import gantt_plot
from slurmsched.replay.compare import Comparison
from slurmsched.replay.compare_table import (
    CHANGE_COLUMNS,
    FAIR,
    TIMES,
    TOOK,
    USE,
    WAITS,
    Measure,
    change_rows,
    times_text,
    unit_of,
    use,
)  # fmt: skip
from slurmsched.replay.page import template
from slurmsched.replay.plots import delays, distributions, html, queue, times, usage
from slurmsched.replay.sheets import Cell, Plot, Row, Sheet
from slurmsched.replay.units import Unit
from slurmsched.words import some

MOST_GANTTS = 8  # of a trace: more make a page slow, and nobody compares them


def compare_page(comparisons: Sequence[Comparison], seed: int, *, complete: bool) -> str:
    """The page as text."""
    number = itertools.count()
    parts = [_part(each, number) for each in comparisons]
    policies = max(len(each.played) for each in comparisons)
    traces = some(len(parts), "trace")
    title = f"{traces}, {some(policies, 'policy', 'policies')}"
    return template("compare.html.j2").render(
        title=title, parts=parts, seed=seed, complete=complete, version=__version__, plotly=get_plotlyjs()
    )


def _part(each: Comparison, number: Iterator[int]) -> dict[str, Any]:
    """What the template shows of one trace."""
    gpus, runs = each.played[0].outcomes.cluster_gpus, each.runs
    gpu_hours, end_s = float(each.trace.gpu_s.sum()) / 3600, max(run.runs.end_s.max(initial=0) for run in each.played)
    return {
        "source": each.source,
        "digest": each.described()["trace_digest"],
        "lead": f"{some(len(each.trace), 'job')} ({gpu_hours:,.0f} GPU hours), read as {each.recorded.kind}; "
                f"{some(gpus, 'GPU')}.",
        "warnings": each.recorded.warnings,
        "tables": _tables(each),
        "plots": [Plot(name, said, alt, html(figure, next(number))) for name, said, alt, figure in _plots(each)],
        "changes": [sheet for run in runs[1:] for sheet in _changes(each, run)],
        "gantt_caption": gantt_plot.CAPTION,
        "gantts": [
            Plot(run.title, gantt_plot.caption(run), f"Who holds which GPU over time under {run.title}",
                 html(gantt_plot.figure(run, end_s), next(number)), wide=True) for run in each.played[:MOST_GANTTS]
        ],
        "configs": [(run["policy"], orjson.dumps(run["config"]).decode()) for run in runs],
    }  # fmt: skip


def _tables(each: Comparison) -> list[Sheet]:
    """Completion times and use of the GPUs; waits by size, fairness and cost."""
    unit = unit_of(each.runs)
    return [
        _sheet("Job completion time, wait and use of the GPUs", (*TIMES, *use(each.runs)), each.runs, unit),
        _sheet(f"Wait by GPUs asked for, and fairness by {each.tenants.of}", (*WAITS, *FAIR, *TOOK), each.runs, unit),
    ]


def _sheet(caption: str, measures: Sequence[Measure], runs: Sequence[Mapping[str, Any]], unit: Unit) -> Sheet:
    rows = [
        Row(run["policy"], tuple(_cell(measure, run, unit, run is runs[0]) for measure in measures)) for run in runs
    ]
    return Sheet(caption, ("policy", *(measure.title.format(unit=unit.name) for measure in measures)), tuple(rows))


def _cell(measure: Measure, run: Mapping[str, Any], unit: Unit, first: bool) -> Cell:
    value, ratio = measure.value(run), None if first else measure.ratio(run)
    return Cell(measure.text(run, unit), "" if value is None else value, "" if ratio is None else times_text(ratio))


def _changes(each: Comparison, run: Mapping[str, Any]) -> list[Sheet]:
    """Who gains most, then who loses most, if anybody does."""
    unit, first = unit_of(each.runs), each.runs[0]["policy"]
    changed = [*run["gain"], *reversed(run["lose"])]
    if not changed:
        return []
    rows = [
        Row(name, tuple(Cell(text, value) for text, value in zip(cells, list(change.values())[1:], strict=True)))
        for (name, *cells), change in zip(change_rows(changed, unit), changed, strict=True)
    ]
    counts = f"{run['gaining']} gain, {run['losing']} lose; those with the largest change of mean wait"
    caption = f"{each.tenants.of.capitalize()}s under {run['policy']} against {first}: {counts}"
    return [Sheet(caption, (each.tenants.of, *(name.format(unit=unit.name) for name in CHANGE_COLUMNS)), tuple(rows))]


def _plots(each: Comparison) -> list[tuple[str, str, str, go.Figure]]:
    """Title, caption, text for who cannot see it, and figure of every plot but the Gantt charts."""
    played, unit = each.played, unit_of(each.runs)
    done = [run.outcomes for run in played]
    jct = times(played, [one.jct_s for one in done], "job completion time", unit)
    wait = times(played, [one.delay_s for one in done], "wait", unit)
    p50, mean_wait, used = TIMES[1], TIMES[4], USE[2]
    made = [
        ("Job completion time", "Share of jobs that end within a time of their submission.",
         _told("Median JCT", p50, each, unit), jct),
        ("Wait", "Share of jobs that wait no longer; less than 1 s is shown as 1 s.",
         _told("Mean wait", mean_wait, each, unit), wait),
        ("Wait by size", "Mean time without GPUs at work, by GPUs asked for.",
         _told("Mean wait of jobs with one GPU", WAITS[0], each, unit), delays(played, unit)),
        ("GPUs in use", "Share of all GPUs that are held, averaged over equal spans of time.",
         _told("GPU utilisation in per cent", used, each, unit), usage(played)),
        ("Jobs waiting", "Jobs that could start if there were GPUs, averaged likewise.",
         _told("Mean wait", mean_wait, each, unit), queue(played)),
    ]  # fmt: skip
    return [*made, _fairness(each, unit)]


def _fairness(each: Comparison, unit: Unit) -> tuple[str, str, str, go.Figure]:
    """rho of the tenants, or slowdowns where each job is its own."""
    if each.tenants.names:
        name, of, every = "rho", each.tenants.of, [fair.rho for fair in each.fairness]
        caption = f"Share of {of}s whose rho is no larger; right of the line a share of its own would be better."
        told = _told("Largest rho", FAIR[2], each, unit)
    else:
        name, every = "slowdown", [fair.slowdown for fair in each.fairness]
        caption = "Share of jobs whose slowdown is no larger. The trace names no users."
        told, of = _told("Jain's index of slowdown", FAIR[0], each, unit), "job"
    figure = distributions(each.played, [values[values == values] for values in every], f"{of}s [%]")
    figure.add_vline(x=1, line={"color": "#555", "width": 1})
    figure.update_xaxes(title=name, type="log", dtick=1)
    return "Fairness", caption, told, figure


def _told(what: str, measure: Measure, each: Comparison, unit: Unit) -> str:
    """A plot in words: "Median JCT [h]: fifo 3.21, srtf 1.05"."""
    name = what if measure.form else f"{what} [{unit.name}]"
    return f"{name}: " + ", ".join(f"{run['policy']} {measure.text(run, unit)}" for run in each.runs)

"""The HTML page of a comparison: tables, plots and Gantt charts. It loads nothing from the network."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.job_outcomes import SIZE_CLASSES, in_size_class
from slurmsched.observe.html_page import (
    SIZE_COLOURS,
    PagePlot,
    PageSheet,
    PlotFigure,
    SheetCell,
    SheetRow,
    TimeAxis,
    TimeUnit,
    delay_bars,
    distributions,
    figure_html,
    logarithmic,
    queue_lines,
    rendered_page,
    size_label,
    time_distributions,
    unit_for_span,
    usage_lines,
)
from slurmsched.plain_text import pluralize
from slurmsched.sim.experiments.back_test import BACK_TEST_COLUMNS, back_test_lead, back_test_table
from slurmsched.sim.experiments.comparison import (
    CHANGE_COLUMNS,
    COST_MEASURES,
    FAIRNESS_MEASURES,
    TIME_MEASURES,
    USE_MEASURES,
    WAIT_MEASURES,
    ComparisonMeasure,
    PlayedCase,
    PolicyComparison,
    change_rows,
    ratio_text,
    unit_of_runs,
    use_measures,
)
from slurmsched.sim.experiments.comparison_conclusion import conclusions
from slurmsched.sim.experiments.replay_result import assumptions_text
from slurmsched.sim.traces.trace_selection import clock_name, shown_origin_s

GANTT_LINES, GANTT_COLUMNS = 100, 400  # GPUs and times at most


@dataclass(frozen=True, slots=True, eq=False)
class GanttGrid:
    """Samples of a schedule.

    gpu: (L,) numbers of the GPUs looked at.
    at_s: (C,) times.
    run: (L, C) the run that holds the GPU then, as a place among the runs given, -1 for none.
    """

    gpu: Int64s
    at_s: Floats
    run: Int64s


def gantt_grid(
    gpus: Int64s,
    start_s: Floats,
    end_s: Floats,
    total: int,
    until_s: float,
    lines: int = GANTT_LINES,
    columns: int = GANTT_COLUMNS,
) -> GanttGrid:
    """The grid of these runs on `total` GPUs, from 0 to until_s.

    gpus, start_s, end_s: (R,), what each run held and when. At most `lines` GPUs, evenly spread, at the middle of
    `columns` equal spans: a share of cells is, but for chance, the share of GPU time.
    """
    looked = np.unique(np.linspace(0, total - 1, min(total, lines)).round().astype(np.int64))
    step_s = until_s / columns
    at_s: Floats = (np.arange(columns, dtype=np.float64) + 0.5) * step_s
    line = np.full(total, -1, np.int64)
    line[looked] = np.arange(len(looked))
    run = np.full((len(looked), columns), -1, np.int64)
    first, last = np.searchsorted(at_s, start_s), np.searchsorted(at_s, end_s)
    for place, held in numbered_gpus(gpus, start_s, end_s, total):
        shown = line[held]
        run[shown[shown >= 0], first[place] : last[place]] = place
    return GanttGrid(looked, at_s, run)


def numbered_gpus(gpus: Int64s, start_s: Floats, end_s: Floats, total: int) -> list[tuple[int, list[int]]]:
    """Each run by its place, in order of start, and the numbers of the GPUs it holds: the lowest that are free.

    The numbers are for the picture: a cluster model counts GPUs, on nodes or in one pile, and numbers none. Runs of no
    length are left out. Runs that share GPUs hold more than there are: the later ones get what the earlier ones do not
    use.
    """
    free, busy, made = list(range(total)), list[tuple[float, int]](), list[tuple[int, list[int]]]()
    given: dict[int, list[int]] = {}
    for place in np.lexsort((end_s, start_s)).tolist():
        if end_s[place] <= start_s[place]:
            continue
        while busy and busy[0][0] <= start_s[place]:
            for gpu in given.pop(heapq.heappop(busy)[1]):
                heapq.heappush(free, gpu)
        given[place] = [heapq.heappop(free) for _ in range(min(int(gpus[place]), len(free)))]
        heapq.heappush(busy, (float(end_s[place]), place))
        made.append((place, given[place]))
    return made


# The Gantt chart.

# Each size class has its colour, and a lighter shade of it for every other job, so that neighbours differ: name of the
# colour, and its opacity.
SHADES = tuple((SIZE_COLOURS[name], opacity) for name, _, _ in SIZE_CLASSES for opacity in (1.0, 0.6))
GANTT_CAPTION = (
    "Every cell is one GPU at one time: empty is idle, else the colour shows how many GPUs its job asked for, in two "
    "shades so that neighbours differ. Point at a cell for the job's id. GPUs are numbered as they are taken, lowest "
    "first. A run that falls between two samples is not seen."
)


def gantt_caption(played: PlayedCase) -> str:
    """Runs, and how many of the GPUs are drawn."""
    gpus = played.outcomes.cluster_gpus
    drawn = f", {GANTT_LINES} of them drawn" if gpus > GANTT_LINES else ""
    return f"{pluralize(len(played.runs.job_id), 'run')} on {pluralize(gpus, 'GPU')}{drawn}."


def gantt_figure(played: PlayedCase, end_s: float, begin_s: float = math.nan, clock: str = "UTC") -> PlotFigure:
    """Samples of who holds which GPU when, up to end_s; the legend names the size classes that are there.

    begin_s, clock: as TimeAxis.
    """
    (job_id, gpus, start_s, _), axis = played.runs, TimeAxis(unit_for_span(end_s), begin_s, clock)
    drawn = gantt_grid(*played.runs[1:], played.outcomes.cluster_gpus, end_s)
    low, high = float(drawn.gpu[0]) - 0.5, float(drawn.gpu[-1]) + 0.5
    image = {"xref": "x", "yref": "y", "x": axis.at(0.0), "sizex": axis.step(end_s), "y": high, "sizey": high - low,
             "xanchor": "left", "yanchor": "top", "sizing": "stretch", "layer": "below"}  # fmt: skip
    layout = {"images": [image], "yaxis": {"range": [low, high]}, "height": 260 if len(drawn.gpu) < 40 else 420}
    shown = {**axis.settings, "range": [axis.at(0.0), axis.at(end_s)]}
    chart = PlotFigure("GPU", x_axis=shown, layout=layout, gantt=_painted(drawn, job_id, gpus, start_s, axis))
    for name, least, most in SIZE_CLASSES:
        if in_size_class(gpus, least, most).any():
            mark = {"symbol": "square", "size": 11, "color": SIZE_COLOURS[name]}
            chart.traces.append({"type": "scatter", "x": [None], "y": [None], "mode": "markers", "marker": mark,
                                 "name": size_label(name), "hoverinfo": "skip"})  # fmt: skip
    return chart


def _painted(drawn: GanttGrid, job_id: Int64s, gpus: Int64s, start_s: Floats, axis: TimeAxis) -> dict[str, Any]:
    """The samples as static/plots.js paints them: lines of lengths and runs. job, shade: of each run that is seen."""
    seen = np.unique(drawn.run[drawn.run >= 0])
    place = np.append(np.full(len(job_id), -1), -1)
    place[seen] = np.arange(len(seen))
    return {
        "begin": axis.at(0.0), "dx": axis.step(float(drawn.at_s[0]) * 2), "unit": axis.unit.name,
        "columns": len(drawn.at_s), "gpus": drawn.gpu.tolist(), "shades": SHADES,
        "lines": [_run_lengths(line) for line in place[drawn.run]],
        "job": job_id[seen].tolist(), "shade": _shades(gpus, start_s)[seen].tolist(),
    }  # fmt: skip


def _run_lengths(line: Int64s) -> list[int]:
    """Length and value of each stretch of equal values, one after the other."""
    edges = np.concatenate([[0], np.flatnonzero(np.diff(line)) + 1, [len(line)]])
    return np.stack([np.diff(edges), line[edges[:-1]]], axis=1).ravel().tolist()


def _shades(gpus: Int64s, start_s: Floats) -> Int64s:
    """Place of each run's colour in SHADES: by size class, the shade by turns in order of start. (R,)."""
    size = sum(place * in_size_class(gpus, least, most) for place, (_, least, most) in enumerate(SIZE_CLASSES))
    turn = np.argsort(np.argsort(start_s, kind="stable"), kind="stable") % 2
    return np.asarray(2 * size + turn, np.int64)


# The page.

MOST_GANTTS = 8  # of a trace: more make a page slow, and nobody compares them


def comparison_html(comparisons: Sequence[PolicyComparison], seed: int, command: str = "", *, complete: bool) -> str:
    """The page as text. command: the command line that makes it again."""
    number = itertools.count()
    parts = [_trace_part(each, number) for each in comparisons]
    policies = max(len(each.played) for each in comparisons)
    traces = pluralize(len(parts), "trace")
    title = f"{traces}, {pluralize(policies, 'policy', 'policies')}"
    return rendered_page("compare.html.j2", title=title, parts=parts, seed=seed, complete=complete, command=command)


# Over 30 lines: one line for each key of the template.
def _trace_part(each: PolicyComparison, number: Iterator[int]) -> dict[str, Any]:
    """What the template shows of one trace."""
    gpus, runs = each.played[0].outcomes.cluster_gpus, each.runs
    gpu_hours, end_s = float(each.trace.gpu_s.sum()) / 3600, max(run.runs.end_s.max(initial=0) for run in each.played)
    return {
        "source": each.source,
        "digest": each.described()["trace_digest"],
        "lead": f"{pluralize(len(each.trace), 'job')} ({gpu_hours:,.0f} GPU hours), read as {each.recorded.kind}; "
        f"{pluralize(gpus, 'GPU')}.",
        "warnings": each.recorded.warnings,
        "assumptions": assumptions_text(each.assumptions),
        "conclusions": conclusions(each),
        "back_test": _back_test(each),
        "tables": _tables(each),
        "plots": [
            PagePlot(name, said, alt, figure_html(figure, next(number))) for name, said, alt, figure in _plots(each)
        ],
        "changes": [sheet for run in runs[1:] for sheet in _changes(each, run)],
        "gantt_caption": GANTT_CAPTION,
        "gantts": [
            PagePlot(
                run.title,
                gantt_caption(run),
                f"Who holds which GPU over time under {run.title}",
                figure_html(gantt_figure(run, end_s, *_calendar(each)), next(number)),
                wide=True,
                pointed=True,
            )
            for run in each.played[:MOST_GANTTS]
        ],
        "configs": [(run["policy"], orjson.dumps(run["config"]).decode()) for run in runs],
    }


def _calendar(each: PolicyComparison) -> tuple[float, str]:
    """The trace's 0 on the site's clock, NaN without a calendar; and the clock's name."""
    return shown_origin_s(each.recorded), clock_name(each.recorded)


def _back_test(each: PolicyComparison) -> dict[str, Any] | None:
    """The recorded schedule beside the model's; None where there is none to compare with."""
    if each.back_test is None:
        return None
    figures = each.back_test.figures()
    unit, rows = back_test_table(figures)
    made = tuple(SheetRow(name, tuple(SheetCell(text, _sort_key(text)) for text in cells)) for name, *cells in rows)
    columns = ("", *(name.format(unit=unit.name) for name in BACK_TEST_COLUMNS))
    sheet = PageSheet("Recorded and modelled waits", columns, made)
    return {"lead": back_test_lead(figures), "sheet": sheet, "verdict": figures["verdict"], "good": each.back_test.good}


def _sort_key(text: str) -> float | str:
    """What a column of figures is sorted by; "" where nothing is known."""
    return "" if text == "-" else float(text.replace(",", "").removesuffix("%"))


def _tables(each: PolicyComparison) -> list[PageSheet]:
    """Completion times and use of the GPUs; waits by size, fairness and cost."""
    unit = unit_of_runs(each.runs)
    return [
        _sheet(
            "Job completion time, wait and use of the GPUs", (*TIME_MEASURES, *use_measures(each.runs)), each.runs, unit
        ),
        _sheet(
            f"Wait by GPUs asked for, and fairness by {each.tenants.of}",
            (*WAIT_MEASURES, *FAIRNESS_MEASURES, *COST_MEASURES),
            each.runs,
            unit,
        ),
    ]


def _sheet(
    caption: str, measures: Sequence[ComparisonMeasure], runs: Sequence[Mapping[str, Any]], unit: TimeUnit
) -> PageSheet:
    best = [measure.best(runs, unit) for measure in measures]
    rows = [
        SheetRow(run["policy"], tuple(_cell(measure, run, unit, run is runs[0], run["policy"] in names)
                                      for measure, names in zip(measures, best, strict=True)))
        for run in runs
    ]  # fmt: skip
    return PageSheet(caption, ("policy", *(measure.title.format(unit=unit.name) for measure in measures)), tuple(rows))


def _cell(measure: ComparisonMeasure, run: Mapping[str, Any], unit: TimeUnit, first: bool, best: bool) -> SheetCell:
    value, ratio = measure.value(run), None if first else measure.ratio(run)
    return SheetCell(
        measure.text(run, unit), "" if value is None else value, "" if ratio is None else ratio_text(ratio), best
    )


def _changes(each: PolicyComparison, run: Mapping[str, Any]) -> list[PageSheet]:
    """Who gains most, then who loses most, if anybody does."""
    unit, first = unit_of_runs(each.runs), each.runs[0]["policy"]
    changed = [*run["gain"], *reversed(run["lose"])]
    if not changed:
        return []
    rows = [
        SheetRow(
            name, tuple(SheetCell(text, value) for text, value in zip(cells, list(change.values())[1:], strict=True))
        )
        for (name, *cells), change in zip(change_rows(changed, unit), changed, strict=True)
    ]
    counts = f"{run['gaining']} gain, {run['losing']} lose; those with the largest change of mean wait"
    caption = f"{each.tenants.of.capitalize()}s under {run['policy']} against {first}: {counts}"
    return [
        PageSheet(caption, (each.tenants.of, *(name.format(unit=unit.name) for name in CHANGE_COLUMNS)), tuple(rows))
    ]


def _plots(each: PolicyComparison) -> list[tuple[str, str, str, PlotFigure]]:
    """Title, caption, text for who cannot see it, and figure of every plot but the Gantt charts."""
    played, unit = each.played, unit_of_runs(each.runs)
    done = [run.outcomes for run in played]
    jct = time_distributions(played, [one.jct_s for one in done], "job completion time", unit)
    wait = time_distributions(played, [one.delay_s for one in done], "wait", unit)
    p50, mean_wait, used = TIME_MEASURES[1], TIME_MEASURES[4], USE_MEASURES[3]
    made = [
        ("Job completion time", "Share of jobs that end within a time of their submission.",
         _plot_in_words("Median JCT", p50, each, unit), jct),
        ("Wait", "Share of jobs that wait no longer; less than 1 s is shown as 1 s.",
         _plot_in_words("Mean wait", mean_wait, each, unit), wait),
        ("Wait by size", "Mean time without GPUs at work, by GPUs asked for.",
         _plot_in_words("Mean wait of jobs with one GPU", WAIT_MEASURES[0], each, unit), delay_bars(played, unit)),
        ("GPUs in use", "Share of all GPUs that are held, averaged over equal spans of time.",
         _plot_in_words("GPU utilisation in per cent", used, each, unit), usage_lines(played, *_calendar(each))),
        ("Jobs waiting", "Jobs that could start if there were GPUs, averaged likewise.",
         _plot_in_words("Mean wait", mean_wait, each, unit), queue_lines(played, *_calendar(each))),
    ]  # fmt: skip
    return [*made, _fairness(each, unit)]


def _fairness(each: PolicyComparison, unit: TimeUnit) -> tuple[str, str, str, PlotFigure]:
    """rho of the tenants, or slowdowns where each job is its own."""
    if each.tenants.names:
        name, of, every = "rho", each.tenants.of, [fair.rho for fair in each.fairness]
        caption = f"Share of {of}s whose rho is no larger; right of the line a share of its own would be better."
        in_words = _plot_in_words("Largest rho", FAIRNESS_MEASURES[2], each, unit)
    else:
        name, every = "slowdown", [fair.slowdown for fair in each.fairness]
        caption = "Share of jobs whose slowdown is no larger. The trace names no users."
        in_words, of = _plot_in_words("Jain's index of slowdown", FAIRNESS_MEASURES[0], each, unit), "job"
    figure = distributions(each.played, [values[values == values] for values in every], f"{of}s [%]")
    line = {
        "type": "line",
        "yref": "paper",
        "x0": 1,
        "x1": 1,
        "y0": 0,
        "y1": 1,
        "line": {"color": "--soft", "width": 1},
    }
    figure.layout["shapes"] = [line]
    figure.x_axis.update(logarithmic(name))
    return "Fairness", caption, in_words, figure


def _plot_in_words(what: str, measure: ComparisonMeasure, each: PolicyComparison, unit: TimeUnit) -> str:
    """A plot in words: "Median JCT [h]: fifo 3.21, srtf 1.05"."""
    name = what if measure.form else f"{what} [{unit.name}]"
    return f"{name}: " + ", ".join(f"{run['policy']} {measure.text(run, unit)}" for run in each.runs)

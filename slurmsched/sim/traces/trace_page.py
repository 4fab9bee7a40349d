"""The HTML page of a trace: its tables and plots. It loads nothing from the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slurmsched.model.columns import Floats
from slurmsched.model.job_outcomes import SIZE_CLASSES, in_size_class
from slurmsched.model.trace import RecordedTrace, Trace
from slurmsched.observe.html_page import (
    DASHES,
    FREE,
    POINTS,
    USED,
    PagePlot,
    PlotFigure,
    TimeAxis,
    figure_html,
    logarithmic,
    rendered_page,
    size_label,
    size_styles,
    span_averages,
    unit_for_span,
)
from slurmsched.sim.traces.trace_selection import clock_name, shown_origin_s
from slurmsched.sim.traces.trace_statistics import TraceSection, has_waits, hours_section, in_use, percent_of


def trace_page(name: str, recorded: RecordedTrace, sections: Sequence[TraceSection]) -> str:
    """The page as text."""
    plots = [PagePlot(title, text, f"{text} The tables below have the figures.", figure_html(figure, number))
             for number, (title, text, figure) in enumerate(trace_plots(recorded))]  # fmt: skip
    shown = [(each, [[section_rows(cell) for cell in row] for row in each.rows]) for each in sections]
    return rendered_page("trace.html.j2", name=name, recorded=recorded, sections=shown, plots=plots)


def trace_plots(recorded: RecordedTrace) -> list[tuple[str, str, PlotFigure]]:
    """Title, caption and figure of every plot that the trace has the columns for."""
    trace = recorded.trace
    made = [
        (
            "Run time",
            "Share of jobs that run no longer, by GPUs asked for.",
            jobs_by_size(trace, trace.duration_s, "run"),
        ),
        ("Size", "Share of jobs and of GPU time, by GPUs asked for.", size_shares(trace)),
    ]
    if has_waits(trace):
        made += [
            (
                "Wait",
                "Share of jobs that wait no longer, by GPUs asked for.",
                jobs_by_size(trace, trace.wait_s, "wait"),
            ),
            ("GPUs in use", "By recorded starts, averaged over equal spans of time.", gpus_over_time(recorded)),
        ]
    if not np.isnan(recorded.origin_s):
        made.append(("Hour of the day", "Submissions on the site's clock, mean a day.", submissions_by_hour(recorded)))
    if trace.user.any_text:
        made.append(("Users", "Share of jobs and of GPU time that the busiest users have.", gpu_time_by_user(trace)))
    return made


def jobs_by_size(trace: Trace, values_s: Floats, what: str) -> PlotFigure:
    """Cumulative distributions, one line a size class, times on a logarithmic axis (0 s shown as 1 s)."""
    figure = PlotFigure("jobs [%]", x_axis=logarithmic(f"{what} [h]"))
    for name, least, most, style in size_styles():
        chosen = values_s[in_size_class(trace.gpus, least, most) & ~np.isnan(values_s)]
        figure.distribution(size_label(name), np.maximum(chosen, 1.0) / 3600, style)
    return figure


def size_shares(trace: Trace) -> PlotFigure:
    """Bars by size class."""
    figure = PlotFigure("share [%]", x_axis={"title": {"text": "GPUs asked for"}, "type": "category"})
    chosen = [in_size_class(trace.gpus, least, most) for _, least, most in SIZE_CLASSES]
    names = [name for name, _, _ in SIZE_CLASSES]
    figure.bars("jobs", names, [percent_of(rows) for rows in chosen], USED)
    figure.bars("GPU time", names, [percent_of(rows, trace.gpu_s) for rows in chosen], FREE)
    return figure


def gpus_over_time(recorded: RecordedTrace) -> PlotFigure:
    """GPUs held over time."""
    times_s, held = in_use(recorded.trace)
    span_s = float(times_s[-1] - times_s[0])
    axis = TimeAxis(unit_for_span(span_s), shown_origin_s(recorded) + float(times_s[0]), clock_name(recorded))
    figure = PlotFigure("GPUs", x_axis=axis.settings)
    if span_s:
        mean = span_averages(times_s - times_s[0], held, span_s)
        figure.line("held", (USED, "solid"), y=mean.tolist(), **axis.middles(span_s))
    return figure


def submissions_by_hour(recorded: RecordedTrace) -> PlotFigure:
    """Submissions by hour of the day."""
    rows = hours_section(recorded).rows
    figure = PlotFigure("jobs a day", x_axis={"title": {"text": "hour"}, "dtick": 3})
    figure.bars("jobs", [row[0] for row in rows], [row[1] for row in rows], USED)
    return figure


def gpu_time_by_user(trace: Trace) -> PlotFigure:
    """Cumulative share over users, busiest first."""
    figure = PlotFigure("share [%]", x_axis={"title": {"text": "users, busiest first [%]"}})
    for name, weight, colour, dash in (("jobs", None, USED, DASHES[0]), ("GPU time", trace.gpu_s, FREE, DASHES[3])):
        total = np.sort(np.bincount(trace.user.codes, weight))[::-1].cumsum()
        rows = np.unique(np.linspace(0, len(total) - 1, POINTS).astype(np.int64))
        x, y = 100 * (rows + 1) / len(total), 100 * total[rows] / total[-1]
        figure.line(name, (colour, dash), x=x.round(2).tolist(), y=y.round(2).tolist())
    return figure


def section_rows(value: Any) -> str:
    """A table's cell for people: up to 4 digits, thousands apart; "-" where nothing is known."""
    if not isinstance(value, int | float):
        return str(value)
    if value != value:
        return "-"
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1_000 else f"{value:.4g}"

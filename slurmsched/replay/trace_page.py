"""The page of a trace: its tables and plots in one HTML file that asks the network for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from slurmsched import __version__
from slurmsched.model.columns import Floats
from slurmsched.replay.describe import Section, hours
from slurmsched.replay.metrics import SIZE_CLASSES, of_size
from slurmsched.replay.page import template
from slurmsched.replay.plots import COLOURS, DASHES, POINTS, averaged, finished, html
from slurmsched.replay.trace_files import Recorded
from slurmsched.replay.trace_stats import has, has_waits, in_use, percent
from slurmsched.replay.traces import Trace


def trace_page(name: str, recorded: Recorded, sections: Sequence[Section]) -> str:
    """The page as text."""
    figures = [(title, text, html(figure, number)) for number, (title, text, figure) in enumerate(plots(recorded))]
    return template("trace.html.j2").render(
        version=__version__, name=name, recorded=recorded, sections=sections, plots=figures, plotly=get_plotlyjs(),
        shown=shown,
    )  # fmt: skip


def plots(recorded: Recorded) -> list[tuple[str, str, go.Figure]]:
    """Title, caption and figure of every plot that the trace has the columns for."""
    trace = recorded.trace
    made = [
        ("Run time", "Share of jobs that run no longer, by GPUs asked for.", by_size(trace, trace.duration_s, "run")),
        ("Size", "Share of jobs and of GPU time, by GPUs asked for.", shares(trace)),
    ]
    if has_waits(trace):
        made += [
            ("Wait", "Share of jobs that wait no longer, by GPUs asked for.", by_size(trace, trace.wait_s, "wait")),
            ("GPUs in use", "By recorded starts, averaged over equal spans of time.", usage(trace)),
        ]
    if not np.isnan(recorded.origin_s):
        made.append(("Hour of the day", "Submissions on the site's clock, mean a day.", by_hour(recorded)))
    if has(trace.user):
        made.append(("Users", "Share of jobs and of GPU time that the busiest users have.", by_user(trace)))
    return made


def by_size(trace: Trace, values_s: Floats, what: str) -> go.Figure:
    """Cumulative distributions, one line a size class, times on a logarithmic axis (0 s shown as 1 s)."""
    figure = go.Figure()
    styles = zip(SIZE_CLASSES, COLOURS, DASHES, strict=False)
    for (name, least, most), colour, dash in styles:
        chosen = values_s[of_size(trace.gpus, least, most) & ~np.isnan(values_s)]
        if len(chosen):
            share = np.linspace(0, 100, min(len(chosen), POINTS) + 1)
            at = np.maximum(np.percentile(chosen, share), 1.0) / 3600
            line = {"color": colour, "dash": dash, "width": 2}
            label = f"{name} GPU{'' if name == '1' else 's'}"
            figure.add_scatter(x=at.round(6).tolist(), y=share.round(2).tolist(), name=label, mode="lines", line=line)
    figure.update_xaxes(type="log", title=f"{what} [h]", dtick=1)
    return finished(figure, "jobs [%]")


def shares(trace: Trace) -> go.Figure:
    """Bars by size class."""
    figure = go.Figure()
    chosen = [of_size(trace.gpus, least, most) for _, least, most in SIZE_CLASSES]
    names = [name for name, _, _ in SIZE_CLASSES]
    figure.add_bar(x=names, y=[percent(rows) for rows in chosen], name="jobs", marker_color=COLOURS[1])
    used = [percent(rows, trace.gpu_s) for rows in chosen]
    figure.add_bar(x=names, y=used, name="GPU time", marker_color=COLOURS[5])
    figure.update_layout(barmode="group")
    figure.update_xaxes(title="GPUs asked for", type="category")
    return finished(figure, "share [%]")


def usage(trace: Trace) -> go.Figure:
    """GPUs held over time."""
    times_s, held = in_use(trace)
    at, mean = averaged(times_s - times_s[0], held, float(times_s[-1] - times_s[0]))
    figure = go.Figure()
    figure.add_scatter(x=at.tolist(), y=mean.tolist(), name="held", mode="lines", line={"color": COLOURS[5]})
    figure.update_xaxes(title="days")
    return finished(figure, "GPUs")


def by_hour(recorded: Recorded) -> go.Figure:
    """Submissions by hour of the day."""
    rows = hours(recorded).rows
    figure = go.Figure()
    figure.add_bar(x=[row[0] for row in rows], y=[row[1] for row in rows], name="jobs", marker_color=COLOURS[5])
    figure.update_xaxes(title="hour", dtick=3)
    return finished(figure, "jobs a day")


def by_user(trace: Trace) -> go.Figure:
    """Cumulative share over users, busiest first."""
    figure = go.Figure()
    for name, weight, place in (("jobs", None, 1), ("GPU time", trace.gpu_s, 5)):
        total = np.sort(np.bincount(trace.user.codes, weight))[::-1].cumsum()
        rows = np.unique(np.linspace(0, len(total) - 1, POINTS).astype(np.int64))
        x, y = 100 * (rows + 1) / len(total), 100 * total[rows] / total[-1]
        line = {"color": COLOURS[place], "dash": DASHES[place], "width": 2}
        figure.add_scatter(x=x.round(2).tolist(), y=y.round(2).tolist(), name=name, mode="lines", line=line)
    figure.update_xaxes(title="users, busiest first [%]")
    return finished(figure, "share [%]")


def shown(value: Any) -> str:
    """A table's cell for people: up to 4 digits, thousands apart; "-" where nothing is known."""
    if not isinstance(value, int | float):
        return str(value)
    if value != value:
        return "-"
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1_000 else f"{value:.4g}"

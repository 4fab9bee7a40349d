"""Plots that the pages share: distributions, bars by size, GPUs over time, and their common look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import plotly.graph_objects as go

from slurmsched.model.columns import Floats
from slurmsched.replay.metrics import SIZE_CLASSES, History, Outcomes, of_size
from slurmsched.replay.units import DAYS, HOURS, Unit, of_span
from slurmsched.words import some

# Okabe and Ito's colours, told apart by colour-blind readers too; dashes tell them apart in grey print.
COLOURS = ("#000000", "#56B4E9", "#D55E00", "#009E73", "#CC79A7", "#0072B2")
DASHES = ("solid", "dot", "longdashdot", "dash", "dashdot", "longdash")
POINTS = 400  # of a line: more than a page has room for adds weight only
LEAST_S = 1.0  # a logarithmic axis has no 0
LAYOUT = {
    "template": "simple_white", "height": 380, "margin": {"l": 60, "r": 16, "t": 12, "b": 48},
    "font": {"family": "system-ui, sans-serif", "size": 13}, "showlegend": True,
    "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"},
}  # fmt: skip


class Shown(Protocol):
    """A replay that can be drawn."""

    @property
    def title(self) -> str: ...
    @property
    def outcomes(self) -> Outcomes: ...
    @property
    def history(self) -> History: ...


def times(runs: Sequence[Shown], every_s: Sequence[Floats], title: str, unit: Unit = HOURS) -> go.Figure:
    """Cumulative distributions of times of jobs, on a logarithmic axis (below 1 s shown as 1 s). every_s: one a run."""
    figure = distributions(runs, [np.maximum(values, LEAST_S) / unit.seconds for values in every_s], "jobs [%]")
    return figure.update_xaxes(type="log", title=f"{title} [{unit.name}]", dtick=1)


def distributions(runs: Sequence[Shown], every: Sequence[Floats], y_title: str) -> go.Figure:
    """Cumulative distributions, a line a run."""
    figure = go.Figure()
    for run, values, style in zip(runs, every, styles(len(runs)), strict=True):
        if len(values):
            share = np.linspace(0, 100, min(len(values), POINTS) + 1)
            _line(figure, run, np.percentile(values, share).round(6), share.round(2), style)
    return finished(figure, y_title)


def delays(runs: Sequence[Shown], unit: Unit = HOURS) -> go.Figure:
    """Mean queueing delay by size class, as bars."""
    figure = go.Figure()
    for run, (colour, _) in zip(runs, styles(len(runs)), strict=True):
        names, means = [], []
        for name, least, most in SIZE_CLASSES:
            chosen = run.outcomes.delay_s[of_size(run.outcomes.gpus, least, most)]
            if len(chosen):
                names.append(f"{name} ({some(len(chosen), 'job')})")
                means.append(float(chosen.mean()) / unit.seconds)
        figure.add_bar(x=names, y=means, name=run.title, marker_color=colour)
    figure.update_layout(barmode="group")
    figure.update_xaxes(title="GPUs asked for")
    return finished(figure, f"mean queueing delay [{unit.name}]")


def usage(runs: Sequence[Shown]) -> go.Figure:
    """Share of the GPUs that are held, over time."""
    shares = [run.history.steps()[1].astype(np.float64) / run.history.gpus * 100 for run in runs]
    figure = _over_time(runs, shares)
    figure.update_yaxes(range=[0, 103])
    return finished(figure, "GPUs held [%]")


def queue(runs: Sequence[Shown]) -> go.Figure:
    """Jobs waiting, over time."""
    return finished(_over_time(runs, [run.history.steps()[2].astype(np.float64) for run in runs]), "jobs waiting")


def _over_time(runs: Sequence[Shown], every: Sequence[Floats]) -> go.Figure:
    figure, ends_s = go.Figure(), [float(run.outcomes.end_s.max(initial=0.0)) for run in runs]
    unit = of_span(max(ends_s, default=0.0))
    for run, values, end_s, style in zip(runs, every, ends_s, styles(len(runs)), strict=True):
        if end_s:
            at, mean = averaged(run.history.steps()[0], values, end_s, unit=unit)
            _line(figure, run, at, mean, style)
    return figure.update_xaxes(title=unit.name)


def averaged(
    times_s: Floats, values: Floats, end_s: float, points: int = POINTS, unit: Unit = DAYS
) -> tuple[Floats, Floats]:
    """Means of a step function over equal spans of [0, end_s]: middle of each span in `unit`, mean. Both (points,).

    values[i] holds from times_s[i] to times_s[i+1], the last to end_s.
    """
    area = np.concatenate([[0.0], np.cumsum(values * np.diff(times_s, append=max(end_s, times_s[-1])))])
    edges = np.linspace(0.0, end_s, points + 1)
    under = np.interp(edges, np.append(times_s, max(end_s, times_s[-1])), area)
    return ((edges[1:] + edges[:-1]) / 2 / unit.seconds).round(3), (np.diff(under) / np.diff(edges)).round(2)


def _line(figure: go.Figure, run: Shown, x: Floats, y: Floats, style: tuple[str, str]) -> None:
    colour, dash = style
    shape = {"color": colour, "dash": dash, "width": 2}
    figure.add_scatter(x=x.tolist(), y=y.tolist(), name=run.title, mode="lines", line=shape)


def styles(count: int) -> list[tuple[str, str]]:
    """Colour and dash of so many lines: different for the first 36."""
    kinds = len(COLOURS)
    return [(COLOURS[i % kinds], DASHES[(i + i // kinds) % kinds]) for i in range(count)]


def finished(figure: go.Figure, y_title: str) -> go.Figure:
    """The figure in the pages' common look."""
    figure.update_layout(**LAYOUT)
    figure.update_yaxes(title=y_title, rangemode="tozero")
    return figure


def html(figure: go.Figure, number: int) -> str:
    """The figure as a piece of a page that holds plotly."""
    config = {"displayModeBar": False, "responsive": True}
    html: Any = figure.to_html(full_html=False, include_plotlyjs=False, div_id=f"plot-{number}", config=config)
    return str(html)

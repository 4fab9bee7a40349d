"""Plots that the HTML pages share, in the form that plotly.js takes."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

import numpy as np
import orjson

from slurmsched.model.columns import Floats
from slurmsched.model.job_outcomes import SIZE_CLASSES, JobOutcomes, UsageHistory, in_size_class
from slurmsched.observe.html_page import DASHES, HOURS, SIZE_COLOURS, TimeUnit, policy_styles, unit_for_span
from slurmsched.plain_text import escape_terminal, pluralize, replace_surrogates

POINTS = 400  # of a line: more than a page has room for adds weight only
LEAST_S = 1.0  # a logarithmic axis has no 0
_CLEAR = "rgba(0, 0, 0, 0)"
_AXIS = {"showline": True, "linecolor": "--soft", "ticks": "outside", "tickcolor": "--soft", "gridcolor": "--line",
         "zeroline": False, "automargin": True}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class PlotFigure:
    """Traces and layout of plotly.js. Colours are names of CSS variables, which the page looks up when it draws.

    gantt: runs to paint as an image behind the traces (static/plots.js), None = none.
    """

    y_title: str
    traces: list[dict[str, Any]] = field(default_factory=list)
    x_axis: dict[str, Any] = field(default_factory=dict)
    layout: dict[str, Any] = field(default_factory=dict)
    gantt: dict[str, Any] | None = None

    def line(self, name: str, style: tuple[str, str], **points: Any) -> None:
        """Add a line. style: colour and dash. points: x and y; or x0 and dx, y0 and dy where they are evenly spread."""
        colour, dash = style
        shape = {"color": colour, "dash": dash, "width": 2}
        self.traces.append({"type": "scatter", "mode": "lines", "name": plot_label(name), "line": shape, **points})

    def distribution(self, name: str, values: Floats, style: tuple[str, str]) -> None:
        """Add a cumulative distribution [%], unless there are no values."""
        if len(values):
            steps = min(len(values), POINTS)
            at = np.percentile(values, np.linspace(0, 100, steps + 1)).round(6)
            self.line(name, style, x=at.tolist(), y0=0, dy=100 / steps)

    def bars(self, name: str, x: Sequence[Any], y: Sequence[float | None], colour: str) -> None:
        """Add a group of bars."""
        labels = [plot_label(value) if isinstance(value, str) else value for value in x]
        self.traces.append(
            {"type": "bar", "name": plot_label(name), "x": labels, "y": list(y), "marker": {"color": colour}}
        )

    def described(self) -> dict[str, Any]:
        """The input of plotly.js, and the Gantt chart's runs if there are any."""
        layout = {
            "height": 380, "margin": {"l": 60, "r": 16, "t": 12, "b": 48}, "showlegend": True, "barmode": "group",
            "paper_bgcolor": _CLEAR, "plot_bgcolor": _CLEAR,
            "font": {"family": "system-ui, sans-serif", "size": 13, "color": "--ink"},
            "hoverlabel": {"bgcolor": "--paper", "bordercolor": "--soft", "font": {"color": "--ink"}},
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"},
            "xaxis": _AXIS | {"showgrid": False} | self.x_axis,
            "yaxis": _AXIS | {"title": {"text": self.y_title}, "rangemode": "tozero"},
        }  # fmt: skip
        for name, value in self.layout.items():
            layout[name] = layout[name] | value if isinstance(value, dict) and name in layout else value  # type: ignore[operator]
        return {"data": self.traces, "layout": layout} | ({} if self.gantt is None else {"gantt": self.gantt})


def plot_label(text: str) -> str:
    """A name as plotly.js shows it: its markup is text, and control characters are escaped."""
    return html.escape(escape_terminal(text), quote=False)


def figure_html(figure: PlotFigure, number: int) -> str:
    """The figure as a piece of a page that has plotly.js and static/plots.js."""
    packed = orjson.dumps(replace_surrogates(figure.described()), option=orjson.OPT_SERIALIZE_NUMPY).decode()
    inside = packed.replace("<", "\\u003c")
    return f'<div id="plot-{number}" class="plot"></div><script type="application/json">{inside}</script>'


# Axes of time.


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """How times since a begin are drawn: as dates, or in a unit where the begin has no date.

    unit: for times without a date.
    begin_s: the begin on the clock that is shown [Unix s], NaN = it has no date.
    clock: name of that clock.
    """

    unit: TimeUnit
    begin_s: float = math.nan
    clock: str = "UTC"

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of plotly's axis."""
        if math.isnan(self.begin_s):
            return {"title": {"text": self.unit.name}}
        return {"type": "date", "title": {"text": f"date ({self.clock})"}}

    def at(self, since_s: float) -> float | str:
        """A time since the begin, as plotly takes it."""
        if math.isnan(self.begin_s):
            return since_s / self.unit.seconds
        return f"{datetime.fromtimestamp(self.begin_s + since_s, UTC):%Y-%m-%d %H:%M:%S}"

    def step(self, step_s: float) -> float:
        """A length of time, as plotly takes it on this axis."""
        return step_s / self.unit.seconds if math.isnan(self.begin_s) else step_s * 1000

    def middles(self, span_s: float, spans: int = POINTS) -> dict[str, Any]:
        """x0 and dx of the middles of that many equal spans of [0, span_s]."""
        width_s = span_s / spans
        return {"x0": self.at(width_s / 2), "dx": self.step(width_s)}


def span_averages(times_s: Floats, values: Floats, end_s: float, points: int = POINTS) -> Floats:
    """Means of a step function over equal spans of [0, end_s]. (points,).

    values[i] holds from times_s[i] to times_s[i+1], the last to end_s.
    """
    area = np.concatenate([[0.0], np.cumsum(values * np.diff(times_s, append=max(end_s, times_s[-1])))])
    edges = np.linspace(0.0, end_s, points + 1)
    under = np.interp(edges, np.append(times_s, max(end_s, times_s[-1])), area)
    return np.asarray((np.diff(under) / np.diff(edges)).round(2), np.float64)


# Plots of replays.


class PlottedRun(Protocol):
    """A replay that can be drawn. policy: its name without parameters."""

    @property
    def title(self) -> str: ...
    @property
    def policy(self) -> str: ...
    @property
    def outcomes(self) -> JobOutcomes: ...
    @property
    def history(self) -> UsageHistory: ...


def run_styles(runs: Sequence[PlottedRun]) -> list[tuple[str, str]]:
    """Colour and dash of each run."""
    return policy_styles([run.policy for run in runs])


def time_distributions(
    runs: Sequence[PlottedRun], every_s: Sequence[Floats], title: str, unit: TimeUnit = HOURS
) -> PlotFigure:
    """Cumulative distributions of times of jobs, on a logarithmic axis (below 1 s shown as 1 s). every_s: one a run."""
    figure = distributions(runs, [np.maximum(values, LEAST_S) / unit.seconds for values in every_s], "jobs [%]")
    figure.x_axis.update(logarithmic(f"{title} [{unit.name}]"))
    return figure


def logarithmic(title: str) -> dict[str, Any]:
    """Settings of a logarithmic axis."""
    return {"type": "log", "dtick": 1, "title": {"text": title}}


def distributions(runs: Sequence[PlottedRun], every: Sequence[Floats], y_title: str) -> PlotFigure:
    """Cumulative distributions, a line a run."""
    figure = PlotFigure(y_title)
    for run, values, style in zip(runs, every, run_styles(runs), strict=True):
        figure.distribution(run.title, values, style)
    return figure


def delay_bars(runs: Sequence[PlottedRun], unit: TimeUnit = HOURS) -> PlotFigure:
    """Mean queueing delay by size class, as bars."""
    figure = PlotFigure(f"mean queueing delay [{unit.name}]", x_axis={"title": {"text": "GPUs asked for"}})
    for run, (colour, _) in zip(runs, run_styles(runs), strict=True):
        names, means = [], []
        for name, least, most in SIZE_CLASSES:
            chosen = run.outcomes.delay_s[in_size_class(run.outcomes.gpus, least, most)]
            if len(chosen):
                names.append(f"{name} ({pluralize(len(chosen), 'job')})")
                means.append(float(chosen.mean()) / unit.seconds)
        figure.bars(run.title, names, means, colour)
    return figure


def usage_lines(runs: Sequence[PlottedRun], begin_s: float = math.nan, clock: str = "UTC") -> PlotFigure:
    """Share of the GPUs that are held, over time. begin_s, clock: as TimeAxis."""
    shares = [run.history.steps()[1].astype(np.float64) / run.history.gpus * 100 for run in runs]
    figure = _over_time("GPUs held [%]", runs, shares, begin_s, clock)
    figure.layout["yaxis"] = {"range": [0, 103]}
    return figure


def queue_lines(runs: Sequence[PlottedRun], begin_s: float = math.nan, clock: str = "UTC") -> PlotFigure:
    """Jobs waiting, over time. begin_s, clock: as TimeAxis."""
    waiting = [run.history.steps()[2].astype(np.float64) for run in runs]
    return _over_time("jobs waiting", runs, waiting, begin_s, clock)


def _over_time(
    y_title: str, runs: Sequence[PlottedRun], every: Sequence[Floats], begin_s: float, clock: str
) -> PlotFigure:
    ends_s = [float(run.outcomes.end_s.max(initial=0.0)) for run in runs]
    axis = TimeAxis(unit_for_span(max(ends_s, default=0.0)), begin_s, clock)
    figure = PlotFigure(y_title, x_axis=axis.settings)
    for run, values, end_s, style in zip(runs, every, ends_s, run_styles(runs), strict=True):
        if end_s:
            mean = span_averages(run.history.steps()[0], values, end_s)
            figure.line(run.title, style, y=mean.tolist(), **axis.middles(end_s))
    return figure


def size_label(name: str) -> str:
    """ "1 GPU", "2-4 GPUs": a size class in a legend."""
    return f"{name} GPU{'' if name == '1' else 's'}"


def size_styles() -> list[tuple[str, int, int | None, tuple[str, str]]]:
    """Each size class with its bounds, and its colour and dash."""
    return [(name, least, most, (SIZE_COLOURS[name], dash))
            for (name, least, most), dash in zip(SIZE_CLASSES, DASHES, strict=False)]  # fmt: skip

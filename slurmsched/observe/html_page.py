"""Parts of the HTML pages: colours, units of time, tables, templates, and plots."""

from __future__ import annotations

import html
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import orjson
from jinja2 import Environment, FileSystemLoader, Template
from markupsafe import Markup

import slurmsched
from slurmsched import __version__
from slurmsched.errors import InputError
from slurmsched.model.columns import Floats
from slurmsched.model.job_outcomes import SIZE_CLASSES, JobOutcomes, UsageHistory, in_size_class
from slurmsched.paths import draft_of, dropped
from slurmsched.plain_text import escape_terminal, pluralize, replace_surrogates

# Colours of every page: one set for light and one for dark, by the same names in plots, maps and text.

# Names of CSS variables. Seven lines of one plot differ also for colour-blind readers and stand out from the paper by
# 3:1; texts by 4.5:1 (tests/unit/observe/test_html_page.py).
LIGHT = {
    "--ink": "#1a1a1a", "--soft": "#555555", "--line": "#d9d9d9", "--paper": "#ffffff", "--link": "#005a94",
    "--warn": "#b93407", "--held": "#0072b2", "--held-ink": "#ffffff", "--stranded": "#f0c24b", "--closed": "#d9d9d9",
    "--series-0": "#1a1a1a", "--series-1": "#3399e1", "--series-2": "#b93407", "--series-3": "#0a747b",
    "--series-4": "#861ed0", "--series-5": "#113d6a", "--series-6": "#dc7b02",
}  # fmt: skip
DARK = {
    "--ink": "#e8e8e8", "--soft": "#b4b4b4", "--line": "#44484d", "--paper": "#16181b", "--link": "#7cc4f5",
    "--warn": "#ff8f66", "--held": "#1f6fa8", "--held-ink": "#ffffff", "--stranded": "#f0c24b", "--closed": "#4a4a4a",
    "--series-0": "#e8e8e8", "--series-1": "#9cbaff", "--series-2": "#ff4c13", "--series-3": "#479e8e",
    "--series-4": "#c443fc", "--series-5": "#675d99", "--series-6": "#ffba28",
}  # fmt: skip
SERIES = tuple(name for name in LIGHT if name.startswith("--series-"))
DASHES = ("solid", "dot", "longdashdot", "dash", "dashdot", "longdash")  # they differ in grey print
SIZE_COLOURS = dict(
    zip((name for name, _, _ in SIZE_CLASSES), (SERIES[1], SERIES[3], SERIES[6], SERIES[2]), strict=True)
)
USED, FREE, LIMIT = SERIES[1], SERIES[3], SERIES[2]  # used, remaining, and total amounts

# Places in SERIES of the policies that most comparisons have; others have one by their name.
_USUAL = {"slurm": 0, "fifo": 0, "easy": 5, "discretized-las": 1, "srsf": 2, "srtf": 4, "sjf": 3, "gittins": 6}


def colour_css() -> str:
    """The variables, as CSS. Print is light; class "paper" on the root makes a dark screen light too."""
    light, dark = (" ".join(f"{name}: {colour};" for name, colour in each.items()) for each in (LIGHT, DARK))
    at_night = f":root:not(.paper) {{ color-scheme: dark; {dark} }}"
    return f"""\
:root {{ color-scheme: light; {light} }}
@media screen and (prefers-color-scheme: dark) {{ {at_night} }}
"""


def policy_styles(policies: Sequence[str]) -> list[tuple[str, str]]:
    """Colour and dash of each line, by the names of the policies without parameters.

    A policy has the same colour on every page, unless another one of the page has it already. Up to seven lines have
    colours of their own. The first 42 differ in colour or dash.
    """
    used, made = list[int](), list[tuple[str, str]]()
    for name in policies:
        wanted = _USUAL.get(name, 1 + zlib.crc32(name.encode()) % (len(SERIES) - 1))
        order = [(wanted + step) % len(SERIES) for step in range(len(SERIES))]
        place = min(order, key=lambda each: (used.count(each), order.index(each)))
        made.append((SERIES[place], DASHES[(place + used.count(place)) % len(DASHES)]))
        used.append(place)
    return made


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """A unit of time and its length [s]."""

    name: str
    seconds: float

    def text(self, seconds: float | None) -> str:
        """A time in this unit, "-" if unknown."""
        return "-" if seconds is None or seconds != seconds else f"{seconds / self.seconds:,.2f}"


SECONDS, HOURS, DAYS = TimeUnit("s", 1.0), TimeUnit("h", 3_600.0), TimeUnit("days", 86_400.0)


def unit_for_jobs(longest_mean_s: float) -> TimeUnit:
    """For times of jobs: hours if a mean reaches one."""
    return HOURS if longest_mean_s >= HOURS.seconds else SECONDS


def unit_for_span(span_s: float) -> TimeUnit:
    """For an axis of time: the largest unit of which the span holds three."""
    return next((unit for unit in (DAYS, HOURS) if span_s >= 3 * unit.seconds), SECONDS)


# Sortable tables.


@dataclass(frozen=True, slots=True)
class SheetCell:
    """One cell of a table of comparisons.

    value: what a column is sorted by, "" if nothing is known.
    ratio: over the first policy, "" if there is none.
    best: whether no other row of the column is better.
    """

    text: str
    value: float | str
    ratio: str = ""
    best: bool = False


@dataclass(frozen=True, slots=True)
class SheetRow:
    name: str
    cells: tuple[SheetCell, ...]


@dataclass(frozen=True, slots=True)
class PageSheet:
    """A table to sort; the first column holds names."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[SheetRow, ...]


@dataclass(frozen=True, slots=True)
class PagePlot:
    """One plot of a page.

    alt: what it shows, for who cannot see it.
    pointed: whether a line below says what the pointer is on.
    """

    title: str
    caption: str
    alt: str
    html: str
    wide: bool = False
    pointed: bool = False


# Templates and files.

TEMPLATES, STATIC = (Path(slurmsched.__file__).parent / "observe" / name for name in ("templates", "static"))
SCRIPTS = ("plotly-basic.min.js", "plots.js", "sorting.js")


def write_html(path: Path, text: str) -> None:
    """Write a text file whole or not at all. Raises InputError if it cannot be written."""
    draft = draft_of(path)
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        dropped(draft)
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from error


def rendered_page(name: str, /, **values: Any) -> str:
    """The page of a template of this package, with its style and scripts inside; markup in the values is escaped."""
    scripts = Markup("\n".join((STATIC / file).read_text(encoding="utf-8") for file in SCRIPTS))
    made = template(name).render(version=__version__, scripts=scripts, colours=Markup(colour_css()), **values)
    return made.encode("utf-8", "replace").decode()


def template(name: str) -> Template:
    """A template of this package, markup in its values escaped."""
    return Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=safe_text
    ).get_template(name)


def safe_text(value: Any) -> Any:
    """A value of a template without characters that would turn the reading direction or move the cursor."""
    return escape_terminal(value) if isinstance(value, str) and not isinstance(value, Markup) else value


# Plots, in the form that plotly.js takes.


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

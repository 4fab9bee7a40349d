"""The page of a comparison: one HTML file with its plots inside, which asks the network for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, Template
from plotly.offline import get_plotlyjs

from slurmsched import __version__
from slurmsched.errors import InputError
from slurmsched.model.columns import Floats
from slurmsched.replay.demo import Demo, Run, table
from slurmsched.replay.metrics import SIZE_CLASSES, of_size

# Okabe and Ito's colours, told apart by colour-blind readers too; dashes tell them apart in grey print.
COLOURS = ("#000000", "#56B4E9", "#D55E00", "#009E73", "#CC79A7", "#0072B2")
DASHES = ("solid", "dot", "solid", "dash", "dashdot", "longdash")
POINTS = 400  # of a line over time: more than a page has room for adds weight only
LAYOUT = {
    "template": "simple_white", "height": 380, "margin": {"l": 60, "r": 16, "t": 12, "b": 48},
    "font": {"family": "system-ui, sans-serif", "size": 13}, "showlegend": True,
    "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"},
}  # fmt: skip


def write_page(path: Path, demo: Demo, runs: Sequence[Run]) -> None:
    """Write the page whole or not at all. Raises InputError if the file cannot be written."""
    write_whole(path, page(demo, runs))


def write_whole(path: Path, text: str) -> None:
    """Write a text file whole or not at all. Raises InputError if it cannot be written."""
    draft = path.with_name(f".{path.name}.new")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from error


def page(demo: Demo, runs: Sequence[Run]) -> str:
    """The page as text."""
    columns, rows = table(runs)
    plots = (
        ("Job completion time", "Share of jobs that end within a time of their submission.", completion(runs)),
        ("Queueing delay by size", "Mean time without GPUs at work, by GPUs asked for.", delays(runs)),
        ("GPUs in use", "Share of all GPUs that are held, averaged over equal spans of time.", usage(runs)),
        ("Jobs waiting", "Jobs that could start if there were GPUs, averaged likewise.", queue(runs)),
    )
    return template("page.html.j2").render(
        version=__version__, demo=demo, runs=runs, columns=columns, rows=rows, gpus=sum(demo.nodes),
        gpu_hours=float((demo.trace.gpus * demo.trace.duration_s).sum()) / 3600,
        same=_same(runs), plotly=get_plotlyjs(),
        plots=[(title, text, html(figure, number)) for number, (title, text, figure) in enumerate(plots)],
    )  # fmt: skip


def template(name: str) -> Template:
    """A template of this package, markup in its values escaped."""
    loader = PackageLoader("slurmsched.replay", "templates")
    return Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True).get_template(name)


def completion(runs: Sequence[Run]) -> go.Figure:
    """Cumulative distribution of the JCT, times on a logarithmic axis."""
    figure = go.Figure()
    for run, style in zip(runs, _styles(), strict=False):
        jct_h = np.sort(run.outcomes.jct_s) / 3600
        share = 100 * np.arange(1, len(jct_h) + 1) / max(len(jct_h), 1)
        _line(figure, run, jct_h.round(5), share.round(2), style)
    figure.update_xaxes(type="log", title="job completion time [h]", dtick=1)
    return finished(figure, "jobs [%]")


def delays(runs: Sequence[Run]) -> go.Figure:
    """Mean queueing delay by size class, as bars."""
    figure = go.Figure()
    for run, (colour, _) in zip(runs, _styles(), strict=False):
        names, means = [], []
        for name, least, most in SIZE_CLASSES:
            chosen = run.outcomes.delay_s[of_size(run.outcomes.gpus, least, most)]
            if len(chosen):
                names.append(f"{name} ({len(chosen)} job{'s' if len(chosen) > 1 else ''})")
                means.append(float(chosen.mean()) / 3600)
        figure.add_bar(x=names, y=means, name=run.contender.title, marker_color=colour)
    figure.update_layout(barmode="group")
    figure.update_xaxes(title="GPUs asked for")
    return finished(figure, "mean queueing delay [h]")


def usage(runs: Sequence[Run]) -> go.Figure:
    """Share of the GPUs that are held, over time."""
    figure = go.Figure()
    for run, style in zip(runs, _styles(), strict=False):
        times, busy, _ = run.history.steps()
        at, mean = averaged(times, busy.astype(np.float64) / run.history.gpus * 100, run.outcomes.end_s.max())
        _line(figure, run, at, mean, style)
    figure.update_xaxes(title="days")
    figure.update_yaxes(range=[0, 103])
    return finished(figure, "GPUs held [%]")


def queue(runs: Sequence[Run]) -> go.Figure:
    """Jobs waiting, over time."""
    figure = go.Figure()
    for run, style in zip(runs, _styles(), strict=False):
        times, _, waiting = run.history.steps()
        at, mean = averaged(times, waiting.astype(np.float64), run.outcomes.end_s.max())
        _line(figure, run, at, mean, style)
    figure.update_xaxes(title="days")
    return finished(figure, "jobs waiting")


def averaged(times_s: Floats, values: Floats, end_s: float, points: int = POINTS) -> tuple[Floats, Floats]:
    """Means of a step function over equal spans of [0, end_s]: middle of each span [days], mean. Both (points,).

    values[i] holds from times_s[i] to times_s[i+1], the last to end_s.
    """
    area = np.concatenate([[0.0], np.cumsum(values * np.diff(times_s, append=max(end_s, times_s[-1])))])
    edges = np.linspace(0.0, end_s, points + 1)
    under = np.interp(edges, np.append(times_s, max(end_s, times_s[-1])), area)
    return ((edges[1:] + edges[:-1]) / 2 / 86_400).round(3), (np.diff(under) / np.diff(edges)).round(2)


def _line(figure: go.Figure, run: Run, x: Floats, y: Floats, style: tuple[str, str]) -> None:
    colour, dash = style
    shape = {"color": colour, "dash": dash, "width": 2}
    figure.add_scatter(x=x.tolist(), y=y.tolist(), name=run.contender.title, mode="lines", line=shape)


def _styles() -> list[tuple[str, str]]:
    return list(zip(COLOURS, DASHES, strict=True))


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


def _same(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Pairs of titles whose every job ended alike: their lines cover each other."""
    pairs = [(a, b) for i, a in enumerate(runs) for b in runs[i + 1 :]]
    return [(a.contender.title, b.contender.title) for a, b in pairs if a.outcomes.digest == b.outcomes.digest]

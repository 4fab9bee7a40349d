"""The plots of a report."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from slurmsched.model.columns import Floats
from slurmsched.replay.metrics import SIZE_CLASSES, of_size
from slurmsched.replay.plots import COLOURS, DASHES, LEAST_S, POINTS, averaged, finished
from slurmsched.replay.units import Unit, of_span
from slurmsched.report.lived import Lived
from slurmsched.report.material import Material

MOST_BARS = 12


def waits(of: Material) -> go.Figure:
    """Cumulative distributions of waits, a line a size class, on a logarithmic axis (below 1 s shown as 1 s)."""
    figure, jobs = go.Figure(), of.jobs
    started = jobs.started_in(of.since_s, of.until_s)
    for (name, least, most), colour, dash in zip(SIZE_CLASSES, COLOURS[1:], DASHES, strict=False):
        values = np.maximum(jobs.wait_s[started & of_size(jobs.gpus, least, most)], LEAST_S) / 3600
        if len(values):
            share = np.linspace(0, 100, min(len(values), POINTS) + 1)
            figure.add_scatter(
                x=np.percentile(values, share).round(6).tolist(), y=share.round(2).tolist(), mode="lines",
                name=f"{name} GPU{'' if name == '1' else 's'}", line={"color": colour, "dash": dash, "width": 2},
            )  # fmt: skip
    figure.update_xaxes(type="log", title="wait [h]", dtick=1)
    return finished(figure, "jobs [%]")


def by_period(made: dict[str, Any], unit: Unit) -> go.Figure:
    """Mean wait, a bar a size class in every period."""
    figure, names = go.Figure(), [period["name"] for period in made["periods"]]
    for (size, *_), colour in zip(SIZE_CLASSES, COLOURS[1:], strict=False):
        means = [period["mean_s"][size] for period in made["periods"]]
        bars = [None if mean is None else mean / unit.seconds for mean in means]
        figure.add_bar(x=names, y=bars, name=f"{size} GPU{'' if size == '1' else 's'}", marker_color=colour)
    figure.update_layout(barmode="group")
    figure.update_xaxes(type="category")
    return finished(figure, f"mean wait [{unit.name}]")


def held(of: Material) -> go.Figure:
    """GPUs held over time, and how many there are now."""
    span_s = of.until_s - of.since_s
    unit = of_span(span_s)
    at, mean = averaged(*_steps(of.jobs, of.since_s, of.until_s), span_s, unit=unit)
    figure = go.Figure()
    figure.add_scatter(x=at.tolist(), y=mean.tolist(), name="held", mode="lines", line={"color": COLOURS[5]},
                       fill="tozeroy", fillcolor="rgba(0, 114, 178, .15)")  # fmt: skip
    if of.gpus:
        line = {"color": COLOURS[2], "dash": "dash", "width": 2}
        figure.add_scatter(
            x=[0.0, span_s / unit.seconds], y=[of.gpus] * 2, name="all GPUs now", mode="lines", line=line
        )
    figure.update_xaxes(title=f"{unit.name} from the begin of the report")
    return finished(figure, "GPUs")


def _steps(jobs: Lived, since_s: float, until_s: float) -> tuple[Floats, Floats]:
    """Times from since_s on [s], and GPUs held from each on. Both (T,), times ascending, the first 0."""
    begin_s = np.clip(jobs.held_s, since_s, until_s) - since_s
    end_s = np.clip(np.where(jobs.ended, jobs.end_s, until_s), since_s, until_s) - since_s
    times_s = np.concatenate([[0.0], begin_s, end_s])
    change = np.concatenate([[0.0], jobs.gpus, -jobs.gpus]).astype(np.float64)
    order = np.argsort(times_s, kind="stable")
    return times_s[order], np.maximum(np.cumsum(change[order]), 0.0)


def by_tenant(rows: list[dict[str, Any]], unit: Unit) -> go.Figure:
    """Mean waits of the tenants with most GPU time; before and after where slurmsched began to write meanwhile."""
    shown, figure = rows[:MOST_BARS], go.Figure()
    split = any(row["before_s"] is not None for row in rows)
    series = (("before_s", "before", COLOURS[1]), ("after_s", "with slurmsched", COLOURS[5])) if split else (
        ("mean_s", "mean wait", COLOURS[5]),)  # fmt: skip
    for key, name, colour in series:
        values = [None if row[key] is None else row[key] / unit.seconds for row in shown]
        figure.add_bar(x=[row["name"] for row in shown], y=values, name=name, marker_color=colour)
    figure.update_layout(barmode="group")
    figure.update_xaxes(type="category")
    return finished(figure, f"mean wait [{unit.name}]")


def ratios(of: Material) -> go.Figure:
    """How many jobs got which part of the best links, in tenths."""
    counts, _ = np.histogram([row["ratio"] for row in of.placements], bins=np.linspace(0, 1, 11))
    names = [f"{low}-{low + 10} %" for low in range(0, 100, 10)]
    figure = go.Figure()
    figure.add_bar(x=names, y=counts.tolist(), name="jobs", marker_color=COLOURS[3])
    figure.update_xaxes(title="links got over the best", type="category")
    return finished(figure, "jobs")

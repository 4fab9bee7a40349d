"""The Gantt chart of a replay: GPUs by time, coloured by the size of the job."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from slurmsched.model.columns import Floats, Int64s
from slurmsched.replay.compare import Played
from slurmsched.replay.gantt import LINES, grid
from slurmsched.replay.metrics import SIZE_CLASSES, of_size
from slurmsched.replay.plots import LAYOUT
from slurmsched.replay.units import of_span
from slurmsched.words import some

IDLE = "#FFFFFF"
# Okabe and Ito's, a lighter tint of each for every other job, so that neighbours can be told apart
SHADES = (("#56B4E9", "#9AD2F2"), ("#009E73", "#66C5AB"), ("#E69F00", "#F0C566"), ("#D55E00", "#E69E66"))
CAPTION = (
    "Every cell is one GPU at one time: white is idle, else the colour tells how many GPUs its job asked for, in two "
    "shades so that neighbours differ. GPUs are numbered as they are taken, lowest first. A run that falls between two "
    "samples is not seen."
)


def caption(played: Played) -> str:
    """Runs, and how many of the GPUs are drawn."""
    gpus = played.outcomes.cluster_gpus
    drawn = f", {LINES} of them drawn" if gpus > LINES else ""
    return f"{some(len(played.runs.job_id), 'run')} on {some(gpus, 'GPU')}{drawn}."


def figure(played: Played, end_s: float) -> go.Figure:
    """Samples of who holds which GPU when, up to end_s; the legend names the size classes that are there."""
    (job_id, gpus, start_s, _), unit = played.runs, of_span(end_s)
    drawn = grid(*played.runs[1:], played.outcomes.cluster_gpus, end_s)
    colour = np.append(_colours(gpus, start_s), 0)[drawn.run]
    chart = go.Figure()
    chart.add_heatmap(
        x=(drawn.at_s / unit.seconds).round(4), y=drawn.gpu, z=colour.astype(np.int8), zmin=-0.5,
        zmax=2 * len(SHADES) + 0.5, customdata=np.append(job_id, 0)[drawn.run].astype(_small(job_id)),
        colorscale=_scale(), showscale=False,
        hovertemplate="GPU %{y}, %{x:.3~f} " + unit.name + "<br>job %{customdata:.0f}<extra></extra>",
    )  # fmt: skip
    for (name, least, most), (shade, _) in zip(SIZE_CLASSES, SHADES, strict=True):
        if of_size(gpus, least, most).any():
            label = f"{name} GPU{'' if name == '1' else 's'}"
            mark = {"symbol": "square", "size": 11, "color": shade}
            chart.add_scatter(x=[None], y=[None], mode="markers", marker=mark, name=label)
    chart.update_layout(**{**LAYOUT, "height": 260 if len(drawn.gpu) < 40 else 420})
    chart.update_xaxes(title=unit.name)
    return chart.update_yaxes(title="GPU")


def _colours(gpus: Int64s, start_s: Floats) -> Int64s:
    """Place of each run's colour in the scale: by size class, the shade by turns in order of start. (R,), 1 and up."""
    size = sum(place * of_size(gpus, least, most) for place, (_, least, most) in enumerate(SIZE_CLASSES))
    turn = np.argsort(np.argsort(start_s, kind="stable"), kind="stable") % 2
    return np.asarray(1 + 2 * size + turn, np.int64)


def _small(job_id: Int64s) -> type[np.generic]:
    """A type for the ids that a page knows, the smaller one where they fit."""
    return np.int32 if job_id.max(initial=0) < 2**31 else np.float64


def _scale() -> list[tuple[float, str]]:
    """Plotly's form of a scale of flat steps."""
    colours = [IDLE, *(shade for pair in SHADES for shade in pair)]
    edges = np.linspace(0, 1, len(colours) + 1)
    return [(float(edge), colour) for i, colour in enumerate(colours) for edge in edges[i : i + 2]]

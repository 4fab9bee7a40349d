"""Who holds which GPU when."""

from __future__ import annotations

import numpy as np

from slurmsched.sim.experiments.comparison_page import gantt_caption, gantt_figure, gantt_grid, numbered_gpus
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession
from tests.unit.sim.experiments.test_comparison import SIX, played

GPUS, START_S, END_S = np.array([2, 1, 2]), np.array([0.0, 0.0, 5.0]), np.array([5.0, 10.0, 10.0])


def test_numbered__takes_the_lowest_free_gpus() -> None:
    """GPUs of a run that ended are free for one that starts then; a run of no length holds none."""
    found = numbered_gpus(np.append(GPUS, 3), np.append(START_S, 5.0), np.append(END_S, 5.0), 3)
    assert found == [(0, [0, 1]), (1, [2]), (2, [0, 1])]


def test_numbered__runs_that_share_have_what_is_left() -> None:
    """Three runs of one GPU each on two GPUs, a fourth when the first is over."""
    start_s, end_s = np.array([0.0, 0.0, 0.0, 5.0]), np.array([5.0, 9.0, 9.0, 9.0])
    assert dict(numbered_gpus(np.ones(4, np.int64), start_s, end_s, 2)) == {0: [0], 1: [1], 2: [], 3: [0]}


def test_grid__samples_the_middle_of_spans() -> None:
    """A line a GPU, a column a span; -1 is idle."""
    drawn = gantt_grid(GPUS, START_S, END_S, 4, until_s=12.0, columns=4)
    assert drawn.at_s.tolist() == [1.5, 4.5, 7.5, 10.5]
    assert drawn.run.tolist() == [[0, 0, 2, -1], [0, 0, 2, -1], [1, 1, 1, -1], [-1, -1, -1, -1]]


def test_grid__of_many_gpus_looks_at_some() -> None:
    """Evenly spread, first and last among them."""
    drawn = gantt_grid(GPUS, START_S, END_S, 1_000, until_s=10.0, lines=3)
    assert drawn.gpu.tolist() == [0, 500, 999]


def test_grid__shows_the_gpu_time_of_a_replay() -> None:
    """Six jobs on 4 GPUs under SRTF: the cells that are held are the GPU seconds of all runs."""
    ran = ReplaySession(SIX, ReplayRequest(cluster="1x4", policy="srtf")).run().runs
    drawn = gantt_grid(*ran[1:], 4, until_s=20.0, columns=20)
    assert (drawn.run >= 0).sum() == (ran.gpus * (ran.end_s - ran.start_s)).sum() == (SIX.gpus * SIX.duration_s).sum()


def test_figure__names_the_sizes_that_are_there() -> None:
    """A legend entry for each size class of the trace, and an image as wide as the axis."""
    chart = gantt_figure(played("srtf"), 20.0)
    assert [part["name"] for part in chart.traces] == ["1 GPU", "2-4 GPUs"]
    assert gantt_caption(played("srtf")) == "8 runs on 4 GPUs."
    assert chart.x_axis["range"] == [0.0, chart.layout["images"][0]["sizex"]] == [0.0, 20.0]


def test_figure__has_every_cell_of_the_grid() -> None:
    """Lengths and runs of each line give the samples again; each run has its job and a shade of its size."""
    ran = played("srtf")
    drawn, gantt = gantt_grid(*ran.runs[1:], 4, 20.0), gantt_figure(ran, 20.0).gantt
    assert gantt is not None
    lines = [np.repeat(spans[1::2], spans[::2]) for spans in gantt["lines"]]
    job = np.append(gantt["job"], -1)
    assert np.array_equal(job[np.stack(lines)], np.append(ran.runs.job_id, -1)[drawn.run])
    sizes = dict(zip(ran.runs.job_id.tolist(), ran.runs.gpus.tolist(), strict=True))
    assert [shade // 2 for shade in gantt["shade"]] == [int(sizes[each] > 1) for each in gantt["job"]]


def test_figure__is_of_dates_where_the_trace_has_a_calendar() -> None:
    """The axis begins at the date of the trace's 0."""
    chart = gantt_figure(played("srtf"), 20.0, 1_770_000_000.0, "UTC+02:00")
    assert chart.x_axis["range"] == ["2026-02-02 02:40:00", "2026-02-02 02:40:20"]
    assert chart.x_axis["title"] == {"text": "date (UTC+02:00)"}

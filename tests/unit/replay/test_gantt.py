"""Who holds which GPU when."""

from __future__ import annotations

import numpy as np

from slurmsched.replay.gantt import grid, numbered
from slurmsched.replay.gantt_plot import caption, figure
from slurmsched.replay.request import Request
from slurmsched.replay.run import Session
from tests.unit.replay.test_compare import SIX, played

GPUS, START_S, END_S = np.array([2, 1, 2]), np.array([0.0, 0.0, 5.0]), np.array([5.0, 10.0, 10.0])


def test_numbered__takes_the_lowest_free_gpus() -> None:
    """GPUs of a run that ended are free for one that starts then; a run of no length holds none."""
    found = numbered(np.append(GPUS, 3), np.append(START_S, 5.0), np.append(END_S, 5.0), 3)
    assert found == [(0, [0, 1]), (1, [2]), (2, [0, 1])]


def test_numbered__runs_that_share_have_what_is_left() -> None:
    """Three runs of one GPU each on two GPUs, a fourth when the first is over."""
    start_s, end_s = np.array([0.0, 0.0, 0.0, 5.0]), np.array([5.0, 9.0, 9.0, 9.0])
    assert dict(numbered(np.ones(4, np.int64), start_s, end_s, 2)) == {0: [0], 1: [1], 2: [], 3: [0]}


def test_grid__samples_the_middle_of_spans() -> None:
    """A line a GPU, a column a span; -1 is idle."""
    drawn = grid(GPUS, START_S, END_S, 4, until_s=12.0, columns=4)
    assert drawn.at_s.tolist() == [1.5, 4.5, 7.5, 10.5]
    assert drawn.run.tolist() == [[0, 0, 2, -1], [0, 0, 2, -1], [1, 1, 1, -1], [-1, -1, -1, -1]]


def test_grid__of_many_gpus_looks_at_some() -> None:
    """Evenly spread, first and last among them."""
    drawn = grid(GPUS, START_S, END_S, 1_000, until_s=10.0, lines=3)
    assert drawn.gpu.tolist() == [0, 500, 999]


def test_grid__shows_the_gpu_time_of_a_replay() -> None:
    """Six jobs on 4 GPUs under SRTF: the cells that are held are the GPU seconds of all runs."""
    ran = Session(SIX, Request(cluster="1x4", policy="srtf")).run().runs
    drawn = grid(*ran[1:], 4, until_s=20.0, columns=20)
    assert (drawn.run >= 0).sum() == (ran.gpus * (ran.end_s - ran.start_s)).sum() == (SIX.gpus * SIX.duration_s).sum()


def test_figure__names_the_sizes_that_are_there() -> None:
    """The heat map, and a legend entry for each size class of the trace."""
    chart = figure(played("srtf"), 20.0)
    assert [part.name for part in chart.data[1:]] == ["1 GPU", "2-4 GPUs"]
    assert caption(played("srtf")) == "8 runs on 4 GPUs."

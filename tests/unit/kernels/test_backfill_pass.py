"""What a try of backfill takes to be gone, on nodes of 8 GPUs."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.kernels.backfill_pass import future_start
from slurmsched.kernels.ready import ready_nodes


@pytest.mark.parametrize(("from_s", "start"), [(59.0, 70.0), (60.0, 60.0), (61.0, 61.0)])
def test_future_start__what_ends_by_the_time_of_the_try_is_gone_at_once(from_s: float, start: float) -> None:
    """Jobs of 4 GPUs end at 60 and at 70, within one window; who needs 4 has them at 60 if the try is of then."""
    free, need, mask = np.zeros((3, 1), np.int64), np.array([4, 0, 0]), np.ones(1, np.bool_)
    order_end, order, first, count = np.array([60.0, 70.0]), np.arange(2), np.arange(2), np.ones(2, np.int64)
    node, held = np.zeros(2, np.int64), np.tile(need, (2, 1))
    ready, by_ready = np.empty((1, 1), np.int64), np.empty((1, 1), np.int64)
    able = np.array([ready_nodes(free, need, order, 2, first, count, node, held, ready[0], by_ready[0])])
    found = future_start(
        0.0, 0.0, free, order_end, order, 2, first, count, node, held, ready, by_ready, able, 0, 0, mask, 1, need, need,
        False, False, np.zeros(1, np.int64), from_s, np.inf,
    )  # fmt: skip
    assert found == start


@pytest.mark.parametrize(("last_of_all", "start"), [(False, 60.0), (True, 70.0)])
def test_future_start__is_the_end_of_the_last_job_on_the_nodes_it_gets(last_of_all: bool, start: float) -> None:
    """Jobs end at 60 on the first node and at 70 on the second, within one window; who needs one of the two is given
    the first, since 26.05 at 60, before that when both are gone."""
    free, need, mask = np.zeros((3, 2), np.int64), np.array([8, 0, 0]), np.ones(2, np.bool_)
    order_end, order, first, count = np.array([60.0, 70.0]), np.arange(2), np.arange(2), np.ones(2, np.int64)
    node, held, chosen = np.arange(2), np.tile(need, (2, 1)), np.zeros(2, np.int64)
    ready, by_ready = np.empty((1, 2), np.int64), np.empty((1, 2), np.int64)
    able = np.array([ready_nodes(free, need, order, 2, first, count, node, held, ready[0], by_ready[0])])
    found = future_start(
        0.0, 0.0, free, order_end, order, 2, first, count, node, held, ready, by_ready, able, 0, 0, mask, 1, need, need,
        False, last_of_all, chosen, 0.0, np.inf,
    )  # fmt: skip
    assert (found, chosen.tolist()) == (start, [1, 0])

"""What a try of backfill takes to be gone, on one node of 8 GPUs."""

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
        False, np.zeros(1, np.int64), from_s, np.inf,
    )  # fmt: skip
    assert found == start

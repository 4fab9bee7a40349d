"""Which slots of backfill's table become one after a reservation, and when it tests whether a job fits."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.kernels import backfill_slots
from slurmsched.kernels.backfill_slots import MOST_REMOVED, Runs, SlotTable, merged


@pytest.mark.parametrize(("slot", "slot_end", "edges"), [
    (0.0, 60.0, [0, 60, 120, 180, 240, 300, 360]),  # those further off stay as they are
    (60.0, 120.0, [0, 60, 180, 240, 300, 360]),  # the one after it counts
    (180.0, 240.0, [0, 60, 180, 240, 300, 360]),  # so does the last that ends before it; one pair is enough
    (240.0, 300.0, [0, 60, 120, 180, 300, 360]),
])  # fmt: skip
def test_merged__joins_the_first_pair_with_the_same_nodes(slot: float, slot_end: float, edges: list[float]) -> None:
    """Six slots of a minute: the second and third have the same nodes open, and the fourth and fifth."""
    begin, opened = np.arange(0.0, 360.0, 60.0), np.array([[7], [3], [3], [5], [5], [7]])
    end = begin + 60.0
    slots = merged(SlotTable(begin, end, opened), 6, slot, slot_end)
    assert [*begin[:slots], end[slots - 1]] == edges
    assert (end[: slots - 1] == begin[1:slots]).all()
    assert opened[:slots, 0].tolist() == [{0: 7, 60: 3, 120: 3, 180: 5, 240: 5, 300: 7}[at] for at in begin[:slots]]


@pytest.mark.parametrize(("count", "tested"), [
    (MOST_REMOVED, MOST_REMOVED),
    (MOST_REMOVED + 1, 0),  # so many at once are not followed by a test
    (MOST_REMOVED + 5, MOST_REMOVED + 5),  # but by the next window, and then a test
])  # fmt: skip
def test_tested_after__takes_a_limited_number_away_at_once(count: int, tested: int) -> None:
    """Jobs that all hold the one node end within a second; the first end would be enough."""
    runs = jobs_that_end(60.0 + np.arange(count) / 1_000.0, np.zeros(count, np.int64))
    got = backfill_slots.tested_after(1, 0.0, runs, count, np.array([True]), 0, np.inf)
    assert got == ((tested, runs.end[-1]) if tested else (0, np.inf))


@pytest.mark.parametrize(("to_go", "bound", "tested"), [
    (1, np.inf, (1, 60.0)),
    (2, np.inf, (2, 200.0)),  # not within the window of the first, which was tested without success
    (3, np.inf, (4, 2_005.0)),  # the window doubles until the next end is in it, and the one after
    (3, 1_000.0, (0, np.inf)),  # it ends too late
    (5, np.inf, (0, np.inf)),  # what ends on other nodes is no reason for a test
])  # fmt: skip
def test_tested_after__tests_after_each_window(to_go: int, bound: float, tested: tuple[int, float]) -> None:
    """Four jobs hold the node that the job may have, a fifth one another."""
    runs = jobs_that_end(np.array([60.0, 200.0, 2_000.0, 2_005.0, 9_000.0]), np.array([0, 0, 0, 0, 1]))
    assert backfill_slots.tested_after(to_go, 0.0, runs, 5, np.array([True, False]), 0, bound) == tested


def jobs_that_end(end: np.ndarray, on: np.ndarray) -> Runs:
    """Jobs of one node."""
    count = len(end)
    return Runs(end, np.arange(count), np.arange(count), np.ones(count, np.int64), on, np.ones((count, 3), np.int64))

"""Which slots of backfill's table become one after a reservation, and when it tests whether a job fits."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from slurmsched.kernels import backfill_slots
from slurmsched.kernels.backfill_slots import MOST_REMOVED, Runs, SlotTable, enough_before, last_gain, merged


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


def test_last_gain_and_enough_before__agree_with_sets_of_nodes() -> None:
    """A job is tried at first, and where nodes are open that were not in the slot before; then it wants enough of them
    for its time."""
    for seed in range(200):
        chance = Random(seed)
        opened = [chance.randint(0, 15) for _ in range(chance.randint(1, 5))]
        usable, nodes, limit_s = chance.randint(1, 15), chance.randint(1, 3), chance.choice([30.0, 60.0, 150.0])
        begin, by_s = 60.0 * np.arange(len(opened)), chance.choice([-np.inf, 70.0, 120.0, np.inf])
        table, pool = SlotTable(begin, begin + 60.0, np.array(opened)[:, None]), np.array([usable])
        tries = [0, *(k for k in range(1, len(opened)) if usable & opened[k] & ~opened[k - 1])]
        assert last_gain(table, len(opened), by_s, pool, 0.0) == max(60 * k for k in tries if 60 * k <= max(by_s, 0))
        found = False
        for k in (k for k in tries if begin[k] < by_s):
            still_open = usable
            for each in range(k, len(opened)):
                still_open &= opened[each] if begin[each] <= begin[k] + limit_s else 15
            found = found or still_open.bit_count() >= nodes
        assert enough_before(table, len(opened), by_s, pool, nodes, limit_s, np.zeros(1, np.int64)) == found


def jobs_that_end(end: np.ndarray, on: np.ndarray) -> Runs:
    """Jobs of one node."""
    count = len(end)
    return Runs(end, np.arange(count), np.arange(count), np.ones(count, np.int64), on, np.ones((count, 3), np.int64))

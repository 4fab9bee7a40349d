"""Which slots of backfill's table become one after a reservation."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.kernels.backfill_slots import SlotTable, merged


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

"""What runs hold."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.sim.slurmctld.simulated_jobs import HeldNodes

ROWS = 40


@given(st.lists(st.tuples(st.integers(0, ROWS - 1), st.integers(1, 60)), min_size=1, max_size=150))
@settings(deadline=None, max_examples=50)
def test_holdings__gives_back_what_was_taken(steps: list[tuple[int, int]]) -> None:
    """A row that holds something drops it, another takes so many nodes; old room is used again."""
    made, expected = HeldNodes(ROWS), dict[int, tuple[list[int], list[list[int]]]]()
    for number, (row, width) in enumerate(steps):
        if expected.pop(row, None) is not None:
            made.drop(row)
            continue
        node, held = np.arange(width) + number, np.full((width, 3), number)
        made.take(row, node, held)
        expected[row] = node.tolist(), held.tolist()
    held_now = {row: tuple(part.tolist() for part in made.of(row)) for row in made.rows.tolist()}
    count, node, _ = made.parts(made.rows)
    assert dict(sorted(expected.items())) == held_now
    assert [n for row in sorted(expected) for n in expected[row][0]] == node.tolist()
    assert [len(expected[row][0]) for row in sorted(expected)] == count.tolist()

"""Rows kept in order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.sim.slurmctld.simulated_jobs import RowSet


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 90)), max_size=200))
@settings(deadline=None)
def test_row_set__is_a_sorted_set(changes: list[tuple[bool, int]]) -> None:
    """Whatever is put in and taken out, twice or never there."""
    rows, expected = RowSet(), set[int]()
    for add, row in changes:
        (rows.add if add else rows.discard)(row)
        (expected.add if add else expected.discard)(row)
        assert sorted(expected) == rows.rows.tolist()
    assert len(expected) == len(rows)


def test_row_set__grows_past_its_first_room() -> None:
    """In any order."""
    rows = RowSet()
    for row in reversed(range(200)):
        rows.add(row)
    assert list(range(200)) == rows.rows.tolist()

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slurmsched.allocation.solver import Programme, bisect_least, matched, solve, water_fill

amounts = st.lists(st.floats(0.0, 100.0), min_size=1, max_size=8)


def test_matched__says_when_there_is_no_solution() -> None:
    """No choice needs less than nothing."""
    assert matched(np.ones((1, 1)), np.ones((1, 1, 1)), np.array([-1.0])) is None


def test_solve__linear() -> None:
    """Maximise 3x + 2y where x + y <= 4 and x <= 3: x = 3, y = 1."""
    low, high = np.zeros(2), np.array([3.0, np.inf])
    found = solve(Programme(np.array([-3.0, -2.0]), low, high, np.array([[1.0, 1.0]]), np.array([4.0])))
    assert (found.status, found.objective) == ("optimal", -11.0)
    assert found.x is not None
    assert found.x.tolist() == [3.0, 1.0]


def test_solve__whole_numbers() -> None:
    """A knapsack of 5 with parts of 3 and 2, worth 4 and 3 each, up to two of a kind: one of each, worth 7."""
    both = np.full(2, True)
    found = solve(Programme(np.array([-4.0, -3.0]), np.zeros(2), np.full(2, 2.0), np.array([[3.0, 2.0]]),
                            np.array([5.0]), whole=both))  # fmt: skip
    assert (found.status, round(found.objective, 6), found.gap) == ("optimal", -7.0, 0.0)


def test_solve__says_when_there_is_no_point() -> None:
    """x <= -1 and x >= 0."""
    found = solve(Programme(np.ones(1), np.zeros(1), np.ones(1), np.array([[1.0]]), np.array([-1.0])))
    assert (found.status, found.x) == ("infeasible", None)


def test_least__finds_where_it_begins_to_hold() -> None:
    """The square root of 2, to a thousandth."""
    assert abs(bisect_least(lambda x: x * x >= 2, 0.0, 2.0) - 2**0.5) < 2e-3


def test_water_fill__small_demands_first() -> None:
    """Demands of 1, 5 and 5 share 9 as 1, 4 and 4; weights of 1 and 3 share 8 as 2 and 6."""
    assert water_fill(np.array([1.0, 5.0, 5.0]), np.ones(3), 9.0).tolist() == [1.0, 4.0, 4.0]
    assert water_fill(np.array([9.0, 9.0]), np.array([1.0, 3.0]), 8.0).tolist() == [2.0, 6.0]


@given(demand=amounts, capacity=st.floats(0.0, 300.0))
def test_water_fill__wastes_nothing_and_favours_nobody(demand: list[float], capacity: float) -> None:
    """All demand or all capacity is used, nobody gets more than asked, and who gets less has the highest share."""
    wanted = np.array(demand)
    given_ = water_fill(wanted, np.ones(len(wanted)), capacity)
    assert np.isclose(given_.sum(), min(wanted.sum(), capacity))
    assert (given_ <= wanted + 1e-9).all()
    short = given_ < wanted - 1e-9
    assert not short.any() or (given_[short].min() >= given_.max() - 1e-6)

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmsched.allocation.solver import Programme, bisect_least, matched, solve, water_fill

amounts = st.lists(st.floats(0.0, 100.0), min_size=1, max_size=8)


NOISY = """
import numpy as np
from slurmsched.allocation.solver import matched

print("first")
chance = np.random.default_rng(78)
jobs, choices = int(chance.integers(5, 30)), int(chance.integers(2, 12))
kind, size = chance.integers(0, 3, (jobs, choices)), 2 ** chance.integers(0, 4, (jobs, choices))
gpus = np.zeros((jobs, choices, 3))
np.put_along_axis(gpus, kind[:, :, None], size[:, :, None].astype(np.float64), axis=2)
worth = size * 2.0**kind * chance.uniform(0.7, 1.0, (jobs, choices))
chosen = matched(np.maximum(1.1 - worth**-0.5, 1e-6), gpus, np.array([8.0, 16.0, 24.0]))
given = gpus[np.flatnonzero(chosen >= 0), chosen[chosen >= 0]].sum(axis=0)
print((given <= [8, 16, 24]).all())
"""


def test_matched__prints_nothing() -> None:
    """HiGHS prints a line of its own on some programmes, this one among them, whatever its options say. Into a pipe it
    comes late: C prints it by blocks."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run([sys.executable, "-c", NOISY], capture_output=True, text=True, env=buffered, check=True)
    assert done.stdout == "first\nTrue\n"


def test_matched__leaves_no_file_open_and_says_when_there_is_no_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    """No choice needs less than nothing. Without /dev/null the line of HiGHS is printed, and no file is left open."""
    one = np.ones((1, 1)), np.ones((1, 1, 1))
    assert matched(*one, np.array([-1.0])) is None
    before = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(os, "devnull", "/none/of/these")
    found = matched(*one, np.ones(1))
    assert found is not None and found.tolist() == [0]
    assert len(list(Path("/proc/self/fd").iterdir())) == before


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

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmsched.policies.solve import Programme, least, solve, water_fill

amounts = st.lists(st.floats(0.0, 100.0), min_size=1, max_size=8)


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


LOUD = """
import io, os, sys, threading, numpy as np
from scipy import optimize
from slurmsched.policies.solve import Programme, solve
true_milp = optimize.milp
def loud(*words, **named):
    os.write(1, b"HighsMipSolverData\\n")
    return true_milp(*words, **named)
optimize.milp = loud
def solved():
    solve(Programme(-np.ones(1), np.zeros(1), np.ones(1), whole=np.full(1, True)))
os.write(1, b"before\\n")
{way}
os.write(1, b"after\\n")
"""
BAR = """
from rich.progress import Progress
with Progress(console=__import__("rich.console").console.Console(stderr=True)):
    solved()
"""
THREAD = "one = threading.Thread(target=solved); one.start(); one.join()"


@pytest.mark.parametrize(
    ("way", "said"),
    [("solved()", False), (BAR, False), (THREAD, True), ("sys.stdout = io.StringIO(); solved()", True)],
    ids=["alone", "beside a bar's thread", "in a thread", "standard output is elsewhere"],
)  # fmt: skip
def test_solve__whole_numbers_print_nothing(way: str, said: bool) -> None:
    """HiGHS prints a line for some programmes, whatever it is told. It stays where two threads could cross."""
    code = LOUD.format(way=way)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert out == b"before\n" + b"HighsMipSolverData\n" * said + b"after\n"


def test_solve__whole_numbers_where_standard_output_is_closed() -> None:
    """As a service may have it."""
    code = ("import os, numpy as np; os.close(1)\nfrom slurmsched.policies.solve import Programme, solve\n"
            "found = solve(Programme(-np.ones(1), np.zeros(1), np.ones(1), whole=np.full(1, True)))\n"
            "assert found.objective == -1.0")  # fmt: skip
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_solve__says_when_there_is_no_point() -> None:
    """x <= -1 and x >= 0."""
    found = solve(Programme(np.ones(1), np.zeros(1), np.ones(1), np.array([[1.0]]), np.array([-1.0])))
    assert (found.status, found.x) == ("infeasible", None)


def test_least__finds_where_it_begins_to_hold() -> None:
    """The square root of 2, to a thousandth."""
    assert abs(least(lambda x: x * x >= 2, 0.0, 2.0) - 2**0.5) < 2e-3


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

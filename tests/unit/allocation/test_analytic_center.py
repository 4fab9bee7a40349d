"""The middle of a polytope, and rounds as the released simulators draw them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurmsched.allocation import programmes
from slurmsched.allocation.finish_time import ISOLATED_KEY, isolated_so_far
from slurmsched.allocation.programmes import AllocationProblem
from slurmsched.allocation.solver import analytic_center
from slurmsched.allocation.water_filling import max_min
from slurmsched.sim.experiments import released_policies
from slurmsched.testing import snapshot


def test_centre__of_a_square_and_a_triangle() -> None:
    """By symmetry the middle of each."""
    square = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
    triangle = np.array([[-1.0, 0], [0, -1], [1, 1]])
    assert analytic_center(square, np.array([1.0, 0, 1, 0])) == pytest.approx([0.5, 0.5])
    assert analytic_center(triangle, np.array([0.0, 0, 1])) == pytest.approx([1 / 3, 1 / 3])


def test_centre__without_an_inside_there_is_none() -> None:
    """A single point has no middle."""
    assert analytic_center(np.array([[1.0], [-1.0]]), np.array([0.0, 0.0])) is None


def test_centre__is_reached_from_a_corner_of_a_thin_polytope() -> None:
    """Max-min shares of 100 jobs on three types of 24, 16 and 8 GPUs: in the middle each has a half, a third and a
    sixth of its time on them. The face of the best shares is 1e-4 thick, and a solver begins at its corner."""
    gpus = np.repeat([1.0, 2.0, 4.0], [71, 6, 23])
    given = AllocationProblem(np.array([24.0, 16.0, 8.0]), gpus, np.ones((100, 3)), *[np.ones(100)] * 3)
    share = released_policies.max_min(given) * gpus[:, None]
    assert share == pytest.approx(np.tile([0.24, 0.16, 0.08], (100, 1)), abs=1e-5)


def test_max_min__a_job_that_runs_on_no_type_has_nothing() -> None:
    """And keeps nobody else from his."""
    given = AllocationProblem(np.array([4.0]), np.ones(2), np.array([[0.0], [1.0]]), *[np.ones(2)] * 3)
    assert max_min(given).ravel().tolist() == [0.0, 1.0]


@pytest.mark.parametrize("name", ["max_min", "makespan", "sum_throughput", "finish_time_fairness"])
def test_released__keeps_what_the_programme_asks_for(name: str) -> None:
    """As good as the best shares to 6 %, within capacity; the makespan's bisection ends at 5 %."""
    chance = np.random.default_rng(4)
    speed = chance.uniform(0.2, 1.0, (6, 2))
    given = AllocationProblem(
        np.array([2.0, 3.0]), np.ones(6), speed, chance.uniform(1e3, 9e3, 6), np.full(6, 50.0), np.ones(6)
    )
    ours = max_min if name == "max_min" else getattr(programmes, name)
    best, found = ours(given), getattr(released_policies, name)(given)
    rates = [(share * speed).sum(axis=1) for share in (best, found)]
    value = {"max_min": min, "makespan": lambda rate: min(rate / given.remaining_s), "sum_throughput": sum,
             "finish_time_fairness": lambda rate: -max(50.0 + given.remaining_s / rate)}[name]  # fmt: skip
    if name != "finish_time_fairness":
        assert value(rates[1]) >= value(rates[0]) * (0.9 if name == "max_min" else 0.94)
    assert (found.sum(axis=0) <= given.capacity + 1e-6).all()
    assert (found.sum(axis=1) <= 1 + 1e-6).all()


def test_isolated_so_far__adds_up_at_the_rate_of_each_allocation() -> None:
    """100 s of work at half a second a second, then 50 s at a quarter: 200 s and 200 s."""
    given, carry = snapshot([{}], "1x1"), {}
    for remaining_s, rate, expected in ((500.0, 0.5, 0.0), (400.0, 0.25, 200.0), (350.0, 1.0, 400.0)):
        found, kept = isolated_so_far(replace(given, carry=carry), np.array([remaining_s]), np.array([rate]))
        carry = {ISOLATED_KEY: kept}
        assert found.tolist() == [expected]

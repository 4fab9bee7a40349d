"""Water-filling of hundreds of jobs that all differ: beside the rule on one GPU type, and in turn on several."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.allocation.programmes import AllocationProblem
from slurmsched.allocation.solver import water_fill
from slurmsched.allocation.water_filling import AccountWeights, water_filled
from slurmsched.model.columns import Floats

JOBS = 400
CHANCE = np.random.default_rng(5).uniform(1.0, 99.0, JOBS)


def problem(capacity: list[float], weight: Floats, account: Floats, speed: list[float]) -> AllocationProblem:
    one = np.ones(JOBS)
    table = np.tile(speed, (JOBS, 1))
    return AllocationProblem(np.array(capacity), one, table, one, 0 * one, weight, account=account.astype(np.int64))


@pytest.mark.parametrize("accounts", [1, JOBS])
def test_water_filled__hundreds_of_levels_are_as_the_rule_says(accounts: int) -> None:
    """400 jobs of as many weights, or accounts of as many shares: nobody's share is another than by water_fill."""
    own, one = np.arange(JOBS), np.ones(JOBS)
    given = problem([330.0], CHANCE if accounts == 1 else one, own if accounts > 1 else 0 * own, [1.0])
    entitled = AccountWeights(CHANCE if accounts > 1 else np.ones(1), np.zeros(accounts, np.bool_))
    found = water_filled(given, entitled)[:, 0]
    assert found == pytest.approx(water_fill(one, CHANCE, 330.0), abs=1e-3)


@pytest.mark.parametrize(
    ("capacity", "speed"), [([330.5], [1.0]), ([50.0, 280.5], [1.0, 0.5])], ids=["one type", "two types"]
)
def test_water_filled__in_turn_the_earlier_are_served_first(capacity: list[float], speed: list[float]) -> None:
    """330 jobs have all of their time, the next one half of it, the others none, on however many types."""
    given = problem(capacity, np.ones(JOBS), np.zeros(JOBS), speed)
    found = water_filled(given, AccountWeights(np.ones(1), np.ones(1, np.bool_))).sum(axis=1)
    assert found == pytest.approx([1.0] * 330 + [0.5] + [0.0] * 69, abs=1e-3)

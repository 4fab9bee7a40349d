"""Which jobs keep their nice value, against the plain twins, on fixed draws."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.kernels.nice_spacing import _longest_by_bisection, keep_with_margin, longest_non_increasing
from tests.reference import room, subsequence


@pytest.mark.parametrize("seed", range(10))
def test_longest_non_increasing__is_as_long_as_the_reference(seed: int) -> None:
    """Its members are allowed, and none is larger than the one before. A cold process finds the same ones."""
    chance = np.random.default_rng(seed)
    values, allowed = chance.integers(0, 6, seed), chance.random(seed) < 0.8
    member = longest_non_increasing(values, allowed)
    assert int(member.sum()) == subsequence.longest_non_increasing(values, allowed)
    assert not (member & ~allowed).any()
    assert (np.diff(values[member]) <= 0).all()
    assert member.tolist() == longest_non_increasing.plain(values, allowed).tolist()
    assert member.tolist() == _longest_by_bisection(values, allowed).tolist()


@pytest.mark.parametrize("seed", range(40))
def test_keep_with_margin__agrees_with_reference(seed: int) -> None:
    """Wherever the moved rows lie, with and without room for them; no row is kept where nothing helps."""
    chance = np.random.default_rng(seed)
    rows = int(chance.integers(1, 9))
    height = np.sort(chance.integers(1, 25, rows))[::-1].copy()
    kept = chance.random(rows) < 0.6
    margin, ceiling = int(chance.integers(1, 5)), int(chance.choice([6, 12, 25]))
    assert keep_with_margin(height, kept, margin, 5, ceiling).tolist() == room.with_room(
        height, kept, margin, 5, ceiling
    )

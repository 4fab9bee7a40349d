"""A tenant's isolated share, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.kernels.isolated_share import ends_alone


@pytest.mark.parametrize(
    ("share", "ends"),
    [
        (4.0, [6.0, 5.0]),  # both fit: 2 GPUs for 6 s from 0, 2 GPUs for 4 s from 1
        (3.0, [6.0, 7.5]),  # the second has 1 GPU until 6 (5 of its 8 GPU s), then 2
        (1.0, [12.0, 20.0]),  # one after the other, each at half speed
        (0.5, [24.0, 40.0]),  # a share of less than a GPU is a slower one
    ],
)
def test_ends_alone__earlier_jobs_first(share: float, ends: list[float]) -> None:
    """A job gets what it asked for as far as earlier ones leave it, and goes on in proportion."""
    found = ends_alone(np.array([0.0, 1.0]), np.array([2, 2]), np.array([6.0, 4.0]), share)
    assert ends == pytest.approx(found.tolist())


def test_ends_alone__idles_between_jobs() -> None:
    """A share that has nothing to do waits for the next job."""
    found = ends_alone(np.array([5.0, 100.0]), np.array([1, 1]), np.array([2.0, 3.0]), 1.0)
    assert found.tolist() == [7.0, 103.0]

"""A tenant's isolated share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.kernels.isolated_share import ends_alone
from tests.reference import isolated_share as naive

JOBS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 6), st.integers(0, 20)), min_size=1, max_size=12)


def columns(jobs: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    submit, gpus, run = zip(*sorted(jobs), strict=True)
    return np.array(submit, np.float64), np.array(gpus, np.int64), np.array(run, np.float64)


@settings(deadline=None)
@given(jobs=JOBS, share=st.sampled_from([0.5, 1.0, 4 / 3, 2.0, 3.5, 7.0]))
def test_ends_alone__agrees_with_reference(jobs: list[tuple[int, int, int]], share: float) -> None:
    """Compiled or not, the ends are those of the naive twin."""
    assert ends_alone(*columns(jobs), share) == pytest.approx(naive.ends_alone(*columns(jobs), share))


@settings(deadline=None)
@given(jobs=JOBS, share=st.sampled_from([0.5, 4 / 3, 3.0]))
def test_ends_alone__conserves_service(jobs: list[tuple[int, int, int]], share: float) -> None:
    """No job ends earlier than alone on all it asked for, nor do all end before the share could do the work."""
    submit_s, gpus, duration_s = columns(jobs)
    ends_s = ends_alone(submit_s, gpus, duration_s, share)
    assert (ends_s >= submit_s + duration_s * np.maximum(1, gpus / share) - 1e-6).all()
    assert ends_s.max() >= submit_s.min() + (gpus * duration_s).sum() / share - 1e-6

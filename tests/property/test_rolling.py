"""Means that grow with the past: those of a fresh look, to the last bit, and those of the naive twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.estimators import past_run_times
from slurmsched.estimators.past_run_times import HISTORY_LEVELS, RollingHistory
from slurmsched.model import Past
from slurmsched.testing import snapshot
from tests.reference.rolling import decayed_mean_s

ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["t_1", "T_2", "e"]), st.integers(1, 2), st.floats(1.0, 1e5),
              st.floats(0.0, 1e6)),
    min_size=1, max_size=30,
).map(lambda rows: sorted(rows, key=lambda row: row[4]))  # fmt: skip
HALF_LIVES = st.sampled_from([10.0, 3_600.0, 1e6, float("inf")])
JOBS = [("a", "t_9", 1), ("a", "e", 2), ("b", "new", 1), ("c", "new", 2), ("c", "new", 3)]


def looked(rows, half_life_s):
    """What the estimator says of JOBS after these rows [s]."""
    user, name, gpus, executed_s, end_s = zip(*rows, strict=True)
    past = Past.build(len(rows), {"user": user, "name": name, "gpus": gpus, "executed_s": executed_s, "end_s": end_s})
    jobs = [{"user": user, "name": name, "gpus": gpus} for user, name, gpus in JOBS]
    return RollingHistory(half_life_s).estimate(snapshot(jobs, past=past)).total_s


@settings(deadline=None)
@given(rows=ROWS, half_life_s=HALF_LIVES, cuts=st.lists(st.integers(1, 30), max_size=4))
def test_rolling__grows_to_what_a_fresh_look_gives(rows, half_life_s, cuts) -> None:
    """However the past came, in steps or at once: what is kept between looks changes no bit."""
    past_run_times._KNOWN.clear()
    for cut in sorted(cuts):
        looked(rows[:cut], half_life_s)
    grown = looked(rows, half_life_s)
    past_run_times._KNOWN.clear()
    assert np.array_equal(looked(rows, half_life_s), grown)


@settings(deadline=None)
@given(rows=ROWS, other=ROWS, half_life_s=HALF_LIVES)
def test_rolling__agrees_with_reference(rows, other, half_life_s) -> None:
    """The first level with a like job, over the whole past, whatever other past was looked at before."""
    looked(other, half_life_s)
    expected = [
        next(
            mean
            for _, columns in HISTORY_LEVELS
            if (mean := decayed_mean_s(rows, half_life_s, columns, job)) is not None
        )
        for job in JOBS
    ]
    assert looked(rows, half_life_s).tolist() == pytest.approx(expected, rel=1e-9)

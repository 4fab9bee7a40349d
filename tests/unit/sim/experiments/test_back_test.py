"""Rules of the back-test: recorded starts beside the model's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from slurmsched.model.job_outcomes import JobOutcomes
from slurmsched.model.trace import Trace
from slurmsched.sim.experiments.back_test import back_test, back_test_table, pairs_in_order

NAN = float("nan")


def outcomes(trace: Trace, start_s: list[float]) -> JobOutcomes:
    start = np.array(start_s)
    made = JobOutcomes(trace.job_id, trace.gpus, trace.submit_s, start, start + trace.duration_s, trace.duration_s,
                       trace.duration_s, np.zeros(len(trace), np.int64), 8)  # fmt: skip
    return made.of_jobs(trace.job_id[~np.isnan(start)])


def trace(recorded_s: list[float], **more: object) -> Trace:
    rows = len(recorded_s)
    return Trace.of(
        np.arange(1, rows + 1), [1, 1, 2, 8][:rows], [0.0] * rows, [10.0] * rows, start_s=recorded_s, **more
    )


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=2, max_size=200))
def test_pairs_in_order__as_pair_by_pair(starts: list[tuple[int, int]]) -> None:
    """Pairs that started in one second count nowhere; one that the model starts at once is not in order."""
    recorded, modelled = np.array(starts, np.float64).T
    first, second = np.triu_indices(len(starts), 1)
    apart = recorded[first] != recorded[second]
    agree = (recorded[first] - recorded[second]) * (modelled[first] - modelled[second]) > 0
    assert (int(apart.sum()), int(agree[apart].sum())) == pairs_in_order(recorded, modelled)


def test_back_test__waits_and_order() -> None:
    """Recorded waits of 100, 200, 300 and 400 s; the model has the last two the other way round, and 100 s later."""
    made = trace([100.0, 200.0, 300.0, 400.0], partition=["a", "a", "b", "b"])
    found = back_test(made, outcomes(made, [200.0, 300.0, 500.0, 400.0]))
    assert found is not None
    whole = found.whole
    assert (whole.jobs, whole.recorded.mean_s, whole.modelled.mean_s) == (4, 250.0, 350.0)
    assert (whole.pairs, whole.in_order) == (6, 5 / 6)
    assert_allclose(whole.mean_error, 0.4)
    names = ["all jobs", "1 GPU", "2-4 GPUs", "5-8 GPUs", "partition a", "partition b"]
    assert [row.name for row in found.rows] == names
    assert found.by_partition[1].in_order == 0.0


def test_back_test__of_jobs_that_count_and_start_in_both() -> None:
    """Job 1 does not count, job 2 has no recorded start, and the model does not start job 3."""
    made = trace([100.0, NAN, 300.0, 400.0]).with_columns(counted=[False, True, True, True])
    assert back_test(made, outcomes(made, [1.0, 1.0, NAN, 1.0])) is None
    more = made.with_columns(counted=np.ones(4, np.bool_))
    found = back_test(more, outcomes(more, [1.0, 1.0, NAN, 1.0]))
    assert found is not None
    assert (found.whole.jobs, found.without_start) == (2, 1)


@pytest.mark.parametrize(("modelled", "begin"), [
    ([1_000.0, 2_000.0, 3_000.0, 4_000.0], "the model repeats this history well: the mean wait is off by +0.0%"),
    ([1_100.0, 2_200.0, 3_300.0, 4_400.0], "differences of less than 10% between policies may be the model's: "),
    ([4_000.0, 3_000.0, 2_000.0, 1_000.0], "do not decide by the figures below: the mean wait is off by +0.0%"),
    ([2_000.0, 4_000.0, 6_000.0, 8_000.0], "do not decide by the figures below: the mean wait is off by +100.0%"),
])  # fmt: skip
def test_verdict__says_how_far_to_trust_the_rest(modelled: list[float], begin: str) -> None:
    """By how far the modelled waits are from the recorded ones."""
    made = trace([1_000.0, 2_000.0, 3_000.0, 4_000.0])
    found = back_test(made, outcomes(made, modelled))
    assert found is not None
    assert found.verdict.startswith(begin), found.verdict


def test_verdict__where_nobody_waits() -> None:
    """Below a minute an error in per cent says nothing."""
    made = trace([1.0, 2.0, 3.0, 4.0])
    found = back_test(made, outcomes(made, [2.0, 4.0, 6.0, 8.0]))
    assert found is not None
    assert found.verdict.startswith("hardly any job waited")
    assert found.whole.mean_error is None


def test_back_test_table__a_row_a_group() -> None:
    """The unit suits the times; each row has the recorded and the modelled waits."""
    made = trace([3_600.0, 7_200.0, 7_200.0, 7_200.0])
    found = back_test(made, outcomes(made, [7_200.0, 7_200.0, 7_200.0, 7_200.0]))
    assert found is not None
    unit, rows = back_test_table(found.figures())
    assert unit.name == "h"
    assert rows[0] == ("all jobs", "4", "1.75", "2.00", "+14.3%", "2.00", "2.00", "2.00", "2.00", "0.0%")


def test_back_test__of_a_trace_in_another_order() -> None:
    """Outcomes are found by job id."""
    made = trace([100.0, 200.0, 300.0, 400.0])
    done = outcomes(made, [100.0, 200.0, 300.0, 400.0])
    turned = replace(
        done,
        **{name: getattr(done, name)[::-1] for name in done.__slots__ if name not in ("cluster_gpus", "gpu_share")},
    )
    found = back_test(made, turned)
    assert found is not None
    assert found.whole.mean_error == 0.0

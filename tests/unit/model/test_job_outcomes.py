"""Metrics against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.model.job_outcomes import JobOutcomes, UsageHistory, outcome_summary


def outcomes() -> JobOutcomes:
    """Two 1-GPU jobs and one of 16, on 20 GPUs: JCT 100, 300, 200; executed 100, 200, 100; 10 s of the last wasted."""
    columns = (
        [0.0, 0.0, 100.0],
        [0.0, 100.0, 200.0],
        [100.0, 300.0, 300.0],
        [100.0, 200.0, 100.0],
        [100.0, 200.0, 90.0],
    )
    ids = (np.array([1, 2, 3]), np.array([1, 1, 16]))
    return JobOutcomes(*ids, *(np.array(column) for column in columns), np.array([0, 0, 2]), 20)


def test_summary__follows_the_definitions() -> None:
    """JCT, delay, makespan, utilisation = useful GPU s over GPUs times makespan; percentiles interpolate."""
    made = outcome_summary(outcomes())
    assert made["jct_s"] == {"mean": 200, "p50": 200, "p95": pytest.approx(290), "p99": pytest.approx(298)}
    assert made["queueing_delay_by_gpus_s"] == {
        "1": {"mean": 50, "p95": pytest.approx(95)}, "2-4": None, "5-8": None, ">8": {"mean": 100, "p95": 100},
    }  # fmt: skip
    assert (made["makespan_s"], made["preemptions"]) == (300, 2)
    assert made["gpu_utilisation"] == pytest.approx((100 + 200 + 16 * 90) / (20 * 300))


def test_digest__differs_when_a_job_ends_otherwise() -> None:
    """One second more for one job is another result."""
    one, two = outcomes(), outcomes()
    two.end_s[0] += 1
    assert (one.digest == outcomes().digest, one.digest == two.digest) == (True, False)


def test_history__keeps_the_last_note_of_a_time() -> None:
    """Steps ascend strictly."""
    history = UsageHistory(8)
    for note in ((0, 4, 1), (10, 5, 0), (10, 8, 2)):
        history.note(*note)
    assert [column.tolist() for column in history.steps()] == [[0, 10], [4, 8], [1, 2]]

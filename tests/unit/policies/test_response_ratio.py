"""Highest response ratio next: waiting time over expected run time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from slurmsched.errors import ConfigError
from slurmsched.policies.response_ratio import ResponseRatio
from slurmsched.testing import check_policy, snapshot

HOUR_S = 3_600.0


def order(rows, now_s=10 * HOUR_S, **parameters):
    return [row + 1 for row in ResponseRatio(**parameters).rank(snapshot(rows, now_s=now_s)).order.tolist()]


def test_rank__who_waited_most_for_its_length_goes_first():
    """An hour's job that waited two hours passes a day's job that waited ten."""
    rows = [{"submit_s": 0.0, "time_limit_s": 24 * HOUR_S}, {"submit_s": 8 * HOUR_S, "time_limit_s": HOUR_S}]
    assert order(rows) == [2, 1]


def test_rank__a_long_job_comes_to_the_front_in_the_end():
    """Fresh short jobs do not pass it for ever."""
    rows = [{"submit_s": 0.0, "time_limit_s": 24 * HOUR_S}, {"submit_s": 29.5 * HOUR_S, "time_limit_s": HOUR_S}]
    assert order(rows, now_s=30 * HOUR_S) == [1, 2]


@pytest.mark.parametrize(("power", "expected"), [(0.0, [1, 2]), (0.33, [2, 1]), (1.0, [2, 1])])
def test_rank__gpus_power_brings_large_jobs_forward(power, expected):
    """Sixteen GPUs to the power of a third count 2.5 times."""
    rows = [{"gpus": 1, "time_limit_s": HOUR_S}, {"gpus": 16, "time_limit_s": 2 * HOUR_S}]
    assert order(rows, gpus_power=power) == expected


def test_rank__waiting_counts_from_when_a_job_could_start():
    """Not while a dependency held it back; a running job's wait ended with its start."""
    rows = [
        {"time_limit_s": HOUR_S, "eligible_s": 9.5 * HOUR_S},
        {"time_limit_s": HOUR_S, "eligible_s": 9.0 * HOUR_S},
        {"time_limit_s": HOUR_S, "state": "RUNNING", "start_s": 0.25 * HOUR_S},
    ]
    why = ResponseRatio().rank(snapshot(rows, now_s=10 * HOUR_S)).why
    assert why["waited_s"].tolist() == [0.5 * HOUR_S, HOUR_S, 0.25 * HOUR_S]


def test_rank__a_job_without_estimate_comes_last():
    """By submission among its like."""
    assert order([{"time_limit_s": math.inf}, {"time_limit_s": math.inf, "submit_s": -5.0}, {"submit_s": 9 * HOUR_S,
                 "time_limit_s": 48 * HOUR_S}]) == [3, 2, 1]  # fmt: skip


def test_next_change_s__is_when_a_job_that_grows_faster_passes_the_first():
    """At the time it names the order is another one, a little before it is not."""
    rows = [{"submit_s": 0.0, "time_limit_s": 10 * HOUR_S}, {"submit_s": 10 * HOUR_S, "time_limit_s": HOUR_S}]
    policy, at = ResponseRatio(), snapshot(rows, now_s=10 * HOUR_S)
    change_s = policy.next_change_s(at, policy.rank(at), np.zeros(2, np.bool_))
    assert [order(rows, now_s=change_s - 60.0), order(rows, now_s=change_s)] == [[1, 2], [2, 1]]
    alone = snapshot(rows[:1], now_s=0.0)
    assert policy.next_change_s(alone, policy.rank(alone), np.zeros(1, np.bool_)) == math.inf


def test_response_ratio__refuses_a_power_out_of_range():
    """Named as in the configuration."""
    with pytest.raises(ConfigError, match="from 0 to 1") as error:
        ResponseRatio(gpus_power=2.0)
    assert error.value.key == "policy.gpus_power"


def test_response_ratio__conforms():
    """Pure, repeatable, independent of row order and of the zero of the clock."""
    check_policy(ResponseRatio(0.33))

"""fifo, smallest, sjf, srtf and srsf: the orders of the field's baselines."""

from __future__ import annotations

import pytest

from slurmsched.estimators.requested_time import Hint, TimeLimit
from slurmsched.policies.fifo import Fifo
from slurmsched.policies.sjf import Sjf
from slurmsched.policies.smallest import Smallest
from slurmsched.policies.srsf import Srsf
from slurmsched.policies.srtf import Srtf
from slurmsched.protocols import Policy
from slurmsched.testing import check_policy, snapshot

# Three jobs on two GPUs, (GPUs, run time) = (2, 2), (1, 8), (2, 6): service 4, 8 and 12.
THREE = snapshot([{"gpus": 2, "time_limit_s": 2.0}, {"gpus": 1, "time_limit_s": 8.0}, {"gpus": 2, "time_limit_s": 6.0}])


def test_fifo__first_submission_counts() -> None:
    """A requeue moves Slurm's submission time, not the job's place; ties go by job id."""
    rows = [{"job_id": 1, "first_submit_s": 5.0, "submit_s": 90.0}, {"job_id": 2, "submit_s": 9.0},
            {"job_id": 3, "submit_s": 9.0}, {"job_id": 4, "first_submit_s": float("nan"), "submit_s": 1.0}]  # fmt: skip
    assert Fifo().rank(snapshot(rows)).order.tolist() == [3, 0, 1, 2]


def test_smallest__fewest_gpus_count() -> None:
    """One GPU before two, then by submission; what ran or will run changes nothing."""
    assert Smallest().rank(THREE).order.tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    ("policy", "order"),
    [(Sjf(), [0, 2, 1]), (Srtf(), [0, 2, 1]), (Srsf(), [0, 1, 2])],
    ids=["sjf: 2 < 6 < 8", "srtf: 2 < 6 < 8", "srsf: 4 < 8 < 12"],
)
def test_expected__three_jobs_by_hand(policy: Policy, order: list[int]) -> None:
    """By run time the 6 s job precedes the 8 s job; by service the one-GPU job does (8 < 12 GPU s)."""
    assert policy.rank(THREE).order.tolist() == order


def test_srtf__what_ran_is_subtracted() -> None:
    """Of 8 s 7 have run: 1 s remains, less than the 2 s of a new job; sjf still sees 8 s."""
    given = snapshot([{"time_limit_s": 2.0}, {"time_limit_s": 8.0, "executed_s": 7.0}])
    assert (Srtf().rank(given).order.tolist(), Sjf().rank(given).order.tolist()) == ([1, 0], [0, 1])


def test_srsf__remaining_time_times_gpus() -> None:
    """(8 - 6) s on 8 GPUs are 16 GPU s, more than 10 s on one."""
    given = snapshot([{"time_limit_s": 8.0, "executed_s": 6.0, "gpus": 8}, {"time_limit_s": 10.0}])
    assert Srsf().rank(given).why["remaining_gpu_s"].tolist() == [16.0, 10.0]


@pytest.mark.parametrize("policy", [Srtf(), Srsf()])
def test_remaining__overrun_counts_as_about_to_end(policy: Policy) -> None:
    """A job past its estimate has 0 left, never less: it does not pass another overrun job by its excess."""
    given = snapshot([{"time_limit_s": 5.0, "executed_s": 6.0}, {"time_limit_s": 5.0, "executed_s": 99.0}])
    assert policy.rank(given).order.tolist() == [0, 1]


@pytest.mark.parametrize("policy", [Sjf(), Srtf(), Srsf()])
def test_expected__unknown_comes_last_in_fifo_order(policy: Policy) -> None:
    """Jobs with neither hint nor limit come after all others, by submission."""
    rows = [{"submit_s": 2.0}, {"submit_s": 1.0, "gpus": 0}, {"submit_s": 3.0, "time_limit_s": 1e9}]
    assert policy.rank(snapshot(rows)).order.tolist() == [2, 1, 0]


def test_expected__estimator_is_a_parameter() -> None:
    """The same jobs by hint and by time limit."""
    rows = [{"comment": "slurmsched: dur=1h", "time_limit_s": 9e4}, {"time_limit_s": 8e4}]
    orders = [Sjf(estimator).rank(snapshot(rows)).order.tolist() for estimator in (Hint(), TimeLimit())]
    assert orders == [[0, 1], [1, 0]]


@pytest.mark.parametrize("policy", [Fifo(), Sjf(), Srtf(), Srsf(), Srsf(TimeLimit())])
def test_expected__conforms(policy: Policy) -> None:
    """Every rule of check_policy."""
    assert check_policy(policy) is None

"""GPU time that each job is guaranteed in each hour, and elastic jobs that shrink for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slurmsched.errors import ConfigError
from slurmsched.model import Ranking
from slurmsched.model.trace import Trace
from slurmsched.policies.singularity import Singularity, grown_in_turn
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.testing import check_policy, snapshot

SIX = (
    {"gpus": 2, "qos": "premium", "state": "RUNNING", "attained_gpu_s": 3_600.0},
    {"gpus": 4, "qos": "standard"},
    {"gpus": 1, "qos": "standard", "state": "RUNNING", "attained_gpu_s": 3_000.0},
    {"gpus": 4, "state": "RUNNING", "comment": "slurmsched: min_gpus=1 max_gpus=4"},
    {"gpus": 1, "state": "RUNNING"},
    {"gpus": 1, "comment": "slurmsched: min_gpus=1 max_gpus=2"},
)
HELD = ((1, 2), (3, 1), (4, 4), (5, 1))


def ranked(rows: Any = SIX, held: Any = HELD, nodes: str = "1x9", **others: Any) -> Ranking:
    allocations = [{"job_id": job, "node": "n1", "gpus": gpus} for job, gpus in held]
    given = {"now_s": 1_800.0, **others}
    return Singularity().rank(snapshot(list(rows), nodes, allocations=allocations, **given))


def test_singularity__conforms() -> None:
    """The rules of all policies."""
    check_policy(Singularity(guarantees=("normal=0.5",), window_s=600.0))


def test_singularity__six_jobs_by_hand() -> None:
    """The page's: job 4 shrinks to one GPU, so that job 2 gets its four and nobody stops."""
    ranking = ranked()
    assert ranking.why["given_gpus"].tolist() == [2, 4, 1, 1, 1, 0]
    assert ranking.why["owed_gpu_s"].tolist() == [3_240.0, 10_080.0, 0.0, 0.0, 0.0, 0.0]
    assert (ranking.order + 1).tolist() == [1, 2, 3, 4, 5, 6]


def test_singularity__what_is_over_goes_to_elastic_jobs() -> None:
    """The page's, without job 2: job 4 has what it asks for, and job 6 may have more than that."""
    assert ranked([*SIX[:1], *SIX[2:]], ((1, 2), (2, 1), (3, 4), (4, 1))).why["given_gpus"].tolist() == [2, 1, 4, 1, 1]
    more = ranked([*SIX[:1], *SIX[2:]], ((1, 2), (2, 1), (3, 4), (4, 1)), "1x10")
    assert more.why["given_gpus"].tolist() == [2, 1, 4, 1, 2]


def test_singularity__a_window_begins_with_nothing_received() -> None:
    """A job with a guarantee of 70 % that had the whole first hour is owed the same again in the second."""
    rows = [{"gpus": 1, "qos": "standard", "state": "RUNNING", "attained_gpu_s": 3_500.0}]
    first = ranked(rows, ((1, 1),), now_s=3_500.0)
    assert first.why["owed_gpu_s"].tolist() == [0.0]
    rows = [{**rows[0], "attained_gpu_s": 3_600.0}]
    second = ranked(rows, ((1, 1),), now_s=3_600.0, carry=first.carry)
    assert second.why["owed_gpu_s"].tolist() == [2_520.0]
    rows = [{**rows[0], "attained_gpu_s": 4_600.0}]
    assert ranked(rows, ((1, 1),), now_s=4_600.0, carry=second.carry).why["owed_gpu_s"].tolist() == [1_520.0]


def test_singularity__of_one_tier_who_can_wait_least_goes_first() -> None:
    """Job 2 got half of its hour, job 1 nothing: job 1 goes first though it came later."""
    rows = [{"gpus": 1, "qos": "standard", "submit_s": 100.0},
            {"gpus": 1, "qos": "standard", "attained_gpu_s": 1_200.0}]  # fmt: skip
    assert (ranked(rows, (), "1x1").order + 1).tolist() == [1, 2]


def test_singularity__a_job_that_may_not_be_stopped_keeps_its_gpus() -> None:
    """Two GPUs, both of job 1: the premium job waits."""
    rows = [{"gpus": 2, "state": "RUNNING", "comment": "slurmsched: preempt=no min_gpus=1 max_gpus=2"},
            {"gpus": 2, "qos": "premium"}]  # fmt: skip
    assert ranked(rows, ((1, 2),), "1x2").why["given_gpus"].tolist() == [2, 0]


def test_grown_in_turn__is_even() -> None:
    """Five GPUs to jobs that ask for 2 and 4: the one with the least of that grows."""
    one, asked = np.array([1, 1]), np.array([2, 4])
    given, free = grown_in_turn(one, asked, np.array([8, 8]), 5)
    assert (given.tolist(), free) == ([3, 4], 0)
    assert grown_in_turn(one, asked, asked, 5)[1] == 1


@pytest.mark.parametrize("text", ["premium", "premium=2", "premium=much"])
def test_singularity__refuses_what_is_no_share(text: str) -> None:
    """The error names the parameter."""
    with pytest.raises(ConfigError, match=r"policy\.guarantees"):
        Singularity(guarantees=(text,))


@pytest.mark.parametrize(("qos", "ends_s"), [("", [1_000.0, 1_100.0]), ("premium", [1_100.0, 110.0])])
def test_singularity__a_replay_knows_the_qos_of_the_trace(qos: str, ends_s: list[float]) -> None:
    """A premium job that comes at 10 s has the GPU at once; without its QOS it waits."""
    trace = Trace.of([1, 2], [1, 1], [0.0, 10.0], [1_000.0, 100.0], qos=["", qos])
    request = ReplayRequest(cluster="1x1", policy="singularity:interval_s=10", backfill="skip")
    assert ReplaySession(trace, request).run().cluster.endings()[0].tolist() == ends_s

"""Discretized 2D-LAS: queues by attained service, FIFO inside, starving jobs promoted."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurmsched.errors import ConfigError
from slurmsched.model import Ranking, Snapshot
from slurmsched.policies.discretized_las import DiscretizedLas
from slurmsched.testing import check_policy, snapshot

HOUR = 3_600.0


def order(policy: DiscretizedLas, given: Snapshot) -> list[int]:
    """Job ids as ranked."""
    return given.jobs.job_id[policy.rank(given).order].tolist()


def next_quantum(before: Ranking, rows: list[dict[str, Any]], now_s: float) -> Snapshot:
    """The snapshot after `before`, its carry read back from JSON as the ledger does."""
    return replace(snapshot(rows, now_s=now_s), carry=json.loads(json.dumps(dict(before.carry))))


def test_discretized_las__queue_goes_before_submission() -> None:
    """A job that attained less than the first threshold passes an older one that attained more."""
    given = snapshot([{"job_id": 1, "executed_s": HOUR, "submit_s": 0.0}, {"job_id": 2, "submit_s": 500.0}])
    assert order(DiscretizedLas(), given) == [2, 1]


def test_discretized_las__gpus_count_as_service() -> None:
    """8 GPUs for 500 s are 4,000 GPU s, past a threshold of 3,250 that 3,000 s on one GPU do not reach."""
    given = snapshot([{"job_id": 1, "executed_s": 500.0, "gpus": 8}, {"job_id": 2, "executed_s": 3_000.0, "gpus": 1}])
    assert DiscretizedLas().rank(given).why["queue"].tolist() == [1, 0]


@pytest.mark.parametrize(("attained_gpu_s", "queue"), [(3_249.0, 0), (3_250.0, 1), (7_199.0, 1), (7_200.0, 2)])
def test_discretized_las__drops_on_reaching_a_threshold(attained_gpu_s: float, queue: int) -> None:
    """A job leaves its queue when its service reaches the limit, not after it (as the released simulator)."""
    ranking = DiscretizedLas((3_250.0, 7_200.0)).rank(snapshot([{"attained_gpu_s": attained_gpu_s}]))
    assert ranking.why["queue"].tolist() == [queue]


@pytest.mark.parametrize("fifo_by", ["start", "arrival", "submit"])
def test_discretized_las__never_started_jobs_keep_submission_order(fifo_by: str) -> None:
    """Among jobs that never ran all three FIFO orders are submission order, then job id."""
    rows = [{"job_id": 1, "submit_s": 9.0}, {"job_id": 2, "submit_s": 5.0}, {"job_id": 3, "submit_s": 5.0}]
    assert order(DiscretizedLas(fifo_by=fifo_by), snapshot(rows)) == [2, 3, 1]


def test_discretized_las__by_start_the_first_started_goes_first() -> None:
    """fifo_by="start": first start, even if submitted later; a job that never started comes last."""
    rows = [
        {"job_id": 1, "submit_s": 0.0},
        {"job_id": 2, "submit_s": 10.0, "state": "RUNNING", "start_s": 70.0},
        {"job_id": 3, "submit_s": 20.0, "state": "RUNNING", "start_s": 60.0},
    ]
    assert order(DiscretizedLas(fifo_by="start"), snapshot(rows, now_s=100.0)) == [3, 2, 1]


def test_discretized_las__first_start_is_remembered_over_a_requeue() -> None:
    """A requeue clears Slurm's start time; the order by first start stays."""
    policy = DiscretizedLas(fifo_by="start")
    ran = [{"job_id": i, "submit_s": 0.0, "state": "RUNNING", "start_s": start} for i, start in ((1, 50.0), (2, 40.0))]
    first = policy.rank(snapshot(ran, now_s=60.0))
    waits = [{"job_id": i, "first_submit_s": 0.0, "submit_s": 61.0, "executed_s": 10.0} for i in (1, 2)]
    assert order(policy, next_quantum(first, waits, 120.0)) == [2, 1]


def test_discretized_las__by_arrival_running_jobs_go_first() -> None:
    """fifo_by="arrival": a running job goes before older waiting ones of its queue, so it is not preempted by them."""
    rows = [{"job_id": 1, "submit_s": 0.0}, {"job_id": 2, "submit_s": 9.0, "state": "RUNNING", "start_s": 10.0}]
    assert order(DiscretizedLas(fifo_by="arrival"), snapshot(rows, now_s=20.0)) == [2, 1]


def test_discretized_las__by_arrival_a_demoted_job_queues_at_the_end() -> None:
    """A running job that just dropped stands behind the jobs that wait in its new queue, until the next quantum."""
    policy = DiscretizedLas((100.0,), fifo_by="arrival")
    fresh = {"job_id": 1, "state": "RUNNING", "start_s": 0.0, "executed_s": 90.0}
    low = {"job_id": 2, "submit_s": 5.0, "executed_s": 200.0}
    first = policy.rank(snapshot([fresh, low], now_s=90.0))
    second = policy.rank(next_quantum(first, [fresh | {"executed_s": 150.0}, low], 150.0))
    third = policy.rank(next_quantum(second, [fresh | {"executed_s": 210.0}, low], 210.0))
    assert [r.order.tolist() for r in (first, second, third)] == [[0, 1], [1, 0], [0, 1]]


def test_discretized_las__by_arrival_a_preempted_job_heads_the_waiting_ones() -> None:
    """A job preempted inside its queue goes before jobs of it that have waited since they came."""
    policy = DiscretizedLas(fifo_by="arrival")
    waiting = {"job_id": 1, "submit_s": 0.0}
    first = policy.rank(
        snapshot([waiting, {"job_id": 2, "submit_s": 9.0, "state": "RUNNING", "start_s": 10.0}], now_s=20.0)
    )
    preempted = {"job_id": 2, "first_submit_s": 9.0, "submit_s": 30.0, "executed_s": 20.0}
    assert order(policy, next_quantum(first, [waiting, preempted], 40.0)) == [2, 1]


def test_discretized_las__promotes_after_waiting_knob_times_its_run_time() -> None:
    """It ran 4,000 s; with knob 2 it returns to queue 0 once it has waited 8,000 s, not before."""
    policy = DiscretizedLas((3_250.0,), promote_knob=2.0)
    queues = [
        policy.rank(snapshot([{"executed_s": 4_000.0, "waiting_s": waited}])).why["queue"].tolist()
        for waited in (7_999.0, 8_000.0)
    ]
    assert queues == [[1], [0]]


def test_discretized_las__promotion_restarts_the_count() -> None:
    """After promotion service counts from 0: 3,000 more GPU s keep the job in queue 0, 3,250 drop it again."""
    policy = DiscretizedLas((3_250.0,), promote_knob=1.0)
    ranking = policy.rank(snapshot([{"executed_s": 4_000.0, "waiting_s": 4_000.0}], now_s=9_000.0))
    seen = []
    for more_s in (3_000.0, 3_250.0):
        row = {"state": "RUNNING", "start_s": 9_000.0, "executed_s": 4_000.0 + more_s}
        ranking = policy.rank(next_quantum(ranking, [row], 9_000.0 + more_s))
        seen.append((ranking.why["queue"].tolist(), ranking.why["service_gpu_s"].tolist()))
    assert seen == [([0], [3_000.0]), ([1], [3_250.0])]


def test_discretized_las__promoted_job_is_not_promoted_again_before_it_ran() -> None:
    """Waiting on in queue 0 changes nothing: the job has not run since its promotion."""
    policy = DiscretizedLas((3_250.0,), promote_knob=1.0)
    row = {"executed_s": 4_000.0, "waiting_s": 4_000.0}
    first = policy.rank(snapshot([row], now_s=9_000.0))
    second = policy.rank(next_quantum(first, [row | {"waiting_s": 5_000.0}], 10_000.0))
    assert (first.why["promoted"].tolist(), second.why["promoted"].tolist()) == ([True], [False])


def test_discretized_las__id_used_again_remembers_nothing() -> None:
    """Slurm's job ids wrap: another first submission is another job, with no service forgiven."""
    policy = DiscretizedLas((3_250.0,), promote_knob=1.0)
    first = policy.rank(snapshot([{"job_id": 7, "executed_s": 4_000.0, "waiting_s": 4_000.0}]))
    other = next_quantum(first, [{"job_id": 7, "submit_s": 99.0, "executed_s": 4_000.0}], 5_000.0)
    assert policy.rank(other).why["queue"].tolist() == [1]


def test_discretized_las__carry_drops_jobs_that_are_gone() -> None:
    """Only jobs that ran and still exist are remembered, so the carry does not grow."""
    rows = [
        {"job_id": 1, "state": "RUNNING", "start_s": 0.0},
        {"job_id": 2, "state": "COMPLETED", "start_s": 0.0, "executed_s": 5.0},
        {"job_id": 3},
    ]
    assert DiscretizedLas().rank(snapshot(rows, now_s=10.0)).carry["job_id"] == [1]


@pytest.mark.parametrize(
    ("parameters", "key"),
    [
        ({"thresholds_gpu_s": (10.0, 5.0)}, "policy.thresholds_gpu_s"),
        ({"thresholds_gpu_s": (5.0, 5.0)}, "policy.thresholds_gpu_s"),
        ({"thresholds_gpu_s": (-5.0, 5.0)}, "policy.thresholds_gpu_s"),
        ({"thresholds_gpu_s": ("1h",)}, "policy.thresholds_gpu_s"),
        ({"thresholds_gpu_s": 3_600}, "policy.thresholds_gpu_s"),
        ({"promote_knob": 0.0}, "policy.promote_knob"),
        ({"promote_knob": math.nan}, "policy.promote_knob"),
        ({"fifo_by": "size"}, "policy.fifo_by"),
        ({"dimension": "3d"}, "policy.dimension"),
    ],
)
def test_discretized_las__refuses_bad_parameters(parameters: dict[str, Any], key: str) -> None:
    """A parameter out of range is a ConfigError that names the setting."""
    with pytest.raises(ConfigError) as caught:
        DiscretizedLas(**parameters)
    assert caught.value.key == key


@pytest.mark.parametrize("fifo_by", ["start", "arrival", "submit"])
@pytest.mark.parametrize("promote_knob", [math.inf, 0.5])
def test_discretized_las__conforms(fifo_by: str, promote_knob: float) -> None:
    """Pure, repeatable, blind to row order, total: every rule of check_policy, with every parameter."""
    assert check_policy(DiscretizedLas(fifo_by=fifo_by, promote_knob=promote_knob)) is None


def test_discretized_las__in_one_dimension_gpus_do_not_count() -> None:
    """1D-LAS: 2,000 s on 8 GPUs are below a threshold of 3,250 s, on which 2D counts 16,000 GPU s."""
    given = snapshot([{"executed_s": 2_000.0, "gpus": 8, "state": "RUNNING", "start_s": 0.0}], now_s=2_000.0)
    one, two = DiscretizedLas(dimension="1d"), DiscretizedLas()
    queues = [policy.rank(given).why["queue"].tolist() for policy in (one, two)]
    assert queues == [[0], [2]]
    assert one.rank(given).why["service_s"].tolist() == [2_000.0]
    assert one.next_change_s(given, one.rank(given), np.array([True])) == 2_000.0 + 1_250.0


def test_discretized_las__in_one_dimension_conforms() -> None:
    """Every rule that all policies keep."""
    check_policy(DiscretizedLas(dimension="1d", promote_knob=2.0))

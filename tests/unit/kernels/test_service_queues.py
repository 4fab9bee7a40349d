"""2D-LAS and its sort, on a fixed set of small queues."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurmsched.kernels.service_queues import las_by_column, las_rank, next_drop, next_overtaking, sort_rows
from slurmsched.model import Ranking, Snapshot
from slurmsched.policies import discretized_las
from slurmsched.policies.discretized_las import DiscretizedLas
from slurmsched.testing import snapshot
from tests.reference import las
from tests.reference import show as reference

STATES = ("PENDING", "RUNNING", "COMPLETING", "COMPLETED")


def test_sort_rows__gives_one_order_wherever_it_begins() -> None:
    """Sorted by keys, ties by row: by the merge sort that is compiled, and by what runs in its place uncompiled."""
    chance = np.random.default_rng(1)
    for rows in range(40):
        keys = chance.choice([0.0, 1.0, 2.0, np.inf], (rows, 2))
        order = chance.permutation(rows)
        for sort, begun in ((sort_rows.plain, order.copy()), (sort_rows, order)):
            sort(keys, begun)
            assert begun.tolist() == reference.sort_rows(keys.tolist())


def queue_at(quantum: int, ids: list[int], seed: int) -> Snapshot:
    """Jobs that run, wait, end or were preempted. A job keeps its submission, and its run time never falls."""
    rows, now_s = [], 10_000.0 + 600.0 * quantum
    for job_id in ids:
        of_job, chance = np.random.default_rng([seed, job_id]), np.random.default_rng([seed, job_id, quantum])
        ran_s = of_job.choice([0.0, 0.0, 300.0, 4_000.0], 6)[: quantum + 1].sum()
        state = STATES[chance.choice(4, p=[0.45, 0.45, 0.05, 0.05])]
        rows.append({
            "job_id": job_id, "submit_s": float(of_job.integers(5)), "gpus": int(of_job.integers(1, 9)), "state": state,
            "executed_s": ran_s, "waiting_s": float(chance.choice([0.0, 400.0, 5_000.0])),
            "start_s": now_s - 50.0 if state == "RUNNING" and chance.random() < 0.8 else np.nan,
        })  # fmt: skip
    given = snapshot(rows, now_s=now_s)
    return replace(given, jobs=given.jobs.take(np.argsort([*ids])[::-1] if quantum == 2 else np.arange(len(ids))))


@pytest.mark.parametrize("rank", [las_rank, las_rank.plain, las_by_column], ids=["kernel", "plain", "columns"])
@pytest.mark.parametrize("fifo_by", ["start", "arrival", "submit"])
def test_las_rank__agrees_with_reference(fifo_by: str, rank: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same order and the same memory over three quanta, while jobs come and go and rows change places."""
    monkeypatch.setattr(discretized_las, "las_rank", rank)
    for seed in range(40):
        chance, past, ranking = np.random.default_rng(seed), las.Past(), Ranking(np.arange(0))
        policy = DiscretizedLas((2_000.0, 20_000.0), float(chance.choice([0.3, 2.0, np.inf])), fifo_by)
        for quantum in range(3):
            ids = chance.permutation(8)[: chance.integers(1, 9)].tolist()
            cluster = replace(queue_at(quantum, ids, seed), carry=ranking.carry)
            ranking = policy.rank(cluster)
            order, past = las.rank(policy, cluster, past)
            assert ranking.order.tolist() == order
            kept = {name: [each[name] for _, each in sorted(past.items())] for name in next(iter(past.values()), ())}
            by_id = np.argsort(ranking.carry["job_id"])
            assert {name: np.array(ranking.carry[name])[by_id].tolist() for name in kept} == kept


def test_next_drop__is_the_soonest_of_those_that_count() -> None:
    """Thresholds 10 and 30. Service 4 at rate 2 drops in 3 s, service 12 at rate 6 in 3 s to the lower queue."""
    service, rate, thresholds = np.array([4.0, 12.0, 40.0]), np.array([2, 6, 1], np.int32), np.array([10.0, 30.0])

    def drops(counts: list[bool], least: int) -> float:
        return next_drop(service, rate, np.array(counts), thresholds, least)

    assert drops([True, False, True], 0) == 3.0
    assert drops([True, False, False], 2) == 13.0  # to the lowest queue
    assert drops([False, True, False], 0) == 3.0
    assert drops([False, False, True], 0) == np.inf  # no queue is lower


def test_next_overtaking__counts_the_queues_of_those_that_wait() -> None:
    """A job that runs drops to a queue in which another waits; where all run, only the last queue counts."""
    rate, thresholds = np.array([2, 1], np.int32), np.array([10.0, 30.0])

    def overtakes(service: list[float], running: list[bool]) -> float:
        return next_overtaking(np.array(service), rate, np.array(running), thresholds)

    assert overtakes([4.0, 12.0], [True, False]) == 3.0
    assert overtakes([4.0, 12.0], [True, True]) == 13.0
    assert overtakes([50.0, 40.0], [True, False]) == np.inf

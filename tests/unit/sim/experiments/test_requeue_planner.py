"""Who gives GPUs back to more urgent jobs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slurmsched.model import Ranking, Snapshot
from slurmsched.placements.consolidated import Consolidated
from slurmsched.planning.planner import Planner
from slurmsched.policies.fifo import Fifo
from slurmsched.sim.experiments.slurmctld_setup import RequeuePlanner
from slurmsched.testing import snapshot

NOW_S = 1000.0
BARE = RequeuePlanner(Planner(Fifo()), Consolidated())


def victims(taken: Snapshot, order: list[int], movable: list[int] | None = None) -> list[int]:
    """Job ids requeued, jobs ranked by id in `order`."""
    jobs = taken.jobs
    rows = np.searchsorted(jobs.job_id, order)
    may = np.ones(len(jobs), np.bool_) if movable is None else np.isin(jobs.job_id, movable)
    return [action.job_id for action in BARE.requeues(taken, Ranking(rows), may)]


def cluster(waiting_gpus: int = 8, **victim: Any) -> Snapshot:
    """Two full 8-GPU nodes, jobs 1 and 2 with 4 GPUs each on n1, job 3 on all of n2; job 9 waits."""
    run = {"state": "RUNNING", "run_s": 400.0, "requeueable": True, "batch": True, "priority": 5, "gpu_request": "gpu"}
    rows = [run | {"job_id": 1, "gpus": 4}, run | {"job_id": 2, "gpus": 4} | victim, run | {"job_id": 3, "gpus": 8}]
    rows.append({"job_id": 9, "gpus": waiting_gpus, "priority": 5, "eligible_s": 0.0, "gpu_request": "gpu"})
    held = [(1, "n1", 4), (2, "n1", 4), (3, "n2", 8)]
    return snapshot(
        rows, "2x8", now_s=NOW_S, allocations=[dict(zip(("job_id", "node", "gpus"), row, strict=True)) for row in held]
    )  # fmt: skip


def test_requeues__takes_the_least_urgent_that_suffice() -> None:
    """4 GPUs: job 2 goes, which is last. 8 GPUs with job 3 last: job 3 goes, jobs 1 and 2 stay."""
    assert victims(cluster(4), [9, 1, 3, 2]) == [2]
    assert victims(cluster(8), [9, 1, 2, 3]) == [3]


def test_requeues__takes_a_whole_gang_from_several_jobs() -> None:
    """8 GPUs of n1 are those of jobs 1 and 2; least urgent first."""
    assert victims(cluster(8), [3, 9, 1, 2]) == [2, 1]


def test_requeues__nobody_for_a_less_urgent_or_a_gang_that_cannot_fit() -> None:
    """Job 9 ranks last; or it needs more than what less urgent jobs hold on one node."""
    assert victims(cluster(4), [1, 2, 3, 9]) == []
    assert victims(cluster(8), [1, 3, 9, 2]) == []


@pytest.mark.parametrize(
    "victim",
    [
        {"requeueable": False},
        {"batch": False},
        {"cron": True},
        {"run_s": 299.0},
        {"het_job_id": 2},
        {"comment": "slurmsched: preempt=no"},
        {"state": "SUSPENDED"},
    ],
)
def test_requeues__spares_jobs_slurm_or_reason_would_not_requeue(victim: dict[str, Any]) -> None:
    """Job 2 may not go, so job 1, its neighbour, is the last that may."""
    assert victims(cluster(4, **victim), [9, 3, 1, 2]) == [1]


def test_requeues__spares_jobs_out_of_scope() -> None:
    """Only movable jobs take part, on either side."""
    assert victims(cluster(4), [9, 3, 1, 2], movable=[1, 3, 9]) == [1]
    assert victims(cluster(4), [9, 3, 1, 2], movable=[1, 2, 3]) == []


def test_requeues__say_who_and_why() -> None:
    """The action carries the submission seen, so that an id used again is safe."""
    (action,) = BARE.requeues(cluster(4), Ranking(np.array([3, 0, 2, 1])), np.ones(4, np.bool_))
    assert (action.job_id, action.submit_s, action.reason) == (2, 0.0, "more urgent jobs get its GPUs; rank 4")


def test_requeues__spares_a_job_whose_gpus_nobody_can_place() -> None:
    """Its details could not be read, and a more urgent job finds idle GPUs: it would be requeued for nothing."""
    run = {"job_id": 1, "state": "RUNNING", "run_s": 400.0, "requeueable": True, "gpus": 4}
    assert victims(snapshot([run, {"job_id": 9, "eligible_s": 0.0}], "1x8", now_s=NOW_S), [9, 1]) == []

"""Plans that name the target: who is placed, and when the next plan can differ."""

from __future__ import annotations

import math
from typing import Any

import pytest

from slurmsched.errors import ConfigError
from slurmsched.estimators.hint import Hint
from slurmsched.model import Assignments, Estimates, Ranking, Snapshot, Wake
from slurmsched.placements.count import Count
from slurmsched.planning.direct import DirectPlanner, Filling
from slurmsched.policies.discretized_las import DiscretizedLas
from slurmsched.policies.fifo import Fifo
from slurmsched.policies.gittins import Gittins
from slurmsched.policies.sjf import Sjf
from slurmsched.policies.smallest import Smallest
from slurmsched.policies.srtf import Srtf
from slurmsched.testing import snapshot

# Job 1 runs on 5 of 8 GPUs; 2 asks for 4, 3 for 2, 4 for 3.
BUSY = snapshot(
    [
        {"job_id": 1, "state": "RUNNING", "gpus": 5, "start_s": 0.0, "end_s": 100.0, "time_limit_s": 100.0,
         "executed_s": 50.0, "priority": 9},
        {"job_id": 2, "submit_s": 1.0, "gpus": 4, "time_limit_s": 60.0, "priority": 9},
        {"job_id": 3, "submit_s": 2.0, "gpus": 2, "time_limit_s": 500.0, "priority": 9},
        {"job_id": 4, "submit_s": 3.0, "gpus": 3, "time_limit_s": 40.0, "priority": 9},
    ], "1x8", now_s=50.0, allocations=[{"job_id": 1, "node": "n1", "gpus": 5}],
)  # fmt: skip


def placed(given: Snapshot, planner: DirectPlanner) -> list[int]:
    target = planner.plan(given).target
    assert target is not None
    return given.jobs.job_id[target.rows].tolist()


@pytest.mark.parametrize(
    ("filling", "ids"),
    [("block", [1]), ("skip", [1, 3]), ("easy", [1, 3])],
)
def test_direct__fills_as_told(filling: Filling, ids: list[int]) -> None:
    """Job 2 does not fit. First fit takes 3; EASY too: at 100 s, when 2 can start, 8 - 4 GPUs are left for 3."""
    assert placed(BUSY, DirectPlanner(Fifo(), Count(), filling)) == ids


def test_direct__running_jobs_keep_their_gpus_unless_the_policy_preempts() -> None:
    """By remaining time 4 (40 s) and 1 (50 s) go first, then 2; SJF would put 4 and 2 first but takes nothing back."""
    assert placed(BUSY, DirectPlanner(Srtf(), Count())) == [4, 1]
    assert placed(BUSY, DirectPlanner(Sjf(), Count(), "block")) == [1, 4]


@pytest.mark.parametrize(
    ("planner", "wake"),
    [
        (DirectPlanner(Fifo(), Count(), "block"), Wake(free_gpus=4, arrivals=False)),
        (DirectPlanner(Sjf(), Count(), "block"), Wake(free_gpus=4)),
        (DirectPlanner(Fifo(), Count(), "skip"), Wake(free_gpus=3)),
        (DirectPlanner(Srtf(), Count()), Wake(free_gpus=2, takes=True, lets_in_gpu_s=math.inf)),
        (
            DirectPlanner(DiscretizedLas((300.0,)), Count()),
            Wake(at_s=60.0, free_gpus=2, takes=True, lets_in_gpu_s=300.0),
        ),
        (
            DirectPlanner(DiscretizedLas((300.0,), dimension="1d"), Count()),
            Wake(at_s=300.0, free_gpus=2, takes=True),
        ),
        (DirectPlanner(Gittins((300.0,)), Count()), Wake(at_s=60.0, takes=True)),
    ],
)
def test_direct__says_when_the_next_plan_can_differ(planner: DirectPlanner, wake: Wake) -> None:
    """Blocked: when the head fits. First fit: when the least one does. LAS: job 1 has 300 GPU s at 60, 300 s at 300 s.

    SRTF runs 4 and 1, with 2 and 3 behind them. LAS runs 1 and 3, 2 between them. Gittins orders anew at all events.
    Who comes holds its GPUs up to the first threshold, in GPU s if that is in GPU s; under SRTF for good.
    """
    assert planner.plan(BUSY).wake == wake


def test_direct__nothing_is_awaited_while_no_job_waits() -> None:
    """Whoever comes starts, as long as there is room."""
    idle = snapshot([{"job_id": 1, "priority": 9}], "1x8")
    assert DirectPlanner(DiscretizedLas(), Count()).plan(idle).wake == Wake(fits=True)


def test_direct__a_queue_is_left_where_nothing_reorders_it() -> None:
    """FIFO behind a blocked head: 2, 3, 4. Under SJF a job that comes may go first, so there is none."""
    queue = DirectPlanner(Fifo(), Count(), "block").plan(BUSY).queue
    assert queue is not None
    assert BUSY.jobs.job_id[queue].tolist() == [2, 3, 4]
    assert DirectPlanner(Sjf(), Count(), "block").plan(BUSY).queue is None


def test_direct__a_steady_policy_leaves_a_queue_with_needs() -> None:
    """By fewest GPUs 3 and 4 run; 2 takes 4 GPUs when 3 more are free, 1 gets its 5 after it. Gittins leaves none."""
    plan = DirectPlanner(Smallest(), Count()).plan(BUSY)
    assert plan.queue is not None
    assert BUSY.jobs.job_id[plan.queue].tolist() == [2, 1]
    assert plan.queue_needs.tolist() == [4, 5]
    assert DirectPlanner(Gittins(), Count()).plan(BUSY).queue is None


def test_direct__told_of_each_order_it_waits_for_every_change() -> None:
    """2D-LAS with a threshold at 300 and at 400 GPU s: jobs wait in the first queue, and no queue is left."""
    plan = DirectPlanner(DiscretizedLas((300.0, 400.0)), Count(), each_order=True).plan(BUSY)
    assert plan.queue is None
    assert plan.wake == Wake(at_s=60.0, takes=True)


class Learned:
    """An estimator that may change its mind."""

    def estimate(self, snapshot: Snapshot) -> Estimates:
        return Hint().estimate(snapshot)


def test_direct__an_estimator_that_may_change_leaves_no_queue() -> None:
    """Jobs may change places when one ends, which the policy cannot foresee."""
    plan = DirectPlanner(Srtf(Learned()), Count()).plan(BUSY)
    assert plan.queue is None
    assert plan.wake == Wake(takes=True)


def test_direct__who_could_take_gpus_from_jobs_after_it_needs_less() -> None:
    """Service: 1 has had most. 2 runs before it on 4 of 8, 3 on 2; with 2 held by 4 behind it, 1 needs 5 - 2 = 3."""
    rows = [{"job_id": i, "gpus": gpus, "time_limit_s": limit_s, "priority": 9}
            for i, gpus, limit_s in ((1, 5, 30.0), (2, 4, 10.0), (3, 2, 20.0), (4, 2, 40.0))]  # fmt: skip
    plan = DirectPlanner(Srtf(), Count()).plan(snapshot(rows, "1x8"))
    assert plan.queue_needs.tolist() == [3]


class NoOutlook:
    """A placement without backfill."""

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        return Count().place(snapshot, ranking)


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ((Fifo(), Count(), "some"), "must be one of skip, block, easy"),
        ((Fifo(), NoOutlook(), "easy"), "NoOutlook cannot backfill"),
        ((Fifo(), NoOutlook(), "conservative"), "NoOutlook cannot backfill"),
        ((Srtf(), Count(), "easy"), "Srtf preempts"),
    ],
)
def test_direct__refuses_what_it_cannot_do(parts: tuple[Any, ...], match: str) -> None:
    """The filling, the placement or the policy is named."""
    with pytest.raises(ConfigError, match=match):
        DirectPlanner(*parts)

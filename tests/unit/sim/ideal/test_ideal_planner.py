"""Plans that name the target: who is placed, and when the next plan can differ."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from slurmsched.errors import ConfigError
from slurmsched.estimators.requested_time import Hint
from slurmsched.model import Assignments, Estimates, Ranking, Snapshot
from slurmsched.placements.count import Count
from slurmsched.policies.discretized_las import DiscretizedLas
from slurmsched.policies.fifo import Fifo
from slurmsched.policies.gittins import Gittins
from slurmsched.policies.sjf import Sjf
from slurmsched.policies.smallest import Smallest
from slurmsched.policies.srtf import Srtf
from slurmsched.sim.ideal.ideal_plan import Validity
from slurmsched.sim.ideal.ideal_planner import DirectPlanner, Filling
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
    ("planner", "next_look_s", "validity"),
    [
        (DirectPlanner(Sjf(), Count(), "block"), math.inf, Validity(free_gpus=4)),
        (DirectPlanner(Fifo(), Count(), "skip"), math.inf, Validity(free_gpus=3)),
        (DirectPlanner(Gittins((300.0,)), Count()), 60.0, Validity(preempts=True)),
        (
            DirectPlanner(Fifo(), Count(), "block"),
            math.inf,
            Validity(free_gpus=4, arrivals=False, queue=np.array([1, 2, 3])),
        ),
        (
            DirectPlanner(Srtf(), Count()),
            math.inf,
            Validity(free_gpus=2, preempts=True, keeps_gpu_s=math.inf, queue=np.array([1, 2]), needs=np.array([4, 2])),
        ),
        (
            DirectPlanner(DiscretizedLas((300.0,)), Count()),
            60.0,
            Validity(free_gpus=2, preempts=True, keeps_gpu_s=300.0, queue=np.array([1, 3]), needs=np.array([2, 3])),
        ),
        (
            DirectPlanner(DiscretizedLas((300.0,), dimension="1d"), Count()),
            300.0,
            Validity(free_gpus=2, preempts=True, queue=np.array([1, 3]), needs=np.array([2, 3])),
        ),
    ],
)
def test_direct__says_when_the_next_plan_can_differ(
    planner: DirectPlanner, next_look_s: float, validity: Validity
) -> None:
    """Blocked: when the head fits. First fit: when the least one does. LAS: job 1 has 300 GPU s at 60, 300 s at 300 s.

    SRTF runs 4 and 1, with 2 and 3 behind them. LAS runs 1 and 3, 2 between them. Gittins orders anew at all events.
    A job that comes keeps its GPUs up to the first threshold, if that counts GPU s; under SRTF for good.
    """
    plan = planner.plan(BUSY)
    assert plan.next_look_s == next_look_s
    assert told(plan.validity) == told(validity)


def told(validity: Validity) -> dict[str, Any]:
    """Its fields as plain values."""
    values = {spec.name: getattr(validity, spec.name) for spec in fields(validity)}
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}


def test_direct__nothing_is_awaited_while_no_job_waits() -> None:
    """Jobs that come start, as long as there is room."""
    idle = snapshot([{"job_id": 1, "priority": 9}], "1x8")
    assert told(DirectPlanner(DiscretizedLas(), Count()).plan(idle).validity) == told(Validity(all_run=True))


def test_direct__a_queue_is_left_where_nothing_reorders_it() -> None:
    """FIFO behind a blocked head: 2, 3, 4. Under SJF a job that comes may go first, so there is none."""
    queue = DirectPlanner(Fifo(), Count(), "block").plan(BUSY).validity.queue
    assert queue is not None
    assert BUSY.jobs.job_id[queue].tolist() == [2, 3, 4]
    assert DirectPlanner(Sjf(), Count(), "block").plan(BUSY).validity.queue is None


def test_direct__a_policy_that_keeps_its_order_leaves_a_queue_with_needs() -> None:
    """By fewest GPUs 3 and 4 run; 2 takes 4 GPUs when 3 more are free, 1 gets its 5 after it. Gittins leaves none."""
    validity = DirectPlanner(Smallest(), Count()).plan(BUSY).validity
    assert validity.queue is not None
    assert BUSY.jobs.job_id[validity.queue].tolist() == [2, 1]
    assert validity.needs.tolist() == [4, 5]
    assert DirectPlanner(Gittins(), Count()).plan(BUSY).validity.queue is None


def test_direct__told_of_each_order_it_waits_for_every_change() -> None:
    """2D-LAS with a threshold at 300 and at 400 GPU s: jobs wait in the first queue, and no queue is left."""
    plan = DirectPlanner(DiscretizedLas((300.0, 400.0)), Count(), each_order=True).plan(BUSY)
    assert (plan.next_look_s, told(plan.validity)) == (60.0, told(Validity(preempts=True)))


class Learned:
    """An estimator that may change its mind."""

    def estimate(self, snapshot: Snapshot) -> Estimates:
        return Hint().estimate(snapshot)


def test_direct__an_estimator_that_may_change_leaves_no_queue() -> None:
    """Jobs may change places when one ends, which the policy cannot foresee."""
    plan = DirectPlanner(Srtf(Learned()), Count()).plan(BUSY)
    assert (plan.next_look_s, told(plan.validity)) == (math.inf, told(Validity(preempts=True)))


def test_direct__who_could_take_gpus_from_jobs_after_it_needs_less() -> None:
    """Service: 1 has had most. 2 runs before it on 4 of 8, 3 on 2; with 2 held by 4 behind it, 1 needs 5 - 2 = 3."""
    rows = [{"job_id": i, "gpus": gpus, "time_limit_s": limit_s, "priority": 9}
            for i, gpus, limit_s in ((1, 5, 30.0), (2, 4, 10.0), (3, 2, 20.0), (4, 2, 40.0))]  # fmt: skip
    plan = DirectPlanner(Srtf(), Count()).plan(snapshot(rows, "1x8"))
    assert plan.validity.needs.tolist() == [3]


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

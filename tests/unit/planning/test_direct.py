"""Plans that name the target: who is placed, and when the next plan can differ."""

from __future__ import annotations

from typing import Any

import pytest

from slurmsched.errors import ConfigError
from slurmsched.model import Assignments, Ranking, Snapshot, Wake
from slurmsched.placements.count import Count
from slurmsched.planning.direct import DirectPlanner, Filling
from slurmsched.policies.discretized_las import DiscretizedLas
from slurmsched.policies.fifo import Fifo
from slurmsched.policies.sjf import Sjf
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
        (DirectPlanner(Srtf(), Count()), Wake()),
        (DirectPlanner(DiscretizedLas((300.0,)), Count()), Wake(at_s=60.0)),
    ],
)
def test_direct__says_when_the_next_plan_can_differ(planner: DirectPlanner, wake: Wake) -> None:
    """Blocked: when the head fits. First fit: when the least one does. LAS: job 1 reaches 300 GPU s at 60 s."""
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

"""The hard age cap."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.config import ScopeConfig, StarvationConfig
from slurmsched.model import Ranking, Rights, Site
from slurmsched.planning.planner import Planner
from slurmsched.planning.priorities.order import aged_first
from slurmsched.policies.fifo import Fifo
from slurmsched.testing import snapshot

NOW_S = 100_000.0
JOBS = [
    {"job_id": 1, "waiting_s": 500.0},
    {"job_id": 2, "waiting_s": 8_000.0},
    {"job_id": 3, "waiting_s": 9_000.0},
    {"job_id": 4, "waiting_s": 9_000.0, "eligible_s": NOW_S - 60},
    {"job_id": 5, "waiting_s": 9_000.0, "state": "RUNNING"},
]


@pytest.mark.parametrize(
    ("cap_s", "expected"),
    [(0, [1, 2, 3, 4, 5]), (7_200, [3, 2, 1, 4, 5]), (8_500, [3, 1, 2, 4, 5]), (10_000, [1, 2, 3, 4, 5])],
)
def test_aged_first__who_waited_longest_beyond_the_cap_leads(cap_s, expected):
    """Not who runs, nor who could not have started all that time; 0 is no cap."""
    at = snapshot(JOBS, now_s=NOW_S)
    ranking = aged_first(Ranking(np.arange(5)), at, np.ones(5, np.bool_), cap_s)
    assert at.jobs.job_id[ranking.order].tolist() == expected


def test_aged_first__leaves_unmanaged_jobs_where_they_are():
    """What slurmsched may not touch it does not raise either."""
    at = snapshot(JOBS, now_s=NOW_S)
    managed = at.jobs.job_id != 3
    ranking = aged_first(Ranking(np.arange(5)), at, managed, 7_200)
    assert at.jobs.job_id[ranking.order].tolist() == [2, 1, 3, 4, 5]
    assert ranking.why["over_age_cap"].tolist() == [False, True, False, False, False]


def test_planner__age_cap_overrules_the_policy_and_says_so():
    """The reason of the write names it."""
    rows = [{"job_id": i, "submit_s": float(i), "waiting_s": 9_000.0 if i == 2 else 10.0} for i in (1, 2)]
    at = snapshot(rows, now_s=NOW_S, site=Site(rights=Rights.OPERATOR))
    capped = Planner(Fifo(), scope=ScopeConfig(partitions=("*",)), starvation=StarvationConfig(age_cap_s=3_600)).plan(
        at
    )
    assert [(action.job_id, "waited longer than the age cap" in action.reason) for action in capped.actions] == [
        (2, True)
    ]

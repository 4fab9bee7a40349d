"""Soft caps: who has more GPUs than its cap goes last, and is never held."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.config import ScopeConfig, SoftCaps
from slurmsched.config_file import parse_config
from slurmsched.config_text import default_toml, toml_value
from slurmsched.errors import ConfigError
from slurmsched.model import Ranking, Rights, Site
from slurmsched.planning.planner import Planner
from slurmsched.planning.priorities.soft_caps import beyond_caps, capped_last
from slurmsched.policies.fifo import Fifo
from slurmsched.testing import snapshot


def beyond(rows, allocations=(), **caps):
    """Ids of the jobs beyond these caps."""
    at = snapshot(rows, allocations=allocations)
    found = beyond_caps(Ranking(np.arange(len(rows))), at, SoftCaps(**caps))
    return at.jobs.job_id[found].tolist()


def test_beyond_caps__counts_what_runs_then_waiting_jobs_in_their_order():
    """A job beyond the cap uses none of it: a smaller one behind it may be within."""
    rows = [{"user": "a", "state": "RUNNING", "gpus": 4}, *({"user": "a", "gpus": gpus} for gpus in (2, 4, 2, 1)),
            {"user": "b", "gpus": 8}]  # fmt: skip
    assert beyond(rows, user={"gpu": 8}) == [3, 5]


@pytest.mark.parametrize(
    ("caps", "expected"),
    [
        ({"user": {"gpu": 4}}, [2]),
        ({"account": {"gpu": 4}}, [2, 3]),
        ({"qos": {"gpu": 11}}, [3]),
        ({"user": {"gpu": 4}, "named": {"user:a": {"gpu": 8}}}, []),
        ({"named": {"account:x": {"gpu": 0}}}, [1, 2, 3]),
    ],
)
def test_beyond_caps__of_users_accounts_and_qos(caps, expected):
    """A cap of one name stands in place of that of all."""
    rows = [{"user": user, "account": "x", "qos": "normal", "gpus": 4} for user in "aab"]
    assert beyond(rows, **caps) == expected


def test_beyond_caps__by_type_counts_only_gpus_of_that_type():
    """Of running jobs by what they hold, of waiting ones by what they name."""
    rows = [
        {"job_id": 1, "user": "a", "state": "RUNNING", "gpus": 2},
        {"job_id": 2, "user": "a", "gpus": 2, "gpu_request": "gpu:h100:2"},
        {"job_id": 3, "user": "a", "gpus": 2, "gpu_request": "gpu:a100:2"},
        {"job_id": 4, "user": "a", "gpus": 2, "gpu_request": "gpu:2"},
    ]
    held = [{"job_id": 1, "node": "n1", "gpu_type": "h100", "gpus": 2}]
    assert beyond(rows, held, user={"gpu:h100": 3}) == [2]


def test_beyond_caps__an_array_counts_with_all_its_tasks():
    """What comes behind it is beyond; the array itself is where its first task is."""
    rows = [{"user": "a", "gpus": 1, "array_tasks": 10}, {"user": "a", "gpus": 1}]
    assert beyond(rows, user={"gpu": 4}) == [2]


def test_capped_last__keeps_the_order_of_both_parts_and_leaves_unmanaged_jobs():
    """Nobody is held: every job is still in the ranking."""
    at = snapshot([{"user": "a", "gpus": 4}] * 4)
    managed = np.array([True, True, False, True])
    ranking = capped_last(Ranking(np.array([3, 2, 1, 0])), at, managed, SoftCaps(user={"gpu": 4}))
    assert ranking.order.tolist() == [3, 2, 1, 0]
    assert ranking.why["over_soft_cap"].tolist() == [True, True, False, False]
    first = capped_last(Ranking(np.array([1, 3, 2, 0])), at, managed, SoftCaps(named={"user:a": {"gpu": 3}}))
    assert first.order.tolist() == [2, 1, 3, 0]


def test_planner__writes_a_job_beyond_its_cap_behind_the_others():
    """And says why."""
    rows = [{"job_id": i, "user": user, "gpus": 4, "submit_s": float(i)} for i, user in ((1, "a"), (2, "a"), (3, "b"))]
    at = snapshot(rows, now_s=9.0, site=Site(rights=Rights.OPERATOR))
    plan = Planner(Fifo(), scope=ScopeConfig(partitions=("*",)), soft_caps=SoftCaps(user={"gpu": 4})).plan(at)
    assert at.jobs.job_id[plan.ranking.order].tolist() == [1, 3, 2]
    assert any("decided by soft cap" in action.reason or action.job_id == 3 for action in plan.actions)


@pytest.mark.parametrize(
    ("section", "key"),
    [({"user": {"gpus": 3}}, "soft_caps.user"), ({"named": {"alice": {"gpu": 3}}}, "soft_caps.named")],
)
def test_config__refuses_a_cap_of_nobody_or_nothing(section, key):
    """Naming what it must be."""
    with pytest.raises(ConfigError, match="must be") as error:
        parse_config({"soft_caps": section})
    assert error.value.key == key


def test_config_text__quotes_keys_with_a_colon():
    """So that what `config show` prints can be put into a file."""
    assert toml_value({"gpu": 16, "gpu:h100": 4}) == '{ gpu = 16, "gpu:h100" = 4 }'
    assert "user = {}" in default_toml()

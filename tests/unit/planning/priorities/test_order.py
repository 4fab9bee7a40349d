"""The hard age cap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slurmsched.config import IdleGpusConfig, LeverConfig, PreemptionConfig, ScopeConfig, SoftCaps, StarvationConfig
from slurmsched.config_file import parse_config
from slurmsched.config_text import default_toml, toml_value
from slurmsched.errors import ConfigError
from slurmsched.model import Ranking, Rights, Site
from slurmsched.planning.admin_comments import admin_comments
from slurmsched.planning.planner import Planner
from slurmsched.planning.priorities.order import aged_first, beyond_caps, capped_last, idle_jobs, some_idle
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


# Jobs that do not use their GPUs: who is judged, what is said, and whose waiting jobs go last.


IDLE = {"job_id": 1, "user": "ann", "account": "physics", "qos": "normal", "state": "R", "gpus": 4, "run_s": 8_000.0,
        "gpu_use": 0.01, "idle_gpus": 3.0, "node_list": "n1", "start_s": 0.0}  # fmt: skip

PROMETHEUS = {"source": "prometheus", "prometheus_url": "http://p", "every_s": 60}


@pytest.mark.parametrize(
    ("job", "settings", "expected"),
    [({}, {}, (True, True)), ({"gpu_use": 0.06}, {}, (False, True)),
     ({"gpu_use": 0.06}, {"below_pct": 7}, (True, True)), ({"idle_gpus": 0.0}, {}, (True, False)),
     ({"gpu_use": float("nan"), "idle_gpus": float("nan")}, {}, (False, False)),
     ({"run_s": 7_000.0}, {}, (False, False)), ({"run_s": 7_000.0}, {"after_s": 60}, (True, True)),
     ({"batch": False}, {}, (False, False)), ({"batch": False}, {"interactive": True}, (True, True)),
     ({"state": "PD"}, {}, (False, False)), ({}, {"except_users": ["ann"]}, (False, False)),
     ({}, {"except_accounts": ["physics"]}, (False, False)), ({}, {"except_partitions": ["gpu"]}, (False, False)),
     ({}, {"except_qos": ["normal"]}, (False, False)), ({}, {"except_qos": ["debug"]}, (True, True))],
)  # fmt: skip
def test_idle__is_who_runs_long_enough_and_is_not_spared(job: dict, settings: dict, expected: tuple) -> None:
    """Idle as a whole, and in part; what is not measured is neither."""
    jobs = snapshot(jobs=[IDLE | job]).jobs
    config = IdleGpusConfig(**settings)
    assert (idle_jobs(jobs, config)[0], some_idle(jobs, config)[0]) == expected


def test_comment__says_it_as_long_as_it_holds() -> None:
    """In counts that do not move with each measurement; nothing where it is off."""
    tell = IdleGpusConfig(tell=True)
    for job, text in (({}, "slurmsched: idle 3 of 4 GPUs"), ({"idle_gpus": float("nan")},
                      "slurmsched: idle GPUs, used less than 5 pct of the time")):  # fmt: skip
        assert admin_comments(snapshot(jobs=[IDLE | job]), tell) == {0: text}
    assert admin_comments(snapshot(jobs=[IDLE])) == {}
    assert admin_comments(snapshot(jobs=[IDLE | {"idle_gpus": 0.0, "gpu_use": 0.9}]), tell) == {}


def test_last__puts_the_users_waiting_jobs_behind_all_others() -> None:
    """Through the values of the lever, with the reason among the criteria; her running job is left alone."""
    waits = [
        {"job_id": job, "user": user, "submit_s": float(job), "priority": 1_000}
        for job, user in ((2, "ann"), (3, "bob"))
    ]
    site = Site(rights=Rights.ADMINISTRATOR)
    orders = []
    for last in (False, True):
        planner = Planner(Fifo(), scope=ScopeConfig(partitions=("*",)), lever=LeverConfig(admin_comment=False),
                          idle=IdleGpusConfig(last=last))  # fmt: skip
        plan = planner.plan(snapshot(jobs=[IDLE, *waits], site=site))
        orders.append([int(row) for row in plan.ranking.order if row])
        assert {action.job_id for action in plan.actions} <= {2, 3}
    assert orders == [[1, 2], [2, 1]]
    assert plan.ranking.why["idle_gpus"].tolist() == [False, True, False]
    assert plan.wanted_values[1] > plan.wanted_values[2]


@pytest.mark.parametrize(
    ("job", "settings", "requeued"),
    [
        ({}, {}, True),
        ({"comment": "slurmsched: preempt=yes"}, {}, False),  # it asked for no signal, and would lose all
        ({"gpu_use": 0.9}, {}, False),
        ({"batch": False}, {"interactive": True}, False),
        ({}, {"except_qos": ["normal"]}, False),
        ({}, {"requeue": False}, False),
    ],
)
def test_requeue__gives_the_gpus_of_an_idle_job_to_one_that_waits(
    job: dict[str, Any], settings: dict[str, Any], requeued: bool
) -> None:
    """Through preemption: first the signal that the job asked for, then the rest of the operation. The job came first,
    so that under fifo nobody would take its GPUs otherwise."""
    running = IDLE | {"requeueable": True, "comment": "slurmsched: preempt=yes ckpt=USR1@60", "submit_s": 1.0,
                      "nodes": 1, "gpu_request": "gpu:4"} | job  # fmt: skip
    waits = {"job_id": 2, "user": "bob", "submit_s": 2.0, "priority": 1_000, "gpus": 4, "nodes": 1,
             "gpu_request": "gpu:4", "time_limit_s": 600.0}  # fmt: skip
    held = {"job_id": 1, "node": "n1", "gpus": 4}
    given = snapshot([running, waits], "1x4", now_s=8_000.0, site=Site(rights=Rights.ADMINISTRATOR),
                     allocations=[held])  # fmt: skip
    planner = Planner(Fifo(), scope=ScopeConfig(partitions=("*",)), lever=LeverConfig(admin_comment=False),
                      preemption=PreemptionConfig(enabled=True, least_factor=0, restart_cost_s=0,
                                                  without_checkpoint=True),
                      idle=IdleGpusConfig(**{"requeue": True} | settings))  # fmt: skip
    plan = planner.plan(given)
    assert plan.ranking.order.tolist() == ([1, 0] if requeued else [0, 1])
    assert [step.kind for step in plan.actions if step.job_id == 1] == (["signal"] if requeued else [])


@pytest.mark.parametrize(
    ("section", "fault"),
    [({"idle_gpus": {"last": True}}, "needs measured_use.source"),
     ({"idle_gpus": {"tell": True}, "measured_use": {"source": "slurm"}}, "measured_use.every_s"),
     ({"idle_gpus": {"tell": True}, "measured_use": PROMETHEUS}, "window_s must be at least"),
     ({"idle_gpus": {"requeue": True}, "measured_use": PROMETHEUS | {"window_s": 7200}}, "needs preemption.enabled"),
     ({"idle_gpus": {"mail_command": ["mail"]}}, "needs idle_gpus.tell")],
)  # fmt: skip
def test_config__refuses_what_would_judge_without_a_measure(section: dict, fault: str) -> None:
    """What is missing is named."""
    with pytest.raises(ConfigError, match=fault):
        parse_config(section)


# Soft caps: who has more GPUs than its cap goes last, and is never held.


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

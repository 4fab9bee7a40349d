"""Jobs that do not use their GPUs: who is judged, what is said, and whose waiting jobs go last."""

from __future__ import annotations

from typing import Any

import pytest

from slurmsched.config import IdleGpusConfig, LeverConfig, PreemptionConfig, ScopeConfig
from slurmsched.config_file import parse_config
from slurmsched.errors import ConfigError
from slurmsched.model.snapshot import Rights, Site
from slurmsched.planning.admin_comments import admin_comments
from slurmsched.planning.idle_gpus import idle_jobs, some_idle
from slurmsched.planning.planner import Planner
from slurmsched.policies.fifo import Fifo
from slurmsched.testing.builders import snapshot

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

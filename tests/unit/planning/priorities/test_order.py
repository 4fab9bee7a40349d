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
from slurmsched.planning.priorities.order import (
    aged_first,
    beyond_caps,
    capped_last,
    decision,
    idle_jobs,
    in_tiers,
    queue_order,
    some_idle,
    tier_between,
    unread_tiers,
    with_decider,
)
from slurmsched.policies.fifo import Fifo
from slurmsched.policies.las import Las
from slurmsched.policies.sjf import Sjf
from slurmsched.policies.smallest import Smallest
from slurmsched.policies.srsf import Srsf
from slurmsched.policies.srtf import Srtf
from slurmsched.testing import snapshot
from slurmsched.tier_spec import Tier, read_tiers

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


# Tiers: what the site has promised goes before any policy.


NAN = float("nan")
EVERYTHING = ScopeConfig(partitions=("*",))
OPERATOR = Site(rights=Rights.OPERATOR)
PARTITIONS = [{"name": "batch", "job_factor": 1}, {"name": "urgent", "job_factor": 10}]


def ordered(rows, tiers, factors=None, order=None):
    """Job ids in the order of these tiers over the order in which the jobs are given."""
    at = snapshot(rows, partitions=PARTITIONS)
    given = Ranking(np.arange(len(rows)) if order is None else np.array(order))
    points = np.zeros(len(rows)) if factors is None else np.array(factors, float)
    return at.jobs.job_id[in_tiers(given, at, read_tiers(tiers), points).order].tolist()


@pytest.mark.parametrize(
    ("tier", "column", "values", "expected"),
    [
        ("qos", "qos_priority", [10, 100, 10, 50], [2, 4, 1, 3]),
        ("account", "association_priority", [0, 5, 5, 0], [2, 3, 1, 4]),
        ("fair_share:4", "fair_share", [0.2, 0.26, 0.5, 1.0], [4, 2, 3, 1]),
        ("fair_share:2", "fair_share", [0.2, 0.26, 0.5, 1.0], [4, 1, 2, 3]),
        ("partition", "partition", ["batch", "urgent", "batch", "batch,urgent"], [2, 4, 1, 3]),
    ],
)
def test_in_tiers__the_higher_value_goes_first_and_equal_ones_keep_the_policys_order(tier, column, values, expected):
    """partition: the highest PriorityJobFactor of those a job names. fair_share:N: only the band counts."""
    rows = [{column: value} for value in values]
    assert ordered(rows, [tier]) == expected


def test_in_tiers__priority_orders_by_bands_of_its_width():
    """Two jobs 999 points apart may be in one band; then the policy decides."""
    assert ordered([{}] * 4, ["priority:1000"], [1_500, 2_100, 1_999, 2_999]) == [2, 4, 1, 3]


def test_in_tiers__the_first_tier_counts_most():
    """Then the second, then the policy."""
    rows = [{"qos_priority": q, "fair_share": f} for q, f in ((1, 0.9), (2, 0.1), (2, 0.9), (1, 0.1))]
    assert ordered(rows, ["qos", "fair_share:4"]) == [3, 2, 1, 4]
    assert ordered(rows, ["fair_share:4", "qos"]) == [3, 1, 2, 4]


def test_in_tiers__a_value_that_is_not_known_comes_last_of_its_tier():
    """A job without an association does not pass those with one."""
    assert ordered([{"qos_priority": NAN}, {"qos_priority": 0.0}], ["qos"]) == [2, 1]


def test_in_tiers__without_tiers_the_ranking_is_the_policys_own():
    """No copy, no criterion."""
    ranking = Ranking(np.array([1, 0]))
    assert in_tiers(ranking, snapshot([{}, {}]), (), np.zeros(2)) is ranking


@pytest.mark.parametrize(
    "policy", [Fifo(), Las(), Smallest(), Srsf(), Srtf()], ids=lambda policy: type(policy).__name__
)
def test_planner__keeps_the_policys_order_within_a_tier(policy):
    """Under every policy: by tier first, and within a tier as the policy alone orders these jobs."""
    chance = np.random.default_rng(3)
    rows = [
        {"job_id": i, "submit_s": float(i), "gpus": int(chance.integers(1, 9)), "time_limit_s": 3_600.0 * (i % 7 + 1),
         "executed_s": 600.0 * (i % 3), "qos_priority": float(i % 2), "fair_share": float(chance.random())}
        for i in range(1, 31)
    ]  # fmt: skip
    at = snapshot(rows, now_s=1e5, site=OPERATOR)
    alone = Planner(policy, scope=EVERYTHING).plan(at).ranking
    within = Planner(policy, scope=EVERYTHING, tiers=read_tiers(["qos", "fair_share:4"])).plan(at).ranking
    place = np.empty(len(rows), np.int64)
    place[alone.order] = np.arange(len(rows))
    band = np.clip(np.ceil(at.jobs.fair_share * 4), 1, 4)
    expected = np.lexsort((place, -band, -at.jobs.qos_priority))
    assert expected.tolist() == within.order.tolist()


def test_planner__writes_no_job_that_is_in_the_order_of_its_tiers_already():
    """Fewest writes: of jobs whose Slurm priority agrees with tiers and policy none is written."""
    rows = [{"job_id": i, "submit_s": float(i), "qos_priority": 3.0 - i, "base_priority": 90_000.0 - 20_000 * i,
             "priority": 90_000 - 20_000 * i} for i in (1, 2, 3)]  # fmt: skip
    at = snapshot(rows, now_s=100.0, site=OPERATOR)
    planner = Planner(Smallest(), scope=EVERYTHING, tiers=(Tier("qos"),))
    assert planner.plan(at).actions == ()
    other = snapshot([row | {"qos_priority": float(row["job_id"])} for row in rows], now_s=100.0, site=OPERATOR)
    assert len(planner.plan(other).actions) == 2


def test_planner__a_running_job_of_a_higher_tier_is_before_a_waiting_one():
    """So that nobody takes GPUs from a tier above."""
    rows = [
        {"job_id": 1, "state": "RUNNING", "executed_s": 9e4, "qos_priority": 9.0},
        {"job_id": 2, "qos_priority": 1.0},
    ]
    at = snapshot(rows, now_s=1e5, site=OPERATOR)
    planner = Planner(Las(), scope=EVERYTHING, tiers=(Tier("qos"),), preemption=PreemptionConfig(enabled=True))
    assert planner.plan(at).ranking.order.tolist() == [0, 1]


def decided(at, planner):
    ranking = planner.plan(at).ranking
    return {int(at.jobs.job_id[row]): str(ranking.why["decided_by"][row]) for row in queue_order(at, ranking)}


def test_with_decider__names_what_puts_a_job_behind_the_one_before_it():
    """The first tier in which they differ, or the policy; the foremost job is behind nobody."""
    rows = [
        {"qos_priority": q, "fair_share": f, "gpus": g}
        for q, f, g in ((5, 0.9, 1), (5, 0.9, 2), (5, 0.1, 1), (1, 1.0, 1))
    ]
    at = snapshot(rows, now_s=1.0, site=OPERATOR)
    planner = Planner(Smallest(), scope=EVERYTHING, tiers=read_tiers(["qos", "fair_share:4"]))
    assert decided(at, planner) == {1: "", 2: "policy", 3: "fair_share", 4: "qos"}


def test_with_decider__caps_go_before_tiers():
    """A job beyond a soft cap is last though its QOS is the highest; one beyond the age cap is first."""
    rows = [{"user": "a", "qos_priority": 9.0, "gpus": 8}, {"user": "b", "qos_priority": 1.0},
            {"user": "c", "qos_priority": 0.0, "waiting_s": 9_000.0}]  # fmt: skip
    at = snapshot(rows, now_s=1e5, site=OPERATOR)
    planner = Planner(Fifo(), scope=EVERYTHING, tiers=(Tier("qos"),), soft_caps=SoftCaps(user={"gpu": 4}),
                      starvation=StarvationConfig(age_cap_s=3_600))  # fmt: skip
    assert decided(at, planner) == {3: "", 2: "age cap", 1: "soft cap"}


def test_with_decider__jobs_that_do_not_compete_are_not_compared():
    """Each partition's first job is behind nobody."""
    rows = [{"partition": "batch", "qos_priority": 5.0}, {"partition": "urgent", "qos_priority": 1.0}]
    at = snapshot(rows, [{"name": "n1", "partitions": "batch"}, {"name": "n2", "partitions": "urgent"}],
                  partitions=PARTITIONS, site=OPERATOR)  # fmt: skip
    ranked = with_decider(at, in_tiers(Ranking(np.arange(2)), at, (Tier("qos"),), np.zeros(2)))
    assert ranked.why["decided_by"].tolist() == ["", ""]


def test_unread_tiers__a_tier_of_which_slurm_gave_nothing_is_named():
    """In the notes of the plan: it orders nothing."""
    at = snapshot([{"qos_priority": 1.0}, {}], site=OPERATOR)
    plan = Planner(Fifo(), scope=EVERYTHING, tiers=read_tiers(["qos", "fair_share:4", "priority:10"])).plan(at)
    found = [note for note in plan.notes if "policy.tiers" in note]
    assert found == ["policy.tiers: Slurm shows no fair_share:4 for waiting jobs; this tier has no effect"]
    assert unread_tiers(at, read_tiers(["qos"]), np.zeros(2, np.bool_)) == ()


@pytest.mark.parametrize(
    ("tiers", "message"),
    [
        (["fairshare:4"], "'fairshare:4' is no tier, did you mean fair_share"),
        (["fair_share"], "fair_share needs a number of bands from 1 to 2147483647, as in fair_share:4"),
        (["priority:0"], "priority needs a number of points from 1 to 2147483647, as in priority:1000"),
        (["qos:3"], "qos takes no number"),
        (["qos", "qos"], "qos is named twice"),
    ],
)
def test_config__refuses_a_tier_that_is_none(tiers, message):
    """With the nearest known one, and an example."""
    with pytest.raises(ConfigError, match=message) as error:
        parse_config({"policy": {"tiers": tiers}})
    assert error.value.key == "policy.tiers"


def test_planner__from_config_takes_tiers_beside_the_policys_parameters():
    """They are no parameter of the policy."""
    made = Planner.from_config(parse_config({"policy": {"name": "las", "tiers": ["qos", "priority:500"]}}))
    assert made.tiers == (Tier("qos"), Tier("priority", 500))


@pytest.mark.parametrize(
    ("other", "own", "expected"),
    [
        ({"qos_priority": 9.0}, {"qos_priority": 1.0}, "tier qos: qos_priority 9 against 1"),
        ({"qos_priority": 9.0, "fair_share_band": 4.0}, {"qos_priority": 9.0, "fair_share_band": 1.0},
         "tier fair_share: fair_share_band 4 against 1"),
        ({"qos_priority": 9.0, "queue": 0}, {"qos_priority": 9.0, "queue": 1}, ""),
        ({"qos_priority": NAN}, {"qos_priority": NAN}, ""),
    ],
)  # fmt: skip
def test_tier_between__names_the_first_tier_in_which_two_jobs_differ(other, own, expected):
    """With both values; what is not known of either is no difference."""
    assert tier_between(other, own) == expected


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("", ""),
        ("policy", "the policy puts it behind the job before it"),
        ("qos", "tier qos puts it behind the job before it"),
    ],
)
def test_decision__says_what_puts_a_job_where_it_is(by, expected):
    """For `explain`."""
    assert decision({"decided_by": by}) == expected


def test_planner__example_of_the_page():
    """The order, and what decided it, as docs/tiers.md shows them."""
    columns = ("job_id", "user", "qos_priority", "fair_share", "gpus", "time_limit_s")
    jobs = [
        (101, "ann", 0, 0.90, 4, 24), (102, "bob", 0, 0.10, 1, 1), (103, "cy", 100, 0.40, 8, 12),
        (104, "ann", 0, 0.90, 1, 2), (105, "dee", 100, 0.45, 1, 4), (106, "bob", 0, 0.10, 2, 8),
    ]  # fmt: skip
    rows = [dict(zip(columns, job, strict=True)) for job in jobs]
    rows = [row | {"time_limit_s": 3_600.0 * row["time_limit_s"], "submit_s": 60.0 * row["job_id"]} for row in rows]
    at = snapshot(rows, now_s=1e5, site=OPERATOR)
    planner = Planner(Sjf(), scope=EVERYTHING, tiers=read_tiers(["qos", "fair_share:4"]))
    assert list(decided(at, planner).items()) == [
        (105, ""), (103, "policy"), (104, "qos"), (101, "policy"), (102, "fair_share"), (106, "policy"),
    ]  # fmt: skip
    assert len(planner.plan(at).actions) == 3
    without = Planner(Sjf(), scope=EVERYTHING).plan(at).ranking
    assert at.jobs.job_id[without.order].tolist() == [102, 104, 105, 106, 103, 101]

"""Tiers: what the site has promised goes before any policy."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.config import PreemptionConfig, ScopeConfig, SoftCaps, StarvationConfig
from slurmsched.config_file import parse_config
from slurmsched.errors import ConfigError
from slurmsched.model import Ranking, Rights, Site
from slurmsched.planning.planner import Planner
from slurmsched.planning.priorities.order import queue_order
from slurmsched.planning.priorities.tiers import decision, in_tiers, tier_between, unread_tiers, with_decider
from slurmsched.policies.fifo import Fifo
from slurmsched.policies.las import Las
from slurmsched.policies.sjf import Sjf
from slurmsched.policies.smallest import Smallest
from slurmsched.policies.srsf import Srsf
from slurmsched.policies.srtf import Srtf
from slurmsched.testing import snapshot
from slurmsched.tier_spec import Tier, read_tiers

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
        (["fair_share"], "fair_share needs a number of bands of at least 1, as in fair_share:4"),
        (["priority:0"], "priority needs a number of points of at least 1, as in priority:1000"),
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

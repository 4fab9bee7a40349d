"""Allocations over GPU types, the rounds that carry them out, and Gavel's parameters."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from slurmsched.allocation import programmes
from slurmsched.allocation.programmes import AllocationProblem, solve_in_groups
from slurmsched.allocation.water_filling import max_min
from slurmsched.errors import ConfigError
from slurmsched.model import Snapshot
from slurmsched.policies.gavel import Gavel
from slurmsched.testing import check_policy, snapshot

NODES = [{"name": "n1", "gpus": 1, "gpu_types": "gpu:k80:1"}, {"name": "n2", "gpus": 1, "gpu_types": "gpu:v100:1"}]
PAGE = np.array([[0.25, 1.0]] * 3 + [[1.0, 1.0]] * 3)  # columns: k80, v100


def problem(speed: np.ndarray, remaining_s: float | list[float] = 100.0, gpus: float = 1.0) -> AllocationProblem:
    jobs = len(speed)
    left = np.broadcast_to(np.asarray(remaining_s, np.float64), (jobs,))
    return AllocationProblem(np.ones(2), np.full(jobs, gpus), speed, left, np.zeros(jobs), np.ones(jobs))


def test_max_min__the_example_of_the_page() -> None:
    """Three jobs that gain from the V100 and three that do not: everyone has 16/13 of an equal split."""
    share = max_min(problem(PAGE))
    split = (programmes.equal_split(problem(PAGE)) * PAGE).sum(axis=1)
    assert (share * PAGE).sum(axis=1) / split == pytest.approx([16 / 13] * 6, rel=1e-4)


def test_makespan__long_jobs_get_the_faster_type() -> None:
    """200 s and 100 s of work, the V100 twice as fast: the long job has it, and both end after 100 s."""
    speed = np.array([[1.0, 2.0], [1.0, 2.0]])
    share = programmes.makespan(problem(speed, [200.0, 100.0]))
    assert (share * speed).sum(axis=1) == pytest.approx([2.0, 1.0], rel=1e-4)


def test_finish_time_fairness__equal_jobs_fare_alike() -> None:
    """Two jobs and two GPUs that are alike: each has one all the time, as it would have isolated."""
    share = programmes.finish_time_fairness(problem(np.ones((2, 2))))
    assert share.sum(axis=1) == pytest.approx([1.0, 1.0], rel=2e-3)


def test_sum_throughput__nobody_is_owed_anything() -> None:
    """One V100: the job that is fastest there has it, the other one the K80."""
    share = programmes.sum_throughput(problem(np.array([[0.5, 1.0], [0.2, 3.0]])))
    assert share.round(6).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_cost__prices_decide() -> None:
    """Twice as fast and three times as dear: the only job runs on the K80."""
    share = programmes.cost(problem(np.array([[1.0, 2.0]])), [1.0, 3.0])
    assert share.round(6).tolist() == [[1.0, 0.0]]


def test_first_come__a_job_without_room_blocks_those_behind_it() -> None:
    """The second job, of two GPUs, fits nowhere; the third one waits behind it."""
    one = problem(np.ones((3, 2)))
    asked = dataclasses.replace(one, gpus=np.array([1.0, 2.0, 1.0]), elapsed_s=np.array([30.0, 20.0, 10.0]))
    assert programmes.first_come(asked).sum(axis=1).tolist() == [1.0, 0.0, 0.0]


def test_partitioned__same_seed_same_groups_within_capacity() -> None:
    """Two groups never take more than there is, and the same seed gives the same shares."""
    given = [solve_in_groups(max_min, problem(PAGE), 2, seed) for seed in (1, 1)]
    assert np.array_equal(given[0], given[1])
    assert (given[0].sum(axis=0) <= 1 + 1e-6).all()


def after(policy: Gavel, given: Snapshot, passed_s: float) -> Snapshot:
    """The snapshot so much later, when whoever is in the round has run."""
    ranked = policy.rank(given)
    ran_s = np.where(ranked.why["in_round"] > 0, passed_s, 0.0)
    jobs = given.jobs.with_columns(executed_s=given.jobs.executed_s + ran_s)
    return dataclasses.replace(given, now_s=given.now_s + passed_s, jobs=jobs, carry=ranked.carry)


def test_gavel__a_round_stands_until_it_is_over() -> None:
    """Within 360 s the choice stays; three equal jobs on two GPUs have each had two rounds of three after it."""
    policy, now = Gavel(), snapshot([{"job_id": i} for i in (1, 2, 3)], NODES)
    first = policy.rank(now).why["in_round"].tolist()
    assert policy.rank(after(policy, now, 100.0)).why["in_round"].tolist() == first
    for _ in range(3):
        now = after(policy, now, 360.0)
    assert now.jobs.executed_s.tolist() == [720.0, 720.0, 720.0]


def test_gavel__without_fill_the_others_wait_for_the_next_round() -> None:
    """Three jobs, two GPUs: the one out of the round is not to start, and with `fill` it may."""
    given = snapshot([{"job_id": i} for i in (1, 2, 3)], NODES)
    start_s = Gavel(fill=False).rank(given).changes.start_s  # type: ignore[union-attr]
    assert np.isposinf(start_s).sum() == 1  # type: ignore[arg-type]
    assert Gavel().rank(given).changes.start_s is None  # type: ignore[union-attr]


SHARERS = [{"job_id": i, "account": account, "qos": qos, "user": account} for i, (account, qos) in
           enumerate((("a", ""), ("a", ""), ("a", "high"), ("a", ""), ("b", ""), ("b", "")), 1)]  # fmt: skip
FOUR = [{"name": "n1", "gpus": 4, "gpu_types": "gpu:a100:4"}]


def shares(policy: Gavel, **more: object) -> list[float]:
    """Share of its time that each job is to have."""
    ranked = policy.rank(dataclasses.replace(snapshot(SHARERS, FOUR), **more))
    return ranked.changes.share.round(4).tolist()  # type: ignore[union-attr]


def test_gavel__accounts_share_first_as_the_page_tells() -> None:
    """Four GPUs, four jobs of a and two of b: two thirds each by jobs alone; half a GPU and a whole one by accounts.

    What b cannot use goes to a; a's high job weighs double, and in turn its first two have a GPU each.
    """
    assert shares(Gavel()) == [0.6667] * 6
    assert shares(Gavel(accounts=True)) == [0.5] * 4 + [1.0] * 2
    assert shares(Gavel(accounts=True), shares={"a": 1.0, "b": 3.0}) == [0.5] * 4 + [1.0] * 2
    assert shares(Gavel(accounts=True), shares={"a": 3.0, "b": 1.0}) == [0.75] * 4 + [0.5] * 2
    assert shares(Gavel(accounts=True, weights=("account:a=3",))) == [0.75] * 4 + [0.5] * 2
    assert shares(Gavel(accounts=True, weights=("qos:high=2",))) == [0.4, 0.4, 0.8, 0.4, 1.0, 1.0]
    assert shares(Gavel(accounts=True, in_turn=("a",))) == [1.0, 1.0, 0.0, 0.0, 1.0, 1.0]
    assert shares(Gavel(accounts=True, in_turn=("*",)), shares={"a": 3.0, "b": 1.0}) == [1, 1, 1, 0, 1, 0]


def test_gavel__jobs_weigh_by_qos_user_and_account() -> None:
    """Without accounts a job has as many times as much as it weighs, up to all of its time; weights multiply."""
    assert shares(Gavel(weights=("user:b=0.5",))) == [0.8] * 4 + [0.4] * 2
    assert shares(Gavel(weights=("qos:high=4",))) == [0.6, 0.6, 1.0, 0.6, 0.6, 0.6]
    both = shares(Gavel(weights=("qos:high=0.5", "account:a=0.5")))
    assert both == [0.5714, 0.5714, 0.2857, 0.5714, 1.0, 1.0]


@pytest.mark.parametrize("shares_of", [{"a": 3.0, "b": 1.0}, {"a": 1.0, "b": 1.0}])
def test_gavel__rounds_give_each_account_what_it_is_entitled_to(shares_of: dict[str, float]) -> None:
    """Over forty rounds the GPU time of the accounts is as their shares, within 5 %."""
    policy = Gavel(accounts=True)
    now = dataclasses.replace(snapshot(SHARERS, FOUR), shares=shares_of)
    for _ in range(40):
        now = after(policy, now, 360.0)
    had = now.jobs.executed_s
    assert had[:4].sum() / had.sum() == pytest.approx(shares_of["a"] / sum(shares_of.values()), rel=0.05)
    assert had.sum() == 4 * 40 * 360.0


@pytest.mark.parametrize(
    "policy",
    [Gavel(accounts=True), Gavel(accounts=True, in_turn=("*",)), Gavel(accounts=True, in_turn=("a",), most_jobs=2),
     Gavel(weights=("account:a=3", "user:alice=0.5"))],
    ids=["accounts", "in turn", "groups", "weights"],
)  # fmt: skip
def test_gavel__conforms_with_accounts(policy: Gavel) -> None:
    """Every rule of check_policy, blind to the order of rows among them."""
    check_policy(policy, [snapshot(SHARERS, FOUR), snapshot(SHARERS[::-1], NODES)])


def test_gavel__an_account_without_shares_is_last_and_not_starved() -> None:
    """Where the others leave room it runs; a little is its own in any case."""
    found = shares(Gavel(accounts=True), shares={"a": 1.0, "b": 0.0})
    assert found[:4] == pytest.approx([1.0] * 4, abs=2e-3) and 0 < found[4] == found[5] < 0.003


@pytest.mark.parametrize("others", [[], [{"account": "c", "state": "COMPLETED"}]], ids=["alone", "one that ended"])
def test_gavel__accounts_of_no_shares_are_alike(others: list[dict[str, str]]) -> None:
    """Where no account with jobs has any, each has as much as another, however many one of no jobs has."""
    given = dataclasses.replace(snapshot([*SHARERS, *others], FOUR), shares={"a": 0.0, "b": 0.0, "c": 1.0})
    share = Gavel(accounts=True).rank(given).changes.share  # type: ignore[union-attr]
    assert share[:6].round(4).tolist() == [0.5] * 4 + [1.0] * 2  # type: ignore[index]


def test_gavel__names_that_nobody_has_are_told() -> None:
    """Slurm keeps QOS in lower case: "High" is none. An account with shares is known without jobs."""
    policy = Gavel(accounts=True, weights=("qos:High=9", "qos:high=2", "account:c=2"), in_turn=("nosuch", "a"))
    given = dataclasses.replace(snapshot(SHARERS, FOUR), shares={"a": 1.0, "b": 1.0, "c": 1.0})
    assert "no job is of qos:High, account:nosuch now" in policy.rank(given).notes


def test_gavel__prices_of_gpus_without_a_type() -> None:
    """Their name is "": they may have a price too."""
    assert Gavel(objective="cost", prices=("=2", "v100=3")).prices == ("=2", "v100=3")


@pytest.mark.parametrize(
    ("parameters", "key"),
    [
        ({"objective": "best"}, "policy.objective"), ({"round_s": 0.0}, "policy.round_s"),
        ({"prices": ("v100",)}, "policy.prices"), ({"most_jobs": 0}, "policy.most_jobs"),
        ({"weights": ("user:ann=2", "user:ann=3")}, "policy.weights"),
        ({"weights": ("high=2",)}, "policy.weights"), ({"weights": ("qos:high=0",)}, "policy.weights"),
        ({"accounts": True, "objective": "ftf"}, "policy.accounts"), ({"in_turn": ("a",)}, "policy.in_turn"),
        ({"weights": ("qos:high=2",), "objective": "makespan"}, "policy.weights"),
    ],
)  # fmt: skip
def test_gavel__refuses_bad_parameters(parameters: dict[str, object], key: str) -> None:
    """A parameter out of range is a ConfigError that names the setting."""
    with pytest.raises(ConfigError) as caught:
        Gavel(**parameters)  # type: ignore[arg-type]
    assert caught.value.key == key

"""Gavel with space sharing: shares of pairs, and the rounds that carry them out, by hand and against turns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.allocation import programmes, rounds, space_sharing
from slurmsched.allocation.heterogeneity import heterogeneous_cluster
from slurmsched.allocation.programmes import AllocationProblem
from slurmsched.allocation.water_filling import max_min
from slurmsched.errors import ConfigError
from slurmsched.estimators.throughputs import Throughputs
from slurmsched.model import Ranking
from slurmsched.policies.gavel import Gavel
from slurmsched.policies.pop import Pop
from slurmsched.testing import check_policy, snapshot
from tests.unit.allocation.test_pairs import HINTS, kept, problem

NODE = [{"name": "n1", "gpus": 1, "gpu_types": "gpu:v100:1"}]
TWO = [{"name": "n1", "gpus": 2, "gpu_types": "gpu:v100:2"}]
SHARING = Gavel(speeds=Throughputs("gavel"), space_sharing=True)


def waiting(*hints: str, gpus: int = 1) -> list[dict[str, Any]]:
    return [{"job_id": n, "comment": f"slurmsched: {hint} dur=2h", "gpus": gpus} for n, hint in enumerate(hints, 1)]


def running(rows: list[dict[str, Any]], executed_s: float) -> list[dict[str, Any]]:
    return [{**row, "state": "RUNNING", "start_s": 0.0, "executed_s": executed_s} for row in rows]


def next_round(policy: Any, rows: list[dict[str, Any]], made: Ranking, now_s: float, nodes: Any = NODE) -> Ranking:
    return policy.rank(snapshot(rows, nodes, now_s=now_s, carry=made.carry))  # type: ignore[no-any-return]


def hosted(made: Ranking) -> list[int]:
    assert made.changes is not None and made.changes.beside is not None
    return made.changes.beside.tolist()


@pytest.mark.parametrize("objective", sorted(space_sharing.OBJECTIVES))
def test_allocated__two_alike_that_keep_four_fifths_share_all_the_time(objective: str) -> None:
    """Every objective prefers 0.8 for both to turns of a half."""
    made = space_sharing.allocate_with_pairs(objective, problem(2), lambda one, _: kept(len(one), 0.8, 0.8), 1_024, 0)
    assert made.pairs is not None and made.shared is not None
    assert (made.pairs.first.tolist(), made.pairs.second.tolist()) == ([0], [1])
    assert (made.share.sum(), made.shared.sum()) == (pytest.approx(0.0, abs=1e-5), pytest.approx(1.0, abs=1e-5))


def test_allocated__without_a_pair_that_gains_shares_are_those_of_turns() -> None:
    """Half the speed each is what turns give."""
    made = space_sharing.allocate_with_pairs("max-min", problem(3), lambda one, _: kept(len(one), 0.5, 0.5), 1_024, 0)
    assert made.shared.shape == (0, 1)
    assert made.share.sum(axis=1) == pytest.approx(np.full(3, 1 / 3), abs=1e-5)


@settings(deadline=None, max_examples=12)
@given(objective=st.sampled_from(sorted(space_sharing.OBJECTIVES)), seed=st.integers(0, 99), most=st.integers(1, 6))
def test_allocated__nobody_has_more_than_there_is(objective: str, seed: int, most: int) -> None:
    """GPUs of each type, and each job's time, singles and pairs together, in any number of groups."""
    chance = np.random.default_rng(seed)
    jobs = 6
    given_ = AllocationProblem(
        np.array([1.0, 2.0]),
        2.0 ** chance.integers(0, 2, jobs),
        chance.uniform(0.2, 1, (jobs, 2)),
        chance.uniform(60, 9_000, jobs),
        chance.uniform(0, 9_000, jobs),
        np.ones(jobs),
    )
    made = space_sharing.allocate_with_pairs(
        objective, given_, lambda one, _: np.random.default_rng(1).uniform(0.3, 1, (len(one), 2, 2)), most, seed
    )
    assert made.pairs is not None and made.shared is not None
    time, room = made.share.sum(axis=1), (made.share * given_.gpus[:, None]).sum(axis=0)
    np.add.at(time, made.pairs.first, made.shared.sum(axis=1))
    np.add.at(time, made.pairs.second, made.shared.sum(axis=1))
    room += (made.shared * given_.gpus[made.pairs.first][:, None]).sum(axis=0)
    assert (time <= 1 + 1e-5).all()
    assert (room <= given_.capacity + 1e-5).all()


@settings(deadline=None, max_examples=6)
@given(seed=st.integers(0, 99))
def test_objectives__are_never_worse_than_without_sharing(seed: int) -> None:
    """The least normalised throughput, the rate of the slowest, and rho."""
    chance = np.random.default_rng(seed)
    given_ = AllocationProblem(
        np.array([1.0, 1.0]),
        np.ones(5),
        chance.uniform(0.2, 1, (5, 2)),
        chance.uniform(60, 9_000, 5),
        chance.uniform(0, 9_000, 5),
        np.ones(5),
    )
    first, second = space_sharing.possible_pairs(given_.gpus)
    made = space_sharing.worthwhile_pairs(given_, first, second, chance.uniform(0.3, 1, (len(first), 2, 2)))
    remaining_s, worth = given_.remaining_s, programmes.throughput_weight(given_)

    def rate(share: np.ndarray, shared: np.ndarray) -> np.ndarray:
        found = (share * given_.speed).sum(axis=1)
        np.add.at(found, made.first, (shared * made.speed[:, :, 0]).sum(axis=1))
        np.add.at(found, made.second, (shared * made.speed[:, :, 1]).sum(axis=1))
        return found

    none = np.zeros(made.speed.shape[:2])
    for gain, with_pairs, alone in (
        (worth, space_sharing.max_min, max_min),
        (1 / remaining_s, space_sharing.makespan, programmes.makespan),
    ):
        before, after = (gain * rate(alone(given_), none)).min(), (gain * rate(*with_pairs(given_, made))).min()
        assert after >= before * (1 - 1e-5)
    shortest = remaining_s / (programmes.isolated(given_) * given_.speed).sum(axis=1) + given_.elapsed_s
    turns, paired = (
        (programmes.finish_time_fairness(given_), none),
        space_sharing.finish_time_fairness(given_, made),
    )
    before, after = (((given_.elapsed_s + remaining_s / rate(*each)) / shortest).max() for each in (turns, paired))
    assert after <= before * (1 + 2e-3)


def test_gavel__two_jobs_of_a_round_are_on_the_same_gpu() -> None:
    """One V100: job 2 beside job 1, after it in the order; both are in the round, and nobody is held back."""
    made = SHARING.rank(snapshot(waiting(*HINTS), NODE))
    assert (hosted(made), made.order.tolist(), made.why["in_round"].tolist()) == ([-1, 1], [0, 1], [1, 1])
    assert made.changes is not None and list(made.changes.gpu_type or ()) == ["v100", "v100"]


def test_gavel__a_guest_goes_after_all_that_have_gpus_of_their_own() -> None:
    """Three jobs, two GPUs: on Slurm, where nobody shares, the guest waits for GPUs of its own."""
    rows = waiting(*HINTS, HINTS[0])
    made = SHARING.rank(snapshot(rows, TWO))
    guest = [row for row, host in enumerate(hosted(made)) if host >= 0]
    assert len(guest) == 1 and made.order.tolist()[-1] == guest[0]


def test_gavel__the_time_of_a_pair_counts_once_and_its_progress_at_its_own_speed() -> None:
    """360 s together: the pair has had 360 s of V100, neither job any alone, and each has made what it keeps."""
    rows = waiting(*HINTS)
    first = SHARING.rank(snapshot(rows, NODE))
    made = next_round(SHARING, running(rows, 360.0), first, 360.0)
    shares = SHARING.speeds.shared_speeds(snapshot(rows, NODE), np.array([0]), np.array([1]), ["v100"])[0, 0]  # type: ignore[attr-defined]
    assert made.carry["shared"]["received_s v100"] == [180.0 + 360.0]
    assert made.carry["received_s v100"] == [180.0, 180.0]
    assert made.why["done_s"].tolist() == pytest.approx((360.0 * shares).tolist())
    assert made.carry["round"]["worker_s"]["v100"] == pytest.approx(3 * 180.0 + 360.0)


def test_gavel__a_job_whose_partner_waits_counts_as_alone() -> None:
    """On Slurm the second has no GPU: the first has had 360 s by itself, at its own speed."""
    rows = waiting(*HINTS)
    made = next_round(SHARING, [*running(rows[:1], 360.0), rows[1]], SHARING.rank(snapshot(rows, NODE)), 360.0)
    assert made.carry["received_s v100"] == [180.0 + 360.0, 180.0]
    assert made.why["done_s"].tolist() == [360.0, 0.0]


def test_gavel__without_heterogeneity_a_pair_still_runs_at_its_own_speed() -> None:
    """The programme takes K80 for as fast as V100; what is made there is counted as it is."""
    node = [{"name": "n1", "gpus": 1, "gpu_types": "gpu:k80:1"}]
    policy = Gavel(speeds=Throughputs("gavel"), space_sharing=True, heterogeneity=False)
    rows = waiting(HINTS[0], HINTS[0])
    first = policy.rank(snapshot(rows, node))
    assert hosted(first) == [-1, 1]
    made = next_round(policy, running(rows, 360.0), first, 360.0, node)
    here, one = snapshot(rows, node), np.array([0])
    kept_ = SHARING.speeds.shared_speeds(here, one, one + 1, ["k80"])[0, 0]  # type: ignore[attr-defined]
    alone = SHARING.speeds.speeds(here, ["k80"])[:, 0]
    assert alone[0] < 0.5
    assert made.why["done_s"].tolist() == pytest.approx((360.0 * kept_ * alone).tolist())


def test_gavel__who_is_left_of_a_pair_has_the_gpu_alone() -> None:
    """Job 1 ended within the round: job 2 stays, beside nobody, and what it had is its own."""
    rows = waiting(*HINTS)
    made = next_round(SHARING, running(rows[1:], 100.0), SHARING.rank(snapshot(rows, NODE)), 100.0)
    assert (hosted(made), made.why["in_round"].tolist()) == ([-1], [1])
    assert "shared" not in made.carry


def test_gavel__a_pair_is_not_known_by_an_id_that_is_used_again() -> None:
    """Job 1 was submitted anew: what the old one shared is forgotten."""
    rows = waiting(*HINTS)
    first = SHARING.rank(snapshot(rows, NODE))
    again = [{**rows[0], "submit_s": 50.0}, *running(rows[1:], 100.0)]
    assert hosted(next_round(SHARING, again, first, 100.0)) == [-1, -1]


def test_gavel__the_host_is_who_runs_already() -> None:
    """Job 2 has the GPU, job 1 joins it."""
    rows = waiting(*HINTS)
    made = SHARING.rank(snapshot([rows[0], *running(rows[1:], 60.0)], NODE, now_s=60.0))
    assert hosted(made) == [2, -1]


def test_gavel__says_that_nobody_shares_when_nobody_does() -> None:
    """Jobs of models without a pair, and no job at all: the want is there, so that who shared is parted."""
    assert hosted(SHARING.rank(snapshot(waiting("model=mine", "model=mine"), NODE))) == [-1, -1]
    assert hosted(SHARING.rank(snapshot((), NODE))) == []
    made = Gavel(speeds=Throughputs("gavel")).rank(snapshot(waiting(*HINTS), NODE))
    assert made.changes is not None and made.changes.beside is None


def test_gavel__deficits_of_a_pair_outlive_an_allocation() -> None:
    """A third job comes: the pair of the first two is owed what it did not get, if it is a pair again."""
    rows = waiting(HINTS[0], HINTS[1])
    first = SHARING.rank(snapshot(rows, NODE))
    made = next_round(SHARING, [*rows, *waiting(*HINTS, HINTS[1])[2:]], first, 2_000.0)
    shared = made.carry["shared"]
    owed = {(a, b): d for a, b, d in zip(shared["first"], shared["second"], shared["deficit_s v100"], strict=True)}
    assert owed.get((1, 2), 2_000.0) == pytest.approx(2_000.0, rel=1e-4)
    assert all(each == 0 for pair, each in owed.items() if pair != (1, 2))


@pytest.mark.parametrize("objective", ["max-min", "ftf", "makespan", "sum-throughput"])
def test_gavel__conforms_with_space_sharing(objective: str) -> None:
    """Every rule of check_policy, the carry of pairs included."""
    rows = waiting(*HINTS, *HINTS)
    check_policy(Gavel(objective, speeds=Throughputs("gavel"), space_sharing=True), [snapshot(rows, TWO)])


@pytest.mark.parametrize("objective", ["fifo", "isolated", "proportional", "cost"])
def test_gavel__other_objectives_have_no_pairs(objective: str) -> None:
    """A ConfigError that names the setting; so does a table without pairs."""
    with pytest.raises(ConfigError) as caught:
        Gavel(objective, speeds=Throughputs("gavel"), space_sharing=True)
    assert caught.value.key == "policy.space_sharing"
    with pytest.raises(ConfigError):
        Gavel(space_sharing=True)


def test_chosen__a_pair_runs_if_neither_of_its_jobs_does() -> None:
    """Two GPUs and three jobs; the pair of 1 and 2 is first, then 3 alone; with job 1 ahead of the pair that is out."""
    here = snapshot(waiting(*HINTS, HINTS[0]), TWO)
    one = np.array([0]), np.array([1])
    book = rounds.PairRounds.of(space_sharing.JobPairs(*one, np.full((1, 1, 2), 0.9)), np.array([[0.9]]), 360.0)
    share, zero = np.full((3, 1), 0.1), np.zeros((3, 1))
    asked = heterogeneous_cluster(here, SHARING.speeds)
    for priority, on, runs in ([[1.0], [1.0], [1.0]], [0, 0, 0], [True]), ([[9.0], [1.0], [2.0]], [0, -1, 0], [False]):
        made = rounds.fill_types(book, np.array([[5.0]]), share, np.array(priority), zero, np.arange(3), asked,
                                np.array([0]))  # fmt: skip
        assert (made[0].tolist(), made[1].tolist()) == (on, runs)


def test_pop__hands_on_who_shares_with_whom() -> None:
    """Hosts are named by job id, which a part of the queue does not change."""
    nodes = [{"name": f"n{n}", "gpus": 1, "gpu_types": "gpu:v100:1"} for n in range(2)]
    made = Pop(of=SHARING, k=2).rank(snapshot(waiting(*HINTS, *HINTS, *HINTS), nodes))
    guests = {row: host for row, host in enumerate(hosted(made)) if host >= 0}
    part = made.why["part"].tolist()
    assert guests and all(part[row] == part[host - 1] for row, host in guests.items())

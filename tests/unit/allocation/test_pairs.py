"""Space sharing: what pairs of jobs on the same GPUs gain, by hand and against turns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmsched.allocation import programmes, space_sharing
from slurmsched.allocation.programmes import AllocationProblem
from slurmsched.errors import ConfigError
from slurmsched.estimators.throughput_table import pair_throughput, throughput_table
from slurmsched.estimators.throughputs import Throughputs
from slurmsched.policies.gavel import PAIRS, Gavel
from slurmsched.testing import check_policy, snapshot
from slurmsched.testing.builders import Row

NODE = [{"name": "n1", "gpus": 1, "gpu_types": "gpu:v100:1"}]
HINTS = ("model=ResNet-18 batch=16", "model=Recommendation batch=512")


def problem(jobs: int, gpus: float = 1.0, room: float = 1.0, types: int = 1) -> AllocationProblem:
    """Jobs that are as fast on every type. room: GPUs of each."""
    return AllocationProblem(np.full(types, room), np.full(jobs, gpus), np.ones((jobs, types)), *[np.ones(jobs)] * 3)


def kept(count: int, *shares: float, types: int = 1) -> np.ndarray:
    """The same shares for all pairs and types."""
    return np.tile(np.array(shares), (count, types, 1))


def test_max_min__two_jobs_that_keep_four_fifths_share_one_gpu() -> None:
    """In turns each has a half; together all the time 0.8: 1.6 times an equal split."""
    given_, one = problem(2), np.zeros(1, np.int64)
    made = space_sharing.worthwhile_pairs(given_, one, one + 1, kept(1, 0.8, 0.8))
    share, shared, level = space_sharing.max_min_level(given_, made)
    assert (share.sum(), shared.tolist()) == (pytest.approx(0.0, abs=1e-9), [[pytest.approx(1.0)]])
    assert level == pytest.approx(1.6)


def test_max_min__unlike_jobs_share_and_take_turns() -> None:
    """One keeps all and the other 0.4. The pair runs all but y of the time, the second alone then: 1 - y = 0.4 + 0.6 y,
    so y = 3/8 and each makes 5/8, which is 1.25 times a half."""
    given_, one = problem(2), np.zeros(1, np.int64)
    share, shared, level = space_sharing.max_min_level(
        given_, space_sharing.worthwhile_pairs(given_, one, one + 1, kept(1, 1.0, 0.4))
    )
    assert share.ravel() == pytest.approx([0.0, 3 / 8], abs=1e-6)
    assert (shared[0, 0], level) == (pytest.approx(5 / 8), pytest.approx(1.25))


def test_worthwhile__pairs_that_are_no_better_than_turns_are_left_out() -> None:
    """0.5 and 0.5 are what turns give, and a pair of sizes that differ is no pair."""
    first, second = space_sharing.possible_pairs(np.array([1.0, 2.0, 1.0, 2.0]))
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == [(0, 2), (1, 3)]
    made = space_sharing.worthwhile_pairs(problem(4), first, second, np.array([[[0.5, 0.5]], [[0.6, 0.5]]]))
    assert (made.first.tolist(), made.speed.tolist()) == ([1], [[[0.6, 0.5]]])


@given(shares=st.lists(st.floats(0.0, 1.0), min_size=12, max_size=12), room=st.integers(1, 3))
def test_max_min__never_below_turns_and_within_what_there_is(shares: list[float], room: int) -> None:
    """Four jobs on two types: pairs only add to what is possible; time and GPUs hold."""
    given_ = problem(4, room=room / 2, types=2)
    first, second = space_sharing.possible_pairs(given_.gpus)
    keeps = np.array(shares).reshape(6, 1, 2).repeat(2, axis=1)
    share, shared, level = space_sharing.max_min_level(
        given_, made := space_sharing.worthwhile_pairs(given_, first, second, keeps)
    )
    _, turns = programmes.raise_least(given_, given_.speed * programmes.throughput_weight(given_)[:, None])
    time = share.sum(axis=1)
    np.add.at(time, made.first, shared.sum(axis=1))
    np.add.at(time, made.second, shared.sum(axis=1))
    assert level >= turns - 1e-6
    assert (time <= 1 + 1e-6).all()
    assert (share.sum(axis=0) + shared.sum(axis=0) <= given_.capacity + 1e-6).all()


def test_kept__is_what_the_table_has_of_the_pair() -> None:
    """Both throughputs beside each other over those alone, and nothing for an unknown model."""
    rows: list[Row] = [{"job_id": n, "gpus": 1, "comment": f"slurmsched: {hint}"}
                       for n, hint in enumerate((*HINTS, "model=mine"), 1)]  # fmt: skip
    one, two, three = (np.array([row]) for row in range(3))
    speeds, here = Throughputs("gavel"), snapshot(rows)
    table = throughput_table("gavel")["k80"]
    a, b = "ResNet-18 (batch size 16)", "Recommendation (batch size 512)"
    alone = [table[f"('{kind}', 1)"]["null"] for kind in (a, b)]
    assert speeds.shared_speeds(here, one, two, ["k80"])[0, 0] == pytest.approx(
        np.array(pair_throughput(table, a, b, 1)) / alone
    )
    assert speeds.shared_speeds(here, one, three, ["k80", "v100"]).tolist() == [[[0.0, 0.0]] * 2]


def test_gavel__tells_what_pairs_would_gain() -> None:
    """Two jobs on one V100 that keep 0.9 and more beside each other; the note stays until the next allocation."""
    rows: list[Row] = [{"job_id": n, "comment": f"slurmsched: {hint}", "gpus": 1} for n, hint in enumerate(HINTS, 1)]
    here, policy = snapshot(rows, NODE), Gavel(speeds=Throughputs("gavel"), tell_pairs=True)
    both = policy.speeds.shared_speeds(here, np.array([0]), np.array([1]), ["v100"])[0, 0]  # type: ignore[attr-defined]
    made = policy.rank(here)
    less, more = sorted(both.tolist())  # the pair, then the slower one alone, until both have made as much
    assert f"{2 * more / (1 + more - less):.2f} times" in made.notes[-1]
    later = policy.rank(snapshot(rows, NODE, now_s=here.now_s + 1.0, carry=made.carry))
    assert later.notes == made.notes
    off = Gavel(speeds=Throughputs("gavel")).rank(snapshot(rows, NODE, now_s=here.now_s + 1.0, carry=made.carry))
    assert (off.notes, PAIRS in made.carry, PAIRS in off.carry) == ((), True, False)
    check_policy(policy)


def test_gavel__pairs_need_a_table_of_pairs() -> None:
    """Without throughputs nobody knows how fast two jobs are side by side."""
    with pytest.raises(ConfigError) as caught:
        Gavel(tell_pairs=True)
    assert caught.value.key == "policy.tell_pairs"

"""Groups of jobs by weighted matching, by hand and against all matchings."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.allocation.job_groups import MOST_KINDS, JobGroup, Members, candidates, matched_groups, matched_kinds


def best(have: list[int], weight: np.ndarray) -> float:
    """The largest sum of weights of any matching, by trying all."""
    jobs = [kind for kind, count in enumerate(have) for _ in range(count)]

    def most(left: tuple[int, ...]) -> float:
        if len(left) < 2:
            return 0.0
        first, rest = left[0], left[1:]
        pairs = (max(weight[first, other], 0.0) + most(rest[:k] + rest[k + 1 :]) for k, other in enumerate(rest))
        return max(most(rest), *pairs)

    return most(tuple(jobs))


@pytest.mark.parametrize("seed", range(12))
def test_matched_kinds__is_as_good_as_the_best_of_all_matchings(seed: int) -> None:
    """Up to eight jobs of four kinds; some kinds are never joined."""
    random = np.random.default_rng(seed)
    have, weight = random.integers(0, 3, 4), random.uniform(-0.3, 1.0, (4, 4))
    weight = (weight + weight.T) / 2
    made = matched_kinds(tuple(have.tolist()), tuple(map(tuple, weight.tolist())))
    used = np.zeros(4, np.int64)
    for (a, b), count in made:
        used[a] += count
        used[b] += count
    assert (used <= have).all()
    assert sum(weight[a, b] * count for (a, b), count in made) == pytest.approx(best(have.tolist(), weight))


def test_matched_kinds__many_kinds_take_the_heaviest_first() -> None:
    """One job of each kind; no job in two couples, and at least half of what the best couples of all jobs would be."""
    kinds = MOST_KINDS + 8
    weight = np.random.default_rng(1).uniform(-0.3, 1.0, (kinds, kinds))
    weight = (weight + weight.T) / 2
    made = matched_kinds((1,) * kinds, tuple(map(tuple, weight.tolist())))
    joined = [kind for couple, count in made for kind in couple * count]
    assert len(joined) == len(set(joined))
    assert made[0][0] == tuple(sorted(np.unravel_index(np.argmax(weight - 9 * np.eye(kinds)), weight.shape)))
    np.fill_diagonal(weight, 0.0)
    assert sum(weight[a, b] for (a, b), _ in made) > 0.5 * weight.max(axis=0).sum() / 2


def test_candidates__each_job_that_fits_brings_the_next_of_its_size() -> None:
    """Row 0 takes one of four GPUs and brings 2 and 3; row 1 takes two and brings 5; row 4 takes the last."""
    assert candidates([0, 1, 2, 3, 4, 5], [1, 2, 1, 1, 1, 2], 4, 3) == {1: [0, 2, 3, 4], 2: [1, 5]}


def units(*kinds: str) -> list[JobGroup]:
    return [JobGroup((row,), (row,), (kind,)) for row, kind in enumerate(kinds)]


def differ(members: Members) -> float:
    """As many as there are different kinds among the members, where no kind is there twice."""
    return float(len(members)) if len(set(members)) == len(members) else 0.0


def test_grouped__stops_when_all_fit() -> None:
    """Four jobs on three GPUs: the most urgent two that differ become one group; on four they stay alone."""
    made = matched_groups({1: units("a", "a", "b", "b")}, 3, differ, 4)
    assert sorted(group.rows for group in made) == [(0, 2), (1,), (3,)]
    assert len(matched_groups({1: units("a", "a", "b", "b")}, 4, differ, 4)) == 4


def test_grouped__pairs_of_pairs_become_four() -> None:
    """One GPU: two rounds."""
    assert [group.rows for group in matched_groups({1: units(*"abcd")}, 1, differ, 4)] == [(0, 1, 2, 3)]
    assert sorted(len(group.rows) for group in matched_groups({1: units(*"abcd")}, 1, differ, 2)) == [2, 2]
    assert len(matched_groups({1: units(*"aaaa")}, 1, differ, 4)) == 4

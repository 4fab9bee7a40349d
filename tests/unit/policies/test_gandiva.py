"""Gandiva's packing: pairs drawn by chance, by hand; and its lots, which are Python's own."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from slurmsched.allocation.cpython_random import CPythonRandom
from slurmsched.errors import ConfigError
from slurmsched.estimators.throughputs import EqualSpeeds, Throughputs
from slurmsched.model import Ranking
from slurmsched.policies.gandiva import Gandiva
from slurmsched.sim.experiments.released_policies import GandivaAsReleased
from slurmsched.testing import check_policy, snapshot

PAIR = {"A": {"A": 0.6, "B": 0.9}, "B": {"A": 0.9, "B": 0.3}}  # what each keeps beside the other
NODES = [{"name": "n1", "gpus": 2, "gpu_types": "gpu:v100:2"}]


@pytest.fixture
def policy(tmp_path: Path) -> Gandiva:
    table = {f"('{one}', {gpus})": {"null": 10.0} | {f"('{other}', {gpus})": [10 * share, 10 * PAIR[other][one]]
             for other, share in row.items() if gpus == 1} for one, row in PAIR.items() for gpus in (1, 2)}  # fmt: skip
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"v100": table}))
    return Gandiva(speeds=Throughputs(str(path)))


def jobs(models: str, gpus: int = 1, first: int = 1) -> list[dict[str, Any]]:
    return [
        {"job_id": n, "gpus": gpus, "comment": f"slurmsched: model={model}"} for n, model in enumerate(models, first)
    ]


def pairs(made: Ranking) -> set[frozenset[int]]:
    """Ids of those that the lots have paired, whether or not they run."""
    return {frozenset(pair) for pair in zip(made.carry["drawn"]["first"], made.carry["drawn"]["second"], strict=True)}


def shares(made: Ranking) -> list[float]:
    assert made.changes is not None and made.changes.share is not None
    return made.changes.share.round(6).tolist()


@pytest.mark.parametrize("seed", range(4))
def test_lots__are_those_of_pythons_own_generator(seed: int) -> None:
    """Two of a list of any length, and numbers, go on where the last draws ended."""
    theirs, ours = random.Random(), CPythonRandom((seed,))
    theirs.seed(seed)
    for count in [*range(2, 60), 100, 1_000]:
        assert list(ours.two(count)) == theirs.sample(range(count), 2)
    again = CPythonRandom((seed,), ours.count)
    assert [again.below(9) for _ in range(5)] == [theirs.randrange(9) for _ in range(5)]


def test_gandiva__the_example_of_the_page(policy: Gandiva) -> None:
    """Three pairs, each 2/3 of a GPU's time; two of them run in the first round, on both GPUs."""
    made = policy.rank(snapshot(jobs("AAAAAA"), NODES))
    assert (len(pairs(made)), set().union(*pairs(made))) == (3, {1, 2, 3, 4, 5, 6})
    assert shares(made) == pytest.approx([2 / 3] * 6)
    assert made.why["in_round"].sum() == 4


def test_gandiva__nobody_shares_while_all_fit(policy: Gandiva) -> None:
    """Two jobs, two GPUs: each has its own all the time; no lot is drawn."""
    made = policy.rank(snapshot(jobs("AA"), NODES))
    assert (made.changes.beside.tolist(), shares(made)) == ([-1, -1], [1.0, 1.0])  # type: ignore[union-attr]
    assert (pairs(made), made.carry["drawn"]["count"]) == (set(), 0)


def test_gandiva__sizes_that_differ_are_no_pair(policy: Gandiva) -> None:
    """One job of two GPUs and two of one: the two are paired, or nobody; never the gang."""
    made = policy.rank(snapshot([*jobs("A", gpus=2), *jobs("AA", first=2)], NODES))
    assert pairs(made) <= {frozenset({2, 3})}


def later(policy: Gandiva, made: Ranking, models: str) -> Ranking:
    """An allocation later, another job having come."""
    rows = [*jobs(models), *jobs("A", first=len(models) + 1)]
    return policy.rank(snapshot(rows, NODES, now_s=2_000.0, carry=made.carry))


def test_gandiva__a_pair_that_pays_stays_and_one_that_does_not_is_parted(policy: Gandiva) -> None:
    """0.6 twice is more than one alone, 0.3 twice is less: who is parted is paired anew."""
    good = policy.rank(snapshot(jobs("AAAA"), NODES))
    assert pairs(good) <= pairs(later(policy, good, "AAAA"))
    released = GandivaAsReleased(speeds=policy.speeds)  # its count is of random numbers used up
    bad = released.rank(snapshot(jobs("BBBB"), NODES))
    kept = later(released, bad, "BBBB").carry["drawn"]["count"]
    assert (len(pairs(bad)), kept > bad.carry["drawn"]["count"]) == (2, True)
    good = released.rank(snapshot(jobs("AAAA"), NODES))
    same = later(released, good, "AAAA").carry["drawn"]["count"]
    assert same == good.carry["drawn"]["count"]


def test_gandiva__who_lost_its_partner_draws_again(policy: Gandiva) -> None:
    """Job 1 is gone: its partner draws. Another job bears its id: the two are no pair, though they would pay."""
    made = policy.rank(snapshot(jobs("AAAA"), NODES))
    rows = [*jobs("AAA", first=2), *jobs("A", first=5)]
    after = policy.rank(snapshot(rows, NODES, now_s=2_000.0, carry=made.carry))
    assert all(1 not in pair for pair in pairs(after)) and len(pairs(after)) == 2
    lost = next(pair for pair in pairs(made) if 1 in pair)
    assert {5} | lost - {1} <= set().union(*pairs(after))
    partner = {**jobs("A", first=max(lost))[0]}
    for submit_s, stays in ((0.0, True), (9.0, False)):  # as all fit now, no lots are drawn
        two = [{**jobs("A")[0], "submit_s": submit_s}, partner]
        again = policy.rank(snapshot(two, NODES, now_s=2_000.0, carry=made.carry))
        assert pairs(again) == ({lost} if stays else set())


def test_gandiva__a_pair_without_throughputs_is_none(policy: Gandiva) -> None:
    """Gangs of two GPUs have none: each has half of the time. As released they are a pair, which cannot run."""
    given = snapshot(jobs("AA", gpus=2), NODES)
    made, released = policy.rank(given), GandivaAsReleased(speeds=policy.speeds).rank(given)
    assert (pairs(made), shares(made)) == (set(), [0.5, 0.5])
    assert (pairs(released), released.changes.beside.tolist()) == ({frozenset({1, 2})}, [-1, -1])  # type: ignore[union-attr]
    assert [each.why["in_round"].sum() for each in (made, released)] == [1, 1]


@pytest.mark.parametrize(("models", "gpu_type"), [("CCCCCCCC", "v100"), ("AAAAAAAA", "h100")])
def test_gandiva__jobs_that_the_table_lacks_take_turns(policy: Gandiva, models: str, gpu_type: str) -> None:
    """8 jobs of an unknown model, or on an unknown type, on 4 GPUs: in 8 rounds each has its half, give or take one."""
    nodes = [{"name": "n1", "gpus": 4, "gpu_types": f"gpu:{gpu_type}:4"}]
    rows, carry = jobs(models), {}
    for n in range(8):
        made = policy.rank(snapshot(rows, nodes, now_s=360.0 * n, carry=carry))
        carry, on = made.carry, made.why["in_round"].tolist()
        for row, runs in zip(rows, on, strict=True):
            row["executed_s"] = row.get("executed_s", 0.0) + 360.0 * runs
    rounds_had = [row["executed_s"] / 360.0 for row in rows]
    assert (sum(rounds_had), min(rounds_had) >= 3, max(rounds_had) <= 5) == (32.0, True, True)
    assert shares(made) == [0.5] * 8


def test_gandiva__a_type_that_the_table_lacks_parts_no_pair(policy: Gandiva) -> None:
    """A pair pays on V100, of which the table has it: a node of H100 beside them changes nothing."""
    nodes = [*NODES, {"name": "n2", "gpus": 1, "gpu_types": "gpu:h100:1"}]
    made = policy.rank(snapshot(jobs("AAAA"), nodes))
    more = [*jobs("AAAA"), *jobs("AA", first=5)]
    after = policy.rank(snapshot(more, nodes, now_s=2_000.0, carry=made.carry))
    assert len(pairs(made)) == 2 and pairs(made) <= pairs(after)


def test_gandiva__conforms_and_refuses_speeds_without_pairs(policy: Gandiva) -> None:
    """Every rule of check_policy, its carry included; a ConfigError names the setting."""
    check_policy(policy, [snapshot(jobs("AABBA"), NODES), snapshot(jobs("AABBA"), NODES, seed=3)])
    with pytest.raises(ConfigError) as caught:
        Gandiva(speeds=EqualSpeeds())
    assert caught.value.key == "policy.speeds"
    with pytest.raises(ConfigError) as caught:
        Gandiva(round_s=0.0)
    assert caught.value.key == "policy.round_s"

"""A policy's criteria in words."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, ClassVar

import numpy as np
import pytest

from slurmsched.config import ScopeConfig
from slurmsched.model import PolicyFamily, PolicyInfo, Ranking, Rights, Site, Snapshot
from slurmsched.model.durations import duration, gpu_hours
from slurmsched.model.policy_info import criteria, criteria_words
from slurmsched.planning.planner import Planner
from slurmsched.policies.gittins import Gittins
from slurmsched.policies.pop import Pop
from slurmsched.testing import snapshot

POLICIES = [point.load() for point in entry_points(group="slurmsched.policies")]
WORDS = {name: text for policy in POLICIES for name, text in criteria_words(policy).items()}


@dataclass(frozen=True)
class CheapestFirst:
    """A policy of a site."""

    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.BASELINE, "ours", criteria={"price": "costs {} EUR", "size": "small|large"}
    )

    def rank(self, at: Snapshot) -> Ranking:
        rows = len(at.jobs)
        return Ranking(np.arange(rows)[::-1], why={"price": np.full(rows, 3.5), "size": np.ones(rows, np.int64)})


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"queue": 1, "service_gpu_s": 3_600.0}, "queue 1, used 1.0 GPU h"),
        ({"beside": -1, "rho": float("nan"), "in_lease": False, "queue": -1}, "queue -1"),
        ({"run_s": 60.0, "decided_by": ""}, "runs 60 s"), ({"decided_by": "qos"}, "decided by qos"),
        ({"beside": 12_345_678}, "on GPUs of job 12345678"), ({"in_lease": True}, "in its lease"),
        ({"remaining_gpu_s": 691_200.0, "remaining_s": 86_400.0}, "has 192.0 GPU h to go, 1 d of run time to go"),
        ({"since_s": 5_280.0}, "in this queue since 1970-01-01T01:28:00Z"), ({"rho": 1.25}, "rho 1.25"),
        ({"turn": 1, "place": 4.0}, "preempted in this queue, place 4 in the last cycle"),
        ({"in_round": 0, "rank": 3}, "rank 3"), ({"in_round": 1, "batch_gpus": -1.0}, "in this round"),
    ],
)  # fmt: skip
def test_criteria__are_words_with_units(values: dict[str, Any], text: str) -> None:
    """What is not known, or not the case, is left out; ids stay whole."""
    assert criteria(values, WORDS) == text


@pytest.mark.parametrize(
    ("values", "text"),
    [({"debt_gpu_s": 7_200.0}, "debt 2.0 GPU h"), ({"wait_s": 90.0}, "wait 90 s"), ({"index_per_gpu_s": 0.5},
      "index per GPU s 0.5"), ({"of_a_friend": True}, "of a friend"), ({"price": 3.5}, "price 3.5")],
)  # fmt: skip
def test_criteria__of_another_package_are_shown_by_their_names(values: dict[str, Any], text: str) -> None:
    """The unit is what ends the name."""
    assert criteria(values, WORDS) == text


def test_words__of_one_criterion_are_the_same_in_all_policies() -> None:
    """Else users read two names for one thing."""
    every = [pair for policy in POLICIES for pair in criteria_words(policy).items()]
    assert sorted(set(every)) == sorted(WORDS.items())


def test_planner__takes_the_words_from_the_policy() -> None:
    """A site's own policy has words too; a policy that splits another has those of the other."""
    at = snapshot([{}, {}], site=Site(rights=Rights.OPERATOR))
    plan = Planner(CheapestFirst(), "cheapest", ScopeConfig(partitions=("*",))).plan(at)
    assert plan.actions[0].reason == "cheapest: rank 1 of 2, costs 3.5 EUR, large"
    for k in (1, 2):
        split = Planner(Pop(Gittins(), k=k)).plan(at).ranking
        assert split is not None and split.words == Gittins.about.criteria


def test_units__are_those_that_people_count_in() -> None:
    """Whole where they are large."""
    assert [gpu_hours(each) for each in (30.0, 2_400.0, 3_600.0, 7_200_000.0)] == [
        "30 GPU s", "40 GPU min", "1.0 GPU h", "2,000.0 GPU h"]  # fmt: skip
    assert duration(float("nan")) == duration(float("inf")) == "-"
    assert [duration(each) for each in (-30.0, 599.0, 720.0, 9_000.0, 273_600.0, 3_600.0)] == [
        "-30 s", "599 s", "12 min", "2 h 30 min", "3 d 4 h", "1 h"]  # fmt: skip

"""Parameters that count something: whole numbers, refused before a cycle meets them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from slurmsched import registry
from slurmsched.errors import ConfigError

COUNTS = (
    ("allox", "most_jobs"), ("aonline", "most_jobs"), ("aonline", "slots"), ("astraea", "levels"),
    ("chronus", "most_jobs"),
    ("dorm", "most_jobs"), ("elasticflow", "slots"), ("elasticflow", "most_jobs"), ("gavel", "most_jobs"),
    ("gittins", "least_samples"), ("heet", "most_jobs"), ("heet", "probes"), ("max-sum-throughput", "most_jobs"),
    ("oasis", "slots"), ("oasis", "most_jobs"), ("ossp", "most_jobs"), ("pop", "k"), ("pop", "most_jobs"),
    ("shockwave", "window"), ("shockwave", "again"), ("shockwave", "most_jobs"),
    ("spin", "slots"), ("spin", "most_jobs"),
)  # fmt: skip


@pytest.mark.parametrize("value", [300.0, math.inf, True, "3"])
@pytest.mark.parametrize(("policy", "name"), COUNTS)
def test_counts__are_whole_numbers(policy: str, name: str, value: Any) -> None:
    """A part of a job, no end of them, or a word is a ConfigError that names the parameter."""
    with pytest.raises(ConfigError) as caught:
        registry.make("policies", policy, {name: value})
    assert caught.value.key == f"policy.{name}"


@pytest.mark.parametrize(("policy", "name"), COUNTS)
def test_counts__whole_ones_are_taken(policy: str, name: str) -> None:
    """As they are given."""
    assert getattr(registry.make("policies", policy, {name: 3}), name) == 3

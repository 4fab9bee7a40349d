"""Parameters that count something: whole numbers, refused before a cycle meets them."""

from __future__ import annotations

import math
from dataclasses import fields
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
        registry.make_plugin("policies", policy, {name: value})
    assert caught.value.key == f"policy.{name}"


@pytest.mark.parametrize(("policy", "name"), COUNTS)
def test_counts__whole_ones_are_taken(policy: str, name: str) -> None:
    """As they are given."""
    assert getattr(registry.make_plugin("policies", policy, {name: 3}), name) == 3


FINITE = (
    ("allox", "alpha"), ("allox", "round_s"), ("aonline", "window_s"), ("astraea", "lease_s"), ("dorm", "theta1"),
    ("dorm", "theta2"), ("e-las", "quantum_gpu_s"), ("gandiva", "round_s"), ("gandiva-fair", "quantum_s"),
    ("gavel", "round_s"), ("gittins", "delta_gpu_s"), ("heet", "round_s"), ("las", "quantum_gpu_s"),
    ("max-sum-throughput", "round_s"), ("mlfs", "deadline_weight"), ("mlfs", "waiting_weight"), ("ossp", "round_s"),
    ("shockwave", "k"), ("shockwave", "round_s"), ("spin", "round_s"), ("themis", "lease_s"),
)  # fmt: skip


@pytest.mark.parametrize("value", [math.inf, 10**400])
@pytest.mark.parametrize(("policy", "name"), FINITE)
def test_numbers__that_are_divided_by_are_finite(policy: str, name: str, value: Any) -> None:
    """An endless round, or a number that no float holds, would make an order of NaN: a ConfigError that names it."""
    with pytest.raises(ConfigError) as caught:
        registry.make_plugin("policies", policy, {name: value})
    assert caught.value.key == f"policy.{name}"


PARAMETERS = [
    (policy, spec)
    for policy in registry.plugin_names("policies")
    for spec in fields(registry.load_plugin("policies", policy))
]
SWITCHES = [(policy, spec.name) for policy, spec in PARAMETERS if spec.type == "bool"]
NESTED = [(policy, spec.name) for policy, spec in PARAMETERS if spec.name in registry.NESTED]


@pytest.mark.parametrize("value", ["false", 1, None])
@pytest.mark.parametrize(("policy", "name"), SWITCHES)
def test_switches__are_true_or_false(policy: str, name: str, value: Any) -> None:
    """A word is not taken for true, as "false" would be: a ConfigError says what may stand there."""
    with pytest.raises(ConfigError, match="must be true or false") as caught:
        registry.make_plugin("policies", policy, {name: value})
    assert caught.value.key == f"policy.{name}"


@pytest.mark.parametrize("value", [3, ["hint"]])
@pytest.mark.parametrize(("policy", "name"), NESTED)
def test_nested_plugins__are_names_or_tables(policy: str, name: str, value: Any) -> None:
    """A number or a list in the place of an estimator is refused when the policy is made, not when it ranks."""
    with pytest.raises(ConfigError, match=r"must be a name, or .* known: ") as caught:
        registry.make_plugin("policies", policy, {name: value})
    assert caught.value.key == f"policy.{name}"


@pytest.mark.parametrize("name", ["table", "reference"])
@pytest.mark.parametrize("value", [3, math.inf, True, []])
def test_shockwave__texts_are_texts(name: str, value: Any) -> None:
    """A number in the place of a file or a GPU type is a ConfigError that names the parameter."""
    with pytest.raises(ConfigError, match="must be a text") as caught:
        registry.make_plugin("policies", "shockwave", {name: value})
    assert caught.value.key == f"policy.{name}"

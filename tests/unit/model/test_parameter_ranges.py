"""Ranges of parameters: told in their types, kept to, and printed."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Annotated, Any

import pytest

from slurmsched import registry
from slurmsched.errors import ConfigError
from slurmsched.model.parameters import Count, Range, Seconds, SecondsOrNever, check_ranges, parameter_ranges


@dataclass(frozen=True)
class Example:
    wait_s: Seconds = 60.0
    patience_s: SecondsOrNever = math.inf
    rounds: Count = 3
    share: Annotated[float, Range(0.25, 0.5)] = 0.5
    name: str = ""

    def __post_init__(self) -> None:
        check_ranges(self)


@pytest.mark.parametrize(
    ("name", "value"),
    [("wait_s", 0), ("wait_s", 1e9), ("patience_s", math.inf), ("rounds", 1), ("rounds", 1_000_000), ("share", 0.25)],
)
def test_check_ranges__takes_what_is_within(name: str, value: Any) -> None:
    """Both ends, infinity where something may never come, whole numbers for any number."""
    assert getattr(Example(**{name: value}), name) == value


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [("wait_s", math.inf, "must be a number from 0 to 1e+09, got inf"),
     ("patience_s", math.nan, "must be a number from 0.001 to 1e+09, or inf, got nan"),
     ("rounds", 2.0, "must be a whole number from 1 to 1,000,000, got 2.0"),
     ("share", True, "must be a number from 0.25 to 0.5, got True")],
)  # fmt: skip
def test_check_ranges__names_parameter_range_and_value(name: str, value: Any, text: str) -> None:
    """As somebody needs it who has to mend a configuration."""
    with pytest.raises(ConfigError) as caught:
        Example(**{name: value})
    assert (caught.value.key, caught.value.message) == (f"policy.{name}", text)


@pytest.mark.parametrize("policy", registry.plugin_names("policies"))
def test_ranges__every_number_of_a_policy_has_one(policy: str) -> None:
    """Or an endless one would be met in a cycle."""
    kind = registry.load_plugin("policies", policy)
    assert {spec.name for spec in fields(kind) if type(spec.default) in (int, float)} == set(parameter_ranges(kind))


def test_speeds__that_are_neither_known_nor_a_file_name_the_parameter() -> None:
    """With what may stand there."""
    with pytest.raises(
        ConfigError, match="no speed estimator and no file 'abc'; known: alike, goodput, profiles, throughputs"
    ) as caught:
        registry.make_plugin("policies", "allox", {"speeds": "abc"})
    assert caught.value.key == "policy.speeds"

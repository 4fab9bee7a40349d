"""Parameters of policies: any number within the range that is told gives an order, any other is refused."""

from __future__ import annotations

import json
import math
import sys
import warnings
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched import registry
from slurmsched.errors import ConfigError
from slurmsched.model import Ranking
from slurmsched.policies.ranges import Range, ranges
from slurmsched.testing import mixed_snapshot

POLICIES = registry.names("policies")
NUMBERS = [(policy, spec.name) for policy in POLICIES for spec in fields(registry.load("policies", policy))
           if type(spec.default) in (int, float)]  # fmt: skip
SMALL = mixed_snapshot(5, seed=2)


def allowed(policy: str, name: str) -> Range:
    return ranges(registry.load("policies", policy))[name]


def within(bounds: Range) -> st.SearchStrategy[Any]:
    """Numbers of a range, its ends more often than others."""
    ends = [bounds.least, bounds.most, *([math.inf] if bounds.endless else [])]
    if bounds.whole:
        few, many = int(bounds.least), int(bounds.most)
        return st.sampled_from([few, many]) | st.integers(few, min(few + 20, many))
    return st.sampled_from(ends) | st.floats(bounds.least, bounds.most)


def outside(bounds: Range) -> st.SearchStrategy[Any]:
    """Numbers on either side of a range, none at all, and what is no number."""
    odd = st.sampled_from([math.nan, -math.inf, sys.float_info.max, 10**400, True, "3", None, [1.0]])
    below = st.floats(max_value=bounds.least, exclude_max=True, allow_infinity=False)
    above = st.floats(min_value=bounds.most, exclude_min=True, allow_infinity=False)
    return odd | below | above | (st.nothing() if bounds.endless else st.just(math.inf))


def plain(ranking: Ranking) -> list[str]:
    """Columns of its reasons that have a NaN."""
    columns = {name: np.asarray(column) for name, column in ranking.why.items()}
    return [name for name, column in columns.items() if column.dtype.kind == "f" and np.isnan(column).any()]


@pytest.mark.parametrize(("policy", "name"), NUMBERS)
@settings(deadline=None, max_examples=3)
@given(chosen=st.data())
def test_ranges__numbers_within_give_an_order(policy: str, name: str, chosen: st.DataObject) -> None:
    """Neither NaN nor a warning of numpy, at the first look and at the next."""
    rule = registry.make("policies", policy, {name: chosen.draw(within(allowed(policy, name)))})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = rule.rank(SMALL)
        carry = json.loads(json.dumps(dict(first.carry)))
        after = rule.rank(replace(SMALL, carry=carry, now_s=SMALL.now_s + 60.0))
    assert (plain(first), plain(after), sorted(after.order.tolist())) == ([], [], list(range(len(SMALL.jobs))))


@pytest.mark.parametrize(("policy", "name"), NUMBERS)
@settings(deadline=None, max_examples=10)
@given(chosen=st.data())
def test_ranges__numbers_outside_are_refused(policy: str, name: str, chosen: st.DataObject) -> None:
    """The error names the parameter, the range, and what was given."""
    bounds = allowed(policy, name)
    value = chosen.draw(outside(bounds))
    with pytest.raises(ConfigError) as caught:
        registry.make("policies", policy, {name: value})
    given_value = tuple(value) if isinstance(value, list) else value
    assert caught.value.key == f"policy.{name}"
    assert f"{bounds}, got {given_value!r}" in caught.value.message

"""Parameters of policies and estimators: any number within the range told gives an order or estimates, any other is
refused."""

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
from slurmsched.model import Past, Ranking
from slurmsched.model.parameters import Range, parameter_ranges
from slurmsched.testing import mixed_snapshot

NUMBERS = [(kind, plugin, spec.name) for kind in ("policies", "estimators") for plugin in registry.plugin_names(kind)
           for spec in fields(registry.load_plugin(kind, plugin)) if type(spec.default) in (int, float)]  # fmt: skip
ORDERS = [case[1:] for case in NUMBERS if case[0] == "policies"]
ESTIMATES = [case[1:] for case in NUMBERS if case[0] == "estimators"]
SMALL = mixed_snapshot(5, seed=2)
ENDED = Past.build(
    300,
    {"user": list("abc") * 100, "name": list("xyxyz") * 60, "gpus": [1, 2, 8] * 100,
     "executed_s": [1.0 + k % 7 * 900 for k in range(300)], "end_s": SMALL.now_s - 2_000.0 * np.arange(300, 0, -1)},
)  # fmt: skip
TAUGHT = replace(SMALL, past=ENDED)


def allowed(kind: str, plugin: str, name: str) -> Range:
    return parameter_ranges(registry.load_plugin(kind, plugin))[name]


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


@pytest.mark.parametrize(("policy", "name"), ORDERS)
@settings(deadline=None, max_examples=3)
@given(chosen=st.data())
def test_ranges__numbers_within_give_an_order(policy: str, name: str, chosen: st.DataObject) -> None:
    """Neither NaN nor a warning of numpy, at the first look and at the next."""
    rule = registry.make_plugin("policies", policy, {name: chosen.draw(within(allowed("policies", policy, name)))})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = rule.rank(SMALL)
        carry = json.loads(json.dumps(dict(first.carry)))
        after = rule.rank(replace(SMALL, carry=carry, now_s=SMALL.now_s + 60.0))
    assert (plain(first), plain(after), sorted(after.order.tolist())) == ([], [], list(range(len(SMALL.jobs))))


@pytest.mark.parametrize(("estimator", "name"), ESTIMATES)
@settings(deadline=None, max_examples=10)
@given(chosen=st.data())
def test_ranges__numbers_within_give_estimates(estimator: str, name: str, chosen: st.DataObject) -> None:
    """No time below 0 or without an end, none where even the hint speaks, no warning of numpy; rounds and leaves stay
    small."""
    bounds = allowed("estimators", estimator, name)
    drawn = st.integers(int(bounds.least), 20) if name in ("rounds", "leaves") else within(bounds)
    rule = registry.make_plugin("estimators", estimator, {name: chosen.draw(drawn)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        total_s = rule.estimate(TAUGHT).total_s
    silent = np.isnan(total_s)
    assert not (silent & ~np.isnan(registry.make_plugin("estimators", "hint").estimate(TAUGHT).total_s)).any()
    assert ((total_s >= 0) & np.isfinite(total_s) | silent).all()


@pytest.mark.parametrize(("kind", "plugin", "name"), NUMBERS)
@settings(deadline=None, max_examples=10)
@given(chosen=st.data())
def test_ranges__numbers_outside_are_refused(kind: str, plugin: str, name: str, chosen: st.DataObject) -> None:
    """The error names the parameter, the range, and what was given."""
    bounds = allowed(kind, plugin, name)
    value = chosen.draw(outside(bounds))
    with pytest.raises(ConfigError) as caught:
        registry.make_plugin(kind, plugin, {name: value})
    given_value = tuple(value) if isinstance(value, list) else value
    assert caught.value.key == f"policy.{name}"
    assert f"{bounds}, got {given_value!r}" in caught.value.message

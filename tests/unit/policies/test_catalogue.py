"""All policies we ship: found by name, described, and with a page in docs/policies."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from slurmsched import registry
from slurmsched.errors import ConfigError
from slurmsched.estimators.hint import Hint
from slurmsched.estimators.time_limit import TimeLimit

OURS = ("discretized-las", "fifo", "gittins", "las", "sjf", "smallest", "srsf", "srtf")
PAGES = Path(__file__).parents[3] / "docs" / "policies"
PREEMPTIVE = {name: name not in ("fifo", "sjf") for name in OURS}


def test_registry__knows_our_policies() -> None:
    """Every policy of ours is an entry point."""
    assert set(OURS) <= set(registry.names("policies"))


@pytest.mark.parametrize("name", OURS)
def test_policy__says_whether_it_preempts_and_its_paper(name: str) -> None:
    """preemptive: whether the order is meant to take GPUs from running jobs. paper: where it is from."""
    policy = registry.make("policies", name)
    assert (policy.preemptive, bool(policy.paper)) == (PREEMPTIVE[name], True)


@pytest.mark.parametrize("name", OURS)
def test_policy_page__names_every_parameter_and_its_default(name: str) -> None:
    """A page of docs/policies has a table row for each parameter, with the default the code has."""
    policy = registry.make("policies", name)
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    rows = dict(line.split("|")[1:3] for line in text.splitlines() if line.startswith("| `"))
    documented = {key.strip(" `"): default.strip(" `") for key, default in rows.items()}
    assert documented == {spec.name: _written(getattr(policy, spec.name)) for spec in fields(policy)}


@pytest.mark.parametrize("given", ["time-limit", {"name": "time-limit"}])
def test_registry__makes_the_estimator_of_a_policy(given: object) -> None:
    """A policy's estimator may be given by name, or as a table with its parameters."""
    assert registry.make("policies", "srsf", {"estimator": given}).estimator == TimeLimit()


def test_registry__estimator_defaults_to_the_hint() -> None:
    """Without the parameter the hint is used."""
    assert registry.make("policies", "srtf").estimator == Hint()


def test_registry__unknown_estimator_names_the_setting() -> None:
    """The error names the nested setting and the nearest known name."""
    with pytest.raises(ConfigError, match="did you mean 'hint'") as caught:
        registry.make("policies", "srtf", {"estimator": "hints"})
    assert caught.value.key == "policy.estimator"


def _written(value: object) -> str:
    """A default as the configuration file has it."""
    if isinstance(value, tuple):
        return f"[{', '.join(f'{number:g}' for number in value)}]"
    if isinstance(value, Hint):
        return '"hint"'
    return f'"{value}"' if isinstance(value, str) else f"{value:g}"

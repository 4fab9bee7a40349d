"""All policies we ship: found by name, described, and with a page in docs/policies."""

from __future__ import annotations

import re
from dataclasses import fields
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import slurmsched.policies
from slurmsched import registry
from slurmsched.errors import ConfigError
from slurmsched.estimators.additive import Additive
from slurmsched.estimators.alike import Alike
from slurmsched.estimators.hint import Hint
from slurmsched.estimators.history import History
from slurmsched.estimators.throughputs import Throughputs
from slurmsched.estimators.time_limit import TimeLimit
from slurmsched.model import Card, Input, Use
from slurmsched.policies.gavel import Gavel
from slurmsched.testing import check_policy

OURS = tuple(
    point.name for point in entry_points(group="slurmsched.policies") if point.value.startswith("slurmsched.policies.")
)
PAGES = Path(__file__).parents[3] / "docs" / "policies"
MODULES = tuple(Path(slurmsched.policies.__file__).parent.glob("*.py"))


def test_registry__knows_our_policies() -> None:
    """Every module of a policy class is reached by an entry point."""
    modules = {point.module for point in entry_points(group="slurmsched.policies")}
    written = {f"slurmsched.policies.{path.stem}" for path in MODULES if "    def rank(self" in path.read_text()}
    assert written - modules == set()


@pytest.mark.parametrize("name", OURS)
def test_policy__card_says_what_it_needs_and_uses(name: str) -> None:
    """A card: family, paper, inputs and levers; a policy that preempts uses requeues and says what Slurm cannot do."""
    policy = registry.make("policies", name)
    card = policy.card
    assert (isinstance(card, Card), bool(card.paper), Use.ORDER in card.uses) == (True, True, True)
    assert (Use.REQUEUE in card.uses) == policy.preemptive
    assert bool(card.on_slurm) or not policy.preemptive


@pytest.mark.parametrize("name", OURS)
def test_policy__conforms(name: str) -> None:
    """Every rule that all policies keep."""
    check_policy(registry.make("policies", name))


@pytest.mark.parametrize("name", OURS)
def test_policy_page__says_what_the_card_leaves_out(name: str) -> None:
    """The bullet "Left out" of a page is what `policy show` prints under that heading; without any there is none."""
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    found = re.search(r"^- Left out: (.*\n(?:  .*\n)*)", text, re.MULTILINE)
    assert " ".join(found[1].split() if found else []) == " ".join(registry.make("policies", name).card.left_out)


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
    if isinstance(value, Throughputs):
        return f'"{value.table}"'
    if isinstance(value, Hint | History | Additive | Alike | Gavel):
        return f'"{type(value).__name__.lower()}"'
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{value:g}"


@pytest.mark.parametrize(
    ("parameters", "asked"), [({}, False), ({"accounts": False}, False), ({"accounts": True}, True)]
)
def test_cards__gavel_looks_at_shares_of_accounts_only_where_these_share(
    parameters: dict[str, bool], asked: bool
) -> None:
    """Slurm is not asked for what nobody looks at."""
    assert (Input.SHARES in Gavel.card.needed(parameters)) == asked

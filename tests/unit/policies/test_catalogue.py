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
from slurmsched.estimators.requested_time import Hint, TimeLimit
from slurmsched.estimators.throughputs import Throughputs
from slurmsched.model import PolicyInfo, PolicyInput, PolicyLever
from slurmsched.policies.gavel import Gavel
from slurmsched.testing import check_policy

OURS = tuple(
    point.name for point in entry_points(group="slurmsched.policies") if point.value.startswith("slurmsched.policies.")
)
NAMES = {point.value: point.name for group in ("policies", "estimators", "speeds")
         for point in entry_points(group=f"slurmsched.{group}")}  # fmt: skip
PAGES = Path(__file__).parents[3] / "docs" / "policies"
MODULES = tuple(Path(slurmsched.policies.__file__).parent.glob("*.py"))


def test_registry__knows_our_policies() -> None:
    """Every module of a policy class is reached by an entry point."""
    modules = {point.module for point in entry_points(group="slurmsched.policies")}
    written = {f"slurmsched.policies.{path.stem}" for path in MODULES if "    def rank(self" in path.read_text()}
    assert written - modules == set()


@pytest.mark.parametrize("name", OURS)
def test_policy__card_says_what_it_needs_and_uses(name: str) -> None:
    """PolicyInfo has family, paper, inputs and levers. A preemptive policy uses requeues and names limits of Slurm."""
    policy = registry.make_plugin("policies", name)
    about = policy.about
    assert (isinstance(about, PolicyInfo), bool(about.paper), PolicyLever.ORDER in about.uses) == (True, True, True)
    assert (PolicyLever.REQUEUE in about.uses) == policy.preemptive
    assert bool(about.on_slurm) or not policy.preemptive


@pytest.mark.parametrize("name", OURS)
def test_policy__conforms(name: str) -> None:
    """Every rule that all policies keep."""
    check_policy(registry.make_plugin("policies", name))


@pytest.mark.parametrize("name", OURS)
def test_policy_page__says_what_the_card_leaves_out(name: str) -> None:
    """The bullet "Left out" of a page is what `policy show` prints under that heading; without any there is none."""
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    found = re.search(r"^- Left out: (.*\n(?:  .*\n)*)", text, re.MULTILINE)
    assert " ".join(found[1].split() if found else []) == " ".join(
        registry.make_plugin("policies", name).about.left_out
    )


@pytest.mark.parametrize("name", OURS)
def test_policy_page__names_every_parameter_and_its_default(name: str) -> None:
    """A page of docs/policies has a table row for each parameter, with the default the code has. A preset of another
    policy may leave parameters to the page of that one."""
    policy = registry.make_plugin("policies", name)
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    rows = dict(line.split("|")[1:3] for line in text.splitlines() if line.startswith("| `"))
    documented = {key.strip(" `"): default.strip(" `") for key, default in rows.items()}
    preset = type(policy).__base__ is not object
    assert documented == {spec.name: _written(getattr(policy, spec.name)) for spec in fields(policy)
                          if not preset or spec.name in documented}  # fmt: skip


@pytest.mark.parametrize(("name", "objective"), [("ossp", "makespan"), ("max-sum-throughput", "sum-throughput")])
def test_preset__is_gavel_with_one_objective(name: str, objective: str) -> None:
    """Its objective cannot be changed."""
    assert registry.make_plugin("policies", name).objective == objective
    with pytest.raises(ConfigError, match=f"must be one of {objective}, got 'max-min'"):
        registry.make_plugin("policies", name, {"objective": "max-min"})


@pytest.mark.parametrize("given", ["time-limit", {"name": "time-limit"}])
def test_registry__makes_the_estimator_of_a_policy(given: object) -> None:
    """A policy's estimator may be given by name, or as a table with its parameters."""
    assert registry.make_plugin("policies", "srsf", {"estimator": given}).estimator == TimeLimit()


def test_registry__estimator_defaults_to_the_hint() -> None:
    """Without the parameter the hint is used."""
    assert registry.make_plugin("policies", "srtf").estimator == Hint()


def test_registry__unknown_estimator_names_the_setting() -> None:
    """The error names the nested setting and the nearest known name."""
    with pytest.raises(ConfigError, match="did you mean 'hint'") as caught:
        registry.make_plugin("policies", "srtf", {"estimator": "hints"})
    assert caught.value.key == "policy.estimator"


def _written(value: object) -> str:
    """A default as the configuration file has it."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, Throughputs):
        return f'"{value.table}"'
    if (name := NAMES.get(f"{type(value).__module__}:{type(value).__name__}")) is not None:
        return f'"{name}"'
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
    assert (PolicyInput.SHARES in Gavel.about.needed(parameters)) == asked

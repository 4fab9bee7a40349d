"""`policy`: what policies, placements and estimators there are, and their parameters."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Any

import click

from slurmsched.cli import output
from slurmsched.cli.groups import Group
from slurmsched.cli.output import Output
from slurmsched.cli.settings import config


@click.group("policy", cls=Group)
def command() -> None:
    """Which policies, placements and estimators there are, and their parameters."""


@output.with_command(command, "list")
def list_all(out: Output) -> None:
    """List every plug-in, a site's own included."""
    from slurmsched import registry

    found = [_line(kind, name) for kind in registry.KINDS for name in registry.names(kind)]
    if out.as_json:
        out.json(found)
    else:
        names = ("kind", "name", "family", "summary")
        out.table(names, [(registry.KINDS[row["kind"]], *(row[name] for name in names[1:])) for row in found])


@output.with_command(command, "show")
@click.argument("name")
@click.option("--site", is_flag=True, help="Ask Slurm, and say what this site lacks for it.")
@click.option("--kind", default="", metavar="KIND", help="Of this kind, such as physics, where several share a name.")
def show(out: Output, name: str, site: bool, kind: str) -> None:
    """Show what NAME does, what it needs and uses, and its parameters with their defaults and ranges."""
    from slurmsched import registry
    from slurmsched.errors import ConfigError

    chosen = [each for each, one in registry.KINDS.items() if kind in ("", each, one)]
    kinds = [each for each in chosen if name in registry.names(each)]
    if not kinds:
        if not chosen:
            raise ConfigError(
                f"no kind {kind!r}{registry.nearest(kind, registry.KINDS)}; known: {', '.join(registry.KINDS)}"
            )
        found = {each: registry.names(each) for each in chosen}
        near = registry.nearest(name, [every for names in found.values() for every in names])
        known = "; ".join(f"{each}: {', '.join(names)}" for each, names in found.items())
        raise ConfigError(f"no plug-in {name!r}{near}; known {known}")
    plugin = registry.load(kinds[0], name)
    card = _card(plugin)
    if site and card is not None:
        card["given"], card["lacking"], card["off"] = _at_site(name, plugin)
    parameters = [(spec.name, _default(spec)) for spec in dataclasses.fields(plugin)]
    allowed = _ranges(plugin)
    if out.as_json:
        told = {"kind": kinds[0], "name": name, "text": inspect.getdoc(plugin), "parameters": dict(parameters)}
        told["ranges"] = allowed
        out.json(told if card is None else {**told, "card": card})
        return
    out.line(f"{name} ({registry.KINDS[kinds[0]]})")
    out.line()
    out.line(inspect.getdoc(plugin) or "")
    for heading, texts in _headings(card or {}):
        out.line()
        out.line(heading)
        for text in texts:
            out.line(f"  {text}")
    if parameters:
        out.line()
        out.table(("parameter", "default", "range"), [(*each, allowed.get(each[0], "")) for each in parameters])


def _headings(card: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """The parts of a card as people read them, empty ones left out."""
    titles = {"paper": "paper", "needs": "needs", "uses": "levers of Slurm", "on_slurm": "on Slurm",
              "left_out": "left out of the paper",
              "given": "this site gives", "off": "switched off here", "lacking": "this site lacks"}  # fmt: skip
    parts = [(title, [card[key]] if isinstance(card.get(key), str) else list(card.get(key, ())))
             for key, title in titles.items()]  # fmt: skip
    if card.get("lacking") == []:
        parts[-1] = (titles["lacking"], ["nothing"])
    return [part for part in parts if part[1]]


def _card(plugin: Any) -> dict[str, Any] | None:
    """The card of a policy as plain values, None for a plug-in without one."""
    card = getattr(plugin, "card", None)
    if card is None:
        return None
    return {"family": str(card.family), "paper": card.paper, "needs": [str(need) for need in card.needs],
            "uses": [str(use) for use in card.uses], "on_slurm": list(card.on_slurm),
            "left_out": list(card.left_out)}  # fmt: skip


def _at_site(name: str, plugin: Any) -> tuple[list[str], list[str], list[str]]:
    """Of what the policy needs: what the live cluster gives that is not there from the start, and what it does not; of
    its levers those that the configuration keeps from Slurm."""
    from slurmsched.daemon.assemble import assembled
    from slurmsched.planning.inputs import given, lacking, switched_off

    tree = config()
    if tree.policy.name != name:
        tree = tree.model_copy(update={"policy": type(tree.policy)(name=name)})
    with assembled(tree, apply=False, read_only=True) as parts:
        snapshot = parts.store.recall(parts.cluster.read())
    needs = plugin.card.needed(tree.policy.parameters)
    lacks = [*lacking(snapshot, needs), *_tableless(tree.policy.parameters, needs)]
    return list(given(snapshot, needs)), lacks, list(switched_off(tree, plugin.card.uses))


def _tableless(parameters: dict[str, Any], needs: Sequence[str]) -> list[str]:
    """Whether speeds by GPU type are asked for and no table of them is configured."""
    from slurmsched.model import Input

    alike = parameters.get("speeds", "alike") in ("alike", {"name": "alike"})
    told = f"{Input.SPEED.value}: no table (policy.speeds), so that every type counts alike"
    return [told] if Input.SPEED in needs and alike else []


def _line(kind: str, name: str) -> dict[str, str]:
    """The plug-in's first line; one that cannot be loaded says why and hides no other."""
    from slurmsched import registry
    from slurmsched.errors import ConfigError

    try:
        plugin = registry.load(kind, name)
    except ConfigError as error:
        return {"kind": kind, "name": name, "family": "", "summary": f"broken: {error.message}"}
    card, summary = getattr(plugin, "card", None), (inspect.getdoc(plugin) or "").partition("\n")[0]
    return {"kind": kind, "name": name, "family": str(card.family) if card else "", "summary": summary}


def _ranges(plugin: Any) -> dict[str, str]:
    """The ranges of its parameters as people read them, by name; none where its types cannot be read."""
    from slurmsched.policies.ranges import ranges

    try:
        return {name: str(allowed) for name, allowed in ranges(plugin).items()}
    except (NameError, AttributeError, TypeError):  # a site's own, with types that only a checker knows
        return {}


def _default(spec: dataclasses.Field[Any]) -> Any:
    if spec.default is not dataclasses.MISSING:
        return spec.default
    return spec.default_factory() if spec.default_factory is not dataclasses.MISSING else None

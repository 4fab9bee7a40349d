"""`policy`: what policies, placements and estimators there are, and their parameters."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output

ONE = {"policies": "policy", "placements": "placement", "estimators": "estimator"}


@click.group("policy")
def command() -> None:
    """Which policies, placements and estimators there are, and their parameters."""


@output.with_command(command, "list")
def list_all(out: Output) -> None:
    """List every plug-in, a site's own included."""
    from slurmsched import registry

    found = [(kind, name, _summary(kind, name)) for kind in registry.KINDS for name in registry.names(kind)]
    if out.as_json:
        out.json([{"kind": kind, "name": name, "summary": summary} for kind, name, summary in found])
    else:
        out.table(("kind", "name", "summary"), [(ONE[kind], name, summary) for kind, name, summary in found])


@output.with_command(command, "show")
@click.argument("name")
def show(out: Output, name: str) -> None:
    """Show what NAME does and its parameters with their defaults."""
    from slurmsched import registry
    from slurmsched.errors import ConfigError

    kinds = [kind for kind in registry.KINDS if name in registry.names(kind)]
    if not kinds:
        known = ", ".join(each for kind in registry.KINDS for each in registry.names(kind))
        raise ConfigError(f"no plug-in {name!r}; known: {known}")
    plugin = registry.load(kinds[0], name)
    parameters = [(spec.name, _default(spec)) for spec in dataclasses.fields(plugin)]
    if out.as_json:
        out.json({"kind": kinds[0], "name": name, "text": inspect.getdoc(plugin), "parameters": dict(parameters)})
        return
    out.line(f"{name} ({ONE[kinds[0]]})")
    out.line()
    out.line(inspect.getdoc(plugin) or "")
    if parameters:
        out.line()
        out.table(("parameter", "default"), parameters)


def _summary(kind: str, name: str) -> str:
    """The plug-in's first line; one that cannot be loaded says why and hides no other."""
    from slurmsched import registry
    from slurmsched.errors import ConfigError

    try:
        return (inspect.getdoc(registry.load(kind, name)) or "").partition("\n")[0]
    except ConfigError as error:
        return f"broken: {error.message}"


def _default(spec: dataclasses.Field[Any]) -> Any:
    if spec.default is not dataclasses.MISSING:
        return spec.default
    return spec.default_factory() if spec.default_factory is not dataclasses.MISSING else None

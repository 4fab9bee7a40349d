"""Finds policies, placements and estimators: ours and a site's own, all through entry points."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from slurmsched.errors import ConfigError, InputError

KINDS = {
    "policies": "policy",
    "placements": "placement",
    "estimators": "estimator",
    "speeds": "speed estimator",
    "traces": "trace kind",
    "physics": "physics",
}  # group -> one of it
# parameter that is a plug-in itself -> its group
NESTED = {"estimator": "estimators", "speeds": "speeds", "of": "policies"}


def names(kind: str) -> tuple[str, ...]:
    """Names of all plug-ins of a kind ("policies", "placements", "estimators"), ascending."""
    return tuple(sorted(_found(kind)))


def make(kind: str, name: str, parameters: Mapping[str, Any] | None = None, *, key: str = "policy") -> Any:
    """The named plug-in with its parameters. key: dotted name of the setting, for errors.

    A parameter called `estimator`, `speeds` or `of` may be a name, or a mapping of `name` and parameters: it becomes
    that estimator, or for `of` that policy. `speeds` may also be a table of throughputs, a file or one that is shipped.
    Raises ConfigError for an unknown name or parameter (naming the nearest known), or a bad value, here for a switch
    (`bool`) that is not true or false and for a nested plug-in that is none; other values are the plug-in's to check.
    """
    plugin = load(kind, name, key=key)
    known = [spec.name for spec in fields(plugin)]
    for parameter in parameters or {}:
        if parameter not in known:
            near, has = nearest(parameter, known), ", ".join(known) or "none"
            raise ConfigError(f"{name} has no parameter {parameter!r}{near}; it has {has}", key=key)
    values = {parameter: _value(parameter, value, key) for parameter, value in (parameters or {}).items()}
    for spec in fields(plugin):
        if spec.name in values:
            _check(spec, values[spec.name], f"{key}.{spec.name}")
    try:
        return plugin(**values)
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error), key=key) from error


def parameters(kind: str, name: str, *, key: str = "policy") -> tuple[str, ...]:
    """Names of the parameters of a plug-in. Raises ConfigError as make does."""
    return tuple(spec.name for spec in fields(load(kind, name, key=key)))


def learns(plugin: Any) -> bool:
    """Whether a plug-in, or an estimator it was given, looks at Snapshot.past."""
    if getattr(plugin, "learns", False):
        return True
    inner = (getattr(plugin, spec.name) for spec in fields(plugin)) if is_dataclass(plugin) else ()
    return any(is_dataclass(each) and learns(each) for each in inner)


def _value(parameter: str, value: Any, key: str) -> Any:
    """A parameter as the plug-in takes it: lists as tuples, a nested plug-in's name as the plug-in."""
    if parameter in NESTED and isinstance(value, str):
        table = parameter == "speeds" and value not in names("speeds")
        value = {"name": "throughputs", "table": value} if table else {"name": value}
    if parameter in NESTED and isinstance(value, Mapping):
        rest = {name: setting for name, setting in value.items() if name != "name"}
        try:
            return make(NESTED[parameter], str(value.get("name", "")), rest, key=f"{key}.{parameter}")
        except InputError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            known = ", ".join(names(NESTED[parameter]))
            raise ConfigError(f"no {KINDS[NESTED[parameter]]} and no file {error.source!r}; known: {known}",
                              key=f"{key}.{parameter}") from error  # fmt: skip
    return tuple(value) if isinstance(value, list) else value


def _check(spec: Field[Any], value: Any, key: str) -> None:
    """Raises ConfigError for a switch that is not true or false, and for a nested plug-in that is none."""
    if spec.type in ("bool", bool) and not isinstance(value, bool):
        raise ConfigError(f"must be true or false, got {value!r}", key=key)
    nested = spec.name in NESTED and spec.default_factory is not MISSING and is_dataclass(spec.default_factory())
    if nested and not is_dataclass(value):
        known = ", ".join(names(NESTED[spec.name]))
        raise ConfigError(f'must be a name, or {{ name = "NAME", ... }}, got {value!r}; known: {known}', key=key)


def load(kind: str, name: str, *, key: str = "policy") -> Any:
    """The plug-in's class. Raises ConfigError for an unknown name or one that cannot be imported."""
    found = _found(kind)
    if name not in found:
        near, known = nearest(name, found), ", ".join(sorted(found))
        raise ConfigError(f"no {KINDS[kind]} {name!r}{near}; known: {known}", key=key)
    try:
        return found[name].load()
    except Exception as error:
        what = f"{KINDS[kind]} {name!r} ({found[name].value})"
        raise ConfigError(f"{what} cannot be loaded: {error}", key=key) from error


def _found(kind: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"slurmsched.{kind}")}


def nearest(name: str, known: Iterable[str]) -> str:
    """What to put behind a name that is not known: the nearest that is, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""

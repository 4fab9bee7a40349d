"""Finds policies, placements and estimators: ours and a site's own, all through entry points."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from slurmsched.errors import ConfigError, InputError
from slurmsched.extras import check_package
from slurmsched.model.policy_info import policy_info

if TYPE_CHECKING:
    from slurmsched.config import Config

# Group -> one of it.
KINDS = {
    "policies": "policy",
    "placements": "placement",
    "estimators": "estimator",
    "speeds": "speed estimator",
    "traces": "trace kind",
    "physics": "physics",
}
# parameter that is a plug-in itself -> its group
NESTED = {"estimator": "estimators", "speeds": "speeds", "of": "policies"}
MEASURED = "measured"  # parameter of policies and placements: the file of measured_use.profiles


@dataclass(frozen=True, slots=True)
class PluginRow:
    """A plug-in as `policy list` shows it. family: of a policy, "" of others. summary: its first line, or its fault."""

    kind: str
    name: str
    family: str
    summary: str

    @property
    def kind_shown(self) -> str:
        """The kind in the singular."""
        return KINDS[self.kind]


def plugin_row(kind: str, name: str) -> PluginRow:
    """The plug-in by its first line; one that cannot be loaded says why."""
    try:
        plugin = load_plugin(kind, name)
    except ConfigError as error:
        return PluginRow(kind, name, "", f"broken: {error.message}")
    about, summary = policy_info(plugin), (inspect.getdoc(plugin) or "").partition("\n")[0]
    return PluginRow(kind, name, str(about.family) if about else "", summary)


def plugin_names(kind: str) -> tuple[str, ...]:
    """Names of all plug-ins of a kind ("policies", "placements", "estimators"), ascending."""
    return tuple(sorted(_entry_points_by_name(kind)))


def make_plugin(kind: str, name: str, parameters: Mapping[str, Any] | None = None, *, key: str = "policy") -> Any:
    """The named plug-in with its parameters. key: dotted name of the setting, for errors.

    A parameter called `estimator`, `speeds` or `of` may be a name, or a mapping of `name` and parameters: it becomes
    that estimator, or for `of` that policy. `speeds` may also be a table of throughputs, a file or one that is shipped.
    Raises MissingPackageError if a package that the policy needs is not installed.
    Raises ConfigError for an unknown name or parameter, with the nearest known one. It does so too for a switch
    (`bool`) that is neither true nor false, and for a nested plug-in that does not exist. The plug-in checks all other
    values.
    """
    return build_plugin(load_plugin(kind, name, key=key), name, parameters, key=key)


def build_plugin(plugin: Any, name: str, parameters: Mapping[str, Any] | None = None, *, key: str = "policy") -> Any:
    """A plug-in of this class with its parameters. name: for errors. Raises ConfigError as make_plugin."""
    _check_packages(plugin, name, key)
    known = [spec.name for spec in fields(plugin)]
    unknown = [f"{parameter!r}{nearest(parameter, known)}" for parameter in parameters or {} if parameter not in known]
    if unknown:
        has = ", ".join(known) or "none"
        raise ConfigError(f"{name} has no parameter {', '.join(unknown)}; it has {has}", key=key)
    values = {parameter: _plugin_value(parameter, value, key) for parameter, value in (parameters or {}).items()}
    for spec in fields(plugin):
        if spec.name in values:
            _check(spec, values[spec.name], f"{key}.{spec.name}")
    try:
        return plugin(**values)
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error), key=key) from error


@dataclass(frozen=True, slots=True)
class Plugins:
    """The plug-ins of a configuration. estimator: None where the configuration names none."""

    policy: Any
    placement: Any
    estimator: Any = None


def configured(config: Config) -> Plugins:
    """The plug-ins that a configuration names. Raises ConfigError for an unknown one or a bad parameter."""
    estimator = _estimator(config)
    return Plugins(_policy(config, estimator), _placement(config), estimator)


def plugin_faults(config: Config) -> list[ConfigError]:
    """What is wrong with the plug-ins that a configuration names, one fault a plug-in at most."""
    faults: list[ConfigError] = []
    estimator = None
    try:
        estimator = _estimator(config)
    except ConfigError as error:
        faults.append(error)
    for make_one in (lambda: _policy(config, estimator), lambda: _placement(config)):
        try:
            make_one()
        except ConfigError as error:
            faults.append(error)
    return faults


def _estimator(config: Config) -> Any:
    named = config.estimator
    return make_plugin("estimators", named.name, named.parameters, key="estimator") if named is not None else None


def _policy(config: Config, estimator: Any) -> Any:
    """The policy; one that takes an estimator gets the configuration's, unless its own parameters name one."""
    name, profiles = config.policy.name, config.measured_use.profiles
    values = _kept_tables(config.policy.parameters, profiles)
    if profiles and MEASURED in parameters("policies", name):
        values.setdefault(MEASURED, profiles)
    if estimator is not None and "estimator" in parameters("policies", name):
        values.setdefault("estimator", estimator)
    return make_plugin("policies", name, values)


def _kept_tables(values: Mapping[str, Any], profiles: str) -> dict[str, Any]:
    """The parameters of a policy. Speeds from the daemon's own profiles may lack them: none are there at first."""
    made = dict(values)
    speeds = made.get("speeds")
    speeds = {"name": "throughputs", "table": speeds} if isinstance(speeds, str) else speeds
    if profiles and isinstance(speeds, Mapping) and speeds.get("table") == profiles:
        made["speeds"] = {"may_lack": True, **speeds}
    if isinstance(made.get("of"), Mapping):
        made["of"] = _kept_tables(made["of"], profiles)
    return made


def _placement(config: Config) -> Any:
    named, profiles = config.placement, config.measured_use.profiles
    values = dict(named.parameters)
    if profiles and MEASURED in parameters("placements", named.name, key="placement"):
        values.setdefault(MEASURED, profiles)
    return make_plugin("placements", named.name, values, key="placement")


def parameters(kind: str, name: str, *, key: str = "policy") -> tuple[str, ...]:
    """Names of the parameters of a plug-in. Raises ConfigError as make_plugin does."""
    return tuple(spec.name for spec in fields(load_plugin(kind, name, key=key)))


def learns(plugin: Any) -> bool:
    """Whether a plug-in, or an estimator it was given, looks at Snapshot.past."""
    return any(getattr(each, "learns", False) for each in _plugin_and_inner(plugin))


def plugin_notes(plugin: Any) -> tuple[str, ...]:
    """What a plug-in, or those it was given, have to say about what they lack (`notes`)."""
    return tuple(note for each in _plugin_and_inner(plugin) for note in getattr(each, "notes", ()))


def _plugin_and_inner(plugin: Any) -> Iterator[Any]:
    """A plug-in, and those that it was given."""
    yield plugin
    for spec in fields(plugin) if is_dataclass(plugin) else ():
        if is_dataclass(each := getattr(plugin, spec.name)):
            yield from _plugin_and_inner(each)


def _plugin_value(parameter: str, value: Any, key: str) -> Any:
    """A parameter as the plug-in takes it: lists as tuples, a nested plug-in's name as the plug-in."""
    if parameter in NESTED and isinstance(value, str):
        table = parameter == "speeds" and value not in plugin_names("speeds")
        value = {"name": "throughputs", "table": value} if table else {"name": value}
    if parameter in NESTED and isinstance(value, Mapping):
        rest = {name: setting for name, setting in value.items() if name != "name"}
        try:
            return make_plugin(NESTED[parameter], str(value.get("name", "")), rest, key=f"{key}.{parameter}")
        except InputError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            known = ", ".join(plugin_names(NESTED[parameter]))
            raise ConfigError(f"no {KINDS[NESTED[parameter]]} and no file {error.source!r}; known: {known}",
                              key=f"{key}.{parameter}") from error  # fmt: skip
    return tuple(value) if isinstance(value, list) else value


def _check_packages(plugin: Any, name: str, key: str) -> None:
    """Raises MissingPackageError if a package that a policy names in its `about` is not installed."""
    about = policy_info(plugin)
    for package in about.packages if about else ():
        check_package(package, f"policy {name}", key=key)


def _check(spec: Field[Any], value: Any, key: str) -> None:
    """Raises ConfigError for a switch that is not true or false, and for a nested plug-in that is none."""
    if spec.type in ("bool", bool) and not isinstance(value, bool):
        raise ConfigError(f"must be true or false, got {value!r}", key=key)
    nested = spec.name in NESTED and spec.default_factory is not MISSING and is_dataclass(spec.default_factory())
    if nested and not is_dataclass(value):
        known = ", ".join(plugin_names(NESTED[spec.name]))
        raise ConfigError(f'must be a name, or {{ name = "NAME", ... }}, got {value!r}; known: {known}', key=key)


def load_plugin(kind: str, name: str, *, key: str = "policy") -> Any:
    """The plug-in's class. Raises ConfigError for an unknown name or one that cannot be imported."""
    found = _entry_points_by_name(kind)
    if name not in found:
        near, known = nearest(name, found), ", ".join(sorted(found))
        raise ConfigError(f"no {KINDS[kind]} {name!r}{near}; known: {known}", key=key)
    try:
        return found[name].load()
    except Exception as error:
        what = f"{KINDS[kind]} {name!r} ({found[name].value})"
        raise ConfigError(f"{what} cannot be loaded: {error}", key=key) from error


def _entry_points_by_name(kind: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in _entry_points().select(group=f"slurmsched.{kind}")}


@lru_cache(maxsize=1)
def _entry_points() -> Any:  # EntryPoints; SelectableGroups up to 3.11
    """Those of every installed package. They are read once: each look reads a file of each package."""
    return entry_points()


def nearest(name: str, known: Iterable[str]) -> str:
    """What to put behind a name that is not known: the nearest that is, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""

"""A parameter grid in words: axes with their values, and the points that they span."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from slurmsched import registry
from slurmsched.errors import ConfigError
from slurmsched.replay.request import DISCIPLINES, Request, parse_policy, value_of

POLICY = "policy"
DEFAULT_POLICY = "discretized-las"  # that of the configuration
AXES = ("trace", *(spec.name for spec in fields(Request) if spec.name != "parameters"))
TEXTS = {"trace", *(spec.name for spec in fields(Request) if isinstance(spec.default, str))}
Tree = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Point:
    """One replay of a sweep: a trace, by the name it was given, and what to do with it."""

    trace: str
    request: Request

    @property
    def words(self) -> dict[str, Any]:
        """Axis -> value, and the policy's parameters, as plain values."""
        return {"trace": self.trace} | {spec.name: getattr(self.request, spec.name) for spec in fields(Request)}


def points_of(tree: Tree, pairs: Iterable[str] = (), traces: Sequence[str] = (), source: str = "") -> list[Point]:
    """Every point of the grid once, the policies varying fastest.

    tree: axis -> value or list of values; `policy` also a table, or several, with a name and parameters. pairs: one
    AXIS=VALUE, or policy.PARAMETER=VALUE, a value; they replace the tree's values of that axis. traces: before the
    tree's. source: where it comes from, for errors. Raises ConfigError for an unknown axis, policy or parameter, and
    for a value of another type.
    """
    try:
        return list({repr(point.words): point for point in _points(tree, pairs, traces)}.values())
    except ConfigError as error:
        raise ConfigError(error.message, key=error.key, source=error.source or source) from error


def _points(tree: Tree, pairs: Iterable[str], traces: Sequence[str]) -> Iterator[Point]:
    chosen, parameters = _of_pairs(pairs)
    axes = {name: _listed(values) for name, values in {**tree, **chosen}.items()}
    _known(axes, AXES, "axis of a sweep", "")
    axes["trace"] = [*traces, *axes.get("trace", ())]
    if not axes["trace"]:
        raise ConfigError("no trace; name one before the options, or as `trace` in the grid file", key="trace")
    policies = list(_policies(axes.pop(POLICY, [DEFAULT_POLICY]), parameters))
    names = [name for name in AXES if name in axes]
    for *values, policy in itertools.product(*(axes[name] for name in names), policies):
        yield _point({**dict(zip(names, values, strict=True)), **policy})


def _of_pairs(pairs: Iterable[str]) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Values by axis, and by parameter of the policies."""
    axes: dict[str, list[Any]] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"{pair!r} is not AXIS=VALUE or policy.PARAMETER=VALUE")
        axes.setdefault(name.strip(), []).append(_value(name.strip(), text))
    parameters = [name for name in axes if name.startswith(f"{POLICY}.")]
    return axes, {name.removeprefix(f"{POLICY}."): axes.pop(name) for name in parameters}


def _value(name: str, text: str) -> Any:
    """Of an axis that holds texts what looks like a number is one too: 0x8 is a cluster, not eight."""
    value = value_of(text) if name != POLICY else text
    return text if name in TEXTS and not isinstance(value, str | list) else value


def _policies(given: Iterable[Any], parameters: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """The fields `policy` and `parameters` of a Request, each combination once. parameters: of all that have them."""
    used: set[str] = set()
    for entry in given:
        table = {"name": entry} if isinstance(entry, str) else entry
        if not isinstance(table, Mapping) or "name" not in table:
            raise ConfigError(f"must be a name or a table with a name, got {entry!r}", key=POLICY)
        own = {name: _listed(values) for name, values in table.items() if name != "name"}
        for text in _listed(table["name"]):
            known = _parameters(text)
            _known(own, known, f"parameter of {text}", f"{POLICY}.")
            axes = own | {name: values for name, values in parameters.items() if name in known}
            used |= set(axes)
            for values in itertools.product(*axes.values()):
                yield {POLICY: text, "parameters": dict(zip(axes, values, strict=True))}
    for name in set(parameters) - used:
        raise ConfigError("no policy of the grid has this parameter", key=f"{POLICY}.{name}")


def _parameters(text: Any) -> tuple[str, ...]:
    """Names of the parameters of a policy in words."""
    if not isinstance(text, str):
        raise ConfigError(f"must be a text in quotes, got {text!r}", key=f"{POLICY}.name")
    name = DISCIPLINES.get(parse_policy(text)[0], (parse_policy(text)[0],))[0]
    return () if name == "slurm" else registry.parameters("policies", name)


_REQUEST: TypeAdapter[Request] = TypeAdapter(Request)


def _point(words: dict[str, Any]) -> Point:
    trace = words.pop("trace")
    if not isinstance(trace, str):
        raise ConfigError(f"must be a file's name in quotes, got {trace!r}", key="trace")
    try:
        return Point(trace, _REQUEST.validate_python(words, strict=False))
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{first['msg']}, got {first['input']!r}", key=str(first["loc"][0])) from None


def _known(given: Iterable[str], known: Sequence[str], what: str, before: str) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else f"; known: {', '.join(known) or 'none'}"
            raise ConfigError(f"is no {what}{hint}", key=before + name)


def _listed(values: Any) -> list[Any]:
    return values if isinstance(values, list) else [values]

"""The grid of a sweep: its axes and points, and the ranking of the results."""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from slurmsched.errors import ConfigError, InputError
from slurmsched.sim.experiments.released_policies import load_policy
from slurmsched.sim.experiments.replay_request import POLICY_ALIASES, ReplayRequest, parse_policy, toml_value

POLICY = "policy"
DEFAULT_POLICY = "discretized-las"  # that of the configuration
GRID_AXES = ("trace", *(spec.name for spec in fields(ReplayRequest) if spec.name not in ("parameters", "origin_s")))
TEXT_AXES = {"trace", *(spec.name for spec in fields(ReplayRequest) if isinstance(spec.default, str))}
GridTree = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GridPoint:
    """One replay of a sweep: a trace, by the name it was given, and what to do with it."""

    trace: str
    request: ReplayRequest

    @property
    def words(self) -> dict[str, Any]:
        """Axis -> value, and the policy's parameters, as plain values."""
        names = (spec.name for spec in fields(ReplayRequest) if spec.name != "origin_s")
        return {"trace": self.trace} | {name: getattr(self.request, name) for name in names}


def grid_points(
    tree: GridTree, pairs: Iterable[str] = (), traces: Sequence[str] = (), source: str = ""
) -> list[GridPoint]:
    """Every point of the grid once, the policies varying fastest.

    tree: axis -> value or list of values; `policy` also a table, or several, with a name and parameters.
    pairs: one AXIS=VALUE, or policy.PARAMETER=VALUE, a value; they replace the tree's values of that axis.
    traces: before the tree's.
    source: where it comes from, for errors.
    Raises ConfigError for an unknown axis, policy or parameter, and for a value of another type.
    """
    try:
        return list({repr(point.words): point for point in _points(tree, pairs, traces)}.values())
    except ConfigError as error:
        raise ConfigError(error.message, key=error.key, source=error.source or source) from error


def names_axis(name: str, tree: GridTree, pairs: Iterable[str]) -> bool:
    """Whether the grid gives this axis a value."""
    return name in tree or name in _of_pairs(pairs)[0]


def _points(tree: GridTree, pairs: Iterable[str], traces: Sequence[str]) -> Iterator[GridPoint]:
    chosen, parameters = _of_pairs(pairs)
    axes = {name: _listed(values) for name, values in {**tree, **chosen}.items()}
    _check_known(axes, GRID_AXES, "axis of a sweep", "")
    axes["trace"] = [*traces, *axes.get("trace", ())]
    if not axes["trace"]:
        raise ConfigError("no trace; name one before the options, or as `trace` in the grid file", key="trace")
    policies = list(_policies(axes.pop(POLICY, [DEFAULT_POLICY]), parameters))
    names = [name for name in GRID_AXES if name in axes]
    for *values, policy in itertools.product(*(axes[name] for name in names), policies):
        yield _point({**dict(zip(names, values, strict=True)), **policy})


def _of_pairs(pairs: Iterable[str]) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Values by axis, and by parameter of the policies."""
    axes: dict[str, list[Any]] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"{pair!r} is not AXIS=VALUE or policy.PARAMETER=VALUE")
        axes.setdefault(name.strip(), []).append(_axis_value(name.strip(), text))
    parameters = [name for name in axes if name.startswith(f"{POLICY}.")]
    return axes, {name.removeprefix(f"{POLICY}."): axes.pop(name) for name in parameters}


def _axis_value(name: str, text: str) -> Any:
    """Of an axis that holds texts what looks like a number is one too: 0x8 is a cluster, not eight."""
    value = toml_value(text) if name != POLICY else text
    return text if name in TEXT_AXES and not isinstance(value, str | list) else value


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
            _check_known(own, known, f"parameter of {text}", f"{POLICY}.")
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
    name = POLICY_ALIASES.get(parse_policy(text)[0], (parse_policy(text)[0],))[0]
    return () if name == "slurm" else tuple(spec.name for spec in fields(load_policy(name)))


_REQUEST: TypeAdapter[ReplayRequest] = TypeAdapter(ReplayRequest)


def _point(words: dict[str, Any]) -> GridPoint:
    trace = words.pop("trace")
    if not isinstance(trace, str):
        raise ConfigError(f"must be a file's name in quotes, got {trace!r}", key="trace")
    try:
        return GridPoint(trace, _REQUEST.validate_python(words, strict=False))
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{first['msg']}, got {first['input']!r}", key=str(first["loc"][0])) from None


def _check_known(given: Iterable[str], known: Sequence[str], what: str, before: str) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else f"; known: {', '.join(known) or 'none'}"
            raise ConfigError(f"is no {what}{hint}", key=before + name)


def _listed(values: Any) -> list[Any]:
    return values if isinstance(values, list) else [values]


# The ranking.

# figure -> whether more of it is better
RANKED_FIGURES: Mapping[str, bool] = {
    "avg_jct_s": False, "p50_jct_s": False, "p95_jct_s": False, "p99_jct_s": False, "avg_wait_s": False,
    "makespan_s": False, "preemptions": False, "lost_gpu_h": False, "gpu_utilisation": True, "mean_slowdown": False,
    "deadlines_met": True, "refused": False, "resizes": False,
}  # fmt: skip
FIGURE_TITLES = tuple(name for name in (*GRID_AXES, "parameters") if name != "seed")
PointRow = Mapping[str, Any]


def ranked_points(rows: Iterable[PointRow], by: str = "avg_jct_s") -> list[dict[str, Any]]:
    """One row for the points that differ in their seed only, the best first.

    Each holds WORDS, jobs and FIGURES as means over `seeds` points (NaN: not known), and `pareto`: no other point of
    the same trace, cluster and model has both a lower avg_jct_s and as few preemptions, or as low and fewer. Points of
    different traces are ranked apart, in the order of the grid. Raises InputError for an unknown figure.
    """
    if by not in RANKED_FIGURES:
        raise InputError(f"no figure {by!r}; a sweep is ranked by {', '.join(RANKED_FIGURES)}")
    joined = [_mean(points) for points in _grouped(rows, FIGURE_TITLES)]
    for points in _grouped(joined, ("trace", "cluster", "model")):
        _mark_pareto(points)
    return [row for group in _grouped(joined, ("trace",)) for row in sorted(group, key=lambda row: _worth(row, by))]


def _grouped(rows: Iterable[Any], names: Iterable[str]) -> list[list[Any]]:
    """Rows that agree in these, in the order of their first."""
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(repr([row[name] for name in names]), []).append(row)
    return list(found.values())


def _mean(points: list[PointRow]) -> dict[str, Any]:
    figures = {name: [_number(point.get(name)) for point in points] for name in ("jobs", *RANKED_FIGURES)}
    means = {name: math.fsum(values) / len(values) for name, values in figures.items()}
    return {name: points[0][name] for name in FIGURE_TITLES} | {"seeds": len(points)} | means | {"pareto": False}


def _mark_pareto(points: list[dict[str, Any]]) -> None:
    """Set `pareto`: one pass in order of JCT, since whoever comes later must preempt less than all before."""
    fewest = math.inf
    for equal in _grouped(sorted(points, key=lambda row: _worth(row, "avg_jct_s")), ("avg_jct_s",)):
        least = min(row["preemptions"] for row in equal)
        for row in equal:
            row["pareto"] = not math.isnan(row["avg_jct_s"]) and row["preemptions"] == least < fewest
        fewest = min(fewest, least)


def _worth(row: PointRow, by: str) -> tuple[bool, float]:
    """Sorts the best first, what is not known last."""
    value = row[by]
    return math.isnan(value), -value if RANKED_FIGURES[by] else value


def _number(value: float | None) -> float:
    """A figure as kept: JSON has no NaN."""
    return math.nan if value is None else float(value)

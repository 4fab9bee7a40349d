"""topology.yaml (25.05 and later): several named topologies of one cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from slurmsched.topology.blocks import aggregates, block_cells
from slurmsched.topology.cells import Cell, NamedFabric, fabric_of
from slurmsched.topology.plain import clean, hosts

KINDS = ("tree", "block", "flat", "ring", "torus3d")
_TRIES = 3  # a file that is cut is read up to where it stops being YAML


def read_topology_yaml(text: str) -> tuple[tuple[NamedFabric, ...], tuple[str, ...]]:
    """Each topology in the file's order, and warnings about the file as a whole.

    A ring, or a torus, is one cell. Source: topology.yaml manual page, 25.05 to 26.05.
    """
    loaded, warnings = _load(clean(text))
    entries = loaded if isinstance(loaded, list) else []
    found = [_topology(entry) for entry in entries if isinstance(entry, dict) and "topology" in entry]
    if len(found) < len(entries) or not found:
        warnings = (*warnings, "topology.yaml is a list of entries that begin with `topology:`; others are left out")
    if (defaults := sum(one.default for one in found)) != 1:
        warnings = (*warnings, f"{defaults} topologies have cluster_default: true, it must be one")
    return tuple(found), warnings


def _load(text: str) -> tuple[Any, tuple[str, ...]]:
    warnings: tuple[str, ...] = ()
    for _ in range(_TRIES):
        try:
            return yaml.safe_load(text), warnings
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            line = mark.line if mark else 0
            warnings = (*warnings, f"not YAML at line {line + 1}: {getattr(error, 'problem', error)}; read up to there")
            text = "\n".join(text.split("\n")[:line])
    return None, warnings


def _topology(entry: Mapping[Any, Any]) -> NamedFabric:
    name, default = str(entry["topology"]), entry.get("cluster_default") is True
    kind = next((known for known in KINDS if entry.get(known)), "")
    if kind == "":
        return NamedFabric(fabric_of("", [])[0], "", name, default, warnings=(f"{name}: none of {', '.join(KINDS)}",))
    body = entry[kind] if isinstance(entry[kind], dict) else {}
    warnings: list[str] = []
    sizes = tuple(size for size in _list(body.get("block_sizes")) if isinstance(size, int) and size > 0)
    cells = _cells(body, warnings)
    if kind == "block" and sizes:
        named, more = aggregates([cell.name for cell in cells], sizes)
        cells, warnings = block_cells(cells, named), [*warnings, *more]
    if kind != "flat" and not cells:
        warnings.append(f"{name}: a {kind} without members")
    fabric, more = fabric_of(kind if cells else "", cells, sizes)
    told = tuple(f"{name}: {text}" for text in (*warnings, *more))
    return NamedFabric(fabric, kind, name, default, warnings=told)


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _cells(body: Mapping[Any, Any], warnings: list[str]) -> list[Cell]:
    """The members of a topology: entries named by `switch`, `block`, `ring` or `name`, in any list."""
    found = []
    for entries in body.values():
        for entry in _list(entries):
            names = (
                [entry[key] for key in ("switch", "block", "ring", "name") if key in entry]
                if isinstance(entry, dict)
                else []
            )
            if names:
                nodes, children = (_names(entry.get(key), warnings) for key in ("nodes", "children"))
                found.append(Cell(str(names[0]), nodes, children))
    return found


def _names(value: Any, warnings: list[str]) -> tuple[str, ...]:
    """The names of a hostlist, or of a list of such. Anything else is not looked into: aliases make it grow."""
    listed = [value] if isinstance(value, str | int) else _list(value)
    if value is None or (listed and all(isinstance(one, str | int) for one in listed)):
        found = hosts(",".join(map(str, listed)))
    else:
        found = None
    if found is None:
        warnings.append(f"{str(value)[:60] if isinstance(value, str) else 'a value'} is not a hostlist; taken as empty")
    return found or ()

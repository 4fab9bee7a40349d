"""A snapshot as a tree of plain values and a set of arrays, and back: the content of a snapshot file.

In the tree a table, record or enum is {"kind": its name, "fields": ...}, an array {"array": place}, a text column
{"labels": place of its codes, "names": [...]}, a tuple {"tuple": [...]}, a mapping {"map": [[key, value], ...]}, a list
of floats {"floats": place}, a float that JSON lacks {"float": "nan"}. Anything else stands for itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import fields, is_dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurmsched import model
from slurmsched.model.columns import Labels, sealed
from slurmsched.model.table import Table
from slurmsched.topology.slurm_node import SlurmNode

Arrays = MutableMapping[str, NDArray[Any]]
# What a file may name: the tables, records and enums of the model, and the nodes that Slurm picks on; nothing else.
KINDS: Mapping[str, Any] = {"SlurmNode": SlurmNode} | {
    name: kind
    for name, kind in vars(model).items()
    if isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, IntEnum)) and kind is not Labels
}


def packed(value: Any, place: str, arrays: Arrays) -> Any:
    """The tree of a value; its arrays are put into `arrays` by place. Raises TypeError for what has no form."""
    if isinstance(value, IntEnum):
        return {"kind": type(value).__name__, "fields": int(value)}
    if isinstance(value, np.generic):
        return packed(value.item(), place, arrays)
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return _packed_whole(value, place, arrays)


def _packed_whole(value: Any, place: str, arrays: Arrays) -> Any:
    if isinstance(value, np.ndarray):
        arrays[place] = value
        return {"array": place}
    if isinstance(value, Labels):
        arrays[place] = value.codes
        return {"labels": place, "names": list(value.names)}
    if is_dataclass(value) and KINDS.get(type(value).__name__) is type(value):
        named = ((spec.name, getattr(value, spec.name)) for spec in fields(value))
        tree = {name: packed(part, f"{place}/{name}" if place else name, arrays) for name, part in named}
        return {"kind": type(value).__name__, "fields": tree}
    if isinstance(value, Mapping):
        return {"map": [[packed(k, f"{place}/{i}k", arrays), packed(v, f"{place}/{i}", arrays)]
                        for i, (k, v) in enumerate(value.items())]}  # fmt: skip
    if isinstance(value, list) and value and all(type(part) is float for part in value):
        arrays[place] = np.array(value)
        return {"floats": place}
    if isinstance(value, list | tuple):
        parts = [packed(part, f"{place}/{i}", arrays) for i, part in enumerate(value)]
        return parts if isinstance(value, list) else {"tuple": parts}
    raise TypeError(f"{place} is a {type(value).__name__}, which a snapshot file has no form for")


def unpacked(tree: Any, arrays: Mapping[str, NDArray[Any]], left_out: list[str]) -> Any:
    """The value of a tree. left_out: gets the fields of a newer slurmsched that this one does not know.

    Fields that the file lacks hold their defaults. Raises KeyError, TypeError or ValueError for a tree that is none.
    """
    if isinstance(tree, list):
        return [unpacked(part, arrays, left_out) for part in tree]
    if not isinstance(tree, dict):
        return tree
    if "kind" in tree:
        return _made(KINDS[tree["kind"]], tree["fields"], lambda part: unpacked(part, arrays, left_out), left_out)
    if "map" in tree:
        return {unpacked(k, arrays, left_out): unpacked(v, arrays, left_out) for k, v in tree["map"]}
    if "tuple" in tree:
        return tuple(unpacked(part, arrays, left_out) for part in tree["tuple"])
    if "labels" in tree:
        return _labels(arrays[tree["labels"]], tuple(tree["names"]))
    if "floats" in tree:
        return arrays[tree["floats"]].tolist()
    return sealed(arrays[tree["array"]]) if "array" in tree else float(tree["float"])


def _made(kind: Any, tree: Any, inner: Callable[[Any], Any], left_out: list[str]) -> Any:
    if issubclass(kind, IntEnum):
        return kind(tree)
    names = {spec.name for spec in fields(kind)}
    left_out += [f"{kind.__name__}.{name}" for name in tree if name not in names]
    known = {name: inner(part) for name, part in tree.items() if name in names}
    if issubclass(kind, Table):
        return kind.build(len(next(iter(known.values()))), known)
    return kind(**known)


def _labels(codes: NDArray[Any], names: tuple[str, ...]) -> Labels:
    if len(codes) and not (codes.min() >= 0 and codes.max() < len(names)):
        raise ValueError("a text column names texts that are not there")
    return Labels(codes, names)

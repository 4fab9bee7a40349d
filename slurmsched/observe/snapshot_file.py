"""A snapshot file: a live snapshot with the settings and the plan of its cycle.

In the tree a table, record or enum is {"kind": its name, "fields": ...}, an array {"array": place}, a text column
{"labels": place of its codes, "names": [...]}, a tuple {"tuple": [...]}, a mapping {"map": [[key, value], ...]}, a list
of floats {"floats": place}, a float that JSON lacks {"float": "nan"}. Anything else stands for itself.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import math
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from slurmsched import __version__, model
from slurmsched.config import Config
from slurmsched.config_file import parse_config
from slurmsched.errors import InputError
from slurmsched.model import Plan, SetPriority, Snapshot
from slurmsched.model.columns import Labels, Table, made_read_only
from slurmsched.paths import draft_of, dropped
from slurmsched.topology.slurm_selection import SlurmNode

Arrays = MutableMapping[str, NDArray[Any]]
# What a file may name: the tables, records and enums of the model, and the nodes that Slurm picks on; nothing else.
KINDS: Mapping[str, Any] = {"SlurmNode": SlurmNode} | {
    name: kind
    for name, kind in vars(model).items()
    if isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, IntEnum | StrEnum)) and kind is not Labels
}


def packed_value(value: Any, place: str, arrays: Arrays) -> Any:
    """The tree of a value; its arrays are put into `arrays` by place. Raises TypeError for what has no form."""
    if isinstance(value, IntEnum):
        return {"kind": type(value).__name__, "fields": int(value)}
    if isinstance(value, StrEnum):
        return {"kind": type(value).__name__, "fields": str(value)}
    if isinstance(value, np.generic):
        return packed_value(value.item(), place, arrays)
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
        tree = {name: packed_value(part, f"{place}/{name}" if place else name, arrays) for name, part in named}
        return {"kind": type(value).__name__, "fields": tree}
    if isinstance(value, Mapping):
        return {"map": [[packed_value(k, f"{place}/{i}k", arrays), packed_value(v, f"{place}/{i}", arrays)]
                        for i, (k, v) in enumerate(value.items())]}  # fmt: skip
    if isinstance(value, list) and value and all(type(part) is float for part in value):
        arrays[place] = np.array(value)
        return {"floats": place}
    if isinstance(value, list | tuple):
        parts = [packed_value(part, f"{place}/{i}", arrays) for i, part in enumerate(value)]
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
        return _table_of(KINDS[tree["kind"]], tree["fields"], lambda part: unpacked(part, arrays, left_out), left_out)
    if "map" in tree:
        return {unpacked(k, arrays, left_out): unpacked(v, arrays, left_out) for k, v in tree["map"]}
    if "tuple" in tree:
        return tuple(unpacked(part, arrays, left_out) for part in tree["tuple"])
    if "labels" in tree:
        return _labels(arrays[tree["labels"]], tuple(tree["names"]))
    if "floats" in tree:
        return arrays[tree["floats"]].tolist()
    return made_read_only(arrays[tree["array"]]) if "array" in tree else float(tree["float"])


def _table_of(kind: Any, tree: Any, inner: Callable[[Any], Any], left_out: list[str]) -> Any:
    if issubclass(kind, IntEnum | StrEnum):
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


# The file: a snapshot, its settings and its plan.
#
# The file is a ZIP: `snapshot.json`, and each array as an .npy of numpy. Reading it runs nothing that is in it.

FORMAT, FORMAT_VERSION = "slurmsched-snapshot", 1
HEAD, ARRAY = "snapshot.json", ".npy"
DECIDING = {"policy", "estimator", "scope", "lever", "pace"}  # sections of the configuration that a plan depends on
EPOCH = (1980, 1, 1, 0, 0, 0)  # of every file within: equal snapshots make equal files
# Of slurm.conf: what scheduling depends on. The rest may hold passwords, addresses and paths, and stays at the site.
SETTINGS = re.compile(
    "SLURM_VERSION|ClusterName|(Priority|Scheduler|Preempt|Select|Gres|Fair|Topology|Max|Min|Kill|AccountingStorage"
    "(Type|TRES|Enforce)|JobRequeue|EnforcePartLimits|OverTimeLimit|CompleteWait|DefMem|TaskPlugin).*"
)


# What reading a file raises that is none of ours, or damaged.
DAMAGE = (zipfile.BadZipFile, zlib.error, LookupError, TypeError, ValueError, AttributeError, EOFError, RuntimeError,
          ArithmeticError, MemoryError, StopIteration, lzma.LZMAError)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SavedSnapshot:
    """What a snapshot file holds.

    settings: the sections DECIDING as plain values.
    plan, planned: digest and number of the actions of the live cycle.
    made_by: version of slurmsched.
    left_out: fields that only a newer slurmsched knows.
    """

    snapshot: Snapshot
    settings: Mapping[str, Any]
    plan: str
    planned: int
    anonymised: bool = False
    made_by: str = __version__
    left_out: tuple[str, ...] = ()

    @property
    def config(self) -> Config:
        """The configuration of the live cycle, as far as a plan depends on it. Raises ConfigError."""
        return parse_config(self.settings, source="the snapshot's own configuration")


def saved_snapshot(snapshot: Snapshot, plan: Plan, config: Config) -> SavedSnapshot:
    """The saved form of a live cycle, without settings that do not affect the plan."""
    kept = {name: value for name, value in snapshot.site.settings.items() if SETTINGS.fullmatch(name)}
    slim = replace(snapshot, site=replace(snapshot.site, settings=kept))
    settings = config.model_dump(mode="json", include=DECIDING, exclude_none=True)
    return SavedSnapshot(slim, settings, plan_digest(plan), len(plan.actions))


def plan_digest(plan: Plan) -> str:
    """16 hex digits that differ when any action differs, or their order, or how many were deferred."""
    actions = [
        (a.kind, a.job_id, *((a.old, a.new, a.base) if isinstance(a, SetPriority) else ())) for a in plan.actions
    ]
    return hashlib.blake2b(orjson.dumps([actions, plan.deferred]), digest_size=8).hexdigest()


def write_snapshot(path: Path, saved: SavedSnapshot) -> None:
    """Write the file, whole or not at all. Raises InputError if it cannot be written, or holds what has no form."""
    arrays: dict[str, NDArray[Any]] = {}
    draft = draft_of(path)
    try:
        head = _head(saved, packed_value(saved.snapshot, "", arrays))
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as file:
            _put(file, HEAD, orjson.dumps(head))
            for place, array in arrays.items():
                content = io.BytesIO()
                np.save(content, array, allow_pickle=False)
                _put(file, place + ARRAY, content.getvalue())
        draft.replace(path)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from error
    except TypeError as error:
        raise InputError(f"cannot be written: {error}", source=str(path)) from error
    finally:
        dropped(draft)


def _head(saved: SavedSnapshot, tree: Any) -> dict[str, Any]:
    return {"format": FORMAT, "format_version": FORMAT_VERSION, "made_by": saved.made_by,
            "anonymised": saved.anonymised, "digest": saved.snapshot.digest, "settings": saved.settings,
            "plan": saved.plan, "planned": saved.planned, "snapshot": tree}  # fmt: skip


def _put(file: zipfile.ZipFile, name: str, content: bytes) -> None:
    member = zipfile.ZipInfo(name, EPOCH)
    member.external_attr = 0o644 << 16
    file.writestr(member, content, zipfile.ZIP_DEFLATED)


def read_snapshot(path: Path) -> SavedSnapshot:
    """The content of the file. Raises InputError for another kind of file, a damaged one, or a newer format."""
    try:
        with zipfile.ZipFile(path) as file:
            return _read_parts(file, path)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", source=str(path)) from error
    except DAMAGE as error:
        raise InputError(f"is no snapshot file, or damaged: {error}", source=str(path)) from error


def _read_parts(file: zipfile.ZipFile, path: Path) -> SavedSnapshot:
    head = orjson.loads(file.read(HEAD))
    if head["format"] != FORMAT:
        raise ValueError(f"its format is {head['format']!r}")
    if head["format_version"] > FORMAT_VERSION:
        made = f"is of format {head['format_version']}, made by slurmsched {head['made_by']}; here is {__version__}"
        raise InputError(f"{made}, which reads format {FORMAT_VERSION}; install the newer slurmsched", source=str(path))
    arrays = {name.removesuffix(ARRAY): np.load(io.BytesIO(file.read(name)), allow_pickle=False)
              for name in file.namelist() if name.endswith(ARRAY)}  # fmt: skip
    left_out: list[str] = []
    snapshot = unpacked(head["snapshot"], arrays, left_out)
    if not isinstance(snapshot, Snapshot) or snapshot.digest != head["digest"]:
        raise ValueError("its digest differs")
    parts = {name: head[name] for name in ("settings", "plan", "planned", "anonymised", "made_by")}
    return SavedSnapshot(snapshot, **parts, left_out=tuple(left_out))

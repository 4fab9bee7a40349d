"""A live snapshot in one file, with what its cycle decided by and what it planned: to be looked into elsewhere.

The file is a ZIP: `snapshot.json`, and each array as an .npy of numpy. Reading it runs nothing that is in it.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from slurmsched import __version__
from slurmsched.config import Config, parse_config
from slurmsched.errors import InputError
from slurmsched.model import Plan, SetLever, Snapshot
from slurmsched.paths import draft_of, dropped
from slurmsched.replay.snapshot_form import packed, unpacked

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
class Saved:
    """What a snapshot file holds. settings: the sections DECIDING as plain values.

    plan, planned: digest and number of the actions of the live cycle. made_by: version of slurmsched. left_out:
    fields that only a newer slurmsched knows.
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


def saved(snapshot: Snapshot, plan: Plan, config: Config) -> Saved:
    """What to keep of a live cycle, without the settings that do not matter."""
    kept = {name: value for name, value in snapshot.site.settings.items() if SETTINGS.fullmatch(name)}
    slim = replace(snapshot, site=replace(snapshot.site, settings=kept))
    settings = config.model_dump(mode="json", include=DECIDING, exclude_none=True)
    return Saved(slim, settings, plan_digest(plan), len(plan.actions))


def plan_digest(plan: Plan) -> str:
    """16 hex digits that differ when any action differs, or their order, or how many were deferred."""
    told = [(a.kind, a.job_id, *((a.old, a.new, a.base) if isinstance(a, SetLever) else ())) for a in plan.actions]
    return hashlib.blake2b(orjson.dumps([told, plan.deferred]), digest_size=8).hexdigest()


def write_snapshot(path: Path, held: Saved) -> None:
    """Write the file, whole or not at all. Raises InputError if it cannot be written, or holds what has no form."""
    arrays: dict[str, NDArray[Any]] = {}
    draft = draft_of(path)
    try:
        head = _head(held, packed(held.snapshot, "", arrays))
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


def _head(held: Saved, tree: Any) -> dict[str, Any]:
    return {"format": FORMAT, "format_version": FORMAT_VERSION, "made_by": held.made_by, "anonymised": held.anonymised,
            "digest": held.snapshot.digest, "settings": held.settings, "plan": held.plan, "planned": held.planned,
            "snapshot": tree}  # fmt: skip


def _put(file: zipfile.ZipFile, name: str, content: bytes) -> None:
    member = zipfile.ZipInfo(name, EPOCH)
    member.external_attr = 0o644 << 16
    file.writestr(member, content, zipfile.ZIP_DEFLATED)


def read_snapshot(path: Path) -> Saved:
    """What the file holds. Raises InputError for a file that is something else, damaged, or of a newer format."""
    try:
        with zipfile.ZipFile(path) as file:
            return _read(file, path)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", source=str(path)) from error
    except DAMAGE as error:
        raise InputError(f"is no snapshot file, or damaged: {error}", source=str(path)) from error


def _read(file: zipfile.ZipFile, path: Path) -> Saved:
    head = orjson.loads(file.read(HEAD))
    if head["format"] != FORMAT:
        raise ValueError(f"its format is {head['format']!r}")
    if head["format_version"] > FORMAT_VERSION:
        made = f"is of format {head['format_version']}, made by slurmsched {head['made_by']}; here is {__version__}"
        raise InputError(f"{made}, which knows {FORMAT_VERSION}: install the newer one", source=str(path))
    arrays = {name.removesuffix(ARRAY): np.load(io.BytesIO(file.read(name)), allow_pickle=False)
              for name in file.namelist() if name.endswith(ARRAY)}  # fmt: skip
    left_out: list[str] = []
    snapshot = unpacked(head["snapshot"], arrays, left_out)
    if not isinstance(snapshot, Snapshot) or snapshot.digest != head["digest"]:
        raise ValueError("its digest differs")
    told = {name: head[name] for name in ("settings", "plan", "planned", "anonymised", "made_by")}
    return Saved(snapshot, **told, left_out=tuple(left_out))

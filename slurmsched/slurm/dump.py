"""A snapshot from dumps of Slurm's own --json options: for support, and for a look without a Slurm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import orjson

from slurmsched.errors import InputError, UnreadableError
from slurmsched.model import Nodes, Partitions, Rights, Site, Snapshot
from slurmsched.slurm.job_table import with_held
from slurmsched.slurm.jsonform import number, read_jobs, read_nodes, slurm_version

T = TypeVar("T")
WARNING = "read from a file: rights, site factors and the parts of priorities are not in it"


def read_dump(jobs: Path, nodes: Path | None = None) -> Snapshot:
    """The cluster that `squeue --json` and `scontrol show node --json` wrote down (before 23.02: `sinfo --json`).

    The clock is that of the answer, or of the file where the answer tells none. Raises InputError for a file that
    cannot be read or is something else.
    """
    body = _body(jobs)
    told_s = _read(jobs, lambda: number(body.get("last_update"), 0.0))
    now_s = told_s if told_s > 0 else jobs.stat().st_mtime
    queue, held, warnings = _read(jobs, lambda: read_jobs(body, now_s))
    fleet = Nodes.build(0, {})
    more: tuple[str, ...] = ()
    if nodes is not None:
        listed = _body(nodes)
        fleet, more = _read(nodes, lambda: read_nodes(listed))
        fleet = with_held(fleet, held)
    site = _read(jobs, lambda: Site(cluster=_cluster(body), version=slurm_version(body), rights=Rights.OPERATOR))
    return Snapshot(now_s, queue, fleet, Partitions.build(0, {}), held, site, warnings=(WARNING, *warnings, *more))


def _body(path: Path) -> Mapping[str, Any]:
    try:
        body = orjson.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from error
    except orjson.JSONDecodeError as error:
        raise InputError(f"is not JSON: {error}", source=str(path), line=error.lineno) from error
    if not isinstance(body, dict):
        raise InputError("is JSON, but no answer of Slurm, which is an object", source=str(path))
    return body


def _read(path: Path, reader: Callable[[], T]) -> T:
    """What the reader makes of the file; whatever it trips over is the file's fault."""
    try:
        return reader()
    except UnreadableError as error:
        raise InputError(str(error), source=str(path)) from error
    except KeyError as error:
        message = f"is another of Slurm's answers than was asked for: no {error}"
        raise InputError(message, source=str(path)) from error
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"does not have the form of Slurm's answers: {error}", source=str(path)) from error


def _cluster(body: Mapping[str, Any]) -> str:
    meta = body.get("meta", {})
    slurm = meta.get("slurm") or meta.get("Slurm") or {}
    rows = [row for row in body.get("jobs") or () if isinstance(row, dict)] or [{}]
    return str(slurm.get("cluster") or rows[0].get("cluster") or "")

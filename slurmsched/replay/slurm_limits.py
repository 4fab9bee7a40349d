"""Limits and shares as Slurm's own commands print them: qos.txt, assoc.txt and sshare.txt beside a slurm.conf."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from slurmsched.errors import ConfigError, InputError, UnreadableError
from slurmsched.model.gres import count_gpus, parse_gres
from slurmsched.replay.layout import BARRED, PARENT, Limits
from slurmsched.words import some

QOS_FILE, ACCOUNTS_FILE, SHARES_FILE = "qos.txt", "assoc.txt", "sshare.txt"
MADE_BY = {
    QOS_FILE: "sacctmgr -P show qos",
    ACCOUNTS_FILE: "sacctmgr -P show assoc tree format=cluster,account,parentname,user,partition,share,grpjobs,grptres,"
    "grpsubmit,maxjobs,maxtres,maxsubmit,maxwall,grptresmins,grptresrunmins,grpwall,maxtresmins",
    SHARES_FILE: "sshare -alP",
}
_TRES = ("GrpTRES", "MaxTRES", "MaxTRESPU", "GrpTRESMins", "GrpTRESRunMins", "MaxTRESMins")
_UNITS_MIB = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2}  # memory is billed by MiB
_DIGITS = re.compile(r"\d{1,15}", re.ASCII)
_WEIGHT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([KMGT]?)", re.IGNORECASE | re.ASCII)


def clock_s(text: str, key: str) -> float:
    """Seconds of "30" (minutes), "5:30" (minutes), "1:00:00", "7-0" or "7-12:00:00". Raises ConfigError."""
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    if len(parts) > len(units) or not all(map(_DIGITS.fullmatch, (*parts, days or "0"))):
        raise ConfigError(f"is {text!r}, not a time such as 5, 0:30 or 7-0", key=key)
    return 86_400.0 * int(days or 0) + sum(unit * int(part) for unit, part in zip(units, parts, strict=False))


def billing_weights(text: str) -> tuple[float, float, float] | None:
    """What a GPU, a CPU and a MiB cost by a text such as "CPU=1.0,Mem=0.25G,GRES/gpu=8"; None without one.

    Raises ConfigError. Weights of GPU types and of other resources are not looked at.
    """
    if not text:
        return None
    made = {"gres/gpu": 0.0, "cpu": 0.0, "mem": 0.0}
    for part in text.split(","):
        name, _, weight = (each.strip() for each in part.partition("="))
        if name.lower() in made:
            found = _WEIGHT.fullmatch(weight)
            if not found:
                raise ConfigError(f"is {weight!r} for {name}, not a weight", key="TRESBillingWeights")
            unit = _UNITS_MIB[found[2].upper()] if name.lower() == "mem" else 1.0
            made[name.lower()] = float(found[1]) / unit
    return made["gres/gpu"], made["cpu"], made["mem"]


def read_qos(folder: Path) -> tuple[Limits, ...]:
    """The QOS of qos.txt in the folder, () without it. Raises InputError."""
    rows = _rows(folder / QOS_FILE, "Name")
    return tuple(
        Limits(row["Name"], **_values(row, _QOS, folder / QOS_FILE, line), **_flags(row.get("Flags") or ""))
        for line, row in rows
    )


def read_accounts(folder: Path) -> tuple[Limits, ...]:
    """Accounts and their users of assoc.txt in the folder, with the usage in sshare.txt; () without. Raises InputError.

    The account above is told by a column, or by how far names are set in (`show assoc tree`); else it is root.
    Associations of one partition are left out, and so are those of another cluster than the first.
    """
    path, made, above, cluster = folder / ACCOUNTS_FILE, list[Limits](), list[tuple[int, str]](), None
    for line, row in _rows(path, "Account"):
        cluster = cluster or row.get("Cluster")
        if row.get("Partition") or row.get("Cluster") != cluster:
            continue
        name, user = row["Account"].strip(), (row.get("User") or "").strip()
        parent = (row.get("Par Name") or row.get("ParentName") or "").strip()
        if not user:
            depth = len(row["Account"]) - len(row["Account"].lstrip())
            above = [each for each in above if each[0] < depth]
            parent = parent or (above[-1][1] if above else "")
            above.append((depth, name))
        made.append(Limits(name, user=user, parent="" if user else parent, **_values(row, _ACCOUNT, path, line)))
    usage = _usage(folder / SHARES_FILE)
    return tuple(replace(each, usage=usage.get((each.name, each.user), 0.0)) for each in made)


def left_out(folder: Path) -> tuple[str, ...]:
    """Limits in the folder's files that are not heeded, in words: those on GPUs of one type. Raises InputError."""
    found = list[str]()
    for name, key in ((QOS_FILE, "Name"), (ACCOUNTS_FILE, "Account")):
        rows = ((line, row.get(of) or "") for line, row in _rows(folder / name, key) for of in _TRES)
        typed = [(line, part) for line, text in rows for part in text.split(",") if part.startswith("gres/gpu:")]
        if typed:
            line, first = typed[0]
            found.append(
                f"{folder / name}: {some(len(typed), 'limit')} on GPUs of one type left out, "
                f"{first} in line {line} first"
            )
    return tuple(found)


def _usage(path: Path) -> dict[tuple[str, str], float]:
    """RawUsage of each user. {} without a file."""
    found = {}
    for line, row in _rows(path, "Account"):
        if user := (row.get("User") or "").strip():
            values = _values(row, {"RawUsage": ("usage", float)}, path, line)
            found[row["Account"].strip(), user] = float(values.get("usage", 0.0))
    return found


def _rows(path: Path, key: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Line and row of what was printed. Raises InputError for a file without the heading."""
    if not path.exists():
        return
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from error
    rows = csv.DictReader(text.splitlines(), delimiter="|", quoting=csv.QUOTE_NONE)
    if key not in (rows.fieldnames or ()):
        made_by = MADE_BY[path.name]
        raise InputError(f"has no heading with {key}; make it with `{made_by}`", source=str(path), line=1)
    yield from ((rows.line_num, row) for row in rows if (row[key] or "").strip())


def _values(
    row: Mapping[str, str], columns: Mapping[str, tuple[str, Callable[[str], Any]]], path: Path, line: int
) -> dict[str, Any]:
    """Fields of Limits that the row tells. Raises InputError."""
    try:
        told = ((column, (row.get(column) or "").strip()) for column in columns)
        return {columns[column][0]: columns[column][1](text) for column, text in told if text}
    except (ValueError, UnreadableError, ConfigError) as error:
        raise InputError(f"cannot be read: {error}", source=str(path), line=line) from error


def _count(text: str) -> int:
    """A limit: Slurm prints nothing where there is none, and 0 where nobody may do anything."""
    return max(int(text), 0) or BARRED


def _gpus(text: str) -> int:
    """GPUs of a TRES text; one without GPUs limits none, nor does one of GPUs of a type."""
    told = [part for part in text.split(",") if part.partition("=")[0] == "gres/gpu"]
    return count_gpus(parse_gres(",".join(told))) or BARRED if told else 0


def _gpu_s(text: str) -> float:
    """GPU seconds of a TRES text in minutes."""
    gpus = _gpus(text)
    return 60.0 * gpus if gpus > 0 else float(gpus)


def _flags(text: str) -> dict[str, Any]:
    given = {flag.strip().lower() for flag in text.split(",")}
    return {"no_decay": "nodecay" in given, "over_part_qos": "overpartqos" in given}


def _share(text: str) -> int:
    return PARENT if text.lower() == "parent" else int(text)


def _wall_s(text: str, column: str = "MaxWall") -> float:
    return clock_s(text, column) or BARRED


_USED: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "GrpTRESMins": ("group_gpu_s", _gpu_s), "GrpTRESRunMins": ("group_run_gpu_s", _gpu_s),
    "GrpWall": ("group_wall_s", partial(_wall_s, column="GrpWall")), "MaxTRESMins": ("max_gpu_s_per_job", _gpu_s),
}  # fmt: skip
# Column of sacctmgr -> field of Limits, and how it is read; of a TRES text the GPUs count.
_QOS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "Priority": ("priority", int), "UsageFactor": ("usage_factor", float), "MaxWall": ("max_wall_s", _wall_s),
    "MaxJobsPU": ("max_jobs_per_user", _count), "MaxTRESPU": ("max_gpus_per_user", _gpus),
    "GrpTRES": ("group_gpus", _gpus), "GrpJobs": ("group_jobs", _count), "MaxTRES": ("max_gpus_per_job", _gpus),
    "MaxSubmitPU": ("max_submit_per_user", _count), "GrpSubmit": ("group_submit", _count), **_USED,
}  # fmt: skip
_ACCOUNT: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "MaxJobs": ("max_jobs_per_user", _count), "GrpTRES": ("group_gpus", _gpus), "GrpJobs": ("group_jobs", _count),
    "MaxTRES": ("max_gpus_per_job", _gpus), "MaxWall": ("max_wall_s", _wall_s),
    "MaxSubmit": ("max_submit_per_user", _count), "GrpSubmit": ("group_submit", _count), "Share": ("shares", _share),
    **_USED,
}  # fmt: skip

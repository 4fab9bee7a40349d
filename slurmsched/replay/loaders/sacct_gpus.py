"""The GPUs of a job in accounting, where the site's accounting may not count any."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from typing import Any

from slurmsched.errors import UnreadableError
from slurmsched.model.gres import parse_gres
from slurmsched.slurm.requests import NO_REQUEST, Forms, GpuRequest, asked
from slurmsched.slurm.text import UNSET, count_units

_OPTIONS = {
    "gres": "per_node", "gpus-per-node": "per_node", "gpus": "per_job", "G": "per_job", "gpus-per-task": "per_task",
    "gpus-per-socket": "per_socket", "ntasks": "tasks", "n": "tasks", "nodes": "nodes", "N": "nodes",
    "ntasks-per-node": "tasks_per_node",
}  # fmt: skip
_COUNTS = frozenset({"tasks", "nodes", "tasks_per_node"})
# Options of sbatch, salloc and srun that take no word after them (Slurm's manual pages, 20.11 to 26.05).
_ALONE = frozenset({
    "requeue", "no-requeue", "hold", "H", "exclusive", "overcommit", "O", "oversubscribe", "s", "share", "parsable",
    "quiet", "Q", "verbose", "v", "wait", "W", "test-only", "contiguous", "spread-job", "use-min-nodes", "reboot",
    "ignore-pbs", "no-kill", "k", "get-user-env", "nice", "x11", "propagate", "no-bell", "bell", "immediate", "I",
    "pty", "label", "l", "multi-prog", "preserve-env", "E", "unbuffered", "u", "overlap", "exact", "interactive",
    "no-shell", "disable-status", "X", "no-allocate", "Z", "kill-on-bad-exit", "K", "whole", "resv-ports", "stepmgr",
    "consolidate-segments",
})  # fmt: skip
_WHOLE = re.compile(r"(\d+)(?:-\d+)?", re.ASCII)
_PARTS = re.compile(r"gpu|shard|mps")


def gpus_of(fields: Mapping[str, str]) -> GpuRequest:
    """GPUs held or asked for, from the first field that tells of any.

    AllocTRES and ReqTRES count all nodes; they know GPUs only where AccountingStorageTRES lists them. SubmitLine
    shows the options of the command line, not those in the script. AllocGRES and ReqGRES (up to 20.11) are per node.
    """
    told = next((text for name in ("NNodes", "AllocNodes", "ReqNodes") if (text := fields.get(name, "")) not in UNSET),
                _nodes_of(fields.get("AllocTRES", "")))  # fmt: skip
    nodes, tasks = _count(told), _count(fields.get("NTasks", ""))
    for name in ("AllocTRES", "ReqTRES", "SubmitLine", "AllocGRES", "ReqGRES"):
        text = fields.get(name, "")
        if text in UNSET or ("gpu" not in text and "-G" not in text):
            continue
        found = _asked(name, text, nodes, tasks, _component(fields.get("JobID", "")))
        if found.gpus or found.mig_devices or found.shards:
            return found
    count = fields.get("GPUs", "")
    return GpuRequest(gpus=_count(count)) if count else NO_REQUEST


def _nodes_of(tres: str) -> str:
    """The count of nodes in a TRES text, "" where it tells none."""
    return dict(part.partition("=")[::2] for part in tres.split(",")).get("node", "")


@lru_cache(maxsize=1 << 12)
def one_type(text: str) -> str:
    """The GPU type of a request's normal form: "gpu:a100:2" -> "a100"; "" of several or none."""
    types = {entry.type for entry in parse_gres(text) if entry.kind == "gpu"}
    return types.pop() if len(types) == 1 else ""


@lru_cache(maxsize=1 << 14)
def _asked(name: str, text: str, nodes: int, tasks: int, component: int) -> GpuRequest:
    """The request of one field's text. Raises UnreadableError."""
    if name == "SubmitLine":
        return _from_command(text, nodes, tasks, component)
    if name.endswith("TRES"):  # energy, licences and others have forms of their own
        return asked(Forms(tres=",".join(part for part in text.split(",") if _PARTS.search(part))))
    return asked(Forms(per_node=text, nodes=max(nodes, 1)))


def _component(job_id: str) -> int:
    """The place of a het job's component in its command line."""
    offset = job_id.rpartition("+")[2] if "+" in job_id else ""
    return int(offset) if offset.isascii() and offset.isdecimal() else 0


def _from_command(line: str, nodes: int, tasks: int, component: int) -> GpuRequest:
    """The request in the options of an sbatch, salloc or srun command line; those after the script are its own.

    nodes, tasks: as accounting counts them, 0 where it does not tell: then the options tell.
    """
    try:
        words = shlex.split(line)
    except ValueError:
        return NO_REQUEST
    forms: dict[str, Any] = {}
    parts = [list(part) for option, part in groupby(words[1:], key=lambda word: word != ":") if option]
    if component >= len(parts):
        return NO_REQUEST
    words = ["", *parts[component]]
    for i, word in enumerate(words[1:], 1):
        if not word.startswith("-") and not _takes(words[i - 1]):
            break
        name, value = _option(word, words[i + 1] if i + 1 < len(words) else "")
        if field := _OPTIONS.get(name):
            forms[field] = _least(value) if field in _COUNTS else _gres(name, value)
    nodes = nodes or forms.get("nodes", 1)
    per_node = forms.pop("tasks_per_node", 1)
    forms |= {"nodes": nodes, "tasks": tasks or forms.get("tasks", nodes * per_node)}
    try:
        return asked(replace(Forms(), **forms))
    except UnreadableError:
        return NO_REQUEST


def _takes(word: str) -> bool:
    """Whether the word is an option that may have its value in the next word."""
    return word.startswith("-") and "=" not in word and word.lstrip("-") not in _ALONE


def _option(word: str, following: str) -> tuple[str, str]:
    """Name and value of an option: "--gpus=2", "--gpus 2", "-G2", "-G 2"."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        return name, value if equals else following
    return word[1:2], word[2:] or following


def _gres(name: str, value: str) -> str:
    """A gres text: --gpus and its like leave "gpu:" out."""
    if name == "gres":
        return value
    return ",".join(f"gpu:{part}" for part in value.split(",") if part)


@lru_cache(maxsize=1 << 12)
def _count(text: str) -> int:
    """A count as Slurm prints it: "4", "1.50K", "2-4" (least first); 0 where not told. Raises UnreadableError."""
    return count_units(text.partition("-")[0])


def _least(text: str) -> int:
    """The least count of an option such as --nodes=2-4, 1 where it is none."""
    found = _WHOLE.match(text)
    return max(int(found[1]), 1) if found else 1

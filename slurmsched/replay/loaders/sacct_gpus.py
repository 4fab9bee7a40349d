"""The GPUs of a job in accounting, where the site's accounting may not count any."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from slurmsched.errors import UnreadableError
from slurmsched.model.gres import parse_gres
from slurmsched.slurm.requests import NO_REQUEST, Forms, GpuRequest, asked
from slurmsched.slurm.text import UNSET

_OPTIONS = {
    "gres": "per_node", "gpus-per-node": "per_node", "gpus": "per_job", "G": "per_job", "gpus-per-task": "per_task",
    "gpus-per-socket": "per_socket", "ntasks": "tasks", "n": "tasks", "nodes": "nodes", "N": "nodes",
}  # fmt: skip


def gpus_of(fields: Mapping[str, str]) -> GpuRequest:
    """GPUs held or asked for, from the first field that tells of any.

    AllocTRES and ReqTRES count all nodes; they know GPUs only where AccountingStorageTRES lists them. SubmitLine
    shows the options of the command line, not those in the script. AllocGRES and ReqGRES (up to 20.11) are per node.
    """
    nodes = _count(fields.get("NNodes") or fields.get("AllocNodes") or fields.get("ReqNodes") or "1")
    tasks = _count(fields.get("NTasks") or "1")
    for name in ("AllocTRES", "ReqTRES", "SubmitLine", "AllocGRES", "ReqGRES"):
        text = fields.get(name, "")
        if text in UNSET or ("gpu" not in text and "-G" not in text):
            continue
        found = _asked(name, text, nodes, tasks)
        if found.gpus or found.mig_devices or found.shards:
            return found
    count = fields.get("GPUs", "")
    return GpuRequest(gpus=_count(count)) if count else NO_REQUEST


@lru_cache(maxsize=1 << 12)
def first_type(text: str) -> str:
    """The GPU type of a request's normal form: "gpu:a100:2" -> "a100"."""
    return next((entry.type for entry in parse_gres(text) if entry.kind == "gpu" and entry.type), "")


@lru_cache(maxsize=1 << 14)
def _asked(name: str, text: str, nodes: int, tasks: int) -> GpuRequest:
    """The request of one field's text. Raises UnreadableError."""
    if name == "SubmitLine":
        return _from_command(text, nodes, tasks)
    return asked(Forms(tres=text)) if name.endswith("TRES") else asked(Forms(per_node=text, nodes=nodes))


def _from_command(line: str, nodes: int, tasks: int) -> GpuRequest:
    """The request in the options of an sbatch, salloc or srun command line; those after the script are its own."""
    try:
        words = shlex.split(line)
    except ValueError:
        return NO_REQUEST
    forms: dict[str, Any] = {"nodes": nodes, "tasks": tasks}
    for i, word in enumerate(words[1:], 1):
        if not word.startswith("-") and not words[i - 1].startswith("-"):
            break
        name, value = _option(word, words[i + 1] if i + 1 < len(words) else "")
        if field := _OPTIONS.get(name):
            forms[field] = _count(value) if field in ("nodes", "tasks") else _gres(name, value)
    try:
        return asked(replace(Forms(), **forms))
    except UnreadableError:
        return NO_REQUEST


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
    """A count as Slurm prints it, at least 1: "4", "2-4" (least first), "" -> 1."""
    found = re.match(r"\d+", text)
    return max(int(found[0]), 1) if found else 1

"""Loads the jobs by pyslurm in a process of its own: `python -m slurmsched.slurm.pyslurm_child`.

Slurm's client library ends its process on a bad slurm.conf, and may crash if it is older than the cluster. So no other
module imports pyslurm. Each line on standard input asks for one load. Each answer is eight bytes with its length, then
a pickle of (kind, value). The kind is "columns" or "error".
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np

LENGTH = struct.Struct(">Q")
NAN = float("nan")

_TEXTS: dict[str, str] = {
    "account": "account", "partition": "partition", "qos": "qos", "name": "name",
    "comment": "comment", "reason": "state_reason", "reservation": "reservation", "node_list": "allocated_nodes",
    "state": "state", "array_tasks": "array_tasks_waiting",
}  # fmt: skip
_COUNTS: dict[str, str] = {
    "job_id": "id", "nice": "nice", "priority": "priority", "nodes": "num_nodes", "cpus": "cpus",
    "memory_mib": "memory", "restarts": "requeue_count", "array_job_id": "array_id",
    "het_job_id": "heterogeneous_id", "het_offset": "heterogeneous_offset", "requeueable": "is_requeueable",
    "batch": "is_batch_job", "cron": "is_cronjob",
}  # fmt: skip
_TIMES: dict[str, str] = {
    "submit_s": "submit_time", "eligible_s": "eligible_time", "start_s": "start_time", "end_s": "end_time",
    "run_s": "run_time",
}  # fmt: skip


def load_columns(load: Callable[[], Mapping[int, Any]]) -> dict[str, Any]:
    """All jobs as columns: int64 and float64 arrays (unset times are NaN) and coded texts."""
    jobs = list(load().values())
    columns: dict[str, Any] = {}
    for name, attribute in _COUNTS.items():
        columns[name] = np.array([getattr(job, attribute) or 0 for job in jobs], np.int64)
    for name, attribute in _TIMES.items():
        columns[name] = np.array([getattr(job, attribute) or NAN for job in jobs], np.float64)
    for name, attribute in _TEXTS.items():
        columns[name] = _coded([getattr(job, attribute) for job in jobs])
    return columns | {"user": _coded(_users(jobs))}


def _users(jobs: list[Any]) -> list[Any]:
    """Name of each job's user. pyslurm asks the system for each job, which is half of its time: here once a user."""
    known: dict[int, Any] = {}
    for job in jobs:
        if job.user_id not in known:
            known[job.user_id] = job.user_name
    return [known[job.user_id] for job in jobs]


def _coded(texts: list[Any]) -> tuple[Any, list[str]]:
    """Code of each row, and the text of each code."""
    plain = ["" if text is None else str(text) for text in texts]
    names = list(dict.fromkeys(plain))
    code = {name: i for i, name in enumerate(names)}
    return np.array([code[text] for text in plain], np.int32), names


def answer(load: Callable[[], Mapping[int, Any]]) -> tuple[str, Any]:
    """The answer to one request."""
    try:
        return "columns", load_columns(load)
    except Exception as error:  # the parent falls back to Slurm's commands
        return "error", f"{type(error).__name__}: {error}"


def send(pipe: BinaryIO, message: tuple[str, Any]) -> None:
    """Write one answer."""
    body = pickle.dumps(message, protocol=5)
    pipe.write(LENGTH.pack(len(body)))
    pipe.write(body)
    pipe.flush()


def main() -> None:
    """Answer requests until standard input ends."""
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the library may print, which must not mix with the answers
    try:
        import pyslurm

        jobs: Any = pyslurm.Jobs
        send(pipe, ("hello", str(pyslurm.__version__)))
    except Exception as error:
        send(pipe, ("error", f"{type(error).__name__}: {error}"))
        return
    for _ in sys.stdin:
        send(pipe, answer(jobs.load))


if __name__ == "__main__":
    main()

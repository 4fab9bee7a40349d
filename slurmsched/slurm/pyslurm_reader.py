"""Reads jobs by pyslurm in a child process, and the rest by Slurm's commands.

sprio and scontrol have the factors of priorities and GPU indices. If the child dies or hangs, or there is no slurm.h,
only the commands are used for a while.
"""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from slurmsched.errors import SlurmError
from slurmsched.logs import get_logger
from slurmsched.model.slurm_text import count_tasks, text_or_empty
from slurmsched.model.snapshot import Snapshot
from slurmsched.protocols import ClusterReader
from slurmsched.slurm.cluster_state import ClusterState, SprioUse, abandon
from slurmsched.slurm.commands import Commands, RunningCommand
from slurmsched.slurm.job_tables import (
    NODE_FIELDS,
    pin_unreadable,
    request_columns,
    state_columns,
    tres_memory_mib,
)
from slurmsched.slurm.pyslurm_child import LENGTH, CodedTexts
from slurmsched.slurm.squeue import GroupedColumns

log = get_logger()
FIRST_REST_S, LONGEST_REST_S = 60.0, 3600.0
END_S = 5.0  # a process that closed its output must end within this time


class PyslurmError(SlurmError):
    """The child process did not answer."""


def slurm_header(commands: Commands) -> Path:
    """Where slurm.h is: include/slurm beside the folder of Slurm's commands. Raises SlurmUnreachableError."""
    return Path(commands.path("squeue")).parent.resolve().parent / "include/slurm/slurm.h"


class PyslurmChild:
    """The process that imports pyslurm. Raises PyslurmError if it cannot, or if there is no slurm.h."""

    def __init__(self, commands: Commands) -> None:
        header = slurm_header(commands)
        if not header.is_file():
            raise PyslurmError(f'there is no {header}; install the headers of Slurm, or set slurm.adapter = "cli"')
        child = "slurmsched.slurm.pyslurm_child"
        argv = [sys.executable, "-P", "-m", child, str(header)]  # -P: no module of the working directory
        env = {**commands.env, "PYTHONPATH": os.pathsep.join(filter(os.path.isabs, sys.path))}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=env)
        self._timeout_s = commands.timeout_s
        self.version = str(self._receive("hello"))

    def ask(self) -> None:
        """Start a load. Raises PyslurmError."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"load\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PyslurmError(self._end()) from None

    def columns(self) -> dict[str, Any]:
        """The columns of the load that `ask` started. Raises PyslurmError."""
        found: dict[str, Any] = self._receive("columns")
        return found

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _receive(self, wanted: str) -> Any:
        until_s = time.monotonic() + self._timeout_s
        (length,) = LENGTH.unpack(self._bytes(LENGTH.size, until_s))
        kind, value = pickle.loads(self._bytes(length, until_s))
        if kind != wanted:
            self.close()
            raise PyslurmError(f"pyslurm: {value}")
        return value

    def _bytes(self, count: int, until_s: float) -> bytes:
        assert self._process.stdout is not None
        fd, parts = self._process.stdout.fileno(), []
        while count:
            if not select.select([fd], [], [], max(until_s - time.monotonic(), 0))[0]:
                self.close()
                raise PyslurmError(f"pyslurm gave no answer within {self._timeout_s:g} s")
            part = os.read(fd, min(count, 1 << 20))
            if not part:
                raise PyslurmError(self._end())
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _end(self) -> str:
        try:
            status = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.close()
            return f"pyslurm's process closed its output and did not end within {END_S:g} s"
        self.close()
        return f"pyslurm's process ended with {'signal ' + str(-status) if status < 0 else 'status ' + str(status)}"


class PyslurmReader:
    """Snapshots by pyslurm and Slurm's commands.

    fallback: reads while the child process cannot.
    open_child, clock: tests replace them.
    indices, sprio: see ClusterState.
    """

    name = "pyslurm"

    def __init__(
        self,
        commands: Commands,
        fallback: ClusterReader,
        open_child: Callable[[Commands], PyslurmChild] = PyslurmChild,
        clock: Callable[[], float] = time.monotonic,
        *,
        indices: bool = True,
        sprio: SprioUse = "always",
    ) -> None:
        self.commands = commands
        self._around = ClusterState(commands, indices=indices, sprio=sprio)
        self._fallback = fallback
        self._open_child, self._clock = open_child, clock
        self._child: PyslurmChild | None = None
        self._rest_until_s, self._rest_s = -float("inf"), FIRST_REST_S

    def begin(self) -> None:
        """Start the child, whose import takes a while. Errors appear in `read`."""
        if self._child is None and self._clock() >= self._rest_until_s:
            try:
                self._child = self._open_child(self.commands)
            except SlurmError as error:
                self._failed(error)

    def close(self) -> None:
        """End the child."""
        self._end_child()
        self._fallback.close()

    def doubt_rights(self) -> None:
        """Read our rights again at the next read, by pyslurm or by the commands."""
        self._around.doubt_rights()
        self._fallback.doubt_rights()

    def read(self) -> Snapshot:
        """The cluster now; by the commands alone if the child failed. Raises SlurmError as CommandReader does."""
        self.begin()
        if self._child is not None:
            try:
                snapshot = self._read(self._child)
                self._rest_s = FIRST_REST_S
                return snapshot
            except PyslurmError as error:
                self._failed(error)
        return self._fallback.read()

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

    def _failed(self, error: SlurmError) -> None:
        self._child = None
        self._rest_until_s = self._clock() + self._rest_s
        log.warning("pyslurm.failed", reason=str(error), instead="cli", again_in_s=self._rest_s)
        self._rest_s = min(self._rest_s * 2, LONGEST_REST_S)

    def _read(self, child: PyslurmChild) -> Snapshot:
        warnings: list[str] = []
        now_s = time.time()
        answer, started = self._ask(child)
        try:
            site = self._around.site(started, warnings)
            return self._around.snapshot(now_s, _job_columns(answer, warnings), started, site, warnings)
        finally:
            abandon(started)

    def _ask(self, child: PyslurmChild) -> tuple[dict[str, Any], dict[str, RunningCommand]]:
        """The child's answer, and the commands that run meanwhile.

        If the answer is not collected, the child is ended. Otherwise the next read would take that answer for its own.
        """
        started: dict[str, RunningCommand] = {}
        try:
            child.ask()
            started = self._around.start({})
            return child.columns(), started
        except BaseException:
            abandon(started)
            self._end_child()
            raise


# Columns of the child, and what squeue calls them.
_REQUEST_TEXTS = {
    "tres_per_job": "tres-per-job", "tres_per_task": "tres-per-task", "tres_per_socket": "tres-per-socket",
    "tres_per_node": "tres-per-node", "tres_alloc": "tres-alloc", **NODE_FIELDS,
}  # fmt: skip
_REQUEST_COUNTS = {"nodes": "NumNodes", "tasks": "NumTasks", "sockets": "Sockets", "restarts": "RestartCnt"}


def _job_columns(answer: Mapping[str, Any], warnings: list[str]) -> dict[str, Any]:
    """The columns of model.Jobs from those of the child.

    Jobs whose array tasks cannot be counted get fixed_priority, with a warning.
    """
    columns = {name: values for name, values in answer.items() if not isinstance(values, tuple)}
    coded: dict[str, CodedTexts] = {name: values for name, values in answer.items() if isinstance(values, tuple)}
    requests = {source: coded.pop(name) for name, source in _REQUEST_TEXTS.items()}
    for name, source in _REQUEST_COUNTS.items():
        distinct, codes = np.unique(columns[name], return_inverse=True)
        requests[source] = codes, [str(count) for count in distinct.tolist()]
    for name in ("tasks", "sockets"):
        del columns[name]
    columns |= request_columns(group := _grouped(requests), warnings)
    columns["memory_mib"] = group.numbers("tres-alloc", tres_memory_mib, np.float64)
    odd = np.zeros(len(columns["job_id"]), np.bool_)
    columns["array_tasks"] = _group(coded, "array_tasks").numbers("array_tasks", count_tasks, np.int32, odd, 1)
    words = _group(coded, "state").labels("state")
    columns |= {name: _group(coded, name).labels(name, text_or_empty) for name in list(coded)}
    columns |= state_columns(words, columns["run_s"], warnings)
    pin_unreadable(columns, odd, warnings)
    return columns


def _group(coded: dict[str, CodedTexts], name: str) -> GroupedColumns:
    """One column, which is taken out of the others."""
    codes, texts = coded.pop(name)
    return GroupedColumns(codes, {name: texts})


def _grouped(coded: Mapping[str, CodedTexts]) -> GroupedColumns:
    """Several columns of texts, by their combinations."""
    rows = next(len(codes) for codes, _ in coded.values())
    combination = np.zeros(rows, np.int64)
    for codes, texts in coded.values():
        if len(texts) > 1:
            combination = np.unique(combination * len(texts) + codes, return_inverse=True)[1]
    first = np.unique(combination, return_index=True)[1]
    texts_of = {name: [texts[code] for code in codes[first].tolist()] for name, (codes, texts) in coded.items()}
    return GroupedColumns(combination.astype(np.int32), texts_of)

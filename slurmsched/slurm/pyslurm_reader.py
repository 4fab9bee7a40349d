"""Reads jobs by pyslurm in a child process, and the rest by Slurm's commands.

pyslurm 25.11 lacks tres_per_job, tres_per_socket, site factors and GPU indices, and does not distinguish an unlimited
time limit from none. squeue, sprio and scontrol have these. If the child dies or hangs, only the commands are used
for a while.
"""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from slurmsched.errors import SlurmError
from slurmsched.logs import get_logger
from slurmsched.model.slurm_text import count_tasks, slurm_duration_s, text_or_empty, whole_number
from slurmsched.model.snapshot import Snapshot
from slurmsched.protocols import ClusterReader
from slurmsched.slurm.cluster_state import ClusterState, abandon
from slurmsched.slurm.commands import Commands, RunningCommand
from slurmsched.slurm.job_tables import pin_unreadable, request_columns, state_columns
from slurmsched.slurm.pyslurm_child import LENGTH
from slurmsched.slurm.squeue import GroupedColumns, fresh_mark, parse_requests, request_arguments

log = get_logger()
FIRST_REST_S, LONGEST_REST_S = 60.0, 3600.0
END_S = 5.0  # a process that closed its output must end within this time


class PyslurmError(SlurmError):
    """The child process did not answer."""


class PyslurmChild:
    """The process that imports pyslurm."""

    def __init__(self, commands: Commands) -> None:
        argv = [sys.executable, "-P", "-m", "slurmsched.slurm.pyslurm_child"]  # -P: no module of the working directory
        env = {**commands.env, "PYTHONPATH": os.pathsep.join(filter(os.path.isabs, sys.path))}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=env)
        self._timeout_s = commands.timeout_s
        self.version = str(self._receive("hello"))

    def ask(self) -> None:
        """Start a load. Raises ChildError."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"load\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PyslurmError(self._end()) from None

    def columns(self) -> dict[str, Any]:
        """The columns of the load that `ask` started. Raises ChildError."""
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
    indices: see ClusterState.
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
    ) -> None:
        self.commands = commands
        self._around = ClusterState(commands, indices=indices)
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
        mark = fresh_mark()
        now_s = time.time()
        answer, started = self._ask(child, mark)
        try:
            columns = _with_requests(_named(answer), started["squeue"], mark, warnings)
            columns |= state_columns(columns.pop("state_word"), columns["run_s"], warnings)
            return self._around.snapshot(now_s, columns, started, warnings)
        finally:
            abandon(started)

    def _ask(self, child: PyslurmChild, mark: str) -> tuple[dict[str, Any], dict[str, RunningCommand]]:
        """The child's answer, and the commands that run meanwhile.

        If the answer is not collected, the child is ended. Otherwise the next read would take that answer for its own.
        """
        started: dict[str, RunningCommand] = {}
        try:
            child.ask()
            started = self._around.start({"squeue": ("squeue", *request_arguments(mark))})
            return child.columns(), started
        except BaseException:
            abandon(started)
            self._end_child()
            raise


def _named(found: Mapping[str, Any]) -> dict[str, Any]:
    """The child's columns under the names of model.Jobs; the state is still a word.

    A column `odd` marks jobs whose array tasks cannot be counted.
    """
    columns = {name: values for name, values in found.items() if not isinstance(values, tuple)}
    coded = {
        name: GroupedColumns(values[0], {name: values[1]})
        for name, values in found.items()
        if isinstance(values, tuple)
    }
    columns["state_word"] = coded.pop("state").labels("state")
    odd = columns["odd"] = np.zeros(len(columns["job_id"]), np.bool_)
    columns["array_tasks"] = coded.pop("array_tasks").numbers("array_tasks", count_tasks, np.int32, odd, 1)
    columns |= {name: group.labels(name, text_or_empty) for name, group in coded.items()}
    columns["run_s"] = np.nan_to_num(columns["run_s"])
    columns["memory_mib"] = columns["memory_mib"].astype(np.float64)
    return columns


def _with_requests(
    columns: Mapping[str, Any], squeue: RunningCommand, mark: str, warnings: list[str]
) -> dict[str, Any]:
    """The columns with request and dependency of squeue.

    Jobs that appeared between the two answers are left to the next read. A task that squeue hides in the row of its
    array has the request of the array.
    """
    ids, group = parse_requests(squeue.text(), mark)
    at = {whole_number(job): row for row, job in enumerate(ids)}
    pairs = zip(columns["job_id"].tolist(), columns["array_job_id"].tolist(), strict=True)
    rows = np.array([at.get(job, at.get(array, -1)) for job, array in pairs], np.intp)
    known = np.flatnonzero(rows >= 0)
    picked = GroupedColumns(group.codes[rows[known]], group.columns)
    kept = {name: values.take(known) for name, values in columns.items()}
    odd = kept.pop("odd")
    from_squeue = {
        "dependency": picked.labels("Dependency", text_or_empty),
        "time_limit_s": picked.numbers("TimeLimit", slurm_duration_s, np.float64, odd, np.nan),
    }
    made = {**kept, **from_squeue, **request_columns(picked, warnings)}
    pin_unreadable(made, odd, warnings)
    return made

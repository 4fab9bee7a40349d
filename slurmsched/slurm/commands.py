"""Runs Slurm's own commands: in one language, one time format, with clear errors.

A command can be started early and collected later, so that several run at once and while Python
is still busy. Its output goes to memory, not to a pipe: a command that prints much never waits for us.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from slurmsched.errors import SlurmError, SlurmUnreachableError
from slurmsched.model.hostlist import expand

# Variables that change what Slurm's commands print; those that say where the cluster is are kept.
_DROPPED = ("SQUEUE_", "SPRIO_", "SINFO_", "SCONTROL_", "SACCT_", "SACCTMGR_", "SDIAG_", "SLURM_", "LC_", "LANG")
_KEPT = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"})
_FIXED = {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0", "TZ": "UTC0"}
_AWAY = (
    "unable to contact slurm controller",
    "unable to contact",
    "connection refused",
    "connection reset by peer",
    "connection timed out",
    "communication connection failure",
    "communication shutdown failure",
    "socket timed out",
    "zero bytes were transmitted",
    "unable to connect to database",
    "unable to establish connection",
    "database connection",
    "problem talking to the database",
    "sending persistconninit msg",
    "couldn't load slurm info",
    "could not establish a configuration source",
    "no route to host",
    "controller is in standby mode",
    "unexpected message received",  # what an update says when slurmctld is away
    "message send failure",
    "message receive failure",
    "insane message length",
    "slurm backup controller",
    "protocol authentication error",
    "invalid authentication credential",
)


MOST_BYTES = 100_000  # of one argument: Linux takes 131,071 (MAX_ARG_STRLEN), whatever the limit on all of them is


def batches(words: Iterable[object], most: int = MOST_BYTES) -> Iterator[str]:
    """The words in comma lists that fit into an argument each."""
    listed, size = list[str](), 0
    for word in map(str, words):
        if listed and size + len(word.encode()) > most:
            yield ",".join(listed)
            listed, size = [], 0
        listed.append(word)
        size += len(word.encode()) + 1
    if listed:
        yield ",".join(listed)


def node_batches(hostlist: str) -> Iterator[str]:
    """The hostlist as it is, or its names in lists that fit into an argument each."""
    return iter((hostlist,)) if len(hostlist.encode()) <= MOST_BYTES else batches(expand(hostlist))


class Started:
    """A command that runs. Collect it once, by `text` or `finish`; leaving a `with` block ends it."""

    def __init__(self, program: str, process: subprocess.Popen[bytes], out: int, err: int, timeout_s: float) -> None:
        self.program = program
        self._process = process
        self._out, self._err = out, err
        self._timeout_s = timeout_s
        self._until_s = time.monotonic() + timeout_s
        self._open = True

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def finish(self) -> tuple[int, str, str]:
        """Exit status, output and error output, when it has ended. Raises SlurmUnreachableError if it is late."""
        try:
            status = _wait(self._process, max(self._until_s - time.monotonic(), 0.001))
            return status, _read(self._out), _read(self._err)
        except subprocess.TimeoutExpired:
            raise SlurmUnreachableError(
                f"{self.program} gave no answer within {self._timeout_s:g} s; is slurmctld well? (slurm.timeout_s)"
            ) from None
        finally:
            self.abandon()

    def text(self) -> str:
        """What it printed. Raises SlurmUnreachableError or SlurmError as Commands.run does."""
        status, out, err = self.finish()
        if status:
            raise failure(self.program, status, err or out)
        return out

    def abandon(self) -> None:
        """End it if it still runs; nobody wants its answer any more."""
        if self._open:
            self._open = False
            self._process.kill()
            self._process.wait()
            os.close(self._out)
            os.close(self._err)


@dataclass(frozen=True, slots=True)
class Commands:
    """Slurm's commands of one installation.

    bin_dir: their folder, "" = PATH. conf: slurm.conf, "" = SLURM_CONF or Slurm's own default.
    timeout_s: longest wait for one command.
    """

    bin_dir: str = ""
    conf: str = ""
    timeout_s: float = 60.0
    env: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.env.update(clean_environment(self.conf))

    def path(self, program: str) -> str:
        """The program's file. Raises SlurmUnreachableError when there is none."""
        path = shutil.which(program, path=self.bin_dir or os.environ.get("PATH"))
        if path is None:
            where = self.bin_dir or "PATH"
            raise SlurmUnreachableError(f"no {program} in {where}; set slurm.bin_dir to the folder of Slurm's commands")
        return path

    def start(self, program: str, *arguments: str, stdin: str = "") -> Started:
        """The running command. Raises SlurmUnreachableError when there is no such program."""
        path = self.path(program)
        out, err, given = _memory("out"), _memory("err"), _memory("in")
        try:
            with os.fdopen(given, "w+b") as source:
                source.write(stdin.encode())
                source.flush()
                source.seek(0)
                process = subprocess.Popen([path, *arguments], stdin=source, stdout=out, stderr=err, env=self.env)
        except OSError as error:
            os.close(out)
            os.close(err)
            raise SlurmUnreachableError(f"{path} cannot be run: {error.strerror}") from error
        return Started(program, process, out, err, self.timeout_s)

    def run(self, program: str, *arguments: str, stdin: str = "") -> str:
        """What the command prints.

        Raises SlurmUnreachableError when there is no such program, no answer in time, or Slurm's daemon
        is away, and SlurmError for any other failure, with Slurm's own words.
        """
        return self.start(program, *arguments, stdin=stdin).text()


def clean_environment(conf: str = "") -> dict[str, str]:
    """This process's environment without the variables that bend Slurm's output, in the C locale.

    Times come as Unix seconds, task lists of arrays in full length. TZ changes no such time, and spares
    the C library a look at /etc/localtime for each of them: a quarter of squeue's work.
    """
    kept = {k: v for k, v in os.environ.items() if k in _KEPT or not k.startswith(_DROPPED)}
    return kept | _FIXED | ({"SLURM_CONF": str(Path(conf))} if conf else {})


def failure(program: str, status: int, message: str) -> SlurmError:
    """The error that a command's message means."""
    lines = [line.strip().removeprefix(f"{program}: ").removeprefix("error: ") for line in message.splitlines()]
    lines = list(dict.fromkeys(filter(None, lines)))
    said = "; ".join(lines[-3:]) or f"exit status {status}"
    away = any(words in message.lower() for words in _AWAY)
    if away:
        daemon = "slurmdbd" if program.startswith("sacct") else "slurmctld"
        return SlurmUnreachableError(f"{program}: {said}; is {daemon} up, and does slurm.conf name its host?")
    return SlurmError(f"{program}: {said}")


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> int:
    """Exit status. As Popen.wait, which looks only every 50 ms; here the kernel tells at once."""
    descriptor = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(timeout_s * 1000)
    finally:
        os.close(descriptor)
    return process.wait(0)


def _memory(name: str) -> int:
    return os.memfd_create(f"slurmsched-{name}", os.MFD_CLOEXEC)


def _read(descriptor: int) -> str:
    """All that was written; bytes that are not UTF-8 become U+FFFD."""
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0).decode("utf-8", "replace") if size else ""

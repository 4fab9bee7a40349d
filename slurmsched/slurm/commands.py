"""Runs Slurm's own commands in one language and one time format.

A command can be started early and collected later, so that several run at once while Python works. The output goes to
memory, not to a pipe, so a command that prints much never waits for us.
"""

from __future__ import annotations

import os
import re
import secrets
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from slurmsched.errors import SlurmError, SlurmUnreachableError, UnreadableError
from slurmsched.model.hostlists import expand_hostlist

T = TypeVar("T")

# Variables that change what Slurm's commands print. Those that name the cluster are kept.
_DROPPED = ("SQUEUE_", "SPRIO_", "SINFO_", "SCONTROL_", "SACCT_", "SACCTMGR_", "SDIAG_", "SLURM_", "LC_", "LANG")
_KEPT = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"})
_FIXED = {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0", "TZ": "UTC0"}
_UNREACHABLE = (
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
    "unexpected message received",  # an update, while slurmctld is down
    "message send failure",
    "message receive failure",
    "insane message length",
    "slurm backup controller",
    "protocol authentication error",
    "invalid authentication credential",
)


MOST_BYTES = 100_000  # of one argument; Linux takes 131,071 (MAX_ARG_STRLEN)


def argument_batches(words: Iterable[object], most: int = MOST_BYTES) -> Iterator[str]:
    """Comma lists of the words, each short enough for one argument."""
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
    """The hostlist itself if it fits into one argument, else its names in several lists."""
    return iter((hostlist,)) if len(hostlist.encode()) <= MOST_BYTES else argument_batches(expand_hostlist(hostlist))


class RunningCommand:
    """A running command. Collect it once, with `text` or `finish`. Leaving a `with` block ends it."""

    def __init__(self, program: str, process: subprocess.Popen[bytes], out: int, err: int, timeout_s: float) -> None:
        self.program = program
        self._process = process
        self._out, self._err = out, err
        self._timeout_s = timeout_s
        self._until_s = time.monotonic() + timeout_s
        self._open = True

    def __enter__(self) -> RunningCommand:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def finish(self) -> tuple[int, str, str]:
        """Wait for its end. Returns exit status, output and error output.

        Raises SlurmUnreachableError after the timeout.
        """
        try:
            status = _wait(self._process, max(self._until_s - time.monotonic(), 0.001))
            return status, _read(self._out), _read(self._err)
        except subprocess.TimeoutExpired:
            raise SlurmUnreachableError(
                f"{self.program} gave no answer within {self._timeout_s:g} s; is slurmctld up? (slurm.timeout_s)"
            ) from None
        finally:
            self.abandon()

    def text(self) -> str:
        """Wait for its end. Returns its output. Raises as Commands.run does."""
        status, out, err = self.finish()
        if status:
            raise command_error(self.program, status, err or out)
        return out

    def abandon(self) -> None:
        """End it if it still runs."""
        if self._open:
            self._open = False
            self._process.kill()
            self._process.wait()
            os.close(self._out)
            os.close(self._err)


@dataclass(frozen=True, slots=True)
class Commands:
    """Slurm's commands of one installation.

    bin_dir: their folder, "" = PATH.
    conf: path of slurm.conf, "" = SLURM_CONF or Slurm's default.
    timeout_s: longest wait for one command [s].
    begun: commands whose answer `run` will ask for, by their words.
    """

    bin_dir: str = ""
    conf: str = ""
    timeout_s: float = 60.0
    env: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    begun: dict[tuple[str, ...], RunningCommand] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.env.update(clean_environment(self.conf))

    def path(self, program: str) -> str:
        """Path of the program. Raises SlurmUnreachableError if there is none."""
        path = shutil.which(program, path=self.bin_dir or os.environ.get("PATH"))
        if path is None:
            where = self.bin_dir or "PATH"
            raise SlurmUnreachableError(f"no {program} in {where}; set slurm.bin_dir to the folder of Slurm's commands")
        return path

    def start(self, program: str, *arguments: str, stdin: str = "") -> RunningCommand:
        """Start the command. Raises SlurmUnreachableError if there is no such program."""
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
        return RunningCommand(program, process, out, err, self.timeout_s)

    def begin(self, program: str, *arguments: str) -> None:
        """Start the command now; the next `run` of the same words takes its answer. Raises as `start`.

        For a process that ends soon: the answer may be old by the time it is asked for.
        """
        self.begun[program, *arguments] = self.start(program, *arguments)

    def close(self) -> None:
        """End the commands that `begin` started and no `run` has asked for."""
        while self.begun:
            self.begun.popitem()[1].abandon()

    def run(self, program: str, *arguments: str, stdin: str = "") -> str:
        """The output of the command.

        Raises SlurmUnreachableError if there is no such program, no answer in time, or Slurm's daemon is down. Raises
        SlurmError for any other failure, with Slurm's own message.
        """
        begun = self.begun.pop((program, *arguments), None)
        return (begun or self.start(program, *arguments, stdin=stdin)).text()


class Attempts:
    """Calls that ask Slurm and may fail: a failure is noted, and the next call is made all the same.

    unread: a line for each failure, "what: error".
    """

    def __init__(self) -> None:
        self.unread: list[str] = []

    def __call__(self, what: str, ask: Callable[[], T], otherwise: T) -> T:
        """The answer of `ask`, or `otherwise` if it raises SlurmError, UnreadableError or ValueError."""
        try:
            return ask()
        except (SlurmError, UnreadableError, ValueError) as error:
            self.unread.append(f"{what}: {error}")
            return otherwise


def clean_environment(conf: str = "") -> dict[str, str]:
    """This process's environment without variables that change Slurm's output, in the C locale.

    Slurm then prints times as Unix seconds, and task lists of arrays in full. TZ does not change those times. It is set
    because otherwise the C library reads /etc/localtime for each of them: a quarter of squeue's time.
    """
    inherited = {k: v for k, v in os.environ.items() if k in _KEPT or not k.startswith(_DROPPED)}
    return inherited | _FIXED | ({"SLURM_CONF": str(Path(conf))} if conf else {})


def command_error(program: str, status: int, message: str) -> SlurmError:
    """The error for the message of a command that failed."""
    lines = [line.strip().removeprefix(f"{program}: ").removeprefix("error: ") for line in message.splitlines()]
    lines = list(dict.fromkeys(filter(None, lines)))
    said = "; ".join(lines[-3:]) or f"exit status {status}"
    away = any(words in message.lower() for words in _UNREACHABLE)
    if away:
        daemon = "slurmdbd" if program.startswith("sacct") else "slurmctld"
        return SlurmUnreachableError(f"{program}: {said}; is {daemon} up, and does slurm.conf name its host?")
    return SlurmError(f"{program}: {said}")


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> int:
    """Exit status. Popen.wait polls every 50 ms; this returns at once."""
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
    """All that was written. Bytes that are not UTF-8 become U+FFFD."""
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0).decode("utf-8", "replace") if size else ""


# One scontrol process for many commands.
#
# scontrol without arguments reads commands from standard input, which saves a process for each. To tell the answers
# apart, each command is followed by a random word. scontrol rejects that word on its error output at once. All output
# before it belongs to the command. No job or reservation can contain the word, since it is new each time.


class ScontrolSession:
    """A running scontrol. timeout_s: longest wait for one answer [s]."""

    def __init__(self, process: subprocess.Popen[bytes], timeout_s: float) -> None:
        self._process = process
        self._timeout_s = timeout_s
        self._heard = b""

    def tell(self, command: str) -> str:
        """Run one command. Returns the error that scontrol prints, "" if there is none.

        Raises SlurmUnreachableError if scontrol ends or does not answer in time. Slurm may or may not have received the
        command then.
        """
        assert self._process.stdin is not None
        mark = f"slurmsched-mark-{secrets.token_hex(16)}"
        try:
            self._process.stdin.write(f"{command}\n{mark}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise SlurmUnreachableError(f"scontrol ended: {self._rest() or 'no reason given'}") from None
        return self._until(mark.encode())

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stderr):
            with suppress(BrokenPipeError):
                stream.close()  # type: ignore[union-attr]
        self._process.wait()

    def _until(self, mark: bytes) -> str:
        """The output before the line about the mark, once that line is complete."""
        late_s = time.monotonic() + self._timeout_s
        of_mark = re.compile(rb"^(?P<before>.*?)(?:scontrol: )?(?:invalid keyword: )?%b(?!\S).*\n" % mark, re.MULTILINE)
        while (found := of_mark.search(self._heard)) is None:
            self._hear(late_s)
        said = self._heard[: found.end("before")]
        self._heard = self._heard[found.end() :]
        return "\n".join(line for line in said.decode("utf-8", "replace").splitlines() if line.strip())

    def _hear(self, late_s: float) -> None:
        assert self._process.stderr is not None
        fd = self._process.stderr.fileno()
        if not select.select([fd], [], [], max(late_s - time.monotonic(), 0))[0]:
            raise SlurmUnreachableError(f"scontrol gave no answer within {self._timeout_s:g} s (slurm.timeout_s)")
        piece = os.read(fd, 65_536)
        if not piece:
            raise SlurmUnreachableError(f"scontrol ended: {self._rest() or 'no reason given'}")
        self._heard += piece

    def _rest(self) -> str:
        return self._heard.decode("utf-8", "replace").strip()


@contextmanager
def scontrol_session(commands: Commands) -> Iterator[ScontrolSession]:
    """A scontrol process for the body. Raises SlurmUnreachableError if there is no scontrol."""
    path = commands.path("scontrol")
    pipe = subprocess.PIPE
    process = subprocess.Popen([path], stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, env=commands.env)
    talk = ScontrolSession(process, commands.timeout_s)
    try:
        yield talk
    finally:
        talk.end()

"""One scontrol process that is told one command after another.

scontrol without arguments reads commands from standard input. That saves a process a command, and
each still has its own answer: after it comes a word that scontrol does not know, which it names on
its error output at once, so all that it said before that belongs to the command. The word is a new
random one each time: nothing that Slurm says of a job or a reservation can hold it.
"""

from __future__ import annotations

import os
import re
import secrets
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from slurmsched.errors import SlurmUnreachableError
from slurmsched.slurm.commands import Commands


class Session:
    """A running scontrol. timeout_s: longest wait for the answer to one command."""

    def __init__(self, process: subprocess.Popen[bytes], timeout_s: float) -> None:
        self._process = process
        self._timeout_s = timeout_s
        self._heard = b""

    def tell(self, command: str) -> str:
        """What scontrol says against the command; "" when it has nothing against it.

        Raises SlurmUnreachableError if scontrol ends or does not answer in time: whether Slurm heard
        the command is not known then.
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
        """What was said before the line about the mark; that line has been heard to its end."""
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
def session(commands: Commands) -> Iterator[Session]:
    """A scontrol for the body, ended with it. Raises SlurmUnreachableError when there is no scontrol."""
    path = commands.path("scontrol")
    pipe = subprocess.PIPE
    process = subprocess.Popen([path], stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, env=commands.env)
    talk = Session(process, commands.timeout_s)
    try:
        yield talk
    finally:
        talk.end()

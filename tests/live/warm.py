"""Commands in processes forked from one that has loaded slurmsched already: a cold start is nearly all import.

Each command is a process of its own as before, with the same rights, and nothing of the one before it.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMAND = "import sys; from slurmsched.cli.main import main; sys.exit(main())"
LOADED = (
    "alembic.command",
    "slurmsched.cycle",
    "slurmsched.daemon.cycle_parts",
    "slurmsched.daemon.lock",
    "slurmsched.daemon.observers",
    "slurmsched.db.ledger_store",
    "slurmsched.planning.operations.operation_steps",
    "slurmsched.planning.planner",
    "slurmsched.planning.operations.gang_reservations",
    "slurmsched.planning.operations.preemption",
    "slurmsched.policies.discretized_las",
    "slurmsched.slurm.reader",
    "slurmsched.slurm.open_cluster",
    "sqlalchemy.dialects.sqlite",
)


class Warm:
    """Forks commands. prefix: what makes its process that of another user."""

    def __init__(self, python: str, prefix: list[str]) -> None:
        self._process = subprocess.Popen(
            [*prefix, python, "-m", "tests.live.warm"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, cwd=ROOT, start_new_session=True,
        )  # fmt: skip

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def run(self, code: str, argv: list[str], timeout_s: float) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of this code as a program of its own with these arguments, in /tmp.

        Raises TimeoutError; the command is killed then, and this process with it.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        late = threading.Timer(timeout_s, self.end)
        late.start()
        try:
            self._process.stdin.write(json.dumps([code, argv]) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        finally:
            late.cancel()
        if not answer:
            raise TimeoutError(f"{argv}: no answer, after {timeout_s:.0f} s at most")
        status, out, err = json.loads(answer)
        return status, out, err

    def end(self) -> None:
        """With whatever it runs."""
        if self.alive:
            os.killpg(self._process.pid, 9)
            self._process.wait()


_KNOWN: dict[str, Warm] = {}


def warm(user: str, python: str, prefix: list[str]) -> Warm:
    """The one process for this user; a new one where it has ended."""
    if user not in _KNOWN or not _KNOWN[user].alive:
        _KNOWN[user] = Warm(python, prefix)
        atexit.register(_KNOWN[user].end)
    return _KNOWN[user]


def serve() -> None:
    """Fork a command for each line of stdin, and say what became of it. In the command's process: SystemExit."""
    requests, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.chdir("/tmp")
    for module in LOADED:
        importlib.import_module(module)
    for line in requests:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of forking beside threads that a library left; not the command's own
                pid = os.fork()
            if pid == 0:
                requests.close()
                replies.close()
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                _become(*json.loads(line))
                sys.exit()
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            said = [_text(out.fileno()), _text(err.fileno())]
        replies.write(json.dumps([status, *said]) + "\n")
        replies.flush()


def _become(code: str, argv: list[str]) -> None:
    sys.argv = argv
    exec(compile(code, argv[0], "exec"), {"__name__": "__main__"})


def _text(file: int) -> str:
    os.lseek(file, 0, os.SEEK_SET)
    with os.fdopen(os.dup(file), "rb") as stream:
        return stream.read().decode(errors="replace")


if __name__ == "__main__":
    try:
        serve()
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        sys.exit(1)

"""SIGTERM, SIGINT and SIGHUP as flags, and a sleep that they end."""

from __future__ import annotations

import os
import select
import signal
from types import FrameType
from typing import Protocol


class _HasFileno(Protocol):
    def fileno(self) -> int: ...


class Signals:
    """What the daemon was asked to do: stop, or read its configuration anew.

    A handler only sets a flag: it may run between any two instructions of the main thread, so it must take no
    lock. A sleep ends by what the interpreter itself writes to a pipe at each signal (signal.set_wakeup_fd).
    """

    def __init__(self) -> None:
        self.stop = self.reload = False
        self._pipe: tuple[int, int] | None = None

    def listen(self) -> None:
        """Take the signals over. Only in the main thread."""
        self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.on_stop)
        signal.signal(signal.SIGHUP, self.on_reload)

    def close(self) -> None:
        """Give the pipe back; handlers stay, so that a late signal does not kill a daemon that is closing."""
        if self._pipe is not None:
            signal.set_wakeup_fd(-1)
            for descriptor in self._pipe:
                os.close(descriptor)
            self._pipe = None

    def sleep(self, at_most_s: float, *others: _HasFileno) -> bool:
        """Return after that many seconds, or at once when a signal has come since the last sleep.

        others: one of them that has something to read ends it too. Returns whether one has.
        """
        pipe = [self._pipe[0]] if self._pipe else []
        found = select.select([*pipe, *(other.fileno() for other in others)], [], [], at_most_s)[0]
        if pipe and pipe[0] in found:
            os.read(pipe[0], 4096)
        return any(one not in pipe for one in found)

    def on_stop(self, number: int, frame: FrameType | None) -> None:
        self.stop = True

    def on_reload(self, number: int, frame: FrameType | None) -> None:
        self.reload = True

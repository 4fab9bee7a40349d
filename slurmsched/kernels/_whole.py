"""Ctrl-C while numba compiles."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def whole() -> Iterator[None]:
    """The body is not cut short by Ctrl-C: KeyboardInterrupt comes at its end, a second one ends the process at once.

    For compilers: an exception between any two of their lines leaves a kernel half made, and one within a callback from
    LLVM is lost. Ctrl-C goes before an error of the body, which is then its context. Where somebody else listens to the
    signal, and in other threads, nothing is held back.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not (ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler):
        yield
        return
    came = list[int]()

    def note(number: int, frame: FrameType | None) -> None:
        if came:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        came.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if came:
            raise KeyboardInterrupt

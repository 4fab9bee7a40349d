"""Who plays the points of a sweep, and processes of this machine that do."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

from slurmsched.replay.traces import Trace

TERMINATED = 143  # the exit code of a shell's command that SIGTERM ended


@dataclass(frozen=True, slots=True)
class Workers:
    """executor: takes the replays. share: a trace as the executor's tasks are to be given it. attempts: how often a
    point is given out that is lost with a worker, or with the trace that only this worker held. fault: why nothing more
    is to be expected of them, "" while they are well. processes: how many of this machine they are, 0 = none.
    """

    executor: Executor
    share: Callable[[Trace], Any] = lambda trace: trace
    attempts: int = 1
    fault: Callable[[], str] = lambda: ""
    processes: int = 0


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def processes(count: int) -> Iterator[Workers]:
    """So many processes of this machine, a replay at a time each. When the body fails, or this process is killed, they
    end at once."""
    use_safe_path()
    context = multiprocessing.get_context("spawn")  # a fork would copy the locks of other threads as they are
    executor = ProcessPoolExecutor(count, context, initializer=begin)
    try:
        with orderly():
            yield Workers(executor, processes=count)
    except BaseException:
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)


def use_safe_path() -> None:
    """From now on Python processes that this one starts take no module from the working directory."""
    os.environ["PYTHONSAFEPATH"] = "1"


class Ending:
    """What SIGTERM does: end the body of `with orderly()` as an error does."""

    def __init__(self) -> None:
        self._held = self._came = False

    def __call__(self, *_: Any) -> None:
        self._came = True
        if not self._held:
            raise SystemExit(TERMINATED)

    @contextmanager
    def held(self) -> Iterator[None]:
        """SIGTERM waits for the end of the body: a process that is being started has all it needs then."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._came:
            raise SystemExit(TERMINATED)


@contextmanager
def orderly() -> Iterator[Ending]:
    """SIGTERM ends the body as an error does, and then this process with TERMINATED: else worker processes would go on,
    and multiprocessing's resource tracker would tell of leaked semaphores."""
    ending = Ending()
    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    before = signal.signal(signal.SIGTERM, ending)
    try:
        yield ending
    finally:
        signal.signal(signal.SIGTERM, before)


def begin() -> None:
    """In a worker: Ctrl-C is for its parent to act on, and it does not outlive its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)

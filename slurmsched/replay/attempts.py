"""A sweep that begins anew, with the points that are missing, when its workers are lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

from slurmsched.errors import SlurmschedError, WorkersLostError
from slurmsched.replay.sweep import Sweep
from slurmsched.replay.workers import Workers

ATTEMPTS = 5
PAUSE_S = 2.0  # doubled after each attempt in a row that played nothing

Opened = Callable[[], AbstractContextManager[Workers]]


def play_through(sweep: Sweep, opened: Opened, on_done: Callable[[], None], tell: Callable[[str], None]) -> None:
    """Play what is to do, with new workers whenever they are lost.

    opened: new workers. tell: given a line before each new attempt. Raises WorkersLostError after ATTEMPTS in a row
    that finished no point, and what `opened` and Sweep.run raise besides; what was done stays.
    """
    idle, begun = 0, False
    while sweep.todo:
        before = len(sweep.todo)
        try:
            _attempt(sweep, opened, on_done, begun=begun)
        except WorkersLostError as error:
            sweep.todo = dict(reversed(sweep.todo.items()))  # one that ends its process is to come last
            idle, begun = 0 if len(sweep.todo) < before else idle + 1, True
            _pause_or_raise(idle, len(sweep.todo), error, tell)


def _attempt(sweep: Sweep, opened: Opened, on_done: Callable[[], None], *, begun: bool) -> None:
    """begun: there were workers before, so that it is no mistake of the user's when there are none now."""
    with ExitStack() as stack:
        try:
            workers = stack.enter_context(opened())
        except SlurmschedError as error:
            if not begun:
                raise
            raise WorkersLostError(str(error)) from error
        sweep.run(workers, on_done)


def _pause_or_raise(idle: int, missing: int, error: WorkersLostError, tell: Callable[[str], None]) -> None:
    points = f"{missing} {'point is' if missing == 1 else 'points are'} missing"
    if idle >= ATTEMPTS:
        raise WorkersLostError(
            f"{error}; {points}, and {ATTEMPTS} attempts in a row played none; the same command plays what is missing"
        ) from error
    tell(f"workers lost: {error}; {points} and given out to new workers")
    time.sleep(PAUSE_S * 2**idle)

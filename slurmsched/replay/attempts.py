"""A sweep that begins anew, with the points that are missing, when its workers are lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial

from slurmsched.errors import SlurmschedError, WorkersLostError
from slurmsched.replay.sweep import Sweep
from slurmsched.replay.workers import Workers

ATTEMPTS = 5
PAUSE_S = 2.0  # doubled after each attempt in a row that played nothing

Opened = Callable[[int], AbstractContextManager[Workers]]


def play_through(sweep: Sweep, opened: Opened, on_done: Callable[[], None], tell: Callable[[str], None]) -> None:
    """Play what is to do, with new workers whenever they are lost.

    opened: new workers, given how many processes of this machine they may be, 0 = any number: half as many after one of
    them was ended from outside, as it may have been for memory.
    tell: given a line before each new attempt. Raises WorkersLostError after ATTEMPTS in a row that finished no point,
    and what `opened` and Sweep.run raise besides; what was done stays.
    """
    idle, begun, most = 0, False, 0
    while sweep.todo:
        before = len(sweep.todo)
        try:
            _attempt(sweep, partial(opened, most), on_done, begun=begun)
        except WorkersLostError as error:
            sweep.todo = dict(reversed(sweep.todo.items()))  # one that ends its process is to come last
            idle, begun = 0 if len(sweep.todo) < before else idle + 1, True
            most = max(1, error.processes // 2) if error.processes else most
            _pause_or_raise(idle, len(sweep.todo), error, tell, most)


def _attempt(
    sweep: Sweep, opened: Callable[[], AbstractContextManager[Workers]], on_done: Callable[[], None], *, begun: bool
) -> None:
    """begun: there were workers before, so that it is no mistake of the user's when there are none now."""
    with ExitStack() as stack:
        try:
            workers = stack.enter_context(opened())
        except SlurmschedError as error:
            if not begun:
                raise
            raise WorkersLostError(str(error)) from error
        sweep.run(workers, on_done)


def _pause_or_raise(idle: int, missing: int, error: WorkersLostError, tell: Callable[[str], None], most: int) -> None:
    points = f"{missing} {'point is' if missing == 1 else 'points are'} missing"
    if idle >= ATTEMPTS:
        raise WorkersLostError(
            f"{error}; {points}, and {ATTEMPTS} attempts in a row played none; the same command plays what is missing"
        ) from error
    to = f"{most} {'process' if most == 1 else 'processes'} at most" if most else "new workers"
    tell(f"workers lost: {error}; {points} and given out to {to}")
    time.sleep(PAUSE_S * 2**idle)

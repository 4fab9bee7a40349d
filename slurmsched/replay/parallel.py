"""Replays side by side in processes of their own, with progress, and with what there is when somebody stops them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from slurmsched.errors import SlurmschedError
from slurmsched.logs import configure
from slurmsched.replay.compare import Case, Played, play
from slurmsched.replay.traces import Trace
from slurmsched.replay.workers import begin, orderly, use_safe_path

LOOK_S = 0.2  # between two looks at the progress
_CONTEXT = get_context("spawn")  # a fork would copy the threads of whatever read the trace
OnProgress = Callable[[int], None]  # told how many jobs ended, of all cases together


@dataclass(frozen=True, slots=True)
class Desk:
    """What a process works with. ended: jobs that ended, by case, for the parent to read. stop: set to end early."""

    traces: Sequence[Trace]
    ended: Any
    stop: Any


_desk: list[Desk] = []  # of this process, if it is one of the workers


def play_all(traces: Sequence[Trace], cases: Sequence[Case], workers: int, on_progress: OnProgress) -> list[Played]:
    """What came of the cases, in their order. workers: processes at most; 1 plays here.

    After KeyboardInterrupt: of the cases that had begun, some of them cut short. Raises what a replay raises, and
    SlurmschedError if a process is ended from outside. SIGTERM ends the processes too, see orderly().
    """
    workers = min(workers, len(cases))
    if workers > 1:
        return _in_processes(traces, cases, workers, on_progress)
    made: list[Played] = []
    with contextlib.suppress(KeyboardInterrupt):
        for case in cases:
            before = sum(len(each.outcomes.job_id) for each in made)
            made.append(play(traces[case.trace], case, lambda ended, before=before: on_progress(before + ended)))  # type: ignore[misc]
            if not made[-1].complete:
                break
    return made


def _in_processes(traces: Sequence[Trace], cases: Sequence[Case], workers: int, tell: OnProgress) -> list[Played]:
    use_safe_path()
    desk = Desk(traces, _CONTEXT.RawArray("q", len(cases)), _CONTEXT.Event())
    futures: list[Future[Played | None]] = []
    with orderly() as ending, ProcessPoolExecutor(workers, _CONTEXT, _sit_down, (desk,)) as pool:
        try:
            for place, case in enumerate(cases):
                with ending.held():
                    futures.append(pool.submit(_work, place, case))
            _watch(futures, desk, tell)
        except KeyboardInterrupt:
            return _stopped(futures, desk)
        except BrokenProcessPool:
            raise SlurmschedError("a process was ended from outside; if memory is short, try --jobs 1") from None
        finally:
            desk.stop.set()
            pool.shutdown(cancel_futures=True)  # and wait: who has just begun still needs what the desk shares
        return [made for future in futures if (made := future.result()) is not None]


def _watch(futures: Sequence[Future[Played | None]], desk: Desk, tell: OnProgress) -> None:
    """Until all are done. Raises the first error."""
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, LOOK_S, FIRST_COMPLETED)
        for future in done:
            future.result()
        tell(sum(desk.ended))


def _stopped(futures: Sequence[Future[Played | None]], desk: Desk) -> list[Played]:
    """What there is of the cases that had begun."""
    desk.stop.set()
    made = []
    for future in futures:
        with contextlib.suppress(BrokenProcessPool):
            if not future.cancel() and (played := future.result()) is not None:
                made.append(played)
    return made


def _sit_down(desk: Desk) -> None:
    begin()
    configure("warning")
    _desk[:] = [desk]


def _work(place: int, case: Case) -> Played | None:
    """Play a case in this process; None if the end came before it began."""
    desk = _desk[0]

    def tell(ended: int) -> None:
        desk.ended[place] = ended
        if desk.stop.is_set():
            raise KeyboardInterrupt

    return None if desk.stop.is_set() else play(desk.traces[case.trace], case, tell)

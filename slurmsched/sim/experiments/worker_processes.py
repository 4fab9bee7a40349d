"""Worker processes on this machine, for sweeps and comparisons."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection, get_context
from typing import Any

from slurmsched.errors import SlurmschedError
from slurmsched.logs import configure
from slurmsched.model.trace import Trace
from slurmsched.sim.experiments.comparison import ComparisonCase, PlayedCase, play_case

TERMINATED = 143  # the exit code of a shell's command that SIGTERM ended


@dataclass(frozen=True, slots=True)
class SweepWorkers:
    """The processes that replay the points of a sweep.

    executor: takes the replays.
    share: a trace as the executor's tasks are to be given it.
    attempts: how often a point is given out that is lost with a worker, or with the trace that only this worker held.
    fault: why nothing more is to be expected of them, "" while they are well.
    processes: how many of this machine they are, 0 = none.
    """

    executor: Executor
    share: Callable[[Trace], Any] = lambda trace: trace
    attempts: int = 1
    fault: Callable[[], str] = lambda: ""
    processes: int = 0


def usable_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def local_processes(count: int) -> Iterator[SweepWorkers]:
    """That many processes of this machine, each with one replay. When the body fails, or this process is killed, they
    end at once."""
    use_safe_path()
    context = multiprocessing.get_context("spawn")  # a fork would copy the locks of other threads as they are
    executor = ProcessPoolExecutor(count, context, initializer=begin)
    try:
        with in_order():
            yield SweepWorkers(executor, processes=count)
    except BaseException:
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)


def use_safe_path() -> None:
    """From now on Python processes that this one starts take no module from the working directory."""
    os.environ["PYTHONSAFEPATH"] = "1"


class SignalledEnd:
    """What SIGTERM does: end the body of `with orderly()` as an error does."""

    def __init__(self) -> None:
        self._held = self._came = False

    def __call__(self, *_: Any) -> None:
        self._came = True
        if not self._held:
            raise SystemExit(TERMINATED)

    @contextmanager
    def held(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C wait for the end of the body: a process that is being started has all it needs then."""
        here, pressed = threading.current_thread() is threading.main_thread(), list[int]()
        before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number)) if here else None
        self._held = True
        try:
            yield
        finally:
            self._held = False
            if here:
                signal.signal(signal.SIGINT, before)
        if self._came:
            raise SystemExit(TERMINATED)
        if pressed:
            raise KeyboardInterrupt


@contextmanager
def in_order() -> Iterator[SignalledEnd]:
    """SIGTERM ends the body as an error does, and then this process with TERMINATED: else worker processes would go on,
    and multiprocessing's resource tracker would tell of leaked semaphores."""
    ending = SignalledEnd()
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


# Replays of a comparison.

LOOK_S = 0.2  # between two looks at the progress
_CONTEXT = get_context("spawn")  # a fork would copy the threads of whatever read the trace
OnProgress = Callable[[int], None]  # called with the number of jobs that ended in all cases


@dataclass(frozen=True, slots=True)
class WorkerChannel:
    """What a process works with. ended: jobs that ended, by case, for the parent to read. stop: set to end early."""

    traces: Sequence[Trace]
    ended: Any
    stop: Any


_desk: list[WorkerChannel] = []  # of this process, if it is one of the workers


def play_cases(
    traces: Sequence[Trace], cases: Sequence[ComparisonCase], workers: int, on_progress: OnProgress
) -> list[PlayedCase]:
    """What came of the cases, in their order. workers: processes at most; 1 plays here.

    After KeyboardInterrupt: of the cases that had begun, some of them cut short. Raises what a replay raises, and
    SlurmschedError if a process is ended from outside. SIGTERM ends the processes too, see orderly().
    """
    workers = min(workers, len(cases))
    if workers > 1:
        return _in_processes(traces, cases, workers, on_progress)
    made: list[PlayedCase] = []
    with contextlib.suppress(KeyboardInterrupt):
        for case in cases:
            before = sum(len(each.outcomes.job_id) for each in made)
            made.append(play_case(traces[case.trace], case, lambda ended, before=before: on_progress(before + ended)))  # type: ignore[misc]
            if not made[-1].complete:
                break
    return made


def _in_processes(
    traces: Sequence[Trace], cases: Sequence[ComparisonCase], workers: int, tell: OnProgress
) -> list[PlayedCase]:
    use_safe_path()
    desk = WorkerChannel(traces, _CONTEXT.RawArray("q", len(cases)), _CONTEXT.Event())
    futures: list[Future[PlayedCase | None]] = []
    with in_order() as ending, ProcessPoolExecutor(workers, _CONTEXT, _set_up_worker, (desk,)) as pool:
        try:
            for place, case in enumerate(cases):
                with ending.held():
                    futures.append(pool.submit(_play_in_worker, place, case))
            _watch(futures, desk, tell)
        except KeyboardInterrupt:
            return _stopped(futures, desk)
        except BrokenProcessPool:
            raise SlurmschedError("a process was ended from outside; if memory is short, try --workers 1") from None
        finally:
            desk.stop.set()
            pool.shutdown(cancel_futures=True)  # and wait: who has just begun still needs what the desk shares
        return [made for future in futures if (made := future.result()) is not None]


def _watch(futures: Sequence[Future[PlayedCase | None]], desk: WorkerChannel, tell: OnProgress) -> None:
    """Until all are done. Raises the first error."""
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, LOOK_S, FIRST_COMPLETED)
        for future in done:
            future.result()
        tell(sum(desk.ended))


def _stopped(futures: Sequence[Future[PlayedCase | None]], desk: WorkerChannel) -> list[PlayedCase]:
    """What there is of the cases that had begun."""
    desk.stop.set()
    made = []
    for future in futures:
        with contextlib.suppress(BrokenProcessPool):
            if not future.cancel() and (played := future.result()) is not None:
                made.append(played)
    return made


def _set_up_worker(desk: WorkerChannel) -> None:
    begin()
    configure("warning")
    _desk[:] = [desk]


def _play_in_worker(place: int, case: ComparisonCase) -> PlayedCase | None:
    """Play a case in this process; None if the end came before it began."""
    desk = _desk[0]

    def tell(ended: int) -> None:
        desk.ended[place] = ended
        if desk.stop.is_set():
            raise KeyboardInterrupt

    return None if desk.stop.is_set() else play_case(desk.traces[case.trace], case, tell)

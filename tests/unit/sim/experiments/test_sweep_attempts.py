"""A sweep whose workers are lost goes on with others, and says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from slurmsched.errors import InputError, WorkersLostError
from slurmsched.model.trace import Trace
from slurmsched.sim.experiments import parameter_sweep
from slurmsched.sim.experiments.parameter_grid import grid_points
from slurmsched.sim.experiments.parameter_sweep import ATTEMPTS, ParameterSweep, open_results, play_despite_losses
from slurmsched.sim.experiments.worker_processes import SweepWorkers

SIX = Trace.of([1, 2, 3, 4, 5, 6], [2, 4, 1, 2, 1, 3], [0, 1, 2, 3, 4, 5], [6, 4, 3, 5, 9, 2])
WORDS = ["policy=fifo", "policy=srtf", "cluster=1x4", "cluster=2x4"]
POINTS = 4


class Breaking(Executor):
    """Plays so many points; of the others nothing is heard, or what `end` makes of their futures."""

    def __init__(self, good: int, end: Callable[[Future[Any]], Any] = lambda _: None) -> None:
        self.good, self.end, self.calls = good, end, 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls += 1
        future: Future[Any] = Future()
        if self.calls <= self.good:
            future.set_result(fn(*args))
        else:
            self.end(future)
        return future


def broken_pool(future: Future[Any]) -> None:
    future.set_exception(BrokenProcessPool("terminated abruptly"))


def taken_back(future: Future[Any]) -> None:
    future.cancel()
    future.set_running_or_notify_cancel()


class Opening:
    """Gives workers in turn; the last of them again and again. open: of how many there are now. most: processes that
    it was allowed each time."""

    def __init__(self, *found: SweepWorkers | Exception) -> None:
        self.found, self.times, self.open, self.most = found, 0, 0, list[int]()

    @contextmanager
    def __call__(self, most: int) -> Iterator[SweepWorkers]:
        self.most.append(most)
        now = self.found[min(self.times, len(self.found) - 1)]
        self.times += 1
        if isinstance(now, Exception):
            raise now
        self.open += 1
        try:
            yield now
        finally:
            self.open -= 1


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses."""
    monkeypatch.setattr(parameter_sweep, "PAUSE_S", 0.0)
    monkeypatch.setattr(parameter_sweep, "LOOK_S", 0.01)


def played(path: Path, opening: Opening) -> tuple[ParameterSweep, list[str], int]:
    """The sweep, what it told, and how many points it counted."""
    told: list[str] = []
    done: list[int] = []
    with open_results(path) as results:
        made = ParameterSweep(grid_points({}, WORDS, ["six"]), {"six": SIX}, results)
        play_despite_losses(made, opening, lambda: done.append(1), told.append)
    return made, told, len(done)


def lost(good: int) -> SweepWorkers:
    """Of which nothing is heard after so many points."""
    return SweepWorkers(Breaking(good), fault=lambda: "the line is dead")


@pytest.mark.parametrize("end", [broken_pool, taken_back])
def test_play_through__gives_out_what_is_missing(tmp_path: Path, end: Callable[[Future[Any]], Any]) -> None:
    """To new workers: each point is on file once, and counted once."""
    opening = Opening(SweepWorkers(Breaking(1, end)), SweepWorkers(Breaking(9)))
    made, told, done = played(tmp_path / "r", opening)
    assert (len(made.rows), made.failures, done, opening.open) == (POINTS, [], POINTS, 0)
    assert (tmp_path / "r").read_text().count("\n") == POINTS
    assert len(told) == 1 and "3 points are missing" in told[0]


def test_play_through__takes_half_as_many_processes_after_one_was_ended(tmp_path: Path) -> None:
    """Five, two, one, and never none: also in attempts that played a point. Other losses take none away."""
    broken = [SweepWorkers(Breaking(1, broken_pool), processes=count) for count in (5, 2, 1)]
    opening = Opening(*broken, SweepWorkers(Breaking(9)))
    made, told, _ = played(tmp_path / "r", opening)
    assert (len(made.rows), opening.most) == (POINTS, [0, 2, 1, 1])
    assert [line.split(" to ")[-1] for line in told] == [
        "2 processes at most",
        "1 process at most",
        "1 process at most",
    ]
    opening = Opening(lost(1), SweepWorkers(Breaking(9)))
    played(tmp_path / "s", opening)
    assert opening.most == [0, 0]


@pytest.mark.parametrize("fast", [False, True])
def test_play_through__one_point_that_ends_its_process_keeps_no_other_from_being_played(
    fast: bool, tmp_path: Path
) -> None:
    """The first of the grid, again and again: the others are on file when the sweep gives up. fast: the pool is broken
    before the next point is given out."""

    class Killed(Breaking):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            self.good = self.good if self.calls < self.good and args[1].cluster + args[1].policy != "1x4fifo" else 0
            if fast and self.calls > self.good:
                raise BrokenProcessPool("terminated abruptly")
            return super().submit(fn, *args, **kwargs)

    opening = Opening(*(SweepWorkers(Killed(9, broken_pool)) for _ in range(2 + ATTEMPTS)))
    with pytest.raises(WorkersLostError, match="1 point is missing"):
        played(tmp_path / "r", opening)
    assert (tmp_path / "r").read_text().count("\n") == POINTS - 1


def test_play_through__does_not_wait_for_silent_workers(tmp_path: Path) -> None:
    """The watch's word ends it, and is told; points that had finished are kept."""
    made, told, done = played(tmp_path / "r", Opening(lost(3), SweepWorkers(Breaking(9))))
    assert (len(made.rows), done) == (POINTS, POINTS)
    assert told == ["workers lost: the line is dead; 1 point is missing and given out to new workers"]


def test_play_through__gives_up_after_attempts_that_played_none(tmp_path: Path) -> None:
    """One that played a point begins the count anew; the error says how to go on, and the file has what was done."""
    opening = Opening(lost(0), lost(1), lost(0))
    with pytest.raises(WorkersLostError, match=r"the line is dead; 3 points are missing.*the same command replays"):
        played(tmp_path / "r", opening)
    assert (opening.times, opening.open) == (2 + ATTEMPTS, 0)
    assert len(played(tmp_path / "r", Opening(SweepWorkers(Breaking(9))))[0].rows) == POINTS


def test_play_through__a_first_error_of_opening_is_the_users(tmp_path: Path) -> None:
    """A wrong address is not tried again; an address that answered before is."""
    wrong = Opening(InputError("no scheduler answers"))
    with pytest.raises(InputError):
        played(tmp_path / "r", wrong)
    assert wrong.times == 1
    made, told, _ = played(
        tmp_path / "r", Opening(lost(1), InputError("no scheduler answers"), SweepWorkers(Breaking(9)))
    )
    assert (len(made.rows), [line.split(";")[0] for line in told]) == (
        POINTS, ["workers lost: the line is dead", "workers lost: no scheduler answers"],
    )  # fmt: skip


def test_play_through__an_error_while_giving_out_is_a_loss(tmp_path: Path) -> None:
    """Sharing a trace, or submitting, over a connection that breaks at that moment."""

    def refuse(_: Trace) -> Any:
        raise OSError("broken pipe")

    made, told, _ = played(tmp_path / "r", Opening(SweepWorkers(Breaking(9), refuse), SweepWorkers(Breaking(9))))
    assert (len(made.rows), "OSError: broken pipe" in told[0]) == (POINTS, True)


def test_play_through__does_not_try_a_full_disk_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after workers were lost: it is no fault of theirs."""
    opening = Opening(lost(0), SweepWorkers(Breaking(9)))

    def full(*_: Any) -> None:
        raise InputError("cannot be written: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("slurmsched.sim.experiments.parameter_sweep.SweepResults.add", full)
        with pytest.raises(InputError, match="No space left"):
            played(tmp_path / "r", opening)
    assert (opening.times, opening.open) == (2, 0)


def test_play_through__opens_nothing_when_all_is_done(tmp_path: Path) -> None:
    """No Slurm job is submitted for it."""
    played(tmp_path / "r", Opening(SweepWorkers(Breaking(9))))
    opening = Opening(SweepWorkers(Breaking(9)))
    played(tmp_path / "r", opening)
    assert opening.times == 0


def test_play_through__lets_ctrl_c_through(tmp_path: Path) -> None:
    """With the workers closed."""

    def stop() -> str:
        raise KeyboardInterrupt

    opening = Opening(SweepWorkers(Breaking(0), fault=stop))
    with pytest.raises(KeyboardInterrupt):
        played(tmp_path / "r", opening)
    assert (opening.times, opening.open) == (1, 0)

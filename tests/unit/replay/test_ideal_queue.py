"""Who takes GPUs that come back before the next plan."""

from __future__ import annotations

import numpy as np

from slurmsched.replay.ideal_queue import ASK, NOBODY, queue_of

ROWS, NONE = np.array([7, 8, 9]), np.zeros(0, np.int64)


def test_in_turn__the_first_holds_back_the_rest() -> None:
    """With 2 GPUs free a first job of 4 waits, and one of 1 behind it too; with 4 it goes, and who came is last."""
    queue = queue_of(ROWS[:2], np.array([4, 1]), NONE)
    queue.append(3, 1)
    assert queue.next(2) == NOBODY
    assert [queue.next(4), queue.next(1), queue.next(1), queue.next(9)] == [7, 8, 3, NOBODY]


def test_whoever__the_first_whose_need_is_met_goes() -> None:
    """With 2 free the second goes, and what is left does not do for the third."""
    queue = queue_of(ROWS, np.array([4, 2, 1]), np.array([4, 2, 1]))
    assert [queue.next(2), queue.next(0)] == [8, NOBODY]


def test_whoever__asks_where_jobs_after_it_hold_gpus() -> None:
    """A job of 4 before holders of 3 needs 1: whose GPUs it takes is for a plan to say, even if 4 are free."""
    queue = queue_of(ROWS[:1], np.array([4]), np.array([1]))
    assert [queue.next(0), queue.next(1), queue.next(4)] == [NOBODY, ASK, ASK]


def test_whoever__one_that_starts_stands_behind_those_before_it() -> None:
    """The second took 2, which the first could take from it: of its 4 another 2 must be free."""
    queue = queue_of(ROWS[:2], np.array([4, 2]), np.array([4, 2]))
    assert [queue.next(2), queue.next(1), queue.next(2)] == [8, NOBODY, ASK]


def test_whoever__yields_gpus_that_nobody_has_a_use_for() -> None:
    """With 2 free, jobs that need 4 and 3 let others have 1; those may stand behind both, so that 3 and 2 will do."""
    queue = queue_of(ROWS[:2], np.array([4, 3]), np.array([4, 3]))
    assert [queue.yields(3, 1), queue.yields(2, 1)] == [False, True]
    assert [queue.next(1), queue.next(2)] == [NOBODY, ASK]


def test_in_turn__yields_nothing() -> None:
    """Who comes goes behind the first, however much is free."""
    assert not queue_of(ROWS[:1], np.array([4]), NONE).yields(3, 1)

"""Who takes GPUs that come back before the next plan."""

from __future__ import annotations

import numpy as np

from slurmsched.sim.ideal.ideal_plan import ASK, NOBODY, StandingQueue, Validity, queue_left

SEEN = np.array([7, 8, 9])  # rows of the cluster that the plan saw


def queue(asked: list[int], needs: list[int]) -> StandingQueue:
    """The queue of as many of these rows. needs: none, and each waits for all before it."""
    gpus = np.zeros(10, np.int64)
    gpus[SEEN[: len(asked)]] = asked
    rows = np.arange(len(asked))
    standing = queue_left(Validity(min(needs, default=0), queue=rows, needs=np.array(needs, np.int64)), SEEN, gpus)
    assert standing is not None
    return standing


def test_in_turn__the_first_holds_back_the_rest() -> None:
    """With 2 GPUs free a first job of 4 waits, and one of 1 behind it too; with 4 it goes, and who came is last."""
    standing = queue([4, 1], [])
    standing.append(3, 1)
    assert standing.next(2) == NOBODY
    assert [standing.next(4), standing.next(1), standing.next(1), standing.next(9)] == [7, 8, 3, NOBODY]


def test_whoever__the_first_whose_need_is_met_goes() -> None:
    """With 2 free the second goes, and what is standing does not do for the third."""
    standing = queue([4, 2, 1], [4, 2, 1])
    assert [standing.next(2), standing.next(0)] == [8, NOBODY]


def test_whoever__asks_where_jobs_after_it_hold_gpus() -> None:
    """A job of 4 before holders of 3 needs 1: whose GPUs it takes is for a plan to say, even if 4 are free."""
    standing = queue([4], [1])
    assert [standing.next(0), standing.next(1), standing.next(4)] == [NOBODY, ASK, ASK]


def test_whoever__one_that_starts_stands_behind_those_before_it() -> None:
    """The second took 2, which the first could take from it: of its 4 another 2 must be free."""
    standing = queue([4, 2], [4, 2])
    assert [standing.next(2), standing.next(1), standing.next(2)] == [8, NOBODY, ASK]


def test_whoever__yields_gpus_that_nobody_has_a_use_for() -> None:
    """With 2 free, jobs that need 4 and 3 let others have 1; those may stand behind both, so that 3 and 2 will do."""
    standing = queue([4, 3], [4, 3])
    assert [standing.yields(3, 1), standing.yields(2, 1)] == [False, True]
    assert [standing.next(1), standing.next(2)] == [NOBODY, ASK]


def test_in_turn__yields_nothing() -> None:
    """Who comes goes behind the first, however much is free."""
    assert not queue([4], []).yields(3, 1)

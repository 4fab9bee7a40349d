"""The machine's clock is set while preemptions are under way: Slurm, its jobs and slurmsched all see another time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.live.clock import settable
from tests.live.lab import Installed, column, submit
from tests.live.operations import clean, four_running, grace_s, restarts, signalled, switched_on, ticks

pytestmark = [pytest.mark.live, pytest.mark.newest]

LONG = "slurmsched: preempt=yes ckpt=USR2@8"
AHEAD_S, BACK_S = 900, 20


@pytest.fixture
def set_to(site: Installed) -> Iterator[Callable[[int], None]]:
    """Sets everybody's clock. The shortest job first, preemption on."""
    switched_on(site)
    site.configure(policy='{ name = "srsf" }')
    site.cold = True  # a process that was there before the clock could be set would not see it
    with settable() as move:
        yield move


def test_clock__of_everybody_is_set_in_the_grace(site, set_to):
    """Ahead by a quarter of an hour, and in the grace of the next operation back by twenty seconds, in which Slurm
    itself starts nothing: each victim has its eight seconds, is asked once and moved once, and nothing is left."""
    jobs = four_running(LONG)
    for done, (user, off_s) in enumerate([("bob", AHEAD_S), ("carol", AHEAD_S - BACK_S)]):
        urgent = submit(user, 8, "--time=30")
        ticks(site, lambda before=done: len(signalled()) > before, "a victim is warned")
        set_to(off_s)
        ticks(site, lambda job=urgent: job in column("%A", "RUNNING"), "the urgent job runs", limit_s=240)
        ticks(site, clean, "nothing is left")
        assert grace_s(site, signalled()[-1]) > 7.9  # of eight
        assert sorted(restarts(job) for job in jobs) == sorted([1] * (done + 1) + [0] * (3 - done))
    assert len(set(signalled())) == len(signalled()) == 2

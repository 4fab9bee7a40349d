"""The pace: never faster than configured, slower when Slurm is slow, not at all when it is busy."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmsched import config
from slurmsched.slurm.site import SdiagLoad
from slurmsched.slurm.writer import MOST_SLOW, RECOVER_S, WritePacer


@dataclass
class Clock:
    """Time that passes only in sleep, or by hand."""

    now_s: float = 0.0
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


def pace(clock: Clock, load: SdiagLoad | None = None, **limits: float) -> WritePacer:
    return WritePacer(config.PaceConfig(**limits), lambda: load or SdiagLoad(), clock=clock, sleep=clock.sleep)


@given(rate=st.floats(0.1, 1000), writes=st.integers(1, 300))
def test_wait__never_more_than_a_burst_and_the_rate(rate, writes):
    """At most one second's worth (at least one write) at once, then the rate; and no slower than that."""
    clock = Clock()
    it = pace(clock, writes_per_s=rate)
    for _ in range(writes):
        it.wait()
    due_s = max(0.0, (writes - max(rate, 1.0)) / rate)
    assert clock.now_s == pytest.approx(due_s, rel=1e-6, abs=1e-6)


def test_answered__slow_answer_halves_the_pace_for_a_while():
    """Slurm's client waits a second for the rate limiter: half the pace then, doubled again after quiet minutes."""
    clock = Clock()
    it = pace(clock, writes_per_s=40)
    for expected in (20.0, 10.0):
        it.wait()
        clock.now_s += 1.01
        it.answered()
        assert it.rate_per_s == expected
    clock.now_s += RECOVER_S
    it.wait()
    assert it.rate_per_s == 20.0
    clock.now_s += 5 * RECOVER_S
    it.wait()
    assert it.rate_per_s == 40.0


def test_answered__quick_answers_change_nothing():
    """Only answers of a second or more count as slow."""
    clock = Clock()
    it = pace(clock, writes_per_s=40)
    it.wait()
    clock.now_s += 0.9
    it.answered()
    assert (it.rate_per_s, it.throttled) == (40.0, "")


def test_answered__never_below_one_a_second():
    """However slow Slurm is; a slower configured pace stays."""
    clock = Clock()
    for rate, expected in ((3.0, 1.0), (0.5, 0.5)):
        it = pace(clock, writes_per_s=rate)
        for _ in range(6):
            it.wait()
            clock.now_s += 2.0
            it.answered()
        assert it.rate_per_s == expected


def test_throttled__after_several_slow_answers_until_the_next_apply():
    """The rest of this apply is left; the next one tries again."""
    clock = Clock()
    it = pace(clock)
    for _ in range(MOST_SLOW):
        assert it.throttled == ""
        it.wait()
        clock.now_s += 1.01
        it.answered()
    assert "rl_refill_rate" in it.throttled
    it.begin()
    assert it.throttled == ""


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (SdiagLoad(threads=50, dbd_queue=5000), ""),
        (SdiagLoad(threads=51), "slurmctld is busy: 51 server threads, more than 50 (pace.busy_threads)"),
        (
            SdiagLoad(dbd_queue=5001),
            "slurmctld is busy: 5001 messages to slurmdbd, more than 5000 (pace.busy_dbd_queue)",
        ),
    ],
)
def test_busy__above_the_configured_load(load, words):
    """Says what was found, the limit and its key."""
    assert pace(Clock(), load).busy() == words

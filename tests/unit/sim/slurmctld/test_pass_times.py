"""When the passes of a simulated slurmctld come."""

from __future__ import annotations

import pytest

from slurmsched.sim.event_loop import EventHeap
from slurmsched.sim.slurmctld.scheduler_passes import PassTimes
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings


def backfill_after(changes: list[tuple[float, bool]], asked_s: float, *, clock: bool) -> float:
    """The next backfill pass after one at 0. changes: when something changed, and whether jobs waited then."""
    events = EventHeap()
    times = PassTimes(SlurmctldSettings(bf_clock=clock), events)
    times.ask_backfill(0.0)
    assert times.begins(events.pop())
    for change in changes:
        times.changed(*change)
    times.ask_backfill(asked_s)
    return events.next_s


@pytest.mark.parametrize(
    ("changes", "asked_s", "next_s"),
    [
        ([(0.0, True)], 70.0, 90.0),
        ([(0.0, True)], 20.0, 30.0),
        ([(0.0, True), (70.0, True)], 95.0, 120.0),
        ([(0.0, True), (40.0, False)], 55.0, 60.0),
        ([(0.0, True), (40.0, False)], 80.0, 90.0),
        ([(0.0, True), (40.0, False)], 200.0, 200.0),
    ],
)
def test_backfill__keeps_its_own_clock_while_jobs_wait(
    changes: list[tuple[float, bool]], asked_s: float, next_s: float
) -> None:
    """Every 30 s though nothing changes; without a waiting job once after the last change, and then at the next."""
    assert backfill_after(changes, asked_s, clock=True) == next_s


def test_backfill__without_its_clock_looks_at_once() -> None:
    """Where no site's settings are given."""
    assert backfill_after([(0.0, True)], 70.0, clock=False) == 70
    assert SlurmctldSettings.from_settings({}).bf_clock and not SlurmctldSettings().bf_clock

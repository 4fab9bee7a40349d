"""When slurmctld's schedulers look at the queue."""

from __future__ import annotations

import math

from slurmsched.replay.engine import EventHeap, Kind
from slurmsched.replay.pass_times import PassTimes, ToldPasses
from slurmsched.replay.slurm_model import SlurmModel


def test_pass_times__the_earliest_that_is_asked_for_is_due() -> None:
    """A later wish changes nothing; an earlier one makes the later event void; after it a pass is asked for anew."""
    events = EventHeap()
    times = PassTimes(SlurmModel(backfill="none"), events)
    for at_s in (60.0, 90.0, 12.0):
        times.push(Kind.SCHEDULE, at_s)
    assert [times.begins(events.pop()) for _ in range(2)] == [True, False]
    assert events.next_s == math.inf
    times.push(Kind.SCHEDULE, 90.0)
    assert times.begins(events.pop())


def test_pass_times__keep_the_pace_of_slurm() -> None:
    """Main passes at least batch_sched_delay apart (3 s), backfill passes bf_interval (30 s), both at whole seconds."""
    events = EventHeap()
    times = PassTimes(SlurmModel(), events)
    begun = []
    for now_s in (0.0, 0.5, 4.2, 31.0):
        times.ask(now_s)
        while events.next_s <= now_s + 30:
            event = events.pop()
            begun += [(event.kind, event.time_s)] if times.begins(event) else []
    assert begun == [
        (Kind.SCHEDULE, 0.0), (Kind.BACKFILL, 0.0), (Kind.SCHEDULE, 3.0), (Kind.BACKFILL, 30.0),
        (Kind.SCHEDULE, 6.0), (Kind.SCHEDULE, 31.0), (Kind.BACKFILL, 60.0),
    ]  # fmt: skip


def test_told_passes__are_those_of_the_log_and_then_the_models_own() -> None:
    """Nothing asked for before the last one told makes a pass; after it the model goes on by itself."""
    events = EventHeap()
    times = ToldPasses(
        SlurmModel(), events, [(1.2, Kind.SCHEDULE, False), (7.5, Kind.SCHEDULE, True), (9.1, Kind.BACKFILL, False)]
    )
    begun = []
    for now_s in (0.0, 8.0, 12.0):
        times.ask(now_s)
        while events.next_s <= now_s + 5:
            event = events.pop()
            begun += [(event.time_s, times.is_full(event.time_s))] if times.begins(event) else []
    assert begun == [(1.2, False), (7.5, True), (9.1, False), (12.0, False)]


def test_told_passes__may_be_none_of_a_scheduler() -> None:
    """Where only counts or looks at running jobs are told, the passes are the model's own; no look is asked for before
    the last one told, and after it at the next whole 30 s."""
    events = EventHeap()
    times = ToldPasses(SlurmModel(), events, [(0.0, Kind.USAGE, False), (7.0, Kind.CHECK, False)])
    for now_s in (5.0, 31.0, 40.0):
        times.ask_check(now_s)
    times.ask_full(0.0)
    looks = [(event.kind, event.time_s) for event in (events.pop() for _ in range(4))]
    assert looks == [(Kind.USAGE, 0.0), (Kind.SCHEDULE, 0.0), (Kind.CHECK, 7.0), (Kind.CHECK, 60.0)]

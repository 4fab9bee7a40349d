"""The event heap and the replay loop."""

from __future__ import annotations

import pytest

from slurmsched.model import Operation, Plan, Purpose, Snapshot
from slurmsched.model.trace import Trace
from slurmsched.sim.event_loop import EventHeap, EventKind, replay
from slurmsched.sim.replay_stores import MemoryStore
from slurmsched.sim.slurmctld.simulated_slurmctld import SimulatedSlurmctld
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings


class Watcher:
    """A planner that does nothing but note when it is asked."""

    def __init__(self) -> None:
        self.asked_s: list[float] = []

    def plan(self, snapshot: Snapshot) -> Plan:
        self.asked_s.append(snapshot.now_s)
        return Plan()


def test_heap__orders_by_time_kind_sequence() -> None:
    """At one time GPUs come back before jobs come, and jobs before scheduling; else as pushed."""
    heap = EventHeap()
    for time_s, kind, row in (
        (2, EventKind.SUBMIT, 0),
        (2, EventKind.END, 1),
        (1, EventKind.SCHEDULE, 2),
        (2, EventKind.SUBMIT, 3),
    ):
        heap.push(time_s, kind, row)
    assert [heap.pop().row for _ in range(4)] == [2, 1, 0, 3]


def test_replay__leaves_out_cycles_that_can_see_nothing_new() -> None:
    """Job 1 runs from 0 to 600 alone: no tick between. Job 2 waits from 700 to 750 behind job 3: each tick counts."""
    columns = {"job_id": [1, 3, 2], "gpus": [1, 1, 1], "submit_s": [0, 690, 700], "duration_s": [600, 60, 60]}
    cluster, watcher = SimulatedSlurmctld(Trace.of(**columns), [1], SlurmctldSettings()), Watcher()
    cycles = replay(cluster, watcher, MemoryStore(), interval_s=20)
    assert watcher.asked_s == [20, 600, 700, 720, 740, 760, 820]
    assert cycles == 7


def test_replay__jumps_over_cycles_while_the_plan_stands() -> None:
    """Job 2 waits for job 1 until 600 s. A plan made from 60 s on stands until 490 s: 21 ticks are only counted."""
    columns = {"job_id": [1, 2], "gpus": [1, 1], "submit_s": [0, 0], "duration_s": [600, 60]}
    made = []
    for stands_until in (None, lambda snapshot, _: 490.0 if snapshot.now_s >= 60 else 0.0):
        cluster, watcher = SimulatedSlurmctld(Trace.of(**columns), [1], SlurmctldSettings()), Watcher()
        cycles = replay(cluster, watcher, MemoryStore(), interval_s=20, stands_until=stands_until)
        made.append((cycles, cluster.job.end_s.tolist(), watcher.asked_s))
    assert made[0][:2] == made[1][:2]
    assert [time_s for time_s in made[0][2] if not 60 < time_s < 500] == made[1][2]


def test_replay__looks_sooner_where_an_operation_asks_for_it() -> None:
    """After 7 s, at least a second apart, and at the usual times too; without open operations only then."""

    class Asking(Watcher):
        def plan(self, snapshot: Snapshot) -> Plan:
            super().plan(snapshot)
            operation = Operation("1-0", Purpose.RESERVE, 1, 0.0, "trace", "node1", 60.0, 0.0)
            wake_s = {20.0: 27.0, 27.0: 27.5}.get(snapshot.now_s, float("inf"))
            return Plan(operations=(operation,), next_look_s=wake_s) if wake_s < 30 else Plan(next_look_s=29.0)

    columns = {"job_id": [1, 2], "gpus": [1, 1], "submit_s": [0, 0], "duration_s": [65, 5]}
    watcher = Asking()
    replay(SimulatedSlurmctld(Trace.of(**columns), [1], SlurmctldSettings()), watcher, MemoryStore(), interval_s=20)
    assert watcher.asked_s == [20, 27, 28, 40, 60, 80]


def test_replay__says_when_a_model_stands_still() -> None:
    """A cluster that neither ends nor has events would loop for ever."""

    class Stuck(SimulatedSlurmctld):
        @property
        def next_event_s(self) -> float:
            return float("inf")

        @property
        def waiting(self) -> int:
            return 0

    stuck = Stuck(Trace.of([1], [1], [0], [5]), [1])
    with pytest.raises(RuntimeError, match="cannot go on after"):
        replay(stuck)

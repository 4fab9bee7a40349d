"""The event heap and the replay loop."""

from __future__ import annotations

import pytest

from slurmsched.model import Act, Plan, Purpose, Snapshot, Wake
from slurmsched.replay.embedded import EmbeddedCluster
from slurmsched.replay.engine import EventHeap, Kind, replay
from slurmsched.replay.memory_store import MemoryStore
from slurmsched.replay.slurm_model import SlurmModel
from slurmsched.replay.traces import Trace


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
    for time_s, kind, row in ((2, Kind.SUBMIT, 0), (2, Kind.END, 1), (1, Kind.SCHEDULE, 2), (2, Kind.SUBMIT, 3)):
        heap.push(time_s, kind, row)
    assert [heap.pop().row for _ in range(4)] == [2, 1, 0, 3]


def test_replay__leaves_out_cycles_that_can_see_nothing_new() -> None:
    """Job 1 runs from 0 to 600 alone: no tick between. Job 2 waits from 700 to 750 behind job 3: each tick counts."""
    columns = {"job_id": [1, 3, 2], "gpus": [1, 1, 1], "submit_s": [0, 690, 700], "duration_s": [600, 60, 60]}
    cluster, watcher = EmbeddedCluster(Trace.of(**columns), [1], SlurmModel()), Watcher()
    cycles = replay(cluster, watcher, MemoryStore(), interval_s=20)
    assert watcher.asked_s == [20, 600, 700, 720, 740, 760, 820]
    assert cycles == 7


def test_replay__looks_sooner_where_an_act_asks_for_it() -> None:
    """After 7 s, at least a second apart, and at the usual times too; without open acts only then."""

    class Asking(Watcher):
        def plan(self, snapshot: Snapshot) -> Plan:
            super().plan(snapshot)
            act = Act("1-0", Purpose.PROMISE, 1, 0.0, "trace", "node1", 60.0, 0.0)
            wake_s = {20.0: 27.0, 27.0: 27.5}.get(snapshot.now_s, float("inf"))
            return Plan(acts=(act,), wake=Wake(wake_s)) if wake_s < 30 else Plan(wake=Wake(29.0))

    columns = {"job_id": [1, 2], "gpus": [1, 1], "submit_s": [0, 0], "duration_s": [65, 5]}
    watcher = Asking()
    replay(EmbeddedCluster(Trace.of(**columns), [1], SlurmModel()), watcher, MemoryStore(), interval_s=20)
    assert watcher.asked_s == [20, 27, 28, 40, 60, 80]


def test_replay__says_when_a_model_stands_still() -> None:
    """A cluster that neither ends nor has events would loop for ever."""

    class Stuck(EmbeddedCluster):
        @property
        def next_event_s(self) -> float:
            return float("inf")

        @property
        def waiting(self) -> int:
            return 0

    stuck = Stuck(Trace.of([1], [1], [0], [5]), [1])
    with pytest.raises(RuntimeError, match="stands still"):
        replay(stuck)

"""The store of a replay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from slurmsched.model import Outcome, Past, Plan, Ranking, Receipt, SetNice, Snapshot
from slurmsched.model.ordering import ordered
from slurmsched.model.trace import Trace
from slurmsched.registry import learns
from slurmsched.sim.ideal.ideal_cluster import IdealCluster
from slurmsched.sim.replay_stores import CarryStore, LearningStore, MemoryStore, as_past
from slurmsched.testing import snapshot


def test_recall__what_was_written_is_not_the_base() -> None:
    """As the ledger does."""
    store = MemoryStore()
    first = store.recall(snapshot([{"nice": 5, "submit_s": 10.0}], now_s=20.0))
    write = SetNice(1, 10.0, "", 5, -800, 5)
    store.append(first, Plan((write,)), Receipt((Outcome(write, "written"),)))
    jobs = store.recall(snapshot([{"nice": -800, "submit_s": 10.0}], now_s=30.0)).jobs
    assert (jobs.base_nice[0], jobs.written[0], jobs.backoff[0]) == (5, True, False)


def test_recall__keeps_what_the_cluster_filled_in() -> None:
    """The simulated slurmctld knows attained service itself."""
    rows = [{"attained_gpu_s": 7.0, "executed_s": 3.0, "waiting_s": 2.0, "first_submit_s": 1.0}]
    jobs = MemoryStore().recall(snapshot(rows, now_s=20.0)).jobs
    got = (jobs.attained_gpu_s[0], jobs.executed_s[0], jobs.waiting_s[0], jobs.first_submit_s[0])
    assert got == (7.0, 3.0, 2.0, 1.0)


def test_recall__history_has_each_completed_job_once_in_ascending_order() -> None:
    """However long its record stays."""
    store, rows = MemoryStore(), [{"state": "COMPLETED", "attained_gpu_s": 9.0}, {"state": "FAILED"}]
    store.recall(snapshot(rows, now_s=20.0))
    more = [*rows, {"state": "COMPLETED", "attained_gpu_s": 4.0}]
    assert store.recall(snapshot(more, now_s=30.0)).history_gpu_s.tolist() == [4.0, 9.0]


def test_recall__the_carry_comes_back() -> None:
    """Of the last cycle that ranked."""
    store = MemoryStore()
    recalled = store.recall(snapshot([{}], now_s=20.0))
    store.append(recalled, Plan(ranking=Ranking(np.array([0]), carry={"a": 1})), Receipt())
    store.append(recalled, Plan(), Receipt())
    assert store.recall(snapshot([{}], now_s=30.0)).carry == {"a": 1}


@dataclass(frozen=True, slots=True)
class Learner:
    learns: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Outer:
    inner: Learner = field(default_factory=Learner)

    def rank(self, snapshot: Snapshot) -> Ranking:
        return Ranking(ordered(snapshot.jobs))


class Cluster:
    def __init__(self, trace: Trace) -> None:
        self.trace, self.end_s = trace, np.full(len(trace), np.nan)

    @property
    def ended(self) -> int:
        return int(np.isfinite(self.end_s).sum())

    def endings(self):
        return self.end_s, self.trace.duration_s


TRACE = Trace.of([1, 2, 3], [1, 2, 4], [0, 10, 20], [50, 20, 5], user=["ann", "bob", "ann"])


def test_learns__looks_into_estimators() -> None:
    """A policy learns if it says so, or a plug-in it holds does."""
    assert (learns(Learner()), learns(Outer()), learns(CarryStore())) == (True, True, False)


def test_learning_store__leaves_out_jobs_of_0_s() -> None:
    """Of the replay and of the earlier trace, as the daemon's past does; who ends later is still told."""
    trace = Trace.of([1, 2, 3], [1, 1, 1], [0, 0, 0], [0, 20, 5])
    cluster = Cluster(trace)
    store = LearningStore(CarryStore(), cluster, before=Trace.of([7, 8], [1, 1], [0, 0], [0, 9]))
    here = IdealCluster(trace, [8]).read()
    cluster.end_s[:2] = (0.0, 20.0)
    assert store.recall(here).past.job_id.tolist() == [8, 2]
    cluster.end_s[2] = 25.0
    assert store.recall(here).past.job_id.tolist() == [8, 2, 3]


def test_learning_store__tells_who_ended_in_the_order_of_ends() -> None:
    """The past grows by the jobs that ended; a table given out earlier stays as it was."""
    cluster = Cluster(TRACE)
    store = LearningStore(CarryStore(), cluster)
    here = IdealCluster(TRACE, [8]).read()
    assert len(store.recall(here).past) == 0
    cluster.end_s[2] = 25.0
    first = store.recall(here).past
    cluster.end_s[:2] = (50.0, 30.0)
    second = store.recall(here).past
    assert (first.job_id.tolist(), second.job_id.tolist()) == ([3], [3, 2, 1])
    assert (second.user[0], second.attained_gpu_s.tolist()) == ("ann", [20.0, 40.0, 50.0])


def test_learning_store__begins_with_an_earlier_trace() -> None:
    """Jobs of the trace before are there at once, behind them those that end."""
    before = Trace.of([7, 8], [1, 1], [0, 0], [90, 40], user=["cid", "ann"])
    cluster = Cluster(TRACE)
    store = LearningStore(CarryStore(), cluster, before)
    cluster.end_s[0] = 99.0
    past = store.recall(IdealCluster(TRACE, [8]).read()).past
    assert past.job_id.tolist() == [8, 7, 1]
    assert list(past.user) == ["ann", "cid", "ann"]


def test_as_past__is_a_past() -> None:
    """A row a job, ends behind recorded starts or submissions."""
    past = as_past(TRACE)
    assert isinstance(past, Past)
    assert past.end_s.tolist() == [50.0, 30.0, 25.0]

"""The store of a replay."""

from __future__ import annotations

import numpy as np

from slurmsched.model import Outcome, Plan, Ranking, Receipt, SetNice
from slurmsched.sim.replay_stores import MemoryStore
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

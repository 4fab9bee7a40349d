"""Tables of columns, the masks of jobs and nodes, and the snapshot's digest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurmsched.model import Jobs, Past, Site, Snapshot
from slurmsched.testing import fleet, jobs, snapshot


def test_followed_by__is_one_table_behind_the_other() -> None:
    """Texts of both, names ascending and each once; an empty table adds nothing."""
    one = Past.build(2, {"job_id": [1, 2], "user": ["bob", "ann"]})
    two = Past.build(2, {"job_id": [3, 4], "user": ["cid", "bob"]})
    both = one.followed_by(two)
    assert (both.job_id.tolist(), list(both.user), both.user.names) == (
        [1, 2, 3, 4], ["bob", "ann", "cid", "bob"], ("ann", "bob", "cid"),
    )  # fmt: skip
    empty = Past.build(0, {})
    assert [list(each.user) for each in (empty.followed_by(one), one.followed_by(empty))] == [["bob", "ann"]] * 2


def test_build__missing_columns_hold_their_defaults() -> None:
    """A source that does not tell leaves the declared default."""
    table = Jobs.build(2, {"job_id": [1, 2]})
    assert (table.gpus.tolist(), list(table.user), np.isnan(table.submit_s).tolist()) == (
        [0, 0],
        ["", ""],
        [True, True],
    )


@pytest.mark.parametrize(
    ("columns", "message"), [({"gpu": [1]}, "has no column gpu"), ({"gpus": [1, 2]}, "2 rows, not 1")]
)
def test_build__refuses_unknown_and_uneven_columns(columns: dict[str, list[int]], message: str) -> None:
    """A misspelt column or one of another length is an error, never dropped."""
    with pytest.raises(ValueError, match=message):
        Jobs.build(1, columns)


def test_take__cuts_all_columns_alike() -> None:
    """Numbers and texts of the rows asked for, in that order, read-only."""
    cut = jobs([{"job_id": i, "user": f"u{i}"} for i in (1, 2, 3)]).take(np.array([2, 0]))
    assert (cut.job_id.tolist(), list(cut.user), cut.gpus.flags.writeable) == ([3, 1], ["u3", "u1"], False)


def test_with_columns__replaces_some() -> None:
    """The other columns are kept, the table it came from too."""
    table = jobs([{"job_id": 5}])
    assert (table.with_columns(gpus=[8]).gpus.tolist(), table.gpus.tolist()) == ([8], [1])


def test_jobs__pending_is_not_completing() -> None:
    """PENDING+COMPLETING still frees its GPUs; it cannot start yet."""
    table = jobs([{"state": state} for state in ("PENDING", "PENDING,COMPLETING", "RUNNING", "COMPLETED")])
    assert table.pending.tolist() == [True, False, False, False]
    assert (table.running.tolist(), table.finished.tolist()) == ([False, False, True, False], [False] * 3 + [True])


def test_jobs__held_is_pending_at_priority_zero() -> None:
    """A running job of priority 0 is not held."""
    table = jobs([{"priority": 0}, {"priority": 5}, {"priority": 0, "state": "RUNNING"}])
    assert table.held.tolist() == [True, False, False]


def test_nodes__gpu_totals_add_up() -> None:
    """Every GPU counts once; a drained node's busy GPUs count as allocated, those that boot or cannot be read apart."""
    rows = [
        {"name": "a", "gpus": 8, "gpus_used": 3},
        {"name": "b", "gpus": 8, "gpus_used": 2, "state": "MIXED+DRAIN"},
        {"name": "c", "gpus": 4, "gpus_used": 4, "state": "down*"},
        {"name": "d", "gpus": 8, "gpus_used": 1, "state": "MIXED+POWERING_UP"},
        {"name": "e", "gpus": 2, "gpus_used": 2, "gpus_unread": True},
        {"name": "f", "gpus": 2, "gpus_used": 2, "gpus_unread": True, "state": "DOWN+POWERED_DOWN"},
    ]
    totals = snapshot(nodes=rows).nodes.gpu_totals()
    assert totals == {
        "idle": 5, "boot": 7, "allocated": 6, "draining": 6, "down": 6, "unknown": 2, "all": 32,
    }  # fmt: skip


@pytest.mark.parametrize(("kind", "expected"), [("accounting_storage/slurmdbd", True), ("(null)", False), ("", False)])
def test_site__accounts_are_in_slurmdbd_or_nowhere(kind: str, expected: bool) -> None:
    """By AccountingStorageType."""
    assert Site(settings={"AccountingStorageType": kind}).accounts_in_slurmdbd is expected


@pytest.mark.parametrize(
    ("kill_wait", "over_time", "expected"),
    [("5 sec", "2 min", (5.0, 120.0)), ("(null)", "UNLIMITED", (30.0, float("inf"))), ("", "", (30.0, 0.0))],
)
def test_site__kill_wait_and_over_time(kill_wait: str, over_time: str, expected: tuple[float, float]) -> None:
    """As slurmctld prints them, and Slurm's defaults where it prints none."""
    site = Site(settings={"KillWait": kill_wait, "OverTimeLimit": over_time})
    assert (site.kill_wait_s, site.over_time_s) == expected


@pytest.mark.parametrize(
    ("kind", "mode", "expected"),
    [
        ("preempt/qos", "REQUEUE", True), ("preempt/partition_prio", "GANG,SUSPEND", True),
        ("preempt/qos", "OFF", False), ("preempt/none", "REQUEUE", False), ("(null)", "REQUEUE", False),
    ],
)  # fmt: skip
def test_site__preempts_by_a_plugin_and_a_mode(kind: str, mode: str, expected: bool) -> None:
    """Slurm's own preemption needs both."""
    assert Site(settings={"PreemptType": kind, "PreemptMode": mode}).preempts is expected
    assert not Site(settings={"PreemptType": kind}).preempts


@pytest.mark.parametrize(
    "change",
    [
        {"now_s": 1.0},
        {"seed": 1},
        {"nodes": fleet("1x4")},
        *(
            {"jobs": jobs([{"job_id": 3, **row}])}
            for row in ({"job_id": 4}, {"state": "RUNNING"}, {"nice": -5}, {"site_factor": 5}, {"gpus": 3})
        ),
    ],
    ids=["clock", "seed", "nodes", "id", "state", "nice", "site factor", "GPUs"],
)
def test_digest__differs_when_what_it_covers_does(change: dict[str, object]) -> None:
    """Equal snapshots have equal digests; what a cycle decides by and writes changes it."""
    given = snapshot([{"job_id": 3}])
    other: Snapshot = replace(given, **change)
    assert (given.digest == snapshot([{"job_id": 3}]).digest, given.digest == other.digest) == (True, False)

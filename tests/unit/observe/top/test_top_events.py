from __future__ import annotations

from dataclasses import replace

from slurmsched.model import Operation, OperationStage, Purpose, Victim
from slurmsched.observe.top.top_drawing import MOST, events
from slurmsched.testing import snapshot

OPERATION = Operation("7-1", Purpose.PREEMPT, 7, 0.0, "ann", "n1", 60.0, 0.0, (Victim(8, 0.0, 0, 8),))


def test_events__of_operations():
    """One that begins, one that moves on with its reason, one that is over; the same again says nothing."""
    moved, gone = replace(OPERATION, id="7-2"), replace(OPERATION, id="7-3")
    before = snapshot(operations=(moved, gone))
    after = snapshot(operations=(OPERATION, replace(moved, stage=OperationStage.REVERSING, note="it ended")))
    assert events(before, after) == [
        "preempt 7-1 for job 7 of ann on n1 began, takes from 8",
        "preempt 7-2 for job 7 of ann on n1 is reversing: it ended",
        "preempt 7-3 for job 7 of ann on n1 is over",
    ]
    assert events(after, after) == []


def test_events__of_jobs():
    """Started where, ended, or requeued."""
    runs = {"state": "RUNNING", "user": "bob", "node_list": "n1", "gpus": 2}
    before = snapshot([{"job_id": 1}, {"job_id": 2, **runs}, {"job_id": 3, **runs}])
    after = snapshot([{"job_id": 1, **runs}, {"job_id": 2, "state": "COMPLETED", "gpus": 2}, {"job_id": 3, "gpus": 2}])
    assert events(before, after) == [
        "job 1 of bob (2 GPUs) started on n1", "job 2 of bob (2 GPUs) ended", "job 3 of bob (2 GPUs) waits again",
    ]  # fmt: skip


def test_events__are_harmless_and_bounded():
    """Names of users steer no terminal; a thousand starts do not flood it."""
    evil = snapshot([{"job_id": job, "state": "RUNNING", "user": "\x1b[2Jx"} for job in range(1, 300)])
    told = events(snapshot(), evil)
    assert len(told) == MOST
    assert "\x1b" not in "".join(told)

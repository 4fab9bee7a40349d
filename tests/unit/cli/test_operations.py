"""`operations`, and operations in `status` and `doctor`."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from slurmsched.config_file import load_config
from slurmsched.db.ledger_store import open_store
from slurmsched.db.operation_log import OperationLog
from slurmsched.model import (
    NodeWait,
    Operation,
    OperationStage,
    Outcome,
    Plan,
    Purpose,
    Receipt,
    Requeue,
    Reservations,
    Victim,
)
from slurmsched.slurm.doctor import diagnosis
from slurmsched.slurm.scontrol_tables import end_by_hand
from slurmsched.slurm.site import installation_tag
from slurmsched.testing import snapshot

NOW_S = time.time()
TAKES = Operation("7-1", Purpose.PREEMPT, 7, 0.0, "ann", "n1", 60.0, NOW_S, (Victim(8, 0.0, 0, 8, lost_gpu_s=7_200.0),),
            stage=OperationStage.REQUEUED, idle_gpu_s=1_800.0)  # fmt: skip
KEEPS = Operation(
    "9-1",
    Purpose.RESERVE,
    9,
    0.0,
    "bob",
    "n[2-3]",
    60.0,
    NOW_S,
    promised_s=NOW_S + 90,
    opens_s=NOW_S + 60,
    waits=(NodeWait("n2", 13, NOW_S + 90), NodeWait("n3", 0, NOW_S)),
    stage=OperationStage.PROMISED,
)


@pytest.fixture
def recorded(site):
    """A ledger with a preemption that took place, an open promise, and one that a dry-run would have made twice."""
    config = load_config(site)
    store = open_store(config)
    requeue = Requeue(8, 0.0, "", "7-1")

    def cycle(after_s: float, operations: tuple[Operation, ...], receipt: Receipt) -> None:
        rows = [{"job_id": job, "gpus": 8} for job in (7, 8, 9)]
        recalled = store.recall(snapshot(rows, now_s=NOW_S + after_s))
        store.append(recalled, Plan((requeue,), operations=operations), receipt)

    cycle(0, (replace(TAKES, id="7-0", job_id=8),), Receipt(planned=1, dry_run=True))
    cycle(1, (replace(TAKES, id="7-2", job_id=8),), Receipt(planned=1, dry_run=True))
    cycle(2, (TAKES, KEEPS), Receipt((Outcome(requeue, "written"),), 1))
    store.close()
    OperationLog(config.ledger.journal).begin([replace(KEEPS, idle_gpu_s=3_600.0)])


def test_operations__sums_what_was_lost_and_held_and_counts_dry_runs_apart(run, recorded):
    """What a dry-run begins anew in every cycle counts once."""
    told = json.loads(run("operations", "--json").out)
    assert told["done"] == {"preemptions": 1, "gang_reservations": 1, "lost_gpu_s": 7_200.0, "idle_gpu_s": 5_400.0}
    assert told["would_have"] == {
        "preemptions": 1,
        "gang_reservations": 0,
        "lost_gpu_s": 7_200.0,
        "idle_gpu_s": 1_800.0,
    }
    assert [(operation["operation"], operation["stage"], operation["victims"]) for operation in told["operations"]] == [
        ("7-0", "requeued", 1), ("7-1", "requeued", 1), ("9-1", "promised", 0)
    ]  # fmt: skip


def test_operations__one_line_each_and_the_sums(run, recorded):
    """For people."""
    lines = run("operations", "--since", "1h").out.splitlines()
    assert len(lines) == 6
    assert lines[-2:] == [
        "in 1h: 1 preemption, 1 gang reservation; 2.0 GPU hours of work lost, 1.5 held idle",
        "dry-run would have: 1 preemption, 0 gang reservations; 2.0 GPU hours of work lost, 0.5 held idle",
    ]


def test_operations__bad_duration_is_a_usage_error(run):
    """With the forms that there are."""
    answer = run("operations", "--since", "week")
    assert (answer.code, "1d12h" in answer.err) == (2, True)


def test_status__shows_open_operations_what_they_wait_for_and_orphans(run, fakes):
    """And how to end a reservation that nobody has on record."""
    cluster, _ = fakes
    kept = Reservations.build(3, {"name": ["night", "slurmsched-5-6", KEEPS.reservation]})
    cluster.snapshot = replace(cluster.snapshot, operations=(KEEPS,), reservations=kept, now_s=NOW_S)
    told = json.loads(run("status", "--json").out)
    assert [operation["operation"] for operation in told["operations"]] == ["9-1"]
    assert told["orphans"] == ["slurmsched-5-6"]
    text = run("status").out
    assert "reserve 9-1: job 9 of bob on n[2-3], promised" in text
    assert "n2 until job 13 has left" in text
    assert "n3 ready" in text
    assert end_by_hand("slurmsched-5-6") in text


def test_doctor__warns_of_orphans(run, site, monkeypatch):
    """One that belongs to an open operation is none, nor is one that another slurmsched has, or left before the
    update."""
    config = load_config(site)
    OperationLog(config.ledger.journal).begin([KEEPS])
    lost = f"slurmsched-{installation_tag(config)}-5-6"
    names = [KEEPS.reservation, lost, "slurmsched-mine", "slurmsched-abcdef-5-6", "slurmsched-5-6"]
    monkeypatch.setattr(diagnosis, "read_reservations", lambda _: Reservations.build(5, {"name": names}))
    found = diagnosis._operations(config, None)
    assert (found.verdict, found.detail, found.remedy) == ("warn", f"orphans: {lost}", end_by_hand(lost))
    monkeypatch.setattr(diagnosis, "read_reservations", lambda _: Reservations.build(1, {"name": names[:1]}))
    assert diagnosis._operations(config, None).detail == "1 under way, no orphans"
    monkeypatch.setattr(diagnosis, "read_reservations", lambda _: Reservations.build(2, {"name": names[3:]}))
    left_alone = "of another slurmsched: slurmsched-abcdef-5-6, slurmsched-5-6"
    assert diagnosis._operations(config, None).detail == f"1 under way, no orphans; {left_alone}"

"""`acts`, and acts in `status` and `doctor`."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from slurmsched.config import load_config
from slurmsched.db.acts import ActLog
from slurmsched.db.store import open_store
from slurmsched.model import Act, Outcome, Plan, Purpose, Receipt, Requeue, Reservations, Stage, Victim, Wait
from slurmsched.slurm import doctor
from slurmsched.slurm.reservations import ending
from slurmsched.slurm.tag import tag_of
from slurmsched.testing import snapshot

NOW_S = time.time()
TAKES = Act("7-1", Purpose.PREEMPT, 7, 0.0, "ann", "n1", 60.0, NOW_S, (Victim(8, 0.0, 0, 8, lost_gpu_s=7_200.0),),
            stage=Stage.REQUEUED, idle_gpu_s=1_800.0)  # fmt: skip
KEEPS = Act("9-1", Purpose.PROMISE, 9, 0.0, "bob", "n[2-3]", 60.0, NOW_S, promised_s=NOW_S + 90, opens_s=NOW_S + 60,
            waits=(Wait("n2", 13, NOW_S + 90), Wait("n3", 0, NOW_S)), stage=Stage.PROMISED)  # fmt: skip


@pytest.fixture
def recorded(site):
    """A ledger with a preemption that took place, an open promise, and one that a dry-run would have made twice."""
    config = load_config(site)
    store = open_store(config)
    requeue = Requeue(8, 0.0, "", "7-1")

    def cycle(after_s: float, acts: tuple[Act, ...], receipt: Receipt) -> None:
        rows = [{"job_id": job, "gpus": 8} for job in (7, 8, 9)]
        recalled = store.recall(snapshot(rows, now_s=NOW_S + after_s))
        store.append(recalled, Plan((requeue,), acts=acts), receipt)

    cycle(0, (replace(TAKES, id="7-0", job_id=8),), Receipt(planned=1, dry_run=True))
    cycle(1, (replace(TAKES, id="7-2", job_id=8),), Receipt(planned=1, dry_run=True))
    cycle(2, (TAKES, KEEPS), Receipt((Outcome(requeue, "written"),), 1))
    store.close()
    ActLog(config.ledger.journal).begin([replace(KEEPS, idle_gpu_s=3_600.0)])


def test_acts__sums_what_was_lost_and_held_and_counts_dry_runs_apart(run, recorded):
    """What a dry-run begins anew in every cycle counts once."""
    told = json.loads(run("acts", "--json").out)
    assert told["done"] == {"preemptions": 1, "promises": 1, "lost_gpu_s": 7_200.0, "idle_gpu_s": 5_400.0}
    assert told["would_have"] == {"preemptions": 1, "promises": 0, "lost_gpu_s": 7_200.0, "idle_gpu_s": 1_800.0}
    assert [(act["act"], act["stage"], act["victims"]) for act in told["acts"]] == [
        ("7-0", "requeued", 1), ("7-1", "requeued", 1), ("9-1", "promised", 0)
    ]  # fmt: skip


def test_acts__one_line_each_and_the_sums(run, recorded):
    """For people."""
    lines = run("acts", "--since", "1h").out.splitlines()
    assert len(lines) == 6
    assert lines[-2:] == [
        "in 1h: 1 preemption, 1 promise; 2.0 GPU hours of work lost, 1.5 held idle",
        "dry-run would have: 1 preemption, 0 promises; 2.0 GPU hours of work lost, 0.5 held idle",
    ]


def test_acts__bad_duration_is_a_usage_error(run):
    """With the forms that there are."""
    answer = run("acts", "--since", "week")
    assert (answer.code, "1d12h" in answer.err) == (2, True)


def test_status__shows_open_acts_what_they_wait_for_and_orphans(run, fakes):
    """And how to end a reservation that nobody has on record."""
    cluster, _ = fakes
    kept = Reservations.build(3, {"name": ["night", "slurmsched-5-6", KEEPS.reservation]})
    cluster.snapshot = replace(cluster.snapshot, acts=(KEEPS,), reservations=kept, now_s=NOW_S)
    told = json.loads(run("status", "--json").out)
    assert [act["act"] for act in told["acts"]] == ["9-1"]
    assert told["orphans"] == ["slurmsched-5-6"]
    text = run("status").out
    assert "promise 9-1: job 9 of bob on n[2-3], promised" in text
    assert "n2 until job 13 has left" in text
    assert "n3 ready" in text
    assert ending("slurmsched-5-6") in text


def test_doctor__warns_of_orphans(run, site, monkeypatch):
    """One that belongs to an open act is none, nor is one that another slurmsched has, or left before the update."""
    config = load_config(site)
    ActLog(config.ledger.journal).begin([KEEPS])
    lost = f"slurmsched-{tag_of(config)}-5-6"
    names = [KEEPS.reservation, lost, "slurmsched-mine", "slurmsched-abcdef-5-6", "slurmsched-5-6"]
    monkeypatch.setattr(doctor, "read_reservations", lambda _: Reservations.build(5, {"name": names}))
    found = doctor._acts(config, None)
    assert (found.verdict, found.detail, found.remedy) == ("warn", f"orphans: {lost}", ending(lost))
    monkeypatch.setattr(doctor, "read_reservations", lambda _: Reservations.build(1, {"name": names[:1]}))
    assert doctor._acts(config, None).detail == "1 under way, no orphans"
    monkeypatch.setattr(doctor, "read_reservations", lambda _: Reservations.build(2, {"name": names[3:]}))
    left_alone = "not of this slurmsched, left alone: slurmsched-abcdef-5-6, slurmsched-5-6"
    assert doctor._acts(config, None).detail == f"1 under way, no orphans; {left_alone}"

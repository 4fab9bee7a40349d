"""A job's history: all sources in one order, each with who and why, and what could not be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from slurmsched.db import database as engines
from slurmsched.db import schema
from slurmsched.db.job_history import SHOWN, LedgerPlace, _requeued_last, history_of_job, past_of_job
from slurmsched.db.leader_lease import LeaderLease, SharedLines
from slurmsched.db.operation_log import OperationLog
from slurmsched.db.override_log import OverrideLog
from slurmsched.model import Operation, OperationStage, Purpose, Victim
from slurmsched.model.job_details import HistoryRow
from slurmsched.model.plan import SetNice

CYCLE = {"now_s": 100.0, "recorded_s": 101.0, "duration_s": 1.0, "digest": "d", "policy": "las", "jobs": 1,
         "planned": 1, "written": 1, "refused": 0, "deferred": 0, "dry_run": False, "stopped": ""}  # fmt: skip
JOB = {"job_id": 7, "first_submit_s": 50.0}
WROTE = {**JOB, "cycle_id": 1, "kind": "nice", "old": 0, "new": 5, "base": 0, "reason": "rank 2", "outcome": "written",
         "message": ""}  # fmt: skip
CHANGED = {**JOB, "field": "nice", "expected": 5, "found": 0, "base": 0, "seen_s": 150.0, "backoff_until_s": 200.0,
           "cause": "somebody set it"}  # fmt: skip
BEGAN = {**JOB, "run": 0, "start_s": 120.0, "gpus": 8}
ENDED = {**JOB, "run": 0, "start_s": 120.0, "end_s": 180.0, "executed_s": 60.0, "gpu_s": 480.0, "source": "sacct"}


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    """The URL of a ledger with one of each of job 7, and one write of another job."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    engine = sa.create_engine(url)
    schema.metadata.create_all(engine)
    rows = [(schema.cycles, CYCLE), (schema.actions, WROTE), (schema.actions, {**WROTE, "job_id": 8}),
            (schema.actions, {**WROTE, "kind": "requeue", "old": None, "new": None, "outcome": "refused",
                              "message": "no"}),
            (schema.outside_changes, CHANGED), (schema.run_starts, BEGAN), (schema.run_ends, ENDED),
            (schema.run_starts, {**BEGAN, "run": 1, "start_s": 180.0})]  # fmt: skip
    with engine.begin() as link:
        for table, row in rows:
            link.execute(table.insert().values(**row))
    engine.dispose()
    return url


def test_history__is_in_the_order_of_time_with_who_and_why(ledger: str, tmp_path: Path) -> None:
    """Writes, runs, and what somebody else changed; nothing of other jobs."""
    rows, unread = history_of_job(LedgerPlace(ledger, tmp_path / "journal.jsonl"), 7)
    assert unread == []
    assert [(row.time_s, row.by, row.what) for row in rows] == [
        (101.0, "slurmsched (las)", "nice 0 -> 5"),
        (101.0, "slurmsched (las)", "requeue"),
        (120.0, "Slurm", "run 0 began on 8 GPUs"),
        (150.0, "somebody else", "nice was 0 where slurmsched had left 5"),
        (180.0, "Slurm", "run 0 ended after 60 s"),
        (180.0, "Slurm", "run 1 began on 8 GPUs"),
    ]
    assert [row.outcome for row in rows[:2]] == ["written", "refused: no"]
    assert rows[0].line.endswith("slurmsched (las): nice 0 -> 5 (rank 2) (written)")


def test_history__says_what_cannot_be_read(tmp_path: Path) -> None:
    """Without a ledger the journal's operations are told all the same."""
    operation = Operation(
        "9-1", Purpose.PREEMPT, 9, 0.0, "bob", "n1", 60.0, 90.0, (Victim(7, 0.0, 0, 8),), stage=OperationStage.WARNED
    )
    OperationLog(tmp_path / "journal.jsonl").sent([operation])
    rows, unread = history_of_job(LedgerPlace(f"sqlite:///{tmp_path}/none.db", tmp_path / "journal.jsonl"), 7)
    assert [row.what for row in rows] == ["preempt 9-1 takes its GPUs for job 9"]
    assert [text.partition(":")[0] for text in unread] == ["writes and changes by others, runs and operations"]


@pytest.mark.parametrize(("gpus", "found"), [(8, 1), (15, 1), (7, 0), (16, 0), (0, 0)])
def test_past__waits_are_of_jobs_of_the_same_power_of_two(ledger: str, tmp_path: Path, gpus: int, found: int) -> None:
    """One of eight GPUs waited 70 s."""
    assert past_of_job(LedgerPlace(ledger, tmp_path / "journal.jsonl"), 7, gpus).waits_s == (70.0,) * found


def test_past__shows_what_was_done_last(ledger: str, tmp_path: Path) -> None:
    """A job that waits for weeks has a line for each write; how many are left out is told."""
    engine = sa.create_engine(ledger)
    with engine.begin() as link:
        link.execute(schema.actions.insert(), [{**WROTE, "new": new} for new in range(30)])
    engine.dispose()
    done = past_of_job(LedgerPlace(ledger, tmp_path / "journal.jsonl"), 7, 8).ours
    assert (len(done), done[0]) == (SHOWN + 1, "12 more before that: slurmsched history 7")


def test_past__knows_what_hosts_share(tmp_path: Path) -> None:
    """The operation that another host began, and what it meant to write; what is in our own file too is told once."""
    url = f"sqlite:///{tmp_path}/shared.db"
    engines.upgrade_schema(url)
    engine = engines.open_engine(url)
    lease = LeaderLease(engine, "other", 60.0)
    assert lease.take()
    operation = Operation(
        "9-1", Purpose.PREEMPT, 9, 0.0, "bob", "n1", 60.0, 90.0, (Victim(7, 0.0, 0, 8),), stage=OperationStage.WARNED
    )
    OperationLog(tmp_path / "x" / "journal.jsonl", shared=SharedLines(engine, lease, "operations")).sent([operation])
    journal = tmp_path / "journal.jsonl"
    OperationLog(journal).sent([replace(operation, id="4-1", job_id=4)])  # of before there was a leader
    OverrideLog(journal, shared=SharedLines(engine, lease, "journal")).intend(
        "c", [SetNice(7, 50.0, "rank 4", 5, 8, 5)]
    )
    engine.dispose()
    done = [past_of_job(LedgerPlace(url, journal, shared), 7, 8).ours for shared in (True, False)]
    assert [sum("takes its GPUs for job 9" in line for line in lines) for lines in done] == [1, 0]
    assert [sum("takes its GPUs for job 4" in line for line in lines) for lines in done] == [0, 1]
    assert [sum("nice 5 -> 8 (rank 4)" in line for line in lines) for lines in done] == [1, 1]


def test_past__one_connection_and_no_question_after_one_that_failed(tmp_path: Path, monkeypatch) -> None:
    """A database that does not answer costs one wait; what could not be asked is told."""
    opened, failed = [], []

    def connect(engine: sa.Engine) -> None:
        failed.append(engine)
        raise sa.exc.OperationalError("", {}, Exception("no answer"))

    true_open = engines.open_engine
    monkeypatch.setattr(engines, "open_engine", lambda *at, **how: opened.append(how) or true_open(*at, **how))
    monkeypatch.setattr(sa.Engine, "connect", connect)
    known = past_of_job(LedgerPlace(f"sqlite:///{tmp_path}/x.db", tmp_path / "journal", True, 2.0), 7, 8)
    assert (len(failed), opened) == (1, [{"read_only": True, "patience_s": 2.0}])
    assert [text.partition(": ")[0] for text in known.unread] == [
        "writes and changes by others, runs and operations, past waits, what hosts share"]  # fmt: skip


SENT = HistoryRow(0.0, "slurmsched (las)", "nice 0 -> 5", outcome="written")
REQUEUED = HistoryRow(0.0, "slurmsched (las)", "requeue", outcome="written")
RAN = HistoryRow(0.0, "Slurm", "run 1 began on 8 GPUs")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [([SENT], False), ([SENT, REQUEUED], True), ([REQUEUED, RAN], False), ([RAN, REQUEUED], True),
     ([replace(REQUEUED, outcome="refused: gone")], False)],
)  # fmt: skip
def test_requeued_last__until_it_runs_again(rows, expected):
    """A begin time that its owner sets after the next run is the owner's."""
    assert _requeued_last(rows) is expected

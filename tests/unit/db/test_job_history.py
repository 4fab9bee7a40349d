"""A job's history: all sources in one order, each with who and why, and what could not be read."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from slurmsched.config import Config, Leader, Ledger
from slurmsched.db import schema
from slurmsched.db.acts import ActLog
from slurmsched.db.job_history import _requeued_last, first_waits, history, in_words, ours, waits_known
from slurmsched.errors import LedgerError
from slurmsched.model import Act, Purpose, Stage, Victim

CYCLE = {"now_s": 100.0, "recorded_s": 101.0, "duration_s": 1.0, "digest": "d", "policy": "las", "jobs": 1,
         "planned": 1, "written": 1, "refused": 0, "deferred": 0, "dry_run": False, "stopped": ""}  # fmt: skip
JOB = {"job_id": 7, "first_submit_s": 50.0}
WROTE = {**JOB, "cycle_id": 1, "kind": "nice", "old": 0, "new": 5, "base": 0, "reason": "rank 2", "outcome": "written",
         "message": ""}  # fmt: skip
CHANGED = {**JOB, "kind": "nice", "expected": 5, "found": 0, "base": 0, "seen_s": 150.0, "backoff_until_s": 200.0,
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
            (schema.lever_changes, CHANGED), (schema.run_starts, BEGAN), (schema.run_ends, ENDED)]  # fmt: skip
    with engine.begin() as link:
        for table, row in rows:
            link.execute(table.insert().values(**row))
    engine.dispose()
    return url


def test_history__is_in_the_order_of_time_with_who_and_why(ledger: str, tmp_path: Path) -> None:
    """Writes, runs, and what somebody else changed; nothing of other jobs."""
    rows, unread = history(ledger, tmp_path / "journal.jsonl", 7)
    assert unread == []
    assert [(row["time_s"], row["by"], row["what"]) for row in rows] == [
        (101.0, "slurmsched (las)", "nice 0 -> 5"),
        (101.0, "slurmsched (las)", "requeue"),
        (120.0, "Slurm", "run 0 began on 8 GPUs"),
        (150.0, "somebody else", "nice was 0 where slurmsched had left 5"),
        (180.0, "Slurm", "run 0 ended after 60 s"),
    ]
    assert [row["outcome"] for row in rows[:2]] == ["written", "refused: no"]
    assert in_words(rows[0]).endswith("slurmsched (las): nice 0 -> 5 (rank 2) (written)")


def test_history__says_what_cannot_be_read(tmp_path: Path) -> None:
    """Without a ledger the journal's acts are told all the same."""
    act = Act("9-1", Purpose.PREEMPT, 9, 0.0, "bob", "n1", 60.0, 90.0, (Victim(7, 0.0, 0, 8),), stage=Stage.WARNED)
    ActLog(tmp_path / "journal.jsonl").sent([act])
    rows, unread = history(f"sqlite:///{tmp_path}/none.db", tmp_path / "journal.jsonl", 7)
    assert [row["what"] for row in rows] == ["preempt 9-1 takes its GPUs for job 9"]
    assert [text.partition(":")[0] for text in unread] == ["writes and changes by others", "runs and acts"]


def test_history__leaves_out_this_hosts_files_where_several_may_lead(ledger: str, tmp_path: Path) -> None:
    """An act that was open here before the leader was set up is not told as one under way."""
    act = Act("9-1", Purpose.PREEMPT, 9, 0.0, "bob", "n1", 60.0, 90.0, (Victim(7, 0.0, 0, 8),), stage=Stage.WARNED)
    alone = Config(ledger=Ledger(url=ledger, journal=tmp_path / "journal.jsonl"))
    shared = Config(ledger=Ledger(url="mysql://a/b", journal=tmp_path / "journal.jsonl"), leader=Leader(enabled=True))
    ActLog(tmp_path / "journal.jsonl").sent([act])
    told, (rows, unread) = history(ledger, alone.own_journal, 7)[0], history(ledger, shared.own_journal, 7)
    assert [row["what"] for row in told if row not in rows] == ["preempt 9-1 takes its GPUs for job 9"]
    assert [text.partition(":")[0] for text in unread] == ["writes and acts under way"]


@pytest.mark.parametrize(("gpus", "found"), [(8, 1), (15, 1), (7, 0), (16, 0), (0, 0)])
def test_first_waits__of_jobs_of_the_same_power_of_two(ledger: str, gpus: int, found: int) -> None:
    """One of eight GPUs waited 70 s."""
    assert first_waits(ledger, gpus) == (70.0,) * found


def test_first_waits__without_a_ledger_is_an_error(tmp_path: Path) -> None:
    """The caller says so."""
    with pytest.raises(LedgerError):
        first_waits(f"sqlite:///{tmp_path}/none.db", 8)


SENT = {"by": "slurmsched (las)", "what": "nice 0 -> 5", "outcome": "written"}
REQUEUED = {"by": "slurmsched (las)", "what": "requeue", "outcome": "written"}
RAN = {"by": "Slurm", "what": "run 1 began on 8 GPUs", "outcome": ""}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [([SENT], False), ([SENT, REQUEUED], True), ([REQUEUED, RAN], False), ([RAN, REQUEUED], True),
     ([{**REQUEUED, "outcome": "refused: gone"}], False)],
)  # fmt: skip
def test_requeued_last__until_it_runs_again(rows, expected):
    """A begin time that its owner sets after the next run is the owner's."""
    assert _requeued_last(rows) is expected


def test_ours__tells_what_is_not_there(tmp_path):
    """A ledger that does not answer is no fault of who asks; its waits are none."""
    away = f"sqlite:///{tmp_path}/nosuch.db"
    known = ours(away, tmp_path / "journal", 7)
    assert (known.ours, known.requeued, len(known.unread)) == ((), False, 2)
    assert waits_known(away, 4) == ()

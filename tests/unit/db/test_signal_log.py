"""The record of signals beside the journal."""

from __future__ import annotations

from pathlib import Path

from slurmsched.db import signal_log
from slurmsched.db.job_history import LedgerPlace, past_of_job
from slurmsched.db.signal_log import UNANSWERED, SignalLog
from slurmsched.model.plan import Outcome, Signal

SIGNAL = Signal(7, 900.0, "a checkpoint is wanted of it", "save-7", "USR1", 0)


def test_rows__each_signal_with_its_answer(tmp_path: Path) -> None:
    """A signal without an answer counts as sent; lines of other jobs, and torn or foreign ones, are left out."""
    journal = tmp_path / "journal.jsonl"
    record = SignalLog(journal, iter((10.0, 11.0, 20.0, 30.0)).__next__)
    record.answered(record.intend(SIGNAL, "alice"), Outcome(SIGNAL, "refused", "gone"))
    record.intend(SIGNAL, "bob")
    record.intend(Signal(8, 900.0, "why", "save-8", "USR1", 0), "bob")
    with (tmp_path / "journal.signals.jsonl").open("a") as file:
        file.write('{"event": "signal", "job_id": 7}\n{"event": "signal", "jo')
    rows = SignalLog(journal).rows(7)
    assert [(row.time_s, row.by, row.what, row.outcome) for row in rows] == [
        (10.0, "slurmsched job wants (alice)", "signal USR1", "refused: gone"),
        (20.0, "slurmsched job wants (bob)", "signal USR1", UNANSWERED),
    ]
    done = past_of_job(LedgerPlace(f"sqlite:///{tmp_path}/none.db", journal), 7, 8).ours
    assert [line.endswith("signal USR1 (a checkpoint is wanted of it) (refused: gone)") for line in done] == [
        True, False]  # fmt: skip


def test_intend__a_full_file_becomes_the_older_one(tmp_path: Path, monkeypatch) -> None:
    """Both are read; a third takes the place of the first."""
    monkeypatch.setattr(signal_log, "FULL_BYTES", 0)
    record = SignalLog(tmp_path / "journal.jsonl")
    for user in ("ann", "bob", "cid"):
        record.intend(SIGNAL, user)
    assert [row.by for row in record.rows(7)] == ["slurmsched job wants (bob)", "slurmsched job wants (cid)"]

"""The record of operations: what is remembered after a restart, and what is dropped."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurmsched.db import journal_file
from slurmsched.db.boot_clock import BootClock, boot_id, uptime
from slurmsched.db.operation_log import OperationLog
from slurmsched.db.override_log import OverrideLog
from slurmsched.errors import LedgerError
from slurmsched.logs import configure
from slurmsched.model import NodeWait, Operation, OperationStage, Override, Purpose, Victim
from slurmsched.slurm.recorder import OperationRecorder

OPERATION = Operation("7-1", Purpose.RESERVE, 7, 0.0, "bob", "n1", 60.0, 1_000.0, (Victim(8, 0.0, 0, 8),), 1_500.0,
1_470.0,
          (NodeWait("n1", 8, 1_500.0),))  # fmt: skip


def log(folder: Path, now_s: float, step_s: float = 0.0, boot: str = "b") -> OperationLog:
    """step_s: by how much the wall clock was set before now."""
    return OperationLog(
        folder / "journal.jsonl", clock=BootClock(lambda: now_s + step_s, lambda: now_s, lambda: boot), keep_s=600.0
    )


def test_known__reads_back_what_was_put_on_record(tmp_path):
    """With its victims and what its nodes wait for."""
    log(tmp_path, 1_000.0).sent([OPERATION])
    assert log(tmp_path, 1_100.0).open() == (OPERATION,)


def test_known__closed_operations_are_remembered_for_a_while(tmp_path):
    """Caps and leases count them, after a restart too; then they go with the next clean-up."""
    closed = replace(OPERATION, stage=OperationStage.CLOSED)
    written = log(tmp_path, 1_000.0)
    written.sent([closed])
    written.compact()
    assert (log(tmp_path, 1_500.0).open(), log(tmp_path, 1_500.0).known()) == ((), (closed,))
    assert OperationRecorder(log(tmp_path, 1_500.0)).past(1_500.0) == (closed,)
    assert OperationRecorder(log(tmp_path, 1_500.0)).past(1_700.0) == ()
    late = log(tmp_path, 1_700.0)
    late.compact()
    assert late.size == 0


@pytest.mark.parametrize("step_s", [3_600.0, -3_600.0])
def test_known__an_operation_keeps_its_age_when_the_clock_is_set(tmp_path, step_s):
    """In its stage for 50 s then, and 150 s a hundred later, whatever the wall clock says. The times to come are
    Slurm's; after a restart of the machine it can only be told that nothing on record is of a time to come."""
    operation = replace(OPERATION, stage=OperationStage.PROMISED, stage_s=1_050.0, seen_s=1_100.0)
    log(tmp_path, 1_100.0).sent([operation])
    (found,) = log(tmp_path, 1_200.0, step_s).open()
    assert (1_200.0 + step_s - found.stage_s, 1_200.0 + step_s - found.seen_s) == (150.0, 100.0)
    assert (found.promised_s, found.opens_s) == (operation.promised_s, operation.opens_s)
    (found,) = log(tmp_path, 1_200.0, step_s, boot="another").open()
    assert 1_200.0 + step_s - found.stage_s == (3_750.0 if step_s > 0 else 50.0)
    assert log(tmp_path, 1_200.0, 0.5).open() == (operation,)


@pytest.mark.parametrize("hours", [1, 5, 24])
def test_begin__what_another_clock_put_on_record_for_later_is_not_begun_anew_each_time(tmp_path, hours):
    """The machine was started again with its clock so far behind: a closed operation counts for caps and leases by what
    is left of keep_s, and not until the clock has come to where it was. The same of another host."""
    ahead_s = hours * 3_600.0
    log(tmp_path, 50_000.0 + ahead_s).sent(
        [replace(OPERATION, stage=OperationStage.CLOSED, begun_s=49_900.0 + ahead_s)]
    )
    first = log(tmp_path, 50_000.0, boot="another")
    assert [each.begun_s for each in first.known()] == [49_900.0]
    first.begin([])
    assert [each.begun_s for each in log(tmp_path, 50_300.0, boot="another").known()] == [49_900.0]
    assert log(tmp_path, 50_501.0, boot="another").known() == ()


def test_acting__reads_the_record_anew_when_the_clock_is_set(tmp_path):
    """A daemon keeps the operations in memory: they are put right there too, once."""
    off_s = [0.0]
    kept = OperationLog(
        tmp_path / "journal.jsonl", clock=BootClock(lambda: 1_000.0 + off_s[0], lambda: 1_000.0, lambda: "b")
    )
    kept.sent([replace(OPERATION, stage=OperationStage.WARNED, stage_s=990.0)])
    acting = OperationRecorder(kept)
    ages = []
    for off_s[0] in (0.0, 3_600.0, 3_600.0, 0.0):
        ages.append(1_000.0 + off_s[0] - acting.open[0].stage_s)
    assert ages == [10.0] * 4


def test_clock__uptime_goes_on_within_one_start():
    """As the system tells it."""
    assert (0 < uptime() <= uptime(), len(boot_id()) in (0, 36)) == (True, True)


START = Override(7, 0.0, "start_time", 0.0, 2_000.0, values=(2_000.0,))
KINDS = [(OperationLog, OPERATION, "sent"), (OverrideLog, START, "record")]
BAD = [b"no JSON\n", b"[]\n", b'{"event": "operation"}\n', b'{"operation": {"id": 7}, "event": "override"}\n']


def records(log: Any) -> list[Any]:
    known = log.known()
    return list(known.values() if isinstance(known, dict) else known)


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(("kind", "record", "put"), KINDS)
def test_records__for_undo_bad_lines_are_skipped_and_said(tmp_path, capfd, kind, record, put, bad):
    """What can be read is given back; a cycle does nothing on doubt. The file stays as it is."""
    configure("warning", "text")
    getattr(kind(tmp_path / "journal.jsonl"), put)([record])
    (path,) = tmp_path.iterdir()
    path.write_bytes(text := bad + path.read_bytes() + bad)
    with pytest.raises(LedgerError, match=":1: not a line of the"):
        kind(tmp_path / "journal.jsonl").known()
    log = kind(tmp_path / "journal.jsonl", lenient=True)
    assert records(log) == [record]
    assert "record.lines_skipped" in (err := capfd.readouterr().err)
    assert "lines=2" in err
    log.compact()
    assert path.read_bytes() == text


@pytest.mark.parametrize(("kind", "record", "put"), KINDS)
def test_records__for_undo_a_full_disk_is_no_hindrance(tmp_path, capfd, monkeypatch, kind, record, put):
    """What cannot be put down is said; a cycle sends nothing that it cannot put down."""
    configure("warning", "text")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(journal_file, "_append_whole", full)
    with pytest.raises(LedgerError, match="No space left on device"):
        getattr(kind(tmp_path / "journal.jsonl"), put)([record])
    getattr(kind(tmp_path / "journal.jsonl", lenient=True), put)([record])
    assert "record.not_written" in capfd.readouterr().err


@pytest.mark.parametrize(("kind", "record", "put"), KINDS)
def test_records__for_undo_both_files_and_shared_lines_count(tmp_path, kind, record, put):
    """The leader was switched on when something was under way, and its database may be away."""
    getattr(kind(tmp_path / "journal.jsonl"), put)([record])

    class Shared:
        size, term, gone = 0, 1, False

        def read(self):
            if self.gone:
                raise LedgerError("the database is away")
            return [path.read_bytes().replace(b'"job_id":7', b'"job_id":9').replace(b'"id":"7-1"', b'"id":"9-1"')]

    (path,), shared = tmp_path.iterdir(), Shared()
    assert [each.job_id for each in records(kind(tmp_path / "journal.jsonl", shared=shared))] == [9]
    assert [each.job_id for each in records(kind(tmp_path / "journal.jsonl", shared=shared, lenient=True))] == [7, 9]
    shared.gone = True
    assert [each.job_id for each in records(kind(tmp_path / "journal.jsonl", shared=shared, lenient=True))] == [7]

"""The journal: nothing is sent that is not on disk, and what is on disk can be read whatever happened."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmsched.db.journal_file import LineFile
from slurmsched.db.override_log import OverrideLog, records_by_job
from slurmsched.errors import LedgerError
from slurmsched.logs import Log
from slurmsched.model import Outcome, Override, SetNice, SetSiteFactor
from slurmsched.paths import owner


def nice(job_id: int, new: int, *, old: int = 0, base: int = 0, submit_s: float = 100.0) -> SetNice:
    return SetNice(job_id, submit_s, "queue 1", old, new, base)


@pytest.fixture
def journal(tmp_path: Path) -> OverrideLog:
    return OverrideLog(tmp_path / "state" / "journal.jsonl", clock=lambda: 1000.0)


def test_intend__remembers_every_value_and_the_latest_base(journal):
    """values: every value ever intended. base and sent: of the latest intention."""
    journal.intend("a", [nice(7, -500, base=3), nice(8, -200)])
    journal.intend("b", [nice(7, -900, old=-500, base=5)])
    assert journal.priorities() == (
        Override(7, 100.0, "nice", 5, -900, values=(-500, -900)),
        Override(8, 100.0, "nice", 0, -200, values=(-200,)),
    )


def test_intend__line_holds_what_undo_and_people_need(journal):
    """Time, cycle, kind, job, submit time, old, new, base and reason are on the line."""
    journal.intend("c1", [SetSiteFactor(7, 100.0, "queue 0", 0, 900, 0)])
    expected = {"event": "override", "field": "site_factor", "time_s": 1000.0, "cycle": "c1", "job_id": 7}
    expected |= {"submit_s": 100.0, "old": 0, "sent": 900, "base": 0, "reason": "queue 0"}
    assert list(journal.lines()) == [expected]


def test_intend__is_synced_before_it_returns(journal, monkeypatch):
    """One fsync of the file for all actions, after all bytes are written."""
    synced: list[int] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.fstat(fd).st_size)
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    journal.intend("a", [nice(7, 1), nice(8, 2)])
    assert synced[0] == journal.size > 0


def test_outcome__changes_no_lever(journal):
    """An outcome is for people; an intention without one counts as sent."""
    journal.intend("a", [nice(7, -500)])
    before = journal.priorities()
    journal.outcome("a", [Outcome(nice(7, -500), "refused", "Access/permission denied")])
    assert journal.priorities() == before
    assert [line["event"] for line in journal.lines()] == ["override", "outcome"]


def test_levers__no_file_is_no_levers(journal):
    """A journal that was never written is empty."""
    assert journal.priorities() == ()


@given(cut=st.integers(0, 400))
def test_levers__any_cut_leaves_a_readable_prefix(tmp_path_factory, cut):
    """A crash may cut the file anywhere: whole lines before the cut are known, the torn one is left out."""
    journal = OverrideLog(tmp_path_factory.mktemp("j") / "j.jsonl", clock=lambda: 0.0)
    journal.intend("a", [nice(job, -job) for job in (1, 2, 3)])
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole[:cut])
    newlines = whole[:cut].count(b"\n")
    found = [each.job_id for each in journal.priorities()]
    assert found[:newlines] == [1, 2, 3][:newlines]
    assert len(found) <= newlines + 1  # a line that lacks only its newline may count


@given(cut=st.integers(0, 400))
def test_intend__after_any_cut_starts_a_line_of_its_own(tmp_path_factory, cut):
    """The torn end of a crash is cut off before the next line is added."""
    journal = OverrideLog(tmp_path_factory.mktemp("j") / "j.jsonl", clock=lambda: 0.0)
    journal.intend("a", [nice(job, -job) for job in (1, 2, 3)])
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole[:cut])
    journal.intend("b", [nice(9, -9)])
    assert [each.job_id for each in journal.priorities()] == [*[1, 2, 3][: whole[:cut].count(b"\n")], 9]


def test_levers__zeros_after_a_power_cut_are_a_torn_line(journal):
    """A file system may leave a block of zero bytes at the end."""
    journal.intend("a", [nice(7, -500)])
    with journal.path.open("ab") as file:
        file.write(bytes(4096))
    assert [each.job_id for each in journal.priorities()] == [7]


@pytest.mark.parametrize("bad", [b"not json\n", b"{}\n", b"[1]\n", b'{"event":"override","job_id":"7"}\n', b"\n"])
def test_levers__bad_line_raises_with_its_number_unless_lenient(journal, bad):
    """A line in the middle that is not ours is an error that names it; undo skips it."""
    journal.intend("a", [nice(7, -500)])
    with journal.path.open("ab") as file:
        file.write(bad)
    journal.intend("b", [nice(8, -200)])
    with pytest.raises(LedgerError, match=r"journal\.jsonl:2: "):
        journal.priorities()
    assert [each.job_id for each in journal.priorities(lenient=True)] == [7, 8]


def test_levers__lenient_tells_of_all_bad_lines_at_once(journal, monkeypatch):
    """A damaged stretch of a disk is thousands of lines."""
    journal.intend("a", [nice(7, -500)])
    with journal.path.open("ab") as file:
        file.write(b"x\n" * 1000)
    told = []
    monkeypatch.setattr(Log, "warning", lambda _, event, **values: told.append((event, values)))
    journal.priorities(lenient=True)
    assert told == [("journal.lines_skipped", {"path": str(journal.path), "lines": 1000, "first": 2})]


def test_intend__full_disk_raises_and_leaves_the_file_as_it_was(journal, monkeypatch):
    """No room: LedgerError, and no half line stays."""
    journal.intend("a", [nice(7, -500)])
    before, write = journal.path.read_bytes(), os.write
    room = [20, 0]  # bytes that the first and the second call still find

    def full(fd: int, blob: bytes) -> int:
        if not (free := room.pop(0)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, bytes(blob)[:free])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(LedgerError, match="No space left"):
        journal.intend("b", [nice(8, -200)])
    assert journal.path.read_bytes() == before


def test_intend__folder_that_cannot_be_made_raises(tmp_path):
    """A path under a file cannot be written: LedgerError that names it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match=r"file/j\.jsonl: the journal cannot be written"):
        OverrideLog(tmp_path / "file" / "j.jsonl").intend("a", [nice(7, 1)])


def test_failed__tells_who_may_where_rights_are_what_lacks(journal):
    """Who only looks is not told of what is sent."""
    said = str(LineFile(journal.path, lambda line: True).failed("read", PermissionError(13, "Permission denied")))
    folder = journal.path.parent.parent  # the nearest there is
    assert f"Permission denied; run it as {owner(folder)}, who owns {folder}, or see ledger.journal" in said
    assert "sent to Slurm" not in said


def test_compact__keeps_only_jobs_in_the_queue(journal):
    """Lines of jobs that left go, intentions and outcomes; the others stay in their order."""
    journal.intend("a", [nice(7, -500), nice(8, -200)])
    journal.outcome("a", [Outcome(nice(8, -200), "written")])
    journal.intend("b", [nice(7, -600)])
    mode = journal.path.stat().st_mode
    assert journal.compact([7]) == 2
    assert [line["sent"] for line in journal.lines()] == [-500, -600]
    assert journal.path.stat().st_mode == mode
    assert os.listdir(journal.path.parent) == [journal.path.name]  # noqa: PTH208 - names, hidden ones too


def test_compact__failure_leaves_the_old_file(journal, monkeypatch):
    """The file is replaced in one step or not at all, and nothing is left beside it."""
    journal.intend("a", [nice(7, -500), nice(8, -200)])
    before = journal.path.read_bytes()

    def broken(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(LedgerError, match="rewritten"):
        journal.compact([7])
    assert journal.path.read_bytes() == before
    assert os.listdir(journal.path.parent) == [journal.path.name]  # noqa: PTH208


def broken_between(journal: OverrideLog) -> None:
    """Two levers with a line between them that nobody can read."""
    journal.intend("a", [nice(7, -500)])
    with journal.path.open("ab") as file:
        file.write(b"broken\n")
    journal.intend("b", [nice(8, -200)])


def test_compact__bad_line_is_kept_beside_the_journal(journal, monkeypatch):
    """It stops nothing, is told once, and is not thrown away."""
    told: list[str] = []
    monkeypatch.setattr(Log, "warning", lambda _, event, **values: told.append(event))
    broken_between(journal)
    assert (journal.compact([8]), journal.compact([8])) == (1, 0)
    assert [each.job_id for each in journal.priorities()] == [8]
    bad = journal.path.with_name("journal.jsonl.bad")
    assert (bad.read_bytes(), bad.stat().st_mode & 0o777) == (b"broken\n", 0o640)
    assert told == ["journal.lines_set_aside"]


def test_compact__of_no_job_only_sets_bad_lines_aside(journal):
    """A second one is added to the first."""
    broken_between(journal)
    journal.compact()
    with journal.path.open("ab") as file:
        file.write(b"{}\n")
    journal.compact()
    assert [each.job_id for each in journal.priorities()] == [7, 8]
    assert journal.path.with_name("journal.jsonl.bad").read_bytes() == b"broken\n{}\n"


def test_compact__bad_line_that_cannot_be_kept_stays(journal):
    """Nothing is thrown away unread."""
    broken_between(journal)
    journal.path.with_name("journal.jsonl.bad").mkdir()
    before = journal.path.read_bytes()
    with pytest.raises(LedgerError, match="rewritten"):
        journal.compact([])
    assert journal.path.read_bytes() == before


@pytest.mark.parametrize("submit_s", [float("nan"), float("inf")])
def test_intend__refuses_a_job_without_submit_time(journal, submit_s):
    """Its line could not be read again; nothing of the call is put on disk."""
    with pytest.raises(LedgerError, match="job 8 has no submit time"):
        journal.intend("a", [nice(7, -500), nice(8, -200, submit_s=submit_s)])
    assert journal.priorities() == ()


def test_by_job__joins_the_submit_times_of_a_requeued_job(journal):
    """A requeue moves the submit time and keeps the lever: values of both times are ours, base is the later one's."""
    journal.intend("a", [nice(7, -500, base=3)])
    journal.intend("b", [nice(7, -900, base=4, submit_s=200.0)])
    expected = {7: Override(7, 200.0, "nice", 4, -900, values=(-500, -900))}
    assert records_by_job(journal.priorities(), "nice") == expected


def test_by_job__keeps_levers_apart(journal):
    """A site that changed from one lever to the other has both to undo."""
    journal.intend("a", [nice(7, -500), SetSiteFactor(7, 100.0, "", 0, 900, 0)])
    assert records_by_job(journal.priorities(), "nice")[7].values == (-500,)
    assert records_by_job(journal.priorities(), "site_factor")[7].values == (900,)


LIST = Override(7, 0.0, "node_list", "n[1-4]", "n1", values=("n1",), since_s=900.0)
START = Override(8, 0.0, "start_time", 0.0, 2_000.0, values=(1_500.0,))


def test_known__the_last_record_of_each_job_and_field_counts(journal):
    """As it was put there, whatever nice and site factor the job got in between."""
    journal.record([LIST, START])
    journal.intend("a", [nice(7, -500)])
    back = LIST.closed("its node is no longer free", abandoned=True)
    journal.record([back])
    assert journal.known() == {LIST.key: back, START.key: START}
    assert [each.field for each in journal.priorities()] == ["nice"]


def test_known__a_line_that_cannot_be_read_is_an_error(journal):
    """Nothing is given or taken back on doubt."""
    journal.record([LIST])
    with journal.path.open("ab") as file:
        file.write(b'{"event":"override","field":"start_time","job_id":8}\n')
    with pytest.raises(LedgerError, match=r"journal\.jsonl:2: not a line of the journal"):
        journal.known()


def test_known__does_not_read_what_only_a_cut_cycle_needs(journal, monkeypatch):
    """Nearly all lines are of nice and site factor."""
    journal.intend("a", [nice(7, -500), SetSiteFactor(8, 100.0, "", 0, 900, 0)])
    journal.outcome("a", [Outcome(nice(7, -500), "written")])
    journal.record([START])
    parsed = []
    whole = journal._parsed
    monkeypatch.setattr(journal, "_parsed", lambda raw: parsed.append(raw) or whole(raw))
    assert list(journal.known()) == [START.key]
    assert len(parsed) == 1


def test_compact__drops_what_a_later_record_replaces(journal):
    """Of nice and site factor every value stays, as undo needs them all."""
    journal.record([LIST])
    journal.intend("a", [nice(7, -500)])
    journal.intend("b", [nice(7, -600)])
    journal.record([replace(LIST, sent="n2", values=("n1", "n2"))])
    assert journal.compact([7]) == 1
    assert [line["sent"] for line in journal.lines()] == [-500, -600, "n2"]

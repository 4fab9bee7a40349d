"""A site's history, pulled from a sacct that is a script of ours."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pytest

from slurmsched import paths
from slurmsched.errors import InputError, SlurmError
from slurmsched.slurm.accounting_archive import AccountingArchive
from slurmsched.slurm.commands import Commands

MIDNIGHT = 1_758_844_800  # 2025-09-26 00:00 UTC
SCRIPT = """#!/usr/bin/env python3
import sys
if "--helpformat" in sys.argv:
    print("Account AllocTRES End JobID JobIDRaw JobName Start State Submit User")
    sys.exit()
open({log!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
options = dict(word.lstrip("-").partition("=")[::2] for word in sys.argv[1:])
rows = [  # submit, start, end, state; all overlap both days
    ("1", {m} - 50, {m} + 100, {m} + 86_300, "COMPLETED"),
    ("2", {m} + 10, {m} + 200, {m} + 86_400, "COMPLETED"),
    ("3", {m} + 10, {m} + 200, "Unknown", "RUNNING"),
    ("4", {m} + 10, {m} + 300, {m} + 500, "REQUEUED"),
    ("4", {m} + 600, {m} + 90_000, {m} + 90_100, "COMPLETED"),
]
for job, submit, start, end, state in rows:
    known = dict(JobID=job, JobIDRaw=job, User="ann", Account="x", State=state, Submit=submit, Start=start, End=end,
                 AllocTRES="gres/gpu=2", JobName="a|b")
    print(options["delimiter"].join(str(known[name]) for name in options["format"].split(",")))
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with such a sacct."""
    sacct = tmp_path / "sacct"
    sacct.write_text(SCRIPT.format(m=MIDNIGHT, log=str(tmp_path / "calls")))
    sacct.chmod(0o755)
    return tmp_path


def pull(site: Path, until: date = date(2025, 9, 28), waits: list[float] | None = None) -> AccountingArchive:
    slept = waits if waits is not None else []
    return AccountingArchive(Commands(str(site)), site / "days", date(2025, 9, 26), until, 0.25, slept.append)


def test_pull__gives_each_run_once(site: Path) -> None:
    """sacct shows every run on both days; each counts on the day it ended; the requeued job's two runs join."""
    made = pull(site)
    assert list(made.run()) == [date(2025, 9, 26), date(2025, 9, 27)]
    recorded = made.trace(strict=True)
    assert recorded.trace.job_id.tolist() == [1, 2, 4]
    assert recorded.trace.duration_s.tolist() == [86_200, 86_200, 200 + 100]
    assert (recorded.trace.requeues.tolist(), recorded.trace.name[0]) == ([0, 0, 1], "a|b")


def test_pull__reads_names_with_line_breaks(site: Path) -> None:
    """Their further lines go with their row to its day, and no row is counted as unreadable."""
    (site / "sacct").write_text((site / "sacct").read_text().replace("a|b", "a\\nb"))
    made = pull(site)
    list(made.run())
    recorded = made.trace(strict=True)
    assert (recorded.trace.job_id.tolist(), recorded.warnings) == ([1, 2, 4], ())


def test_pull__names_a_damaged_day(site: Path) -> None:
    """And what to do: without its file the next pull asks for it again."""
    made = pull(site)
    list(made.run())
    day = site / "days" / "2025-09-27.rows.gz"
    for content in (b"broken", b"", day.read_bytes()[:-9]):
        day.write_bytes(content)
        with pytest.raises(InputError, match=r"2025-09-27\.rows\.gz: is damaged .*remove it"):
            made.trace()
    day.unlink()
    list(made.run())
    assert len(made.trace().trace) == 3
    assert sorted(path.name for path in (site / "days").iterdir()) == [
        "2025-09-26.rows.gz", "2025-09-27.rows.gz", "fields",
    ]  # fmt: skip


def test_pull__goes_on_where_it_was_and_pauses(site: Path) -> None:
    """One call a day, a pause before each but the first; days that are there are not asked again."""
    waits: list[float] = []
    list(pull(site, date(2025, 9, 27), waits).run())
    list(pull(site, date(2025, 9, 28), waits).run())
    calls = (site / "calls").read_text().splitlines()
    assert [call.partition("--starttime=")[2][:10] for call in calls] == ["2025-09-26", "2025-09-27"]
    list(pull(site, date(2025, 9, 30), waits).run())
    assert [wait >= 0.25 for wait in waits[2:]] == [False, True] == [wait > 0 for wait in waits[2:]]


def test_pull__asks_again_for_a_day_that_was_not_over(site: Path) -> None:
    """Its later runs would be missing for good."""
    list(pull(site, date(2025, 9, 28)).run())
    noon = MIDNIGHT + 86_400 + 43_200
    os.utime(site / "days" / "2025-09-27.rows.gz", (noon, noon))
    list(pull(site, date(2025, 9, 28)).run())
    calls = (site / "calls").read_text().splitlines()
    asked = [call.partition("--starttime=")[2][:10] for call in calls]
    assert asked == ["2025-09-26", "2025-09-27", "2025-09-27"]


def test_pull__asks_for_what_this_sacct_knows(site: Path) -> None:
    """Read only, all users, every run, no steps; fields an older sacct lacks are left out."""
    list(pull(site).run())
    call = (site / "calls").read_text().splitlines()[0]
    assert call.startswith("--allocations --duplicates --allusers --parsable2 --noheader")
    assert call.partition("--format=")[2] == "JobID,JobIDRaw,User,Account,State,Submit,Start,End,AllocTRES,JobName"


def test_pull__keeps_the_days_before_an_error(site: Path) -> None:
    """When accounting fails later, the days pulled stay, and no half day is left."""
    steps = pull(site).run()
    next(steps)
    (site / "sacct").write_text("#!/bin/sh\necho 'sacct: error: no' >&2\nexit 1\n")
    with pytest.raises(SlurmError, match="no"):
        next(steps)
    assert sorted(path.name for path in (site / "days").iterdir()) == ["2025-09-26.rows.gz", "fields"]


def test_pull__says_that_slurm_keeps_no_history(site: Path) -> None:
    """And which setting would."""
    (site / "sacct").write_text("#!/bin/sh\ncase $1 in --h*) echo State End;; *) echo 'Slurm accounting storage is "
                                "disabled' >&2; exit 1;; esac\n")  # fmt: skip
    with pytest.raises(SlurmError, match=r"keeps no history.*AccountingStorageType=accounting_storage/slurmdbd"):
        list(pull(site).run())


def test_pull__refuses_an_empty_span(site: Path) -> None:
    """Since must be before until."""
    with pytest.raises(InputError, match="--since must be earlier"):
        pull(site, date(2025, 9, 26))


def test_trace__of_days_without_jobs_names_the_days(site: Path) -> None:
    """Not a file that is gone by then; where accounting is a day old, today is the day that --until leaves out."""
    quiet = AccountingArchive(
        Commands(str(site)), site / "quiet", date(2025, 9, 20), date(2025, 9, 22), 0.0, lambda _: None
    )
    list(quiet.run())
    said = r"^accounting, 2025-09-20 to 2025-09-21 \(UTC\): holds no GPU job that ran"
    with pytest.raises(InputError, match=said):
        quiet.trace()


@pytest.mark.parametrize("name", [".fields.aa.new", ".2025-09-26.rows.gz.aa.new", ".all.aa.sacct.gz"])
def test_pull__writes_through_no_link(site: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Even where somebody guessed a draft's name, which is a random one."""
    (site / "days").mkdir()
    monkeypatch.setattr(paths.secrets, "token_hex", lambda _: "aa")
    (site / "kept").write_text("kept")
    (site / "days" / name).symlink_to(site / "kept")
    with pytest.raises(InputError, match="File exists"):
        list(pull(site).run())
        pull(site).trace()
    assert (site / "kept").read_text() == "kept"

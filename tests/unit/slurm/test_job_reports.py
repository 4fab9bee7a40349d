"""What jobs tell in a shared folder: what counts of it, and that nothing in there does harm."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from slurmsched.errors import InputError
from slurmsched.model.hints import parse_hints
from slurmsched.model.plan import AskSize
from slurmsched.model.snapshot import Snapshot
from slurmsched.slurm.job_reports import (
    ReportReader,
    RunningJobRequest,
    ask_size,
    forget_job_requests,
    read_job_request,
    write_job_requests,
)
from slurmsched.slurm.writer import CommandWriter
from slurmsched.testing.builders import snapshot as made

ME = os.getuid()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("reports", "wants"):
        (tmp_path / name).mkdir()
    return tmp_path


def queue(*jobs: dict) -> Snapshot:
    """Jobs that run since 1000 s ago, unless they say something else."""
    common = {"user": "ann", "state": "R", "gpus": 2, "start_s": 0.0, "submit_s": 0.0}
    return made(jobs=[common | job for job in jobs], now_s=1_000.0)


def test_reports__take_the_place_of_the_comment_of_what_runs(folder: Path) -> None:
    """Its own hints stay but for those it told; a job that waits for the first time tells nothing."""
    for job in (1, 2):
        (folder / "reports" / str(job)).write_text(
            "time=5 progress=30/90 throughput=512 min_gpus=7 batch=x\nloss=1:1:1\n"
        )
    seen = queue({"job_id": 1, "comment": "mine slurmsched: dur=2h progress=1/90"}, {"job_id": 2, "state": "PD"})
    after = ReportReader(folder, lambda user: ME)(seen)
    hints = parse_hints(after.jobs.comment[0])
    assert (hints.dur_s, hints.progress, hints.throughput) == (7_200.0, 1 / 3, 512.0)
    assert (hints.min_gpus, hints.batch, hints.loss, hints.warnings, after.warnings) == (None, None, None, (), ())
    assert after.jobs.comment[1] == ""


def test_reports__older_than_the_run_keep_what_a_checkpoint_keeps(folder: Path) -> None:
    """Of a run before the progress stays, the speed does not; of another job under the same id nothing does."""
    for job in (1, 2, 3, 4):
        (path := folder / "reports" / str(job)).write_text("progress=1/2 throughput=9")
        os.utime(path, (100.0, 100.0))
    again, other = {"start_s": 500.0, "restarts": 1}, {"start_s": 500.0}
    waits = {"state": "PD", "restarts": 1, "submit_s": 400.0, "first_submit_s": 0.0}
    reused = {"start_s": 500.0, "restarts": 1, "first_submit_s": 400.0}
    after = ReportReader(folder, lambda user: ME)(
        queue({"job_id": 1, **again}, {"job_id": 2, **other}, {"job_id": 3, **waits}, {"job_id": 4, **reused})
    )
    assert list(after.jobs.comment) == ["slurmsched: progress=1/2", "", "slurmsched: progress=1/2", ""]


@pytest.mark.parametrize("kind", ["link", "fifo", "huge", "hard link", "folder", "foreign", "nobody"])
def test_reports__hostile_files_do_no_harm(folder: Path, kind: str) -> None:
    """Nothing is followed, waited for or read in whole; what is wrong is told, of a nobody nothing."""
    path, secret = folder / "reports" / "1", folder / "secret"
    secret.write_text("progress=1/2")
    {"link": lambda: path.symlink_to(secret), "fifo": lambda: os.mkfifo(path), "folder": path.mkdir,
     "huge": lambda: path.write_bytes(b"progress=1/2 " * 100_000), "hard link": lambda: path.hardlink_to(secret),
     }.get(kind, lambda: path.write_text("progress=1/2"))()  # fmt: skip
    uid = {"foreign": ME + 1, "nobody": -1}.get(kind, ME)
    after = ReportReader(folder, lambda user: uid)(queue({"job_id": 1}))
    assert list(after.jobs.comment) == [""]
    assert [text.partition(" job 1 ")[0] for text in after.warnings] == ([] if kind == "nobody" else ["the report of"])


def test_reports__of_any_bytes_have_words_or_none(folder: Path) -> None:
    """Control characters, NULs and other alphabets are no values."""
    (folder / "reports" / "1").write_bytes(b"\x00\x1b[2Jprogress=1/2\xff\xfe slurmsched: loss=3:2:1 metric=\xd9\xa1")
    (folder / "reports" / "2").write_bytes(b"metric=nan noise=1e999 throughput=-1 progress=9/2 \x1b]0;x\x07")
    after = ReportReader(folder, lambda user: ME)(queue({"job_id": 1}, {"job_id": 2}))
    assert set("".join(after.jobs.comment)) <= set("slurmched: progtiaw=0123456789/.-e")
    assert list(after.jobs.comment)[1] == ""


def test_reports__beyond_the_time_of_a_cycle_come_first_in_the_next(folder: Path) -> None:
    """And what was read before still counts."""
    for job in (1, 2, 3):
        (folder / "reports" / str(job)).write_text(f"progress={job}/9")
    times = iter([0.0, 9.0, 0.0, 1.0, 9.0])
    reader, seen = (
        ReportReader(folder, lambda user: ME, lambda: next(times)),
        queue(*({"job_id": job} for job in (1, 2, 3))),
    )
    told = [[parse_hints(text).progress is not None for text in reader(seen).jobs.comment] for _ in range(2)]
    assert told == [[True, False, False], [True, True, True]]


def test_reports__of_a_folder_that_is_away_are_a_warning(tmp_path: Path) -> None:
    """The cycle goes on without them."""
    after = ReportReader(tmp_path, lambda user: ME)(queue({"job_id": 1}))
    assert len(after.warnings) == 1 and "cannot be read" in after.warnings[0]


def test_wants__of_another_size_are_of_one_run_and_change_alone(folder: Path) -> None:
    """What else a job is asked for stays. The next run is not asked, while it waits for that it still counts. Files of
    jobs that are gone go."""
    stays, left, back = {"job_id": 1}, {"job_id": 2, "state": "PD", "restarts": 4}, {"job_id": 3, "restarts": 4}
    write_job_requests(folder, {1: RunningJobRequest(4, 1_000, True), 9: RunningJobRequest(stop=True)})
    for job, size, run in ((1, 8, 0), (2, 8, 3), (3, 8, 3)):
        ask_size(folder, AskSize(job, 0.0, "", "", size, run))
    ask_size(None, AskSize(1, 0.0, "", "", 1))
    seen = queue(stays, left, back)
    assert ReportReader(folder, lambda user: ME)(seen).jobs.wanted_gpus.tolist() == [8, 8, 0]
    forget_job_requests(folder, seen.jobs)
    forget_job_requests(None, seen.jobs)
    assert sorted(path.name for path in (folder / "wants").iterdir()) == ["1", "2"]
    assert read_job_request(folder, 1) == RunningJobRequest(8, 1_000, True, 0)
    ask_size(folder, AskSize(1, 0.0, "", ""))
    assert read_job_request(folder, 1) == RunningJobRequest(0, 1_000, True)


def test_wants__one_bad_file_stops_no_other(folder: Path) -> None:
    """It asks for nothing, is told of and stays; a folder of reports that is away hides no size either."""
    (folder / "wants" / "1").write_text("gpus=two")
    (folder / "reports").rmdir()
    write_job_requests(folder, {2: RunningJobRequest(4), 9: RunningJobRequest(4)})
    after = ReportReader(folder, lambda user: ME)(seen := queue({"job_id": 1}, {"job_id": 2}))
    assert (after.jobs.wanted_gpus.tolist(), len(after.warnings)) == ([0, 4], 2)
    assert "wants/1" in after.warnings[0]
    forget_job_requests(folder, seen.jobs)
    asks = [AskSize(job, 0.0, "", "", 8) for job in (1, 2)]
    writer = CommandWriter(None, partial(ask_size, folder))  # type: ignore[arg-type]
    assert [writer._alone(each).status for each in asks] == ["refused", "written"]
    assert sorted(path.name for path in (folder / "wants").iterdir()) == ["1", "2"]


def test_wants__are_there_whole_or_gone(folder: Path) -> None:
    """As a shell reads them; one that wants nothing has no file."""
    write_job_requests(folder, {7: RunningJobRequest(4, 1_000, True), 8: RunningJobRequest()})
    assert (folder / "wants" / "7").read_text() == "gpus=4\ncheckpoint=1000\nstop=yes\n"
    assert read_job_request(folder, 7) == RunningJobRequest(4, 1_000, True)
    write_job_requests(folder, {7: RunningJobRequest()})
    assert ([*(folder / "wants").iterdir()], read_job_request(folder, 7)) == ([], RunningJobRequest())
    with pytest.raises(InputError, match="cannot be written"):
        write_job_requests(folder / "none", {7: RunningJobRequest(1)})

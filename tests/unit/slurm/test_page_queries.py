"""What pages ask Slurm about a job: in bounds, with the viewer's rights in mind, no further once Slurm is away."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmsched.config_file import parse_config
from slurmsched.model import Site
from slurmsched.model.job_details import JobDetails
from slurmsched.slurm.job_queries import NO_ANSWER_BEFORE, SLOW_BEFORE, PageQueries
from slurmsched.testing import snapshot

JOBS = [
    {"job_id": job, "name": "a", "partition": "gpu", "user": "ann", "account": "physics", "qos": "normal",
     "reason": "QOSMaxGRESPerUser"} for job in (7, 8, 9)
]  # fmt: skip
ANSWERS = """case "$3" in
job) echo "JobId=$4 JobName=a StartTime=1700000000" ;;
partition) echo "PartitionName=gpu AllowAccounts=secret AllowQos=ALL QoS=N/A MaxTime=1:00:00" ;;
assoc_mgr) echo "QOS=normal(1) MaxTRESPU=gres/gpu=2" ;;
esac"""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts may be slow to start."""
    monkeypatch.setattr("slurmsched.slurm.job_queries.PATIENCE_S", 25.0)
    monkeypatch.setattr("slurmsched.slurm.job_queries.PAGE_BUDGET_S", 100.0)


class Asking:
    """PageFacts with a script for scontrol. asked: its calls so far."""

    def __init__(self, folder: Path, body: str = ANSWERS, most: int = 5, **settings: str) -> None:
        self._calls = folder / "calls"
        script = folder / "scontrol"
        script.write_text(f'#!/bin/sh\necho "$3" >> {self._calls}\n{body}\n')
        script.chmod(0o755)
        tree = parse_config({"slurm": {"bin_dir": str(folder), "timeout_s": 30.0}})
        self.shown = snapshot(JOBS, "1x8", site=Site(settings=settings))
        self.details = PageQueries(tree.slurm, self.shown, most)

    def __call__(self, row: int) -> JobDetails:
        return self.details(row)

    @property
    def asked(self) -> list[str]:
        return self._calls.read_text().split() if self._calls.exists() else []


def test_page_details__are_those_of_explain(tmp_path) -> None:
    """Limits with the job's record and partition; reservations are the snapshot's, not asked for."""
    asking = Asking(tmp_path)
    told = asking(0)
    assert ("MaxTRESPU=gres/gpu=2" in told.limits, told.partitions["gpu"]["MaxTime"]) == (True, "1:00:00")
    assert (told.start_s, told.unread) == (1_700_000_000.0, ())
    assert told.reservations is asking.shown.reservations
    assert asking.asked == ["job", "partition", "assoc_mgr"]


@pytest.mark.parametrize("private", ["accounts", "usage", "USERS,jobs", "all"])
def test_page_details__leave_out_limits_that_slurm_hides(tmp_path, private: str) -> None:
    """Nobody knows who looks; the daemon's own rights are not theirs. The rest is told."""
    asking = Asking(tmp_path, PrivateData=private)
    told = asking(0)
    assert (told.limits, "PrivateData" in told.unread[0]) == ("", True)
    assert asking.asked == ["job", "partition"]
    assert "secret" not in str(told.partitions)


@pytest.mark.parametrize(("private", "limits"), [("partitions", True), ("all", False), ("jobs,Partitions", True)])
def test_page_details__leave_out_partitions_that_slurm_hides(tmp_path, private: str, limits: bool) -> None:
    """Their limits and state; that they were left out is said."""
    told = Asking(tmp_path, PrivateData=private)(0)
    assert (told.partitions, bool(told.limits)) == ({}, limits)
    assert told.unread[-1].startswith("its partition: PrivateData hides")


def test_page_details__ask_once_what_is_the_same_for_all_jobs(tmp_path) -> None:
    """Partitions, for all jobs of a snapshot and in one request, however many a job names."""
    asking = Asking(tmp_path)
    assert [asking(row).partitions["gpu"]["MaxTime"] for row in range(3)] == ["1:00:00"] * 3
    assert sorted(asking.asked) == ["assoc_mgr"] * 3 + ["job"] * 3 + ["partition"]


def test_page_details__of_one_job_are_not_gathered_for_long(tmp_path, monkeypatch) -> None:
    """Answers that each come in time do not add up beyond a look's own limit."""
    asking = Asking(tmp_path)
    monkeypatch.setattr("slurmsched.slurm.job_queries.PAGE_BUDGET_S", 0.0)
    told = asking(0)
    assert (asking.asked, {SLOW_BEFORE in text for text in told.unread}, len(told.unread)) == ([], {True}, 3)


def test_page_details__ask_about_so_many_jobs(tmp_path) -> None:
    """And say so of the next."""
    asking = Asking(tmp_path, most=2)
    assert [bool(asking(row).record) for row in range(3)] == [True, True, False]
    before = asking.asked
    assert "about 2 jobs" in asking(2).unread[0]
    assert asking.asked == before


def test_page_details__nothing_more_once_slurm_is_away(tmp_path) -> None:
    """The first question costs its wait; no other one is put, for this job or the next."""
    asking = Asking(tmp_path, 'echo "Unable to contact slurm controller" >&2; exit 1')
    told = asking(0)
    assert (told.limits, "is slurmctld up" in told.unread[0], asking.asked) == ("", True, ["job"])
    assert all(NO_ANSWER_BEFORE in text for text in (*told.unread[1:], *asking(1).unread))
    assert asking.asked == ["job"]


def test_page_details__an_answer_of_no_hides_no_other(tmp_path) -> None:
    """A job that is gone is no sign that Slurm is."""
    told = Asking(tmp_path, f'[ "$3" != job ] || {{ echo "Invalid job id specified" >&2; exit 1; }}\n{ANSWERS}')(0)
    assert (bool(told.limits), len(told.unread), "Invalid job id" in told.unread[0]) == (True, 1, True)


def test_page_details__are_not_waited_for_long(tmp_path, monkeypatch) -> None:
    """However long a cycle would wait."""
    monkeypatch.setattr("slurmsched.slurm.job_queries.PATIENCE_S", 0.2)
    asking = Asking(tmp_path, "exec sleep 60")
    assert "no answer within 0.2 s" in asking(0).unread[0]

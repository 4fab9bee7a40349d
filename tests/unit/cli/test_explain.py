"""`explain` on a cluster of three jobs: what it prints, for the Operator and for users, and how it fails."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from slurmsched.config_file import parse_config
from slurmsched.daemon import job_explanation
from slurmsched.db import job_history
from slurmsched.errors import SlurmError
from slurmsched.model import JobState, Past
from slurmsched.model.job_details import HistoryRow, JobDetails
from slurmsched.slurm import accounted_history
from slurmsched.slurm.accounted_history import BY_ACCOUNTING
from slurmsched.slurm.commands import Commands
from tests.unit.cli.conftest import make_snapshot

WROTE = HistoryRow(1.0, "slurmsched (las)", "nice 0 -> 5", "rank 2", "written")


@pytest.fixture
def asked(fakes, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Slurm without commands: one fact is unread, one write is on record. Notes how facts were asked."""
    calls: list[bool] = []

    def details(commands: object, snapshot: object, row: int, *, no_limits: str = "") -> JobDetails:
        calls.append(bool(no_limits))
        return JobDetails(unread=("licences: away",))

    def nobody(self: Commands, *words: str, **options: str) -> str:
        raise SlurmError("no such job")

    monkeypatch.setattr(job_explanation, "read_details", details)
    monkeypatch.setattr(job_explanation, "read_standing", lambda commands, snapshot, row, known: known)
    monkeypatch.setattr(Commands, "run", nobody)
    monkeypatch.setattr(Commands, "begin", lambda *_: None)
    monkeypatch.setattr(job_explanation, "read_cluster_once", lambda tree, **_: make_snapshot())
    monkeypatch.setattr(job_history, "_recorded", lambda *_: ([WROTE], (), []))
    return calls


def test_explain__prints_blocker_rank_and_what_was_done(run, asked) -> None:
    """One line a fact, what is not known included."""
    told = run("explain", "11")
    assert told.code == 0
    lines = dict(line.split(maxsplit=1) for line in told.out.splitlines())
    assert lines["job"].startswith("11 of ann: PENDING, not-tried")
    assert lines["ahead"].startswith("rank 2 of 2 by the policy's order")
    assert lines["before"].startswith("it  job 12 of bob, 1 GPU: queue 0")
    assert lines["start"].startswith("no estimate: no past waits are known")
    assert "nice 0 -> 5" in lines["slurmsched"]
    assert lines["not"] == "read   licences: away"


def test_explain__as_user_asks_less_and_says_so(run, asked) -> None:
    """Slurm's priority makes the order; the ledger is not touched."""
    told = json.loads(run("explain", "12", "--as-user", "--json").out)["explanation"]
    assert asked == [True]
    assert (told["ahead"]["by"], told["ahead"]["rank"], told["ours"]) == ("priority", 2, [])
    assert any("--as-user" in line for line in told["unread"])


def test_explain__why_not_tells_one_node(run, asked) -> None:
    """Beside the explanation; a node that is not there is an error."""
    assert "has 8 GPUs" not in run("explain", "11", "--why-not", "n2").out
    assert run("explain", "11", "--why-not", "n2").out.splitlines()[-1].startswith("on n2")
    assert (run("explain", "11", "--why-not", "n9").code, run("explain", "99").code) == (2, 2)


def test_explain__hostile_names_are_shown_as_escapes(run, asked, fakes) -> None:
    """A user's comment and Slurm's reason are text of others."""
    cluster, _ = fakes
    jobs = cluster.snapshot.jobs
    cluster.snapshot = replace(cluster.snapshot, jobs=jobs.with_columns(reason=["\x1b[31mRed", "", ""]))
    assert "\x1b" not in run("explain", "11").out


def test_explain__tells_what_the_expected_run_time_is_made_of(run, asked, fakes, site) -> None:
    """Under lucid: ann's jobs took 1 h and bob's 60 s; without a past, and as a user, nothing of it."""
    site.write_text(site.read_text().replace('"discretized-las"\nthresholds_gpu_s = [3600.0]', '"lucid"'))
    assert not [line for line in run("explain", "11").out.splitlines() if line.startswith("expected")]
    cluster, _ = fakes
    rows = 400
    ended = Past.build(rows, {"user": ["ann", "bob"] * (rows // 2), "account": ["physics", "biology"] * (rows // 2),
                              "gpus": [4] * rows, "executed_s": [3_600.0, 60.0] * (rows // 2),
                              "submit_s": [1_000.0] * rows, "end_s": [9_000.0] * rows})  # fmt: skip
    cluster.snapshot = replace(cluster.snapshot, past=ended)
    lines = [line for line in run("explain", "11").out.splitlines() if line.startswith("expected")]
    assert (len(lines), lines[0].endswith("times the factors below")) == (6, True)
    told = json.loads(run("explain", "12", "--json").out)["explanation"]["expected"]
    assert told[0].startswith(("run time 00:01:00", "run time 60 s", "run time 59 s"))
    assert any(line.endswith("for GPUs: 1") for line in told)
    assert json.loads(run("explain", "12", "--as-user", "--json").out)["explanation"]["expected"] == []


@pytest.mark.parametrize(
    ("job", "told"), [("12_3", "squeue -h -o %A"), ("12+1", "sacct"), ("0", "one number"), ("x", "one")]
)
@pytest.mark.parametrize("words", [("history",), ("advise", "--job")])
def test_history__takes_no_task_for_another_job(run, asked, words, job, told) -> None:
    """12_3 is no job 123, which Python's own numbers say; the message tells how to find the record's id."""
    done = run(*words, job)
    assert (done.code, told in done.err, f"{job!r} is not a job id" in done.err) == (2, True, True)


def test_history__says_that_not_all_could_be_read(run, fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """ "Nothing on record" alone would be taken for the whole truth; so would the exit code of an answer."""
    monkeypatch.setattr(job_history, "history_of_job", lambda *_: ([], ["the ledger: away"]))
    done = run("history", "12")
    assert (done.code, done.out.splitlines()) == (4, [
        "nothing is on record of job 12 in what could be read", "not read: the ledger: away",
    ])  # fmt: skip


def test_history__of_a_job_without_any_is_a_negative_answer(run, fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not an error, and not a success either."""
    monkeypatch.setattr(job_history, "history_of_job", lambda *_: ([], []))
    assert (run("history", "12").code, run("history", "12", "--json").code) == (10, 10)


def test_history__of_a_user_without_rights_is_that_of_accounting(run, fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so. Where accounting is away too, that is an outage, and both reasons are told."""
    monkeypatch.setattr(accounted_history, "may_read_ledger", lambda _: False)
    monkeypatch.setattr(accounted_history, "accounted_history", lambda *_: [WROTE])
    done = run("history", "12", "--json")
    assert (done.code, json.loads(done.out)["history"], json.loads(done.out)["notes"]) == (
        0,
        [asdict(WROTE)],
        [BY_ACCOUNTING],
    )

    def away(*_: object) -> None:
        raise SlurmError("sacct: refused")

    monkeypatch.setattr(accounted_history, "accounted_history", away)
    done = run("history", "12")
    assert (done.code, "closed to you" in done.err, "sacct: refused" in done.err) == (3, True, True)


@pytest.mark.parametrize("closed", ["a", "b"])
def test_may_read__is_told_by_journal_and_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: str) -> None:
    """Files that are not there yet hide nothing from who may make them; a closed folder or file does."""
    names = {"journal": str(tmp_path / "a" / "journal.jsonl"), "url": f"sqlite:///{tmp_path}/b/ledger.db"}
    tree, true_stat = parse_config({"ledger": names}), Path.stat

    def stat(path: Path, **options: bool) -> os.stat_result:
        if path.parent.name == closed:
            raise PermissionError
        return true_stat(path, **options)

    assert not accounted_history.may_read_ledger(tree)  # as on a login node
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert accounted_history.may_read_ledger(tree)
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
        assert not accounted_history.may_read_ledger(tree)
    with monkeypatch.context() as patch:  # root may read all
        patch.setattr(Path, "stat", stat)
        assert not accounted_history.may_read_ledger(tree)
    (tmp_path / closed / ("journal.jsonl" if closed == "a" else "ledger.db")).touch()
    monkeypatch.setattr(os, "access", lambda path, _: path.parent.name != closed)
    assert not accounted_history.may_read_ledger(tree)


def test_explain__reads_the_use_of_a_running_job(run, asked, fakes, tmp_path) -> None:
    """From the source of the configuration, where cycles do not read it."""
    cluster, _ = fakes
    state = [int(JobState.RUNNING), *cluster.snapshot.jobs.state[1:].tolist()]
    jobs = cluster.snapshot.jobs.with_columns(state=state)
    cluster.snapshot = replace(cluster.snapshot, jobs=jobs)
    job, gpus = int(jobs.job_id[0]), int(jobs.gpus[0])
    rows = "".join(f"{job},{gpu},{80 if gpu == 0 else 0}\n" for gpu in range(gpus))
    (use := tmp_path / "use.csv").write_text(f"job_id,gpu,use_pct\n{rows}")
    (config := tmp_path / "site.toml").write_text(f'[measured_use]\nsource = "file"\nfile = "{use}"\n')
    lines = run("--config", str(config), "explain", str(job)).out.splitlines()
    assert next(line for line in lines if line.startswith("GPUs")).startswith(f"GPUs       1 of {gpus} GPU")

"""`explain` on a cluster of three jobs: what it prints, for the Operator and for users, and how it fails."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from slurmsched.db import job_history
from slurmsched.errors import SlurmError
from slurmsched.explain.facts import Facts
from slurmsched.model import Past
from slurmsched.slurm import job_facts, look, reader
from slurmsched.slurm.commands import Commands
from tests.unit.cli.conftest import make_snapshot

WROTE = {"time_s": 1.0, "by": "slurmsched (las)", "what": "nice 0 -> 5", "reason": "rank 2", "outcome": "written"}


@pytest.fixture
def asked(fakes, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Slurm without commands: one fact is unread, one write is on record. Notes how facts were asked."""
    calls: list[bool] = []

    def facts(commands: object, snapshot: object, row: int, *, no_limits: str = "") -> Facts:
        calls.append(bool(no_limits))
        return Facts(unread=("licences: away",))

    def nobody(self: Commands, *words: str, **options: str) -> str:
        raise SlurmError("no such job")

    monkeypatch.setattr(job_facts, "read_facts", facts)
    monkeypatch.setattr(Commands, "run", nobody)
    monkeypatch.setattr(look, "look", lambda tree: make_snapshot())
    monkeypatch.setattr(job_history, "_recorded", lambda *_: ([WROTE], (), []))
    assert reader.open_commands
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
    assert (done.code, told in done.err, f"{job!r} is no job id" in done.err) == (2, True, True)


def test_history__says_that_not_all_could_be_read(run, fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """ "Nothing on record" alone would be taken for the whole truth."""
    monkeypatch.setattr(job_history, "history", lambda *_: ([], ["the ledger: away"]))
    assert run("history", "12").out.splitlines() == [
        "nothing is on record of job 12 in what could be read", "not read: the ledger: away",
    ]  # fmt: skip

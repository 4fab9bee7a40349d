"""`job wants` as it is typed."""

from __future__ import annotations

import json

import pytest

from slurmsched.db.signal_log import SignalLog
from tests.unit.observe.survey.survey_site import node, site

ELASTIC = {"user": "ann", "state": "R", "gpus": 4, "nodes": 1, "gpu_request": "gpu:4", "requeueable": True,
           "comment": "slurmsched: min_gpus=2 max_gpus=8"}  # fmt: skip
JOBS = (
    ELASTIC | {"job_id": 5, "restarts": 3},
    ELASTIC | {"job_id": 9, "array_job_id": 9},
    ELASTIC | {"job_id": 10, "requeueable": False},
    ELASTIC | {"job_id": 6, "comment": ""},
    ELASTIC | {"job_id": 11, "comment": "slurmsched: save=usr1", "submit_s": 900.0},
    ELASTIC | {"job_id": 12, "comment": "slurmsched: save=usr1", "array_job_id": 12},
    ELASTIC | {"job_id": 13, "comment": "slurmsched: save=usr1", "partition": "other"},
    {"job_id": 7, "user": "bob", "state": "PD", "gpus": 1},
)


@pytest.fixture
def config(monkeypatch, tmp_path):
    """A site with a folder for jobs."""
    from slurmsched.slurm import reader

    monkeypatch.setattr(reader, "read_cluster_once", lambda *_, **__: site((node("n1"),), JOBS))
    (tmp_path / "jobs" / "wants").mkdir(parents=True)
    (path := tmp_path / "site.toml").write_text(
        f'[lever]\nsize = true\n[scope]\npartitions = ["gpu"]\n[cycle]\nstop_file = "{tmp_path}/stop"\n'
        f'[ledger]\njournal = "{tmp_path}/state/journal.jsonl"\n'
        f'[job_reports]\nfolder = "{tmp_path}/jobs"\n'
    )
    return "--config", str(path)


def test_wants__adds_up_and_is_cleared(run, config, tmp_path):
    """What is asked is added to what was asked before; its JSON has the keys of docs/json.md."""
    assert run(*config, "job", "wants", "5").out == "job 5: nothing is wanted of it\n"
    assert run(*config, "job", "wants", "5", "--size", "2").out == "job 5: 2 GPUs\n"
    told = json.loads(run(*config, "job", "wants", "5", "--checkpoint", "--json").out)
    assert (told.pop("checkpoint_s") > 0, told) == (
        True,
        {"schema": "slurmsched/wants/1", "job_id": 5, "gpus": 2, "stop": False},
    )
    assert "gpus=2\nrun=3\ncheckpoint=" in (tmp_path / "jobs" / "wants" / "5").read_text()
    assert run(*config, "job", "wants", "5", "--clear", "--stop").out == "job 5: to stop\n"
    assert run(*config, "job", "wants", "5", "--clear").out == "job 5: nothing is wanted of it\n"
    assert not (tmp_path / "jobs" / "wants" / "5").exists()


@pytest.mark.parametrize(
    ("words", "fault"),
    [(("5", "--size", "1"), "allow 2 to 8"), (("5", "--size", "9"), "allow 2 to 8"),
     (("6", "--size", "1"), "allow ? to ?"), (("7", "--stop"), "job 7 is not running"),
     (("8", "--checkpoint"), "job 8 is not running"), (("9", "--size", "2"), "only an array as a whole"),
     (("10", "--size", "2"), "no batch job that Slurm may requeue"),
     (("12", "--checkpoint"), "its id for its whole array"), (("13", "--checkpoint"), "is not in scope")],
)  # fmt: skip
def test_wants__asks_no_job_for_what_it_cannot_do(run, config, tmp_path, words, fault):
    """Never below min_gpus; nothing is written."""
    said = run(*config, "job", "wants", *words)
    assert (said.code, fault in said.err, [*(tmp_path / "jobs" / "wants").iterdir()]) == (2, True, [])


def test_wants__needs_a_folder_and_for_a_size_the_lever(run, tmp_path):
    """The setting is named. Without the lever the job would leave for a size that nobody writes."""
    (off := tmp_path / "off.toml").write_text(f'[job_reports]\nfolder = "{tmp_path}"\n')
    assert "lever.size" in run("--config", str(off), "job", "wants", "5", "--size", "2").err
    assert (run("job", "wants", "5").code, "job_reports.folder" in run("job", "wants", "5").err) == (2, True)


class Signals:
    """Slurm's commands: a running job, and what scancel is given."""

    def __init__(self, state="RUNNING", threads=1):
        self.state, self.threads, self.calls = state, threads, []

    def run(self, *argv):
        self.calls.append(argv)
        if argv[0] == "sdiag":
            return f"Server thread count: {self.threads}\n"
        return f"11|900|0|{self.state}|(null)||gres/gpu:4|900|\n" if argv[0] == "squeue" else ""


@pytest.mark.parametrize(
    ("slurm", "stops", "code", "fault"),
    [(Signals(), False, 0, ""), (Signals("PENDING"), False, 2, "is PENDING"),
     (Signals(threads=999), False, 75, "server threads"), (Signals(), True, 75, "paused")],
    ids=["runs", "waits", "busy", "stopped"],
)  # fmt: skip
def test_wants__a_job_with_a_save_signal_gets_it_for_a_checkpoint(
    run, config, tmp_path, monkeypatch, slurm, stops, code, fault
):
    """Before the file, and without a folder too. Nothing is written where it may not be signalled."""
    from contextlib import nullcontext

    from slurmsched.slurm import reader, writer

    slurm.calls.clear()
    monkeypatch.setattr(reader, "open_commands", lambda _: slurm)
    monkeypatch.setattr(writer, "scontrol_session", nullcontext)
    if stops:
        (tmp_path / "stop").touch()
    said = run(*config, "job", "wants", "11", "--checkpoint")
    assert (said.code, fault in said.err) == (code, True)
    sent = [call for call in slurm.calls if call[0] == "scancel"]
    record = SignalLog(tmp_path / "state" / "journal.jsonl").rows(11)
    assert [(row.what, row.reason, row.outcome) for row in record] == (
        [] if code else [("signal USR1", "a checkpoint is wanted of it", "written")]
    )
    assert sent == ([] if code else [("scancel", "--batch", "-s", "USR1", "11")])
    assert (tmp_path / "jobs" / "wants" / "11").exists() == (code == 0)
    (text := tmp_path / "no_folder.toml").write_text((tmp_path / "site.toml").read_text().partition("[job_reports]")[0])
    assert run("--config", str(text), "job", "wants", "11", "--checkpoint").code == code
    assert run(*config, "job", "wants", "5", "--checkpoint").code == 0  # it has no such hint
    assert len([call for call in slurm.calls if call[0] == "scancel"]) == 2 * len(sent)


def test_wants__a_signal_that_cannot_be_put_on_record_is_not_sent(run, config, tmp_path, monkeypatch):
    """The journal's folder cannot be made; neither signal nor file goes out."""
    from slurmsched.slurm import reader

    (slurm := Signals()).calls.clear()
    monkeypatch.setattr(reader, "open_commands", lambda _: slurm)
    (tmp_path / "state").touch()
    said = run(*config, "job", "wants", "11", "--checkpoint")
    assert (said.code, "journal cannot be written" in said.err) == (4, True)
    assert [call for call in slurm.calls if call[0] == "scancel"] == []
    assert not (tmp_path / "jobs" / "wants" / "11").exists()

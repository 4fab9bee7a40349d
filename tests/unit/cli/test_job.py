"""`job wants` as it is typed."""

from __future__ import annotations

import json

import pytest

from tests.unit.observe.survey.survey_site import node, site

ELASTIC = {"user": "ann", "state": "R", "gpus": 4, "nodes": 1, "gpu_request": "gpu:4", "requeueable": True,
           "comment": "slurmsched: min_gpus=2 max_gpus=8"}  # fmt: skip
JOBS = (
    ELASTIC | {"job_id": 5, "restarts": 3},
    ELASTIC | {"job_id": 9, "array_job_id": 9},
    ELASTIC | {"job_id": 10, "requeueable": False},
    ELASTIC | {"job_id": 6, "comment": ""},
    {"job_id": 7, "user": "bob", "state": "PD", "gpus": 1},
)


@pytest.fixture
def config(monkeypatch, tmp_path):
    """A site with a folder for jobs."""
    from slurmsched.slurm import reader

    monkeypatch.setattr(reader, "read_cluster_once", lambda *_, **__: site((node("n1"),), JOBS))
    (tmp_path / "jobs" / "wants").mkdir(parents=True)
    (path := tmp_path / "site.toml").write_text(f'[lever]\nsize = true\n[job_reports]\nfolder = "{tmp_path}/jobs"\n')
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
     (("10", "--size", "2"), "no batch job that Slurm may requeue")],
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

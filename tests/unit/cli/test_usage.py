"""`usage` as it is typed, on a small site."""

from __future__ import annotations

import json

import pytest

from tests.unit.observe.survey.survey_site import node, site

NODES = (node("n1"), node("n2"))
JOBS = (
    {"job_id": 5, "array_job_id": 3, "user": "ann", "account": "a", "state": "R", "node_list": "n1", "gpus": 4,
     "run_s": 7_200.0, "time_limit_s": 14_400.0},
    {"job_id": 6, "user": "bob", "account": "b", "state": "R", "node_list": "n2", "gpus": 1, "run_s": 3_600.0},
    {"job_id": 7, "user": "bob", "account": "b", "state": "PD", "gpus": 1},
)  # fmt: skip
FILE = "job_id,gpu,use_pct,memory_mib\n5,0,80,4096\n5,1,0,10\n5,2,0,10\n5,3,0,10\n"


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    from slurmsched.slurm import reader

    monkeypatch.setattr(reader, "read_cluster_once", lambda *_, **__: site(NODES, JOBS))
    (path := tmp_path / "use.csv").write_text(FILE)
    (config := tmp_path / "site.toml").write_text(f'[measured_use]\nsource = "file"\nfile = "{path}"\n')
    return "--config", str(config)


def test_usage__by_job_and_by_user(run, cluster):
    """The job with the most unused GPU hours first; what is not measured is "?" and counted."""
    said = run(*cluster, "usage").out
    assert said.splitlines()[1].split() == ["5", "ann", "a", "-", "4", "1", "20", "%", "4.0", "8.0", "6.4"]
    assert "?" in said.splitlines()[2] and "measured: 1 of 2 jobs, by " in said
    by_user = run(*cluster, "usage", "--group-by", "user").out.splitlines()[1]
    assert by_user.split() == ["ann", "1", "4", "20", "%", "8.0", "6.4"]
    told = json.loads(run(*cluster, "usage", "--json", "-j", "5").out)
    assert json.loads(run(*cluster, "usage", "--json", "-j", "3").out)["jobs"] == told["jobs"]
    assert (told["schema"], told["jobs"][0]["used"], told["jobs"][0]["use"]) == ("slurmsched/usage/1", 1, 0.2)


def test_usage__wrong_words(run, cluster):
    """A job that does not run, a time that is none, no source."""
    assert "no running job 7 holds GPUs; add --since 7d" in run(*cluster, "usage", "-j", "7").err
    assert run(*cluster, "usage", "--since", "soon").code == 2
    none = run("usage")
    assert (none.code, "set measured_use.source" in none.err) == (2, True)


def test_usage__shows_profiles(run, tmp_path):
    """As the daemon keeps them; where none is kept the setting is named."""
    from slurmsched.observe.gpu_profiles import GpuProfile, ProfileKey, write_profiles

    write_profiles(
        file := tmp_path / "p.csv", {ProfileKey("bert", 64, 2, "a100"): GpuProfile(9_000.0, 90.0, 45.0, 90.0)}
    )
    (config := tmp_path / "site.toml").write_text(f'[measured_use]\nprofiles = "{file}"\n')
    said = run("--config", str(config), "usage", "--profiles").out.splitlines()[1].split()
    assert said == ["bert", "64", "2", "a100", "-", "100.0", "50", "%", "?", "0.0", "0"]
    (row,) = json.loads(run("--config", str(config), "usage", "--profiles", "--json").out)["profiles"]
    assert (row["samples_per_s"], row["memory_mib"]) == (100.0, None)
    assert "measured_use.profiles" in run("usage", "--profiles").err
    file.unlink()
    none = run("--config", str(config), "usage", "--profiles")
    assert (none.code, none.out) == (0, f"no profiles yet: the daemon writes {file} every 5 minutes\n")

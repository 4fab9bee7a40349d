from __future__ import annotations

import json
import tomllib


def test_check__of_a_good_file(run, site):
    """A file that loads, with a policy that can be made, is ok; what will surprise is told."""
    answer = run("config", "check")
    assert answer.code == 0
    assert f"{site}: ok" in answer.out
    assert 'mode is "dry-run"' in answer.out


def test_check__warns_that_nothing_is_managed(run, site):
    """An empty scope.partitions is allowed and manages no job."""
    site.write_text(site.read_text().replace('["*"]', "[]"))
    told = json.loads(run("config", "check", "--json").out)
    assert told["ok"] is True
    assert [text for text in told["warnings"] if text.startswith("scope.partitions is empty")] != []


def test_check__refuses_a_bad_policy_parameter(run, site):
    """Parameters are checked by the policy itself: thresholds must ascend."""
    site.write_text(site.read_text().replace("[3600.0]", "[3600.0, 60.0]"))
    answer = run("config", "check")
    assert answer.code == 2
    assert answer.err.startswith(f"slurmsched: {site}: policy.thresholds_gpu_s: ")


def test_check__names_the_nearest_parameter_and_policy(run, site):
    """A misspelt parameter or policy is refused with what was probably meant."""
    good = site.read_text()
    site.write_text(good.replace("thresholds_gpu_s", "threshold_gpu_s"))
    assert "did you mean 'thresholds_gpu_s'?" in run("config", "check").err
    site.write_text(good.replace("discretized-las", "discretised-las"))
    told = f"slurmsched: {site}: policy: no policy 'discretised-las' (did you mean 'discretized-las'?)"
    assert run("config", "check").err.startswith(told)


def test_check__errors_of_a_policy_by_variable_name_the_variable(run, site, monkeypatch):
    """Another policy is tried without the file's parameters; a wrong one is the variable's fault."""
    monkeypatch.setenv("SLURMSCHED_POLICY__NAME", "sjf")
    assert run("config", "check").code == 0
    monkeypatch.setenv("SLURMSCHED_POLICY__NAME", "sjff")
    assert run("config", "check").err.startswith("slurmsched: SLURMSCHED_POLICY__NAME: policy: no policy 'sjff'")


def test_show__tells_value_and_source(run, site, monkeypatch):
    """Each key with the value in force and where it comes from."""
    monkeypatch.setenv("SLURMSCHED_CYCLE__SEED", "4")
    rows = {
        row["key"]: (row["value"], row["source"]) for row in json.loads(run("config", "show", "--json").out)["values"]
    }
    assert rows["cycle.seed"] == (4, "SLURMSCHED_CYCLE__SEED")
    assert rows["scope.partitions"] == (["*"], str(site))
    assert rows["pace.writes_per_s"] == (100.0, "default")


def test_show__hides_the_password(run, site, monkeypatch):
    """What is shown gets pasted into tickets."""
    monkeypatch.setenv("SLURMSCHED_LEDGER__URL", "mysql://me:secret@host/ledger")
    told = run("config", "show").out + run("config", "show", "--json").out
    assert "secret" not in told
    assert "mysql://me:***@host/ledger" in told


def test_check__refuses_a_ledger_that_cannot_be(run, site, monkeypatch):
    """A URL of no known database is a wrong setting, before the first cycle finds out."""
    monkeypatch.setenv("SLURMSCHED_LEDGER__URL", "oracle://host/ledger")
    answer = run("config", "check")
    assert answer.code == 2
    assert "ledger.url: oracle is not offered" in answer.err


def test_check__warns_of_a_folder_without_slurm(run, site, monkeypatch):
    """slurm.bin_dir must hold squeue."""
    monkeypatch.setenv("SLURMSCHED_SLURM__BIN_DIR", "/nowhere")
    assert "slurm.bin_dir: no squeue in /nowhere" in run("config", "check").out


def test_check__names_a_variable_that_is_no_json(run, site, monkeypatch):
    """Lists come as JSON; a bare word is told so."""
    monkeypatch.setenv("SLURMSCHED_SCOPE__PARTITIONS", "gpu")
    answer = run("config", "check")
    assert answer.code == 2
    assert "SLURMSCHED_SCOPE__PARTITIONS: a list or a table is written as JSON" in answer.err


def test_defaults__print_a_file_that_loads(run, tmp_path):
    """The printed file can be put in place as it is."""
    printed = run("config", "defaults").out
    path = tmp_path / "printed.toml"
    path.write_text(printed)
    assert tomllib.loads(printed)["mode"] == "dry-run"
    assert run("config", "check", config=path).code == 0

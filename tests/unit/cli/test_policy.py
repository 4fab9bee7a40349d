from __future__ import annotations

import json

import pytest

from slurmsched import registry
from slurmsched.policies.qssf import Qssf


def test_list__names_every_plugin(run):
    """All that entry points name, a site's own included."""
    rows = json.loads(run("policy", "list", "--json").out)["plugins"]
    expected = [(kind, name) for kind in registry.KINDS for name in registry.plugin_names(kind)]
    assert [(row["kind"], row["name"]) for row in rows] == expected
    assert [row["name"] for row in rows if row["summary"].startswith("broken")] == []


def test_list__survives_a_broken_plugin(run, monkeypatch):
    """One that cannot be imported says why and hides no other."""
    from importlib.metadata import EntryPoint

    broken = {"mine": EntryPoint("mine", "no_such_package:Mine", "slurmsched.policies")}
    monkeypatch.setattr(registry, "_entry_points_by_name", lambda kind: broken if kind == "policies" else {})
    (row,) = json.loads(run("policy", "list", "--json").out)["plugins"]
    assert row["summary"].startswith("broken: ")
    assert "no_such_package" in row["summary"]


def test_show__tells_parameters_and_source(run):
    """What it does, its parameters with defaults, and the paper."""
    answer = run("policy", "show", "discretized-las")
    assert answer.code == 0
    assert "Source: Gu et al. (Tiresias)" in answer.out
    assert "thresholds_gpu_s" in answer.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["discretised-las"], "no plug-in 'discretised-las' (did you mean 'discretized-las'?); known policies: a"),
        ([""], "no plug-in ''; known policies: a"),
        (["fifo", "--kind", "policys"], "no kind 'policys' (did you mean 'policies'?); known: policies, placements, "),
    ],
)
def test_show__of_an_unknown_name_lists_the_known(run, words, said):
    """A wrong name is exit code 2, with the nearest and with all names by kind."""
    answer = run("policy", "show", *words)
    assert answer.code == 2
    assert said in answer.err


def test_list__as_text_names_the_family(run):
    """Every kind of plug-in has a line; a policy's tells what it is after."""
    answer = run("policy", "list")
    assert answer.code == 0
    assert "service" in answer.out


def test_show__prints_the_card(run):
    """Inputs, levers and what Slurm cannot do, with the paper."""
    answer = run("policy", "show", "gittins")
    running = "An order does not stop running jobs"
    for text in ("Tiresias, NSDI 2019", "jobs that ended", "requeue of running jobs", running):
        assert text in answer.out


def test_show__says_what_of_the_paper_is_left_out(run):
    """Under a heading of its own, in JSON too; a policy that leaves nothing out has no such heading."""
    (line,) = Qssf.about.left_out
    answer = run("policy", "show", "qssf")
    assert f"left out of the paper\n  {line.partition(':')[0]}" in answer.out
    assert json.loads(run("policy", "show", "qssf", "--json").out)["card"]["left_out"] == [line]
    assert "left out of the paper" not in run("policy", "show", "fifo").out


def test_list__as_a_table_has_every_kind(run):
    """A word for each kind there is."""
    answer = run("policy", "list")
    assert (answer.code, [word for word in registry.KINDS.values() if word not in answer.out]) == (0, [])


def test_show__of_a_kind(run):
    """Physics of the same name as a placement."""
    assert "Amaral et al., SC '17, sections 3 and 4" in run("policy", "show", "topology-aware", "--kind", "physics").out
    assert run("policy", "show", "linked", "--kind", "physics").code == 2


def test_train__refuses_a_file_that_it_cannot_write(run, tmp_path, monkeypatch):
    """Before the first replay. Root may write in /proc by its mode, but no file can be made there."""
    from slurmsched.sim.experiments import policy_training

    monkeypatch.delattr(policy_training, "ideal_setup")
    (tmp_path / "jobs.csv").write_text("job_id,num_gpus,submit_s,duration_s\n1,1,0,60\n")
    done = run("policy", "train", "dl2", str(tmp_path / "jobs.csv"), "--out", "/proc/weights.json")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert done.err.startswith("slurmsched: /proc/weights.json: no ") and "in this folder" in done.err

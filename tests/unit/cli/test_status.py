from __future__ import annotations

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from slurmsched import __version__
from slurmsched.config_file import load_config
from slurmsched.daemon.lock import exclusive_lock, work_of_config
from slurmsched.db.leader_lease import LeaseHolder
from slurmsched.db.ledger_store import open_store
from slurmsched.model import Jobs, JobState, Outcome, Plan, Receipt, SetNice
from slurmsched.observe.queue_rows import job_state_counts


def test_status__gpus_by_use_add_up_to_all(run, fakes):
    """GPUs by use add up to all, jobs by state to the records."""
    told = json.loads(run("status", "--json").out)
    gpus = told["gpus"]
    assert sum(count for name, count in gpus.items() if name != "all") == gpus["all"] == 16
    assert sum(told["jobs"].values()) == 3
    assert (told["managed"], told["planned"], told["cycles"], told["working"]) == (2, 1, [], "")


def test_status__is_one_screen(run, fakes):
    """At most 24 lines of 80 columns or a little more."""
    lines = run("status").out.splitlines()
    assert len(lines) < 24
    assert lines[0] == "mode     dry-run; policy discretized-las, lever nice"


def test_status__names_the_holder_and_the_stop_file(run, fakes, site):
    """Who works on the cluster, and that writing is paused."""
    (site.parent / "stop").touch()
    with exclusive_lock(site.parent / "lock"):
        told = run("status").out
    assert "paused by the stop file" in told
    assert "at work  pid " in told


@pytest.mark.parametrize(
    ("command", "mode", "writing", "line"),
    [
        ("daemon --apply", "dry-run", True, "dry-run in the configuration, apply at work"),
        ("daemon", "dry-run", False, "dry-run"),
        ("daemon", "apply", True, "apply"),
        ("tick --dry-run --apply", "apply", False, "apply in the configuration, dry-run at work"),
        ("undo", "apply", False, "apply in the configuration, dry-run at work"),
    ],
)
def test_status__tells_what_the_holder_does(run, fakes, site, monkeypatch, command, mode, writing, line):
    """Its command line counts, which it signed the lock with; without an option the configured mode."""
    site.write_text(site.read_text().replace('mode = "dry-run"', f'mode = "{mode}"'))
    monkeypatch.setattr(sys, "argv", ["slurmsched", *command.split()])
    with exclusive_lock(site.parent / "lock"):
        told, text = json.loads(run("status", "--json").out), run("status").out
    assert (told["mode"], told["writing"]) == (mode, writing)
    assert text.splitlines()[0] == f"mode     {line}; policy discretized-las, lever nice"
    assert ("(writes)" in text, "(writes nothing)" in text) == (writing, not writing)


@pytest.mark.parametrize(("apply", "line"), [(True, "dry-run in the configuration, apply at work"), (False, "dry-run")])
def test_status__believes_what_the_holder_publishes(run, fakes, site, monkeypatch, apply, line):
    """Not its command line: its mode may come from its environment, or from before a reload that was refused."""
    monkeypatch.setattr(sys, "argv", ["slurmsched", "daemon", *([] if apply else ["--apply"])])
    tree = load_config(site)
    with exclusive_lock(site.parent / "lock") as publish:
        publish(replace(work_of_config(tree, apply=apply), since_s=fakes[0].snapshot.now_s - 300))
        told, text = json.loads(run("status", "--json").out), run("status").out
        publish(
            work_of_config(tree.model_copy(update={"mode": "apply"}), apply=apply, refused="policy: no such policy")
        )
        other = run("status").out
    assert (told["writing"], told["work"]["same_config"], told["work"]["version"]) == (apply, True, __version__)
    assert text.splitlines()[0] == f"mode     {line}; policy discretized-las, lever nice"
    assert f"({'writes' if apply else 'writes nothing'}, since 300 s; slurmsched {__version__})" in text
    assert "another configuration" not in text
    assert "note: who is at work has another configuration" in other
    assert "reload was refused, so that it goes on by the configuration before: policy: no such policy" in other


def test_status__shows_cycles_and_failed_writes_of_the_ledger(run, fakes, site):
    """The last cycle, and the job that Slurm refused."""
    cluster, _ = fakes
    store = open_store(load_config(site))
    snapshot = store.recall(cluster.snapshot)
    action = SetNice(11, float(snapshot.jobs.submit_s[0]), "test", 0, -5, 0)
    store.append(snapshot, Plan((action,)), Receipt((Outcome(action, "refused", "Access denied"),), 1))
    store.close()
    answer = run("status")
    assert "job 11: refused: Access denied" in answer.out
    assert [row["planned"] for row in json.loads(run("status", "--json").out)["cycles"]] == [1]


def test_states__count_a_completing_job_once():
    """PENDING+COMPLETING (a requeue under way) is completing, not pending."""
    given = [JobState.PENDING | JobState.COMPLETING, JobState.PENDING, JobState.RUNNING, JobState.COMPLETED]
    jobs = Jobs.build(4, {"job_id": [1, 2, 3, 4], "state": np.array([int(state) for state in given])})
    assert job_state_counts(jobs) == {
        "completing": 1,
        "pending": 1,
        "running": 1,
        "suspended": 0,
        "ended": 1,
        "other": 0,
    }


def test_status__prints_warnings(run, fakes):
    """What could not be read is said."""
    fakes[0].snapshot = replace(fakes[0].snapshot, warnings=("gres text odd",))
    assert "note: gres text odd" in run("status").out


ENDS = "its lease ends in 20 s unless renewed"


@pytest.mark.parametrize(
    ("leader", "expected"),
    [
        (
            LeaseHolder("a", 3, 20.0, 30.0),
            "leader   a leads, term 3; its lease ends in 20 s unless renewed; this host, b, stands by",
        ),
        (LeaseHolder("b", 4, 20.0, 30.0), f"leader   b leads, term 4; {ENDS} (this host)"),
        (LeaseHolder("a", 3, -5.0, 30.0), "leader   no host leads now"),
    ],
)
def test_status__says_who_leads(leader, expected, run, fakes):
    """Of hosts that share a ledger; a host alone has no such line."""
    assert "leader" not in run("status").out
    fakes[0].lead = SimpleNamespace(lease=SimpleNamespace(name="b", leader=lambda: leader))
    assert expected in run("status").out.splitlines()

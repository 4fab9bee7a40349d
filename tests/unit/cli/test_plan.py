from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from slurmsched.model import Allocations, Rights
from tests.recorded.playback import HERE
from tests.unit.cli.conftest import with_site

PUBLIC = HERE / "public"


def test_plan__tells_each_change_and_its_reason(run, fakes):
    """The job with less attained service is to pass the other; the table says so."""
    answer = run("plan")
    assert answer.code == 0
    assert "discretized-las: rank" in answer.out
    assert "1 of 2 managed jobs would get another nice" in answer.out


def test_plan__json_holds_the_same(run, fakes):
    """--json gives numbers where the table gives text."""
    told = json.loads(run("plan", "--json").out)
    assert (told["cluster"], told["managed"], told["planned"], told["deferred"]) == ("test", 2, 1, 0)
    (change,) = told["changes"]
    assert change["lever_now"] != change["lever_wanted"]
    assert change["reason"].startswith("discretized-las: rank")


def test_plan__writes_nothing(run, fakes):
    """Neither Slurm nor the ledger is touched."""
    cluster, store = fakes
    run("plan")
    assert (cluster.applies, cluster.sent, store.kept) == (False, [], [])


def test_plan__limit_cuts_the_table_and_says_so(run, fakes):
    """--limit shows the most urgent changes and counts the rest."""
    cluster, _ = fakes
    jobs = cluster.snapshot.jobs
    cluster.snapshot = replace(cluster.snapshot, jobs=jobs.with_columns(nice=[5, -5, 0], base_nice=[0, 0, 0]))
    many = json.loads(run("plan", "--json").out)["planned"]
    answer = run("plan", "--limit", "1")
    assert ("more (--limit 0 shows all)" in answer.out) == (many > 1)


def test_plan__prints_notes_and_warnings(run, fakes):
    """What keeps the plan from working is printed in words."""
    cluster, _ = fakes
    cluster.snapshot = replace(with_site(cluster.snapshot, rights=Rights.USER), warnings=("gres text odd",))
    told = run("plan").out
    assert "note: slurmsched has no Operator right" in told
    assert "warning: gres text odd" in told


def test_plan__names_jobs_left_alone(run, fakes):
    """Each reason with how many jobs, and which."""
    cluster, _ = fakes
    cluster.snapshot = replace(cluster.snapshot, jobs=cluster.snapshot.jobs.with_columns(priority=[0, 1000, 500]))
    assert "left alone: 1 job (held): it is held; it gets its place when it is released: 11" in run("plan").out


def test_plan__names_partitions_that_slurm_does_not_know(run, fakes, site):
    """A misspelt partition would manage nothing without a word."""
    site.write_text(site.read_text().replace('["*"]', '["gpu", "gpuu"]'))
    assert "note: scope.partitions names partitions that Slurm does not have: gpuu" in run("plan").out


def test_plan_and_queue__count_ranks_alike(run, fakes):
    """The rank in a reason is the one that `queue` shows."""
    (change,) = json.loads(run("plan", "--json").out)["changes"]
    assert f"rank {change['rank']} of 2," in change["reason"]


def test_queue__prints_warnings_and_criteria_for_people(run, fakes):
    """Times are times; what says nothing is left out; the queue has a column of its own."""
    fakes[0].snapshot = replace(fakes[0].snapshot, warnings=("gres text odd",))
    told = run("queue").out
    assert "warning: gres text odd" in told
    assert "in this queue since 1970-01-1" in told
    assert "e+" not in told and "promoted" not in told and "inf" not in told


def test_queue__is_in_the_wanted_order(run, fakes):
    """Least attained service first, running jobs left out."""
    rows = json.loads(run("queue", "--json").out)["jobs"]
    assert [(row["rank"], row["job_id"], row["queue"]) for row in rows] == [(1, 12, 0), (2, 11, 1)]


def test_queue__filters_by_user_and_partition(run, fakes):
    """A filter keeps ranks as they are in the whole queue."""
    by_user = json.loads(run("queue", "--json", "--user", "ann").out)["jobs"]
    by_partition = json.loads(run("queue", "--json", "--partition", "long").out)["jobs"]
    assert [(row["rank"], row["job_id"]) for row in by_user] == [(2, 11)]
    assert [(row["rank"], row["job_id"]) for row in by_partition] == [(1, 12)]


def test_queue__tells_why_a_job_is_left_alone(run, fakes):
    """A held job shows the gate's reason in place of the policy's criteria."""
    cluster, _ = fakes
    cluster.snapshot = replace(cluster.snapshot, jobs=cluster.snapshot.jobs.with_columns(priority=[0, 1000, 500]))
    assert "left alone: it is held" in run("queue").out
    assert [row["job_id"] for row in json.loads(run("queue", "--json", "--managed").out)["jobs"]] == [12]


def test_plan__of_a_dump_needs_no_slurm(run):
    """Jobs of another cluster's file, judged by this configuration and policy."""
    told = json.loads(run("plan", "--json", "--jobs-file", str(PUBLIC / "jobs-json-24.11-v0.0.42.json")).out)
    assert (told["cluster"], told["jobs"], told["managed"]) == ("hpc", 3, 1)
    assert any(warning.startswith("read from a file, which has no rights") for warning in told["warnings"])
    assert not any("Operator" in note for note in told["notes"])


def test_plan__of_a_dump_that_is_something_else(run, tmp_path):
    """Exit code 2, with the file's name."""
    (tmp_path / "notes.txt").write_text("hello")
    answer = run("plan", "--jobs-file", str(tmp_path / "notes.txt"))
    assert (answer.code, answer.err.startswith(f"slurmsched: {tmp_path}/notes.txt:1: is not JSON")) == (2, True)


def test_plan__nodes_alone_are_no_queue(run, tmp_path):
    """The other option is named."""
    answer = run("plan", "--nodes-file", str(tmp_path / "x"))
    assert (answer.code, "--nodes-file needs --jobs-file" in answer.err) == (2, True)


def test_plan__shows_the_steps_of_a_preemption(run, fakes, site):
    """Who would get which nodes, and who would give them; nothing of it where preemption is off."""
    cluster, _ = fakes
    snapshot = cluster.snapshot
    jobs = snapshot.jobs.with_columns(
        gpus=[16, 1, 16], nodes=[2, 1, 2], eligible_s=snapshot.jobs.submit_s, requeueable=[True] * 3,
        run_s=[0.0, 0.0, 7_200.0], submit_s=snapshot.now_s - np.array([900.0, 600.0, 9_000.0]),
        comment=["", "", "slurmsched: preempt=yes ckpt=USR1@60"], attained_gpu_s=[0.0, 0.0, 115_200.0],
        end_s=[np.nan, np.nan, snapshot.now_s + 9_000],
    )  # fmt: skip
    held = Allocations.build(2, {"job_id": [13, 13], "node": ["n1", "n2"], "gpus": [8, 8]})
    nodes = snapshot.nodes.with_columns(gpus_used=[8, 8], partitions=["gpu", "gpu"])
    cluster.snapshot = replace(snapshot, jobs=jobs, nodes=nodes, allocations=held)
    assert json.loads(run("plan", "--json").out)["steps"] == []
    site.write_text(site.read_text() + "[preemption]\nenabled = true\n")
    steps = json.loads(run("plan", "--json").out)["steps"]
    assert [(step["job_id"], step["step"]) for step in steps] == [(11, "reserve"), (11, "join"), (13, "signal")]
    assert "job 11 gets its GPUs in 60 s" in run("plan").out


def test_plan__shows_a_promise_and_what_its_nodes_wait_for(run, fakes, site):
    """When the gang would start, and which job must have left by then."""
    cluster, _ = fakes
    snapshot = cluster.snapshot
    jobs = snapshot.jobs.with_columns(
        gpus=[16, 1, 8], nodes=[2, 1, 1], eligible_s=snapshot.jobs.submit_s, time_limit_s=[3_600.0] * 3,
        end_s=[np.nan, np.nan, snapshot.now_s + 9_000],
    )  # fmt: skip
    held = Allocations.build(1, {"job_id": [13], "node": ["n1"], "gpus": [8]})
    nodes = snapshot.nodes.with_columns(partitions=["gpu", "gpu"])
    cluster.snapshot = replace(snapshot, jobs=jobs, nodes=nodes, allocations=held)
    assert json.loads(run("plan", "--json").out)["operations"] == []
    site.write_text(site.read_text() + "[gangs]\nreserve = true\n")
    (operation,) = json.loads(run("plan", "--json").out)["operations"]
    assert (operation["purpose"], operation["job_id"], operation["nodes"]) == ("reserve", 11, "n[1-2]")
    assert [(wait["node"], wait["job_id"]) for wait in operation["waits"]] == [("n1", 13), ("n2", None)]
    text = run("plan").out
    assert "n1 until job 13 has left" in text
    assert "(in 2 h 30 min)" in text

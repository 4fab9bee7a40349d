"""The commonest reasons to wait, each made on a real Slurm and explained right, to the Operator and to users."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmsched.cli.top import looked
from slurmsched.config import load_config
from slurmsched.daemon.assemble import assembled
from slurmsched.model.reasons import Blocker, read_reason
from slurmsched.slurm import page_facts
from tests.live.acts import four_running, restarts, switched_on, ticks
from tests.live.lab import Installed, column, partition, run, submit, until

pytestmark = pytest.mark.live


@pytest.fixture
def limits(site: Installed) -> Iterator[None]:
    """QOS small: two GPUs a user; physics: ten GPUs; one licence."""
    run("sacctmgr", "-i", "add", "qos", "small", check=False)
    run("sacctmgr", "-i", "modify", "qos", "small", "set", "maxtresperuser=gres/gpu=2")
    run("sacctmgr", "-i", "modify", "user", "carol", "set", "qos+=small", check=False)
    run("sacctmgr", "-i", "modify", "account", "physics", "set", "grptres=gres/gpu=10")
    with Path("/etc/slurm/slurm.conf").open("a") as conf:
        conf.write("Licenses=sim:1\n")
    run("labctl", "restart", "slurmctld")
    yield
    run("sacctmgr", "-i", "modify", "account", "physics", "set", "grptres=gres/gpu=-1")
    run("scontrol", "update", "nodename=n4", "state=resume", check=False)


def test_read_reason__knows_every_name_that_this_slurm_has():
    """As its own library tells them, number by number."""
    (path,) = Path("/usr/lib").glob("*/libslurm.so.*[0-9].*.*")
    name = ctypes.CDLL(str(path)).slurm_job_state_reason_string
    name.restype = ctypes.c_char_p
    names = {name(number).decode() for number in range(500)}
    assert len(names) > 150
    assert [one for one in names if read_reason(one).blocker is Blocker.UNKNOWN] == []


def waits(job: int, reason: str) -> None:
    until(lambda: column("%r", "PENDING").get(job, "").startswith(reason), f"job {job} waits for {reason}")


def explained(site: Installed, job: int | str, *options: str, user: str = "") -> dict:
    return site("explain", str(job), "--json", *options, user=user).json()["explanation"]


def test_explain__names_the_blocker_and_its_values(site, limits, monkeypatch):
    """Limits with value and use, dependencies, holds, times, arrays, licences, nodes, partition limits."""
    submit("carol", 2, "--qos=small")
    submit("alice", 8, "--licenses=sim:1")
    until(lambda: len(column("%T", "RUNNING")) == 2, "two run")
    run("scontrol", "update", "nodename=n4", "state=drain", "reason=bad fan")
    first = submit("dave", 1)
    made = {
        "qos": (submit("carol", 1, "--qos=small"), "QOSMaxGRESPerUser", "limit"),
        "account": (submit("alice", 4), "AssocGrpGRES", "limit"),
        "licence": (submit("dave", 1, "--licenses=sim:1"), "Licenses", "licenses"),
        "after": (submit("dave", 1, f"--dependency=afterany:{first}"), "Dependency", "dependency"),
        "later": (submit("dave", 1, "--begin=now+1hour"), "BeginTime", "begin-time"),
        "held": (submit("dave", 1, "--hold"), "JobHeldUser", "held-by-user"),
        "node": (submit("dave", 1, "-w", "n4"), "ReqNodeNotAvail", "nodes"),
        "gone": (submit("dave", 1, "-p", "phantom"), "Nodes required for job", "nodes"),
        "long": (submit("dave", 1, "-p", "short", "--time=2:00:00"), "PartitionTimeLimit", "partition-limit"),
        "tasks": (submit("dave", 1, "--array=1-3%1"), "JobArrayTaskLimit", "array-limit"),
        "admin": (submit("dave", 1, "--begin=now+1hour"), "JobHeldAdmin", "held-by-admin"),
        "never": (submit("dave", 1, "--begin=now+1hour"), "DependencyNeverSatisfied", "dependency-never"),
    }
    ended = submit("dave", 1, script="false")
    until(lambda: column("%T").get(ended) == "FAILED", "one failed")
    job = {name: job for name, (job, _, _) in made.items()}
    run("scontrol", "update", f"jobid={job['never']}", "starttime=now", f"dependency=afterok:{ended}")
    run("scontrol", "hold", str(job["admin"]))
    for number, reason, _ in made.values():
        waits(number, reason)
    told = {name: explained(site, number) for name, (number, _, _) in made.items()}
    assert {name: one["blocker"] for name, one in told.items()} == {name: how for name, (_, _, how) in made.items()}
    assert told["qos"]["limits"] == [{"owner": "QOS small", "field": "MaxTRESPU", "what": "gres/gpu", "value": 2.0,
                                      "used": 2.0, "needs": 1.0}]  # fmt: skip
    assert ("account physics", 10.0, 8.0, 4.0) in {
        (one["owner"], one["value"], one["used"], one["needs"]) for one in told["account"]["limits"]
    }
    assert "sim: 1 of 1 in use" in told["licence"]["because"]
    assert "n4 (bad fan" in told["node"]["because"]
    assert "p1 (" in told["gone"]["because"]
    assert "MaxTime=01:00:00" in told["long"]["because"]
    assert str(first) in told["after"]["because"]
    tree = load_config(site.file)
    monkeypatch.setattr(page_facts, "PATIENCE_S", 60.0)  # slow machines
    monkeypatch.setattr(page_facts, "LOOK_S", 240.0)
    with assembled(tree, apply=False, read_only=True) as parts:
        page = looked(tree, parts)
        assert {name: page.job(job[name])["because"] for name in ("qos", "licence", "long", "tasks")} == {
            name: told[name]["because"] for name in ("qos", "licence", "long", "tasks")
        }
    asked = explained(site, job["qos"], "--as-user", user="carol")
    assert (asked["blocker"], asked["limits"], asked["ahead"]["by"]) == ("limit", [], "priority")
    off = site("explain", str(job["after"]), "--why-not", "n4", "--json").json()["why_not"]
    assert "takes no new job" in off
    assert site("explain", "999999", check=False).rc == 2


def test_explain__who_is_ahead_and_maintenance(site):
    """Priority and Resources with rank; a time limit that still fits before a maintenance."""
    full = [submit("alice", 8) for _ in range(4)]
    until(lambda: set(full) == set(column("%T", "RUNNING")), "all nodes are full")
    first, second = submit("bob", 8, "--nice=0"), submit("carol", 8, "--nice=100")
    waits(first, "Resources")
    waits(second, "Priority")
    assert [explained(site, job)["blocker"] for job in (first, second)] == ["resources", "others-first"]
    told = explained(site, second)["ahead"]
    assert (told["rank"], told["of"], [one["job_id"] for one in told["first"]]) == (2, 2, [first])
    run("scancel", *map(str, [*full, first, second]))
    until(lambda: not column("%T", "RUNNING", "COMPLETING"), "they left")
    run("scontrol", "create", "reservation", "reservationname=fans", "starttime=now+20minutes", "duration=60",
        "nodes=n[1-4]", "flags=maint", "users=root")  # fmt: skip
    late = submit("alice", 1, "--time=2:00:00")
    waits(late, "ReqNodeNotAvail")
    one = explained(site, late)
    assert one["blocker"] == "maintenance"
    assert "still fits" in one["changes"][0]


def test_explain__accounts_and_qos_taken_away_and_het_jobs(site, limits):
    """A QOS that the user had at submit, an association that slurmdbd dropped, components that start together."""
    partition("DOWN")
    lost = submit("carol", 1, "--qos=small")
    run("sacctmgr", "-i", "modify", "user", "carol", "set", "qos-=small")
    component = ("-N1", "--gpus-per-node=1", "-p", "phantom")
    leader = int(run("sbatch", "--parsable", *component, ":", *component, "--wrap=true", user="alice").out)
    run("labctl", "stop", "slurmdbd")  # it refuses to drop an association whose jobs it knows
    orphan = submit("bob", 1, "-p", "phantom")
    run("labctl", "stop", "slurmctld")
    try:
        run("labctl", "start", "slurmdbd")
        drop = ("sacctmgr", "-i", "delete", "user", "bob", "account=physics")
        until(lambda: run(*drop, check=False).rc == 0, "no job of bob's that slurmdbd knows is under way")
        run("labctl", "start", "slurmctld")
        partition("UP")
        waits(lost, "InvalidQOS")
        waits(orphan, "InvalidAccount")
        told = {job: explained(site, job) for job in (lost, orphan, f"{leader}+1")}
    finally:
        run("sacctmgr", "-i", "add", "user", "bob", "account=physics", "cluster=lab")
    assert [told[job]["blocker"] for job in (lost, orphan)] == ["not-allowed", "not-allowed"]
    assert ["InvalidQOS" in told[lost]["because"], "InvalidAccount" in told[orphan]["because"]] == [True, True]
    assert told[f"{leader}+1"]["job_id"] == leader + 1
    assert f"component 1 of job {leader}" in told[f"{leader}+1"]["because"]


@pytest.mark.newest
def test_explain__requeued_by_slurmsched_until_it_runs_again(site):
    """Slurm says BeginTime; explain says who did it."""
    switched_on(site)
    site.configure(policy='{ name = "discretized-las", thresholds_gpu_s = [8.0] }')
    given = "bf_continue,bf_interval=5,batch_sched_delay=1,sched_interval=5,requeue_delay=300"
    run("labctl", "conf", "SchedulerParameters", given)
    run("labctl", "restart", "slurmctld")
    jobs = four_running()
    submit("bob", 8, "--time=10")
    ticks(site, lambda: any(restarts(job) for job in jobs), "one is requeued")
    (victim,) = [job for job in jobs if restarts(job)]
    waits(victim, "BeginTime")
    told = explained(site, victim)
    assert (told["blocker"], "took its GPUs back" in told["because"]) == ("requeued", True)
    assert any("requeue" in line for line in told["ours"])


def test_history__tells_writes_with_reason(site):
    """Newest last; by the ledger, and by the journal where the ledger is lost."""
    partition("DOWN")
    jobs = [submit("alice", 1, f"--time={limit}") for limit in (50, 10)]
    site.configure(policy='{ name = "srsf" }')
    site.tick()
    written = next(job for job in jobs if job in site.journalled())
    waits(written, "PartitionDown")
    assert explained(site, written)["blocker"] == "partition-closed"
    last = site("history", str(written), "--json").json()["history"][-1]
    assert (last["by"], last["outcome"], "rank" in last["reason"]) == ("slurmsched (srsf)", "written", True)
    (site.folder / "ledger.db").unlink()
    last = site("history", str(written), "--json").json()["history"][-1]
    assert last["by"] == "slurmsched (journal)"

"""The commonest reasons to wait, each made on a real Slurm and explained right, to the Operator and to users."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmsched.cli.top import looked
from slurmsched.config_file import load_config
from slurmsched.daemon.cycle_parts import open_cycle_parts
from slurmsched.model.reasons import Blocker, read_reason
from slurmsched.observe.explain.explanation import explain
from slurmsched.slurm import job_queries
from slurmsched.slurm.job_queries import read_details
from slurmsched.slurm.reader import open_commands
from tests.live.lab import Installed, column, partition, run, submit, until
from tests.live.operations import four_running, restarts, switched_on, ticks

pytestmark = pytest.mark.live


QOS = {"few": "maxtresperuser=gres/gpu=2", "lone": "maxjobsperuser=1", "brief": "maxwall=10",
       "light": "maxtresperjob=cpu=1", "team": "grptres=node=1"}  # fmt: skip
CONF = """
Licenses=sim:1
PartitionName=full Nodes=n1 MaxTime=INFINITE
PartitionName=closed Nodes=n[1-4] State=DOWN
PartitionName=asleep Nodes=n[1-4]
PartitionName=narrow Nodes=n[1-4] MaxNodes=1 MaxMemPerNode=2000
"""


@pytest.fixture
def limits(site: Installed) -> Iterator[None]:
    """QOS of carol's with one limit each, ten GPUs for physics, one licence, partitions that refuse something."""
    for name, limit in QOS.items():
        run("sacctmgr", "-i", "add", "qos", name, check=False)
        run("sacctmgr", "-i", "modify", "qos", name, "set", limit)
    run("sacctmgr", "-i", "modify", "user", "carol", "set", f"qos+={','.join(QOS)}", check=False)
    run("sacctmgr", "-i", "modify", "account", "physics", "set", "grptres=gres/gpu=10")
    with Path("/etc/slurm/slurm.conf").open("a") as conf:
        conf.write(CONF)
    run("labctl", "restart", "slurmctld")
    until(lambda: run("sinfo", "-h", "-N", "-p", "gpu", "-t", "idle").out.count("\n") == 4, "all nodes are idle")
    yield
    run("sacctmgr", "-i", "modify", "account", "physics", "set", "grptres=gres/gpu=-1")
    run("scontrol", "update", "nodename=n4", "state=resume", check=False)
    run("scontrol", "update", "nodename=n[1-4]", "availablefeatures=a100,nvlink", "activefeatures=a100,nvlink")


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


# Name -> who submits, what beside one GPU, Slurm's reason, the blocker, and words of the truth that the test set up.
WAIT = {
    "qos": ("carol", "--qos=few", "QOSMaxGRESPerUser", "limit", "QOS few may have 2 gres/gpu (MaxTRESPU, 2 in use, the "
            "job needs 1)"),
    "jobs": ("carol", "--qos=lone", "QOSMaxJobsPerUserLimit", "limit", "QOS lone may have 1 job (MaxJobsPU, 1 in use"),
    "wall": ("carol", "--qos=brief --time=60", "QOSMaxWallDurationPerJobLimit", "limit", "10 minutes of wall "
             "(MaxWallPJ, the job needs 60 minutes)"),
    "cpu": ("carol", "--qos=light -c2", "QOSMaxCpuPerJobLimit", "limit", "1 cpu (MaxTRESPJ, the job needs 2)"),
    "team": ("carol", "--qos=team -w n3", "QOSGrpNodeLimit", "limit", "QOS team may have 1 node (GrpTRES, 1 in use"),
    "account": ("alice", "--gpus-per-node=4", "AssocGrpGRES", "limit", "account physics may have 10 gres/gpu (GrpTRES, "
                "8 in use, the job needs 4)"),
    "licence": ("carol", "--licenses=sim:1", "Licenses", "licenses", "sim: 1 of 1 in use"),
    "after": ("carol", "--dependency=afterany:{full}", "Dependency", "dependency", "Job {full} of alice is RUNNING."),
    "never": ("carol", "--begin=now+1hour", "DependencyNeverSatisfied", "dependency-never", "will never start"),
    "later": ("carol", "--begin=now+1hour", "BeginTime", "begin-time", "may not start before its begin time at 2"),
    "held": ("carol", "--hold", "JobHeldUser", "held-by-user", "Its owner holds it."),
    "admin": ("carol", "--begin=now+1hour", "JobHeldAdmin", "held-by-admin", "An administrator holds it"),
    "special": ("carol", "-w n2 --time=10", "job requeued in held state", "held-by-user", "holds it"),
    "node": ("carol", "-w n4", "ReqNodeNotAvail", "nodes", "n4 (bad fan"),
    "gone": ("carol", "-p phantom --time=10", "Nodes required for job", "nodes", "0 of 36 nodes it may use (36 "
             "closed)"),
    "long": ("carol", "-p short --time=2:00:00", "PartitionTimeLimit", "partition-limit", "partition short has "
             "MaxTime=1 h, the job asks for 2 h"),
    "wide": ("carol", "-p narrow -N2", "PartitionNodeLimit", "partition-limit", "partition narrow has "
             "MaxNodes=1, the job asks for 2"),
    "memory": ("carol", "-p narrow --mem=4G", "MaxMemPerLimit", "partition-limit", "partition narrow has "
               "MaxMemPerNode=2000 MiB, the job asks for 4096 MiB on each node"),
    "closed": ("carol", "-p closed", "PartitionDown", "partition-closed", "closed is DOWN"),
    "asleep": ("carol", "-p asleep -w n1", "PartitionInactive", "partition-closed", "asleep is INACTIVE"),
    "tasks": ("carol", "--array=1-3%1 --time=10", "JobArrayTaskLimit", "array-limit", "lets 1 task run at a time"),
    "bad": ("carol", "-C nvlink --begin=now+1hour", ("Nodes required for job", "BadConstraints"), "constraints", "it "
            "is not nvlink (its features: a100)"),
    "class": ("dave", "--reservation=class", "Reservation", "reservation", "It waits for reservation class, from "),
    "fans": ("carol", "-w n3 --time=2:00:00", "ReqNodeNotAvail", "maintenance", "reservation fans keeps n3 from "),
    "course": ("carol", "-w n2 --time=2:00:00", "ReqNodeNotAvail", "reservation", "reservation class keeps n2 from "),
    "next": ("dave", "-p full --gpus-per-node=8", "Resources", "resources", "on 0 of 1 node it may use (1 "
             "short of GPUs)"),
    "last": ("carol", "-p full --gpus-per-node=8 --nice=100", "Priority", "others-first", "Slurm ranks 1 job before it "
             "that competes for its nodes and may start. It asks for 8 GPUs."),
}  # fmt: skip


def submitted(name: str, jobs: dict[str, int]) -> int:
    user, options, *_ = WAIT[name]
    return submit(user, 1, *options.format(**jobs).split(), name=name)


def reasons(jobs: dict[str, int]) -> dict[str, str]:
    """What Slurm says of those that wait for another reason than the one wanted."""
    told = column("%r")
    return {name: told.get(jobs[name], "") for name, (_, _, reason, *_) in WAIT.items()
            if not told.get(jobs[name], "").startswith(reason)}  # fmt: skip


def test_explain__what_really_blocks_and_what_would_help(site, limits, monkeypatch):
    """Each job waits for one thing that the test made. What is advised is done, and the job starts."""
    jobs = {"full": submit("alice", 8, "--licenses=sim:1", "-w", "n1")}
    for name in ("few", "lone", "team"):
        jobs[name] = submit("carol", 2 if name == "few" else 1, f"--qos={name}", "-w", "n2", "--time=10")
    jobs["special"] = submitted("special", jobs)
    ended = submit("carol", 1, "-w", "n2", "--time=10", script="false")
    until(lambda: len(column("%T", "RUNNING")) == 5 and column("%T").get(ended) == "FAILED", "five run, one failed")
    run("scontrol", "update", "nodename=n4", "state=drain", "reason=bad fan")
    for name, start, node, more in (("fans", 20, "n3", ("flags=maint",)), ("class", 30, "n2", ())):
        run("scontrol", "create", "reservation", f"reservationname={name}", f"starttime=now+{start}minutes",
            "duration=60", f"nodes={node}", "users=dave,root", *more)  # fmt: skip
    jobs |= {name: submitted(name, jobs) for name in WAIT if name != "special"}
    run("scontrol", "update", f"jobid={jobs['never']}", "starttime=now", f"dependency=afterok:{ended}")
    run("scontrol", "hold", str(jobs["admin"]))
    run("scontrol", "update", "nodename=n[1-4]", "availablefeatures=a100", "activefeatures=a100")
    run("scontrol", "update", f"jobid={jobs['bad']}", "starttime=now")
    run("scontrol", "requeuehold", "State=SpecialExit", str(jobs["special"]))
    run("scontrol", "update", "partitionname=asleep", "state=inactive")
    until(lambda: not reasons(jobs), "each has the reason that it was made for", pause_s=1)
    tree = load_config(site.file)
    with open_cycle_parts(tree, apply=False, read_only=True) as parts:
        snapshot, plan = parts.look()
        commands = open_commands(tree.slurm)
        rows = {name: snapshot.jobs.row_of(jobs[name]) for name in WAIT}
        told = {name: explain(snapshot, plan, row, read_details(commands, snapshot, row)) for name, row in rows.items()}
        monkeypatch.setattr(job_queries, "PATIENCE_S", 60.0)  # slow machines
        monkeypatch.setattr(job_queries, "PAGE_BUDGET_S", 240.0)
        page = looked(tree, parts)
        assert {name: page.job(jobs[name])["because"] for name in ("qos", "long")} == {
            name: told[name].because for name in ("qos", "long")
        }
    assert {name: one.blocker for name, one in told.items()} == {name: how for name, (*_, how, _) in WAIT.items()}
    assert [(name, one.because) for name, one in told.items() if WAIT[name][-1].format(**jobs) not in one.because] == []
    ranks = {row["job_id"]: row["rank"] for row in site("queue", "--json").json()["jobs"]}
    assert {name: one.ahead.rank for name, one in told.items()} == {name: ranks[jobs[name]] for name in WAIT}
    assert [one.job_id for one in told["last"].ahead.first] == [jobs["next"]]
    helps = {"gone": "partition=gpu", "fans": "timelimit=00:1", "course": "timelimit=00:2",
             "long": "timelimit=01:00:00", "wide": "numnodes=1", "memory": "minmemorynode=2000"}  # fmt: skip
    advised = {name: [one for one in told[name].changes if change in one] for name, change in helps.items()}
    assert {name: len(found) for name, found in advised.items()} == dict.fromkeys(helps, 1)
    for name in ("gone", "fans", "course"):
        (command,) = re.findall(r"scontrol update \S+ [^\s:]+(?::\d\d)*", advised[name][0])
        run(*command.split(), user="carol")
    until(lambda: all(column("%T").get(jobs[name]) == "RUNNING" for name in ("gone", "fans", "course")), "they start")
    task = explained(site, f"{jobs['tasks']}_3")
    assert (task["job_id"], task["blocker"]) == (jobs["tasks"], "array-limit")
    assert "takes no new job" in site("explain", str(jobs["after"]), "--why-not", "n4", "--json").json()["why_not"]
    assert site("explain", "999999", check=False).rc == 2
    run("labctl", "conf", "PrivateData", "jobs")
    run("scontrol", "reconfigure")
    until(lambda: "dave" not in run("squeue", "-h", "-o", "%u", user="carol").out, "jobs of others are hidden")
    asked = explained(site, jobs["qos"], "--as-user", user="carol")
    assert (asked["blocker"], asked["limits"], asked["ahead"]["by"]) == ("limit", [], "priority")
    assert any("only the jobs that you may see" in line for line in asked["unread"])
    assert not any("PrivateData" in line for line in explained(site, jobs["qos"])["unread"])


def test_explain__accounts_and_qos_taken_away_and_het_jobs(site, limits):
    """A QOS that the user had at submit, an association that slurmdbd dropped, components that start together."""
    partition("DOWN")
    lost = submit("carol", 1, "--qos=few")
    run("sacctmgr", "-i", "modify", "user", "carol", "set", "qos-=few")
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
    told = site("history", str(written), "--json", check=False)
    assert (told.rc, told.json()["history"][-1]["by"]) == (4, "slurmsched (journal)")

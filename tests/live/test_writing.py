"""Writing to a real Slurm: levers arrive, what must not be written is not, and nothing is lost half way."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import orjson
import pytest

from slurmsched.db.override_log import OverrideLog
from tests.live.lab import Done, column, nices, partition, run, submit, until

pytestmark = pytest.mark.live

PYTHON = "/opt/venv/bin/python"
# Reads the cluster, optionally waits for a line on standard input, applies the given values, prints the receipt.
APPLY = """
import sys, orjson
from slurmsched.config_file import parse_config
from slurmsched.model import Plan, SetNice, SetSiteFactor
from slurmsched.slurm.open_cluster import open_live

order = orjson.loads(sys.argv[1])
cluster = open_live(parse_config(order["config"]), apply=True)
jobs = cluster.read().jobs
row = {int(job): i for i, job in enumerate(jobs.job_id)}
kind, now = (SetNice, jobs.nice) if order["kind"] == "nice" else (SetSiteFactor, jobs.site_factor)
actions = [kind(job, float(jobs.submit_s[row[job]]), "live test", int(now[row[job]]), new, 0)
           for job, new in order["values"]]
if order["meanwhile"]:
    import subprocess
    subprocess.run(order["meanwhile"], check=True)
receipt = cluster.apply(Plan(actions=tuple(actions)))
cluster.close()
print(orjson.dumps({"stopped": receipt.stopped, "outcomes": [
    [o.action.job_id, o.status, o.message] for o in receipt.outcomes]}).decode())
"""
LEVERS = pytest.mark.parametrize("kind", ["nice", "site_factor"])


@pytest.fixture
def folder(fresh: None, tmp_path: Path) -> Path:
    """A folder that the writing user may write to."""
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o777)
    return tmp_path


def apply(
    folder: Path,
    values: dict[int, int],
    kind: str = "nice",
    *,
    user: str = "slurmsched",
    meanwhile: list[str] | None = None,
    check: bool = True,
    **pace: float,
) -> Done:
    """Give each job its value through the live cluster, as this user. meanwhile: runs between reading and writing."""
    config = {"ledger": {"journal": str(folder / "journal.jsonl")}, "pace": pace}
    order = {"config": config, "kind": kind, "values": list(values.items()), "meanwhile": meanwhile}
    return run(PYTHON, "-c", APPLY, orjson.dumps(order).decode(), user=user, check=check, timeout_s=200)


def statuses(done: Done) -> dict[int, str]:
    return {job: status for job, status, _ in done.json()["outcomes"]}


def site_factors() -> dict[int, int]:
    """Site factor of every eligible pending job, by sprio."""
    rows = (line.split("|") for line in run("sprio", "-h", "-o", "%i|%S").out.splitlines())
    return {int(job): int(value) for job, value in rows}


def now(kind: str) -> dict[int, int]:
    return nices() if kind == "nice" else site_factors()


def waiting(count: int) -> list[int]:
    """Jobs that stay pending: their nodes do not exist. Returns when Slurm has given each a priority."""
    jobs = [submit("alice", 1, "--partition=phantom") for _ in range(count)]
    until(lambda: set(jobs) <= set(site_factors()), "all jobs have a priority")
    return jobs


def kill_slurmctld_after_the_first_write() -> None:
    until(lambda: any(nices().values()), "a value is written")
    run("sh", "-c", "kill -9 $(cat /run/slurm/slurmctld.pid)")


@LEVERS
def test_apply__lever_is_written_zeroed_and_read_back(folder, kind):
    """Positive, negative and zero arrive as they are; the other lever is left alone."""
    jobs = waiting(3)
    values = dict(zip(jobs, [-500, 700, 1], strict=True))
    assert set(statuses(apply(folder, values, kind)).values()) == {"written"}
    assert {job: now(kind)[job] for job in jobs} == values
    other = "site_factor" if kind == "nice" else "nice"
    assert {now(other)[job] for job in jobs} == {0}
    assert set(statuses(apply(folder, dict.fromkeys(jobs, 0), kind)).values()) == {"written"}
    assert {now(kind)[job] for job in jobs} == {0}
    records = OverrideLog(folder / "journal.jsonl").priorities()
    assert {each.job_id: set(each.values) for each in records} == {j: {v, 0} for j, v in values.items()}


def tasks(array: int, *states: str) -> dict[int, int]:
    """Nice of each task of an array in these states, split off or not, by its index."""
    listed = run("squeue", "-h", "-a", "-r", "-j", str(array), "-t", ",".join(states), "-o", "%K|%y").out
    return {int(index): int(nice) for index, _, nice in (line.partition("|") for line in listed.splitlines())}


def test_apply__whole_array_by_its_record(folder):
    """One write reaches the pending tasks, those that were split off by a run and a requeue too; ended ones refuse
    nothing."""
    array = submit("alice", 8, "--array=0-5%3", script="sleep 600")
    until(lambda: set(tasks(array, "RUNNING")) == {0, 1, 2}, "three tasks run")
    partition("DOWN")
    run("scontrol", "requeue", "incomplete", f"{array}_0")
    run("scancel", f"{array}_1", f"{array}_5")
    until(lambda: set(tasks(array, "PENDING")) == {0, 3, 4}, "the first task waits again")
    until(lambda: 1 in tasks(array, "CANCELLED"), "another one is over")
    assert statuses(apply(folder, {array: -40})) == {array: "written"}
    assert tasks(array, "PENDING") == {0: -40, 3: -40, 4: -40}
    assert tasks(array, "CANCELLED")[1] == 0
    assert {each.job_id for each in OverrideLog(folder / "journal.jsonl").priorities()} == {array}
    assert statuses(apply(folder, {array: 0})) == {array: "written"}
    assert tasks(array, "PENDING", "RUNNING") == {0: 0, 2: 0, 3: 0, 4: 0}


@LEVERS
def test_apply__what_changed_after_the_snapshot_is_left_alone(folder, kind):
    """Set by somebody else, or cancelled, between reading and writing: refused, and not even journalled."""
    mine, theirs, gone = waiting(3)
    field = {"nice": "nice", "site_factor": "sitefactor"}[kind]
    change = f"scontrol update jobid={theirs} {field}=33 && scancel {gone}"
    done = apply(folder, dict.fromkeys((mine, theirs, gone), 50), kind, meanwhile=["sh", "-c", change])
    assert statuses(done) == {mine: "written", theirs: "refused", gone: "refused"}
    assert now(kind)[theirs] == 33
    assert {each.job_id for each in OverrideLog(folder / "journal.jsonl").priorities()} == {mine}


def test_apply__running_job_is_left_alone(folder):
    """A job that started since the snapshot keeps its nice."""
    job = submit("alice", 1)
    until(lambda: job in column("%T", "RUNNING"), "the job runs")
    assert statuses(apply(folder, {job: 50})) == {job: "refused"}
    assert column("%y")[job] == "0"


def test_apply__slurmctld_killed_half_way(folder):
    """What was answered is written, at most one is unknown, the rest unsent; the journal knows every value."""
    jobs = waiting(20)
    killer = threading.Thread(target=kill_slurmctld_after_the_first_write)
    killer.start()
    done = apply(folder, {job: -100 - job for job in jobs}, writes_per_s=2)
    killer.join()
    run("labctl", "start", "slurmctld")
    run("labctl", "wait-ready")
    told = list(statuses(done).values())
    assert done.json()["stopped"]
    assert 0 < told.count("written") < len(jobs)
    assert set(told[:-1]) == {"written"}
    known = {each.job_id: each.values for each in OverrideLog(folder / "journal.jsonl").priorities()}
    # A slurmctld that died remembers jobs of earlier tests as they were before their cancellation: ours only.
    now_set = nices()
    assert all(now_set[job] == 0 or now_set[job] in known[job] for job in jobs if job in now_set)


def test_apply__user_without_rights_sends_nothing(folder):
    """A plain user is told what is missing; no job is touched."""
    (job,) = waiting(1)
    done = apply(folder, {job: 50}, user="bob")
    assert "adminlevel=Operator" in done.json()["stopped"]
    assert done.json()["outcomes"] == []
    assert nices()[job] == 0


def test_apply__rate_limiter_stops_the_apply_and_loses_nothing(folder):
    """With rl_enable some answers take a second; the rest is left to the next cycle, which goes on."""
    jobs = waiting(45)
    run("labctl", "conf", "SlurmctldParameters", "rl_enable")
    run("labctl", "restart", "slurmctld")
    run("labctl", "wait-ready")
    done = apply(folder, dict.fromkeys(jobs, -7))
    assert "rl_enable" in done.json()["stopped"]
    written = [job for job, status in statuses(done).items() if status == "written"]
    assert 0 < len(written) < len(jobs)
    assert {job for job, nice in nices().items() if nice == -7} == set(written)
    time.sleep(15)  # the bucket fills up again, two requests a second
    rest = [job for job in jobs if job not in written]
    assert "written" in statuses(apply(folder, dict.fromkeys(rest, -7))).values()


def test_probe__tries_both_levers_and_leaves_nothing(fresh):
    """doctor --probe as the Operator: every probe is ok, and its job is gone."""
    own = {"url": "sqlite:////tmp/probe/ledger.db", "journal": "/tmp/probe/journal", "lock": "/tmp/probe/lock"}
    run("mkdir", "-p", "/tmp/probe", user="slurmsched")
    code = "from slurmsched.config_file import parse_config; from slurmsched.slurm.doctor.diagnosis import diagnose; "
    code += f"config = parse_config({{'ledger': {own}, 'scope': {{'partitions': ['gpu']}}}}); "
    code += "print(*(f'{f.verdict}|{f.name}|{f.detail}' for f in diagnose(config, probe=True)), sep='\\n')"
    lines = run(PYTHON, "-c", code, user="slurmsched").out.splitlines()
    probes = [line for line in lines if "|probe: " in line or "|read " in line or "|write " in line]
    assert len(probes) == 12
    assert [line for line in probes if not line.startswith("ok|")] == []
    assert [line for line in lines if line.startswith("fail|")] == []
    until(lambda: not column("%T", "PENDING"), "the probe's job is cancelled")


def test_tick__a_nice_of_the_users_own_counts_in_rank_and_in_slurms_order(site):
    """What users take off their own jobs stays off; ranks of queue and explain are the order that Slurm has then."""
    site.configure(policy='{ name = "srsf" }')
    partition("DOWN")
    jobs = [
        submit("alice", 1, f"--time={limit}", f"--nice={own}") for limit, own in ((10, 5_000_000), (30, 0), (20, 0))
    ]
    site.tick()
    rows = site("queue", "--json").json()["jobs"]
    ranked = [row["job_id"] for row in sorted(rows, key=lambda row: row["rank"]) if row["job_id"] in jobs]
    priority = {job: int(value) for job, value in column("%Q").items() if job in jobs}
    assert ranked == sorted(jobs, key=lambda job: -priority[job]) == [jobs[2], jobs[1], jobs[0]]
    told = site("explain", str(jobs[0]), "--json").json()["explanation"]["ahead"]
    assert (told["rank"], "a nice of its own takes 5000000 off its priority" in told["told"]) == (3, True)


@pytest.mark.newest
def test_tick__on_priority_basic_writes_nothing_and_says_so(site):
    """There no value puts jobs into an order. doctor fails, plan, status and tick name the setting."""
    run("labctl", "conf", "PriorityType", "priority/basic")
    run("labctl", "restart", "slurmctld")
    partition("DOWN")
    for limit in (50, 10):
        submit("alice", 1, f"--time={limit}")
    site.configure(policy='{ name = "srsf" }')
    done = site("tick", "--apply", check=False)
    assert (done.rc, "PriorityType=priority/multifactor" in done.err, set(nices().values())) == (2, True, {0})
    planned = site("plan", "--json").json()
    assert (planned["planned"], planned["managed"], {one["rule"] for one in planned["refused"]}) == (0, 0, {"basic"})
    assert all(
        any("priority/basic" in note for note in site(name, "--json").json()["notes"]) for name in ("plan", "status")
    )
    found = site("doctor", "--json", check=False)
    assert (found.rc, "PriorityType" in found.out) == (10, True)

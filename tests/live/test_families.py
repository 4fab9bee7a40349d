"""One queue of a real Slurm under policies of every family: who starts first is whom the policy names, and all of them
carry out their order without an error."""

from __future__ import annotations

import time

import orjson
import pytest

from tests.live.acts import restarts
from tests.live.lab import PYTHON, Installed, column, partition, run, submit, until

pytestmark = [pytest.mark.live, pytest.mark.newest]
WHOLE = 32  # GPUs of the partition
# A cycle of `slurmsched tick --apply` under every policy there is, in one process, and the order that Slurm then has.
EVERY = """
import json, subprocess, sys, tomllib
from slurmsched import registry
from slurmsched.config import parse_config
from slurmsched.cycle import run_cycle
from slurmsched.daemon.assemble import assembled

def order():
    listed = subprocess.run(["squeue", "-h", "-a", "-t", "PENDING", "-o", "%A|%Q"], capture_output=True, text=True)
    jobs = [tuple(map(int, line.split("|"))) for line in listed.stdout.split()]
    return [job for job, _ in sorted(jobs, key=lambda pair: (-pair[1], pair[0]))]  # of equals the earlier

def tick(tree):
    told = []
    with assembled(parse_config(tree), apply=True) as parts:
        run_cycle(parts.cluster, parts.planner, parts.store, lambda *all: told.extend(all))
    snapshot, plan, receipt = told
    wanted = [int(snapshot.jobs.job_id[row]) for row in plan.ranking.order if snapshot.jobs.pending[row]]
    return {"planned": receipt.planned, "written": len(receipt.written), "stopped": receipt.stopped,
            "refused": [outcome.message for outcome in receipt.refused], "wanted": wanted, "order": order()}

tree = tomllib.load(open(sys.argv[1], "rb"))
print(json.dumps({name: tick(tree | {"policy": {"name": name}}) for name in registry.names("policies")}))
"""


def hinted(text: str) -> str:
    return f"--comment=slurmsched: {text}"


def waits_again(job: int) -> None:
    """A running job goes back to the queue, of which nobody starts for now."""
    partition("DOWN")
    run("scontrol", "requeue", str(job))
    until(lambda: restarts(job) == 1 and column("%T").get(job) == "PENDING", "it waits again")
    run("scontrol", "update", f"jobid={job}", "StartTime=now")


def first_to_start(site: Installed, policy: str) -> int:
    """The job that Slurm starts once the order of this policy is written; it is gone afterwards."""
    site.configure(policy=policy)
    assert site.tick()["refused"] == []
    partition("UP")
    until(lambda: column("%T", "RUNNING"), "a job runs")
    partition("DOWN")
    (job,) = column("%T", "RUNNING")
    run("scancel", str(job))
    until(lambda: job not in column("%T", "RUNNING", "COMPLETING"), "it is gone")
    return job


def test_families__each_starts_another_job_first(site: Installed) -> None:
    """Five jobs of the whole partition, of which the first has run before: by what the accounts have had, by deadline,
    by expected run time, by attained service; and the one that is left starts under a policy of rounds."""
    worked = submit("alice", WHOLE, hinted("dur=2h"))
    until(lambda: column("%T").get(worked) == "RUNNING", "the first job runs")
    fresh = submit("bob", WHOLE, hinted("dur=3h"))  # of the account that has GPUs, as the first
    other = submit("carol", WHOLE, hinted("dur=4h"))
    short = submit("bob", WHOLE, hinted("dur=5m"))
    urgent = submit("alice", WHOLE, hinted("dur=3h deadline=+4h"))
    site.configure(policy='{ name = "gandiva-fair" }')
    site.tick()  # from now on it counts what accounts hold
    time.sleep(3)
    site.tick()  # what the job has had is seen, however late slurmdbd tells of it
    waits_again(worked)
    assert first_to_start(site, '{ name = "gandiva-fair" }') == other
    assert first_to_start(site, '{ name = "chronus" }') == urgent
    assert first_to_start(site, '{ name = "lucid", estimator = "hint" }') == short
    assert first_to_start(site, '{ name = "discretized-las", thresholds_gpu_s = [8.0] }') == fresh
    assert first_to_start(site, '{ name = "gavel" }') == worked


def test_every_policy__writes_its_order(site: Installed) -> None:
    """Nothing is refused, no cycle ends early, and Slurm's own order of the waiting jobs is the policy's."""
    hints = ("dur=1h", "dur=10m deadline=+1h", "dur=30m min_gpus=1 max_gpus=4", "dur=2h progress=3/10 share=yes",
             "dur=20m model=resnet50 batch=64", "")  # fmt: skip
    submit("alice", 8, hinted("dur=1h progress=1/10"))
    until(lambda: column("%T", "RUNNING"), "a job runs")
    partition("DOWN")
    users = ("alice", "bob", "carol", "dave", "carol", "alice")
    jobs = [submit(user, gpus, *([hinted(hint)] if hint else []), "--time=180")
            for user, gpus, hint in zip(users, (8, 4, 2, 1, 2, 16), hints, strict=True)]  # fmt: skip
    until(lambda: len(column("%i", "PENDING")) == len(jobs), "all wait")
    script = site.folder / "every.py"
    script.write_text(EVERY)
    told = orjson.loads(run(PYTHON, str(script), str(site.file), user=site.user, timeout_s=600).out)
    assert len(told) >= 29
    for name, done in told.items():
        assert (done["refused"], done["stopped"], done["written"]) == ([], "", done["planned"]), name
        assert done["order"] == done["wanted"], name
        assert sorted(done["wanted"]) == jobs, name

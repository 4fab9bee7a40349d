"""What users see of their own jobs on a real Slurm: AdminComment, and the history that the daemon answers."""

from __future__ import annotations

import time

import pytest

from tests.live.lab import Installed, column, run, submit, until
from tests.live.operations import LEAVES, WILLING, clean, four_running, restarts, switched_on, ticks

pytestmark = pytest.mark.live
MODIFY = ("sacctmgr", "-iQ", "modify", "user", "slurmsched", "set")


def admin_comments(jobs: list[int]) -> dict[int, str]:
    """As squeue has it."""
    lines = run("squeue", "-h", "-a", "-r", "-t", "all", "-O", "JobID:0|,admin_comment:0").out.splitlines()
    known = {int(job): text.replace("(null)", "") for job, _, text in (line.partition("|") for line in lines)}
    return {job: known[job] for job in jobs}


def accounted(jobs: list[int]) -> dict[int, str]:
    """As sacct has it, of the latest submission, for the user."""
    rows = run("sacct", "-X", "-n", "-P", "-j", ",".join(map(str, jobs)), "-o", "JobIDRaw,AdminComment", user="alice")
    return {int(job): text for job, _, text in (line.partition("|") for line in rows.out.splitlines())}


@pytest.fixture
def preempting(site: Installed) -> Installed:
    """The LAS policy with small thresholds, preemption on, and no quantum to wait for."""
    switched_on(site)
    site.configure(policy='{ name = "discretized-las", thresholds_gpu_s = [8.0] }')
    return site


@pytest.mark.parametrize("right", ["Operator", "Administrator"])
def test_admin_comment__names_the_job_for_which_it_was_requeued(preempting: Installed, right: str) -> None:
    """An Operator writes it to slurmdbd, an Administrator to slurmctld too; somebody else's text stays; it is written
    once; undo takes it back."""
    run(*MODIFY, f"adminlevel={right}")
    try:
        jobs = four_running(WILLING, LEAVES)
        shown = admin_comments if right == "Administrator" else accounted
        theirs = jobs[0]
        write = (
            ["scontrol", "update", f"jobid={theirs}", "admincomment=by | hand"]
            if right == "Administrator"
            else ["sacctmgr", "-iQ", "modify", "job", "where", f"jobid={theirs}", "set", "admincomment=by | hand"]
        )
        run(*write)
        time.sleep(2)
        urgent = submit("bob", 32, "--time=10", "--exclusive", script="sleep 300")
        ticks(preempting, lambda: urgent in column("%A", "RUNNING"), "the urgent job runs")
        until(lambda: all(restarts(job) for job in jobs), "all were requeued")
        ticks(preempting, clean, "no reservation is left")
        run("scontrol", "update", f"jobid={jobs[1]}", "nice=3")
        ticks(
            preempting,
            lambda: all(f"for job {urgent}" in text for job, text in shown(jobs).items() if job != theirs),
            "they say for whom",
        )
        assert all(text.startswith("slurmsched: requeued 20") for job, text in shown(jobs).items() if job != theirs)
        if right == "Administrator":
            assert shown([theirs]) == {theirs: "by | hand"}
        assert not [one for one in preempting("plan", "--json").json()["steps"] if one["step"] == "comment"]
        preempting("undo", "--apply", "--yes")
        assert set(shown(jobs[1:]).values()) == {""}
        if right == "Administrator":
            assert shown([theirs]) == {theirs: "by | hand"}
    finally:
        run(*MODIFY, "adminlevel=Operator")

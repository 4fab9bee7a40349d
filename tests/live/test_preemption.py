"""Preemption on a real Slurm: whom it takes GPUs from, how, and that nothing is left of it whatever happens."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.live.lab import Installed, becoming, column, run, submit, until

pytestmark = pytest.mark.live

PYTHON = "/opt/venv/bin/python"
MARKS = Path("/tmp/slurmsched-marks")
# Notes the signal and goes on; ends at once when Slurm asks it to.
SAVES = f"trap 'echo $SLURM_JOB_ID >> {MARKS}/signalled' USR2; trap 'exit 0' TERM; while true; do sleep 0.2; done"
WILLING = "--comment=slurmsched: preempt=yes ckpt=USR2@3"
# Runs `slurmsched tick` and dies as by kill -9 right before, or right after, the k-th write of that cycle.
CUT = """
import os, sys
from slurmsched.slurm import writer
step, after = int(sys.argv.pop(1)), sys.argv.pop(1) == "after"
true_send = writer.CommandWriter.send
def send(self, actions):
    def counted():
        for at, action in enumerate(actions):
            if at == step and not after:
                os._exit(9)
            yield action
    for at, outcome in enumerate(true_send(self, counted())):
        if at == step and after:
            os._exit(9)
        yield outcome
writer.CommandWriter.send = send
from slurmsched.cli.main import main
sys.argv[0] = "slurmsched"
main()
"""


@pytest.fixture
def site(site: Installed) -> Installed:
    """The LAS policy with small thresholds, preemption on, and no quantum to wait for."""
    run("mkdir", "-p", "-m", "1777", str(MARKS))
    run("sh", "-c", f"rm -f {MARKS}/*")
    keys = {"enabled": "true", "quantum_s": "1", "restart_cost_s": "0", "least_factor": "0"}
    site.configure(policy='{ name = "discretized-las", thresholds_gpu_s = [8.0] }',
                   **{f"preemption__{key}": value for key, value in keys.items()})  # fmt: skip
    return site


@pytest.fixture
def running(site: Installed) -> list[int]:
    """A job on each of the four nodes, all beyond the threshold, all willing to leave."""
    jobs = [submit("alice", 8, WILLING, f"-w n{node}", "--requeue", "--time=60", script=SAVES) for node in (1, 2, 3, 4)]
    until(lambda: set(jobs) <= set(column("%A", "RUNNING")), "all four run")
    time.sleep(2)  # eight GPUs for two seconds: twice the threshold
    return jobs


def restarts(job: int) -> int:
    words = run("scontrol", "show", "job", str(job)).out.split()
    return int(next(word for word in words if word.startswith("Restarts=")).partition("=")[2])


def signalled() -> list[int]:
    path = MARKS / "signalled"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def reservations() -> list[str]:
    listed = run("scontrol", "-o", "show", "reservation").out
    return [line for line in listed.splitlines() if line.startswith("ReservationName=slurmsched-")]


def clean(*jobs: int) -> bool:
    """No reservation of ours, no job that names one."""
    named = column("%v", "PENDING", "RUNNING", "COMPLETING").values()
    return not reservations() and all(name in ("", "(null)", "N/A") for name in named)


def ticks(site: Installed, true: object, what: str, limit_s: float = 60) -> None:
    """Cycles until it is true."""

    def cycle() -> bool:
        site.tick()
        return bool(true())  # type: ignore[operator]

    until(cycle, what, limit_s)


def test_preempt__one_victim_saves_itself_leaves_and_comes_back(site, running):
    """It is signalled once, requeued once after its grace, and runs again; the beneficiary starts; nothing is left."""
    urgent = submit("bob", 8, "--time=10", script="sleep 15")
    ticks(site, lambda: urgent in column("%A", "RUNNING"), "the urgent job runs")
    (victim,) = [job for job in running if restarts(job)]
    assert (signalled(), restarts(victim)) == ([victim], 1)
    ticks(site, clean, "no reservation is left")
    ticks(site, lambda: victim in column("%A", "RUNNING"), "the victim runs again")
    assert [restarts(job) for job in sorted(running)].count(1) == 1


def test_preempt__second_cycle_takes_nobody_else(site, running):
    """While the first victim has its grace, leaves and completes, no other one is asked to."""
    urgent = submit("bob", 8, "--time=10")
    ticks(site, lambda: urgent in column("%A", "RUNNING"), "the urgent job runs")
    for _ in range(3):
        site.tick()
    assert (len(signalled()), sum(restarts(job) for job in running)) == (1, 1)


def test_preempt__nobody_leaves_for_a_job_that_gains_nothing(site, running):
    """Where only an unwilling job could make room, twenty cycles touch no one and give one reason."""
    run("scontrol", "update", f"jobid={running[3]}", "comment=slurmsched: preempt=no")
    urgent = submit("bob", 8, "--time=10", "-x", "n[1-3]")
    until(lambda: column("%r", "PENDING").get(urgent) not in (None, "None"), "Slurm has looked at it")
    for _ in range(20):
        assert site.tick()["written"] == 0
    assert (signalled(), [restarts(job) for job in running], reservations()) == ([], [0, 0, 0, 0], [])
    told = [row for row in site("plan", "--json").json()["refused"] if row["job_id"] == urgent]
    assert [row["rule"] for row in told] == ["victims"]


def test_preempt__job_without_hint_is_left_alone(site):
    """Nobody loses work who did not say that it may."""
    jobs = [submit("alice", 8, "--requeue", "--time=60") for _ in range(4)]
    until(lambda: set(jobs) <= set(column("%A", "RUNNING")), "all four run")
    submit("bob", 8, "--time=10")
    for _ in range(5):
        site.tick()
    assert [restarts(job) for job in jobs] == [0, 0, 0, 0]
    assert not reservations()


def test_preempt__beneficiary_cancelled_in_the_grace(site, running):
    """The victim goes on; its checkpoint was for nothing, and nothing else was."""
    for job in running:
        run("scontrol", "update", f"jobid={job}", "comment=slurmsched: preempt=yes ckpt=USR2@60")
    urgent = submit("bob", 8, "--time=10")
    ticks(site, signalled, "a victim is warned")
    assert len(reservations()) == 1
    run("scancel", str(urgent))
    ticks(site, clean, "all is taken back")
    assert [restarts(job) for job in running] == [0, 0, 0, 0]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", [0, 1, 2])
def test_preempt__killed_at_every_step_ends_clean(site, running, step, when):
    """kill -9 right before or after each write: no orphan reservation, no job bound to one, nobody requeued twice."""
    urgent = submit("bob", 8, "--time=10", script="sleep 20")
    until(lambda: column("%r", "PENDING").get(urgent) not in (None, "None"), "Slurm has looked at it")
    site.configure(pace__writes_per_cycle="1")
    tree = ("--config", str(site.file), "tick", "--apply")
    killed = run(*becoming(site.user), PYTHON, "-c", CUT, str(step), when, *tree, check=False)
    assert killed.rc == 9, killed.err
    ticks(site, lambda: urgent in column("%A", "RUNNING"), "the urgent job runs all the same", limit_s=90)
    ticks(site, clean, "nothing is left")
    assert max(restarts(job) for job in running) == 1
    # Cut off after a signal nobody knows whether it was heard: that act is taken back, and another one asks again.
    assert len(signalled()) == (2 if (step, when) == (2, "after") else 1)


def test_preempt__slurmctld_restarts_in_the_middle(site, running):
    """The act goes on where it was."""
    urgent = submit("bob", 8, "--time=10", script="sleep 20")
    ticks(site, signalled, "a victim is warned")
    run("labctl", "restart", "slurmctld")
    run("labctl", "wait-ready")
    ticks(site, lambda: urgent in column("%A", "RUNNING"), "the urgent job runs", limit_s=90)
    ticks(site, clean, "nothing is left")
    assert sum(restarts(job) for job in running) == 1

"""plugin/requeue on a real Slurm: jobs that are preempted save themselves, go back to the queue and go on."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.live.lab import PYTHON, Installed, column, run, submit, until
from tests.live.operations import clean, restarts, switched_on, ticks

pytestmark = [pytest.mark.live, pytest.mark.newest]
HELPERS = Path("/src/plugin/requeue")
HOME = Path("/home/alice")
ASKS = "--comment=slurmsched: preempt=yes ckpt=USR1@300"  # long: it goes by itself when it has saved


def training(command: str, node: str, state: Path) -> int:
    """A job of alice's that trains for an hour, begun with this command, its output beside its state."""
    run("rm", "-f", str(state), f"{state}.out")
    options = ("--requeue", "--open-mode=append", f"--output={state}.out", f"-w{node}", "--time=60", ASKS)
    script = f"exec {command} {HELPERS}/examples/train.py 36000 {state}"
    return submit("alice", 8, *options, script=script)


@pytest.mark.parametrize("command", [f"{HELPERS}/slurmsched-requeue srun python3", "python3"])
def test_requeue__a_preempted_job_goes_on_where_it_was(site: Installed, command: str):
    """Behind the wrapper as a task of srun, and as a batch script that is the program itself."""
    switched_on(site)
    site.configure(policy='{ name = "discretized-las", thresholds_gpu_s = [8.0] }')
    state = HOME / "state.json"
    said = Path(f"{state}.out")
    victim = training(command, "n1", state)
    others = [submit("dave", 8, "--comment=slurmsched: preempt=no", f"-wn{node}", "--time=60") for node in (2, 3, 4)]
    until(lambda: {victim, *others} <= set(column("%A", "RUNNING")), "all nodes are taken")
    until(lambda: said.exists() and "begins" in said.read_text(), "the program has its handler")
    time.sleep(2)  # eight GPUs: beyond the threshold
    urgent = submit("bob", 8, "--time=10", script="sleep 5")
    ticks(site, lambda: urgent in column("%A", "RUNNING", "COMPLETED"), "the urgent job runs")
    ticks(site, lambda: victim in column("%A", "RUNNING") and clean(), "the victim runs again")
    step = json.loads(state.read_text())["step"]
    until(lambda: f"goes on at step {step}" in said.read_text(), "it goes on where it was")
    assert (step > 0, restarts(victim), said.read_text().count("saved at step")) == (True, 1, 1)


def test_submitit__its_job_is_requeued_and_goes_on(site: Installed):
    """By the example's two lines of setup: a signal to the batch shell, as slurmsched sends it, reaches the task."""
    folder = HOME / "submitit"
    run("rm", "-rf", str(folder))
    run("mkdir", str(folder), user="alice")
    state = folder / "state.json"
    given = ("env", f"WRAPPER={HELPERS}/slurmsched-requeue", PYTHON, f"{HELPERS}/examples/train_submitit.py")
    job = int(run(*given, "36000", str(state), user="alice").out)
    until(lambda: state.exists() and json.loads(state.read_text())["step"] > 5, "it trains")
    run("scancel", "--batch", "-s", "USR2", str(job), user="alice")
    until(lambda: restarts(job) == 1, "it is requeued")
    run("scontrol", "update", f"jobid={job}", "starttime=now", user="alice", check=False)  # sooner, if it waits yet
    until(lambda: json.loads(state.read_text())["begin"] > 5, "it goes on where it was", 240)

"""`advise` and `gpus` on a real Slurm: requests are read as they were made, and anybody may ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmsched.topology.gres_compiler import JOB_SUBMIT
from tests.live.lab import BINARY, run, until

pytestmark = [pytest.mark.live, pytest.mark.newest]
FAULTS = {
    "gpus-per-task": "-N1 -n2 --gpus-per-task=2 --mem=1G", "whole-memory": "-N1 --gpus-per-node=4 --mem=0",
    "exclusive": "-N1 --gpus-per-node=2 --exclusive --mem=1G", "cpus": "-N1 --gpus=1 -c64 --mem=1G",
    "array-of-nodes": "--gpus=1 -c64 --array=1-2 --mem=1G", "no-gpu": "-c8 --mem=1G",
}  # fmt: skip
SOUND = "-N1 --gpus-per-node=2 -c16 --mem=8G"
LUA = Path("/etc/slurm/job_submit.lua")


def submit(options: str, *more: str) -> int:
    answer = run(
        "sbatch", "--parsable", "--output=/dev/null", *options.split(), *more, "--wrap=sleep 600", user="alice"
    )
    return int(answer.out)


def test_advise__finds_each_fault_and_leaves_the_rest(fresh):
    """Of held jobs with one fault each: that one; of a sound request nothing, whatever the release tells and how."""
    jobs = {submit(options, "--hold"): rule for rule, options in FAULTS.items()}
    sound = submit(SOUND, "--hold")
    found = run(BINARY, "advise", "--user", "alice", "--json", user="bob").json()["jobs"]
    assert {one["job_id"]: one["rule"] for one in found} == jobs
    assert sound not in {one["job_id"] for one in found}


def test_gpus__free_used_and_stranded(fresh):
    """What running jobs hold is used; free GPUs beside a job that took all memory are stranded, by its name."""
    job = submit("-w n1 --gpus-per-node=3 --mem=0")
    until(lambda: run("squeue", "-h", "-t", "R", "-o", "%A").out.split() == [str(job)], "it runs")
    told = run(BINARY, "gpus", "--nodelist", "n[1-2]", "--json", user="bob").json()
    (kind,), (lost,) = told["types"], told["stranded"]
    assert (kind["gpus"], kind["free"], kind["stranded"], kind["used"]) == (16, 13, 5, 3)
    assert (lost["node"], lost["cause"], lost["holders"][0]["job_id"]) == ("n1", "memory", job)


def test_job_submit__makes_one_form_of_requests(fresh):
    """The lines that `topology compile` prints: --gpus=N of a one-node job is counted by node, others stay."""
    LUA.write_text(JOB_SUBMIT)
    try:
        run("labctl", "conf", "JobSubmitPlugins", "lua")
        run("labctl", "reconfigure")
        wanted = {"-N1 --gpus=2": "TresPerNode=gres/gpu:2", "-N1 --gpus=a100:3": "TresPerNode=gres/gpu:a100:3",
                  "-N2 --gpus=4": "TresPerJob=gres/gpu:4", "--gpus=2": "TresPerJob=gres/gpu:2"}  # fmt: skip
        texts = {options: run("scontrol", "show", "job", str(submit(options, "--hold"))).out for options in wanted}
        assert {options: word in texts[options] for options, word in wanted.items()} == dict.fromkeys(wanted, True)
    finally:
        run("labctl", "reset")  # removes the script too


def test_usage__what_slurm_has_measured(fresh):
    """Of fake GPUs slurmd measures nothing, and that is said. With a value in slurmdbd's table sacct shows it, and the
    job's own size is counted: 100 of two GPUs is a half. Running jobs are asked about by sstat."""
    (config := Path("/tmp/usage.toml")).write_text('[measured_use]\nsource = "slurm"\n')
    measured = int(run("sbatch", "--parsable", "--output=/dev/null", "-N1", "--gpus-per-node=2", "--mem=1G",
                       "--wrap=srun sleep 1", user="alice").out)  # fmt: skip
    until(lambda: "COMPLETED" in run("sacct", "-nXj", str(measured), "-o", "State").out, "it has ended")
    running = submit("-N1 --gpus-per-node=1 --mem=1G")
    until(lambda: str(running) in run("squeue", "-h", "-t", "R", "-o", "%A").out, "it runs")
    asked = (BINARY, "--config", str(config), "usage", "--since", "1h", "--json")
    assert {one["job_id"]: one["use"] for one in run(*asked, user="alice").json()["jobs"]}.items() >= {
        measured: None, running: None}.items()  # fmt: skip
    tres = run("sacctmgr", "-nP", "show", "tres", "format=type,name,id").out.splitlines()
    gpuutil = next(line.rpartition("|")[2] for line in tres if line.startswith("gres|gpuutil"))
    run("mariadb", "slurm_acct_db", "-e", f"UPDATE lab_step_table s JOIN lab_job_table j USING (job_db_inx) SET "
        f"s.tres_usage_in_tot = '1=1000,{gpuutil}=100' WHERE j.id_job = {measured}")  # fmt: skip
    told = run(*asked, user="alice").json()
    assert {one["job_id"]: one["use"] for one in told["jobs"]}[measured] == 0.5
    config.unlink()

"""CPUs and memory of pending jobs on a real Slurm: written where they keep a job from idle GPUs, and given back."""

from __future__ import annotations

import pytest

from tests.live.lab import Installed, run, submit, until
from tests.live.operations import cut_tick

pytestmark = [pytest.mark.live]
FEWER = "--comment=slurmsched: min_cpus=4"
ON_NODE = "--nodelist=n1"


def cpus(job: int) -> tuple[str, ...]:
    """CPUs of the job, of each node and of its task."""
    shown = dict(
        word.split("=", 1) for word in run("scontrol", "-o", "show", "job", str(job)).out.split() if "=" in word
    )
    return shown["NumCPUs"], shown["MinCPUsNode"], shown["CPUs/Task"]


def waits(job: int) -> bool:
    return "PENDING" in run("squeue", "-h", "-j", str(job), "-o", "%T").out


def running(job: int) -> bool:
    return run("squeue", "-h", "-j", str(job), "-o", "%T").out.strip() == "RUNNING"


def test_cpus__a_job_gets_what_is_left_beside_idle_gpus_and_its_own_back(site: Installed) -> None:
    """56 of 64 CPUs of n1 are taken, with one GPU. A job of 16 CPUs that can do with 4 starts with the 8 that are left,
    though the cycle that writes them dies. When the job comes back, undo gives it its own, but not the number that its
    user has changed meanwhile. One whose memory goes by CPUs, one that asks by tasks and one without the hint keep
    theirs."""
    holder = submit("bob", 1, ON_NODE, "--cpus-per-task=56")
    until(lambda: running(holder), "the node is nearly full")
    job, memory, tasks, firm = (
        submit("alice", 1, ON_NODE, "--cpus-per-task=16", FEWER, "--requeue"),
        submit("alice", 1, ON_NODE, "--cpus-per-task=16", FEWER, "--mem-per-cpu=100M"),
        submit("alice", 1, ON_NODE, "--ntasks=16", FEWER),
        submit("alice", 1, ON_NODE, "--cpus-per-task=16"),
    )
    site.configure(policy='{ name = "fifo" }', lever__cpus="true", lever__admin_comment="false")
    assert cut_tick(site, [("cpus", "after")])  # it dies right after the write
    site.tick()
    until(lambda: running(job), "the job runs")
    assert (cpus(job)[0], cpus(tasks), cpus(memory), cpus(firm)) == ("8", ("16", "1", "1"), ("16",) * 3, ("16",) * 3)
    run("scontrol", "requeue", str(job))
    until(lambda: waits(job), "it waits again")
    run("scontrol", "update", f"jobid={job}", "cpuspertask=12")
    site("undo", "--apply", "--yes")
    assert cpus(job) == ("16", "16", "12")
    run("scancel", *map(str, (holder, job, memory, tasks, firm)))


def memory(job: int) -> str:
    """As its user asked for it, or as it is written now."""
    shown = run("scontrol", "-o", "show", "job", str(job)).out
    return next(word.split("=", 1)[1] for word in shown.split() if word.startswith("MinMemory"))


def test_memory__a_job_gets_what_is_free_beside_idle_gpus_and_its_own_back(site: Installed) -> None:
    """A job holds all memory of n1 but 3 GiB. One of 8 GiB that can do with 2 starts with these 3, though the cycle
    that writes them dies; when it comes back undo gives it its own. One whose memory goes by CPUs, and one without the
    hint, keep theirs."""
    shown = run("scontrol", "-o", "show", "node", "n1").out
    real = int(next(word.split("=")[1] for word in shown.split() if word.startswith("RealMemory=")))
    holder = submit("bob", 1, ON_NODE, f"--mem={real - 3 * 1024}M")
    until(lambda: running(holder), "the memory is nearly full")
    least = "--comment=slurmsched: min_mem=2"
    job, by_cpu, firm = (
        submit("alice", 1, ON_NODE, "--mem=8G", least, "--requeue"),
        submit("alice", 1, ON_NODE, "--mem-per-cpu=8G", least),
        submit("alice", 1, ON_NODE, "--mem=8G"),
    )
    site.configure(policy='{ name = "fifo" }', lever__memory="true", lever__admin_comment="false")
    assert cut_tick(site, [("memory", "after")])  # it dies right after the write
    site.tick()
    until(lambda: running(job), "the job runs")
    assert [memory(each) for each in (job, by_cpu, firm)] == ["3G", "8G", "8G"]
    run("scontrol", "requeue", str(job))
    until(lambda: waits(job), "it waits again")
    site("undo", "--apply", "--yes")
    assert memory(job) == "8G"
    run("scancel", *map(str, (holder, job, by_cpu, firm)))

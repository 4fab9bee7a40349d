"""Sizes of elastic jobs on a real Slurm: written while they wait, given back, and left to whoever changes them."""

from __future__ import annotations

import pytest

from tests.live.lab import Installed, column, partition, run, submit, until
from tests.live.operations import cut_tick, ticks

pytestmark = [pytest.mark.live]
ELASTIC = "--comment=slurmsched: min_gpus=1 max_gpus=8"


def asks(job: int) -> str:
    return column("%b")[job]


def batch(*options: str) -> int:
    """Job id of a batch job of alice with these options alone."""
    return int(run("sbatch", "--parsable", "--output=/dev/null", *options, "--wrap=sleep 600", user="alice").out)


@pytest.mark.newest
def test_size__is_written_while_a_job_waits_and_undone(site: Installed) -> None:
    """On an idle cluster dorm gives every elastic job its most. A second cycle writes nothing; a process that dies
    right after the write leaves enough on record for undo; what the user changes stays; the job starts with what
    was written, and one that tells no sizes, or asks in another way, with its own."""
    site.configure(policy='{ name = "dorm" }', lever__admin_comment="false")  # its writes would count too
    partition("DOWN")
    elastic, firm = submit("alice", 2, ELASTIC), submit("bob", 2)
    other = batch("--gpus=2", ELASTIC)
    words = "the policy would give 2 jobs another number of GPUs; set lever.size = true to write that"
    assert words in site("plan").out
    site.configure(lever__size="true")
    assert cut_tick(site, [("retype", "after")])
    assert asks(elastic) == "gres/gpu:8"
    assert "2 requests" in site("undo", "--apply", "--yes").out  # that of `other` may have been on its way
    assert asks(elastic) == "gres/gpu:2"
    site.tick()
    site.tick()  # the one that asks in another way was tried once
    assert (asks(elastic), asks(firm), site.tick()["planned"]) == ("gres/gpu:8", "gres/gpu:2", 0)
    run("scontrol", "update", f"jobid={elastic}", "Gres=gpu:4", user="alice")
    assert [site.tick()["planned"] for _ in range(2)] == [0, 0]
    partition("UP")
    jobs = (elastic, firm, other)
    until(lambda: set(jobs) <= set(column("%A", "RUNNING")), "all run")
    held = {job: run("scontrol", "-o", "show", "job", str(job)).out.partition("gres/gpu:a100=")[2][:1] for job in jobs}
    assert held == {elastic: "4", firm: "2", other: "2"}


ASKED = "NumNodes,NumTasks,NumCPUs,tres-per-job,tres-per-node,tres-per-task"


def requests() -> dict[int, str]:
    """All that the waiting jobs ask for, by id."""
    columns = ",".join(f"{name}:0|" for name in ("JobID", *ASKED.split(",")))
    lines = run("squeue", "-h", "-t", "PENDING", "-O", columns).out.splitlines()
    return {int(job): asked for job, _, asked in (line.partition("|") for line in lines)}


def gpus_of(job: int) -> str:
    """GPUs that a running job or task holds."""
    return run("squeue", "-h", "-j", str(job), "-O", "tres-alloc:0").out.partition("gres/gpu=")[2][:1]


def hints(most: int) -> str:
    return f"--comment=slurmsched: min_gpus=1 max_gpus={most}"


def test_size__is_written_as_each_job_asks_for_its_gpus(site: Installed) -> None:
    """A gang gets more nodes, a job that asks by task more tasks, an array more GPUs for each task; others are left
    with a reason. A process dies after each write; undo gives all that jobs asked for back, and again to a task
    that was requeued."""
    site.configure(policy='{ name = "dorm" }', lever__size="true", lever__admin_comment="false")
    partition("DOWN")
    of_job = batch("--gpus=2", "--nodes=1", "--mem=1G", hints(4))
    gang = batch("--gpus-per-node=2", "--nodes=2", "--mem=1G", "--cpus-per-task=2", hints(7))
    tasks = batch("--gpus-per-task=1", "--ntasks=2", "--nodes=1", "--mem=1G", "--cpus-per-task=3", hints(4))
    array = batch("--gres=gpu:1", "--array=1-2", "--mem=1G", "--requeue", hints(2))
    free = batch("--gpus=1", "--mem=1G", hints(2))
    own = requests()
    while cut_tick(site, [("retype", "after")]):  # a cycle dies after each write
        pass
    words = site("explain", str(free)).out
    assert "a number of nodes that is not fixed" in words
    sized = {of_job: "1|1|1|gres/gpu:4|", gang: "3|3|6|N/A|gres/gpu:2|", tasks: "1|4|12|N/A|N/A|",
             array: "1|1|1|N/A|gres/gpu:2|", free: own[free]}  # fmt: skip
    now = requests()
    assert {job: now[job][: len(asked)] for job, asked in sized.items()} == sized
    site("undo", "--apply", "--yes")
    assert requests() == own
    site.tick()
    partition("UP")
    until(lambda: not requests(), "all run")
    split = next(job for job in column("%A", "RUNNING") if job > free)  # the first task has a record of its own
    assert [gpus_of(job) for job in (of_job, gang, tasks, split, free)] == ["4", "6", "4", "2", "1"]
    partition("DOWN")
    site.tick()
    run("scontrol", "requeue", str(split))
    until(lambda: split in requests(), "it waits again")
    site("undo", "--apply", "--yes")
    assert requests() == {split: own[array]}
    partition("UP")


def test_shrink__a_running_gang_gives_nodes_back(site: Installed) -> None:
    """The policy gives it fewer GPUs when another job comes, which then starts there; the gang goes on on its first
    nodes, also where the process dies right after the write."""
    site.configure(policy='{ name = "dorm", theta2 = 1.0 }', lever__shrink="true", job_reports__least_run_s="1",
                   preemption__restart_cost_s="0")  # fmt: skip
    gang = batch("--gpus-per-node=8", "--nodes=4", "--mem=1G", "--no-requeue",
                 "--comment=slurmsched: min_gpus=8 max_gpus=32 shrink=yes")  # fmt: skip
    until(lambda: gang in column("%A", "RUNNING"), "the gang runs")
    other = submit("bob", 8)
    until(lambda: cut_tick(site, [("shrink", "after")]), "a cycle dies after it took nodes")
    until(lambda: other in column("%A", "RUNNING"), "the other one runs")
    site.tick()
    assert (column("%D")[gang], column("%N")[gang]) == ("3", "n[1-3]")


def test_moldable__a_job_starts_with_the_gpus_that_are_free(site: Installed) -> None:
    """Every node has four: it asks for eight, and starts on four in the next cycle, under a policy without sizes."""
    site.configure(policy='{ name = "fifo" }', lever__size="true", lever__moldable="true")
    for node in (1, 2, 3, 4):
        submit("bob", 4, "--time=600", f"-w n{node}")
    until(lambda: len(column("%A", "RUNNING")) == 4, "all four run")
    words = "--comment=slurmsched: moldable=yes min_gpus=2 max_gpus=8 dur=30m"
    job, firm = submit("alice", 8, "--time=120", words), submit("alice", 8, "--time=120")
    until(lambda: job in column("%A", "PENDING") and column("%r")[job] in ("Resources", "Priority"), "it waits")
    ticks(site, lambda: job in column("%A", "RUNNING"), "Slurm expects a start, and it runs")
    assert (gpus_of(job), firm in column("%A", "PENDING")) == ("4", True)

"""Sizes of elastic jobs on a real Slurm: written while they wait, given back, and left to whoever changes them."""

from __future__ import annotations

import pytest

from tests.live.lab import Installed, column, partition, run, submit, until
from tests.live.operations import cut_tick

pytestmark = [pytest.mark.live, pytest.mark.newest]
ELASTIC = "--comment=slurmsched: min_gpus=1 max_gpus=8"


def asks(job: int) -> str:
    return column("%b")[job]


def test_size__is_written_while_a_job_waits_and_undone(site: Installed) -> None:
    """On an idle cluster dorm gives every elastic job its most. A second cycle writes nothing; a process that dies
    right after the write leaves enough on record for undo; what the user changes stays; the job starts with what
    was written, and one that tells no sizes, or asks in another way, with its own."""
    site.configure(policy='{ name = "dorm" }', lever__admin_comment="false")  # its writes would count too
    partition("DOWN")
    elastic, firm = submit("alice", 2, ELASTIC), submit("bob", 2)
    other = int(
        run("sbatch", "--parsable", "--output=/dev/null", "--gpus=2", ELASTIC, "--wrap=sleep 600", user="alice").out
    )
    words = "the policy would give 2 jobs another number of GPUs; set lever.size = true to write that"
    assert words in site("plan").out
    site.configure(lever__size="true")
    assert cut_tick(site, [("retype", "after")])
    assert asks(elastic) == "gres/gpu:8"
    assert "1 request" in site("undo", "--apply", "--yes").out
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

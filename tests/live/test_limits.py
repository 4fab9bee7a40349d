"""Limits of a QOS beside preemption: nobody loses GPUs to a job that would not start on them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live.lab import Installed, column, run, submit, until
from tests.live.operations import clean, four_running, restarts, switched_on, ticks

pytestmark = pytest.mark.live


@pytest.fixture
def one_job_each(site: Installed) -> Iterator[Installed]:
    """Preemption, and QOS single: one running job a user."""
    run("sacctmgr", "-i", "add", "qos", "single", check=False)
    run("sacctmgr", "-i", "modify", "qos", "single", "set", "maxjobsperuser=1")
    run("sacctmgr", "-i", "modify", "user", "bob", "set", "qos+=single", check=False)
    switched_on(site)
    site.configure(policy='{ name = "srsf" }')
    yield site
    run("sacctmgr", "-i", "modify", "user", "bob", "set", "qos-=single", check=False)


def test_preemption__nobody_leaves_for_a_job_that_waits_for_a_limit(one_job_each):
    """Four willing jobs hold all GPUs. bob's short job comes first by the policy, but runs a job already: nobody leaves
    while that runs, and one does when it has ended."""
    jobs = four_running()
    first = submit("bob", 0, "--qos=single", "--time=50")
    until(lambda: first in column("%A", "RUNNING"), "bob's first job runs")
    second = submit("bob", 8, "--qos=single", "--time=1")
    until(lambda: column("%r", "PENDING").get(second) == "QOSMaxJobsPerUserLimit", "Slurm tells of the limit")
    for _ in range(3):
        one_job_each.tick()
    assert ([restarts(job) for job in jobs], clean(*jobs)) == ([0, 0, 0, 0], True)
    run("scancel", str(first))
    ticks(one_job_each, lambda: second in column("%A", "RUNNING"), "bob's second job runs")
    assert sum(restarts(job) for job in jobs) == 1

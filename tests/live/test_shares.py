"""Shares of accounts on a real Slurm, and a fair split between two tenants by nice alone."""

from __future__ import annotations

import pytest

from tests.live.lab import column, partition, run, sacct, submit, until

pytestmark = pytest.mark.live
READ = """
from slurmsched.config_file import parse_config
from slurmsched.slurm.open_cluster import open_live
cluster = open_live(parse_config({"policy": {"name": "astraea"}}), apply=False)
print(dict(cluster.read().shares))
cluster.close()
"""
JOBS = 20  # of each tenant
SECONDS = 4


def test_shares__are_those_of_the_associations(fresh):
    """A plain user reads them; what is below an account divides its shares."""
    run("sacctmgr", "-iQ", "modify", "account", "physics", "set", "fairshare=3", "where", "cluster=lab")
    try:
        told = run("/opt/venv/bin/python", "-c", READ, user="alice").out
    finally:
        run("sacctmgr", "-iQ", "modify", "account", "physics", "set", "fairshare=1", "where", "cluster=lab")
    assert told.strip() == str({"biology": 0.25, "industry": 1.0, "physics": 0.75, "science": 1.0})


def gpu_seconds(jobs: list[int], start_s: int, end_s: int) -> float:
    """GPU time of whole-node jobs between two times, by sacct."""
    spans = [tuple(map(int, span)) for span in sacct("Start,End", jobs)]
    return sum(8 * max(min(end, end_s) - max(start, start_s), 0) for start, end in spans)


@pytest.mark.parametrize("policy", ["astraea"])
def test_nice__splits_gpu_time_between_two_tenants(site, policy):
    """Alice's jobs all came first, and yet carol's account gets as many GPU seconds while both have jobs waiting."""
    site.configure(policy=f'{{ name = "{policy}" }}')
    partition("DOWN")
    sleep = f"sleep {SECONDS}"
    alice = [submit("alice", 8, script=sleep) for _ in range(JOBS)]
    carol = [submit("carol", 8, script=sleep) for _ in range(JOBS)]
    site.tick()
    until(lambda: len(column("%i", "PENDING")) == 2 * JOBS, "all wait")
    partition("UP")
    until(lambda: not column("%i", "PENDING"), "all have started")
    until(lambda: not column("%i", "RUNNING", "COMPLETING"), "all have ended")
    first, last = starts(alice + carol)[0], min(starts(alice)[-1], starts(carol)[-1])
    shared = [gpu_seconds(jobs, first, last) for jobs in (alice, carol)]
    assert abs(shared[0] - shared[1]) <= 0.05 * sum(shared), shared


def starts(jobs: list[int]) -> list[int]:
    """When they started, in order. Until the last one's start its tenant had jobs waiting."""
    return sorted(int(start) for (start,) in sacct("Start", jobs))

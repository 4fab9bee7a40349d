"""Jobs placed by their hints on a real Slurm: better pairs than Slurm gives by itself, and node lists that go back.

LAB_CHURN: jobs of each churn, instead of the few that a common run has time for.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.live.lab import Installed, column, run, until
from tests.live.pair_churn import PLACED, churn, compile_links, mesh, placing
from tests.live.pair_churn import submit as submit_pair
from tests.live.test_preemption import cut_tick

pytestmark = pytest.mark.live
JOBS = int(os.environ.get("LAB_CHURN", "30"))
HINTED = [PLACED[0], "--begin=now+600"]


def test_daemon__gives_better_pairs_than_the_compiled_file_alone(site):
    """The same churn with and without the daemon: its share of best pairs is not below, and what it pinned was best."""
    folder = Path(site.folder)
    ranks = mesh(folder)
    compile_links(200)
    alone = churn(JOBS // 2, ranks, [])
    run("labctl", "reset")
    mesh(folder)
    compile_links(200)
    with placing(site):
        placed = churn(JOBS, ranks, PLACED)
    assert placed.best_share >= alone.best_share
    assert placed.best_share >= 0.95
    told = site("topology", "quality", "--json").json()["jobs"]
    assert sum(row["jobs"] for row in told if row["pinned"]) * 2 > JOBS
    assert min(row["best_share"] for row in told if row["pinned"]) >= 0.95


@pytest.fixture
def hinting(site: Installed) -> Installed:
    """Jobs are placed by their hints; those that come with a begin time soon after wait for that."""
    # Its write would be one more than the tests count.
    site.configure(
        policy='{ name = "fifo" }', placement__pin='"hints"', placement__wait_s="700", lever__admin_comment="false"
    )
    return site


def lists(*jobs: int) -> list[str]:
    """The node list of each job, "" = none."""
    found = column("%n")
    return [found[job] for job in jobs]


def cut_after_the_list(site: Installed) -> int:
    """A job whose list was written by a process that then died; it does not begin by itself yet."""
    job = submit_pair(HINTED)
    assert cut_tick(site, [("pin", "after")])
    assert lists(job)[0].startswith("n")
    return job


def test_pin__is_known_to_the_next_process(hinting):
    """It sends the list no second time, only the start; the job runs on that node."""
    job = cut_after_the_list(hinting)
    (node,) = lists(job)
    receipt = hinting.tick()
    assert (receipt["written"], receipt["refused"]) == (1, [])
    until(lambda: column("%N", "RUNNING").get(job) == node, "it runs where it was placed")


def test_pin__undo_gives_the_list_back(hinting):
    """From the record of a process that died."""
    job = cut_after_the_list(hinting)
    assert "1 node list" in hinting("undo", "--apply", "--yes").out
    assert lists(job) == [""]


def test_pin__a_job_that_does_not_start_gets_its_list_back_and_keeps_it(hinting):
    """After the time-out it is Slurm's: no later cycle touches it."""
    job = cut_after_the_list(hinting)
    hinting.configure(placement__start_timeout_s="0.1")
    assert hinting.tick()["written"] == 1
    assert lists(job) == [""]
    assert hinting.tick()["planned"] == 0


def test_pin__the_users_own_wishes_stand(hinting):
    """A node of their own, nodes left out, a whole node, an array: no list of ours, and a reason for each."""
    named, array = submit_pair([*HINTED, "-w", "n3"]), submit_pair([*HINTED, "-a", "0-1"])
    whole, without = submit_pair([*HINTED, "--exclusive"]), submit_pair([*HINTED, "-x", "n[1-3]"])
    told = hinting("plan", "--json").json()
    assert {row["job_id"]: row["rule"] for row in told["refused"]} == {
        named: "pin-own", array: "pin-array", whole: "pin-asks",
    }  # fmt: skip
    assert {step["job_id"]: step["nodes"] for step in told["steps"] if step["step"] == "pin"} == {without: "n4"}

"""A policy that learns, on a real Slurm: what ended there orders what comes next."""

from __future__ import annotations

import time

import pytest

from tests.live.lab import column, nices, partition, sacct, submit, until

pytestmark = [pytest.mark.live, pytest.mark.newest]


def ended(*jobs: int) -> bool:
    """Whether accounting knows that all of them completed."""
    return sacct("State", jobs) == [["COMPLETED"]] * len(jobs)


def test_past__orders_the_next_jobs_of_a_user(site):
    """Runs of `eval` took less than runs of `train`: of two jobs of one size and limit, the later eval goes first."""
    site.configure(policy='{ name = "qssf", trees_share = 0.0 }', past__days="1")
    nothing = site("policy", "show", "qssf", "--site", "--json").json()["card"]
    jobs = [submit("alice", 2, script=f"sleep {seconds}", name=name) for name, seconds in
            (("train_1", 8), ("train_2", 8), ("eval_1", 1), ("eval_2", 1))]  # fmt: skip
    until(lambda: ended(*jobs), "accounting knows how they ended")
    time.sleep(1)  # the past is of whole seconds that are over
    shown = site("policy", "show", "qssf", "--site", "--json").json()["card"]
    assert shown["given"][0].startswith("jobs that ended: ") and shown["given"] != nothing.get("given")
    assert not any(each.startswith("jobs that ended") for each in shown["lacking"])

    partition("DOWN")
    train, evaluation = (submit("alice", 2, "--time=60", name=name) for name in ("train_3", "eval_3"))
    until(lambda: len(column("%i", "PENDING")) == 2, "both wait")
    why = {row["job_id"]: row for row in site("queue", "--json").json()["jobs"]}
    assert why[evaluation]["why"]["run_s"] < 6 < why[train]["why"]["run_s"] < 60
    site.tick()
    assert nices()[evaluation] < nices()[train]
    assert (site.folder / "past.npz").exists()
    power = site("power", "advise", "--json").json()
    assert (power["nodes"], power["idle"] > 0, "days of the past" in power["why"]) == ([], True, True)

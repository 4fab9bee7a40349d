"""Deadlines on a real Slurm: who has one starts in time, and jobs whose time comes later are made to wait."""

from __future__ import annotations

import time

import pytest

from tests.live.lab import Installed, column, partition, run, submit, until

pytestmark = [pytest.mark.live, pytest.mark.newest]
WHOLE = 32  # GPUs of the partition


def test_chronus__a_deadline_job_starts_before_earlier_ones(site: Installed) -> None:
    """Three jobs of the whole partition came first; the one with a deadline comes last, and runs first."""
    site.configure(policy='{ name = "chronus", lease_s = 600 }')
    partition("DOWN")
    for user in ("alice", "carol", "dave"):
        submit(user, WHOLE)
    urgent = submit("bob", WHOLE, "--comment=slurmsched: dur=10m deadline=+30m")
    told = site("plan", "--json").json()
    assert "3 of 4 jobs have no deadline: best effort" in told["notes"]
    assert site.tick()["written"] > 0
    partition("UP")
    until(lambda: column("%T", "RUNNING"), "the first job runs")
    assert list(column("%T", "RUNNING")) == [urgent]


@pytest.fixture
def slots(site: Installed) -> Installed:
    """Jobs are admitted into slots of ten minutes and wait for theirs."""
    site.configure(policy='{ name = "oasis", fill = false }', lever__start="true")
    return site


def waits_s(job: int) -> float:
    """In how many seconds Slurm may start the job."""
    text = run("env", "SLURM_TIME_FORMAT=%s", "scontrol", "-o", "show", "job", str(job)).out
    return int(text.partition(" EligibleTime=")[2].split()[0]) - time.time()


def two_in_turn(site: Installed) -> tuple[int, int]:
    """A job that runs and one whose slot comes after it, both of the whole partition."""
    first, second = (submit(user, WHOLE, "--comment=slurmsched: dur=10m") for user in ("alice", "bob"))
    until(lambda: column("%T").get(first) == "RUNNING", "the first job runs")
    assert "start at" in site("plan").out
    assert site.tick()["refused"] == []
    return first, second


def test_start__a_job_waits_for_its_slot_until_its_start_lapses(slots: Installed) -> None:
    """Its GPUs are free, and it does not start; a second cycle writes nothing. A start is two seconds away at most
    then, and slurmsched does not come back: Slurm starts the job, though its slot is far."""
    first, second = two_in_turn(slots)
    assert 60 < waits_s(second) < 1_201
    assert slots.tick()["planned"] == 0
    run("scancel", str(first))
    until(lambda: first not in column("%T", "RUNNING", "COMPLETING"), "the first job is gone")
    assert column("%T")[second] == "PENDING"
    slots.configure(lever__start_most_s="2")
    assert slots.tick()["written"] >= 1
    until(lambda: column("%T").get(second) == "RUNNING", "it runs by itself")


def test_start__undo_and_operators_let_a_job_start(slots: Installed) -> None:
    """Undo gives its own start back, and the next cycle takes it again. An operator's start stands: no later cycle
    makes the job wait."""
    _, second = two_in_turn(slots)
    assert "1 earliest start" in slots("undo", "--apply", "--yes").out
    assert waits_s(second) <= 1
    assert slots.tick()["written"] >= 1
    assert waits_s(second) > 60
    time.sleep(3)  # a start like the one that it had before ours would mean that ours was never sent
    run("scontrol", "update", f"jobid={second}", "StartTime=now")
    assert [slots.tick()["planned"] for _ in range(2)] == [0, 0]
    assert waits_s(second) <= 1

"""Every state and flag of a job is said for what it is; nothing that is not known "runs"."""

from __future__ import annotations

import json

import pytest

from slurmsched.model import JobState
from slurmsched.model.reasons import Blocker
from slurmsched.observe.explain.wording import blocker_of_state
from tests.cases.conftest import Run
from tests.cases.fake_slurm import FakeSlurm, job, node, running

# The word that squeue prints, whether the job has nodes -> blocker, and words of the sentence.
STATES = {
    "RUNNING": (True, Blocker.RUNNING, "It runs on n1"),
    "SUSPENDED": (True, Blocker.SUSPENDED, "It is suspended on n1"),
    "STOPPED": (True, Blocker.RUNNING, "its processes are stopped by a signal"),
    "SIGNALING": (True, Blocker.RUNNING, "a signal to it is on its way"),
    "RESIZING": (True, Blocker.RUNNING, "its size is about to change"),
    "CONFIGURING": (True, Blocker.STARTING, "which boot or are being prepared"),
    "POWER_UP_NODE": (True, Blocker.STARTING, "which boot or are being prepared"),
    "COMPLETING": (True, Blocker.COMPLETING, "It is ending on n1"),
    "STAGE_OUT": (True, Blocker.ENDED, "its burst buffer is being copied out"),
    "REVOKED": (False, Blocker.ENDED, "Another cluster of the federation has started it"),
    "SPECIAL_EXIT": (False, Blocker.HELD_AFTER_FAILURE, "Slurm holds it: SPECIAL_EXIT"),
    "RESV_DEL_HOLD": (False, Blocker.RESERVATION_GONE, "The reservation it was for is gone"),
    "REQUEUE_HOLD": (False, Blocker.HELD_BY_USER, "It was requeued and is held"),
    "REQUEUE_FED": (False, Blocker.FEDERATION, "Another cluster of the federation looks at it"),
    "LAUNCH_FAILED": (False, Blocker.STATE_UNKNOWN, "Its start failed"),
    "RECONFIG_FAIL": (False, Blocker.STATE_UNKNOWN, "could not be configured"),
    "UPDATE_DB": (False, Blocker.STATE_UNKNOWN, "Its record in the accounting database"),
    "EXPEDITING": (False, Blocker.STATE_UNKNOWN, "Slurm starts it again before others"),
    "NEWSTATE": (False, Blocker.STATE_UNKNOWN, "Slurm says NEWSTATE"),
    "COMPLETED": (True, Blocker.ENDED, "exit code 0"),
    "CANCELLED": (True, Blocker.ENDED, "cancelled"),
    "FAILED": (True, Blocker.ENDED, "failed"),
    "TIMEOUT": (True, Blocker.ENDED, "at its time limit"),
    "NODE_FAIL": (True, Blocker.ENDED, "a node of it failed"),
    "PREEMPTED": (True, Blocker.ENDED, "Slurm preempted it"),
    "BOOT_FAIL": (True, Blocker.ENDED, "did not boot"),
    "DEADLINE": (True, Blocker.ENDED, "at its deadline"),
    "OUT_OF_MEMORY": (True, Blocker.ENDED, "ran out of memory"),
}


@pytest.mark.parametrize("word", STATES)
def test_explain__says_each_state_for_what_it_is(on: Run, word):
    """The word of Slurm, a blocker of its own kind, and a sentence that says "runs" of no other job."""
    held, blocker, words = STATES[word]
    one = (running(7, "n1", State=word) if held else job(7, State=word)) | {"Reason": "None"}
    told = json.loads(on(FakeSlurm(node("n1") + node("n2"), [one]), "explain", "7", "--json").out)["explanation"]
    assert (word in told["state"], told["blocker"], words in told["because"]) == (True, blocker, True)
    assert ("It runs" in told["because"]) == (blocker is Blocker.RUNNING)


def test_explain__a_requeued_job_that_completes_is_said_for_both(on: Run):
    """Slurm shows COMPLETING without a run time for a job that is back in the queue."""
    one = job(7, State="COMPLETING", NodeList="n1", Reason="None")
    told = json.loads(on(FakeSlurm(node("n1"), [one]), "explain", "7", "--json").out)["explanation"]
    assert (told["blocker"], told["because"].startswith("It was requeued")) == ("completing", True)


@pytest.mark.parametrize("state", JobState)
def test_standing_by_state__runs_only_what_runs(state):
    """No flag but RUNNING makes a job run."""
    assert (blocker_of_state(int(state)) is Blocker.RUNNING) == (state is JobState.RUNNING)


def test_status__counts_each_job_once(on: Run):
    """Jobs in a state that is not known are neither running nor ended."""
    words = ("RUNNING", "REVOKED", "STAGE_OUT", "NEWSTATE", "UPDATE_DB", "SPECIAL_EXIT")
    jobs = [job(at + 1, State=word) for at, word in enumerate(words)]
    told = json.loads(on(FakeSlurm(node("n1"), jobs), "status", "--json").out)["jobs"]
    assert told == {"completing": 0, "running": 1, "suspended": 0, "pending": 1, "ended": 2, "other": 2}


def test_plan__lets_no_held_job_take_gpus(on: Run):
    """A pending job with a flag of a hold could not start: nobody makes room for it, whatever its priority."""
    toml = '[policy]\nname = "discretized-las"\n[preemption]\nenabled = true\nquantum_s = 600\n'
    full = node("n1", State="ALLOCATED", GresUsed="gpu:a100:8(IDX:0-7)", CPUAlloc="1")
    lo = running(1, "n1", 8, UserName="lo", Comment="slurmsched: preempt=yes ckpt=USR1@60")
    for word, operations in (("PENDING", 1), ("REQUEUE_HOLD", 0), ("SPECIAL_EXIT", 0), ("RESV_DEL_HOLD", 0)):
        wants = job(9, 8, State=word, UserName="hi", PriorityLong="2000")
        slurm = FakeSlurm(full, [lo, wants], records=HOLDS)
        assert len(json.loads(on(slurm, "plan", "--json", toml=toml).out)["operations"]) == operations


HOLDS = "JobId=1 JobName=train UserId=lo(1) JobState=RUNNING Nodes=n1 CPU_IDs=0 Mem=1000 GRES=gpu:a100:8(IDX:0-7)\n"

"""States are flags, read from every spelling Slurm prints."""

from __future__ import annotations

import pytest

from slurmsched.errors import UnreadableError
from slurmsched.model import FINISHED, JobState, NodeState, job_state, node_state


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("PENDING", JobState.PENDING),
        ("PD", JobState.PENDING),
        ("PENDING,COMPLETING", JobState.PENDING | JobState.COMPLETING),
        ("PENDING+REQUEUED", JobState.PENDING | JobState.REQUEUED),
        ("CANCELLED by 1000", JobState.CANCELLED),
        ("R", JobState.RUNNING),
        ("OOM", JobState.OUT_OF_MEMORY),
        ("RUNNING,CONFIGURING", JobState.RUNNING | JobState.CONFIGURING),
    ],
)
def test_job_state__reads_every_spelling(text: str, state: JobState) -> None:
    """Short, long and several at once."""
    assert job_state(text) == state


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("idle", NodeState.IDLE),
        ("MIXED+DRAIN", NodeState.MIXED | NodeState.DRAIN),
        ("draining", NodeState.DRAIN),
        ("down*", NodeState.DOWN | NodeState.NOT_RESPONDING),
        ("idle~", NodeState.IDLE | NodeState.POWERED_DOWN),
        ("IDLE+MAINT", NodeState.IDLE | NodeState.MAINTENANCE),
        ("ALLOCATED+PLANNED", NodeState.ALLOCATED | NodeState.PLANNED),
    ],
)
def test_node_state__reads_every_spelling(text: str, state: NodeState) -> None:
    """sinfo's short forms with their marks, scontrol's long ones."""
    assert node_state(text) == state


@pytest.mark.parametrize("read", [job_state, node_state])
def test_state__unknown_word_is_refused(read: object) -> None:
    """A word no Slurm prints is an error that shows it."""
    with pytest.raises(UnreadableError, match="WEIRD"):
        read("WEIRD")  # type: ignore[operator]


def test_finished__holds_final_states_only() -> None:
    """A job that waits, runs, is suspended or completes an earlier run is not finished."""
    alive = JobState.PENDING | JobState.RUNNING | JobState.SUSPENDED | JobState.COMPLETING | JobState.REQUEUED
    assert (FINISHED & alive, bool(FINISHED & JobState.TIMEOUT)) == (JobState(0), True)

"""What a state word that Slurm prints alone means in full."""

from __future__ import annotations

from functools import lru_cache

from slurmsched.model.states import JobState, job_state

# squeue, scontrol and pyslurm print one word: a flag hides the base state it goes with.
# Source: job_state_string() and the places in slurmctld that set each flag.
_BASE = {
    JobState.CONFIGURING: JobState.RUNNING,
    JobState.RESIZING: JobState.RUNNING,
    JobState.SIGNALING: JobState.RUNNING,
    JobState.STOPPED: JobState.RUNNING,
    JobState.POWER_UP_NODE: JobState.RUNNING,
    JobState.REQUEUED: JobState.PENDING,
    JobState.REQUEUE_FED: JobState.PENDING,
    JobState.REQUEUE_HOLD: JobState.PENDING,
    JobState.SPECIAL_EXIT: JobState.PENDING,
    JobState.RESV_DEL_HOLD: JobState.PENDING,
}


@lru_cache(maxsize=4096)
def state_of_word(word: str, ran: bool) -> int:
    """Flags of a job whose state was printed as one word.

    ran: whether run time is shown. A completing job without any is being requeued (PENDING+COMPLETING):
    Slurm shows run time for every other one. Raises UnreadableError for a word no Slurm prints.
    """
    state = job_state(word)
    if state == JobState.COMPLETING and not ran:
        return int(state | JobState.PENDING)
    return int(state | _BASE.get(state, JobState(0)))

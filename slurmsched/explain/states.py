"""What a job's state says, in words: each base state and flag for what it is."""

from __future__ import annotations

from slurmsched.model.reasons import Blocker
from slurmsched.model.states import ENDED, JobState

_RUNS = {
    JobState.SIGNALING: "a signal to it is on its way",
    JobState.STOPPED: "its processes are stopped by a signal, and it keeps its nodes",
    JobState.RESIZING: "its size is about to change",
}
_ENDED = {
    JobState.REVOKED: "Another cluster of the federation has started it: it does not run here.",
    JobState.STAGE_OUT: "It has ended; its burst buffer is being copied out.",
    JobState.COMPLETED: "It has ended: with exit code 0.",
    JobState.CANCELLED: "It has ended: it was cancelled.",
    JobState.FAILED: "It has ended: it failed.",
    JobState.TIMEOUT: "It has ended: at its time limit.",
    JobState.NODE_FAIL: "It has ended: a node of it failed.",
    JobState.PREEMPTED: "It has ended: Slurm preempted it.",
    JobState.BOOT_FAIL: "It has ended: its nodes did not boot.",
    JobState.DEADLINE: "It has ended: at its deadline.",
    JobState.OUT_OF_MEMORY: "It has ended: it ran out of memory.",
}
# Flags that squeue prints alone, in place of a base state that it does not show.
_ALONE = {
    JobState.LAUNCH_FAILED: "Its start failed. Slurm starts it again, holds it or ends it.",
    JobState.RECONFIG_FAIL: "Its nodes could not be configured for it. Slurm starts it again, holds it or ends it.",
    JobState.EXPEDITING: "It was requeued, and Slurm starts it again before others.",
    JobState.UPDATE_DB: "Its record in the accounting database is being written. Slurm does not show whether it waits "
                        "or runs.",
}  # fmt: skip


def state_name(state: int) -> str:
    """The flags in Slurm's words, "PENDING+COMPLETING"; "" of a state that is not known."""
    return (JobState(state).name or "").replace("|", "+")


def standing_by_state(state: int) -> Blocker:
    """What a job does that does not wait."""
    told = JobState(state)
    if told & ENDED and not told & JobState.COMPLETING:
        return Blocker.ENDED
    starting = JobState.CONFIGURING | JobState.POWER_UP_NODE
    rules = ((JobState.COMPLETING, Blocker.COMPLETING), (JobState.SUSPENDED, Blocker.SUSPENDED),
             (starting, Blocker.STARTING), (JobState.RUNNING, Blocker.RUNNING))  # fmt: skip
    return next((blocker for flags, blocker in rules if told & flags), Blocker.STATE_UNKNOWN)


def held_by_state(state: int) -> Blocker | None:
    """Why a pending job does not start, by a flag of its state; None where no flag tells."""
    told = JobState(state)
    rules = ((JobState.SPECIAL_EXIT, Blocker.HELD_AFTER_FAILURE), (JobState.RESV_DEL_HOLD, Blocker.RESERVATION_GONE),
             (JobState.REQUEUE_HOLD, Blocker.HELD_BY_USER), (JobState.REQUEUE_FED, Blocker.FEDERATION))  # fmt: skip
    return next((blocker for flag, blocker in rules if told & flag), None)


def more_of_state(state: int) -> str:
    """What to add of a running job's flags."""
    told = [words for flag, words in _RUNS.items() if JobState(state) & flag]
    return f" But {' and '.join(told)}." if told else ""


def sentence_of_state(state: int, nodes: str, text: str) -> str:
    """The sentence on a job that neither waits nor runs. nodes: those it holds. text: of a state that is not known."""
    told, on = JobState(state), f" on {nodes}" if nodes else ""
    if told & JobState.COMPLETING:
        was = "It was requeued, and its last run" if told & JobState.PENDING else "It"
        return f"{was} is ending{on}: its processes are gone or going, and its GPUs are free when Slurm has cleaned up."
    if told & ENDED:
        return next(words for flag, words in _ENDED.items() if told & flag)
    if told & JobState.SUSPENDED:
        return f"It is suspended{on}: its processes are stopped, and it keeps its GPUs."
    if told & (JobState.CONFIGURING | JobState.POWER_UP_NODE):
        return f"It is starting{on}: it has its nodes, which boot or are being prepared."
    if alone := next((words for flag, words in _ALONE.items() if told & flag), ""):
        return alone
    return (
        f"Slurm says {text or state_name(state) or 'nothing'}: slurmsched does not know this state and leaves it alone."
    )

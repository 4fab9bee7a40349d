"""Plain words, safe to print: whatever users may write is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from math import isfinite
from typing import Any

from slurmsched.model.policy_info import criteria
from slurmsched.model.reasons import Blocker
from slurmsched.model.states import ENDED, JobState
from slurmsched.planning.priorities.order import DECIDED_BY, tier_between

LONGEST = 200


@lru_cache(maxsize=1 << 10)  # many nodes have the same reason
def printable(text: str) -> str:
    """The text with control characters, escapes of terminals and marks of direction written out, and cut."""
    cut = text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def local_time(time_s: float) -> str:
    """A Unix time as local time."""
    return f"{datetime.fromtimestamp(time_s):%Y-%m-%dT%H:%M:%S}"


def differing_criteria(other: Mapping[str, Any], own: Mapping[str, Any], words: Mapping[str, str]) -> str:
    """By what another job stands before this one: those criteria of it that differ. words: as PolicyInfo.criteria."""
    if tier := tier_between(other, own):
        return tier
    apart = {name: value for name, value in other.items() if value != own.get(name) and name != DECIDED_BY}
    return criteria(apart, words) or "equal by these, before it by submission or id"


def sbatch_time(time_s: float) -> str:
    """A duration as `sbatch --time` takes it, rounded down to minutes: "1-02:30:00", "UNLIMITED"."""
    if not isfinite(time_s):
        return "UNLIMITED"
    days, minutes = divmod(int(time_s) // 60, 1440)
    return f"{days}-{minutes // 60:02}:{minutes % 60:02}:00" if days else f"{minutes // 60:02}:{minutes % 60:02}:00"


# What a job's state says.

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


def blocker_of_state(state: int) -> Blocker:
    """The blocker of a job that does not wait, by its state."""
    known = JobState(state)
    if known & ENDED and not known & JobState.COMPLETING:
        return Blocker.ENDED
    starting = JobState.CONFIGURING | JobState.POWER_UP_NODE
    rules = ((JobState.COMPLETING, Blocker.COMPLETING), (JobState.SUSPENDED, Blocker.SUSPENDED),
             (starting, Blocker.STARTING), (JobState.RUNNING, Blocker.RUNNING))  # fmt: skip
    return next((blocker for flags, blocker in rules if known & flags), Blocker.STATE_UNKNOWN)


def held_by_flag(state: int) -> Blocker | None:
    """Why a pending job does not start, by a flag of its state; None where no flag tells."""
    flags = JobState(state)
    rules = ((JobState.SPECIAL_EXIT, Blocker.HELD_AFTER_FAILURE), (JobState.RESV_DEL_HOLD, Blocker.RESERVATION_GONE),
             (JobState.REQUEUE_HOLD, Blocker.HELD_BY_USER), (JobState.REQUEUE_FED, Blocker.FEDERATION))  # fmt: skip
    return next((blocker for flag, blocker in rules if flags & flag), None)


def more_of_state(state: int) -> str:
    """Lines to add for the flags of a running job."""
    sentences = [words for flag, words in _RUNS.items() if JobState(state) & flag]
    return f" But {' and '.join(sentences)}." if sentences else ""


def sentence_of_state(state: int, nodes: str, text: str) -> str:
    """The sentence on a job that neither waits nor runs. nodes: those it holds. text: of a state that is not known."""
    flags, on = JobState(state), f" on {nodes}" if nodes else ""
    if flags & JobState.COMPLETING:
        was = "It was requeued, and its last run" if flags & JobState.PENDING else "It"
        return f"{was} is ending{on}: its processes are gone or going, and its GPUs are free when Slurm has cleaned up."
    if flags & ENDED:
        return next(words for flag, words in _ENDED.items() if flags & flag)
    if flags & JobState.SUSPENDED:
        return f"It is suspended{on}: its processes are stopped, and it keeps its GPUs."
    if flags & (JobState.CONFIGURING | JobState.POWER_UP_NODE):
        return f"It is starting{on}: it has its nodes, which boot or are being prepared."
    if alone := next((words for flag, words in _ALONE.items() if flags & flag), ""):
        return alone
    said = text or state_name(state) or "nothing"
    return f"Slurm says {said}: slurmsched has no words for this state and does not change the job."

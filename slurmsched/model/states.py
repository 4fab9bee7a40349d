"""Job and node states as flags, since Slurm shows several at once (PENDING+COMPLETING)."""

from __future__ import annotations

import re
from enum import Enum, IntFlag
from functools import lru_cache

from slurmsched.errors import UnreadableError


class JobState(IntFlag):
    """One base state and any number of flags, under the names Slurm prints."""

    PENDING = 1 << 0
    RUNNING = 1 << 1
    SUSPENDED = 1 << 2
    COMPLETED = 1 << 3
    CANCELLED = 1 << 4
    FAILED = 1 << 5
    TIMEOUT = 1 << 6
    NODE_FAIL = 1 << 7
    PREEMPTED = 1 << 8
    BOOT_FAIL = 1 << 9
    DEADLINE = 1 << 10
    OUT_OF_MEMORY = 1 << 11
    COMPLETING = 1 << 12
    CONFIGURING = 1 << 13
    REQUEUED = 1 << 14
    REQUEUE_HOLD = 1 << 15
    REQUEUE_FED = 1 << 16
    SPECIAL_EXIT = 1 << 17
    RESIZING = 1 << 18
    STAGE_OUT = 1 << 19
    SIGNALING = 1 << 20
    STOPPED = 1 << 21
    RESV_DEL_HOLD = 1 << 22
    POWER_UP_NODE = 1 << 23
    REVOKED = 1 << 24
    LAUNCH_FAILED = 1 << 25
    UPDATE_DB = 1 << 26
    RECONFIG_FAIL = 1 << 27
    EXPEDITING = 1 << 28


FINISHED = (
    JobState.COMPLETED | JobState.CANCELLED | JobState.FAILED | JobState.TIMEOUT | JobState.NODE_FAIL
    | JobState.PREEMPTED | JobState.BOOT_FAIL | JobState.DEADLINE | JobState.OUT_OF_MEMORY
)  # fmt: skip

HOLDS_NODES = JobState.RUNNING | JobState.SUSPENDED  # a job that completes gives them back
ON_NODES = HOLDS_NODES | JobState.COMPLETING  # what is in use on its nodes counts until it has left
ENDED = FINISHED | JobState.REVOKED | JobState.STAGE_OUT  # REVOKED: another cluster has it; STAGE_OUT: data is moved
HELD = JobState.REQUEUE_HOLD | JobState.SPECIAL_EXIT | JobState.RESV_DEL_HOLD  # flags of pending jobs held by Slurm


class NodeState(IntFlag):
    """One base state and any number of flags, under the names Slurm prints."""

    IDLE = 1 << 0
    ALLOCATED = 1 << 1
    MIXED = 1 << 2
    DOWN = 1 << 3
    ERROR = 1 << 4
    FUTURE = 1 << 5
    UNKNOWN = 1 << 6
    DRAIN = 1 << 7
    COMPLETING = 1 << 8
    RESERVED = 1 << 9
    MAINTENANCE = 1 << 10
    PLANNED = 1 << 11
    NOT_RESPONDING = 1 << 12
    FAIL = 1 << 13
    POWERED_DOWN = 1 << 14
    POWERING_DOWN = 1 << 15
    POWERING_UP = 1 << 16
    POWER_DOWN = 1 << 17
    POWER_UP = 1 << 18
    REBOOT_REQUESTED = 1 << 19
    REBOOT_ISSUED = 1 << 20
    CLOUD = 1 << 21
    DYNAMIC = 1 << 22
    INVALID_REG = 1 << 23
    BLOCKED = 1 << 24
    RES = 1 << 25
    UNDRAIN = 1 << 26
    REBOOT_CANCELED = 1 << 27
    EXTERNAL = 1 << 28
    RESUME = 1 << 29
    POWER_DRAIN = 1 << 30
    PERFCTRS = 1 << 31
    REBOOT_RESUME = 1 << 32  # ours, for NextState=RESUME: Slurm opens the node as soon as it has rebooted


class Availability(Enum):
    """Whether a node with a flag takes jobs."""

    NOW = "now"
    BOOT = "after a boot"
    NONE = "none"


# All states and flags of node_state_string_complete(), 20.11 to 26.05, and what slurmctld does with them:
# make_node_avail() and set_node_down() in node_mgr.c, power_save.c, job_scheduler.c. A node takes no job if any of its
# flags is NONE. One that does not respond is closed too, unless it is off or boots: then Slurm waits (ResumeTimeout).
NODE_TAKES: dict[NodeState, Availability] = {
    NodeState.IDLE: Availability.NOW, NodeState.ALLOCATED: Availability.NOW, NodeState.MIXED: Availability.NOW,
    NodeState.DOWN: Availability.NONE, NodeState.ERROR: Availability.NONE, NodeState.FUTURE: Availability.NONE,
    NodeState.UNKNOWN: Availability.NONE,  # has not registered yet
    NodeState.DRAIN: Availability.NONE, NodeState.FAIL: Availability.NONE, NodeState.INVALID_REG: Availability.NONE,
    NodeState.MAINTENANCE: Availability.NONE,  # but for jobs of that reservation
    NodeState.BLOCKED: Availability.NONE,  # by a job with --exclusive=topo
    NodeState.NOT_RESPONDING: Availability.NONE,
    NodeState.REBOOT_ISSUED: Availability.NONE,
    NodeState.POWER_DOWN: Availability.NONE, NodeState.POWERING_DOWN: Availability.NONE,
    NodeState.POWER_DRAIN: Availability.NONE,
    NodeState.POWERED_DOWN: Availability.BOOT, NodeState.POWERING_UP: Availability.BOOT,
    NodeState.POWER_UP: Availability.BOOT,
    NodeState.COMPLETING: Availability.NOW, NodeState.PLANNED: Availability.NOW,
    NodeState.RESERVED: Availability.NOW, NodeState.RES: Availability.NOW,  # reservations tell for whom
    NodeState.REBOOT_REQUESTED: Availability.NOW,  # it reboots when it is idle; with ASAP it is also DRAIN
    NodeState.REBOOT_CANCELED: Availability.NOW, NodeState.UNDRAIN: Availability.NOW,
    NodeState.RESUME: Availability.NOW,
    NodeState.CLOUD: Availability.NOW, NodeState.DYNAMIC: Availability.NOW, NodeState.EXTERNAL: Availability.NOW,
    NodeState.PERFCTRS: Availability.NOW,
    NodeState.REBOOT_RESUME: Availability.NOW,  # see resumes_after_reboot
}  # fmt: skip


# Other spellings of a flag: squeue's short forms, scontrol's and sinfo's long ones, older names.
_JOB_WORDS = {
    "PD": "PENDING", "R": "RUNNING", "S": "SUSPENDED", "CD": "COMPLETED", "CA": "CANCELLED",
    "F": "FAILED", "TO": "TIMEOUT", "NF": "NODE_FAIL", "PR": "PREEMPTED", "BF": "BOOT_FAIL",
    "DL": "DEADLINE", "OOM": "OUT_OF_MEMORY", "CG": "COMPLETING", "CF": "CONFIGURING",
    "RQ": "REQUEUED", "RH": "REQUEUE_HOLD", "RF": "REQUEUE_FED", "SE": "SPECIAL_EXIT",
    "RS": "RESIZING", "SO": "STAGE_OUT", "SI": "SIGNALING", "ST": "STOPPED", "RD": "RESV_DEL_HOLD",
    "RV": "REVOKED", "REQUEUE": "REQUEUED", "EX": "EXPEDITING", "UP": "UPDATE_DB",
}  # fmt: skip
_NODE_WORDS = {
    "ALLOC": "ALLOCATED", "MIX": "MIXED", "COMP": "COMPLETING", "MAINT": "MAINTENANCE", "RESV": "RESERVED",
    "DRAINED": "DRAIN", "DRAINING": "DRAIN", "DRNG": "DRAIN", "PLND": "PLANNED", "FAILING": "FAIL",
    "FAILG": "FAIL", "UNK": "UNKNOWN", "FUTR": "FUTURE", "NO_RESPOND": "NOT_RESPONDING",
    "NO_RESP": "NOT_RESPONDING", "POWERING_ON": "POWERING_UP", "REBOOT": "REBOOT_REQUESTED", "BOOT": "REBOOT_REQUESTED",
    "DYNAMIC_NORM": "DYNAMIC", "DYNAMIC_FUTURE": "DYNAMIC", "INVAL": "INVALID_REG", "INVALID": "INVALID_REG",
    "NPC": "PERFCTRS", "BLOCK": "BLOCKED", "EXT": "EXTERNAL", "RESM": "RESUME", "CANCEL_REBOOT": "REBOOT_CANCELED",
    "REBOOT_CANCEL": "REBOOT_CANCELED", "CANC_R": "REBOOT_CANCELED", "POW_DN": "POWER_DOWN", "POW_UP": "POWER_UP",
    "POWRING_DN": "POWERING_DOWN", "POWERED_DN": "POWERED_DOWN",
    "POWER": "POWERED_DOWN", "POWER_SAVE": "POWERED_DOWN",  # 20.11
}  # fmt: skip
# Marks that node_state_string() appends: sinfo in every release, scontrol up to 20.11.
_NODE_MARKS = {
    "*": NodeState.NOT_RESPONDING, "~": NodeState.POWERED_DOWN, "#": NodeState.POWERING_UP,
    "%": NodeState.POWERING_DOWN, "!": NodeState.POWER_DOWN, "$": NodeState.MAINTENANCE,
    "@": NodeState.REBOOT_REQUESTED, "^": NodeState.REBOOT_ISSUED, "-": NodeState.PLANNED,
}  # fmt: skip
_WORD = re.compile(r"(.*?)(\W*)", re.DOTALL)
_BASES = (
    NodeState.IDLE | NodeState.ALLOCATED | NodeState.MIXED | NodeState.DOWN | NodeState.ERROR | NodeState.FUTURE
    | NodeState.UNKNOWN
)  # fmt: skip
# sinfo prints these instead of IDLE or MIXED.
_HIDES_IDLE = NodeState.PERFCTRS | NodeState.RESERVED | NodeState.PLANNED | NodeState.COMPLETING


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.replace(",", "+").upper().split("+") if word.strip()]


def job_state(text: str) -> JobState:
    """Flags of a state in the form of any Slurm command: "PENDING", "CG", "RUNNING,COMPLETING", "CANCELLED by 1000".

    Raises UnreadableError for an unknown word.
    """
    flags = JobState(0)
    for word in _words(text.partition(" by ")[0]):
        member = JobState.__members__.get(_JOB_WORDS.get(word, word))
        if member is None:
            raise UnreadableError("unknown JobState", text=word)
        flags |= member
    return flags


@lru_cache(maxsize=1 << 8)  # most nodes are in few states
def read_node_state(text: str, next_state: str = "") -> tuple[NodeState, tuple[str, ...]]:
    """Flags of a state in the form of any Slurm command, and its words that no Slurm up to 26.05 prints.

    A text without a known base state counts as UNKNOWN, unless a flag implies the base or closes the node.
    next_state: the NextState of `scontrol reboot nextstate=...`, "" if none is set.
    """
    flags, unknown = NodeState(0), list[str]()
    for word in _words(text):
        name, marks = _WORD.fullmatch(word).groups()  # type: ignore[union-attr]
        member = NodeState.__members__.get(_NODE_WORDS.get(name, name))
        found = [member, *(_NODE_MARKS.get(mark) for mark in marks)] if name else [None]
        if None in found:
            unknown.append(word)
        for flag in found:
            flags |= flag or NodeState(0)
    if flags & _HIDES_IDLE and not flags & _BASES:
        flags |= NodeState.IDLE
    if not flags & _BASES and (unknown or takes_jobs(flags) is not Availability.NONE):
        flags |= NodeState.UNKNOWN
    if "RESUME" in next_state.upper():
        flags |= NodeState.REBOOT_RESUME
    return flags, tuple(unknown)


def node_state(text: str) -> NodeState:
    """Flags of a state in the form of any Slurm command: "MIXED+DRAIN", "idle*", "down~".

    Raises UnreadableError for an unknown word.
    """
    flags, unknown = read_node_state(text)
    if unknown:
        raise UnreadableError("unknown NodeState", text=unknown[0])
    return flags


def flags_that(takes: Availability) -> NodeState:
    """All flags of NODE_TAKES with this answer."""
    found = NodeState(0)
    for flag, answer in NODE_TAKES.items():
        if answer is takes:
            found |= flag
    return found


_CLOSING = flags_that(Availability.NONE) & ~NodeState.NOT_RESPONDING
_BOOTING = flags_that(Availability.BOOT)


def resumes_after_reboot(state: NodeState) -> bool:
    """Whether a node reboots now and Slurm opens it afterwards, whatever closed it before.

    Slurm's backfill plans jobs on such a node. A node that still waits for its jobs to end before the reboot
    (REBOOT_REQUESTED) is not meant. Source: rs_node_bitmap in slurmctld (_queue_reboot_msg, backfill.c).
    """
    return bool(state & NodeState.REBOOT_ISSUED and state & NodeState.REBOOT_RESUME)


def takes_jobs(state: NodeState) -> Availability:
    """Whether a node in this state takes jobs."""
    if resumes_after_reboot(state):
        return Availability.BOOT
    if state & _CLOSING:
        return Availability.NONE
    if state & _BOOTING:
        return Availability.BOOT
    return Availability.NONE if state & NodeState.NOT_RESPONDING else Availability.NOW


# The full state behind a single state word of Slurm.

# squeue, scontrol and pyslurm print one word: a flag hides its base state.
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
    """State flags of a job whose state was printed as one word.

    ran: whether a run time is shown. A completing job without one is being requeued (PENDING+COMPLETING), since Slurm
    shows run time for every other one. Raises UnreadableError for a word no Slurm prints.
    """
    state = job_state(word)
    if state == JobState.COMPLETING and not ran:
        return int(state | JobState.PENDING)
    return int(state | _BASE.get(state, JobState(0)))

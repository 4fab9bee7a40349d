"""Job and node states as flags, since Slurm shows several at once (PENDING+COMPLETING)."""

from __future__ import annotations

from enum import IntFlag

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
    "NO_RESP": "NOT_RESPONDING", "POWERING_ON": "POWERING_UP", "REBOOT": "REBOOT_REQUESTED", "BOOT": "REBOOT_ISSUED",
    "DYNAMIC_NORM": "DYNAMIC", "DYNAMIC_FUTURE": "DYNAMIC", "INVAL": "INVALID_REG", "INVALID": "INVALID_REG",
    "PERFCTRS": "IDLE", "NPC": "IDLE", "BLOCK": "BLOCKED", "EXT": "EXTERNAL",
}  # fmt: skip


def _flags(kind: type[IntFlag], aliases: dict[str, str], text: str) -> int:
    flags = 0
    for word in text.replace(",", "+").upper().split("+"):
        name = word.strip().rstrip("*~#!%$@^-&")
        if not name:
            continue
        member = kind.__members__.get(aliases.get(name, name))
        if member is None:
            raise UnreadableError(f"unknown {kind.__name__}", text=word)
        flags |= member
    return flags


def job_state(text: str) -> JobState:
    """Flags of a state as any Slurm command prints it: "PENDING", "CG", "RUNNING,COMPLETING", "CANCELLED by 1000".

    Raises UnreadableError for a word no Slurm prints.
    """
    return JobState(_flags(JobState, _JOB_WORDS, text.partition(" by ")[0]))


def node_state(text: str) -> NodeState:
    """Flags of a state as any Slurm command prints it: "MIXED+DRAIN", "idle*", "down~".

    Raises UnreadableError for a word no Slurm prints.
    """
    flags = NodeState(_flags(NodeState, _NODE_WORDS, text))
    return flags | NodeState.NOT_RESPONDING if "*" in text else flags

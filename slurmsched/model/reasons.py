"""The reasons Slurm gives for a job that waits, as one of a closed list of blockers.

Names: job_state_reason.c of Slurm's source, 21.08 to 26.05, and what the library of 24.11.5 and 26.05.5 prints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from slurmsched.model.limits import Limit, limit_named


class Blocker(StrEnum):
    """What keeps a job from starting. The values are what `explain --json` prints."""

    PRIORITY = "others-first"
    RESOURCES = "resources"
    LIMIT = "limit"
    DEPENDENCY = "dependency"
    DEPENDENCY_NEVER = "dependency-never"
    BEGIN_TIME = "begin-time"
    REQUEUED = "requeued"
    NODES = "nodes"
    MAINTENANCE = "maintenance"
    RESERVATION = "reservation"
    RESERVATION_GONE = "held-reservation-gone"
    HELD_BY_USER = "held-by-user"
    HELD_BY_ADMIN = "held-by-admin"
    HELD_AFTER_FAILURE = "held-after-failure"
    ARRAY_LIMIT = "array-limit"
    PARTITION_LIMIT = "partition-limit"
    PARTITION_CLOSED = "partition-closed"
    LICENSES = "licenses"
    NOT_ALLOWED = "not-allowed"
    CONSTRAINTS = "constraints"
    DATA = "burst-buffer"
    POWER = "power"
    LAUNCHING = "launching"
    FEDERATION = "federation"
    NOT_TRIED = "not-tried"
    ENDED = "ended"
    RUNNING = "running"
    STARTING = "starting"
    SUSPENDED = "suspended"
    COMPLETING = "completing"
    STATE_UNKNOWN = "state-unknown"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Reason:
    """code: Slurm's name. more: what Slurm says after it. limit: the one that blocks, for Blocker.LIMIT, if it is told
    by the name."""

    code: str
    blocker: Blocker
    more: str = ""
    limit: Limit | None = None


_OF = {
    Blocker.PRIORITY: "Priority",
    Blocker.RESOURCES: "Resources NvidiaImexChannels MpiPortsBusy",
    Blocker.LIMIT: "AssociationJobLimit AssociationResourceLimit AssociationTimeLimit QOSJobLimit QOSResourceLimit "
                   "QOSTimeLimit QOSUsageThreshold AccountingPolicy",
    Blocker.DEPENDENCY: "Dependency",
    Blocker.DEPENDENCY_NEVER: "DependencyNeverSatisfied",
    Blocker.BEGIN_TIME: "BeginTime",
    Blocker.NODES: "ReqNodeNotAvail NodeDown FrontEndDown",
    Blocker.RESERVATION: "Reservation ReservationInvalid",
    Blocker.RESERVATION_GONE: "ReservationDeleted",
    Blocker.HELD_BY_USER: "JobHeldUser",
    Blocker.HELD_BY_ADMIN: "JobHeldAdmin",
    Blocker.HELD_AFTER_FAILURE: "JobHoldMaxRequeue JobLaunchFailure SystemFailure NonZeroExitCode RaisedSignal "
                                "OutOfMemory InactiveLimit TimeLimit",
    Blocker.ARRAY_LIMIT: "JobArrayTaskLimit",
    Blocker.PARTITION_LIMIT: "PartitionNodeLimit PartitionTimeLimit PartitionConfig MaxMemPerLimit",
    Blocker.PARTITION_CLOSED: "PartitionDown PartitionInactive",
    Blocker.LICENSES: "Licenses",
    Blocker.NOT_ALLOWED: "InvalidAccount InvalidQOS QOSNotAllowed AccountNotAllowed",
    Blocker.CONSTRAINTS: "BadConstraints Constraints DeadLine",
    Blocker.DATA: "BurstBufferResources BurstBufferStageIn BurstBufferOperation",
    Blocker.POWER: "PowerNotAvail PowerReserved MaxPoweredUpNodes",
    Blocker.LAUNCHING: "Prolog Cleaning",
    Blocker.FEDERATION: "FedJobLock",
    Blocker.NOT_TRIED: "None SchedDefer InvalidReason InvaildReason",
}  # fmt: skip
CODES = {code.lower(): (code, blocker) for blocker, codes in _OF.items() for code in codes.split()}
_GONE = re.compile(r"\(?reservation[ _](.+[ _]was[ _])?deleted\b", re.IGNORECASE)
_CODE = re.compile(r"\(?(\w+)\)?[,:;]?\s*(.*)", re.DOTALL)
_FAILED, _TAKEN = Blocker.HELD_AFTER_FAILURE, "reqnodenotavail, "
# What slurmctld says in place of a name; scontrol writes it with underscores.
_SENTENCES: dict[str, tuple[str, Blocker]] = {
    "nodes required for job are": ("ReqNodeNotAvail", Blocker.NODES),
    f"{_TAKEN}reserved for maintenance": ("ReqNodeNotAvail", Blocker.MAINTENANCE),
    f"{_TAKEN}reserved for other reservations": ("ReqNodeNotAvail", Blocker.RESERVATION),
    "job's qos not": ("QOSNotAllowed", Blocker.NOT_ALLOWED),
    "job's account not": ("AccountNotAllowed", Blocker.NOT_ALLOWED),
    "launch fail": ("JobLaunchFailure", _FAILED),
    "user env retrieval failed": ("JobLaunchFailure", _FAILED),
    "prolog/epilog failure": ("JobLaunchFailure", _FAILED),
    "job requeued in held state": ("JobHeldUser", Blocker.HELD_BY_USER),
    "job requeued in special exit state": ("JobHoldMaxRequeue", _FAILED),
    "burst buffer": ("BurstBufferOperation", Blocker.DATA),
}


def read_reason(text: str) -> Reason:
    """The reason in a text of squeue or scontrol: "Priority", "ReqNodeNotAvail, UnavailableNodes:n4".

    A name that no release has is Blocker.UNKNOWN; it is shown as it is.
    """
    told = text.strip()
    if not told or told == "(null)":
        return Reason("None", Blocker.NOT_TRIED)
    if _GONE.match(told):
        return Reason("ReservationDeleted", Blocker.RESERVATION_GONE, told)
    sentence = told.replace("_", " ").strip("()").lower()
    for begin, (code, blocker) in _SENTENCES.items():
        if sentence.startswith(begin):
            return Reason(code, blocker, told.removeprefix(f"{code}, "))
    found = _CODE.match(told)
    name, more = (found[1], found[2].strip()) if found else (told, "")
    code, blocker = CODES.get(name.lower(), (name, Blocker.UNKNOWN))
    if blocker is Blocker.UNKNOWN and (limit := limit_named(name)):
        return Reason(name, Blocker.LIMIT, more, limit)
    return Reason(code, blocker, more)

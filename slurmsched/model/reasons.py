"""Why a job waits: Slurm's reasons as a closed list of blockers, and the limits of QOS and associations.

Names of reasons: job_state_reason.c of Slurm's source, 21.08 to 26.05, and the output of 24.11.5 and 26.05.5. Names of
limits follow one grammar: [QOS|Assoc] Grp|Max|Min, what is counted, its minutes, and per what. Their fields are those
of `scontrol show assoc_mgr` of 24.11.5 and 26.05.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

_NAME = re.compile(
    r"(?P<of>QOS|Assoc)?(?P<bound>Grp|Max|Min)"
    r"(?P<what>Cpu|Memory|Mem|Node|GRES|License|BB|Energy|Billing|Unknown|SubmitJobs?|Jobs?|WallDuration|Wall)"
    r"(?P<time>RunMinutes|Minutes|RunMins|Mins)?(?:Per(?P<per>Job|User|Node|Account))?(?:Limit|NotSatisfied)?",
    re.IGNORECASE,
)
_WHAT = {"memory": "mem", "submitjobs": "submitjobs", "submitjob": "submitjobs", "job": "jobs", "wallduration": "wall"}
_TIMES = {"runminutes": "run minutes", "runmins": "run minutes", "minutes": "minutes", "mins": "minutes", "": ""}
_SUFFIX = {"job": "PJ", "node": "PN", "user": "PU", "account": "PA"}
_TRES_WORDS = {"minutes": "Mins", "run minutes": "RunMins", "": ""}
_RECORD = re.compile(r"^\s*(?=ClusterName=|QOS=)", re.MULTILINE)
_NUMBER = re.compile(r"(?P<value>[\d.]+)(?:\((?P<used>[\d.]+)\))?")


@dataclass(frozen=True, slots=True)
class Limit:
    """A kind of limit.

    of: "qos" or "association".
    bound: "grp" (all jobs together), "max" or "min".
    what: "cpu", "mem", "node", "gres", "license", "bb", "energy", "billing", "unknown", "jobs", "submitjobs" or "wall".
    time: "", "minutes" or "run minutes".
    per: "", "job", "user", "node" or "account"."""

    of: str
    bound: str
    what: str
    time: str = ""
    per: str = ""

    @property
    def field(self) -> str:
        """Its key in the output of assoc_mgr, such as "MaxTRESPU"."""
        return self._word + (_SUFFIX.get(self.per, "") if self.bound != "grp" else "")

    @property
    def counts_tres(self) -> bool:
        return self.what not in ("jobs", "submitjobs", "wall")

    @property
    def _word(self) -> str:
        bound = self.bound.capitalize()
        if self.counts_tres:
            return f"{bound}TRES{_TRES_WORDS[self.time]}"
        return bound + {"jobs": "Jobs", "submitjobs": "SubmitJobs", "wall": "Wall"}[self.what]

    def counts(self, tres: str) -> bool:
        """Whether a TRES such as "gres/gpu" is of the limited kind."""
        plain = tres.partition("/")[0]
        known = ("cpu", "mem", "node", "gres", "license", "bb", "energy", "billing")
        return plain not in known if self.what == "unknown" else plain == self.what


@dataclass(frozen=True, slots=True)
class LimitValue:
    """One limit that is set.

    owner: "QOS small", "account physics", "user alice in account physics".
    field: its key.
    what: "gres/gpu", "jobs", "wall".
    used: None if Slurm shows none, as for limits of one job.
    needs: what the job adds, None = unknown.
    """

    owner: str
    field: str
    what: str
    value: float
    used: float | None = None
    needs: float | None = None

    @property
    def blocks(self) -> bool | None:
        if self.needs is None:
            return None
        return (self.used or 0.0) + self.needs > self.value


def limit_named(name: str) -> Limit | None:
    """The limit in the name of a reason: "QOSMaxGRESPerUser", "AssocGrpCpuLimit"; None for other names."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    bound, what = found["bound"].lower(), found["what"].lower()
    per = (found["per"] or "").lower()
    of = "association" if (found["of"] or "").lower() == "assoc" else "qos"
    what = _WHAT.get(what, what)
    per = per or ("job" if bound == "min" or (bound == "max" and what == "wall") else "")
    per = "user" if of == "qos" and bound == "max" and not per else per
    return Limit(of, bound, what, _TIMES[(found["time"] or "").lower()], per)


def limit_values(limit: Limit, text: str, needs: dict[str, float]) -> tuple[LimitValue, ...]:
    """The limits of this kind in the output of `scontrol -o show assoc_mgr` for one user, account and QOS.

    Unreadable parts are left out, since the forms differ by release.

    needs: what the job adds, by TRES ("cpu", "gres/gpu" ...) and "jobs"; not used for limits over time.
    """
    kind = "QOS=" if limit.of == "qos" else "ClusterName="
    return tuple(
        value for record in _RECORD.split(text) if record.startswith(kind) for value in _values(limit, record, needs)
    )


def parents(text: str) -> tuple[str, ...]:
    """Accounts above those of the records, by lineage or parent, without root."""
    found = {name for line in re.findall(r"\bLineage=(\S*)", text) for name in line.split("/") if "-" not in name[:2]}
    found |= set(re.findall(r"\bParentAccount=([^\s(]+)", text))
    return tuple(sorted(found - {"", "root"}))


def _values(limit: Limit, record: str, needs: dict[str, float]) -> Iterator[LimitValue]:
    found = re.search(rf"(?:^|[\s{{]){limit.field}=([^\s}}]*)", record)
    for part in found[1].split(",") if found else ():
        tres, equals, number_text = part.rpartition("=")
        number = _NUMBER.fullmatch(number_text)
        if number is None or (limit.counts_tres and not limit.counts(tres)):
            continue
        what = tres if equals else limit.what
        used = None if number["used"] is None else float(number["used"])
        add = needs.get(what) if not limit.time and limit.bound != "min" else None
        yield LimitValue(_owner(record), limit.field, what, float(number["value"]), used, add)


def _owner(record: str) -> str:
    names = dict(re.findall(r"\b(QOS|Account|UserName)=([^\s(]*)", record))
    if record.startswith("QOS="):
        return f"QOS {names.get('QOS', '?')}"
    account = f"account {names.get('Account', '?')}"
    return f"user {names['UserName']} in {account}" if names.get("UserName") else account


# Reasons.


class Blocker(StrEnum):
    """What keeps a job from starting. `explain --json` prints the values."""

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
    """A reason.

    code: Slurm's name.
    more: text behind it.
    limit: the blocking limit, for Blocker.LIMIT, if the name shows it.
    """

    code: str
    blocker: Blocker
    more: str = ""
    limit: Limit | None = None


_CODES_OF_BLOCKER = {
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
CODES = {code.lower(): (code, blocker) for blocker, codes in _CODES_OF_BLOCKER.items() for code in codes.split()}
_GONE = re.compile(r"\(?reservation[ _](.+[ _]was[ _])?deleted\b", re.IGNORECASE)
_CODE = re.compile(r"\(?(\w+)\)?[,:;]?\s*(.*)", re.DOTALL)
_FAILED, _TAKEN = Blocker.HELD_AFTER_FAILURE, "reqnodenotavail, "
# Sentences that slurmctld prints instead of a name; scontrol writes them with underscores.
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

    An unknown name is Blocker.UNKNOWN and is shown as it is.
    """
    reason = text.strip()
    if not reason or reason == "(null)":
        return Reason("None", Blocker.NOT_TRIED)
    if _GONE.match(reason):
        return Reason("ReservationDeleted", Blocker.RESERVATION_GONE, reason)
    sentence = reason.replace("_", " ").strip("()").lower()
    for begin, (code, blocker) in _SENTENCES.items():
        if sentence.startswith(begin):
            return Reason(code, blocker, reason.removeprefix(f"{code}, "))
    found = _CODE.match(reason)
    name, more = (found[1], found[2].strip()) if found else (reason, "")
    code, blocker = CODES.get(name.lower(), (name, Blocker.UNKNOWN))
    if blocker is Blocker.UNKNOWN and (limit := limit_named(name)):
        return Reason(name, Blocker.LIMIT, more, limit)
    return Reason(code, blocker, more)

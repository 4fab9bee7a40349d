"""What a policy would change of jobs besides their order, and the record of what slurmsched has changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from slurmsched.model.columns import Floats, Int32s, Int64s, Labels


@dataclass(frozen=True, slots=True, eq=False)
class JobChanges:
    """Columns (N,) by row of snapshot.jobs; None, or the value named, leaves a job as it is.

    gpus: int32, GPUs that the job is to hold; 0 = as many as it asks for.
    gpu_type: the type it is to run on for now; "" = any that it may.
    gpus_by_type: what it is to hold of several types at once, as a request in normal form ("gpu:k80:2,gpu:v100:4").
        The sum is the number that it is to hold; "" = one type at most. gpu_type is then for clusters that give it one
        type only.
    start_s: float64, it is not to start before this time [Unix s]; -inf = whenever, inf = not as things are now.
    share: float64 in [0, 1], part of the time for which it is to hold GPUs in the long run. It is only shown: the order
        of each round follows it already.
    beside: int64, id of the job on whose GPUs it is to run for now; -1 = on its own. That job asks for as many GPUs and
        is beside no other job.
    """

    gpus: Int32s | None = None
    gpu_type: Labels | None = None
    start_s: Floats | None = None
    share: Floats | None = None
    beside: Int64s | None = None
    gpus_by_type: Labels | None = None

    @property
    def columns(self) -> dict[str, Int32s | Int64s | Labels | Floats]:
        """The columns that are given, by name."""
        given = {"gpus": self.gpus, "gpu_type": self.gpu_type, "gpus_by_type": self.gpus_by_type,
                 "start_s": self.start_s, "share": self.share, "beside": self.beside}  # fmt: skip
        return {name: column for name, column in given.items() if column is not None}


def types_of(request: str) -> dict[str, int]:
    """GPUs of each type in a request in normal form: "gpu:k80:2,gpu:v100:4" -> {"k80": 2, "v100": 4}."""
    parts = (part.split(":") for part in request.split(",") if part.count(":") == 2)
    return {name: int(gpus) for kind, name, gpus in parts if kind == "gpu"}


def request_of_types(gpus: dict[str, int]) -> str:
    """The reverse of types_of, in ascending order of types."""
    return ",".join(f"gpu:{name}:{gpus[name]}" for name in sorted(gpus))


# Overrides.

SAME_S = 1.5  # Slurm keeps whole seconds
MAY_ARRIVE_S = 30.0  # so long Slurm may still take a write that got no answer, such as one of a killed process
FieldValue = int | float | str
PRIORITY = ("nice", "site_factor")  # fields that only order jobs: the log keeps all their values, the ledger the last


class OverrideState(StrEnum):
    """active: the planner may change the field again. abandoned: the field is left to Slurm until the job is submitted
    again, because Slurm or a person decided against it."""

    ACTIVE = "active"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class Override:
    """One field of one job that slurmsched has changed.

    field: "nice", "site_factor", "start_time", "size", "gpu_type" or "node_list", or that of another lever.
    base: what its user asked for, and what `undo` restores. A start has 0 if that is not known.
    sent: the latest value that was meant for the job. It equals `base` once the job has its own value again.
    values: other values that were meant for it and may be in force, since not all that is on record was sent. The base
        is among them until Slurm took one of ours (`unanswered`).
    since_s: when the job got this value [Unix s].
    note: the reason for the state, for people.
    accounting: the value is in the job's record of slurmdbd, not in slurmctld.
    """

    job_id: int
    submit_s: float
    field: str
    base: FieldValue
    sent: FieldValue
    state: OverrideState = OverrideState.ACTIVE
    values: tuple[FieldValue, ...] = ()
    since_s: float = 0.0
    note: str = ""
    accounting: bool = False

    @property
    def key(self) -> tuple[int, str]:
        """Job and field; of several records with one key the last counts."""
        return self.job_id, self.field

    @property
    def open(self) -> bool:
        """Whether the job may hold a value of ours."""
        return self.sent != self.base

    @property
    def abandoned(self) -> bool:
        return self.state == OverrideState.ABANDONED

    @property
    def matters(self) -> bool:
        """Whether a later cycle has to know of it."""
        return self.open or self.abandoned

    @property
    def unanswered(self) -> bool:
        """Whether no write of ours is known to have reached the job."""
        return self.open and self.base in self.values

    def may_arrive(self, now_s: float) -> bool:
        """Whether a write may still reach a job that has its own value. A refusal is an answer, and no write is of a
        time to come."""
        return self.unanswered and not self.abandoned and 0 <= now_s - self.since_s < MAY_ARRIVE_S

    def given(self, value: FieldValue, now_s: float) -> Override:
        """The record once this value is to be sent. The base counts as meant for the job until Slurm took a write."""
        unanswered = not self.open or self.unanswered
        own = (self.base,) if unanswered else ()
        before = (self.sent,) if self.open else ()
        values = tuple(dict.fromkeys((*self.values, *before, value, *own)))
        return replace(self, sent=value, values=values, since_s=now_s if unanswered else self.since_s)

    def answered(self) -> Override:
        """The record once Slurm took a write: a job with its own value got that from its user."""
        return replace(self, values=tuple(value for value in self.values if value != self.base))

    def meant(self, value: FieldValue) -> bool:
        """Whether this value may be one of ours. Times may differ by what Slurm's whole seconds make of them."""
        if not isinstance(value, float):
            return value in (self.sent, *self.values)
        return any(abs(value - float(ours)) <= SAME_S for ours in (self.sent, *self.values))

    def closed(self, note: str = "", *, abandoned: bool = False) -> Override:
        """The record once the job has its own value."""
        state = OverrideState.ABANDONED if abandoned else OverrideState.ACTIVE
        return replace(self, sent=self.base, values=(), state=state, note=note or self.note)

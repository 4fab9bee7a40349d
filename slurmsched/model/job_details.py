"""What Slurm says about one job besides the snapshot. What could not be read is named in `unread`, and is empty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import nan

from slurmsched.model.operations import Reservations


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """Something that happened to a job.

    time_s: when [Unix s].
    by: who did it.
    outcome: what Slurm answered.
    """

    time_s: float
    by: str
    what: str
    reason: str = ""
    outcome: str = ""

    @property
    def line(self) -> str:
        """The row as a line of text."""
        when = f"{datetime.fromtimestamp(self.time_s):%Y-%m-%dT%H:%M:%S}"
        return f"{when} {self.by}: {self.what}" + "".join(f" ({text})" for text in (self.reason, self.outcome) if text)


@dataclass(frozen=True, slots=True)
class LicensePool:
    """One licence."""

    name: str
    total: int
    used: int


@dataclass(frozen=True, slots=True)
class ShareAndUse:
    """What an account, or a user in it, is entitled to and has used, as sshare has it.

    user: "" for the account itself.
    share, use: parts of that of all accounts beside it, or of all users of the account; 0 to 1, NaN = not told.
    fair_share: the factor of the priority, 0 to 1, NaN for an account.
    """

    account: str
    user: str
    share: float
    use: float
    fair_share: float


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """A waiting job for which Slurm's backfill has planned nodes. nodes: hostlist. start_s: its expected start."""

    job_id: int
    user: str
    nodes: str
    start_s: float


@dataclass(frozen=True, slots=True, eq=False)
class JobDetails:
    """What is known of one job.

    record: fields of `scontrol show job`.
    partitions: fields of `scontrol show partition`, by partition name.
    pools: licences.
    limits: the output of `scontrol -o show assoc_mgr`.
    reservations: those of the site.
    ours: what slurmsched did to the job, oldest first, as text.
    waits_s: how long similar jobs waited for their first start [s].
    start_s: when Slurm expects it to start [Unix s], NaN where Slurm does not say.
    requeued: whether slurmsched requeued it and it has not run since.
    shares: of its account and its user.
    priority_parts: points of the job's priority by their names in sprio.
    planned: jobs for which Slurm has planned nodes; None = not asked, or no answer.
    unread: what could not be read, and why.
    """

    record: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    pools: tuple[LicensePool, ...] = ()
    limits: str = ""
    reservations: Reservations = field(default_factory=lambda: Reservations.build(0, {}))
    ours: tuple[str, ...] = ()
    waits_s: tuple[float, ...] = ()
    start_s: float = nan
    requeued: bool = False
    shares: tuple[ShareAndUse, ...] = ()
    priority_parts: Mapping[str, int] = field(default_factory=dict)
    planned: tuple[PlannedStart, ...] | None = None
    unread: tuple[str, ...] = ()

    def remembered(self, known: JobDetails) -> JobDetails:
        """With what is on record of the job and of others like it."""
        return replace(self, ours=known.ours, waits_s=known.waits_s, requeued=known.requeued,
                       unread=(*self.unread, *known.unread))  # fmt: skip
